// SPDX-License-Identifier: Apache-2.0
// What may be changed in place, and what the graph makes of it.
#include <doctest/doctest.h>

#include "framework/autograd/autograd.h"
#include "framework/autograd/node.h"
#include "framework/ops/index/slicing.h"
#include "framework/ops/ops.h"
#include "framework/ops/shape/create.h"
#include "tests/support/doubles.h"

using namespace halfstep;
using namespace halfstep::testing;

namespace {

// d sum(f(x)) / dx with the in-place form and with the out-of-place form of the same computation.
template <class InPlace, class OutOfPlace>
void check_same(InPlace in_place, OutOfPlace out_of_place) {
  const Tensor x = leaf({0.5, 1.25, 2});
  const Tensor a = x * 1.5, b = x * 1.5;
  const Tensor before = a;
  in_place(a);
  const Tensor c = out_of_place(b);
  CHECK(before.same(a));
  CHECK(!a.is_leaf());
  CHECK(values(a) == values(c));
  CHECK(values(grad({sum(a * a)}, {x})[0]) == values(grad({sum(c * c)}, {x})[0]));
}

}  // namespace

TEST_CASE("ops in place return the tensor that they changed") {
  const Tensor x = ones({2}), y = full({2}, 2.0);
  CHECK(&x.clamp_(0, 1) == &x);
  CHECK(&x.addcmul_(y, y) == &x);
  CHECK(&x.addcdiv_(y, y) == &x);
  CHECK(&x.lerp_(y, 0.5) == &x);
}

TEST_CASE("in place gives the handle back and changes every view") {
  const Tensor t = tensor({1.0, 2, 3, 4}).reshape({2, 2});
  const Tensor column = t.select(1, 0);
  CHECK(t.mul_(2.0).same(t));
  t += ones({2});
  t -= scalar(1);
  t *= 2.0;
  CHECK(values(t) == V{4, 8, 12, 16});
  CHECK(values(column) == V{4, 12});
  column.fill_(0);
  CHECK(values(t) == V{0, 8, 0, 16});
  t.t().add_(tensor({1.0, 2}));
  CHECK(values(t) == V{1, 9, 2, 18});
}

TEST_CASE("operands that overlap the target are read first") {
  const Tensor t = tensor({1.0, 2, 3, 4});
  t.narrow(0, 1, 3).copy_(t.narrow(0, 0, 3).clone());
  CHECK(values(t) == V{1, 1, 2, 3});
  const Tensor m = tensor({1, 2, 3, 4}, {2, 2});
  m.add_(m.t());
  CHECK(values(m) == V{2, 5, 5, 8});
  const Tensor s = tensor({1.0, 2, 3, 4});
  s.narrow(0, 1, 3).add_(s.narrow(0, 0, 3));
  CHECK(values(s) == V{1, 3, 5, 7});
  const Tensor u = tensor({2.0, 3});
  u.mul_(u[0]);
  CHECK(values(u) == V{4, 6});
  u.mul_(u);
  CHECK(values(u) == V{16, 36});
}

TEST_CASE("copy_ broadcasts and converts") {
  const Tensor t = zeros({2, 3}, {.dtype = DType::i64});
  t.copy_(tensor({1.9, -1.9, 3}));
  CHECK(values(t) == V{1, -1, 3, 1, -1, 3});
  t.t().copy_(arange(2));
  CHECK(values(t) == V{0, 0, 0, 1, 1, 1});
  CHECK_THROWS_AS(t.copy_(zeros({2, 2})), ShapeError);
}

TEST_CASE("shape and category must fit") {
  CHECK_THROWS_WITH_AS(tensor({1.0, 2}).add_(zeros({3, 2})),
                       "[add] in place, the result must have the shape of the tensor, [2], got [3, 2]", ShapeError);
  CHECK_THROWS_WITH_AS(arange(3).add_(0.5), "[add] in place, a result of float32 cannot be stored in int64", DTypeError);
  CHECK_THROWS_WITH_AS(arange(3).div_(2.0), "[div] in place, a result of float32 cannot be stored in int64", DTypeError);
  CHECK_THROWS_WITH_AS(arange(3).exp_(), "[exp] in place, a result of float32 cannot be stored in int64", DTypeError);
  CHECK_THROWS_AS(zeros({2}, {.dtype = DType::boolean}).add_(arange(2)), DTypeError);
  CHECK_THROWS_WITH_AS(tensor({1.0}).expand({3}).add_(1.0),
                       doctest::Contains("[add] in place, the elements of an expanded tensor share memory"), ValueError);
  const Tensor h = tensor({1, 2}, {.dtype = DType::f16});
  h.add_(tensor({0.5, 0.25}));  // wider within the category is rounded
  CHECK(h.dtype() == DType::f16);
  CHECK(values(h) == V{1.5, 2.25});
  h.add_(tensor({1, 1}, {.dtype = DType::i64}));
  CHECK(values(h) == V{2.5, 3.25});
}

TEST_CASE("a leaf that requires grad is not changed while recording") {
  const Tensor w = leaf({1, 2});
  const char* text = "[mul] a leaf that requires grad cannot be changed in place\nhelp: update parameters inside NoGrad";
  CHECK_THROWS_WITH_AS(w.mul_(2.0), text, AutogradError);
  CHECK_THROWS_AS(w.fill_(0), AutogradError);
  CHECK_THROWS_AS(w.copy_(zeros({2})), AutogradError);
  CHECK_THROWS_AS(w.exp_(), AutogradError);
  CHECK(values(w) == V{1, 2});
  {
    const NoGrad off;
    w.mul_(2.0);
  }
  w.detach().add_(1.0);
  CHECK(values(w) == V{3, 5});
  CHECK(w.requires_grad());
  CHECK(w.is_leaf());
}

TEST_CASE("a view of a leaf that requires grad is not changed while recording") {
  const Tensor x = leaf({1, 2, 3});
  CHECK_THROWS_WITH_AS(x[0].add_(1.0),
                       "[add] a leaf that requires grad cannot be changed in place, nor can a view of it\n"
                       "help: update parameters inside NoGrad",
                       AutogradError);
  const Tensor buffer = zeros({3});
  buffer.narrow(0, 0, 1).fill_(4);  // nothing to record
  CHECK(values(buffer) == V{4, 0, 0});
  CHECK(!buffer.requires_grad());
}

TEST_CASE("what is written into a view while recording is differentiated") {
  const Tensor a = leaf({1, 2, 3}), w = leaf({5, 7});
  const auto loss = [](const Tensor& t) { return (t * tensor({1.0, 10.0, 100.0})).sum(); };
  SUBCASE("into a tensor of constants") {
    const Tensor y = zeros({3});
    y[1] = w[0] * 2.0;
    y[2] = w[1];
    CHECK(values(y) == V{0, 10, 7});
    loss(y).backward();
    CHECK(values(w.grad()) == V{20, 100});
  }
  SUBCASE("over values with a history, which lose their gradient there") {
    const Tensor y = a * 2.0;
    y.slice(0, 0, 2) = w;
    CHECK(values(y) == V{5, 7, 6});
    loss(y).backward();
    CHECK(values(a.grad()) == V{0, 0, 200});
    CHECK(values(w.grad()) == V{1, 10});
  }
  SUBCASE("by arithmetic") {
    const Tensor y = a * 2.0;
    y[0].mul_(w[0]);
    y[1] += w[1];
    y[2].zero_();
    CHECK(values(y) == V{10, 11, 0});
    loss(y).backward();
    CHECK(values(a.grad()) == V{10, 20, 0});
    CHECK(values(w.grad()) == V{2, 10});
  }
  SUBCASE("the view has what was written") {
    const Tensor y = a * 2.0, part = y.slice(0, 1, 3);
    part.copy_(w);
    part.mul_(part);
    (loss(y) + part.sum()).backward();
    CHECK(values(a.grad()) == V{2, 0, 0});
    CHECK(values(w.grad()) == V{110, 1414});
  }
  SUBCASE("a view of a view writes into the tensor behind both") {
    const Tensor y = (a * 2.0).clone();
    y.reshape({3, 1}).transpose(0, 1)[0][2] = w[0];
    CHECK(values(y) == V{2, 4, 5});
    loss(y).backward();
    CHECK(values(a.grad()) == V{2, 20, 0});
    CHECK(values(w.grad()) == V{100, 0});
  }
  SUBCASE("after the tensor behind it is gone") {
    const Tensor part = (a * 2.0).slice(0, 0, 2);
    part.mul_(w);
    part.sum().backward();
    CHECK(values(a.grad()) == V{10, 14, 0});
    CHECK(values(w.grad()) == V{2, 4});
  }
  SUBCASE("strided, permuted and broadcast, in 16 bits") {
    const Tensor y = zeros({2, 3, 2}, {.dtype = DType::bf16});
    y.permute({2, 0, 1}).slice(1, 0, 2, 1).select(0, 1) = a;  // y[:, :, 1], both rows of it
    CHECK(values(y) == V{0, 1, 0, 2, 0, 3, 0, 1, 0, 2, 0, 3});
    y.to(DType::f32).sum().backward();
    CHECK(values(a.grad()) == V{2, 2, 2});
  }
}

TEST_CASE("writes into views differentiate twice") {
  const Tensor a = leaf({1, 2, 3}), w = leaf({5, 7});
  const auto f = [&](bool in_place) {
    const Tensor y = a * a;
    if (!in_place) return (cat({y.slice(0, 0, 1), w * w * y.slice(0, 1, 3)}) * y.sum()).pow(2.0).sum();
    const Tensor out = y.clone();
    out.slice(0, 1, 3).mul_(w * w);
    return (out * y.sum()).pow(2.0).sum();
  };
  V got[2];
  for (const bool in_place : {false, true}) {
    const Tensors first = grad({f(in_place)}, {a, w}, {}, {.create_graph = true});
    const Tensors second = grad({(first[0] * first[0]).sum() + first[1].sum()}, {a, w});
    for (const Tensor& t : {first[0], first[1], second[0], second[1]})
      for (const double x : values(t)) got[in_place].push_back(x);
  }
  CHECK(got[0].size() == 10);
  for (size_t i = 0; i < got[0].size(); ++i) CHECK(got[1][i] == doctest::Approx(got[0][i]).epsilon(1e-5));
}

TEST_CASE("a view from before another recorded write is stale, and so says what uses it") {
  const Tensor y = leaf({1, 2, 3}) * 2.0, first = y[0], windows = y.unfold(0, 2, 1);
  y[1] = leaf({4})[0];
  CHECK_THROWS_WITH_AS(first * 2.0, doctest::Contains("was made before its memory was changed in place"), AutogradError);
  CHECK_THROWS_AS(first.add_(1.0), AutogradError);
  CHECK_THROWS_WITH_AS(y.unfold(0, 2, 1).add_(1.0), doctest::Contains("elements of the view share memory"), ValueError);
}

TEST_CASE("data() is the memory without the history, and detach_() forgets it") {
  const Tensor w = leaf({1, 2});
  w.data().add_(1.0);
  CHECK(values(w) == V{2, 3});
  CHECK(w.is_leaf());
  CHECK(!w.data().requires_grad());
  CHECK(w.data_ptr() == w.data().data_ptr());
  const Tensor y = w * 2.0;
  y.retain_grad();
  CHECK(y.detach_().same(y));
  CHECK(!y.requires_grad());
  CHECK(y.is_leaf());
  y.requires_grad_();
  (y * 3.0).sum().backward();
  CHECK(values(y.grad()) == V{3, 3});
  CHECK(!w.grad().defined());
  CHECK_THROWS_WITH_AS((w * 2.0)[0].detach_(), doctest::Contains("a view cannot be detached in place"), AutogradError);
}

TEST_CASE("the result of an op is no view") {
  const Tensor x = rand({2, 3, 4}, {.requires_grad = true}), w = rand({5, 4});
  const Tensor y = linear(x, w), z = matmul(x, w.t());  // by way of matrices
  y.mul_(2.0);
  z.mul_(2.0);
  CHECK(values(grad({sum(y)}, {x})[0]) == values(grad({sum(linear(x, w) * 2.0)}, {x})[0]));
  CHECK(values(grad({sum(z)}, {x})[0]) == values(grad({sum(matmul(x, w.t()) * 2.0)}, {x})[0]));
}

TEST_CASE("in place on a tensor inside the graph gives the gradients of the out-of-place form") {
  check_same([](const Tensor& t) { t.add_(3.0); }, [](const Tensor& t) { return t + 3.0; });
  check_same([](const Tensor& t) { t.mul_(3.0); }, [](const Tensor& t) { return t * 3.0; });
  check_same([](const Tensor& t) { t.exp_(); }, [](const Tensor& t) { return exp(t); });        // saves its output
  check_same([](const Tensor& t) { t.square_(); }, [](const Tensor& t) { return square(t); });  // saves its input
  check_same([](const Tensor& t) { t.sin_().log_(); }, [](const Tensor& t) { return log(sin(t)); });
  check_same([](const Tensor& t) { t.pow_(3.0); }, [](const Tensor& t) { return pow(t, 3.0); });
  check_same([](const Tensor& t) { t.div_(t + 1.0); }, [](const Tensor& t) { return t / (t + 1.0); });
  check_same([](const Tensor& t) { t.mul_(t); }, [](const Tensor& t) { return t * t; });
  check_same([](const Tensor& t) { t.sub_(t[0]); }, [](const Tensor& t) { return t - t[0]; });
}

TEST_CASE("in place with an operand that requires grad") {
  const Tensor x = leaf({1, 2}), w = leaf({3, 4});
  const Tensor y = x * 1.0;
  y.mul_(w);
  sum(y).backward();
  CHECK(values(x.grad()) == V{3, 4});
  CHECK(values(w.grad()) == V{1, 2});

  // Into a plain tensor: it becomes part of the graph.
  const Tensor buffer = ones({2}, {.dtype = DType::f64});
  buffer.mul_(w).add_(x);
  CHECK(buffer.requires_grad());
  CHECK(!buffer.is_leaf());
  CHECK(values(grad({sum(buffer)}, {w, x})[0]) == V{1, 1});
}

TEST_CASE("copy_ carries the gradient to its source, leaf or not, cast or broadcast") {
  const Tensor x = leaf({1, 2}), s = tensor({5.0}, {.requires_grad = true});
  const Tensor a = zeros({2}, {.dtype = DType::f64}), b = zeros({3});
  a.copy_(x);
  CHECK(a.requires_grad());
  CHECK(values(grad({sum(a * 3.0)}, {x})[0]) == V{3, 3});
  a.copy_(x * 2.0);
  CHECK(values(grad({sum(a)}, {x})[0]) == V{2, 2});
  b.copy_(s);
  CHECK(values(grad({sum(b)}, {s})[0]) == V{3});
  b.copy_(s.detach());  // forgets
  CHECK(!b.requires_grad());
}

TEST_CASE("fill_ and zero_ on a tensor inside the graph cut it") {
  const Tensor x = leaf({1, 2});
  const Tensor y = x * 2.0;
  y.zero_();
  const Tensor z = sum(y + x);
  CHECK(values(grad({z}, {x})[0]) == V{1, 1});
}

TEST_CASE("a saved tensor that was changed is found in backward") {
  const Tensor x = leaf({1, 2}), w = leaf({3, 4});
  const Tensor h = x * 1.0;
  const Tensor y = h * w;
  h.add_(1.0);
  CHECK_THROWS_WITH_AS(sum(y).backward(),
                       "[mul] a tensor of shape [2] was modified in place after mul saved it: version 1, saved at 0\n"
                       "help: use the out-of-place form, or clone() before the in-place change",
                       AutogradError);
  // Through a view or a detached handle too; and what was not saved may change.
  const Tensor k = x * 1.0, z = exp(k), q = k + 1.0;
  k.detach().zero_();
  sum(q).backward();
  z.detach()[0].fill_(0);
  CHECK_THROWS_AS(sum(z).backward(), AutogradError);
}

TEST_CASE("a view from before a recorded write is refused, one from after is not") {
  const Tensor x = leaf({1, 2, 3});
  const Tensor y = x * 2.0;
  const Tensor old = y.narrow(0, 0, 2);
  y.mul_(3.0);
  CHECK_THROWS_WITH_AS(
      sum(old),
      "[autograd] this view (shape [2]) was made before its memory was changed in place, so its gradient would be wrong\n"
      "help: make the view again after the in-place operation",
      AutogradError);
  CHECK(values(grad({sum(y.narrow(0, 0, 2))}, {x})[0]) == V{6, 6, 0});
  // The base had no history when the view was made: using the view would silently lose the gradient.
  const Tensor buffer = zeros({3}, {.dtype = DType::f64});
  const Tensor early = buffer.narrow(0, 0, 2);
  buffer.copy_(x);
  CHECK_THROWS_AS(early * 2.0, AutogradError);
  const NoGrad off;
  CHECK(values(early * 2.0) == V{2, 4});
}

TEST_CASE("hooks and retained gradients follow the value they were asked for") {
  const Tensor x = leaf({1, 2});
  const Tensor y = x * 2.0;
  int early = 0, late = 0;
  y.register_hook([&](const Tensor&) { return ++early, Tensor(); });
  y.retain_grad();
  y.mul_(5.0);
  y.register_hook([&](const Tensor&) { return ++late, Tensor(); });
  sum(y * 3.0).backward();
  CHECK(early == 1);
  CHECK(late == 1);
  CHECK(values(y.grad()) == V{3, 3});  // of the value y has now, as in PyTorch
  CHECK(values(x.grad()) == V{30, 30});
}

TEST_CASE("overlapping windows are not written to, interlocking ones are") {
  const Tensor line = zeros({7});
  const char* text = "in place, elements of the view share memory";
  CHECK_THROWS_WITH_AS(line.unfold(0, 3, 2).mul_(2.0), doctest::Contains(text), ValueError);
  CHECK_THROWS_WITH_AS(line.unfold(0, 2, 1).fill_(1), doctest::Contains(text), ValueError);
  CHECK_THROWS_WITH_AS(line.unfold(0, 2, 1).uniform_(), doctest::Contains(text), ValueError);
  CHECK_THROWS_WITH_AS(line.unfold(0, 2, 1).copy_(ones({6, 2})), doctest::Contains(text), ValueError);
  CHECK_THROWS_WITH_AS(zeros({1}).expand({3}).normal_(), doctest::Contains("expanded tensor"), ValueError);
  CHECK(values(line) == V{0, 0, 0, 0, 0, 0, 0});
  line.unfold(0, 2, 2).add_(1.0);  // side by side
  CHECK(values(line) == V{1, 1, 1, 1, 1, 1, 0});
  const Tensor apart = zeros({8});
  apart.alias({3, 2}, {2, 3}).add_(1.0);  // places 0, 2, 4 and 3, 5, 7
  CHECK(values(apart) == V{1, 0, 1, 1, 1, 1, 0, 1});
  CHECK_THROWS_AS(apart.alias({3, 2}, {2, 4}).add_(1.0), ValueError);  // 4 twice
}

TEST_CASE("draws of both generators refuse elements that share memory") {
  for (const GeneratorKind kind : {GeneratorKind::philox, GeneratorKind::mt19937}) {
    Generator generator(1, kind);
    const Tensor line = zeros({7}), wide = line.expand({2, 7}), windows = line.unfold(0, 3, 1);
    for (const Tensor& x : {wide, windows, windows.t()}) {
      CHECK_THROWS_AS(x.uniform_(0, 1, &generator), ValueError);
      CHECK_THROWS_AS(x.normal_(0, 1, &generator), ValueError);
      CHECK_THROWS_AS(x.bernoulli_(0.5, &generator), ValueError);
      CHECK_THROWS_WITH_AS(exponential_(x, 1, &generator), doctest::Contains("[exponential_]"), ValueError);
      CHECK_THROWS_WITH_AS(random_(x, &generator), doctest::Contains("[random_]"), ValueError);
    }
    CHECK(values(line) == V{0, 0, 0, 0, 0, 0, 0});
    const uint64_t before = generator.state().offset;
    CHECK_THROWS_AS(random_(wide, &generator), ValueError);
    CHECK(generator.state().offset == before);
    random_(line.slice(0, 0, 7, 2), &generator);  // elements apart
    CHECK(line[1].item() == 0);
  }
}

TEST_CASE("what would be written into a copy of selected elements, and lost, is refused") {
  const Tensor x = tensor({1.0, 2, 3}), mask = tensor({true, false, true}), rows = tensor({0, 2});
  const char* text = "the values would be lost";
  CHECK_THROWS_WITH_AS(x.index({mask}) += 1, doctest::Contains(text), ValueError);
  CHECK_THROWS_WITH_AS(x.index({rows}) *= x.index({rows}), doctest::Contains(text), ValueError);
  CHECK_THROWS_WITH_AS(x.index(Tensors{rows}) %= 2, doctest::Contains(text), ValueError);
  CHECK_THROWS_WITH_AS(x[mask].fill_(1), doctest::Contains("[fill_]"), ValueError);
  CHECK_THROWS_WITH_AS(x[rows].exp_(), doctest::Contains("[exp_]"), ValueError);
  CHECK_THROWS_WITH_AS(x.index({rows}).add_(x[rows], 2), doctest::Contains("[add_]"), ValueError);
  CHECK_THROWS_WITH_AS(x.index({mask}).copy_(zeros({2})), doctest::Contains("[copy_]"), ValueError);
  CHECK_THROWS_WITH_AS(x.index({mask}).zero_(), doctest::Contains("[zero_]"), ValueError);
  CHECK_THROWS_WITH_AS(x.index({mask}).uniform_(), doctest::Contains("[uniform_]"), ValueError);
  CHECK_THROWS_WITH_AS(x[mask].index_put_({0}, 5), doctest::Contains("[index_put_]"), ValueError);
  CHECK(values(x) == V{1, 2, 3});
  // Also where the result is used, which libtorch allows; the help names two ways.
  CHECK_THROWS_WITH_AS(x.index({mask}).neg_().sum(), doctest::Contains("the op that makes a tensor, as x.index({mask}).mul(2)"),
                       ValueError);
  CHECK(values(x.index({mask}).neg()) == V{-1, -3});
  const Tensor kept = x.index({mask});  // a variable is a tensor as others
  kept += 1;
  CHECK(values(kept.mul_(2.0)) == V{4, 8});
  CHECK(values(ones({2}).mul_(3.0)) == V{3, 3});  // and so is a temporary that no index made
  x.index({indexing::Slice(0, 2)}) += 1;          // a view
  x.index({0}).mul_(5.0);
  x[mask] += 1;  // writes to x, as in Python
  x[mask] %= 4;
  CHECK(values(x) == V{3, 3, 0});
}
