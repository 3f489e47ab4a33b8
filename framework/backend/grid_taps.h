// SPDX-License-Identifier: Apache-2.0
// Computes what grid_sample reads along one dimension: the elements around a coordinate, their weights, and the derivatives of the
// weights. Shared by host and device; formulas as in PyTorch's aten/src/ATen/native/GridSampler.h.
#pragma once

#include "framework/backend/layer_args.h"
#include "framework/math/scalar.h"

namespace halfstep {

// A sample is the product over the dimensions of sum_k weight[k] x[index[k]]. Taps: 2 (bilinear; nearest omits the second one) or
// 4 (bicubic).
template <class C, int Taps>
struct AxisTaps {
  int64_t index[Taps];  // -1: outside, reads as zero
  C weight[Taps];
  C slope[Taps];        // derivative of the weight with respect to the grid's value
};

// Returns v, an integer, as an index, or -1 outside. NaN is outside.
template <class C>
HS_HD int64_t index_inside(C v, int64_t size) {
  return v >= C(0) && v < C(size) ? int64_t(v) : -1;
}

// A coordinate base + part with integer base and 0 <= part < 1. In one number, the part, which is a weight, would lose the digits
// that the base takes; on a large plane a 16-bit grid has more digits than 16 bits hold.
template <class C>
struct Coordinate {
  C base, part;
};

// Returns whole - v.
template <class C>
HS_HD Coordinate<C> reflected(C whole, const Coordinate<C>& v) {
  return v.part > C(0) ? Coordinate<C>{whole - v.base - C(1), C(1) - v.part} : Coordinate<C>{whole - v.base, C(0)};
}

// Returns g h + (size - 1) / 2: the element at the grid's value g in [-1, 1], where h is half the number of elements that the range
// spans.
template <class C>
HS_HD Coordinate<C> coordinate_of(C g, C h, int64_t size) {
  const C moved = g * h, whole = m::floor(moved);
  Coordinate<C> v{whole + C((size - 1) / 2), moved - whole + (size % 2 == 0 ? C(0.5) : C(0))};
  if (v.part >= C(1)) {
    v.base += C(1);
    v.part -= C(1);
  }
  return v;
}

// Returns what the value at a point, and the gradients of its coordinates, begin with: NaN if this coordinate is, else 0. So they
// are NaN, though the taps of such a point are outside. Mode nearest takes NaN for a place before the first, as in PyTorch.
template <class C>
HS_HD C start_of(const SampleArgs& a, C g) {
  return g != g && a.mode != SampleMode::nearest ? g : C(0);
}

// Moves v into [0, size - 1] by the padding mode, and multiplies `slope` by the derivative. Leaves NaN, but in mode nearest.
template <class C>
HS_HD Coordinate<C> padded_coordinate(const SampleArgs& a, Coordinate<C> v, int64_t size, C& slope) {
  if (a.padding == SamplePadding::zeros || (v.base != v.base && a.mode != SampleMode::nearest)) return v;
  if (a.padding == SamplePadding::reflection) {
    const C span = a.align_corners ? C(size - 1) : C(size), twice_low = a.align_corners ? C(0) : C(-1);
    if (span == C(0)) {
      slope = C(0);
      return {C(0), C(0)};
    }
    if (v.base + v.part < twice_low / C(2)) {
      slope = -slope;
      v = reflected(twice_low, v);
    }
    const C flips = m::floor((v.base + v.part - twice_low / C(2)) / span);
    v.base -= flips * span;
    if (m::fmod(flips, C(2)) != C(0)) {
      slope = -slope;
      v = reflected(twice_low + span, v);
    }
  }
  const C last = C(size - 1);
  const bool positive = v.base > C(0) || (v.base == C(0) && v.part > C(0));  // NaN is not
  if (positive && v.base < last) return v;
  slope = C(0);
  return {positive ? last : C(0), C(0)};
}

// Computes the taps of the grid's value g.
template <class C, int Taps>
HS_HD void axis_taps(const SampleArgs& a, C g, int64_t size, AxisTaps<C, Taps>& t) {
  C slope = a.align_corners ? C(size - 1) / C(2) : C(size) / C(2);
  const Coordinate<C> at = coordinate_of(g, slope, size);
  if constexpr (Taps == 4) {
    // PyTorch's polynomials by their roots, which keeps the digits of a weight near 0; p and q are the distances to the inner two
    // elements.
    const C p = at.part, q = C(1) - p, A = C(-0.75);
    const C near = A + C(2), steep = C(2) * (A + C(3));
    const C weight[4] = {A * p * q * q, q * (C(1) + p - near * p * p), p * (C(1) + q - near * q * q), A * q * p * p};
    const C by_part[4] = {A * q * (C(1) - C(3) * p), (C(3) * near * p - steep) * p, -(C(3) * near * q - steep) * q,
                          A * p * (C(2) - C(3) * p)};
    for (int k = 0; k < 4; ++k) {
      t.weight[k] = weight[k];
      t.slope[k] = by_part[k] * slope;
      C unused = C(1);
      t.index[k] = index_inside(padded_coordinate(a, {at.base + C(k - 1), C(0)}, size, unused).base, size);
    }
  } else {
    const Coordinate<C> v = padded_coordinate(a, at, size, slope);
    const bool nearest = a.mode == SampleMode::nearest;
    const bool up = nearest && (v.part > C(0.5) || (v.part == C(0.5) && m::fmod(v.base, C(2)) != C(0)));  // ties to even
    const C base = up ? v.base + C(1) : v.base, part = nearest ? C(0) : v.part;
    t.index[0] = index_inside(base, size);
    t.index[1] = nearest ? -1 : index_inside(base + C(1), size);
    t.weight[0] = C(1) - part;
    t.weight[1] = part;
    t.slope[0] = nearest ? C(0) : -slope;
    t.slope[1] = nearest ? C(0) : slope;
  }
}

}  // namespace halfstep
