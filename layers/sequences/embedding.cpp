// SPDX-License-Identifier: Apache-2.0
#include "layers/sequences/embedding.h"

#include "framework/autograd/grad_mode.h"

namespace halfstep {
namespace {

Tensor random_rows(const char* type, int64_t rows, int64_t width, Generator* generator) {
  check_arguments(type, Embedding::arguments(), rows, width);
  MemoryScope tag(MemoryTag::parameters);
  const Tensor out = Tensor::empty({rows, width});
  normal_(out, 0, 1, generator);
  return out;
}

// Checks the common arguments of Embedding and EmbeddingBag; a negative padding_idx counts from the end.
template <class Options>
void check_weight(const char* type, const Tensor& weight, Options& o) {
  check_options(type, o);
  check<ShapeError>(weight.dim() == 2, type, "weight must be [num_embeddings, embedding_dim], got ", weight.shape());
  const int64_t rows = weight.size(0);
  if (o.padding_idx) {
    check<ValueError>(-rows <= *o.padding_idx && *o.padding_idx < rows, type, "padding_idx must be within num_embeddings ", rows,
                      ", got ", *o.padding_idx);
    if (*o.padding_idx < 0) *o.padding_idx += rows;
  }
}

template <class O>
Option<O> max_norm_of() {
  return option("max_norm", &O::max_norm, "largest norm of a row; rows that are used are scaled down to it").above(0).if_changed();
}
template <class O>
Option<O> norm_type_of() {
  return option("norm_type", &O::norm_type, "of max_norm").above(0).if_changed();
}
template <class O>
Option<O> scale_of() {
  return option("scale_grad_by_freq", &O::scale_grad_by_freq, "divide gradients by uses").if_changed();
}
}  // namespace

HALFSTEP_ARGUMENTS(Embedding, argument("num_embeddings", "rows").at_least(1),
                   argument("embedding_dim", "width of a row").at_least(1))
HALFSTEP_OPTIONS(EmbeddingOptions, option("padding_idx", &O::padding_idx, "a row of zeros without gradient").if_changed(),
                 max_norm_of<O>(), norm_type_of<O>(), scale_of<O>())
HALFSTEP_OPTIONS(EmbeddingBagLayerOptions, max_norm_of<O>(), norm_type_of<O>(), scale_of<O>(),
                 option("mode", &O::mode, "how").one_of({"mean", "sum", "max"}).in_quotes(),
                 option("include_last_offset", &O::include_last_offset, "of offsets, which configs cannot pass").unseen(),
                 option("padding_idx", &O::padding_idx, "index that is ignored").if_changed())

Embedding::Embedding(const Tensor& given, const EmbeddingOptions& o) : options_(o) {
  check_weight(kName, given, options_);
  weight = register_parameter("weight", given);
}

Embedding::Embedding(Integer num_embeddings, Integer embedding_dim, const EmbeddingOptions& o, Generator* generator)
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

std::string Embedding::describe() const { return Repr(kName).arg(weight.size(0)).arg(weight.size(1)).options(options_).str(); }

EmbeddingBag::EmbeddingBag(const Tensor& given, const EmbeddingBagLayerOptions& o) : options_(o) {
  check_weight(kName, given, options_);
  check<ValueError>(bag_mode("EmbeddingBag", o.mode) != BagMode::max || !o.scale_grad_by_freq, "EmbeddingBag",
                    "mode max has no scale_grad_by_freq");
  weight = register_parameter("weight", given);
}

EmbeddingBag::EmbeddingBag(Integer num_embeddings, Integer embedding_dim, const EmbeddingBagLayerOptions& o, Generator* generator)
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

std::string EmbeddingBag::describe() const { return Repr(kName).arg(weight.size(0)).arg(weight.size(1)).options(options_).str(); }

}  // namespace halfstep
