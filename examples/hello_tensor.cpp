// SPDX-License-Identifier: Apache-2.0
// Tensors: making, printing, broadcasting, gradients, views.
#include "examples/claim.h"
#include "halfstep.h"

using namespace halfstep;

namespace {

bool equal(const Tensor& t, const std::vector<double>& values) { return t.to_vector<double>() == values; }

void creation() {
  std::cout << "-- creation\n";
  const Tensor a = tensor({1, 2, 3, 4, 5, 6}, {2, 3});
  const Tensor b = arange(6);
  manual_seed(7);
  const Tensor c = randn({2, 3}, {.dtype = DType::f16});
  std::cout << "a = " << a << "\nb = " << b << "\nc = " << c << '\n';
  claim(a.dtype() == DType::f32 && b.dtype() == DType::i64 && c.dtype() == DType::f16, "float32 unless said; counting gives int64");
  manual_seed(7);
  claim(equal(randn({2, 3}, {.dtype = DType::f16}), c.to_vector<double>()), "the same seed draws the same numbers");
}

void broadcasting() {
  std::cout << "-- broadcasting\n";
  const Tensor column = tensor({10, 20}, {2, 1}), row = tensor({1, 2, 3}, {3});
  const Tensor sum = column + row;
  std::cout << "[2, 1] + [3] = " << sum << '\n';
  claim(equal(sum, {11, 12, 13, 21, 22, 23}), "sizes of one stretch");
  claim((arange(3) * 2).dtype() == DType::i64 && (arange(3) * 0.5).dtype() == DType::f32,
        "a number keeps the tensor's dtype unless it is of a higher kind");
  try {
    column + tensor({1, 2, 3}, {3, 1});
    claim(false, "sizes that do not fit are refused");
  } catch (const ShapeError& e) { claim(true, std::string("sizes that do not fit are refused: ") + e.what()); }
}

void views() {
  std::cout << "-- views\n";
  const Tensor a = zeros({2, 3});
  const Tensor second_row = a[1], turned = a.t();
  second_row.fill_(5);
  std::cout << "a after a[1].fill_(5) = " << a << '\n';
  claim(turned.shares_memory_with(a) && turned.shape() == Shape{3, 2}, "a transpose is the same memory with other strides");
  claim(equal(turned, {0, 5, 0, 5, 0, 5}), "a write through one view shows in the others");
  claim(a.version() == 1 && turned.version() == 1, "and is counted for all of them: stale gradients are noticed");
}

void gradients() {
  std::cout << "-- gradients\n";
  const Tensor x = tensor({1.0, 2, 3}).set_requires_grad();
  const Tensor y = (x * x).sum();  // y = sum x^2
  y.backward();
  std::cout << "dy/dx = " << x.grad() << '\n';
  claim(equal(x.grad(), {2, 4, 6}), "d(sum x^2)/dx = 2x");

  const Tensor cube = (x * x * x).sum();
  const Tensor first = grad({cube}, {x}, {}, {.create_graph = true})[0];
  const Tensor second = grad({first.sum()}, {x})[0];
  claim(equal(first, {3, 12, 27}) && equal(second, {6, 12, 18}), "gradients have gradients: 3x^2, then 6x");

  const NoGrad quiet;
  claim(!(x * 2.0).requires_grad(), "nothing is recorded under NoGrad");
}

}  // namespace

int main() {
  creation();
  broadcasting();
  views();
  gradients();
  return failed_claims;
}
