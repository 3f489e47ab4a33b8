// SPDX-License-Identifier: Apache-2.0
#include "framework/backend/kernel_log.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "amp/autocast/autocast.h"
#include "framework/autograd/autograd.h"
#include "framework/ops/ops.h"

using namespace halfstep;

namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();

Tensor weights(const Shape& shape) {
  Generator g(3);
  return randn(shape, {}, &g).set_requires_grad(true);
}

std::vector<std::string> ops_of(const KernelLog& w) {
  std::vector<std::string> out;
  for (const KernelEvent& e : w.events()) out.push_back(joined(name(e.pass), ' ', e.op, ' ', e.kernel));
  return out;
}

}  // namespace

TEST_CASE("a log of kernels has the kernels of both passes, with casts, and changes no bit") {
  const Tensor x = randn({5, 4}), w = weights({3, 4});
  const auto step = [&] {
    w.zero_grad();
    Tensor loss;
    {
      const Autocast region(Device::cpu, DType::bf16);
      loss = sum(square(linear(x, w)));
    }
    loss.backward();
    return std::pair(loss.item<double>(), w.grad().to_vector<float>());
  };
  const auto plain = step();
  autocast::drop_shadow(w);
  KernelLog log(Device::cpu);
  CHECK(step() == plain);
  const std::vector<std::string> ops = ops_of(log);
  CHECK(std::count(ops.begin(), ops.end(), "forward linear gemm") == 1);
  CHECK(std::count(ops.begin(), ops.end(), "forward autocast copy") >= 2);  // of x and w
  CHECK(std::count(ops.begin(), ops.end(), "backward linear gemm") >= 1);
  CHECK(Observing::find<KernelLog>() == &log);
  CHECK_THROWS_AS(static_cast<void>(KernelLog(Device::cpu)), ValueError);
}

TEST_CASE("what is not finite is traced to the kernel that it comes from") {
  const Tensor w = weights({3, 4});
  const auto origin = [&](const Tensor& x, const std::function<Tensor(const Tensor&)>& f, KernelEvent* event = nullptr) {
    w.zero_grad();
    KernelLog log(Device::cpu);
    log.add_root("input", x);
    log.add_root("param:w", w);
    const Tensor loss = sum(f(linear(x, w)));
    const bool bad = !std::isfinite(loss.item<double>());
    if (!bad) loss.backward();
    const Origin o = origin_of(log, bad ? loss.detach() : w.grad());
    if (event && o.event >= 0) *event = log.events()[size_t(o.event)];
    return o;
  };
  const Tensor x = randn({5, 4}), zero = zeros({5, 4});
  KernelEvent e;
  CHECK(origin(
            x, [](const Tensor& y) { return log(relu(y)) * 0.5; }, &e)
            .is_known());
  CHECK(e.kernel == "log");
  CHECK(e.pass == StepPass::forward);
  CHECK(e.reads[0].counts->zero > 0);
  origin(
      zero, [](const Tensor& y) { return sqrt(y); }, &e);  // finite, but its slope is not
  CHECK(e.kernel == "sqrt_backward");
  CHECK(e.pass == StepPass::backward);

  Tensor spoilt = x.clone();
  spoilt.select(0, 2).fill_(std::nan(""));
  CHECK(origin(spoilt, [](const Tensor& y) { return relu(y); }).root == "input");

  // An infinity that is written over before anyone reads it is no origin; one that is read before it is written over in place is.
  origin(
      x,
      [](const Tensor& y) {
        Tensor z = y * 1e38;
        z.mul_(1e38);
        z.mul_(0.5);
        return z;
      },
      &e);
  CHECK(e.kernel == "mul");
  CHECK_FALSE(e.reads[0].counts->any_not_finite());
}

TEST_CASE("infinities of a mask are no origin, but a row that is all masked is") {
  const Tensor x = randn({4, 4}), w = weights({4, 4});
  const auto attend = [&](const Tensor& mask, Origin& o, KernelEvent& e) {
    w.zero_grad();
    KernelLog log(Device::cpu);
    log.add_root("buffer:mask", mask, true);
    const Tensor loss = sum(softmax(linear(x, w) + mask, 1) * x);
    if (std::isfinite(loss.item<double>())) loss.backward();
    const Tensor sink = std::isfinite(loss.item<double>()) ? w.grad() : loss.detach();
    o = origin_of(log, sink);
    if (o.event >= 0) e = log.events()[size_t(o.event)];
    return sink;
  };
  Origin o;
  KernelEvent e;
  const Tensor causal = full({4, 4}, -kInf).triu(1);
  CHECK(all(isfinite(attend(causal, o, e))).item<bool>());
  CHECK_FALSE(o.is_known());
  Tensor row = zeros({4, 4});
  row.select(0, 1).fill_(-kInf);
  attend(row, o, e);
  CHECK(e.kernel == "softmax");
  CHECK(o.planted);
}

TEST_CASE("a tensor that is written slice by slice has all its writers") {
  Tensor y = zeros({4, 3});
  KernelLog log(Device::cpu);
  const NoGrad off;
  y.select(0, 0).fill_(1);
  y.select(0, 2).fill_(2);
  CHECK(log.producers_of(y) == std::vector<int>{0, 1});
  CHECK(log.producers_of(y.select(0, 2)) == std::vector<int>{1});
  CHECK(log.producers_of(y.select(0, 1)).empty());
  y.fill_(3);
  CHECK(log.producers_of(y) == std::vector<int>{2});
}

TEST_CASE("count_values") {
  const ValueCounts c = count_values(from_vector<float>({0, -1, 3, kInf, -kInf, std::nanf(""), 0x1p-130f}, {7}));
  CHECK(c.numel == 7);
  CHECK(c.nan == 1);
  CHECK(c.inf() == 2);
  CHECK(c.zero == 1);
  CHECK(c.negative == 1);
  CHECK(c.subnormal == 1);
  CHECK(c.largest == 3);
  CHECK(c.smallest == 0x1p-130);
  CHECK(c.any_not_finite());
  CHECK_FALSE(count_values(arange(5)).any_not_finite());  // integers
  CHECK_THROWS_AS(static_cast<void>(KernelLog(Device::meta)), ValueError);
}
