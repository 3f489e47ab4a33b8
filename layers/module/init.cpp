// SPDX-License-Identifier: Apache-2.0
#include "layers/module/init.h"

#include <Eigen/QR>
#include <algorithm>
#include <array>
#include <cmath>
#include <numbers>
#include <vector>

#include "framework/autograd/grad_mode.h"
#include "framework/ops/ops.h"

namespace halfstep::init {
namespace {

struct Fans {
  double in, out;
};

// Returns the fans of a weight [out, in, kernel...].
Fans fans(const Tensor& w, const char* where) {
  check<ShapeError>(w.dim() >= 2, where, "needs at least 2 dimensions, [out, in, ...], got ", w.shape());
  check<ShapeError>(w.numel() > 0, where, "needs elements, got ", w.shape());
  const int64_t kernel = w.numel() / (w.size(0) * w.size(1));
  return {double(w.size(1) * kernel), double(w.size(0) * kernel)};
}

double xavier_std(const Tensor& w, double gain, const char* where) {
  const Fans f = fans(w, where);
  return gain * std::sqrt(2 / (f.in + f.out));
}

double kaiming_std(const Tensor& w, double a, const std::string& mode, const std::string& nonlinearity, const char* where) {
  const Fans f = fans(w, where);
  check<ValueError>(mode == "fan_in" || mode == "fan_out", where, "mode must be \"fan_in\" or \"fan_out\", got \"", mode, '"');
  return calculate_gain(nonlinearity, a) / std::sqrt(mode == "fan_in" ? f.in : f.out);
}

void copy_values(const Tensor& w, const std::vector<double>& values) {
  const NoGrad off;
  w.detach().copy_(from_vector(values, w.shape()).to(w.dtype()).to(w.device()));
}

bool draws_as_pytorch(Generator* generator) {
  return (generator ? *generator : default_generator()).kind() == GeneratorKind::mt19937;
}

// Draws by rejection, as PyTorch 2.15 does: normal numbers, or uniform ones where most normal numbers would be rejected.
void draw_truncated_as_pytorch(const Tensor& w, double mean, double std, double a, double b, Generator* generator) {
  const NoGrad off;
  constexpr double kLeastAccepted = 0.3;  // share of normal numbers within the bounds from which PyTorch draws them
  const auto share_below = [&](double x) { return (1 + std::erf((x - mean) / std / std::numbers::sqrt2)) / 2; };
  const Tensor out = w.detach(), again = empty_like(out), chance = empty_like(out);
  const bool by_normals = share_below(b) - share_below(a) > kLeastAccepted;
  const double mode = std::max(a, std::min(mean, b)), peak = -0.5 * std::pow((mode - mean) / std, 2);
  // Draws all elements anew, and returns where they are rejected.
  const auto draw = [&](const Tensor& to) {
    if (by_normals) {
      halfstep::normal_(to, mean, std, generator);
      return logical_or(lt(to, a), gt(to, b));
    }
    halfstep::uniform_(to, a, b, generator);
    halfstep::uniform_(chance, 0, 1, generator);
    return gt(log(chance), square((to - mean) / std) * -0.5 - peak);
  };
  Tensor pending = draw(out);
  while (any(pending).item<bool>()) {
    const Tensor rejected = draw(again);
    out.copy_(where(pending, again, out));
    pending = logical_and(pending, rejected);
  }
}

// Draws from N(0, std) on the host, in float64; or as PyTorch does, in the weight's dtype, which gives other numbers.
std::vector<double> draw_normal(const Shape& shape, double std, Generator* generator, DType dtype) {
  const DefaultDevice host(Device::cpu);
  const Tensor t = Tensor::empty(shape, {.dtype = draws_as_pytorch(generator) ? dtype : DType::f64});
  halfstep::normal_(t, 0, std, generator);
  return t.to_vector<double>();
}

}  // namespace

double calculate_gain(const std::string& nonlinearity, std::optional<double> param) {
  const auto is_one_of = [&](std::initializer_list<const char*> names) {
    return std::find(names.begin(), names.end(), nonlinearity) != names.end();
  };
  if (is_one_of({"linear", "conv1d", "conv2d", "conv3d", "conv_transpose1d", "conv_transpose2d", "conv_transpose3d", "sigmoid"}))
    return 1;
  if (is_one_of({"tanh"})) return 5.0 / 3;
  if (is_one_of({"relu"})) return std::numbers::sqrt2;
  if (is_one_of({"leaky_relu"})) return std::sqrt(2 / (1 + param.value_or(0.01) * param.value_or(0.01)));
  if (is_one_of({"selu"})) return 0.75;
  fail<ValueError>("calculate_gain",
                   "nonlinearity must be linear, conv1d to conv3d, conv_transpose1d to conv_transpose3d, sigmoid, tanh, relu, "
                   "leaky_relu or selu, got \"",
                   nonlinearity, '"');
}

void uniform_(const Tensor& w, double a, double b, Generator* generator) {
  check<ValueError>(a <= b, "uniform_", "a must not be above b, got ", a, " and ", b);
  halfstep::uniform_(w, a, b, generator);
}

void normal_(const Tensor& w, double mean, double std, Generator* generator) {
  check<ValueError>(std >= 0, "normal_", "std must be >= 0, got ", std);
  halfstep::normal_(w, mean, std, generator);
}

void trunc_normal_(const Tensor& w, double mean, double std, double a, double b, Generator* generator) {
  check<ValueError>(std >= 0, "trunc_normal_", "std must be >= 0, got ", std);
  check<ValueError>(a <= b, "trunc_normal_", "a must not be above b, got ", a, " and ", b);
  if (draws_as_pytorch(generator) && std > 0 && w.device() != Device::meta)
    return draw_truncated_as_pytorch(w, mean, std, a, b, generator);
  // Draws by inversion: u uniform between erf's values at the bounds, then its inverse at u.
  const auto erf_at = [&](double x) { return std == 0 ? double(x >= mean) : std::erf((x - mean) / std / std::numbers::sqrt2); };
  const NoGrad off;
  const Tensor wide = Tensor::empty(w.shape(), {.dtype = w.dtype() == DType::f64 ? DType::f64 : DType::f32, .device = w.device()});
  halfstep::uniform_(wide, std == 0 ? 0 : erf_at(a), std == 0 ? 0 : erf_at(b), generator);
  w.detach().copy_((erfinv(wide) * (std * std::numbers::sqrt2) + mean).clamp(a, b).to(w.dtype()));
}

void constant_(const Tensor& w, double value) {
  const NoGrad off;
  w.detach().fill_(value);
}
void ones_(const Tensor& w) { constant_(w, 1); }
void zeros_(const Tensor& w) { constant_(w, 0); }

void eye_(const Tensor& w) {
  check<ShapeError>(w.dim() == 2, "eye_", "needs 2 dimensions, got ", w.shape());
  const NoGrad off;
  w.detach().copy_(eye(w.size(0), w.size(1), {.dtype = w.dtype(), .device = w.device()}));
}

void dirac_(const Tensor& w, int64_t groups) {
  check<ShapeError>(w.dim() >= 3 && w.dim() <= 5, "dirac_", "needs 3 to 5 dimensions, [out, in, kernel...], got ", w.shape());
  check<ValueError>(groups >= 1 && w.size(0) % groups == 0, "dirac_", "dimension 0 must be divisible by groups, got ", w.shape(),
                    " and ", groups);
  if (w.device() == Device::meta) return;
  std::vector<double> values(size_t(w.numel()), 0.0);
  const Strides strides = contiguous_strides(w.shape());
  int64_t center = 0;
  for (int d = 2; d < w.dim(); ++d) center += w.size(d) / 2 * strides[d];
  const int64_t each = w.size(0) / groups;
  for (int64_t g = 0; g < groups; ++g) {
    for (int64_t c = 0; c < std::min(each, w.size(1)); ++c)
      values[size_t((g * each + c) * strides[0] + c * strides[1] + center)] = 1;
  }
  copy_values(w, values);
}

void xavier_uniform_(const Tensor& w, double gain, Generator* generator) {
  const double bound = xavier_std(w, gain, "xavier_uniform_") * std::numbers::sqrt3;
  halfstep::uniform_(w, -bound, bound, generator);
}

void xavier_normal_(const Tensor& w, double gain, Generator* generator) {
  halfstep::normal_(w, 0, xavier_std(w, gain, "xavier_normal_"), generator);
}

void kaiming_uniform_(const Tensor& w, double a, const std::string& mode, const std::string& nonlinearity, Generator* generator) {
  const double bound = kaiming_std(w, a, mode, nonlinearity, "kaiming_uniform_") * std::numbers::sqrt3;
  halfstep::uniform_(w, -bound, bound, generator);
}

void kaiming_normal_(const Tensor& w, double a, const std::string& mode, const std::string& nonlinearity, Generator* generator) {
  halfstep::normal_(w, 0, kaiming_std(w, a, mode, nonlinearity, "kaiming_normal_"), generator);
}

void orthogonal_(const Tensor& w, double gain, Generator* generator) {
  check<ShapeError>(w.dim() >= 2, "orthogonal_", "needs at least 2 dimensions, got ", w.shape());
  if (w.numel() == 0 || w.device() == Device::meta) return;
  using Matrix = Eigen::Matrix<double, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;
  const int64_t rows = w.size(0), columns = w.numel() / rows, most = std::max(rows, columns), least = std::min(rows, columns);
  std::vector<double> values;
  if (draws_as_pytorch(generator) && rows < columns) {
    const std::vector<double> flat = draw_normal({rows, columns}, 1, generator, w.dtype());  // PyTorch transposes these
    values.resize(flat.size());
    for (int64_t r = 0; r < rows; ++r)
      for (int64_t c = 0; c < columns; ++c) values[size_t(c * rows + r)] = flat[size_t(r * columns + c)];
  } else {
    values = draw_normal({most, least}, 1, generator, w.dtype());
  }
  // Take Q of the QR decomposition of a tall matrix, with signs such that R's diagonal is positive: then Q is uniformly
  // distributed.
  const Eigen::HouseholderQR<Matrix> qr(Eigen::Map<const Matrix>(values.data(), most, least));
  Matrix q = qr.householderQ() * Matrix::Identity(most, least);
  for (int64_t c = 0; c < least; ++c) q.col(c) *= gain * (qr.matrixQR()(c, c) < 0 ? -1 : 1);
  Eigen::Map<Matrix> out(values.data(), rows, columns);
  if (rows < columns)
    out = q.transpose();
  else
    out = q;
  copy_values(w, values);
}

void sparse_(const Tensor& w, double sparsity, double std, Generator* generator) {
  check<ShapeError>(w.dim() == 2, "sparse_", "needs 2 dimensions, got ", w.shape());
  check<ValueError>(sparsity >= 0 && sparsity <= 1, "sparse_", "sparsity must be in [0, 1], got ", sparsity);
  check<ValueError>(std >= 0, "sparse_", "std must be >= 0, got ", std);
  if (w.device() == Device::meta) return;
  const int64_t rows = w.size(0), columns = w.size(1), zeroed = int64_t(std::ceil(sparsity * double(rows)));
  std::vector<double> values = draw_normal(w.shape(), std, generator, w.dtype());
  const DefaultDevice host(Device::cpu);
  for (int64_t c = 0; c < columns; ++c) {
    const std::vector<int64_t> order = randperm(rows, generator).to_vector<int64_t>();
    for (int64_t i = 0; i < zeroed; ++i) values[size_t(order[size_t(i)] * columns + c)] = 0;
  }
  copy_values(w, values);
}

}  // namespace halfstep::init
