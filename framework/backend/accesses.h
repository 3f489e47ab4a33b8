// SPDX-License-Identifier: Apache-2.0
// Finds which tensors a kernel reads and writes, from the arguments of its row in kernels.def: each_access(argument, f) calls
// f(view, access) for each tensor of an argument, also for empty ones. A backend that counts or watches accesses must know two
// more facts by itself: which elements of a table an index touches, and that the statistics of a batch do not depend on the
// running ones.
#pragma once

#include <span>
#include <type_traits>

#include "framework/backend/backend.h"

namespace halfstep {

template <Access access, class F>
void each_access(const ViewArgument<access>& v, const F& f) {
  f(static_cast<const TensorView&>(v), access);
}
template <class F>
void each_access(std::span<const TensorView> views, const F& f) {
  for (const TensorView& v : views) f(v, Access::read);
}
template <class F>
void each_access(const InOutViews& views, const F& f) {
  for (const TensorView& v : views) f(v, Access::read_write);
}
template <class F>
void each_access(const OutViews& views, const F& f) {
  for (const TensorView& v : views) f(v, Access::write);
}
template <class F>
void each_access(const GemmArgs& g, const F& f) {
  for (const TensorView* v : {&g.a, &g.b, &g.bias}) f(*v, Access::read);  // `packed` holds the values of b
  f(g.aux, g.derivative ? Access::read : Access::write);
  f(g.c, g.accumulate ? Access::read_write : Access::write);
  for (const TensorView* v : {&g.column_sum, &g.a_row_sum, &g.b_column_sum}) f(*v, Access::write);
}
template <class F>
void each_access(const CrossEntropyArgs& a, const F& f) {
  for (const TensorView* v : {&a.logits, &a.target, &a.weight}) f(*v, Access::read);
}
template <class F>
void each_access(const LossGradient& g, const F& f) {
  f(g.grad, Access::read);
  f(g.out, Access::write);
}
template <class F>
void each_access(const ParamUpdate& p, const F& f) {
  f(p.param, Access::read_write);
  for (const TensorView& s : p.state) f(s, Access::read_write);
  f(p.grad, Access::read);
  f(p.shadow, Access::write);
}
template <class F>
void each_access(std::span<const ParamUpdate> params, const F& f) {
  for (const ParamUpdate& p : params) each_access(p, f);
}
// Covers numbers, sizes and the constant tables of resample, which hold no tensors. A new struct with tensors needs its own
// function above.
template <class T, class F>
void each_access(const T&, const F&) {
  static_assert(!std::is_convertible_v<const T&, const TensorView&>);
}

}  // namespace halfstep
