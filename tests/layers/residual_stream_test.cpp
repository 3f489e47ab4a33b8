// SPDX-License-Identifier: Apache-2.0
// A residual stream: sums that wait for the norm that reads them, in transformers and other blocks. The bits are those of
// the parts, and where something looks at the parts they are computed one by one.
#include "layers/sequences/residual_stream.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "framework/autograd/autograd.h"
#include "framework/backend/op_log.h"
#include "layers/layers.h"
#include "tests/support/same_bits.h"

using namespace halfstep;

namespace {

// The result and the gradients of input and parameters.
template <class F>
std::vector<std::string> step(Module& net, const Tensor& given, std::optional<DType> low, const F& forward) {
  const Tensor x = given.detach().set_requires_grad();
  net.zero_grad();
  Tensor y;
  {
    const Autocast region(Device::cpu, low);
    y = forward(x);
  }
  square(y.to(DType::f32)).sum().backward();
  std::vector<std::string> out{bytes_of(y), bytes_of(x.grad())};
  for (const Tensor& p : net.parameters()) out.push_back(bytes_of(p.grad()));
  return out;
}

int64_t calls_of(const char* op, const std::function<void()>& f) {
  const OpLogScope log(Device::cpu);
  f();
  return std::count_if(log.calls().begin(), log.calls().end(), [&](const LoggedCall& c) { return c.op == op; });
}

// Gives every module a hook, so that all parts are computed one by one.
void take_apart(Module& net) {
  net.apply([](Module& m) { m.register_forward_hook([](Module&, const Tensors&, const Tensors&) {}); });
}

constexpr std::optional<DType> kRegions[] = {{}, DType::f16, DType::bf16};

TransformerLayerOptions options(bool norm_first, bool batch_first = true) {
  return {.dim_feedforward = 24, .dropout = 0, .activation = "gelu", .batch_first = batch_first, .norm_first = norm_first};
}

// A block with RMS norms.
struct ResidualBlock : Module {
  Part<RMSNorm> norm1{this, "norm1", 12};
  Part<Linear> net1{this, "net1", 12, 12};
  Part<RMSNorm> norm2{this, "norm2", 12};
  Part<Linear> net2{this, "net2", 12, 12};
  void pass(ResidualStream& x) {
    x.add(net1(x.through(*norm1, &*net1)));
    x.add(tanh(net2(x.through(*norm2, &*net2))));
  }
  Tensor forward(const Tensor& in) override {
    ResidualStream x(in);
    pass(x);
    return x.value();
  }
};
struct TwoBlocks : Module {
  Part<ResidualBlock> one{this, "one"}, two{this, "two"};
  Part<LayerNorm> last{this, "last", 12};
  Tensor forward(const Tensor& in) override {
    ResidualStream x(in);
    x.pass(*one);
    x.pass(*two);
    return x.through(*last);
  }
};

}  // namespace

TEST_CASE("an encoder's sums are added by its norms, with the bits of the parts, in any region") {
  for (bool norm_first : {false, true}) {
    for (bool with_norm : {false, true}) {
      manual_seed(3);
      TransformerEncoder fused(make<TransformerEncoderLayer>(12, 3, options(norm_first)), 3,
                               with_norm ? make<LayerNorm>(12) : nullptr);
      TransformerEncoder parts(fused);
      take_apart(parts);
      const Tensor x = randn({2, 5, 12});
      for (const std::optional<DType> low : kRegions) {
        CAPTURE(norm_first);
        CAPTURE(with_norm);
        for (const Shape& shape : {Shape{2, 5, 12}, Shape{10, 12}}) {
          const Tensor in = x.reshape(shape);
          const auto run = [&](Module& net) { return step(net, in, low, [&](const Tensor& t) { return net(t); }); };
          CHECK(run(fused) == run(parts));
        }
        const EncoderInputs inputs{.is_causal = true};
        CHECK(step(fused, x, low, [&](const Tensor& t) { return fused(t, inputs); }) ==
              step(parts, x, low, [&](const Tensor& t) { return parts(t, inputs); }));
      }
      // Post-norm: two for each layer. Pre-norm: one in a layer, one between two, one with the last norm.
      const int64_t sums = norm_first ? 3 + 2 + (with_norm ? 1 : 0) : 6;
      CHECK(calls_of("add_layer_norm", [&] { fused(x); }) == sums);
      CHECK(calls_of("add", [&] { fused(x); }) == 6 - sums);
      CHECK(calls_of("add_layer_norm", [&] { parts(x); }) == 0);
    }
  }
}

TEST_CASE("a decoder's sums are added by its norms, with the bits of the parts") {
  for (bool norm_first : {false, true}) {
    manual_seed(4);
    TransformerDecoder fused(make<TransformerDecoderLayer>(12, 3, options(norm_first)), 2, make<LayerNorm>(12));
    TransformerDecoder parts(fused);
    take_apart(parts);
    const Tensor x = randn({2, 5, 12}), memory = randn({2, 4, 12});
    for (const std::optional<DType> low : kRegions) {
      CHECK(step(fused, x, low, [&](const Tensor& t) { return fused(t, memory); }) ==
            step(parts, x, low, [&](const Tensor& t) { return parts(t, memory); }));
    }
    CHECK(calls_of("add_layer_norm", [&] { fused(x, memory); }) == 6);
  }
}

TEST_CASE("in a region a pre-norm's result is written in the 16 bits of its reader, which casts nothing") {
  manual_seed(5);
  TransformerEncoderLayer layer(12, 3, options(true));
  const Tensor x = randn({2, 5, 12});
  const auto casts = [&] {
    const Autocast region(Device::cpu, DType::bf16);
    layer(x);  // weights are cast in the first call
    const uint64_t before = autocast::cast_count();
    layer(x);
    return autocast::cast_count() - before;
  };
  const uint64_t fused = casts();
  SUBCASE("a hook") {
    layer.linear1->register_forward_pre_hook([](Module&, const Tensors&) {});
  }
  SUBCASE("a precision") { layer.linear1->set_precision(DType::bf16); }
  SUBCASE("recomputation") { layer.linear1->recompute_in_backward(true); }
  CHECK(casts() == fused + 1);
}

TEST_CASE("other blocks, with RMS norms: the bits of the parts, and what is not plain is called by itself") {
  manual_seed(6);
  TwoBlocks fused;
  TwoBlocks parts(fused);
  take_apart(parts);
  const Tensor x = randn({7, 12});
  for (const std::optional<DType> low : kRegions) {
    const auto run = [&](Module& net) { return step(net, x, low, [&](const Tensor& t) { return net(t); }); };
    CHECK(run(fused) == run(parts));
  }
  CHECK(calls_of("add_rms_norm", [&] { fused(x); }) == 3);
  CHECK(calls_of("add_layer_norm", [&] { fused(x); }) == 1);
  const auto before = step(fused, x, DType::bf16, [&](const Tensor& t) { return fused(t); });
  SUBCASE("a block that recomputes") {
    fused.two->recompute_in_backward(true);
    CHECK(calls_of("add_layer_norm", [&] { fused(x); }) == 0);
  }
  Tensor seen;
  SUBCASE("a norm with a hook sees the sum") {
    fused.two->norm1->register_forward_pre_hook([&](Module&, const Tensors& in) { seen = in[0]; });
    CHECK(calls_of("add_rms_norm", [&] { fused(x); }) == 2);
    CHECK(bytes_of(seen) == bytes_of(fused.one(x)));
  }
  SUBCASE("policies for ops") {
    const Autocast region(Device::cpu, {.dtype = DType::bf16, .policies = OpPolicies{{"add", CastPolicy::f32}}});
    CHECK(calls_of("add_rms_norm", [&] { fused(x); }) == 0);
    return;
  }
  CHECK(step(fused, x, DType::bf16, [&](const Tensor& t) { return fused(t); }) == before);
}

TEST_CASE("a stream of 16 bits stays one in a region: the sum is rounded before the norm") {
  const Tensor x = randn({3, 4}).to(DType::bf16), branch = randn({3, 4}).to(DType::bf16);
  LayerNorm norm(4);
  const Autocast region(Device::cpu, DType::bf16);
  ResidualStream stream(x);
  stream.add(branch);
  CHECK(bytes_of(stream.through(norm)) == bytes_of(norm(x + branch)));
  CHECK(stream.value().dtype() == DType::bf16);
}

TEST_CASE("a stream adds a branch that broadcasts, and reads norms of other kinds, part by part") {
  const Tensor x = randn({3, 4});
  ResidualStream stream(x);
  stream.add(ones({4}));
  LayerNorm norm(4);
  CHECK(bytes_of(stream.through(norm)) == bytes_of(norm(x + 1.0)));
  stream.add(x);
  Identity none;
  CHECK(bytes_of(stream.through(none)) == bytes_of((x + 1.0) + x));
  stream.add(x);
  stream.add(x);
  CHECK(bytes_of(stream.value()) == bytes_of(((x + 1.0) + x + x) + x));
}

TEST_CASE("a stream that is read where nothing is recorded keeps its graph, and records no branch that was not") {
  TwoBlocks net;
  const auto gradients = [&](int read) {
    const Tensor x = ones({2, 12}).set_requires_grad();
    net.zero_grad();
    ResidualStream stream(x);
    stream.pass(*net.one);
    if (read == 1 || read == 2) {
      const NoGrad off;
      if (read == 1) CHECK(stream.value().requires_grad());  // as the tensors that were added
      if (read == 2) CHECK(!stream.through(*net.last).requires_grad());
    } else if (read == 3 || read == 4) {
      const InferenceMode off;
      read == 3 ? stream.value() : stream.through(*net.last);
    }
    stream.pass(*net.two);
    square(stream.value()).sum().backward();
    return bytes_of(x.grad()) + bytes_of(net.one->net1->weight.grad()) + bytes_of(net.two->net2->weight.grad());
  };
  const std::string unread = gradients(0);
  CHECK(unread.size() == 2 * 12 * 4 + 2 * 12 * 12 * 4);
  for (int read = 1; read <= 4; ++read) {
    CAPTURE(read);
    CHECK(gradients(read) == unread);
  }
  const Tensor x = ones({2, 12}).set_requires_grad();
  ResidualStream stream(x.detach());
  {
    const NoGrad off;
    stream.add(x * 2.0);
  }
  CHECK(!stream.value().requires_grad());
}

TEST_CASE("a norm that throws leaves a stream its branch") {
  const Tensor x = randn({2, 4}), branch = randn({2, 4});
  ResidualStream stream(x);
  stream.add(branch);
  LayerNorm wrong(3), right(4);
  CHECK_THROWS_AS(stream.through(wrong), ShapeError);
  CHECK(bytes_of(stream.through(right)) == bytes_of(right(x + branch)));
}
