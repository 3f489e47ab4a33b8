// Where grid_sample reads, one dimension at a time: the elements around a coordinate, their weights, and how these change with
// the coordinate. The same for host and device; formulas as in PyTorch's aten/src/ATen/native/GridSampler.h.
#pragma once

#include "framework/backend/layer_args.h"
#include "framework/math/scalar.h"

namespace halfstep {

// Sample = the product over the dimensions of sum_k weight[k] x[index[k]]. Taps: 2 (bilinear; nearest leaves the second one out)
// or 4 (bicubic).
template <class C, int Taps>
struct AxisTaps {
  int64_t index[Taps];  // -1: outside, reads as zero
  C weight[Taps];
  C slope[Taps];        // the weight's derivative by the grid's value
};

// v as an index, or -1 outside; v is whole. NaN is outside.
template <class C>
HS_HD int64_t index_inside(C v, int64_t size) {
  return v >= C(0) && v < C(size) ? int64_t(v) : -1;
}

// v brought into [0, size - 1] as the padding says; `slope` is multiplied by the derivative.
template <class C>
HS_HD C padded_coordinate(const SampleArgs& a, C v, int64_t size, C& slope) {
  if (a.padding == SamplePadding::zeros) return v;
  if (a.padding == SamplePadding::reflection) {
    const C low = a.align_corners ? C(0) : C(-0.5), span = a.align_corners ? C(size - 1) : C(size);
    if (span == C(0)) {
      slope = C(0);
      return C(0);
    }
    if (v < low) slope = -slope;
    const C distance = m::abs(v - low), extra = m::fmod(distance, span), flips = m::floor(distance / span);
    const bool odd = m::fmod(flips, C(2)) != C(0);
    if (odd) slope = -slope;
    v = odd ? span - extra + low : extra + low;
  }
  const C last = C(size - 1);
  if (!(v > C(0) && v < last)) slope = C(0);
  return v > C(0) ? (v < last ? v : last) : C(0);
}

template <class C, int Taps>
HS_HD void axis_taps(const SampleArgs& a, C g, int64_t size, AxisTaps<C, Taps>& t) {
  C slope = a.align_corners ? C(size - 1) / C(2) : C(size) / C(2);
  const C at = a.align_corners ? (g + C(1)) / C(2) * C(size - 1) : ((g + C(1)) * C(size) - C(1)) / C(2);
  if constexpr (Taps == 4) {
    const C base = m::floor(at), part = at - base, A = C(-0.75);
    const C x[4] = {part + C(1), part, C(1) - part, C(2) - part};  // distances
    for (int k = 0; k < 4; ++k) {
      const bool near = k == 1 || k == 2;
      t.weight[k] = near ? ((A + C(2)) * x[k] - (A + C(3))) * x[k] * x[k] + C(1) : ((A * x[k] - C(5) * A) * x[k] + C(8) * A) * x[k] - C(4) * A;
      const C by_distance = near ? (C(3) * (A + C(2)) * x[k] - C(2) * (A + C(3))) * x[k] : (C(3) * A * x[k] - C(10) * A) * x[k] + C(8) * A;
      t.slope[k] = k < 2 ? by_distance * slope : -by_distance * slope;
      C unused = C(1);
      t.index[k] = index_inside(padded_coordinate(a, base + C(k - 1), size, unused), size);
    }
  } else {
    const C v = padded_coordinate(a, at, size, slope);
    const bool nearest = a.mode == SampleMode::nearest;
    const C base = nearest ? m::round(v) : m::floor(v), part = nearest ? C(0) : v - base;
    t.index[0] = index_inside(base, size);
    t.index[1] = nearest ? -1 : index_inside(base + C(1), size);
    t.weight[0] = C(1) - part;
    t.weight[1] = part;
    t.slope[0] = nearest ? C(0) : -slope;
    t.slope[1] = nearest ? C(0) : slope;
  }
}

}  // namespace halfstep
