// SPDX-License-Identifier: Apache-2.0
// Modules of any signature, and hooks on modules.
#include "layers/module/hooks.h"

#include <doctest/doctest.h>

#include <map>
#include <optional>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "amp/step/train_step.h"
#include "framework/autograd/autograd.h"
#include "layers/feedforward/running_statistics.h"
#include "layers/layers.h"
#include "layers/module/functional_call.h"
#include "optim/optimizers.h"
#include "tests/support/doubles.h"
#include "tests/support/errors.h"

using namespace halfstep;
using namespace halfstep::testing;

namespace {

struct State {
  Tensor hidden, cell;
  int64_t step = 0;
  template <class F>
  void each_tensor(F&& f) {
    f(hidden);
    f(cell);
  }
};

// Takes a state and an optional mask, gives an output and the next state.
struct Cell : ModuleOf<Cell> {
  Parameter gain = register_parameter("gain", tensor({2.0, 3.0}, {.dtype = DType::f64}));
  std::pair<Tensor, State> forward(const Tensor& x, const State& state, const Tensor& mask = {}) {
    const Tensor y = x * gain + state.hidden;
    return {mask.defined() ? y * mask : y, State{y, state.cell + 1.0, state.step + 1}};
  }
  std::string describe() const override { return "Cell"; }
};

struct Twice : Module {
  Tensor forward(const Tensor& x) override { return x * 2.0; }
  std::string describe() const override { return "Twice"; }
};
struct Single : ModuleOf<Single> {
  Tensor forward(const Tensor& x) override { return x + 1.0; }
  std::string describe() const override { return "Single"; }
};
struct Outer : ModuleOf<Outer> {
  Part<Cell> cell{this, "cell"};
  Tensor forward(const Tensor& x) override { return cell(x, State{x, x}).first; }
  std::string describe() const override { return "Outer"; }
};

}  // namespace

TEST_CASE("a module takes and gives what its forward says, and is called like any other") {
  Cell cell;
  const Tensor x = leaf({1, 2}), h = leaf({10, 20});
  const auto [y, next] = cell(x, State{h, h, 4});
  CHECK(values(y) == V{12, 26});
  CHECK(next.step == 5);
  CHECK(values(cell(x, State{h, h}, tensor({0.0, 1.0}, {.dtype = DType::f64})).first) == V{0, 26});
  CHECK(cell.named_parameters()[0].name == "gain");

  Module& plain = cell;
  CHECK_THROWS_WITH_AS(plain(x),
                       "[forward] Cell does not take one tensor and return one, as this call needs\n"
                       "help: give it Tensor forward(const Tensor& x) override, or call it with its forward's arguments; "
                       "Sequential, TrainStep and configs need a module of one input",
                       ValueError);
  // One tensor in, one out: a module for Sequential, too.
  Sequential net(std::make_shared<Single>(), std::make_shared<Twice>());
  CHECK(values(net(x)) == V{4, 6});
}

TEST_CASE("errors in a module of any signature name its place") {
  Sequential net(std::make_shared<Twice>(), std::make_shared<Outer>());
  try {
    net(leaf({1, 2, 3}));
    FAIL("must throw");
  } catch (const ShapeError& e) { CHECK(std::string(e.what()).find("1.cell") != std::string::npos); }
}

TEST_CASE("the tensors of arguments and results are found in containers, pairs, optionals and structs") {
  const Tensor a = ones({1}), b = ones({2}), c = ones({3}), d = ones({4}), e = ones({5});
  auto value = std::make_tuple(a, 3, std::string("x"), std::vector<Tensor>{b}, std::optional<Tensor>(c), std::optional<Tensor>(),
                               State{d, e, 1}, std::vector<int>{1, 2});
  std::vector<int64_t> sizes;
  each_tensor(value, [&](Tensor& t) { sizes.push_back(t.numel()); });
  CHECK(sizes == std::vector<int64_t>{1, 2, 3, 4, 5});
}

TEST_CASE("forward hooks see and replace what goes in and comes out, in order, and go") {
  Twice m;
  std::string order;
  const uint64_t before = m.register_forward_pre_hook([&](Module&, const Tensors& in) {
    order += 'a';
    return Tensors{in[0] + 1.0};
  });
  m.register_forward_pre_hook([&](Module& module, const Tensors& in) {
    order += 'b';
    CHECK(module.describe() == "Twice");
    CHECK(values(in[0]) == V{2});
  });
  const uint64_t after = m.register_forward_hook([&](Module&, const Tensors& in, const Tensors& out) {
    order += 'c';
    CHECK(values(in[0]) == V{2});
    return out[0] * 10.0;
  });
  CHECK(values(m(leaf({1}))) == V{40});
  CHECK(order == "abc");
  m.remove_hook(before);
  m.remove_hook(after);
  order.clear();
  CHECK(m.has_hooks());
  CHECK(values(m(leaf({2}))) == V{4});
  CHECK(order == "b");
}

TEST_CASE("a hook may remove itself while it runs") {
  Twice m;
  int calls = 0;
  uint64_t key = 0;
  key = m.register_forward_hook([&](Module& module, const Tensors&, const Tensors&) {
    ++calls;
    module.remove_hook(key);
  });
  m(leaf({1}));
  m(leaf({1}));
  CHECK(calls == 1);
  CHECK(!m.has_hooks());
}

TEST_CASE("a hook that gives the wrong number of tensors is an error that says so") {
  Twice m;
  m.register_forward_hook([](Module&, const Tensors&, const Tensors& out) { return Tensors{out[0], out[0]}; });
  CHECK_THROWS_WITH_AS(m(leaf({1})),
                       "[forward_hook] a hook of Twice must return nothing or 1 tensor, one for each that it was given, got 2",
                       ValueError);
}

TEST_CASE("hooks see all tensors of a module of any signature") {
  Cell cell;
  cell.register_forward_hook([](Module&, const Tensors& in, const Tensors& out) {
    CHECK(in.size() == 4);  // x, the state's two, the mask
    CHECK(out.size() == 3);
    return Tensors{out[0] * 0.0, out[1], out[2]};
  });
  const Tensor x = leaf({1, 2});
  CHECK(values(cell(x, State{x, x}, x).first) == V{0, 0});
}

TEST_CASE("a full backward hook sees the gradients at both ends of a module, and may change those of its inputs") {
  Cell cell;
  const Tensor x = leaf({1, 2}), h = leaf({5, 7}), c = tensor({0.0, 0.0}, {.dtype = DType::f64});
  int calls = 0;
  const uint64_t key = cell.register_full_backward_hook([&](Module&, const Tensors& into, const Tensors& from) {
    ++calls;
    REQUIRE(into.size() == 3);
    REQUIRE(from.size() == 3);
    CHECK(values(from[0]) == V{1, 1});
    CHECK(!from[1].defined());
    CHECK(values(into[0]) == V{2, 3});
    CHECK(values(into[1]) == V{1, 1});
    CHECK(!into[2].defined());
    return Tensors{into[0] * 10.0, into[1], into[2]};
  });
  sum(cell(x, State{h, c}).first).backward();
  CHECK(calls == 1);
  CHECK(values(x.grad()) == V{20, 30});
  CHECK(values(h.grad()) == V{1, 1});
  CHECK(values(cell.gain.grad()) == V{1, 2});
  cell.remove_hook(key);
  sum(cell(x, State{h, c}).first).backward();
  CHECK(calls == 1);
}

TEST_CASE("a full backward hook is called for a module whose input needs no gradient") {
  Linear layer(2, 1);
  int calls = 0;
  layer.register_full_backward_hook([&](Module&, const Tensors& into, const Tensors& from) {
    ++calls;
    CHECK(!into[0].defined());
    CHECK(from[0].shape() == Shape{3, 1});
  });
  sum(layer(ones({3, 2}))).backward();
  CHECK(calls == 1);
  CHECK(layer.weight.grad().defined());
}

TEST_CASE("a hook on a layer that Sequential fuses sees that layer's own tensors, and the values stay") {
  const auto first = std::make_shared<Linear>(4, 8), second = std::make_shared<Linear>(8, 2);
  Sequential net(first, std::make_shared<ReLU>(), second);
  const Tensor x = randn({3, 4});
  const V want = values(net(x));
  std::map<std::string, Shape> seen;
  for (auto& [name, module] : net.named_modules())
    module->register_forward_hook(
        [&seen, name = name](Module&, const Tensors&, const Tensors& out) { seen[name] = out[0].shape(); });
  const V got = values(net(x));
  CHECK(seen == std::map<std::string, Shape>{{"", {3, 2}}, {"0", {3, 8}}, {"1", {3, 8}}, {"2", {3, 2}}});
  for (size_t i = 0; i < want.size(); ++i) CHECK(got[i] == doctest::Approx(want[i]).epsilon(1e-5));
}

TEST_CASE("a hook on a convolution sees its result, not what its ReLU makes of it") {
  const auto conv = std::make_shared<Conv1d>(1, 1, 1);
  Sequential net(conv, std::make_shared<ReLU>());
  const Tensor x = ones({1, 1, 2});
  {
    const NoGrad no_grad;
    conv->weight.fill_(-1.0);
    conv->bias.fill_(0.0);
  }
  V seen;
  conv->register_forward_hook([&](Module&, const Tensors&, const Tensors& out) { seen = values(out[0]); });
  CHECK(values(net(x)) == V{0, 0});
  CHECK(seen == V{-1, -1});
  seen.clear();
  CHECK(values(conv->relu(x)) == V{0, 0});
  CHECK(seen == V{-1, -1});
}

TEST_CASE("hooks run in a training step") {
  Sequential net(std::make_shared<Linear>(4, 1));
  int calls = 0;
  net.register_full_backward_hook([&](Module&, const Tensors&, const Tensors&) { ++calls; });
  SGD optimizer(net.parameters());
  GradScaler scaler({.enabled = false});
  const MSELoss loss;
  TrainStep step(net, loss, optimizer, scaler, nullptr, {});
  step(ones({2, 4}), ones({2, 1}));
  step(ones({2, 4}), ones({2, 1}));
  CHECK(calls == 2);
}

TEST_CASE("a backward hook whose module is gone or moved is an error, unless it can only use the module that it is given") {
  std::string seen;
  const auto error_after = [&](auto hook, const auto& between) {
    std::vector<Outer> nets(1);
    nets[0].register_full_backward_hook(hook);
    const Tensor y = nets[0](leaf({1, 2})).sum();
    between(nets);
    return error_of([&] { y.backward(); });
  };
  const auto free_hook = [](Module& m, const Tensors&, const Tensors&) { m.train(false); };
  const auto holding_hook = [&seen](Module& m, const Tensors&, const Tensors&) { seen = m.describe(); };
  const auto clear = [](std::vector<Outer>& nets) { nets.clear(); };
  const auto grow = [](std::vector<Outer>& nets) {
    nets.resize(9);
    CHECK(nets[0].training());
  };
  const std::string gone =
      "[full_backward_hook] the module is gone with which its hooks would be called\nhelp: let the module live until backward";
  CHECK(error_after(free_hook, clear) == gone);
  CHECK(error_after(holding_hook, clear) == gone);
  CHECK(error_after(free_hook, [](std::vector<Outer>&) {}) == "");
  CHECK(error_after(free_hook, grow) == "");
  CHECK(error_after(holding_hook, [](std::vector<Outer>&) {}) == "");
  CHECK(seen == "Outer");
  CHECK(error_after(holding_hook, grow).starts_with("[hook] Outer was moved after a hook was registered that holds something"));
}

namespace {

template <class T>
constexpr bool is_local = !std::is_copy_constructible_v<T> && !std::is_copy_assignable_v<T> && !requires {
  T::operator new(size_t());
};
static_assert(is_local<Substitution> && is_local<CachedParametrizations> && is_local<RunningStatistics> &&
              is_local<ComputedParameters>);

}  // namespace
