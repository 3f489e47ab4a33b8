// Rows of a matrix, by their numbers.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "layers/layer.h"

namespace halfstep {

struct EmbeddingOptions {
  std::optional<int64_t> padding_idx = {};  // a row of zeros at first, which gets no gradient; negative: from the end
  std::optional<double> max_norm = {};      // rows that are used are scaled down to this norm, in place
  double norm_type = 2;
  bool scale_grad_by_freq = false;  // the gradient of a row is divided by how often it was used
};
// x: integers of any shape -> [..., embedding_dim]. weight: [num_embeddings, embedding_dim] from N(0, 1).
class Embedding : public Module {
 public:
  Embedding(int64_t num_embeddings, int64_t embedding_dim, const EmbeddingOptions& options = {}, Generator* generator = nullptr);
  // With this weight, [num_embeddings, embedding_dim], which is shared, not copied; freeze: it is not trained.
  static std::shared_ptr<Embedding> from_pretrained(const Tensor& weight, bool freeze = true, const EmbeddingOptions& options = {});
  Tensor forward(const Tensor& x) override;
  bool is_recordable() const override { return !options_.max_norm; }
  std::string describe() const override;
  Tensor weight;

 private:
  Embedding(const Tensor& weight, const EmbeddingOptions& options);
  EmbeddingOptions options_;
};

}  // namespace halfstep
