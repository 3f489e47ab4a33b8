// SPDX-License-Identifier: Apache-2.0
// ReLU in the pass of a batch normalisation or of a sum: the bits of the two ops, forward and backward, and less that is kept.
#include <doctest/doctest.h>

#include <cmath>
#include <string>
#include <vector>

#include "framework/autograd/autograd.h"
#include "framework/backend/kernel_log.h"
#include "framework/backend/op_log.h"
#include "framework/ops/ops.h"
#include "framework/tensor/memory.h"
#include "tests/support/same_bits.h"

using namespace halfstep;

namespace {

constexpr DType kDTypes[] = {DType::f32, DType::f64, DType::bf16, DType::f16};

// Where ReLU lets nothing through the gradient is infinite: it must not count.
Tensor gradient_for(const Tensor& y) {
  const Tensor some = randn(y.shape()).to(y.dtype());
  return where(y.detach() <= 0, INFINITY, some).to(y.format());
}

struct NormCase {
  const char* what;
  Shape shape;
  MemoryFormat format = MemoryFormat::contiguous;
};
constexpr MemoryFormat kLast = MemoryFormat::channels_last;
const NormCase kNormCases[] = {{"a matrix", {37, 5}},
                               {"a wide matrix", {6, 4500}},
                               {"a few pixels", {3, 7, 3, 2}},
                               {"short runs", {4, 6, 5, 9}},
                               {"long runs", {2, 3, 35, 41}},
                               {"sequences", {3, 5, 130}},
                               {"few channels last", {3, 5, 7, 6}, kLast},
                               {"channels last", {4, 48, 9, 9}, kLast},
                               {"many channels last", {2, 1100, 3, 3}, kLast}};

// Result, gradients and running statistics.
Tensors norm(const NormCase& c, DType t, bool training, bool parameters, bool fused) {
  manual_seed(5);
  Tensor x = randn(c.shape);
  if (!training) {
    x.reshape({-1}).narrow(0, 0, 1).fill_(NAN);
    x.reshape({-1}).narrow(0, 1, 1).fill_(INFINITY);
  }
  x = x.to(t).to(c.format).detach().set_requires_grad();
  const int64_t channels = c.shape[1];
  const DType wide = t == DType::f64 ? t : DType::f32;
  const Tensor mean = (randn({channels}) * 0.1).to(wide), var = (rand({channels}) + 0.5).to(wide);
  Tensor w = randn({channels}), b = randn({channels});
  // The first channel's results are about the smallest that the dtype holds: some are stored as 0.
  w.narrow(0, 0, 1).fill_(t == DType::f16 ? 4e-8 : 1e-40);
  b.narrow(0, 0, 1).fill_(0);
  w.narrow(0, 1, 1).fill_(0), b.narrow(0, 1, 1).fill_(0);  // the second's are exactly 0
  w = w.to(wide).detach().set_requires_grad(), b = b.to(wide).detach().set_requires_grad();
  Tensors in{x};
  if (parameters) in.insert(in.end(), {w, b});
  const Tensor weight = parameters ? w : Tensor(), bias = parameters ? b : Tensor();
  const Tensor y = fused ? batch_norm(x, mean, var, weight, bias, training, 0.1, 1e-5, true)
                         : relu(batch_norm(x, mean, var, weight, bias, training, 0.1, 1e-5));
  Tensors out{y.detach(), mean, var};
  for (const Tensor& g : grad({y}, in, {gradient_for(y)})) out.push_back(g);
  return out;
}

}  // namespace

TEST_CASE("a ReLU in a batch normalisation's pass is relu() of its result, to the bit") {
  for (const NormCase& c : kNormCases) {
    for (DType t : kDTypes) {
      for (bool training : {true, false}) {
        for (bool parameters : {true, false}) {
          CAPTURE(c.what);
          CAPTURE(name(t));
          CAPTURE(training);
          CAPTURE(parameters);
          const Tensors plain = norm(c, t, training, parameters, false);
          CHECK(any(plain[0] == 0.0).item<bool>());
          CHECK(any(isfinite(plain[3]) & (plain[3] != 0.0)).item<bool>());
          if (!training) CHECK(any(isnan(plain[0])).item<bool>());
          check_same_bits(norm(c, t, training, parameters, true), plain);
        }
      }
    }
  }
}

TEST_CASE("a batch normalisation with a ReLU keeps what it keeps without") {
  const Tensor x = randn({4, 3, 5, 5}).set_requires_grad(), w = ones({3}).set_requires_grad(), b = zeros({3}).set_requires_grad();
  const auto saved = [&](bool fused) {
    const OpLogScope log(Device::cpu);
    batch_norm(x, {}, {}, w, b, true, 0.1, 1e-5, fused);
    REQUIRE(log.calls().size() == 1);
    size_t bytes = 0;
    for (const LoggedTensor& t : log.calls()[0].saved) bytes += size_t(numel(t.shape)) * size_of(t.dtype);
    return bytes;
  };
  CHECK(saved(true) == saved(false));
}

TEST_CASE("add_relu is relu() of the sum, to the bit, in any dtypes, formats and shapes") {
  struct Case {
    const char* what;
    Shape a, b;
    MemoryFormat format_a = MemoryFormat::contiguous, format_b = MemoryFormat::contiguous;
  };
  const Case cases[] = {{"rows", {3, 5, 7, 9}, {3, 5, 7, 9}},
                        {"channels last", {2, 20, 9, 9}, {2, 20, 9, 9}, kLast, kLast},
                        {"two formats", {2, 20, 9, 9}, {2, 20, 9, 9}, kLast},
                        {"a bias", {30, 70}, {70}},
                        {"both broadcast", {4, 1, 9}, {6, 1}},
                        {"long", {5000}, {5000}}};
  for (const Case& c : cases) {
    for (DType t : kDTypes) {
      for (DType u : {t, DType::f32}) {
        CAPTURE(c.what);
        CAPTURE(name(t));
        CAPTURE(name(u));
        const auto run = [&](bool fused) {
          manual_seed(7);
          Tensor a = randn(c.a), b = randn(c.b);
          a.reshape({-1}).narrow(0, 0, 1).fill_(NAN);
          a.reshape({-1}).narrow(0, 1, 2).fill_(1e-40);
          b.reshape({-1}).narrow(0, 1, 2).fill_(-1e-40);
          a = a.to(t).to(c.format_a).detach().set_requires_grad(), b = b.to(u).to(c.format_b).detach().set_requires_grad();
          const Tensor y = fused ? add_relu(a, b) : relu(a + b);
          Tensors out{y.detach()};
          for (const Tensor& g : grad({y}, {a, b}, {gradient_for(y)})) out.push_back(g);
          return out;
        };
        check_same_bits(run(true), run(false));
      }
    }
  }
  const Tensor x = randn({8}).set_requires_grad();
  check_same_bits(grad({add_relu(x, x)}, {x}, {ones({8})}), grad({relu(x + x)}, {x}, {ones({8})}));
}

TEST_CASE("add_relu keeps its result alone, and takes what add and relu take") {
  const Tensor a = randn({6, 5}).set_requires_grad(), b = randn({5}).set_requires_grad();
  {
    const Tensor x = empty({6, 5}, {.device = Device::meta}).set_requires_grad(), y = empty({5}, {.device = Device::meta});
    const OpLogScope log;
    add_relu(x, y);
    REQUIRE(log.calls().size() == 1);
    REQUIRE(log.calls()[0].saved.size() == 1);
    CHECK(log.calls()[0].saved[0].shape == Shape{6, 5});
    CHECK(log.calls()[0].kernels == 1);
  }
  CHECK(add_relu(tensor({-3, 4}), tensor({1, 1})).to_vector<int64_t>() == std::vector<int64_t>{0, 5});
  CHECK(add_relu(a, full({}, 1.5)).to_vector<float>() == relu(a + 1.5).to_vector<float>());
  CHECK_THROWS_WITH_AS(add_relu(a, randn({4})), doctest::Contains("[add_relu] "), ShapeError);
  CHECK_THROWS_WITH_AS(add_relu(a, Tensor()), "[add_relu] an input is undefined", ValueError);
  CHECK_THROWS_WITH_AS(add_relu(ones({2}).to(DType::boolean), ones({2}).to(DType::boolean)), doctest::Contains("[add_relu] "),
                       DTypeError);
}

namespace {

enum class Reader { two, three, one_twice, hook, retained, target, recorded, wide };

// y = f(a, b), read as `how` says: y, and the gradients of a and b, and of y where it is watched. The first element is NaN.
Tensors read_by(Reader how, DType t, MemoryFormat format, bool fused, const Shape& b_shape) {
  manual_seed(11);
  const Shape shape{2, 24, 5, 6};
  Tensor a = randn(shape), b = randn(b_shape);
  a.reshape({-1}).narrow(0, 0, 1).fill_(NAN);
  a = a.to(t).to(format).detach().set_requires_grad(), b = b.to(t).detach().set_requires_grad();
  const auto some = [&](DType dtype) { return randn(shape).to(dtype).to(format); };
  Tensor y = fused ? add_relu(a, b) : relu(a + b);
  Tensors watched;
  if (how == Reader::hook) y.register_hook([](const Tensor& g) { return g * 2.0; });
  if (how == Reader::retained) y.retain_grad();
  const Tensor first = y * some(t), second = how == Reader::one_twice ? y + y
                                             : how == Reader::wide    ? y.to(DType::f64) * some(DType::f64)
                                                                      : neg(y) * some(t);
  Tensors outputs{first, second}, given{some(t), some(second.dtype())}, in{a, b};
  if (how == Reader::three) outputs.push_back(y * some(t)), given.push_back(some(t));
  if (how == Reader::target) in.push_back(y);
  Tensors out{y.detach()};
  if (how == Reader::retained) {
    backward(outputs, given);
    return {y.detach(), a.grad(), b.grad(), y.grad()};
  }
  for (const Tensor& g : grad(outputs, in, given, {.create_graph = how == Reader::recorded})) out.push_back(g.detach());
  return out;
}

}  // namespace

TEST_CASE("the gradients of two ops that read add_relu's result are added where ReLU's is computed, with the same bits") {
  for (const Reader how : {Reader::two, Reader::three, Reader::one_twice, Reader::hook, Reader::retained, Reader::target,
                           Reader::recorded, Reader::wide}) {
    for (DType t : kDTypes) {
      for (MemoryFormat format : {MemoryFormat::contiguous, kLast}) {
        for (const Shape& b_shape : {Shape{2, 24, 5, 6}, Shape{24, 1, 1}}) {
          CAPTURE(int(how));
          CAPTURE(name(t));
          const Tensors want = read_by(how, t, format, false, b_shape);
          CHECK(any(isnan(want[0])).item<bool>());
          check_same_bits(read_by(how, t, format, true, b_shape), want);
        }
      }
    }
  }
  for (const auto& [how, joined, sums] : {std::tuple{Reader::two, 1, 0}, {Reader::three, 0, 2}, {Reader::hook, 0, 1}}) {
    const KernelLog log(Device::cpu);
    read_by(how, DType::f32, kLast, true, {2, 24, 5, 6});
    int found = 0, added = 0;
    for (const KernelEvent& e : log.events()) {
      found += e.kernel == "add_relu_backward";
      added += e.pass == StepPass::backward && e.kernel == "add";
    }
    CHECK(found == joined);
    CHECK(added == sums);
  }
}

TEST_CASE("a gradient that others hold is not written to") {
  const Tensor a = randn({40}).set_requires_grad(), b = randn({40}).set_requires_grad();
  const Tensor given = randn({40}), more = randn({40});
  const auto before = given.to_vector<float>(), before_more = more.to_vector<float>();
  const Tensor y = add_relu(a, b), z = add_relu(a, b), same = z.reshape({40});
  const Tensors g = grad({y, y}, {a}, {given, more});
  CHECK(given.to_vector<float>() == before);
  CHECK(more.to_vector<float>() == before_more);
  check_same_bits(g, grad({relu(a + b)}, {a}, {given + more}));
  // The gradient of both branches is one tensor.
  check_same_bits(grad({z + same}, {a}, {given}), grad({relu(a + b) * 2.0}, {a}, {given}));
  CHECK(given.to_vector<float>() == before);
}
