// SPDX-License-Identifier: Apache-2.0
// Linear layers, embeddings, and changes of shape.
#pragma once

#include "torch/nn/modules/layer.h"

namespace torch::nn {

struct IdentityImpl : Cloneable<IdentityImpl> {
  void reset() override;
  void pretty_print(std::ostream& out) const override;
  Tensor forward(const Tensor& x);
};
HS_TORCH_HOLDER(Identity)

struct LinearImpl : Cloneable<LinearImpl> {
  HS_TORCH_LAYER(Linear);
  LinearImpl(int64_t in_features, int64_t out_features) : LinearImpl(LinearOptions(in_features, out_features)) {}
  void reset_parameters();
  Tensor forward(const Tensor& x);
  Tensor weight, bias;
};
HS_TORCH_HOLDER(Linear)

struct BilinearImpl : Cloneable<BilinearImpl> {
  HS_TORCH_LAYER(Bilinear);
  BilinearImpl(int64_t in1_features, int64_t in2_features, int64_t out_features)
      : BilinearImpl(BilinearOptions(in1_features, in2_features, out_features)) {}
  void reset_parameters();
  Tensor forward(const Tensor& a, const Tensor& b);
  Tensor weight, bias;
};
HS_TORCH_HOLDER(Bilinear)

HS_TORCH_FUNCTION_LAYER(Flatten)

struct UnflattenImpl : Cloneable<UnflattenImpl> {
  HS_TORCH_LAYER(Unflatten);
  UnflattenImpl(int64_t dim, std::vector<int64_t> sizes) : UnflattenImpl(UnflattenOptions(dim, std::move(sizes))) {}
  Tensor forward(const Tensor& x);
};
HS_TORCH_HOLDER(Unflatten)

struct EmbeddingImpl : Cloneable<EmbeddingImpl> {
  HS_TORCH_LAYER(Embedding);
  EmbeddingImpl(int64_t num_embeddings, int64_t embedding_dim) : EmbeddingImpl(EmbeddingOptions(num_embeddings, embedding_dim)) {}
  void reset_parameters();
  Tensor forward(const Tensor& indices);
  Tensor weight;
};
extern template class Cloneable<EmbeddingImpl>;
class Embedding : public ModuleHolder<EmbeddingImpl> {
 public:
  using ModuleHolder<EmbeddingImpl>::ModuleHolder;
  using Impl = EmbeddingImpl;
  static Embedding from_pretrained(const Tensor& embeddings, const EmbeddingFromPretrainedOptions& o = {});
};

struct EmbeddingBagImpl : Cloneable<EmbeddingBagImpl> {
  HS_TORCH_LAYER(EmbeddingBag);
  EmbeddingBagImpl(int64_t num_embeddings, int64_t embedding_dim)
      : EmbeddingBagImpl(EmbeddingBagOptions(num_embeddings, embedding_dim)) {}
  void reset_parameters();
  Tensor forward(const Tensor& indices, const Tensor& offsets = {}, const Tensor& per_sample_weights = {});
  Tensor weight;
  FORWARD_HAS_DEFAULT_ARGS({1, AnyValue(Tensor())}, {2, AnyValue(Tensor())})
};
extern template class Cloneable<EmbeddingBagImpl>;
class EmbeddingBag : public ModuleHolder<EmbeddingBagImpl> {
 public:
  using ModuleHolder<EmbeddingBagImpl>::ModuleHolder;
  using Impl = EmbeddingBagImpl;
  static EmbeddingBag from_pretrained(const Tensor& embeddings, const EmbeddingBagFromPretrainedOptions& o = {});
};

}  // namespace torch::nn
