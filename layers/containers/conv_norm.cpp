// SPDX-License-Identifier: Apache-2.0
#include "layers/containers/conv_norm.h"

#include <typeinfo>

#include "amp/autocast/autocast.h"
#include "framework/autograd/grad_mode.h"

namespace halfstep {
namespace {

// Returns the dtype in which a convolution with this weight computes on this thread.
DType compute_dtype(const Tensor& weight) {
  const Device::Type device = weight.device().type;
  return weight.dtype() != DType::f64 && autocast::is_enabled(device) ? autocast::dtype(device) : weight.dtype();
}

// Returns the dtype of a folded weight. The CPU computes convolutions in float16 with float32 numbers, and would widen the weight
// in each call; and rounding one weight of several layers is an error that each of them alone does not have.
DType weight_dtype(const Tensor& weight, DType dtype) {
  return dtype == DType::f16 && weight.device().is_cpu() ? DType::f32 : dtype;
}

bool all_finite(const Tensor& x) { return x.device() == Device::meta || isfinite(x).all().item<bool>(); }

}  // namespace

std::shared_ptr<const ConvNorm> ConvNorm::of(Module& conv, Module& norm) {
  const auto are = [&](const auto& conv_type, const auto&... norm_types) {
    return typeid(conv) == conv_type && ((typeid(norm) == norm_types) || ...);
  };
  const int dims = are(typeid(Conv1d), typeid(BatchNorm1d), typeid(SyncBatchNorm))   ? 1
                   : are(typeid(Conv2d), typeid(BatchNorm2d), typeid(SyncBatchNorm)) ? 2
                   : are(typeid(Conv3d), typeid(BatchNorm3d), typeid(SyncBatchNorm)) ? 3
                                                                                     : 0;
  if (dims == 0) return nullptr;
  return std::make_shared<const ConvNorm>(static_cast<ConvNd&>(conv), static_cast<BatchNormNd&>(norm), dims);
}

Tensor ConvNorm::operator()(const Tensor& x, bool relu) const {
  if (may_fold(x)) {
    if (const auto f = folded(); f->weight.defined()) return conv_.call_with(x, f->weight, f->bias, relu, laid_);
  }
  const Tensor y = conv_(x);
  return relu ? norm_.relu(y) : norm_(y);
}

bool ConvNorm::may_fold(const Tensor& x) const {
  return inference_enabled() && !norm_.training() && norm_.running_mean.defined() && x.dim() == dims_ + 2 &&
         norm_.running_mean.size(0) == conv_.weight.size(0) && norm_.running_mean.device() == conv_.weight.device() &&
         (x.dtype() == conv_.weight.dtype() || compute_dtype(conv_.weight) != conv_.weight.dtype());
}

std::array<const Tensor*, ConvNorm::kSources> ConvNorm::sources() const {
  const Tensor &w = conv_.weight, &b = conv_.bias, &gamma = norm_.weight, &beta = norm_.bias, &mean = norm_.running_mean,
               &var = norm_.running_var;
  return {&w, &b, &gamma, &beta, &mean, &var};
}

bool ConvNorm::is_current(const Folded& folded, DType dtype) const {
  if (folded.dtype != dtype) return false;
  const auto now = sources();
  for (size_t i = 0; i < kSources; ++i) {
    const Tensor& then = folded.sources[i];
    if (now[i]->defined() != then.defined()) return false;
    if (then.defined() && then.storage()->is_exposed()) return false;
    if (then.defined() && (now[i]->const_data_ptr() != then.const_data_ptr() || now[i]->version() != folded.versions[i]))
      return false;
  }
  return true;
}

ConvNorm::Folded ConvNorm::fold(DType dtype) const {
  const autocast::Off off;
  Folded out{.sources = {}, .versions = {}, .dtype = dtype};
  Sources wide;
  for (size_t i = 0; const Tensor* const t : sources()) {
    if (t->defined()) {
      out.sources[i] = t->detach();
      out.versions[i] = t->version();
      wide[i] = out.sources[i].to(DType::f64);
    }
    ++i;
  }
  const auto& [w, b, gamma, beta, mean, var] = wide;
  Tensor scale = rsqrt(var + norm_.eps());
  if (gamma.defined()) scale = scale * gamma;
  Tensor shift = (b.defined() ? b - mean : -mean) * scale;
  if (beta.defined()) shift = shift + beta;
  Shape each_filter = w.shape();
  for (int d = 1; d < w.dim(); ++d) each_filter[d] = 1;
  const MemoryScope memory(MemoryTag::shadows);
  // The error of a bias is the same at all places, so no sum over places makes it smaller; it may be larger than what is left after
  // the addition.
  const Tensor weight = (w * scale.reshape(each_filter)).to(weight_dtype(conv_.weight, dtype)).to(conv_.weight.format()),
               bias = shift.to(widened(dtype));
  if (all_finite(weight) && all_finite(bias)) out.weight = weight, out.bias = bias;
  return out;
}

// Does not hold the lock while it folds: the device may be busy with the recording of another thread, which may want the lock.
std::shared_ptr<const ConvNorm::Folded> ConvNorm::folded() const {
  const DType dtype = compute_dtype(conv_.weight);
  {
    const std::lock_guard lock(mutex_);
    if (folded_ && is_current(*folded_, dtype)) return folded_;
    folded_ = nullptr;  // frees its memory
  }
  const auto made = std::make_shared<const Folded>(fold(dtype));
  const std::lock_guard lock(mutex_);
  folded_ = made;
  return made;
}

}  // namespace halfstep
