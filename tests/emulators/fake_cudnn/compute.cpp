// SPDX-License-Identifier: Apache-2.0
// The arithmetic of the fake cuDNN, in double. Each result is rounded once to the type of its tensor.
#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>

#include "tests/emulators/fake_cudnn/fake_cudnn.h"

namespace emu::dnn {
namespace {

uint64_t mixed(uint64_t h, uint64_t value) {
  h = std::rotl((h ^ value) * 0x9E3779B97F4A7C15u, 29);
  return (h ^ h >> 31) * 0xBF58476D1CE4E5B9u;
}

double precision(cudnnDataType_t type) {  // the distance from 1 to the next
  return type == CUDNN_DATA_HALF ? 0x1p-10 : type == CUDNN_DATA_BFLOAT16 ? 0x1p-7 : type == CUDNN_DATA_FLOAT ? 0x1p-23 : 0;
}

// An engine's rounding of a factor before the products, and of their sum after.
double prepared(double x, Arithmetic a) {
  if (a == Arithmetic::tf32) return rounded_to_tf32(x);
  if (a == Arithmetic::half_inputs) return rounded(CUDNN_DATA_HALF, x);
  return x;
}
Values prepared(const Values& from, Arithmetic a) {
  Values to(from);
  for (double& x : to) x = prepared(x, a);
  return to;
}
double summed(double x, Arithmetic a, cudnnDataType_t type, uint64_t run, size_t at) {
  if (a == Arithmetic::coarse) return x * (1 + 0x1p-5);
  if (a == Arithmetic::varying) return x * (1 + precision(type) * (double(mixed(run, at) % 4) - 1.5));
  return x;
}

// Which element of an image one tap of the window adds to or takes from which position.
struct Tap {
  int64_t image, tap, position;
};
std::vector<Tap> taps_of(const Convolution& c, const Dims& image, const Dims& window, const Dims& positions) {
  std::vector<Tap> taps;
  Dims p(positions.size(), 0), t(window.size(), 0);
  const auto next = [](Dims& at, const Dims& dims) {
    for (size_t d = dims.size(); d-- > 0;) {
      if (++at[d] < dims[d]) return true;
      at[d] = 0;
    }
    return false;
  };
  int64_t position = 0;
  do {
    int64_t tap = 0;
    do {
      int64_t at = 0;
      bool inside = true;
      for (size_t d = 0; d < image.size(); ++d) {
        const int64_t k = c.flipped ? window[d] - 1 - t[d] : t[d];
        const int64_t i = p[d] * c.stride[d] - c.before[d] + k * c.dilation[d];
        inside = inside && i >= 0 && i < image[d];
        at = at * image[d] + i;
      }
      if (inside) taps.push_back({at, tap, position});
      ++tap;
    } while (next(t, window));
    ++position;
  } while (next(p, positions));
  return taps;
}

Dims spatial(const Tensor& t) { return Dims(t.dims.begin() + 2, t.dims.end()); }
int64_t product(const Dims& dims) {
  int64_t n = 1;
  for (int64_t d : dims) n *= d;
  return n;
}

Values convolve(const Operation& op, const Values& first, const Values& second, Arithmetic a) {
  const bool forward = op.kind == Kind::conv_forward, data = op.kind == Kind::conv_backward_data;
  const Tensor &x = data ? op.out : op.in[0], &y = forward ? op.out : data ? op.in[0] : op.in[1];
  const Tensor& w = op.kind == Kind::conv_backward_filter ? op.out : op.in[1];
  const int64_t batch = x.dims[0], channels = x.dims[1], maps = w.dims[0], inner = w.dims[1], outer = maps / (channels / inner);
  const int64_t image = product(spatial(x)), window = product(spatial(w)), positions = product(spatial(y));
  const std::vector<Tap> taps = taps_of(op.conv, spatial(x), spatial(w), spatial(y));
  const Values p = prepared(first, a), q = prepared(second, a);
  Values out(size_t(op.out.elements()), 0);
  for (int64_t n = 0; n < batch; ++n) {
    for (int64_t k = 0; k < maps; ++k) {
      for (int64_t c = 0; c < inner; ++c) {
        const int64_t at_x = (n * channels + k / outer * inner + c) * image, at_w = (k * inner + c) * window;
        const int64_t at_y = (n * maps + k) * positions;
        for (const Tap& t : taps) {
          const size_t ix = size_t(at_x + t.image), iw = size_t(at_w + t.tap), iy = size_t(at_y + t.position);
          if (forward)
            out[iy] += p[ix] * q[iw];
          else if (data)
            out[ix] += p[iy] * q[iw];
          else
            out[iw] += p[ix] * q[iy];
        }
      }
    }
  }
  return out;
}

// Row-major offsets into `t` of the batch of `to` at each of its places; heads may share.
std::vector<int64_t> batches(const Dims& t, const Dims& to) {
  const size_t n = to.size() - 2;
  const Dims strides = row_major(t);
  std::vector<int64_t> offsets;
  const Dims outer(to.begin(), to.begin() + int64_t(n));
  int64_t count = product(outer);
  for (int64_t i = 0; i < count; ++i) {
    int64_t rest = i, offset = 0;
    for (size_t d = n; d-- > 0;) {
      offset += rest % to[d] / (to[d] / t[d]) * strides[d];
      rest /= to[d];
    }
    offsets.push_back(offset);
  }
  return offsets;
}

Values multiply(const Operation& op, const std::vector<const Values*>& operands, Arithmetic arithmetic) {
  const Dims &a = op.in[0].dims, &b = op.in[1].dims, &c = op.out.dims;
  const size_t n = c.size();
  const int64_t rows = c[n - 2], columns = c[n - 1], inner = a[n - 1];
  const Values p = prepared(*operands[0], arithmetic), q = prepared(*operands[1], arithmetic);
  const auto at_a = batches(a, c), at_b = batches(b, c);
  Values out(size_t(op.out.elements()), 0);
  const auto extent = [&](size_t i, size_t batch, int64_t all) {
    if (!op.extents[i]) return all;
    const size_t sample = batch / (at_a.size() / size_t(c[0]));
    return std::min(all, int64_t((*operands[op.extents[i]])[sample]));
  };
  for (size_t t = 0; t < at_a.size(); ++t) {
    const int64_t m = extent(0, t, rows), k = extent(1, t, columns), depth = extent(2, t, inner);
    for (int64_t i = 0; i < m; ++i) {
      double* const row = &out[t * size_t(rows * columns) + size_t(i * columns)];
      for (int64_t l = 0; l < depth; ++l) {
        const double x = p[size_t(at_a[t] + i * inner + l)];
        const double* const y = &q[size_t(at_b[t] + l * columns)];
        for (int64_t j = 0; j < k; ++j) row[j] += x * y[j];
      }
    }
  }
  return out;
}

double gelu(double x) { return 0.5 * x * (1 + std::erf(x * M_SQRT1_2)); }
double gelu_slope(double x) { return 0.5 * (1 + std::erf(x * M_SQRT1_2)) + x * std::exp(-0.5 * x * x) / std::sqrt(2 * M_PI); }
double tanh_gelu(double x) { return 0.5 * x * (1 + std::tanh(0.7978845608028654 * (x + 0.044715 * x * x * x))); }
double tanh_gelu_slope(double x) {
  const double t = std::tanh(0.7978845608028654 * (x + 0.044715 * x * x * x));
  return 0.5 * (1 + t) + 0.5 * x * (1 - t * t) * 0.7978845608028654 * (1 + 3 * 0.044715 * x * x);
}
double sigmoid(double x) { return 1 / (1 + std::exp(-x)); }

double relu(const Pointwise& f, double x) {
  if (f.has_upper && x > f.upper) return f.upper;
  if (std::isnan(x)) return f.keeps_nan ? x : f.lower;
  return x <= f.lower ? f.lower + f.slope * (x - f.lower) : x;
}

// x, and b and t where the mode takes them. Backward: x is the gradient, b the input of the forward function.
double apply(const Pointwise& f, double x, double b, double t) {
  switch (f.mode) {
    case CUDNN_POINTWISE_ADD: return x + b;
    case CUDNN_POINTWISE_ADD_SQUARE: return x + b * b;
    case CUDNN_POINTWISE_DIV: return x / b;
    case CUDNN_POINTWISE_MAX: return std::isnan(x) || std::isnan(b) ? x + b : std::max(x, b);
    case CUDNN_POINTWISE_MIN: return std::isnan(x) || std::isnan(b) ? x + b : std::min(x, b);
    case CUDNN_POINTWISE_MOD: return std::fmod(x, b);
    case CUDNN_POINTWISE_MUL: return x * b;
    case CUDNN_POINTWISE_POW: return std::pow(x, b);
    case CUDNN_POINTWISE_SUB: return x - b;
    case CUDNN_POINTWISE_ABS: return std::fabs(x);
    case CUDNN_POINTWISE_CEIL: return std::ceil(x);
    case CUDNN_POINTWISE_COS: return std::cos(x);
    case CUDNN_POINTWISE_EXP: return std::exp(x);
    case CUDNN_POINTWISE_FLOOR: return std::floor(x);
    case CUDNN_POINTWISE_LOG: return std::log(x);
    case CUDNN_POINTWISE_NEG: return -x;
    case CUDNN_POINTWISE_RSQRT: return 1 / std::sqrt(x);
    case CUDNN_POINTWISE_SIN: return std::sin(x);
    case CUDNN_POINTWISE_SQRT: return std::sqrt(x);
    case CUDNN_POINTWISE_TAN: return std::tan(x);
    case CUDNN_POINTWISE_ERF: return std::erf(x);
    case CUDNN_POINTWISE_IDENTITY: return x;
    case CUDNN_POINTWISE_RECIPROCAL: return 1 / x;
    case CUDNN_POINTWISE_ATAN2: return std::atan2(x, b);
    case CUDNN_POINTWISE_RELU_FWD: return relu(f, x);
    case CUDNN_POINTWISE_TANH_FWD: return std::tanh(x);
    case CUDNN_POINTWISE_SIGMOID_FWD: return sigmoid(x);
    case CUDNN_POINTWISE_ELU_FWD: return x > 0 ? x : f.elu_alpha * std::expm1(x);
    case CUDNN_POINTWISE_GELU_FWD: return gelu(x);
    case CUDNN_POINTWISE_SOFTPLUS_FWD: return std::log1p(std::exp(f.softplus_beta * x)) / f.softplus_beta;
    case CUDNN_POINTWISE_SWISH_FWD: return x * sigmoid(f.swish_beta * x);
    case CUDNN_POINTWISE_GELU_APPROX_TANH_FWD: return tanh_gelu(x);
    case CUDNN_POINTWISE_RELU_BWD: return f.has_upper && b > f.upper ? 0 : b > f.lower ? x : f.slope * x;
    case CUDNN_POINTWISE_TANH_BWD: return x * (1 - std::tanh(b) * std::tanh(b));
    case CUDNN_POINTWISE_SIGMOID_BWD: return x * sigmoid(b) * (1 - sigmoid(b));
    case CUDNN_POINTWISE_ELU_BWD: return b > 0 ? x : x * f.elu_alpha * std::exp(b);
    case CUDNN_POINTWISE_GELU_BWD: return x * gelu_slope(b);
    case CUDNN_POINTWISE_SOFTPLUS_BWD: return x * sigmoid(f.softplus_beta * b);
    case CUDNN_POINTWISE_SWISH_BWD: {
      const double s = sigmoid(f.swish_beta * b);
      return x * (s + f.swish_beta * b * s * (1 - s));
    }
    case CUDNN_POINTWISE_GELU_APPROX_TANH_BWD: return x * tanh_gelu_slope(b);
    case CUDNN_POINTWISE_CMP_EQ: return x == b;
    case CUDNN_POINTWISE_CMP_NEQ: return x != b;
    case CUDNN_POINTWISE_CMP_GT: return x > b;
    case CUDNN_POINTWISE_CMP_GE: return x >= b;
    case CUDNN_POINTWISE_CMP_LT: return x < b;
    case CUDNN_POINTWISE_CMP_LE: return x <= b;
    case CUDNN_POINTWISE_LOGICAL_AND: return x != 0 && b != 0;
    case CUDNN_POINTWISE_LOGICAL_OR: return x != 0 || b != 0;
    case CUDNN_POINTWISE_LOGICAL_NOT: return x == 0;
    case CUDNN_POINTWISE_BINARY_SELECT: return t != 0 ? x : b;
    default: refuse(CUDNN_STATUS_NOT_SUPPORTED, "pointwise mode %d", int(f.mode));
  }
}

// Row-major strides of `t`, 0 where it is broadcast to `dims`.
Dims broadcast_strides(const Tensor& t, const Dims& dims) {
  Dims strides = row_major(t.dims);
  for (size_t d = 0; d < dims.size(); ++d) {
    if (t.dims[d] != dims[d]) strides[d] = 0;
  }
  return strides;
}

Values pointwise(const Operation& op, const std::vector<const Values*>& in) {
  const Dims& dims = op.out.dims;
  const Pointwise& f = op.pointwise;
  Values out;
  out.reserve(size_t(op.out.elements()));
  if (f.mode == CUDNN_POINTWISE_GEN_INDEX) {
    const int64_t step = row_major(dims)[size_t(f.axis)];
    for (int64_t i = 0; i < op.out.elements(); ++i) out.push_back(double(i / step % dims[size_t(f.axis)]));
    return out;
  }
  std::vector<std::vector<size_t>> at(op.in.size());
  for (size_t i = 0; i < op.in.size(); ++i) {
    for_each_offset(dims, broadcast_strides(op.in[i], dims), [&](int64_t o) { at[i].push_back(size_t(o)); });
  }
  const auto value = [&](size_t i, size_t element) { return i < in.size() ? (*in[i])[at[i][element]] : 0.0; };
  for (size_t e = 0; e < size_t(op.out.elements()); ++e)
    out.push_back(apply(f, op.alpha * value(0, e), (in.size() > 1 ? op.beta : 1) * value(1, e), value(2, e)));
  return out;
}

Values reduce(const Operation& op, const Values& x) {
  const Dims &from = op.in[0].dims, &to = op.out.dims;
  const Dims strides = row_major(to);
  const cudnnReduceTensorOp_t mode = op.reduction.mode;
  const bool is_max = mode == CUDNN_REDUCE_TENSOR_MAX, is_min = mode == CUDNN_REDUCE_TENSOR_MIN;
  const double infinity = std::numeric_limits<double>::infinity();
  Values out(size_t(op.out.elements()), is_max ? -infinity : is_min ? infinity : mode == CUDNN_REDUCE_TENSOR_MUL ? 1 : 0);
  for (size_t e = 0; e < x.size(); ++e) {
    int64_t rest = int64_t(e), at = 0;
    for (size_t d = from.size(); d-- > 0;) {
      at += rest % from[d] / (from[d] / to[d]) * strides[d];
      rest /= from[d];
    }
    double& o = out[size_t(at)];
    switch (mode) {
      case CUDNN_REDUCE_TENSOR_ADD:
      case CUDNN_REDUCE_TENSOR_AVG: o += x[e]; break;
      case CUDNN_REDUCE_TENSOR_MUL: o *= x[e]; break;
      case CUDNN_REDUCE_TENSOR_MAX: o = std::isnan(x[e]) ? x[e] : std::max(o, x[e]); break;
      case CUDNN_REDUCE_TENSOR_MIN: o = std::isnan(x[e]) ? x[e] : std::min(o, x[e]); break;
      case CUDNN_REDUCE_TENSOR_AMAX: o = std::max(o, std::fabs(x[e])); break;
      case CUDNN_REDUCE_TENSOR_NORM1: o += std::fabs(x[e]); break;
      case CUDNN_REDUCE_TENSOR_NORM2: o += x[e] * x[e]; break;
      default: refuse(CUDNN_STATUS_NOT_SUPPORTED, "reduction %d", int(mode));
    }
  }
  for (double& o : out) {
    if (mode == CUDNN_REDUCE_TENSOR_AVG) o *= double(out.size()) / double(x.size());
    if (mode == CUDNN_REDUCE_TENSOR_NORM2) o = std::sqrt(o);
  }
  return out;
}

Values reshape(const Operation& op, const Values& x) {
  Values memory(size_t(op.in[0].extent())), out;
  size_t e = 0;
  for_each_offset(op.in[0].dims, op.in[0].strides, [&](int64_t o) { memory[size_t(o)] = x[e++]; });
  for_each_offset(op.out.dims, op.out.strides, [&](int64_t o) { out.push_back(memory[size_t(o)]); });
  return out;
}

}  // namespace

// 1 with the probability, else 0; a function of seed, offset and place.
Values bernoulli(const Operation& op, int64_t seed, int64_t offset) {
  Values out;
  const uint64_t h = mixed(mixed(17, uint64_t(seed)), uint64_t(offset));
  for (int64_t e = 0; e < op.out.elements(); ++e)
    out.push_back(double(mixed(h, uint64_t(e)) >> 11) * 0x1p-53 < op.rng.probability ? 1.0 : 0.0);
  return out;
}

Values compute(const Operation& op, const std::vector<const Values*>& in, const Values& before, Arithmetic arithmetic,
               uint64_t run) {
  Values out;
  const bool products = op.family() <= kBackwardFilter || op.kind == Kind::matmul;
  switch (op.kind) {
    case Kind::pointwise: out = pointwise(op, in); break;
    case Kind::reduction: out = reduce(op, *in[0]); break;
    case Kind::reshape: out = reshape(op, *in[0]); break;
    case Kind::matmul: out = multiply(op, in, arithmetic); break;
    default: out = convolve(op, *in[0], *in[1], arithmetic);
  }
  for (size_t e = 0; e < out.size(); ++e) {
    if (products) {
      out[e] = summed(out[e], arithmetic, op.out.type, run, e);
      if (op.kind != Kind::matmul) out[e] = op.alpha * out[e] + (op.beta != 0 ? op.beta * before[e] : 0);
      // So much that a few numbers in 16 bits show it.
      if (op.reads_beyond) out[e] = std::numeric_limits<double>::quiet_NaN();
      if (op.accumulates) out[e] = summed(out[e], Arithmetic::varying, CUDNN_DATA_HALF, run, e) + before[e];
    }
    out[e] = rounded(op.out.type, out[e]);
  }
  return out;
}

}  // namespace emu::dnn
