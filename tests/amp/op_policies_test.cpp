// SPDX-License-Identifier: Apache-2.0
// Regions with policies of their own for some ops.
#include <doctest/doctest.h>

#include <thread>

#include "amp/step/custom.h"
#include "amp/step/train_step.h"
#include "framework/autograd/recompute.h"
#include "framework/backend/op_log.h"
#include "framework/ops/core/op_policy.h"
#include "layers/layers.h"
#include "optim/optimizers.h"
#include "tests/amp/autocast_calls.h"
#include "tests/support/errors.h"

using namespace halfstep;
using namespace halfstep::calls;
using testing::error_of;

namespace {

AutocastOptions with(const OpPolicies& policies, DType low = DType::f16) { return {.dtype = low, .policies = policies}; }

struct Products : Function<Products> {
  static inline DType forward_dtype = DType::f64, backward_dtype = DType::f64;
  static Tensors forward(FunctionContext& ctx, const Tensors& in) {
    return custom_fwd(ctx, Device::cpu, in, [&](const Tensors& x) {
      ctx.save(x);
      const Tensor y = mm(x[0], x[1]);
      forward_dtype = y.dtype();
      return Tensors{y};
    });
  }
  static Tensors backward(FunctionContext& ctx, const Tensors& g) {
    return custom_bwd(ctx, [&] {
      const Tensors x = ctx.saved();
      const Tensor a = mm(g[0].to(DType::f32), x[1].t());
      backward_dtype = a.dtype();
      return Tensors{a, mm(x[0].t(), g[0].to(DType::f32))};
    });
  }
};

}  // namespace

TEST_CASE("a region's policy for an op takes the place of the op's own") {
  const Tensor wide = rand({3, 4}), half = wide.to(DType::f16), weight = rand({2, 4});
  {
    const Autocast region(Device::cpu, with({}));
    CHECK(softmax(half, 1).dtype() == DType::f32);
    CHECK(linear(wide, weight).dtype() == DType::f16);
    CHECK(relu(half).dtype() == DType::f16);
  }
  const Autocast region(Device::cpu, with({{"softmax", CastPolicy::keep},
                                           {"linear", CastPolicy::f32},
                                           {"relu", CastPolicy::f32},
                                           {"exp", CastPolicy::low},
                                           {"layer_norm", CastPolicy::low},
                                           {"mean", CastPolicy::f32_output},
                                           {"binary_cross_entropy", CastPolicy::f32},
                                           {"mm", CastPolicy::banned}}));
  CHECK(softmax(half, 1).dtype() == DType::f16);
  CHECK(log_softmax(half, 1).dtype() == DType::f32);
  CHECK(linear(half, weight).dtype() == DType::f32);
  CHECK(relu(half).dtype() == DType::f32);
  CHECK(exp(wide).dtype() == DType::f16);
  CHECK(layer_norm(wide, {4}).dtype() == DType::f16);
  CHECK(mean(half).dtype() == DType::f32);
  CHECK(binary_cross_entropy(half, half).dtype() == DType::f32);
  CHECK(error_of([&] { mm(wide, weight.t()); }) ==
        "[mm] is unsafe to autocast: its gradient can leave the range of float16\nhelp: the region's policies ban it");
}

TEST_CASE("every op that casts does not with the policy keep, and every one that does not casts with f32") {
  INFO("an op that only calls others belongs on the list of calls_others (framework/ops/core/op_policy.cpp)");
  for (const Op& op : all_ops()) {
    const OpCall* const call = find(op.name);
    if (!call || !op.alias_of.empty()) continue;
    CAPTURE(op.name);
    if (calls_others(op.name)) {
      const Autocast region(Device::cpu, with({{std::string(op.name), CastPolicy::f32}}));
      CHECK(error_of([&] { relu(rand({2})); }).find("has no policy of its own") != std::string::npos);
      continue;
    }
    if (op.policy != CastPolicy::keep) {
      const Tensors in = draw(*call, DType::f32);
      const Tensor expected = call->run(in);
      const Autocast region(Device::cpu, with({{std::string(op.name), CastPolicy::keep}}));
      const uint64_t before = autocast::cast_count();
      CHECK(bitwise(call->run(in), expected));
      CHECK(autocast::cast_count() == before);
    } else if (const Tensors in = draw(*call, DType::bf16); call->run(in).dtype() == DType::bf16) {
      const Autocast region(Device::cpu, with({{std::string(op.name), CastPolicy::f32}}));
      CHECK(call->run(in).dtype() == DType::f32);
    }
  }
}

TEST_CASE("the names of policies are held against the list of ops") {
  const Tensor x = rand({2, 2});
  const auto error = [&](const OpPolicies& policies) {
    return error_of([&] {
      const Autocast region(Device::cpu, with(policies));
      relu(x);
    });
  };
  CHECK(error({{"sofmax", CastPolicy::keep}}) ==
        "[autocast] there is no op \"sofmax\" to set a policy for; did you mean \"softmax\"?\nhelp: halfstep ops lists them");
  CHECK(error({{"relu", CastPolicy::f32_output}}) ==
        "[autocast] relu has no dtype of its result to choose, so its policy cannot be f32_output\nhelp: f32 casts its inputs");
  CHECK(error({{"relu", CastPolicy::keep}}).empty());
  std::string alias, of;
  for (const Op& op : all_ops())
    if (!op.alias_of.empty()) alias = op.name, of = op.alias_of;
  CHECK(error({{alias, CastPolicy::keep}}) == "[autocast] \"" + alias + "\" is another name of " + of + ": give that one");
  // Where no region is on they have no effect.
  const Autocast off(Device::cpu, AutocastOptions{.enabled = false, .policies = OpPolicies{{"nonsense", CastPolicy::keep}}});
  relu(x);
}

TEST_CASE("policies of nested regions: inherited, replaced, cleared, and gone at the end") {
  const Tensor half = rand({3, 4}).to(DType::f16);
  {
    const Autocast outer(Device::cpu, with({{"softmax", CastPolicy::keep}}));
    {
      const Autocast inner(Device::cpu, DType::f16);
      CHECK(softmax(half, 1).dtype() == DType::f16);
    }
    {
      const Autocast inner(Device::cpu, with({{"exp", CastPolicy::keep}}));
      CHECK(softmax(half, 1).dtype() == DType::f32);
      CHECK(exp(half).dtype() == DType::f16);
    }
    {
      const Autocast inner(Device::cpu, with({}));
      CHECK(softmax(half, 1).dtype() == DType::f32);
    }
    CHECK(softmax(half, 1).dtype() == DType::f16);
    bool there = true;
    std::thread([&] { there = autocast::any_policies(); }).join();
    CHECK(!there);
  }
  CHECK(!autocast::any_policies());
  const Autocast region(Device::cpu, DType::f16);
  CHECK(softmax(half, 1).dtype() == DType::f32);
}

TEST_CASE("equal policies are one, and none are none") {
  const OpPolicies none, empty(OpPolicies::ByName{});
  CHECK(none.empty());
  CHECK(empty.empty());
  const OpPolicies a{{"exp", CastPolicy::keep}, {"mm", CastPolicy::f32}}, b{{"mm", CastPolicy::f32}, {"exp", CastPolicy::keep}};
  CHECK(&a.by_name() == &b.by_name());
  CHECK(a.find("mm") == CastPolicy::f32);
  CHECK(!a.find("bmm"));
  for (const CastPolicy p :
       {CastPolicy::low, CastPolicy::f32, CastPolicy::f32_output, CastPolicy::promote, CastPolicy::keep, CastPolicy::banned})
    CHECK(parse_policy(name(p)) == p);
  CHECK(!parse_policy("fp32"));
}

TEST_CASE("backward of custom functions and recomputing see the policies of the forward") {
  const Tensor a = leaf({3, 4}), b = leaf({4, 2});
  Tensor y, z;
  std::vector<DType> seen;
  {
    const Autocast region(Device::cpu, with({{"mm", CastPolicy::f32}}));
    y = Products::apply({a, b})[0];
    const auto product = [&](const Tensor& x) {
      const Tensor out = mm(x, b);
      seen.push_back(out.dtype());
      return out;
    };
    z = checkpoint(product, a, {b});
  }
  CHECK(Products::forward_dtype == DType::f32);
  CHECK(z.dtype() == DType::f32);
  y.sum().backward();
  CHECK(Products::backward_dtype == DType::f32);
  z.sum().backward();
  CHECK(seen == std::vector<DType>{DType::f32, DType::f32});
}

TEST_CASE("layers that are fused run by themselves, so that each op has its policy") {
  Sequential net{Linear(4, 4), ReLU(), Linear(4, 4), ReLU()};
  Linear alone(4, 4);
  const Tensor x = rand({2, 4});
  const Autocast region(Device::cpu, with({{"relu", CastPolicy::f32}}));
  const OpLogScope log(Device::cpu);
  CHECK(net(x).dtype() == DType::f32);
  alone.relu(x);
  std::vector<std::string> calls;
  for (const LoggedCall& call : log.calls()) calls.push_back(joined(call.op, ' ', call.compute));
  CHECK(calls == std::vector<std::string>{"linear float16", "relu float32", "linear float16", "relu float32", "linear float16",
                                          "relu float32"});
}

TEST_CASE("policies for ops that are not fused leave layers fused") {
  Sequential net{Linear(4, 4), ReLU(), Linear(4, 4), ReLU()};
  const Autocast region(Device::cpu, with({{"softmax", CastPolicy::keep}, {"mlp", CastPolicy::f32}}));
  const OpLogScope log(Device::cpu);
  net(rand({2, 4}));
  REQUIRE(log.calls().size() == 1);
  CHECK(log.calls()[0].op == "mlp");
  CHECK(log.calls()[0].compute == DType::f32);
}

TEST_CASE("the policies of a train step are those of its region, and their names are checked when it is made") {
  const auto net = std::make_shared<Sequential>(Linear(4, 3), Softmax(-1));
  SGD opt(net->parameters(), {.lr = 0.1});
  GradScaler scaler({.enabled = false});
  const MSELoss loss;
  const auto made = [&](const OpPolicies& policies, std::optional<DType> amp = DType::f16) {
    return TrainStep(*net, loss, opt, scaler, nullptr, {.amp = amp, .policies = policies})(rand({2, 4}), rand({2, 3}))
        .output.dtype();
  };
  CHECK(made({}) == DType::f32);
  CHECK(made({{"softmax", CastPolicy::keep}}) == DType::f16);
  CHECK(made({{"linear", CastPolicy::f32}, {"softmax", CastPolicy::keep}}) == DType::f32);
  CHECK(made({{"linear", CastPolicy::low}}, {}) == DType::f32);
  CHECK(error_of([&] { made({{"sofmax", CastPolicy::keep}}); }).find("did you mean \"softmax\"?") != std::string::npos);
}

TEST_CASE("the log of calls says that a policy is the region's, and a module in float32 has none of them") {
  const Tensor half = rand({2, 4}).to(DType::f16);
  Linear layer(4, 4);
  layer.set_precision(DType::f32);
  const Autocast region(Device::cpu,
                        with({{"softmax", CastPolicy::f32}, {"linear", CastPolicy::low}, {"layer_norm", CastPolicy::keep}}));
  const OpLogScope log(Device::cpu);
  softmax(half, 1);
  layer(half);
  layer_norm(half, {4});
  REQUIRE(log.calls().size() == 3);
  CHECK(log.calls()[0].policy == CastPolicy::f32);
  CHECK(log.calls()[0].reason == "computes in float32, policy set to f32");
  CHECK(log.calls()[1].compute == DType::f32);
  CHECK(log.calls()[2].reason == "takes the dtype it is given, policy set to keep");
  CHECK(log.calls()[2].compute == DType::f16);
}
