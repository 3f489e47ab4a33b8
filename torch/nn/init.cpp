// SPDX-License-Identifier: Apache-2.0
#include "torch/nn/init.h"

#include "layers/module/init.h"
#include "torch/autograd/autograd.h"

namespace torch::nn::init {

double calculate_gain(NonlinearityType nonlinearity, double param) {
  const std::string name = enumtype::get_enum_name(nonlinearity);
  if (name == "kTanh") return 5.0 / 3;
  if (name == "kReLU") return std::sqrt(2.0);
  if (name == "kLeakyReLU") return std::sqrt(2.0 / (1 + param * param));
  return 1;
}

Tensor constant_(Tensor t, Scalar value) {
  NoGradGuard off;
  return t.fill_(value);
}
Tensor ones_(Tensor t) { return constant_(std::move(t), 1); }
Tensor zeros_(Tensor t) { return constant_(std::move(t), 0); }

#define HS_TORCH_INIT(name, parameters, ...) \
  Tensor name parameters {                   \
    hs::init::name(t.h(), ##__VA_ARGS__);    \
    return t;                                \
  }
HS_TORCH_INIT(uniform_, (Tensor t, double low, double high), low, high)
HS_TORCH_INIT(normal_, (Tensor t, double mean, double std), mean, std)
HS_TORCH_INIT(eye_, (Tensor t))
HS_TORCH_INIT(dirac_, (Tensor t))
HS_TORCH_INIT(orthogonal_, (Tensor t, double gain), gain)
HS_TORCH_INIT(sparse_, (Tensor t, double sparsity, double std), sparsity, std)
HS_TORCH_INIT(xavier_uniform_, (Tensor t, double gain), gain)
HS_TORCH_INIT(xavier_normal_, (Tensor t, double gain), gain)
#undef HS_TORCH_INIT

namespace {

std::string name_of(const NonlinearityType& n) {
  constexpr const char* names[] = {"linear",           "conv1d",  "conv2d", "conv3d", "conv_transpose1d", "conv_transpose2d",
                                   "conv_transpose3d", "sigmoid", "tanh",   "relu",   "leaky_relu"};
  return names[n.index()];
}
const char* name_of(const FanModeType& m) { return m.index() == 0 ? "fan_in" : "fan_out"; }

}  // namespace

Tensor kaiming_uniform_(Tensor t, double a, FanModeType mode, NonlinearityType nonlinearity) {
  hs::init::kaiming_uniform_(t.h(), a, name_of(mode), name_of(nonlinearity));
  return t;
}
Tensor kaiming_normal_(Tensor t, double a, FanModeType mode, NonlinearityType nonlinearity) {
  hs::init::kaiming_normal_(t.h(), a, name_of(mode), name_of(nonlinearity));
  return t;
}

std::tuple<int64_t, int64_t> _calculate_fan_in_and_fan_out(const Tensor& t) {
  TORCH_CHECK(t.dim() >= 2, "Fan in and fan out can not be computed for tensor with fewer than 2 dimensions");
  int64_t field = 1;
  for (int64_t d = 2; d < t.dim(); ++d) field *= t.size(d);
  return {t.size(1) * field, t.size(0) * field};
}

}  // namespace torch::nn::init
