// SPDX-License-Identifier: Apache-2.0
// How an autocast region changes dtypes, and why, on a CPU, where float16 arithmetic is rounded as on a GPU.
#include <cmath>

#include "examples/claim.h"
#include "halfstep.h"

using namespace halfstep;

namespace {

void show(std::string_view what, const Tensor& t) {
  std::cout << what << " -> " << t.dtype();
  if (t.numel() == 1) std::cout << ' ' << t.item<double>();
  std::cout << '\n';
}

void regions() {
  std::cout << "-- regions\n";
  manual_seed(0);
  const Tensor a = rand({8, 8}), b = rand({8, 8}), c = rand({8, 8});
  Tensor d, inside;
  {
    const Autocast region(Device::cpu, DType::f16);
    d = mm(a, b);  // both float32
    show("mm(f32, f32) inside", d);
    claim(d.dtype() == DType::f16, "matrix products run in the low dtype");
    const Tensor e = mm(c, d);
    show("mm(f32, f16) inside", e);
    claim(e.dtype() == DType::f16, "mixed inputs need no cast by hand");
    show("exp(f16) inside", exp(d));
    claim(exp(d).dtype() == DType::f32, "exp runs in float32");
    claim(relu(d).dtype() == DType::f16, "relu stays in the dtype of its input");
    claim((a + d).dtype() == DType::f32, "f32 + f16 is f32, as outside");
    {
      const Autocast off(Device::cpu, DType::f16, /*enabled=*/false);
      inside = mm(c, d.to(DType::f32));
      show("mm(f32, f32) in a disabled region inside", inside);
    }
  }
  claim(inside.dtype() == DType::f32, "a disabled region is an island of ordinary precision");
  const Tensor f = mm(a, b);
  show("mm(f32, f32) after leaving", f);
  claim(f.dtype() == DType::f32, "after the region nothing is cast");
  claim(mm(a.to(DType::f16), b.to(DType::f16)).to_vector<float>() == d.to_vector<float>(),
        "a region does what casting the inputs by hand does, bit for bit");
}

void ranges() {
  std::cout << "-- why some ops run in float32\n";
  const Tensor sixteens = full({4096}, 16, {.dtype = DType::f16});
  const Tensor outside = sixteens.sum();
  show("sum of 4096 sixteens, float16, outside", outside);
  claim(outside.dtype() == DType::f16 && std::isinf(outside.item<double>()), "65536 is above float16's largest number, 65504");
  {
    const Autocast region(Device::cpu, DType::f16);
    const Tensor sum = sixteens.sum();
    show("the same inside", sum);
    claim(sum.dtype() == DType::f32 && sum.item<double>() == 65536, "sum gives float32 in a region");
  }
  const Tensor one = ones({}, {.dtype = DType::f16}), little = full({}, 1e-4, {.dtype = DType::f16});
  show("1 + 0.0001 in float16", one + little);
  claim((one + little).item<double>() == 1, "float16 has 11 bits: small updates vanish, so weights are kept in float32");
  const Tensor gradient = full({}, 1e-8, {.dtype = DType::f16});
  show("1e-8 in float16", gradient);
  claim(gradient.item<double>() == 0 && full({}, 1e-8 * 65536, {.dtype = DType::f16}).item<double>() > 0,
        "small gradients vanish too, unless the loss is scaled first: GradScaler");
}

void gradients() {
  std::cout << "-- gradients\n";
  const Tensor x = rand({4, 8}), w = rand({3, 8}).set_requires_grad();
  Tensor y;
  {
    const Autocast region(Device::cpu, DType::f16);
    y = linear(x, w);
  }
  y.sum().backward();
  show("linear(f32, f32) inside", y);
  show("the weight's gradient", w.grad());
  claim(y.dtype() == DType::f16 && w.grad().dtype() == DType::f32, "float32 weights have float32 gradients");
}

void refusals() {
  std::cout << "-- what does not work\n";
  const Tensor a = rand({2, 2}), b = rand({2, 2}, {.dtype = DType::f16});
  try {
    mm(a, b);
    claim(false, "outside a region dtypes are not mixed");
  } catch (const DTypeError& e) { claim(true, std::string("outside a region dtypes are not mixed: ") + e.what()); }
}

}  // namespace

int main() {
  regions();
  ranges();
  gradients();
  refusals();
  return failed_claims;
}
