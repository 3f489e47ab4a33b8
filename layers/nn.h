// SPDX-License-Identifier: Apache-2.0
// torch.nn's names: nn::Linear, nn::functional::relu, nn::init::kaiming_normal_. A using-directive brings in the classes and
// functions of namespace halfstep; declarations in the namespace itself take precedence. A program that writes `namespace nn =
// halfstep::nn; namespace F = nn::functional;` keeps all other names for itself.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

#include "framework/base/check.h"
#include "framework/ops/ops.h"
#include "framework/ops/spellings.h"
#include "layers/feedforward/running_statistics.h"
#include "layers/layers.h"
#include "layers/module/init.h"
#include "layers/module/save.h"

namespace halfstep {

namespace nn {

using namespace halfstep;

namespace functional {

using namespace halfstep;

// Takes the indices first, as torch.nn.functional does; torch.embedding and halfstep::embedding take the weight first.
inline Tensor embedding(const Tensor& index, const Tensor& weight, std::optional<int64_t> padding_idx = {}) {
  return halfstep::embedding(weight, index, padding_idx);
}
inline Tensor embedding_bag(const Tensor& index, const Tensor& weight, const Tensor& offsets = {},
                            const EmbeddingBagOptions& options = {}) {
  return halfstep::embedding_bag(weight, index, offsets, options);
}

// Repeats the overloads with arguments by name, which a declaration here would hide.
using halfstep::binary_cross_entropy, halfstep::gelu, halfstep::huber_loss, halfstep::kl_div, halfstep::l1_loss,
    halfstep::log_softmax, halfstep::mse_loss, halfstep::smooth_l1_loss, halfstep::softmax;
#define HS_ONE_OPTION(row, layer, ...) \
  using halfstep::row;                 \
  inline Tensor row(const Tensor& x, const layer##Options& o) { return o(x); }
#define HS_TWO_OPTIONS(row, layer, ...) \
  using halfstep::row;                  \
  inline Tensor row(const Tensor& x, const layer##Options& o) { return o(x); }
#include "framework/math/pointwise.def"
inline Tensor gelu(const Tensor& x, const GELUOptions& o) { return halfstep::gelu(x, std::string_view(o.approximate)); }
inline Tensor softmax(const Tensor& x, const SoftmaxOptions& o) { return halfstep::softmax(x, o.dim); }
inline Tensor log_softmax(const Tensor& x, const SoftmaxOptions& o) { return halfstep::log_softmax(x, o.dim); }
inline Tensor mse_loss(const Tensor& x, const Tensor& target, const LossOptions& o) { return MSELoss(o)(x, target); }
inline Tensor l1_loss(const Tensor& x, const Tensor& target, const LossOptions& o) { return L1Loss(o)(x, target); }
inline Tensor smooth_l1_loss(const Tensor& x, const Tensor& target, const SmoothL1LossOptions& o) {
  return SmoothL1Loss(o)(x, target);
}
inline Tensor huber_loss(const Tensor& x, const Tensor& target, const HuberLossOptions& o) { return HuberLoss(o)(x, target); }
inline Tensor kl_div(const Tensor& x, const Tensor& target, const KLDivLossOptions& o) { return KLDivLoss(o)(x, target); }
inline Tensor binary_cross_entropy(const Tensor& x, const Tensor& target, const BCEOptions& o) { return BCELoss(o)(x, target); }

}  // namespace functional

namespace utils {
using namespace halfstep;

namespace rnn {
using namespace halfstep;
}
namespace parametrize {
using namespace halfstep;
using cached = CachedParametrizations;
}  // namespace parametrize
namespace parametrizations {
using namespace halfstep;
}

}  // namespace utils

}  // namespace nn

namespace func {
using namespace halfstep;
}

namespace F = nn::functional;

}  // namespace halfstep
