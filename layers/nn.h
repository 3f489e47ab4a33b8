// SPDX-License-Identifier: Apache-2.0
// torch.nn's names: nn::Linear, nn::functional::relu, nn::init::kaiming_normal_. Each is the class or function of namespace
// halfstep. A program that writes `namespace nn = halfstep::nn; namespace F = nn::functional;` has all other names for itself.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

#include "framework/base/check.h"
#include "framework/ops/ops.h"
#include "framework/ops/spellings.h"
#include "layers/layers.h"
#include "layers/module/init.h"

namespace halfstep {

namespace nn {

using halfstep::AdaptiveAvgPool1d, halfstep::AdaptiveAvgPool2d, halfstep::AdaptiveAvgPool3d, halfstep::AdaptiveLogSoftmaxWithLoss,
    halfstep::AdaptiveMaxPool1d, halfstep::AdaptiveMaxPool2d, halfstep::AdaptiveMaxPool3d, halfstep::AlphaDropout,
    halfstep::AvgPool1d, halfstep::AvgPool2d, halfstep::AvgPool3d, halfstep::BCELoss, halfstep::BCEWithLogitsLoss,
    halfstep::BatchNorm1d, halfstep::BatchNorm2d, halfstep::BatchNorm3d, halfstep::Bilinear, halfstep::CELU, halfstep::CTCLoss,
    halfstep::ChannelShuffle, halfstep::Conv1d, halfstep::Conv2d, halfstep::Conv3d, halfstep::ConvTranspose1d,
    halfstep::ConvTranspose2d, halfstep::ConvTranspose3d, halfstep::CosineEmbeddingLoss, halfstep::CosineSimilarity,
    halfstep::CrossEntropyLoss, halfstep::Dropout, halfstep::Dropout1d, halfstep::Dropout2d, halfstep::Dropout3d, halfstep::ELU,
    halfstep::Embedding, halfstep::EmbeddingBag, halfstep::FeatureAlphaDropout, halfstep::Flatten, halfstep::Fold,
    halfstep::FractionalMaxPool2d, halfstep::FractionalMaxPool3d, halfstep::GELU,
    halfstep::GLU, halfstep::GRU, halfstep::GRUCell, halfstep::GaussianNLLLoss, halfstep::GroupNorm, halfstep::Hardshrink,
    halfstep::Hardsigmoid, halfstep::Hardswish, halfstep::Hardtanh, halfstep::HingeEmbeddingLoss, halfstep::HuberLoss,
    halfstep::Identity, halfstep::InstanceNorm1d, halfstep::InstanceNorm2d, halfstep::InstanceNorm3d, halfstep::KLDivLoss,
    halfstep::L1Loss, halfstep::LPPool1d, halfstep::LPPool2d, halfstep::LPPool3d, halfstep::LSTM, halfstep::LSTMCell,
    halfstep::LayerNorm, halfstep::LeakyReLU, halfstep::Linear, halfstep::LocalResponseNorm, halfstep::LogSigmoid,
    halfstep::LogSoftmax, halfstep::MSELoss, halfstep::MarginRankingLoss, halfstep::MaxPool1d, halfstep::MaxPool2d,
    halfstep::MaxPool3d, halfstep::MaxUnpool1d, halfstep::MaxUnpool2d, halfstep::MaxUnpool3d, halfstep::Mish, halfstep::Module,
    halfstep::ModuleDict, halfstep::ModuleList, halfstep::MultiLabelMarginLoss, halfstep::MultiLabelSoftMarginLoss,
    halfstep::MultiMarginLoss, halfstep::MultiheadAttention, halfstep::NLLLoss, halfstep::PReLU, halfstep::PairwiseDistance,
    halfstep::Parameter, halfstep::ParameterDict, halfstep::ParameterList, halfstep::PixelShuffle, halfstep::PixelUnshuffle,
    halfstep::PoissonNLLLoss, halfstep::RMSNorm, halfstep::RNN, halfstep::RNNCell, halfstep::RReLU, halfstep::ReLU, halfstep::ReLU6,
    halfstep::SELU, halfstep::Sequential, halfstep::SiLU, halfstep::Sigmoid, halfstep::SmoothL1Loss, halfstep::SoftMarginLoss,
    halfstep::Softmax, halfstep::Softmax2d, halfstep::Softmin, halfstep::Softplus, halfstep::Softshrink, halfstep::Softsign,
    halfstep::SyncBatchNorm, halfstep::Tanh, halfstep::Tanhshrink, halfstep::Threshold, halfstep::Transformer,
    halfstep::TransformerDecoder, halfstep::TransformerDecoderLayer, halfstep::TransformerEncoder,
    halfstep::TransformerEncoderLayer, halfstep::TripletMarginLoss, halfstep::TripletMarginWithDistanceLoss, halfstep::Unflatten,
    halfstep::Unfold, halfstep::Upsample, halfstep::UpsamplingBilinear2d, halfstep::UpsamplingNearest2d, halfstep::CircularPad1d,
    halfstep::CircularPad2d, halfstep::CircularPad3d, halfstep::ConstantPad1d, halfstep::ConstantPad2d, halfstep::ConstantPad3d,
    halfstep::ReflectionPad1d, halfstep::ReflectionPad2d, halfstep::ReflectionPad3d, halfstep::ReplicationPad1d,
    halfstep::ReplicationPad2d, halfstep::ReplicationPad3d, halfstep::ZeroPad1d, halfstep::ZeroPad2d, halfstep::ZeroPad3d,
    halfstep::LazyBatchNorm1d, halfstep::LazyBatchNorm2d, halfstep::LazyBatchNorm3d, halfstep::LazyConv1d, halfstep::LazyConv2d,
    halfstep::LazyConv3d, halfstep::LazyConvTranspose1d, halfstep::LazyConvTranspose2d, halfstep::LazyConvTranspose3d,
    halfstep::LazyInstanceNorm1d, halfstep::LazyInstanceNorm2d, halfstep::LazyInstanceNorm3d, halfstep::LazyLinear,
    halfstep::ModuleOf, halfstep::Part, halfstep::AnyModule, halfstep::ModuleBuffer;

namespace init = halfstep::init;

namespace functional {

using halfstep::adaptive_avg_pool1d, halfstep::adaptive_avg_pool2d, halfstep::adaptive_avg_pool3d, halfstep::adaptive_max_pool1d,
    halfstep::adaptive_max_pool1d_with_indices, halfstep::adaptive_max_pool2d, halfstep::adaptive_max_pool2d_with_indices,
    halfstep::adaptive_max_pool3d, halfstep::adaptive_max_pool3d_with_indices, halfstep::affine_grid, halfstep::avg_pool1d,
    halfstep::avg_pool2d, halfstep::avg_pool3d, halfstep::batch_norm, halfstep::bilinear, halfstep::binary_cross_entropy,
    halfstep::binary_cross_entropy_with_logits, halfstep::celu, halfstep::channel_shuffle, halfstep::conv1d, halfstep::conv2d,
    halfstep::conv3d, halfstep::conv_tbc, halfstep::conv_transpose1d, halfstep::conv_transpose2d, halfstep::conv_transpose3d,
    halfstep::cosine_embedding_loss, halfstep::cosine_similarity, halfstep::cross_entropy, halfstep::ctc_loss, halfstep::dropout,
    halfstep::elu, halfstep::fold, halfstep::fractional_max_pool2d,
    halfstep::fractional_max_pool2d_with_indices, halfstep::fractional_max_pool3d, halfstep::fractional_max_pool3d_with_indices,
    halfstep::gaussian_nll_loss, halfstep::gelu,
    halfstep::glu, halfstep::grid_sample, halfstep::group_norm, halfstep::gumbel_softmax, halfstep::hardshrink,
    halfstep::hardsigmoid, halfstep::hardswish, halfstep::hardtanh, halfstep::hinge_embedding_loss, halfstep::huber_loss,
    halfstep::instance_norm, halfstep::interpolate, halfstep::kl_div, halfstep::l1_loss, halfstep::layer_norm, halfstep::leaky_relu,
    halfstep::linear, halfstep::local_response_norm, halfstep::log_softmax, halfstep::logsigmoid, halfstep::lp_pool1d,
    halfstep::lp_pool2d, halfstep::lp_pool3d, halfstep::margin_ranking_loss, halfstep::max_pool1d,
    halfstep::max_pool1d_with_indices, halfstep::max_pool2d, halfstep::max_pool2d_with_indices, halfstep::max_pool3d,
    halfstep::max_pool3d_with_indices, halfstep::max_unpool1d, halfstep::max_unpool2d, halfstep::max_unpool3d, halfstep::mish,
    halfstep::mse_loss, halfstep::multi_margin_loss, halfstep::multilabel_margin_loss, halfstep::multilabel_soft_margin_loss,
    halfstep::nll_loss, halfstep::normalize, halfstep::one_hot, halfstep::pad, halfstep::pairwise_distance, halfstep::pdist,
    halfstep::pixel_shuffle, halfstep::pixel_unshuffle, halfstep::poisson_nll_loss, halfstep::prelu, halfstep::relu,
    halfstep::relu6, halfstep::rms_norm, halfstep::rrelu, halfstep::scaled_dot_product_attention, halfstep::selu, halfstep::sigmoid,
    halfstep::silu, halfstep::smooth_l1_loss, halfstep::soft_margin_loss, halfstep::softmax, halfstep::softmin, halfstep::softplus,
    halfstep::softshrink, halfstep::softsign, halfstep::tanh, halfstep::tanhshrink, halfstep::threshold,
    halfstep::triplet_margin_loss, halfstep::unfold;

// torch.nn.functional has the indices first, torch.embedding and halfstep::embedding the weight.
inline Tensor embedding(const Tensor& index, const Tensor& weight, std::optional<int64_t> padding_idx = {}) {
  return halfstep::embedding(weight, index, padding_idx);
}
inline Tensor embedding_bag(const Tensor& index, const Tensor& weight, const Tensor& offsets = {},
                            const EmbeddingBagOptions& options = {}) {
  return halfstep::embedding_bag(weight, index, offsets, options);
}

// Arguments by name.
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

namespace utils::rnn {

using halfstep::PackedSequence, halfstep::pack_padded_sequence, halfstep::pack_sequence, halfstep::pad_packed_sequence,
    halfstep::pad_sequence, halfstep::unpack_sequence, halfstep::unpad_sequence;

}  // namespace utils::rnn

namespace utils::parametrize {

using halfstep::is_parametrized, halfstep::ParametrizationList, halfstep::register_parametrization,
    halfstep::remove_parametrizations;
using cached = CachedParametrizations;

}  // namespace utils::parametrize

namespace utils::parametrizations {

using halfstep::orthogonal, halfstep::spectral_norm, halfstep::weight_norm;

}  // namespace utils::parametrizations

}  // namespace nn

namespace func {

using halfstep::functional_call;

}  // namespace func

namespace F = nn::functional;

}  // namespace halfstep
