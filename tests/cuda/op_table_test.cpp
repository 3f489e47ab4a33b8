// SPDX-License-Identifier: Apache-2.0
// Every case of the op table on the device against the CPU: values, gradients, other layouts and dtypes.
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <functional>

#include "tests/cuda/support.h"
#include "tests/ops/op_cases.h"

using namespace halfstep;
using namespace halfstep::testing;

namespace {

// The table twice, with the same values.
struct Tables {
  std::vector<OpCase> cpu = op_cases(), cuda = op_cases(Device::cuda);
  size_t size() const { return cpu.size(); }
};

// Smooth weights for the outputs' gradients.
Tensor weights_for(const Tensor& y) {
  const Tensor w = (arange(0.0, double(y.numel()), 1, {.dtype = DType::f64}) * 0.7 + 0.3).sin();
  return w.reshape(y.shape()).to(y.dtype()).to(y.device());
}

// Gradients of every output in turn by every input that requires one; undefined where there is none.
Tensors gradients(const OpCase& c, const Tensors& in) {
  Tensors wanted, out;
  for (const Tensor& t : in)
    if (t.requires_grad()) wanted.push_back(t);
  const Tensors ys = c.run(in);
  for (const Tensor& y : ys) {
    if (!y.requires_grad()) continue;
    for (const Tensor& g : grad({y}, wanted, {weights_for(y)}, {.retain_graph = true, .allow_unused = true})) out.push_back(g);
  }
  return out;
}

// |got - want| <= relative * max(|want|, floor) + absolute, or both NaN. `truth`, asked where that fails: what lies nearer to it
// than `want` does will do as well.
void check_close(const Tensor& got, const Tensor& want, double relative, double absolute, double floor = 0,
                 const std::function<Tensor()>& truth = {}) {
  REQUIRE(got.defined() == want.defined());
  if (!got.defined()) return;
  REQUIRE(got.shape() == want.shape());
  const auto a = got.to_vector<double>(), b = want.to_vector<double>();
  std::vector<double> exact;
  for (size_t k = 0; k < a.size(); ++k) {
    if (std::isnan(a[k]) && std::isnan(b[k])) continue;
    bool near = a[k] == b[k] || std::fabs(a[k] - b[k]) <= relative * std::max(std::fabs(b[k]), floor) + absolute;
    if (!near && truth) {
      if (exact.empty()) exact = truth().to_vector<double>();
      near = std::fabs(a[k] - exact[k]) <= std::fabs(b[k] - exact[k]);
    }
    CHECK_MESSAGE(near, "element ", k, ": ", a[k], ", not ", b[k]);
  }
}

double largest(const Tensor& t) {
  double m = 0;
  for (double x : t.to_vector<double>()) m = std::max(m, std::isfinite(x) ? std::fabs(x) : 0);
  return m;
}

}  // namespace

TEST_CASE("float64 values and gradients are the CPU's, in any layout") {
  const Tables tables;
  for (size_t i = 0; i < tables.size(); ++i) {
    const OpCase &cpu = tables.cpu[i], &cuda = tables.cuda[i];
    CAPTURE(title(cpu));
    const Tensors want = cpu.run(cpu.inputs);
    const Tensors want_gradients = cpu.gradient ? gradients(cpu, cpu.inputs) : Tensors();
    for (int layout = 0; layout < 4; ++layout) {
      CAPTURE(layout);
      Tensors in;
      bool changed = layout == 0;
      for (const Tensor& t : cuda.inputs) {
        in.push_back(layout == 0 ? t : layout == 1 ? spread_out(t) : layout == 2 ? reversed(t) : channels_last(t));
        changed = changed || !in.back().same(t);
      }
      if (!changed) continue;
      const Tensors got = cuda.run(in);
      REQUIRE(got.size() == want.size());
      for (size_t k = 0; k < got.size(); ++k) {
        CHECK(got[k].device() == (cuda.op == "to_device" || cuda.inputs.empty() ? Device::cpu : Device::cuda));
        CHECK(got[k].dtype() == want[k].dtype());
        // Functions of integers give float32, where the device's own functions are as near to the truth as the host's.
        check_close(got[k], want[k], want[k].dtype() == DType::f32 ? 4 * epsilon(DType::f32) : 1e-12, 1e-13);
      }
      if (!cuda.gradient) continue;
      const Tensors got_gradients = gradients(cuda, in);
      REQUIRE(got_gradients.size() == want_gradients.size());
      for (size_t k = 0; k < got_gradients.size(); ++k) check_close(got_gradients[k], want_gradients[k], 1e-11, 1e-12);
    }
  }
}

TEST_CASE("float32, float16 and bfloat16 are within rounding of the CPU's float64") {
  const Tables tables;
  for (DType dtype : {DType::f32, DType::f16, DType::bf16}) {
    for (size_t i = 0; i < tables.size(); ++i) {
      const OpCase &cpu = tables.cpu[i], &cuda = tables.cuda[i];
      CAPTURE(title(cpu));
      CAPTURE(name(dtype));
      // The rounded inputs in float64 are the truth.
      if (cuda.inputs.empty()) continue;  // its dtype is an attribute
      const Tensors low = in_dtype(cuda.inputs, dtype), truth = in_dtype(in_dtype(cpu.inputs, dtype), DType::f64);
      const Tensors got = cuda.run(low), want = cpu.run(truth);
      const double smallest = dtype == DType::f16 ? 6.1e-5 : 1e-30;
      // Where no library adds the bias, a 16-bit product is rounded before: its size counts.
      const bool product = cuda.op == "linear" || cuda.op == "mlp" || cuda.op == "addmm";
      const bool transposed = cuda.op.starts_with("conv_transpose");
      for (size_t k = 0; k < got.size(); ++k) {
        // Of integers: float32.
        CHECK(got[k].dtype() == (want[k].dtype() == DType::f64 && !cuda.always_f64 ? dtype : want[k].dtype()));
        check_close(got[k], want[k], (dtype == DType::f32 ? 16 : cuda.ulps) * epsilon(dtype), 4e-7,
                    transposed ? largest(want[k]) : product ? largest(want[k]) / 2 : smallest);
      }
      if (!cuda.gradient) continue;
      // Gradients pass through several roundings: the CPU's in the same dtype is as far from the truth.
      const Tensors grads = gradients(cuda, low), same = gradients(cpu, in_dtype(cpu.inputs, dtype));
      REQUIRE(grads.size() == same.size());
      // cuDNN also rounds gates, and what its recurrent networks pass from step to step. Their sizes are up to 1, and those of the
      // other gradients; what is left of them in one gradient may be much smaller.
      double passed = 0;
      if (cuda.op == "lstm" || cuda.op == "gru" || cuda.op.starts_with("rnn")) {
        passed = 1.0 / 32;
        for (const Tensor& g : same) passed = std::max(passed, g.defined() ? largest(g) : 0);
      }
      for (size_t k = 0; k < grads.size(); ++k) {
        if (!same[k].defined()) continue;
        check_close(grads[k], same[k], (dtype == DType::f32 ? 32 : 2 * cuda.ulps) * epsilon(dtype), 1e-6,
                    std::max(largest(same[k]) / 4, 4 * passed),
                    [&] { return gradients(cpu, truth)[k]; });
      }
    }
  }
}

TEST_CASE("first derivatives against differences, on the device") {
  for (const OpCase& c : op_cases(Device::cuda)) {
    if (!c.gradient) continue;
    CAPTURE(title(c));
    int64_t elements = 0;
    for (const Tensor& t : c.inputs) elements += t.numel();
    if (elements > 16) continue;
    const auto on_device = [&](const Tensors& in) { return moved(c.run(moved(in, Device::cuda)), Device::cpu); };
    Tensors in;
    for (const Tensor& t : c.inputs) {
      in.push_back(t.detach().to(Device::cpu));
      if (t.requires_grad()) in.back().set_requires_grad();
    }
    CHECK_NOTHROW(gradcheck(on_device, in));
  }
}

TEST_CASE("random numbers are the CPU's") {
  for (DType dtype : {DType::f32, DType::f64, DType::f16}) {
    CAPTURE(name(dtype));
    Tensors drawn[2];
    for (Device device : kBoth) {
      manual_seed(31);
      const TensorOptions options{.dtype = dtype, .device = device};
      const Tensor strided = zeros({6, 7}, options).t();
      uniform_(strided, -1, 3);
      drawn[device.is_cuda()] = {rand({3, 5}, options),
                                 rand({1001}, options),
                                 randint(-5, 40, {33}, {.dtype = DType::i64, .device = device}),
                                 strided,
                                 dropout(ones({77}, options), 0.3, true),
                                 randn({257}, options)};
    }
    for (size_t k = 0; k < drawn[0].size(); ++k) {
      CAPTURE(k);
      if (k == 5)
        check_close(drawn[1][k], drawn[0][k], 4 * epsilon(dtype), 1e-6);  // through log and cos
      else
        CHECK(bytes(drawn[1][k]) == bytes(drawn[0][k]));
    }
  }
}

TEST_CASE("integers wrap on the device as on the CPU, wherever elements are added or multiplied") {
  const TensorOptions i64{.dtype = DType::i64};
  // y: 2^62, 2^62, 3. wide: columns of y, many side by side. many: in segments, which are joined.
  const Tensor y = tensor({0x1p62, 0x1p62, 3}, i64), wide = y.unsqueeze(1).expand({3, 40}).contiguous(),
               many = full({1 << 18}, 0x1p62, i64), none = zeros({3}, i64);
  const auto results = [&](Device device) {
    const Tensor a = y.to(device), w = wide.to(device), m = many.to(device), at = none.to(device),
                 zero = zeros({1}, i64).to(device);
    std::string all;
    for (const Tensor& t : {a + a, a * a, -a, -a - a, square(a), sum(a), prod(a), cumsum(a, 0), cumprod(a, 0), matmul(a, a),
                            matmul(w, w.t()), sum(w, {0}), cumsum(w, 0), sum(m), cumsum(m, 0), index_add(zero, 0, at, a),
                            scatter_add(zero, 0, at, a), index_add(zeros({1, 40}, i64).to(device), 0, at, w)})
      all += bytes(t);
    return all;
  };
  CHECK(results(Device::cuda) == results(Device::cpu));
}
