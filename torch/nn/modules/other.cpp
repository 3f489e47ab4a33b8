// SPDX-License-Identifier: Apache-2.0
#include "torch/nn/modules/other.h"

#include "torch/nn/init.h"
#include "torch/nn/modules/define.h"

namespace torch::nn {

HS_TORCH_DEFINE(CosineSimilarity)
void CosineSimilarityImpl::reset() {}
HS_TORCH_PRINT(CosineSimilarity, "(dim=" << options.dim() << ", eps=" << options.eps() << ")")
Tensor CosineSimilarityImpl::forward(const Tensor& a, const Tensor& b) { return F::cosine_similarity(a, b, options); }

HS_TORCH_DEFINE(PairwiseDistance)
void PairwiseDistanceImpl::reset() {}
HS_TORCH_PRINT(PairwiseDistance, "(p=" << options.p() << ", eps=" << options.eps() << ", keepdim=" << options.keepdim() << ")")
Tensor PairwiseDistanceImpl::forward(const Tensor& a, const Tensor& b) { return F::pairwise_distance(a, b, options); }

HS_TORCH_DEFINE_FUNCTION(PixelShuffle, "(upscale_factor=" << options.upscale_factor() << ")", F::pixel_shuffle(x, options))
HS_TORCH_DEFINE_FUNCTION(PixelUnshuffle, "(downscale_factor=" << options.downscale_factor() << ")", F::pixel_unshuffle(x, options))
HS_TORCH_DEFINE_FUNCTION(Fold,
                         "(output_size=" << options.output_size() << ", kernel_size=" << options.kernel_size()
                                         << ", dilation=" << options.dilation() << ", padding=" << options.padding()
                                         << ", stride=" << options.stride() << ")",
                         F::fold(x, options))
HS_TORCH_DEFINE_FUNCTION(Unfold,
                         "(kernel_size=" << options.kernel_size() << ", dilation=" << options.dilation()
                                         << ", padding=" << options.padding() << ", stride=" << options.stride() << ")",
                         F::unfold(x, options))

HS_TORCH_DEFINE(Upsample)
void UpsampleImpl::reset() {}
void UpsampleImpl::pretty_print(std::ostream& out) const {
  out << "torch::nn::Upsample(";
  if (options.scale_factor())
    out << "scale_factor=" << ArrayRef<double>(*options.scale_factor());
  else if (options.size())
    out << "size=" << IntArrayRef(*options.size());
  out << ", mode=" << enumtype::get_enum_name(options.mode()) << ")";
}
Tensor UpsampleImpl::forward(const Tensor& x) {
  F::InterpolateFuncOptions o;
  std::visit([&](auto m) { o.mode(m); }, options.mode());
  return F::interpolate(x, o.size(options.size()).scale_factor(options.scale_factor()).align_corners(options.align_corners()));
}

HS_TORCH_DEFINE(AdaptiveLogSoftmaxWithLoss)
void AdaptiveLogSoftmaxWithLossImpl::reset() {
  const std::vector<int64_t>& given = options.cutoffs();
  TORCH_CHECK(
      !given.empty() && std::is_sorted(given.begin(), given.end()) && given.front() > 0 &&
          given.back() <= options.n_classes() - 1 && std::adjacent_find(given.begin(), given.end()) == given.end(),
      "cutoffs should be a sequence of unique, positive integers sorted in an increasing order, where each value is between "
      "1 and n_classes-1");
  cutoffs = given;
  cutoffs.push_back(options.n_classes());
  shortlist_size = cutoffs[0];
  n_clusters = int64_t(cutoffs.size()) - 1;
  head_size = shortlist_size + n_clusters;
  head = register_module("head", Linear(LinearOptions(options.in_features(), head_size).bias(options.head_bias())));
  tail = register_module("tail", ModuleList());
  for (int64_t i = 0; i < n_clusters; ++i) {
    const int64_t hidden = int64_t(double(options.in_features()) / std::pow(options.div_value(), double(i + 1)));
    tail->push_back(Sequential(Linear(LinearOptions(options.in_features(), hidden).bias(false)),
                               Linear(LinearOptions(hidden, cutoffs[size_t(i) + 1] - cutoffs[size_t(i)]).bias(false))));
  }
}
void AdaptiveLogSoftmaxWithLossImpl::reset_parameters() {
  for (const auto& m : modules(false)) {
    if (auto* linear = m->as<Linear>()) linear->reset_parameters();
  }
}
void AdaptiveLogSoftmaxWithLossImpl::pretty_print(std::ostream& out) const { out << "torch::nn::AdaptiveLogSoftmaxWithLoss"; }
Tensor AdaptiveLogSoftmaxWithLossImpl::log_prob(const Tensor& x) {
  const Tensor of_head = head(x).log_softmax(1);
  std::vector<Tensor> parts{of_head.slice(1, 0, shortlist_size)};
  for (int64_t i = 0; i < n_clusters; ++i) {
    const Tensor in_cluster = tail->ptr<SequentialImpl>(size_t(i))->forward(x).log_softmax(1);
    parts.push_back(in_cluster + of_head.select(1, shortlist_size + i).unsqueeze(1));
  }
  return torch::cat(parts, 1);
}
ASMoutput AdaptiveLogSoftmaxWithLossImpl::forward(const Tensor& x, const Tensor& target) {
  if (target.dim() == 0) {  // one sample
    TORCH_CHECK(x.dim() == 1, "0D target tensor expects 1D input tensors, but found inputs with sizes ", x.sizes());
    const ASMoutput batch = forward(x.unsqueeze(0), target.unsqueeze(0));
    return ASMoutput(batch.output.squeeze(0), batch.loss);
  }
  TORCH_CHECK(x.size(0) == target.size(0), "Input and target should have the same size in the batch dimension.");
  TORCH_CHECK(target.numel() == 0 || (target.min().item<int64_t>() >= 0 && target.max().item<int64_t>() < options.n_classes()),
              "Target values should be in [0, ", options.n_classes() - 1, "], but values in range [", target.min().item(), ", ",
              target.max().item(), "] were found. ");
  const Tensor out = log_prob(x).gather(1, target.unsqueeze(1)).squeeze(1);
  return ASMoutput(out, (-out).mean().item<double>());
}
Tensor AdaptiveLogSoftmaxWithLossImpl::predict(const Tensor& x) { return log_prob(x).argmax(1); }

HS_TORCH_DEFINE(MultiheadAttention)
void MultiheadAttentionImpl::reset() {
  const int64_t E = options.embed_dim();
  _qkv_same_embed_dim = (options.kdim() == 0 || options.kdim() == E) && (options.vdim() == 0 || options.vdim() == E);
  if (options.kdim() == 0) options.kdim(E);
  if (options.vdim() == 0) options.vdim(E);
  head_dim = E / options.num_heads();
  TORCH_CHECK(head_dim * options.num_heads() == E, "embed_dim must be divisible by num_heads");
  auto none = [&](const char* name) { return register_parameter(name, Tensor(), false); };
  if (_qkv_same_embed_dim) {
    in_proj_weight = register_parameter("in_proj_weight", torch::empty({3 * E, E}));
    for (const char* name : {"q_proj_weight", "k_proj_weight", "v_proj_weight"}) none(name);
  } else {
    q_proj_weight = register_parameter("q_proj_weight", torch::empty({E, E}));
    k_proj_weight = register_parameter("k_proj_weight", torch::empty({E, options.kdim()}));
    v_proj_weight = register_parameter("v_proj_weight", torch::empty({E, options.vdim()}));
    none("in_proj_weight");
  }
  in_proj_bias = options.bias() ? register_parameter("in_proj_bias", torch::empty(3 * E)) : none("in_proj_bias");
  out_proj = register_module("out_proj", Linear(LinearOptions(E, E).bias(options.bias())));
  bias_k = options.add_bias_kv() ? register_parameter("bias_k", torch::empty({1, 1, E})) : Tensor();
  bias_v = options.add_bias_kv() ? register_parameter("bias_v", torch::empty({1, 1, E})) : Tensor();
  _reset_parameters();
}
void MultiheadAttentionImpl::_reset_parameters() {
  NoGradGuard off;
  for (const Tensor& w : {in_proj_weight, q_proj_weight, k_proj_weight, v_proj_weight}) {
    if (w.defined()) init::xavier_uniform_(w);
  }
  if (in_proj_bias.defined()) {
    init::zeros_(in_proj_bias);
    init::zeros_(out_proj->bias);
  }
  if (bias_k.defined()) init::xavier_normal_(bias_k);
  if (bias_v.defined()) init::xavier_normal_(bias_v);
}
HS_TORCH_PRINT(MultiheadAttention, "")
std::tuple<Tensor, Tensor> MultiheadAttentionImpl::forward(const Tensor& query, const Tensor& key, const Tensor& value,
                                                           const Tensor& key_padding_mask, bool need_weights,
                                                           const Tensor& attn_mask, bool average_attn_weights) {
  F::MultiheadAttentionForwardFuncOptions o(options.embed_dim(), options.num_heads(), in_proj_weight, in_proj_bias, bias_k, bias_v,
                                            options.add_zero_attn(), options.dropout(), out_proj->weight, out_proj->bias);
  o.training(is_training()).key_padding_mask(key_padding_mask).need_weights(need_weights).attn_mask(attn_mask);
  o.average_attn_weights(average_attn_weights);
  if (!_qkv_same_embed_dim) {
    o.use_separate_proj_weight(true).q_proj_weight(q_proj_weight).k_proj_weight(k_proj_weight).v_proj_weight(v_proj_weight);
  }
  return F::multi_head_attention_forward(query, key, value, o);
}

}  // namespace torch::nn
