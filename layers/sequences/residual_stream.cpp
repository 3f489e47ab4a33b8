// SPDX-License-Identifier: Apache-2.0
#include "layers/sequences/residual_stream.h"

#include <optional>
#include <typeinfo>

#include "framework/autograd/grad_mode.h"
#include "layers/feedforward/normalization.h"

namespace halfstep {
namespace {

// Returns the 16 bits to which products of the reader cast the stream; none outside of a region.
template <class IsPlain>
std::optional<DType> dtype_read_by(const Module* reader, const Tensor& x, const IsPlain& is_plain) {
  const Device::Type device = x.device().type;
  if (!reader || !autocast::is_enabled(device) || autocast::any_policies()) return {};
  bool plain = true;
  reader->visit([&](const Module& m) { plain = plain && is_plain(m); });
  return plain ? std::optional(autocast::dtype(device)) : std::nullopt;
}

// Returns whether the ops for norms of sums compute what add and the norm do. In a region they make a float32 sum of 16-bit
// tensors.
bool is_one_pass(const Tensor& x, const Tensor& branch) {
  if (branch.shape() != x.shape() || !x.is_floating_point() || !branch.is_floating_point()) return false;
  return !autocast::any_policies() && !(is_half(promote(x.dtype(), branch.dtype())) && autocast::is_enabled(x.device().type));
}

// Returns norm(x + branch) in one pass, and sets x to the sum; without a branch norm(x).
template <class Norm>
Tensor through_norm(Norm& norm, Tensor& x, const Tensor& branch, std::optional<DType> rounded) {
  if (!branch.defined()) return norm.in_dtype(x, rounded);
  auto [y, sum] = norm.of_sum(x, branch, rounded);
  x = sum;
  return y;
}

}  // namespace

bool ResidualStream::is_plain(const Module& module) {
  return !module.has_hooks() && !module.recomputes_in_backward() && !module.precision();
}

Tensor ResidualStream::value() {
  if (branch_.defined()) {
    const GradMode mode(is_recorded_);
    if (grad_enabled() != is_recorded_) return x_ + branch_;  // in InferenceMode, which records nothing
    x_ = x_ + branch_;
    branch_ = Tensor();
  }
  return x_;
}

void ResidualStream::add(const Tensor& branch) {
  value();
  branch_ = branch;
  is_recorded_ = grad_enabled();
}

Tensor ResidualStream::through(Module& norm, const Module* reader) {
  const bool layer = typeid(norm) == typeid(LayerNorm), fits = (layer || typeid(norm) == typeid(RMSNorm)) && is_plain(norm);
  if (!fits || (branch_.defined() && (is_recorded_ != grad_enabled() || !is_one_pass(x_, branch_)))) {
    const Tensor x = value();
    return norm(x);
  }
  const std::optional<DType> rounded = dtype_read_by(reader, x_, is_plain);
  const Tensor y = layer ? through_norm(static_cast<LayerNorm&>(norm), x_, branch_, rounded)
                         : through_norm(static_cast<RMSNorm&>(norm), x_, branch_, rounded);
  branch_ = Tensor();
  return y;
}

}  // namespace halfstep
