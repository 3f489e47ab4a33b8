#include "layers/embedding.h"

#include "framework/autograd/grad_mode.h"

namespace halfstep {
namespace {

Tensor random_rows(int64_t rows, int64_t width, Generator* generator) {
  check<ValueError>(rows >= 1 && width >= 1, "Embedding", "num_embeddings and embedding_dim must be >= 1, got ", rows, " and ",
                    width);
  MemoryScope tag(MemoryTag::parameters);
  const Tensor out = Tensor::empty({rows, width});
  normal_(out, 0, 1, generator);
  return out;
}

}  // namespace

Embedding::Embedding(const Tensor& given, const EmbeddingOptions& o) : weight(given), options_(o) {
  check<ShapeError>(given.dim() == 2, "Embedding", "weight must be [num_embeddings, embedding_dim], got ", given.shape());
  const int64_t rows = given.size(0);
  if (o.padding_idx) {
    check<ValueError>(-rows <= *o.padding_idx && *o.padding_idx < rows, "Embedding", "padding_idx must be within num_embeddings ",
                      rows, ", got ", *o.padding_idx);
    if (*o.padding_idx < 0) options_.padding_idx = *o.padding_idx + rows;
  }
  check<ValueError>(!o.max_norm || *o.max_norm > 0, "Embedding", "max_norm must be > 0, got ", o.max_norm.value_or(0));
  register_parameter("weight", weight);
}

Embedding::Embedding(int64_t num_embeddings, int64_t embedding_dim, const EmbeddingOptions& o, Generator* generator)
    : Embedding(random_rows(num_embeddings, embedding_dim, generator), o) {
  const NoGrad off;
  if (options_.padding_idx) weight.select(0, *options_.padding_idx).fill_(0);
}

std::shared_ptr<Embedding> Embedding::from_pretrained(const Tensor& weight, bool freeze, const EmbeddingOptions& options) {
  std::shared_ptr<Embedding> out(new Embedding(weight, options));
  out->requires_grad_(!freeze);
  return out;
}

Tensor Embedding::forward(const Tensor& x) {
  return embedding(weight, x, options_.padding_idx, options_.scale_grad_by_freq, options_.max_norm, options_.norm_type);
}

std::string Embedding::describe() const {
  return Repr("Embedding")
      .arg(weight.size(0))
      .arg(weight.size(1))
      .arg_if(options_.padding_idx.has_value(), "padding_idx", options_.padding_idx)
      .arg_if(options_.max_norm.has_value(), "max_norm", options_.max_norm)
      .arg_if(options_.norm_type != 2, "norm_type", options_.norm_type)
      .arg_if(options_.scale_grad_by_freq, "scale_grad_by_freq", true)
      .str();
}

}  // namespace halfstep
