// SPDX-License-Identifier: Apache-2.0
#include "layers/sequences/embedding.h"

#include "framework/autograd/grad_mode.h"

namespace halfstep {
namespace {

Tensor random_rows(const char* type, int64_t rows, int64_t width, Generator* generator) {
  check<ValueError>(rows >= 1 && width >= 1, type, "num_embeddings and embedding_dim must be >= 1, got ", rows, " and ", width);
  MemoryScope tag(MemoryTag::parameters);
  const Tensor out = Tensor::empty({rows, width});
  normal_(out, 0, 1, generator);
  return out;
}

// Checks what Embedding and EmbeddingBag have in common; a negative padding_idx counts from the end.
template <class Options>
void check_options(const char* type, const Tensor& weight, Options& o) {
  check<ShapeError>(weight.dim() == 2, type, "weight must be [num_embeddings, embedding_dim], got ", weight.shape());
  const int64_t rows = weight.size(0);
  if (o.padding_idx) {
    check<ValueError>(-rows <= *o.padding_idx && *o.padding_idx < rows, type, "padding_idx must be within num_embeddings ", rows,
                      ", got ", *o.padding_idx);
    if (*o.padding_idx < 0) *o.padding_idx += rows;
  }
  check<ValueError>(!o.max_norm || *o.max_norm > 0, type, "max_norm must be > 0, got ", o.max_norm.value_or(0));
}

}  // namespace

Embedding::Embedding(const Tensor& given, const EmbeddingOptions& o) : options_(o) {
  check_options("Embedding", given, options_);
  weight = register_parameter("weight", given);
}

Embedding::Embedding(Whole num_embeddings, Whole embedding_dim, const EmbeddingOptions& o, Generator* generator)
    : Embedding(random_rows("Embedding", num_embeddings, embedding_dim, generator), o) {
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

EmbeddingBag::EmbeddingBag(const Tensor& given, const EmbeddingBagLayerOptions& o) : options_(o) {
  check_options("EmbeddingBag", given, options_);
  check<ValueError>(bag_mode("EmbeddingBag", o.mode) != BagMode::max || !o.scale_grad_by_freq, "EmbeddingBag",
                    "mode max has no scale_grad_by_freq");
  weight = register_parameter("weight", given);
}

EmbeddingBag::EmbeddingBag(Whole num_embeddings, Whole embedding_dim, const EmbeddingBagLayerOptions& o, Generator* generator)
    : EmbeddingBag(random_rows("EmbeddingBag", num_embeddings, embedding_dim, generator), o) {
  const NoGrad off;
  if (options_.padding_idx) weight.select(0, *options_.padding_idx).fill_(0);
}

std::shared_ptr<EmbeddingBag> EmbeddingBag::from_pretrained(const Tensor& weight, bool freeze, const EmbeddingBagLayerOptions& o) {
  std::shared_ptr<EmbeddingBag> out(new EmbeddingBag(weight, o));
  out->requires_grad_(!freeze);
  return out;
}

Tensor EmbeddingBag::forward(const Tensor& index, const Tensor& offsets, const Tensor& per_sample_weights) {
  return embedding_bag(weight, index, offsets,
                       {.max_norm = options_.max_norm,
                        .norm_type = options_.norm_type,
                        .scale_grad_by_freq = options_.scale_grad_by_freq,
                        .mode = bag_mode("EmbeddingBag", options_.mode),
                        .per_sample_weights = per_sample_weights,
                        .include_last_offset = options_.include_last_offset,
                        .padding_idx = options_.padding_idx});
}

std::string EmbeddingBag::describe() const {
  return Repr("EmbeddingBag")
      .arg(weight.size(0))
      .arg(weight.size(1))
      .arg_if(options_.max_norm.has_value(), "max_norm", options_.max_norm)
      .arg_if(options_.norm_type != 2, "norm_type", options_.norm_type)
      .arg_if(options_.scale_grad_by_freq, "scale_grad_by_freq", true)
      .arg("mode", "'" + options_.mode + "'")
      .arg_if(options_.padding_idx.has_value(), "padding_idx", options_.padding_idx)
      .str();
}

}  // namespace halfstep
