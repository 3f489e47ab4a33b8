// SPDX-License-Identifier: Apache-2.0
// The meaning of a complete descriptor: a tensor, or an operation whose tensors fit each other.
#include <algorithm>
#include <bit>

#include "tests/emulators/fake_cudnn/fake_cudnn.h"

namespace emu::dnn {
namespace {

using Name = cudnnBackendAttributeName_t;

const Descriptor& child_of_type(const Descriptor& d, Name name, cudnnBackendDescriptorType_t type) {
  const Descriptor* child = d.child(name);
  if (!child || child->type != type)
    misuse(CUDNN_STATUS_BAD_PARAM_DESCRIPTOR_TYPE, "attribute %d of a %s is no %s", int(name), name_of(d.type), name_of(type));
  return *child;
}
const Tensor& tensor_of(const Descriptor& d, Name name) { return *child_of_type(d, name, CUDNN_BACKEND_TENSOR_DESCRIPTOR).tensor; }

// Sizes along one dimension that broadcast: equal or 1.
bool broadcasts(const Tensor& t, const Tensor& to) {
  if (t.rank() != to.rank()) return false;
  for (size_t d = 0; d < t.rank(); ++d) {
    if (t.dims[d] != to.dims[d] && t.dims[d] != 1) return false;
  }
  return true;
}
bool is_float(cudnnDataType_t t) {
  return t == CUDNN_DATA_FLOAT || t == CUDNN_DATA_HALF || t == CUDNN_DATA_BFLOAT16 || t == CUDNN_DATA_DOUBLE;
}

[[noreturn]] void shapes_differ(const char* what, const Tensor& a, const Tensor& b) {
  misuse(CUDNN_STATUS_BAD_PARAM_SHAPE_MISMATCH, "%s: the shapes do not fit: %s and %s", what, a.text().c_str(), b.text().c_str());
}

Convolution read_convolution(const Descriptor& d) {
  Convolution c;
  c.compute = d.one<cudnnDataType_t>(CUDNN_ATTR_CONVOLUTION_COMP_TYPE);
  c.flipped = d.one<cudnnConvolutionMode_t>(CUDNN_ATTR_CONVOLUTION_CONV_MODE) == CUDNN_CONVOLUTION;
  c.before = d.all<int64_t>(CUDNN_ATTR_CONVOLUTION_PRE_PADDINGS);
  c.after = d.all<int64_t>(CUDNN_ATTR_CONVOLUTION_POST_PADDINGS);
  c.stride = d.all<int64_t>(CUDNN_ATTR_CONVOLUTION_FILTER_STRIDES);
  c.dilation = d.all<int64_t>(CUDNN_ATTR_CONVOLUTION_DILATIONS);
  const size_t n = size_t(d.one<int64_t>(CUDNN_ATTR_CONVOLUTION_SPATIAL_DIMS));
  for (const Dims* v : {&c.before, &c.after, &c.stride, &c.dilation}) {
    if (v->size() != n) misuse(CUDNN_STATUS_BAD_PARAM, "a convolution over %zu dimensions has %zu of one parameter", n, v->size());
  }
  for (size_t i = 0; i < n; ++i) {
    if (c.before[i] < 0 || c.after[i] < 0 || c.stride[i] < 1 || c.dilation[i] < 1)
      misuse(CUDNN_STATUS_BAD_PARAM, "a convolution has a negative padding, or a stride or dilation below 1");
  }
  return c;
}

Pointwise read_pointwise(const Descriptor& d) {
  Pointwise p;
  p.mode = d.one<cudnnPointwiseMode_t>(CUDNN_ATTR_POINTWISE_MODE);
  p.compute = d.one<cudnnDataType_t>(CUDNN_ATTR_POINTWISE_MATH_PREC);
  p.has_lower = d.has(CUDNN_ATTR_POINTWISE_RELU_LOWER_CLIP);
  p.has_upper = d.has(CUDNN_ATTR_POINTWISE_RELU_UPPER_CLIP);
  p.lower = d.real(CUDNN_ATTR_POINTWISE_RELU_LOWER_CLIP, 0);
  p.upper = d.real(CUDNN_ATTR_POINTWISE_RELU_UPPER_CLIP, 0);
  p.slope = d.real(CUDNN_ATTR_POINTWISE_RELU_LOWER_CLIP_SLOPE, 0);
  p.keeps_nan = d.one<cudnnNanPropagation_t>(CUDNN_ATTR_POINTWISE_NAN_PROPAGATION, CUDNN_NOT_PROPAGATE_NAN) == CUDNN_PROPAGATE_NAN;
  p.elu_alpha = d.real(CUDNN_ATTR_POINTWISE_ELU_ALPHA, 1);
  p.softplus_beta = d.real(CUDNN_ATTR_POINTWISE_SOFTPLUS_BETA, 1);
  p.swish_beta = d.real(CUDNN_ATTR_POINTWISE_SWISH_BETA, 1);
  p.axis = d.one<int64_t>(CUDNN_ATTR_POINTWISE_AXIS, -1);
  if (p.mode == CUDNN_POINTWISE_GEN_INDEX && p.axis < 0) misuse(CUDNN_STATUS_BAD_PARAM, "indices are generated along no axis");
  return p;
}

void check_convolution(const Operation& op, const Tensor& x, const Tensor& w, const Tensor& y) {
  const Convolution& c = op.conv;
  const size_t spatial = c.stride.size();
  if (x.rank() != spatial + 2 || w.rank() != spatial + 2 || y.rank() != spatial + 2)
    misuse(CUDNN_STATUS_BAD_PARAM_SHAPE_MISMATCH, "a convolution over %zu dimensions of %s", spatial, x.text().c_str());
  if (x.dims[0] != y.dims[0]) shapes_differ("convolution", x, y);
  if (w.dims[0] != y.dims[1]) shapes_differ("convolution", w, y);
  if (x.dims[1] % w.dims[1] || w.dims[0] % (x.dims[1] / w.dims[1])) shapes_differ("groups of a convolution", x, w);
  for (size_t i = 0; i < spatial; ++i) {
    const int64_t span = c.dilation[i] * (w.dims[i + 2] - 1) + 1, room = x.dims[i + 2] + c.before[i] + c.after[i] - span;
    if (room < 0 || room / c.stride[i] + 1 != y.dims[i + 2]) shapes_differ("windows of a convolution", x, y);
  }
  // The two that are read are of one type; the result may be virtual and then is of what it is computed in.
  if (op.in[0].type != op.in[1].type && !op.in[0].is_virtual && !op.in[1].is_virtual)
    misuse(CUDNN_STATUS_BAD_PARAM, "a convolution of two types: %s and %s", op.in[0].text().c_str(), op.in[1].text().c_str());
  for (const Tensor* t : {&x, &w, &y}) {
    if (!is_float(t->type)) refuse(CUDNN_STATUS_NOT_SUPPORTED_DATA_TYPE, "convolution of %s", t->text().c_str());
  }
}

std::shared_ptr<const Operation> convolution(const Descriptor& d, Kind kind, const Name (&names)[6]) {
  const auto [conv, x, w, y, alpha, beta] = names;
  Operation op;
  op.kind = kind;
  op.conv = child_of_type(d, conv, CUDNN_BACKEND_CONVOLUTION_DESCRIPTOR).operation->conv;
  op.alpha = d.real(alpha, 1);
  op.beta = d.real(beta, 0);
  const Tensor &tx = tensor_of(d, x), &tw = tensor_of(d, w), &ty = tensor_of(d, y);
  if (kind == Kind::conv_forward) {
    op.in = {tx, tw};
    op.out = ty;
  } else if (kind == Kind::conv_backward_data) {
    op.in = {ty, tw};
    op.out = tx;
  } else {
    op.in = {tx, ty};
    op.out = tw;
  }
  check_convolution(op, tx, tw, ty);
  if (op.beta != 0 && op.out.is_virtual)
    misuse(CUDNN_STATUS_BAD_PARAM, "a convolution adds to the virtual %s", op.out.text().c_str());
  return std::make_shared<const Operation>(std::move(op));
}

bool is_backward(cudnnPointwiseMode_t mode) {
  return mode >= CUDNN_POINTWISE_RELU_BWD && mode <= CUDNN_POINTWISE_GELU_APPROX_TANH_BWD;
}
size_t inputs_of(cudnnPointwiseMode_t mode) {
  if (mode == CUDNN_POINTWISE_BINARY_SELECT) return 3;
  if (is_backward(mode)) return 2;
  if (mode <= CUDNN_POINTWISE_MIN || mode == CUDNN_POINTWISE_MAX ||
      (mode >= CUDNN_POINTWISE_ADD_SQUARE && mode <= CUDNN_POINTWISE_SUB) || mode == CUDNN_POINTWISE_ATAN2 ||
      (mode >= CUDNN_POINTWISE_CMP_EQ && mode <= CUDNN_POINTWISE_LOGICAL_OR))
    return 2;
  return 1;
}

std::shared_ptr<const Operation> pointwise(const Descriptor& d) {
  Operation op;
  op.kind = Kind::pointwise;
  op.pointwise =
      child_of_type(d, CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR, CUDNN_BACKEND_POINTWISE_DESCRIPTOR).operation->pointwise;
  op.alpha = d.real(CUDNN_ATTR_OPERATION_POINTWISE_ALPHA1, 1);
  op.beta = d.real(CUDNN_ATTR_OPERATION_POINTWISE_ALPHA2, 1);
  const cudnnPointwiseMode_t mode = op.pointwise.mode;
  const size_t inputs = inputs_of(mode);
  const bool backward = is_backward(mode);
  if (backward) {
    op.in = {tensor_of(d, CUDNN_ATTR_OPERATION_POINTWISE_DYDESC), tensor_of(d, CUDNN_ATTR_OPERATION_POINTWISE_XDESC)};
  } else {
    op.in = {tensor_of(d, CUDNN_ATTR_OPERATION_POINTWISE_XDESC)};
    if (inputs > 1) op.in.push_back(tensor_of(d, CUDNN_ATTR_OPERATION_POINTWISE_BDESC));
    if (inputs > 2) op.in.push_back(tensor_of(d, CUDNN_ATTR_OPERATION_POINTWISE_TDESC));
    if (inputs < 2 && d.has(CUDNN_ATTR_OPERATION_POINTWISE_BDESC))
      misuse(CUDNN_STATUS_BAD_PARAM, "pointwise mode %d takes one tensor and was given two", int(mode));
  }
  op.out = tensor_of(d, backward ? CUDNN_ATTR_OPERATION_POINTWISE_DXDESC : CUDNN_ATTR_OPERATION_POINTWISE_YDESC);
  for (const Tensor& t : op.in) {
    if (!broadcasts(t, op.out)) shapes_differ("pointwise operation", t, op.out);
  }
  if (inputs == 3 && op.in[2].type != CUDNN_DATA_BOOLEAN)
    misuse(CUDNN_STATUS_BAD_PARAM, "a selection by %s, which is not boolean", op.in[2].text().c_str());
  if (op.pointwise.axis >= int64_t(op.out.rank())) misuse(CUDNN_STATUS_BAD_PARAM, "an axis beyond the rank");
  return std::make_shared<const Operation>(std::move(op));
}

// Either size divides the other's: heads that share keys and values.
bool groups(int64_t few, int64_t many) { return few > 0 && many % few == 0; }

std::shared_ptr<const Operation> matmul(const Descriptor& d) {
  Operation op;
  op.kind = Kind::matmul;
  child_of_type(d, CUDNN_ATTR_OPERATION_MATMUL_DESC, CUDNN_BACKEND_MATMUL_DESCRIPTOR);
  op.in = {tensor_of(d, CUDNN_ATTR_OPERATION_MATMUL_ADESC), tensor_of(d, CUDNN_ATTR_OPERATION_MATMUL_BDESC)};
  op.out = tensor_of(d, CUDNN_ATTR_OPERATION_MATMUL_CDESC);
  const Tensor a = op.in[0], b = op.in[1], c = op.out;
  const size_t n = c.rank();
  if (n < 2 || a.rank() != n || b.rank() != n) shapes_differ("matmul", a, b);
  if (a.dims[n - 1] != b.dims[n - 2]) shapes_differ("matmul", a, b);
  if (a.dims[n - 2] != c.dims[n - 2]) shapes_differ("matmul", a, c);
  if (b.dims[n - 1] != c.dims[n - 1]) shapes_differ("matmul", b, c);
  for (size_t i = 0; i + 2 < n; ++i) {
    if (!groups(a.dims[i], c.dims[i])) shapes_differ("batches of a matmul", a, c);
    if (!groups(b.dims[i], c.dims[i])) shapes_differ("batches of a matmul", b, c);
  }
  if (!a.is_virtual && !b.is_virtual && a.type != b.type) misuse(CUDNN_STATUS_BAD_PARAM, "a matmul of two types");
  const Name names[] = {CUDNN_ATTR_OPERATION_MATMUL_GEMM_M_OVERRIDE_DESC, CUDNN_ATTR_OPERATION_MATMUL_GEMM_N_OVERRIDE_DESC,
                        CUDNN_ATTR_OPERATION_MATMUL_GEMM_K_OVERRIDE_DESC};
  for (size_t i = 0; i < 3; ++i) {
    if (!d.has(names[i])) continue;
    const Tensor extent = tensor_of(d, names[i]);
    if (extent.type != CUDNN_DATA_INT32 || extent.rank() != n || extent.dims[0] != c.dims[0] || extent.elements() != c.dims[0])
      misuse(CUDNN_STATUS_BAD_PARAM, "a matmul's extent is an int32 for each sample, not %s", extent.text().c_str());
    op.extents[i] = op.in.size();
    op.in.push_back(extent);
  }
  return std::make_shared<const Operation>(std::move(op));
}

std::shared_ptr<const Operation> reduction(const Descriptor& d) {
  Operation op;
  op.kind = Kind::reduction;
  op.reduction = child_of_type(d, CUDNN_ATTR_OPERATION_REDUCTION_DESC, CUDNN_BACKEND_REDUCTION_DESCRIPTOR).operation->reduction;
  op.in = {tensor_of(d, CUDNN_ATTR_OPERATION_REDUCTION_XDESC)};
  op.out = tensor_of(d, CUDNN_ATTR_OPERATION_REDUCTION_YDESC);
  if (op.in[0].rank() != op.out.rank()) shapes_differ("reduction", op.in[0], op.out);
  for (size_t i = 0; i < op.out.rank(); ++i) {
    if (!groups(op.out.dims[i], op.in[0].dims[i])) shapes_differ("reduction", op.in[0], op.out);
  }
  return std::make_shared<const Operation>(std::move(op));
}

// Where the elements lie, as few dimensions as say it: pairs of stride and size.
std::vector<std::pair<int64_t, int64_t>> places(const Tensor& t) {
  std::vector<std::pair<int64_t, int64_t>> all, merged;
  for (size_t d = 0; d < t.rank(); ++d) {
    if (t.dims[d] > 1) all.emplace_back(t.strides[d], t.dims[d]);
  }
  std::sort(all.begin(), all.end());
  for (const auto& [stride, size] : all) {
    if (!merged.empty() && stride == merged.back().first * merged.back().second)
      merged.back().second *= size;
    else
      merged.emplace_back(stride, size);
  }
  return merged;
}

// The same elements at the same places, under other dims and strides.
std::shared_ptr<const Operation> reshape(const Descriptor& d) {
  Operation op;
  op.kind = Kind::reshape;
  op.in = {tensor_of(d, CUDNN_ATTR_OPERATION_RESHAPE_XDESC)};
  op.out = tensor_of(d, CUDNN_ATTR_OPERATION_RESHAPE_YDESC);
  if (places(op.in[0]) != places(op.out)) shapes_differ("reshape", op.in[0], op.out);
  return std::make_shared<const Operation>(std::move(op));
}

std::shared_ptr<const Operation> random(const Descriptor& d) {
  Operation op;
  op.kind = Kind::rng;
  op.rng = child_of_type(d, CUDNN_ATTR_OPERATION_RNG_DESC, CUDNN_BACKEND_RNG_DESCRIPTOR).operation->rng;
  op.out = tensor_of(d, CUDNN_ATTR_OPERATION_RNG_YDESC);
  if (d.child(CUDNN_ATTR_OPERATION_RNG_SEED)) {
    op.in = {tensor_of(d, CUDNN_ATTR_OPERATION_RNG_SEED)};
    op.in.push_back(tensor_of(d, CUDNN_ATTR_OPERATION_RNG_OFFSET_DESC));
    for (const Tensor& t : op.in) {
      if (t.elements() != 1 || (t.type != CUDNN_DATA_INT64 && t.type != CUDNN_DATA_INT32))
        misuse(CUDNN_STATUS_BAD_PARAM, "seed and offset are one integer each, not %s", t.text().c_str());
    }
  } else {
    op.seed = d.one<int64_t>(CUDNN_ATTR_OPERATION_RNG_SEED);
  }
  return std::make_shared<const Operation>(std::move(op));
}

// Of the descriptors that say how an operation computes, without its tensors.
std::shared_ptr<const Operation> parameters(const Descriptor& d) {
  Operation op;
  switch (d.type) {
    case CUDNN_BACKEND_CONVOLUTION_DESCRIPTOR: op.conv = read_convolution(d); break;
    case CUDNN_BACKEND_POINTWISE_DESCRIPTOR: op.pointwise = read_pointwise(d); break;
    case CUDNN_BACKEND_REDUCTION_DESCRIPTOR:
      op.reduction = {d.one<cudnnReduceTensorOp_t>(CUDNN_ATTR_REDUCTION_OPERATOR),
                      d.one<cudnnDataType_t>(CUDNN_ATTR_REDUCTION_COMP_TYPE)};
      break;
    case CUDNN_BACKEND_RNG_DESCRIPTOR:
      op.rng = {d.one<cudnnRngDistribution_t>(CUDNN_ATTR_RNG_DISTRIBUTION),
                d.one<double>(CUDNN_ATTR_RNG_BERNOULLI_DIST_PROBABILITY, 0.5)};
      if (op.rng.distribution != CUDNN_RNG_DISTRIBUTION_BERNOULLI)
        refuse(CUDNN_STATUS_NOT_SUPPORTED, "random numbers other than of Bernoulli's distribution");
      if (!(op.rng.probability >= 0 && op.rng.probability <= 1)) misuse(CUDNN_STATUS_BAD_PARAM, "a probability outside [0, 1]");
      break;
    default: break;
  }
  return std::make_shared<const Operation>(std::move(op));
}

}  // namespace

std::shared_ptr<const Tensor> make_tensor(const Descriptor& d) {
  Tensor t;
  t.uid = d.one<int64_t>(CUDNN_ATTR_TENSOR_UNIQUE_ID);
  t.type = d.one<cudnnDataType_t>(CUDNN_ATTR_TENSOR_DATA_TYPE);
  t.dims = d.all<int64_t>(CUDNN_ATTR_TENSOR_DIMENSIONS);
  t.strides = d.all<int64_t>(CUDNN_ATTR_TENSOR_STRIDES);
  t.alignment = d.one<int64_t>(CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT);
  t.is_virtual = d.one<bool>(CUDNN_ATTR_TENSOR_IS_VIRTUAL, false);
  t.by_value = d.one<bool>(CUDNN_ATTR_TENSOR_IS_BY_VALUE, false);
  const char* broken = nullptr;
  if (t.strides.size() != t.dims.size()) broken = "has as many strides as dimensions";
  for (int64_t n : t.dims) {
    if (n < 1) broken = "has dimensions of at least 1";
  }
  for (int64_t n : t.strides) {
    if (n < 0) broken = "has no negative strides";
  }
  if (!std::has_single_bit(uint64_t(t.alignment)) || t.alignment < size_of(t.type) || t.alignment % size_of(t.type))
    broken = "is aligned to a power of two of at least an element";
  if (t.is_virtual && t.by_value) broken = "is virtual or given by value, not both";
  if (!broken && t.by_value && t.elements() != 1) broken = "given by value has one element";
  if (broken) misuse(CUDNN_STATUS_BAD_PARAM, "a tensor %s: %s, alignment %ld", broken, t.text().c_str(), long(t.alignment));
  return std::make_shared<const Tensor>(std::move(t));
}

std::shared_ptr<const Operation> make_operation(const Descriptor& d) {
  switch (d.type) {
    case CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR:
      return convolution(d, Kind::conv_forward,
                         {CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_CONV_DESC, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_X,
                          CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_W, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_Y,
                          CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_ALPHA, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_BETA});
    case CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_DATA_DESCRIPTOR:
      return convolution(d, Kind::conv_backward_data,
                         {CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_CONV_DESC, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DX,
                          CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_W, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DY,
                          CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_ALPHA, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_BETA});
    case CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_FILTER_DESCRIPTOR:
      return convolution(d, Kind::conv_backward_filter,
                         {CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_CONV_DESC, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_X,
                          CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DW, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DY,
                          CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_ALPHA, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_BETA});
    case CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR: return pointwise(d);
    case CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR: return matmul(d);
    case CUDNN_BACKEND_OPERATION_REDUCTION_DESCRIPTOR: return reduction(d);
    case CUDNN_BACKEND_OPERATION_RESHAPE_DESCRIPTOR: return reshape(d);
    case CUDNN_BACKEND_OPERATION_RNG_DESCRIPTOR: return random(d);
    default: return parameters(d);
  }
}

}  // namespace emu::dnn
