// SPDX-License-Identifier: Apache-2.0
// The arithmetic at the end of a training step, shared by host and device: the factor of the gradients, loss scale, schedule
// counter, stored results. The rule of the scale is PyTorch's amp_update_scale.
#pragma once

#include <stdint.h>

#include "framework/base/dtype.h"
#include "framework/base/host_device.h"

namespace halfstep::math {

// Returns the factor that clips gradients of this norm to max_norm. NaN stays NaN, so that a norm of NaN is visible.
HS_HD float clip_factor(float norm, double max_norm) {
  const float factor = float(max_norm / (double(norm) + 1e-6));
  return factor > 1 ? 1.0f : factor;
}

// Returns the factor of gradients that are multiplied by *scale, which it removes, and whose norm without it is *norm, which it
// clips. Either may be null.
HS_HD float gradient_factor(const float* scale, const float* norm, double max_norm) {
  const float unscaling = scale ? float(1 / double(*scale)) : 1.0f;
  return norm ? unscaling * clip_factor(*norm, max_norm) : unscaling;
}

// How the loss scale changes.
struct ScaleRule {
  double growth = 1, backoff = 1;
  int32_t interval = 1;                     // clean steps before the scale grows
  float least = 0, most = 3.402823466e38f;  // bounds of the scale
};

// Computes the scale and the count of clean steps (`tracker`) after a step. Compares with `>=`, so that a shortened interval takes
// effect at once. Keeps the scale if the loss itself is not finite: no scale helps then.
HS_HD void advance_scale(float& scale, int32_t& tracker, bool found_inf, bool loss_finite, const ScaleRule& rule) {
  if (found_inf) {
    const float lower = float(double(scale) * rule.backoff);
    if (loss_finite && lower >= rule.least) scale = lower;
    tracker = 0;
    return;
  }
  if (++tracker >= rule.interval) {
    const float grown = float(double(scale) * rule.growth);
    if (grown <= rule.most) scale = grown;
    tracker = 0;
  }
}

// Results that outlive the next step, one element per step. This struct and its arrays are on the device.
struct ResultRing {
  void* loss;  // of any floating dtype
  float* found_inf;
  int64_t next;  // index of the element that the next step writes
};

// The small updates that end a step. A part is skipped if its first pointer is null; all pointers are to device memory.
struct StepTail {
  // The loss scale, which found_inf moves (advance_scale).
  float* scale = nullptr;
  int32_t* tracker = nullptr;
  ScaleRule rule;
  // A schedule: counts an applied step, then rates[g] = table[g][*count % width].
  int64_t* count = nullptr;
  const double* table = nullptr;  // [groups, width]
  double* rates = nullptr;        // [groups]
  int64_t width = 0, groups = 0;
  // The step's loss, for the scale and the ring; the ring requires it. Null: taken as finite.
  const void* loss = nullptr;
  DType loss_dtype = DType::f32;
  // ring->loss[ring->next] = *loss, ring->found_inf[ring->next] = found_inf, then advances ring->next.
  ResultRing* ring = nullptr;

  HS_HD bool loss_is_finite() const {
    if (!loss) return true;
    if (loss_dtype == DType::f64) {
      constexpr uint64_t exponent_bits = uint64_t(0x7ff) << 52;
      return (*static_cast<const uint64_t*>(loss) & exponent_bits) != exponent_bits;
    }
    if (loss_dtype == DType::f32) return (*static_cast<const uint32_t*>(loss) & 0x7f800000u) != 0x7f800000u;
    const unsigned exponent_bits = loss_dtype == DType::f16 ? 0x7c00u : 0x7f80u;
    return (*static_cast<const uint16_t*>(loss) & exponent_bits) != exponent_bits;
  }

  // Updates the scale, the schedule and the ring. found_inf: the step was skipped.
  HS_HD void run(bool found_inf) const {
    if (scale) advance_scale(*scale, *tracker, found_inf, loss_is_finite(), rule);
    if (count) {
      if (!found_inf) ++*count;
      for (int64_t g = 0; g < groups; ++g) rates[g] = table[g * width + *count % width];
    }
    if (!ring) return;
    const int64_t at = ring->next++;
    if (loss_dtype == DType::f64)
      static_cast<uint64_t*>(ring->loss)[at] = *static_cast<const uint64_t*>(loss);
    else if (loss_dtype == DType::f32)
      static_cast<uint32_t*>(ring->loss)[at] = *static_cast<const uint32_t*>(loss);
    else
      static_cast<uint16_t*>(ring->loss)[at] = *static_cast<const uint16_t*>(loss);
    ring->found_inf[at] = found_inf ? 1.0f : 0.0f;
  }
};

}  // namespace halfstep::math
