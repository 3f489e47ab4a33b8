// SPDX-License-Identifier: Apache-2.0
#include "torch/nn/modules/linear.h"

#include "torch/nn/init.h"
#include "torch/nn/modules/define.h"

namespace torch::nn {

template class Cloneable<IdentityImpl>;
void IdentityImpl::reset() {}
HS_TORCH_PRINT(Identity, "()")
Tensor IdentityImpl::forward(const Tensor& x) { return x; }

HS_TORCH_DEFINE(Linear)
void LinearImpl::reset() {
  weight = register_parameter("weight", torch::empty({options.out_features(), options.in_features()}));
  bias = register_parameter("bias", options.bias() ? torch::empty(options.out_features()) : Tensor(), options.bias());
  reset_parameters();
}
void LinearImpl::reset_parameters() {
  NoGradGuard off;
  init::kaiming_uniform_(weight, std::sqrt(5.0));
  const double bound = 1 / std::sqrt(double(weight.size(1)));
  if (bias.defined()) init::uniform_(bias, -bound, bound);
}
HS_TORCH_PRINT(Linear, "(in_features=" << options.in_features() << ", out_features=" << options.out_features()
                                       << ", bias=" << options.bias() << ")")
Tensor LinearImpl::forward(const Tensor& x) { return F::linear(x, weight, bias); }

HS_TORCH_DEFINE(Bilinear)
void BilinearImpl::reset() {
  weight = register_parameter("weight", torch::empty({options.out_features(), options.in1_features(), options.in2_features()}));
  bias = register_parameter("bias", options.bias() ? torch::empty(options.out_features()) : Tensor(), options.bias());
  reset_parameters();
}
void BilinearImpl::reset_parameters() {
  NoGradGuard off;
  const double bound = 1 / std::sqrt(double(weight.size(1)));
  init::uniform_(weight, -bound, bound);
  if (bias.defined()) init::uniform_(bias, -bound, bound);
}
HS_TORCH_PRINT(Bilinear, "(in1_features=" << options.in1_features() << ", in2_features=" << options.in2_features()
                                          << ", out_features=" << options.out_features() << ", bias=" << options.bias() << ")")
Tensor BilinearImpl::forward(const Tensor& a, const Tensor& b) { return F::bilinear(a, b, weight, bias); }

HS_TORCH_DEFINE_FUNCTION(Flatten, "(start_dim=" << options.start_dim() << ", end_dim=" << options.end_dim() << ")",
                         x.flatten(options.start_dim(), options.end_dim()))
HS_TORCH_DEFINE_FUNCTION(Unflatten, "(dim=" << options.dim() << ", unflattened_size={" << Join(", ", options.sizes()) << "})",
                         x.unflatten(options.dim(), options.sizes()))

namespace {

// Returns the weight of an embedding: the given one, or an undefined tensor.
template <class Options>
Tensor given_weight(const char* text, const Options& o) {
  TORCH_CHECK(!o.sparse(), "sparse gradients are not in halfstep: leave out sparse(true), the gradient is dense");
  if (o._weight().defined()) {
    TORCH_CHECK(o._weight().sizes() == IntArrayRef({o.num_embeddings(), o.embedding_dim()}), text,
                " does not match num_embeddings and embedding_dim");
  }
  return o._weight();
}
template <class Options>
void print_common(std::ostream& out, const Options& o) {
  if (o.max_norm()) out << ", max_norm=" << *o.max_norm();
  if (o.norm_type() != 2) out << ", norm_type=" << o.norm_type();
  if (o.scale_grad_by_freq()) out << ", scale_grad_by_freq=" << o.scale_grad_by_freq();
}
template <class Options>
void fill_embedding(const Tensor& weight, const Options& o) {
  NoGradGuard off;
  init::normal_(weight);
  if (o.padding_idx()) weight[*o.padding_idx()].fill_(0);
}

}  // namespace

HS_TORCH_DEFINE(Embedding)
void EmbeddingImpl::reset() {
  if (options.padding_idx()) {
    const int64_t i = *options.padding_idx(), n = options.num_embeddings();
    TORCH_CHECK(i >= -n && i < n, "Padding_idx must be within num_embeddings");
    options.padding_idx(i < 0 ? n + i : i);
  }
  const Tensor given = given_weight("Shape of _weight", options);
  weight =
      register_parameter("weight", given.defined() ? given : torch::empty({options.num_embeddings(), options.embedding_dim()}));
  if (!given.defined()) reset_parameters();
}
void EmbeddingImpl::reset_parameters() { fill_embedding(weight, options); }
void EmbeddingImpl::pretty_print(std::ostream& out) const {
  out << std::boolalpha << "torch::nn::Embedding(num_embeddings=" << options.num_embeddings()
      << ", embedding_dim=" << options.embedding_dim();
  if (options.padding_idx()) out << ", padding_idx=" << *options.padding_idx();
  print_common(out, options);
  out << ")";
}
Tensor EmbeddingImpl::forward(const Tensor& indices) {
  return F::embedding(indices, weight,
                      F::EmbeddingFuncOptions()
                          .padding_idx(options.padding_idx())
                          .max_norm(options.max_norm())
                          .norm_type(options.norm_type())
                          .scale_grad_by_freq(options.scale_grad_by_freq()));
}
Embedding Embedding::from_pretrained(const Tensor& embeddings, const EmbeddingFromPretrainedOptions& o) {
  TORCH_CHECK(embeddings.dim() == 2, "Embeddings parameter is expected to be 2-dimensional");
  Embedding e(EmbeddingOptions(embeddings.size(0), embeddings.size(1))
                  ._weight(embeddings)
                  .padding_idx(o.padding_idx())
                  .max_norm(o.max_norm())
                  .norm_type(o.norm_type())
                  .scale_grad_by_freq(o.scale_grad_by_freq())
                  .sparse(o.sparse()));
  e->weight.set_requires_grad(!o.freeze());
  return e;
}

HS_TORCH_DEFINE(EmbeddingBag)
void EmbeddingBagImpl::reset() {
  const Tensor given = given_weight("Shape of weight", options);
  weight =
      register_parameter("weight", given.defined() ? given : torch::empty({options.num_embeddings(), options.embedding_dim()}));
  if (!given.defined()) reset_parameters();
}
void EmbeddingBagImpl::reset_parameters() { fill_embedding(weight, options); }
void EmbeddingBagImpl::pretty_print(std::ostream& out) const {
  out << std::boolalpha << "torch::nn::EmbeddingBag(num_embeddings=" << options.num_embeddings()
      << ", embedding_dim=" << options.embedding_dim();
  print_common(out, options);
  if (!std::holds_alternative<enumtype::kMean>(options.mode())) out << ", mode=" << enumtype::get_enum_name(options.mode());
  if (options.include_last_offset()) out << ", include_last_offset=" << options.include_last_offset();
  if (options.padding_idx()) out << ", padding_idx=" << *options.padding_idx();
  out << ")";
}
Tensor EmbeddingBagImpl::forward(const Tensor& indices, const Tensor& offsets, const Tensor& per_sample_weights) {
  return F::embedding_bag(indices, weight,
                          F::EmbeddingBagFuncOptions()
                              .offsets(offsets)
                              .max_norm(options.max_norm())
                              .norm_type(options.norm_type())
                              .scale_grad_by_freq(options.scale_grad_by_freq())
                              .mode(options.mode())
                              .per_sample_weights(per_sample_weights)
                              .include_last_offset(options.include_last_offset())
                              .padding_idx(options.padding_idx()));
}
EmbeddingBag EmbeddingBag::from_pretrained(const Tensor& embeddings, const EmbeddingBagFromPretrainedOptions& o) {
  TORCH_CHECK(embeddings.dim() == 2, "Embeddings parameter is expected to be 2-dimensional");
  EmbeddingBag e(EmbeddingBagOptions(embeddings.size(0), embeddings.size(1))
                     ._weight(embeddings)
                     .max_norm(o.max_norm())
                     .norm_type(o.norm_type())
                     .scale_grad_by_freq(o.scale_grad_by_freq())
                     .mode(o.mode())
                     .sparse(o.sparse())
                     .include_last_offset(o.include_last_offset())
                     .padding_idx(o.padding_idx()));
  e->weight.set_requires_grad(!o.freeze());
  return e;
}

}  // namespace torch::nn
