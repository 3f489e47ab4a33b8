// SPDX-License-Identifier: Apache-2.0
// Embeddings: rows of a matrix by index.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "framework/ops/reduce/embedding_bag.h"
#include "layers/module/layer.h"

namespace halfstep {

struct EmbeddingOptions {
  std::optional<int64_t> padding_idx = {};  // negative: counts from the end
  std::optional<double> max_norm = {};
  double norm_type = 2;
  bool scale_grad_by_freq = false;
  static const OptionList<EmbeddingOptions>& list();
};
// Maps integers x of any shape to [..., embedding_dim]. weight: [num_embeddings, embedding_dim] from N(0, 1).
class Embedding : public Module {
 public:
  using Options = EmbeddingOptions;
  static constexpr const char* kName = "Embedding";
  static const Arguments<int64_t, int64_t>& arguments();
  Embedding(Integer num_embeddings, Integer embedding_dim, const EmbeddingOptions& options = {}, Generator* generator = nullptr);
  // Shares this weight, [num_embeddings, embedding_dim]; freeze: it is not trained.
  static std::shared_ptr<Embedding> from_pretrained(const Tensor& weight, bool freeze = true, const EmbeddingOptions& options = {});
  Tensor forward(const Tensor& x) override;
  bool is_recordable() const override { return !options_.max_norm; }
  std::string describe() const override;
  Parameter weight;

 private:
  Embedding(const Tensor& weight, const EmbeddingOptions& options);
  EmbeddingOptions options_;
};

struct EmbeddingBagLayerOptions {
  std::optional<double> max_norm = {};
  double norm_type = 2;
  bool scale_grad_by_freq = false;
  std::string mode = "mean";
  bool include_last_offset = false;
  std::optional<int64_t> padding_idx = {};  // negative: counts from the end
  static const OptionList<EmbeddingBagLayerOptions>& list();
};
// Computes the sum, mean or maximum of the rows of each bag: embedding_bag (framework/ops/reduce/embedding_bag.h). index [B, n],
// or [n] with offsets [B] where the bags begin -> [B, embedding_dim]. weight: [num_embeddings, embedding_dim] from N(0, 1).
class EmbeddingBag : public ModuleOf<EmbeddingBag> {
 public:
  using Options = EmbeddingBagLayerOptions;
  static constexpr const char* kName = "EmbeddingBag";
  static const Arguments<int64_t, int64_t>& arguments() { return Embedding::arguments(); }
  EmbeddingBag(Integer num_embeddings, Integer embedding_dim, const EmbeddingBagLayerOptions& options = {},
               Generator* generator = nullptr);
  static std::shared_ptr<EmbeddingBag> from_pretrained(const Tensor& weight, bool freeze = true,
                                                       const EmbeddingBagLayerOptions& options = {});
  Tensor forward(const Tensor& index, const Tensor& offsets, const Tensor& per_sample_weights = {});
  Tensor forward(const Tensor& index) override { return forward(index, {}); }
  bool is_recordable() const override { return !options_.max_norm; }
  std::string describe() const override;
  Parameter weight;

 private:
  EmbeddingBag(const Tensor& weight, const EmbeddingBagLayerOptions& options);
  EmbeddingBagLayerOptions options_;
};

}  // namespace halfstep
