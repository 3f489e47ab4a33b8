// SPDX-License-Identifier: Apache-2.0
// Functions with a backward of the user's own.
#include "framework/autograd/function.h"

#include <doctest/doctest.h>

#include <functional>
#include <stdexcept>
#include <string>
#include <vector>

#include "framework/autograd/autograd.h"
#include "framework/autograd/gradcheck.h"
#include "framework/ops/ops.h"
#include "tests/support/doubles.h"

using namespace halfstep;
using namespace halfstep::testing;

namespace {

struct Cube : Function<Cube> {
  static Tensors forward(FunctionContext& ctx, const Tensors& in) {
    CHECK(!grad_enabled());
    ctx.save({in[0]});
    return {in[0] * in[0] * in[0]};
  }
  static Tensors backward(FunctionContext& ctx, const Tensors& g) { return {g[0] * square(ctx.saved()[0]) * 3.0}; }
};

// Saves its output.
struct Exp : Function<Exp> {
  static Tensors forward(FunctionContext& ctx, const Tensors& in) {
    const Tensor y = exp(in[0]);
    ctx.save({y});
    return {y};
  }
  static Tensors backward(FunctionContext& ctx, const Tensors& g) { return {g[0] * ctx.saved()[0]}; }
};

// a b and a + b; counts the gradients that it was asked for.
// a b, whose backward does something else on the way.
struct Asks : Function<Asks> {
  static inline std::function<void(FunctionContext&)> inside;
  static Tensors forward(FunctionContext& ctx, const Tensors& in) {
    ctx.save(in);
    return {in[0] * in[1]};
  }
  static Tensors backward(FunctionContext& ctx, const Tensors& g) {
    if (inside) inside(ctx);
    return {g[0] * ctx.saved()[1], g[0] * ctx.saved()[0]};
  }
};

struct Both : Function<Both> {
  static inline std::vector<bool> asked;
  static Tensors forward(FunctionContext& ctx, const Tensors& in) {
    ctx.save(in);
    ctx.state = std::string("kept");
    return {in[0] * in[1], in[0] + in[1]};
  }
  static Tensors backward(FunctionContext& ctx, const Tensors& g) {
    CHECK(std::any_cast<std::string>(ctx.state) == "kept");
    CHECK(g[0].defined());
    CHECK(g[1].defined());
    asked = {ctx.needs(0), ctx.needs(1)};
    const Tensors in = ctx.saved();
    return {g[0] * in[1] + g[1], ctx.needs(1) ? g[0] * in[0] + g[1] : Tensor()};
  }
};

struct TooMany : Function<TooMany> {
  static Tensors forward(FunctionContext&, const Tensors& in) { return {in[0] * 1.0}; }
  static Tensors backward(FunctionContext&, const Tensors& g) { return {g[0], g[0]}; }
};

struct NoGradient : Function<NoGradient> {
  static Tensors forward(FunctionContext&, const Tensors& in) { return {in[0] * 1.0}; }
  static Tensors backward(FunctionContext&, const Tensors&) { return {Tensor()}; }
};

struct IdentityFunction : Function<IdentityFunction> {
  static Tensors forward(FunctionContext&, const Tensors& in) { return {in[0]}; }
  static Tensors backward(FunctionContext&, const Tensors& g) { return {g[0] * -1.0}; }
};

struct HalfGradient : Function<HalfGradient> {
  static Tensors forward(FunctionContext&, const Tensors& in) { return {in[0] * 1.0}; }
  static Tensors backward(FunctionContext&, const Tensors& g) { return {g[0].to(DType::f16)}; }
};

struct FailsOnce : Function<FailsOnce> {
  static inline bool fail = true;
  static Tensors forward(FunctionContext& ctx, const Tensors& in) {
    ctx.save(in);
    return {in[0] * in[1]};
  }
  static Tensors backward(FunctionContext& ctx, const Tensors& g) {
    if (std::exchange(fail, false)) throw std::runtime_error("no");
    const Tensors in = ctx.saved();
    return {ctx.needs(0) ? g[0] * in[1] : Tensor(), ctx.needs(1) ? g[0] * in[0] : Tensor()};
  }
};

}  // namespace

TEST_CASE("a function's own backward is used, and differentiated again") {
  const Tensor x = leaf({2, -1});
  const Tensor y = Cube::apply({x})[0];
  CHECK(values(y) == V{8, -1});
  CHECK(y.node()->name() == "custom function");
  CHECK(values(grad({sum(y)}, {x}, {}, {.retain_graph = true})[0]) == V{12, 3});
  auto cube = [](const Tensors& in) { return Cube::apply(in); };
  gradcheck(cube, {x});
  gradgradcheck(cube, {x});
}

TEST_CASE("gradcheck leaves its inputs as they were, also if the function throws") {
  const Tensor x = leaf({2, -1, 0.5});
  for (int at = 0; at <= 7; ++at) {  // one call before the elements, two for each of three
    int calls = 0;
    const auto f = [&](const Tensors& in) {
      if (calls++ == at) throw std::runtime_error("no more");
      return Tensors{in[0] * in[0]};
    };
    if (at == 7)
      CHECK_NOTHROW(gradcheck(f, {x}));
    else
      CHECK_THROWS_WITH_AS(gradcheck(f, {x}), "no more", std::runtime_error);
    CHECK(values(x) == V{2, -1, 0.5});
  }
}

TEST_CASE("a saved output keeps its history for a recorded backward, without a cycle") {
  const Tensor x = leaf({0.5, -1});
  auto f = [](const Tensors& in) { return Exp::apply(in); };
  gradcheck(f, {x});
  gradgradcheck(f, {x});
  std::weak_ptr<Node> node;
  {
    const Tensor y = Exp::apply({x})[0];
    node = y.node();
  }
  CHECK(node.expired());
}

TEST_CASE("outputs that nothing flows into get zeros, and unwanted inputs may be left out") {
  const Tensor a = leaf({2, 3}), b = leaf({5, 7});
  Tensors out = Both::apply({a, b});
  sum(out[0]).backward();
  CHECK(values(a.grad()) == V{5, 7});
  CHECK(values(b.grad()) == V{2, 3});
  CHECK(Both::asked == std::vector<bool>{true, true});
  out = Both::apply({a, b.detach()});
  a.zero_grad();
  sum(out[1] * 2.0).backward();
  CHECK(values(a.grad()) == V{2, 2});
  CHECK(Both::asked == std::vector<bool>{true, false});
  out = Both::apply({a, b});
  CHECK(values(grad({sum(out[0])}, {b})[0]) == V{2, 3});
  CHECK(Both::asked == std::vector<bool>{false, true});
}

TEST_CASE("what a backward is asked for survives another one of the same graph inside it") {
  const Tensor a = leaf({2, 3}), b = leaf({5, 7});
  Tensor loss = sum(Asks::apply({a, b})[0]);
  std::vector<std::string> asked;
  Asks::inside = [&](FunctionContext& ctx) {
    if (asked.empty()) {  // the first call, of grad for b
      asked.push_back("outer");
      CHECK(values(grad({loss}, {a}, {}, {.retain_graph = true})[0]) == V{5, 7});
    }
    asked.push_back(std::string(ctx.needs(0) ? "a" : "") + (ctx.needs(1) ? "b" : ""));
  };
  CHECK(values(grad({loss}, {b}, {}, {.retain_graph = true})[0]) == V{2, 3});
  Asks::inside = nullptr;
  CHECK(asked == std::vector<std::string>{"outer", "a", "b"});
}

TEST_CASE("an undefined gradient is none") {
  const Tensor x = leaf({1, 2});
  sum(NoGradient::apply({x})[0]).backward();
  CHECK(!x.grad().defined());
  sum(NoGradient::apply({x})[0] + x).backward();
  CHECK(values(x.grad()) == V{1, 1});
}

TEST_CASE("the number of gradients must be the number of inputs") {
  const Tensor x = leaf({1});
  CHECK_THROWS_WITH_AS(TooMany::apply({x})[0].backward(), "[custom function] backward must return 1 gradient, one per input, got 2",
                       AutogradError);
}

TEST_CASE("an input handed through becomes a tensor of its own") {
  const Tensor x = leaf({1, 2});
  const Tensor y = IdentityFunction::apply({x})[0];
  CHECK(x.is_leaf());
  CHECK(!y.same(x));
  sum(y).backward();
  CHECK(values(x.grad()) == V{-1, -1});
}

TEST_CASE("gradients are converted to the dtypes of the inputs") {
  const Tensor x = leaf({1, 2});
  sum(HalfGradient::apply({x})[0]).backward();
  CHECK(x.grad().dtype() == DType::f64);
}

TEST_CASE("without grad mode or inputs that require grad nothing is recorded") {
  const Tensor x = leaf({1});
  CHECK(!Cube::apply({x.detach()})[0].requires_grad());
  const NoGrad off;
  CHECK(!Cube::apply({x})[0].requires_grad());
}

TEST_CASE("saved tensors of functions are checked and freed like those of ops") {
  const Tensor x = leaf({1, 2});
  const Tensor h = x * 1.0;
  const Tensor y = sum(Cube::apply({h})[0]);
  h.add_(1.0);
  CHECK_THROWS_WITH_AS(y.backward(), doctest::Contains("was modified in place after custom function saved it"), AutogradError);
  const Tensor z = Cube::apply({leaf({1})})[0];
  z.backward();
  CHECK_THROWS_WITH_AS(z.backward(), doctest::Contains("[custom function] the graph was freed by an earlier backward"),
                       AutogradError);
}

TEST_CASE("a backward that failed can be run again whole") {
  const Tensor a = leaf({2}), b = leaf({3});
  const Tensor y = FailsOnce::apply({a, b})[0];
  CHECK_THROWS_WITH(grad({y}, {a}), "no");
  CHECK(grad_enabled());
  y.backward();
  CHECK(values(a.grad()) == V{3});
  CHECK(values(b.grad()) == V{2});
}

namespace {

// x where it is within the bound. Keeps x only where its gradient may be wanted.
struct Clip : Function<Clip> {
  static Tensors forward(FunctionContext& ctx, const Tensors& in, double bound, const std::string& side) {
    if (ctx.needs(0)) ctx.save({in[0]});
    ctx.state = bound;
    return {side == "above" ? clamp(in[0], {}, bound) : clamp(in[0], bound, {})};
  }
  static Tensors backward(FunctionContext& ctx, const Tensors& g) {
    return {where(ctx.saved().at(0) < std::any_cast<double>(ctx.state), g[0], 0.0)};
  }
};

struct Needs : Function<Needs> {
  static inline std::vector<bool> asked;
  static Tensors forward(FunctionContext& ctx, const Tensors& in) {
    asked = {ctx.needs(0), ctx.needs(1), ctx.needs(2)};
    return {in[0] + in[1]};
  }
  static Tensors backward(FunctionContext&, const Tensors& g) { return {g[0], g[0]}; }
};

struct ElsewhereGradient : Function<ElsewhereGradient> {
  static Tensors forward(FunctionContext&, const Tensors& in) { return {in[0] * 1.0}; }
  static Tensors backward(FunctionContext&, const Tensors& g) {
    return {empty(g[0].shape(), {.dtype = g[0].dtype(), .device = Device::meta})};
  }
};

}  // namespace

TEST_CASE("a function takes what is no tensor behind the tensors") {
  const Tensor x = leaf({1, 5});
  const Tensor y = Clip::apply({x}, 2.0, "above")[0];
  CHECK(values(y) == V{1, 2});
  sum(y).backward();
  CHECK(values(x.grad()) == V{1, 0});
}

TEST_CASE("a forward may ask which gradients may be wanted") {
  const Tensor x = leaf({1});
  Needs::apply({x, x.detach()});
  CHECK(Needs::asked == std::vector<bool>{true, false, false});
  Needs::apply({x.detach(), x * 2.0});
  CHECK(Needs::asked == std::vector<bool>{false, true, false});
  no_grad([&] { return Needs::apply({x, x}); });
  CHECK(Needs::asked == std::vector<bool>{false, false, false});
}

TEST_CASE("a gradient on another device is refused") {
  CHECK_THROWS_WITH_AS(sum(ElsewhereGradient::apply({leaf({1})})[0]).backward(),
                       "[custom function] its backward gave input 0 a gradient on meta, but the input is on cpu", DeviceError);
}

namespace {

// Doubles its input in place, and says so.
struct DoubleInPlace : Function<DoubleInPlace> {
  static Tensors forward(FunctionContext& ctx, const Tensors& in) {
    in[0].mul_(2.0);
    ctx.mark_dirty({in[0]});
    return {in[0]};
  }
  static Tensors backward(FunctionContext&, const Tensors& g) { return {g[0] * 2.0}; }
};

// Writes through a pointer.
struct SetFirst : Function<SetFirst> {
  static Tensors forward(FunctionContext& ctx, const Tensors& in) {
    in[0].data_ptr<double>()[0] = 7;
    ctx.mark_dirty({in[0]});
    return {in[0]};
  }
  static Tensors backward(FunctionContext&, const Tensors& g) { return {g[0]}; }
};

struct DirtyButLost : Function<DirtyButLost> {
  static Tensors forward(FunctionContext& ctx, const Tensors& in) {
    ctx.mark_dirty({in[0]});
    return {in[0] * 1.0};
  }
  static Tensors backward(FunctionContext&, const Tensors& g) { return {g[0]}; }
};

// x and the sign of x, which has no gradient.
struct WithSign : Function<WithSign> {
  static Tensors forward(FunctionContext& ctx, const Tensors& in) {
    const Tensor s = sign(in[0]);
    ctx.mark_non_differentiable({s});
    return {in[0] * 3.0, s};
  }
  static Tensors backward(FunctionContext&, const Tensors& g) {
    CHECK(values(g[1]) == V{0, 0});
    return {g[0] * 3.0};
  }
};

// Adds what there is of two inputs.
struct MaybeAdd : Function<MaybeAdd> {
  static inline std::vector<bool> came;
  static Tensors forward(FunctionContext& ctx, const Tensors& in, bool fill) {
    ctx.save(in);
    ctx.set_materialize_grads(fill);
    return {in[1].defined() ? in[0] + in[1] : in[0] * 1.0, in[0] * 5.0, Tensor()};
  }
  static Tensors backward(FunctionContext& ctx, const Tensors& g) {
    came = {g[0].defined(), g[1].defined(), g[2].defined()};
    const bool two = ctx.saved()[1].defined();
    return {g[0], two ? g[0] : Tensor(), Tensor()};  // the last one is for `fill`
  }
};

}  // namespace

TEST_CASE("a function changes an input in place if it marks it dirty") {
  const Tensor x = leaf({1, -2});
  const Tensor h = x * 1.0, older = h.reshape({2, 1});
  const Tensor y = DoubleInPlace::apply({h})[0];
  CHECK(y.same(h));
  CHECK(values(h) == V{2, -4});
  CHECK(h.node()->name() == "custom function");
  sum(h * 1.0).backward();
  CHECK(values(x.grad()) == V{2, 2});
  CHECK_THROWS_AS((void)(older * 1.0), AutogradError);  // it lacks the write
  CHECK_THROWS_AS(DoubleInPlace::apply({x}), AutogradError);
  CHECK_THROWS_AS(DoubleInPlace::apply({(x * 1.0).reshape({2, 1})}), AutogradError);
  CHECK_THROWS_AS(DirtyButLost::apply({x * 1.0}), AutogradError);
}

TEST_CASE("an input that is marked dirty counts as written, also through a pointer") {
  const Tensor h = leaf({1, -2}) * 1.0, square = h * h;
  const uint64_t version = h.version();
  CHECK(values(SetFirst::apply({h})[0]) == V{7, -2});
  CHECK(h.version() == version + 1);
  CHECK_THROWS_AS(sum(square).backward(), AutogradError);  // it saved the old numbers
}

TEST_CASE("an output that is marked as not differentiable does not require grad") {
  const Tensor x = leaf({2, -3});
  const Tensors y = WithSign::apply({x});
  CHECK(y[0].requires_grad());
  CHECK(!y[1].requires_grad());
  sum(y[0] * y[1]).backward();
  CHECK(values(x.grad()) == V{3, -3});
}

TEST_CASE("a function takes undefined inputs, and gets undefined gradients on request") {
  const Tensor x = leaf({2, -3});
  for (const bool fill : {true, false}) {
    x.zero_grad();
    const Tensors y = MaybeAdd::apply({x, Tensor()}, fill);
    CHECK(!y[2].defined());
    sum(y[0]).backward();
    CHECK(values(x.grad()) == V{1, 1});
    CHECK(MaybeAdd::came == std::vector<bool>{true, fill, false});
  }
}

namespace {

Tensor captured;
struct GivesCaptured : Function<GivesCaptured> {
  static Tensors forward(FunctionContext&, const Tensors& in) { return {captured, in[0] * 2.0}; }
  static Tensors backward(FunctionContext&, const Tensors& g) { return {g[0] + g[1] * 2.0}; }
};

}  // namespace

TEST_CASE("a parameter that a function captured and returns stays a leaf") {
  const Tensor x = tensor({1.0, 2.0}).set_requires_grad();
  captured = tensor({3.0, 4.0}).set_requires_grad();
  const Tensors y = GivesCaptured::apply({x});
  CHECK(captured.is_leaf());
  CHECK(y[0].requires_grad());
  (y[0] + y[1]).sum().backward();
  CHECK(x.grad().to_vector<float>() == std::vector<float>{3, 3});
  CHECK(!captured.grad().defined());
  const Tensor computed = captured * 1.0;
  const auto node = computed.node();
  captured = computed;
  GivesCaptured::apply({x});
  CHECK(computed.node() == node);
  captured = Tensor();
}

TEST_CASE("the name of a function outlives the text that it was given") {
  Tensor y;
  {
    const std::string name = std::string("a name that is too long ") + "to be within the object";
    const auto forward = [](FunctionContext&, const Tensors& in) -> Tensors { return {in[0] * 2.0}; };
    y = apply_function(name, forward, [](FunctionContext&, const Tensors&) { return Tensors(3); },
                       {ones({1}).set_requires_grad()})[0];
  }
  const std::string other(64, 'x');  // may take the freed memory
  CHECK(y.node()->name() == "a name that is too long to be within the object");
  CHECK_NOTHROW(y.backward());
}
