// SPDX-License-Identifier: Apache-2.0
// Helpers for ops composed of other ops.
#pragma once

#include "framework/ops/core/call.h"
#include "framework/ops/ops.h"

namespace halfstep {

// Renames an error of an inner op to the op that was called: "[norm] dim ..." becomes "[normalize] dim ...".
template <class Body>
auto under_name(std::string_view op, Body&& body) {
  const auto renamed = [op](const Error& e) {
    const std::string text = e.what();
    const size_t end = text.starts_with('[') ? text.find(']') : std::string::npos;
    return end == std::string::npos ? text : "[" + std::string(op) + text.substr(end);
  };
  try {
    return body();
  } catch (const ShapeError& e) { throw ShapeError(renamed(e)); } catch (const DTypeError& e) {
    throw DTypeError(renamed(e));
  } catch (const ValueError& e) { throw ValueError(renamed(e)); } catch (const IndexError& e) {
    throw IndexError(renamed(e));
  }
}

// Applies the policy of `info` to the inputs (undefined ones stay), then computes body(inputs) with autocast off. 16-bit inputs
// are read as float32, and the result is rounded once, to the promoted dtype of the inputs. body: Tensor(const Tensors&), in
// differentiable ops.
template <class Body>
Tensor composite(const OpInfo& info, Tensors in, Body&& body) {
  check_same_device(info.name, in);
  apply_policy(info, in);
  const autocast::Off off;
  std::optional<DType> result;
  for (Tensor& t : in) {
    if (!t.defined() || !t.is_floating_point()) continue;
    result = result ? promote(*result, t.dtype()) : t.dtype();
    if (is_half(t.dtype())) t = t.to(DType::f32);
  }
  const Tensor out = under_name(info.name, [&] { return body(in); });
  return result && is_half(*result) && out.is_floating_point() ? out.to(*result) : out;
}

// Reduces the losses of the elements: averages, sums or keeps them.
inline Tensor reduce_loss(const Tensor& losses, Reduction reduction) {
  return reduction == Reduction::none ? losses : reduction == Reduction::sum ? sum(losses) : mean(losses);
}

// Throws DTypeError unless all defined tensors are floating.
inline void check_floating(std::string_view op, const Tensors& in) {
  for (const Tensor& t : in)
    check<DTypeError>(!t.defined() || t.is_floating_point(), op, "needs floating tensors, got ", t.dtype());
}

// Returns integers as float32, for an op whose result is not an integer, as in PyTorch.
inline Tensor in_floats(const Tensor& x) { return !x.defined() || x.is_floating_point() ? x : x.to(DType::f32); }

}  // namespace halfstep
