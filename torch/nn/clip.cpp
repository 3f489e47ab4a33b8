// SPDX-License-Identifier: Apache-2.0
#include "torch/nn/clip.h"

#include "optim/clip.h"

namespace torch::nn::utils {
namespace {

std::vector<hs::Tensor> with_gradients(const std::vector<Tensor>& parameters) {
  std::vector<hs::Tensor> out;
  for (const Tensor& p : parameters) {
    if (p.grad().defined()) out.push_back(p.h());
  }
  return out;
}

}  // namespace

double clip_grad_norm_(const std::vector<Tensor>& parameters, double max_norm, double norm_type, bool error_if_nonfinite) {
  const std::vector<hs::Tensor> p = with_gradients(parameters);
  return p.empty() ? 0 : hs::clip_grad_norm_(p, max_norm, norm_type, error_if_nonfinite).item<double>();
}
double clip_grad_norm_(std::initializer_list<Tensor> parameters, double max_norm, double norm_type, bool error_if_nonfinite) {
  return clip_grad_norm_(std::vector<Tensor>(parameters), max_norm, norm_type, error_if_nonfinite);
}
double clip_grad_norm_(Tensor parameter, double max_norm, double norm_type, bool error_if_nonfinite) {
  return clip_grad_norm_(std::vector<Tensor>{std::move(parameter)}, max_norm, norm_type, error_if_nonfinite);
}
void clip_grad_value_(const std::vector<Tensor>& parameters, double clip_value) {
  const std::vector<hs::Tensor> p = with_gradients(parameters);
  if (!p.empty()) hs::clip_grad_value_(p, clip_value);
}
void clip_grad_value_(std::initializer_list<Tensor> parameters, double clip_value) {
  clip_grad_value_(std::vector<Tensor>(parameters), clip_value);
}
void clip_grad_value_(Tensor parameter, double clip_value) {
  clip_grad_value_(std::vector<Tensor>{std::move(parameter)}, clip_value);
}
Tensor parameters_to_vector(const std::vector<Tensor>& parameters) {
  std::vector<Tensor> flat;
  for (const Tensor& p : parameters) flat.push_back(p.reshape(-1));
  return torch::cat(flat);
}
void vector_to_parameters(const Tensor& vector, const std::vector<Tensor>& parameters) {
  int64_t at = 0;
  for (const Tensor& p : parameters) {
    p.set_data(vector.detach().slice(0, at, at + p.numel()).view_as(p));
    at += p.numel();
  }
}

}  // namespace torch::nn::utils
