// SPDX-License-Identifier: Apache-2.0
#include "layers/containers/fused_relu.h"

#include <algorithm>
#include <typeinfo>

#include "layers/containers/graph.h"
#include "layers/feedforward/activations.h"
#include "layers/feedforward/convolution.h"
#include "layers/feedforward/linear.h"
#include "layers/feedforward/normalization.h"

namespace halfstep {
namespace {

template <class Base>
Tensor relu_of(Module& module, const Tensor& x) {
  return static_cast<Base&>(module).relu(x);
}

bool is_batch_norm(const Module& module) {
  const std::type_info& type = typeid(module);
  return type == typeid(BatchNorm1d) || type == typeid(BatchNorm2d) || type == typeid(BatchNorm3d) || type == typeid(SyncBatchNorm);
}

}  // namespace

WithRelu with_relu(const Module& module) {
  const auto is_any = [&](const auto&... types) { return ((typeid(module) == types) || ...); };
  if (is_any(typeid(Linear))) return relu_of<Linear>;
  if (is_any(typeid(Conv1d), typeid(Conv2d), typeid(Conv3d))) return relu_of<ConvNd>;
  if (is_batch_norm(module)) return relu_of<BatchNormNd>;
  if (is_any(typeid(Residual))) return relu_of<Residual>;
  return nullptr;
}

BatchNormNd* batch_norm_of(Module& module) { return is_batch_norm(module) ? static_cast<BatchNormNd*>(&module) : nullptr; }

// Ops that containers compute together with others.
constexpr const char* kFusedOps[] = {"linear", "relu", "gelu_tanh", "conv1d", "conv2d", "conv3d", "batch_norm", "add"};

bool is_relu(const Module& module) { return typeid(module) == typeid(ReLU); }

bool policies_forbid_fusing() {
  if (!autocast::any_policies()) [[likely]]
    return false;
  const auto& regions = autocast::regions().by_device;
  return std::any_of(std::begin(regions), std::end(regions), [](const autocast::Region& region) {
    for (const char* op : kFusedOps)
      if (region.policies.find(op)) return true;
    return false;
  });
}

}  // namespace halfstep
