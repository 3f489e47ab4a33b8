// SPDX-License-Identifier: Apache-2.0
#include "optim/gradients.h"

#include "framework/autograd/grad_mode.h"
#include "framework/autograd/scaled_backward.h"
#include "framework/base/check.h"

namespace halfstep {
namespace {

// Returns whether elements of an expanded tensor share memory.
bool overlaps(const Tensor& t) {
  for (int d = 0; d < t.dim(); ++d) {
    if (t.strides()[d] == 0 && t.shape()[d] > 1) return true;
  }
  return false;
}

}  // namespace

void Gradients::check_unscaled(const char* op) const {
  for (const Tensor& p : *this) {
    const auto& meta = p.impl()->autograd;
    if (!meta || !meta->scaled || unmark_zeros(p)) [[likely]]
      continue;
    fail<AmpError>(op, "these gradients are multiplied by the loss scale",
                   Help{"call scaler.unscale_(opt) first, or p.set_grad(p.grad()) if the program has divided them itself"});
  }
}

void check_one_scale(const Tensor& param) {
  const auto& meta = param.impl()->autograd;
  if (!meta || !meta->mixed || unmark_zeros(param)) [[likely]]
    return;
  fail<AmpError>("gradients", "the gradient of ", param.label().empty() ? "a parameter" : param.label(),
                 " is a sum of some that a loss scale multiplies and of others that it does not, or another one does",
                 Help{"pass every loss of a step through scaler.scale() of one scaler, unscale after the last backward, update "
                      "after that, and call zero_grad() between steps"});
}

void mark_unscaled(const std::vector<Tensor>& params) {
  for (const Tensor& p : params) {
    if (p.impl()->autograd) p.impl()->autograd->scaled = false;
  }
}

Tensors gradients_of(const std::vector<Tensor>& params, bool contiguous, bool raw) {
  NoGrad off;
  Tensors out;
  out.reserve(params.size());
  for (const Tensor& p : params) {
    const Tensor& grad = raw ? p.raw_grad() : p.grad();
    if (!grad.defined()) continue;
    check_one_scale(p);
    if (contiguous ? !grad.is_contiguous(p.format()) : overlaps(grad)) {
      MemoryScope tag(MemoryTag::gradients);
      move_grad(p, grad.detach().clone(p.format()));
    }
    out.push_back(grad);
  }
  return out;
}

std::vector<TensorView> views_of(const Tensors& tensors) {
  std::vector<TensorView> out;
  out.reserve(tensors.size());
  for (const Tensor& t : tensors) out.push_back(t.view());
  return out;
}

}  // namespace halfstep
