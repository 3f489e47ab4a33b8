// SPDX-License-Identifier: Apache-2.0
// Initialisers: PyTorch's torch.nn.init. All fill a floating tensor in place, are not recorded, and on Device::meta only check.
// Random ones draw from `generator`, or from the default generator.
#pragma once

#include <optional>
#include <string>

#include "framework/base/generator.h"
#include "framework/tensor/tensor.h"

namespace halfstep::init {

// Returns the factor that keeps the variance through a layer or activation: 1 for linear, conv1d to conv3d, their transposes and
// sigmoid, 5/3 for tanh, sqrt(2) for relu, sqrt(2 / (1 + param^2)) for leaky_relu (param 0.01 unless given), 3/4 for selu.
double calculate_gain(const std::string& nonlinearity, std::optional<double> param = {});

void uniform_(const Tensor& w, double a = 0, double b = 1, Generator* generator = nullptr);
void normal_(const Tensor& w, double mean = 0, double std = 1, Generator* generator = nullptr);
// Draws from N(mean, std) truncated to [a, b].
void trunc_normal_(const Tensor& w, double mean = 0, double std = 1, double a = -2, double b = 2, Generator* generator = nullptr);
void constant_(const Tensor& w, double value);
void ones_(const Tensor& w);
void zeros_(const Tensor& w);
void eye_(const Tensor& w);  // [n, m]: 1 on the diagonal
// Fills a convolution's weight of 3 to 5 dimensions so that each group passes its input on, as far as there are channels.
void dirac_(const Tensor& w, int64_t groups = 1);

// For a w [out, in, kernel...], fan in = in * kernel's size, fan out = out * kernel's size. xavier: U(-b, b) and N(0, s) with s =
// gain sqrt(2 / (fan in + fan out)), b = s sqrt(3).
void xavier_uniform_(const Tensor& w, double gain = 1, Generator* generator = nullptr);
void xavier_normal_(const Tensor& w, double gain = 1, Generator* generator = nullptr);
// Options by name: kaiming_normal_(w, {.mode = "fan_out", .nonlinearity = "relu"}).
struct KaimingOptions {
  double a = 0;
  std::string mode = "fan_in";
  std::string nonlinearity = "leaky_relu";
  Generator* generator = nullptr;
};
// Draws as xavier, with s = calculate_gain(nonlinearity, a) / sqrt(fan); mode chooses fan_in or fan_out.
void kaiming_uniform_(const Tensor& w, double a = 0, const std::string& mode = "fan_in",
                      const std::string& nonlinearity = "leaky_relu", Generator* generator = nullptr);
void kaiming_normal_(const Tensor& w, double a = 0, const std::string& mode = "fan_in",
                     const std::string& nonlinearity = "leaky_relu", Generator* generator = nullptr);
inline void kaiming_uniform_(const Tensor& w, const KaimingOptions& o) {
  kaiming_uniform_(w, o.a, o.mode, o.nonlinearity, o.generator);
}
inline void kaiming_normal_(const Tensor& w, const KaimingOptions& o) {
  kaiming_normal_(w, o.a, o.mode, o.nonlinearity, o.generator);
}

// Fills w, taken as [w.size(0), rest], with orthonormal rows, or columns if there are more rows, times gain. Computes on the host,
// in float64.
void orthogonal_(const Tensor& w, double gain = 1, Generator* generator = nullptr);
// Draws [n, m] from N(0, std), and sets this share of each column (rounded up) to 0. Computes on the host.
void sparse_(const Tensor& w, double sparsity, double std = 0.01, Generator* generator = nullptr);

}  // namespace halfstep::init
