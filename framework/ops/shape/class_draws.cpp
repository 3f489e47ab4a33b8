// SPDX-License-Identifier: Apache-2.0
#include "framework/ops/shape/class_draws.h"

#include <algorithm>
#include <limits>
#include <vector>

#include "framework/backend/cpu/parallel.h"
#include "framework/base/check.h"

namespace halfstep {
namespace {

struct WeightFaults {
  bool are_valid;    // finite and not negative
  int64_t positive;  // number of those above 0
};

template <class T>
WeightFaults faults_of(const T* weights, int64_t classes) {
  int64_t valid = 0, positive = 0;
  for (int64_t c = 0; c < classes; ++c) {
    valid += weights[c] >= T(0) && weights[c] <= std::numeric_limits<T>::max();  // NaN is not
    positive += weights[c] > T(0);
  }
  return {valid == classes, positive};
}

template <class T>
void draw_row(const T* weights, int64_t classes, const double* parts, int64_t samples, int64_t* out, std::vector<double>& sums) {
  double sum = 0;
  for (int64_t c = 0; c < classes; ++c) sums[size_t(c)] = sum += double(weights[c]);
  for (int64_t i = 0; i < samples; ++i) {
    auto at = std::upper_bound(sums.begin(), sums.end(), parts[i] * sum);
    if (at == sums.end()) at = std::lower_bound(sums.begin(), sums.end(), sum);  // the part was rounded up to the whole
    out[i] = std::min(int64_t(at - sums.begin()), classes - 1);
  }
}

template <class F>
void of_dtype(const Tensor& weights, const F& f) {
  if (weights.dtype() == DType::f64)
    f(weights.const_data_ptr<double>());
  else
    f(weights.const_data_ptr<float>());
}

}  // namespace

void check_weights(std::string_view op, const Tensor& weights, int64_t needed, int64_t samples) {
  const Tensor w = weights.contiguous();
  const int64_t classes = w.size(-1), rows = w.numel() / classes;
  std::vector<WeightFaults> faults(size_t(rows), {true, classes});
  of_dtype(w, [&](const auto* from) {
    cpu::parallel_for(rows, 1, 2 * w.numel(), [&](int64_t begin, int64_t end) {
      for (int64_t row = begin; row < end; ++row) faults[size_t(row)] = faults_of(from + row * classes, classes);
    });
  });
  bool are_valid = true, are_enough = true;
  for (const WeightFaults& row : faults) {
    are_valid = are_valid && row.are_valid;
    are_enough = are_enough && row.positive >= needed;
  }
  check<ValueError>(are_valid, op, "weights must be finite and not negative");
  check<ValueError>(are_enough, op, "too few weights are positive to draw ", samples);
}

Tensor classes_at(const Tensor& weights, const Tensor& parts) {
  const Tensor w = weights.contiguous(), at = parts.contiguous();
  const Tensor out = Tensor::empty(parts.shape(), {.dtype = DType::i64, .device = Device::cpu});
  const int64_t classes = w.size(-1), rows = w.numel() / classes, samples = parts.size(-1);
  const auto* const from = at.const_data_ptr<double>();
  auto* const to = out.data_ptr<int64_t>();
  of_dtype(w, [&](const auto* all) {
    cpu::parallel_for(rows, 1, 4 * w.numel(), [&](int64_t begin, int64_t end) {
      std::vector<double> sums(static_cast<size_t>(classes));
      for (int64_t row = begin; row < end; ++row)
        draw_row(all + row * classes, classes, from + row * samples, samples, to + row * samples, sums);
    });
  });
  return out;
}

}  // namespace halfstep
