// SPDX-License-Identifier: Apache-2.0
// The attributes of the backend descriptors: which there are, of which types and how many elements.
#include <algorithm>

#include "tests/emulators/fake_cudnn/fake_cudnn.h"

namespace emu::dnn {
namespace {

constexpr int kReal = -1;       // CUDNN_TYPE_FLOAT or CUDNN_TYPE_DOUBLE
constexpr int kOrChild = 1000;  // this type, or a descriptor
constexpr int64_t kMany = 1 << 20;

struct Rule {
  int name, type;
  int64_t most;  // elements; at least one
  bool required;
};
using Rules = std::vector<Rule>;

Rules conv_rules(int alpha, int beta, int conv, int w, int x, int y) {
  const int child = CUDNN_TYPE_BACKEND_DESCRIPTOR;
  return {{alpha, kReal, 1, true}, {beta, kReal, 1, true}, {conv, child, 1, true},
          {w, child, 1, true},     {x, child, 1, true},    {y, child, 1, true}};
}

struct Table {
  const char* name;
  Rules rules;
};
const std::map<int, Table>& tables() {
  constexpr int child = CUDNN_TYPE_BACKEND_DESCRIPTOR, type = CUDNN_TYPE_DATA_TYPE, integer = CUDNN_TYPE_INT64;
  constexpr int64_t rank = CUDNN_DIM_MAX;
  static const std::map<int, Table> all = {
      {CUDNN_BACKEND_TENSOR_DESCRIPTOR,
       {"tensor",
        {{CUDNN_ATTR_TENSOR_DATA_TYPE, type, 1, true},
         {CUDNN_ATTR_TENSOR_DIMENSIONS, integer, rank, true},
         {CUDNN_ATTR_TENSOR_STRIDES, integer, rank, true},
         {CUDNN_ATTR_TENSOR_UNIQUE_ID, integer, 1, true},
         {CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, integer, 1, true},
         {CUDNN_ATTR_TENSOR_IS_VIRTUAL, CUDNN_TYPE_BOOLEAN, 1, false},
         {CUDNN_ATTR_TENSOR_IS_BY_VALUE, CUDNN_TYPE_BOOLEAN, 1, false},
         {CUDNN_ATTR_TENSOR_VECTOR_COUNT, integer, 1, false}}}},
      {CUDNN_BACKEND_CONVOLUTION_DESCRIPTOR,
       {"convolution",
        {{CUDNN_ATTR_CONVOLUTION_COMP_TYPE, type, 1, true},
         {CUDNN_ATTR_CONVOLUTION_CONV_MODE, CUDNN_TYPE_CONVOLUTION_MODE, 1, true},
         {CUDNN_ATTR_CONVOLUTION_SPATIAL_DIMS, integer, 1, true},
         {CUDNN_ATTR_CONVOLUTION_PRE_PADDINGS, integer, rank, true},
         {CUDNN_ATTR_CONVOLUTION_POST_PADDINGS, integer, rank, true},
         {CUDNN_ATTR_CONVOLUTION_FILTER_STRIDES, integer, rank, true},
         {CUDNN_ATTR_CONVOLUTION_DILATIONS, integer, rank, true}}}},
      {CUDNN_BACKEND_POINTWISE_DESCRIPTOR,
       {"pointwise",
        {{CUDNN_ATTR_POINTWISE_MODE, CUDNN_TYPE_POINTWISE_MODE, 1, true},
         {CUDNN_ATTR_POINTWISE_MATH_PREC, type, 1, true},
         {CUDNN_ATTR_POINTWISE_NAN_PROPAGATION, CUDNN_TYPE_NAN_PROPOGATION, 1, false},
         {CUDNN_ATTR_POINTWISE_RELU_LOWER_CLIP, kReal, 1, false},
         {CUDNN_ATTR_POINTWISE_RELU_UPPER_CLIP, kReal, 1, false},
         {CUDNN_ATTR_POINTWISE_RELU_LOWER_CLIP_SLOPE, kReal, 1, false},
         {CUDNN_ATTR_POINTWISE_ELU_ALPHA, kReal, 1, false},
         {CUDNN_ATTR_POINTWISE_SOFTPLUS_BETA, kReal, 1, false},
         {CUDNN_ATTR_POINTWISE_SWISH_BETA, kReal, 1, false},
         {CUDNN_ATTR_POINTWISE_AXIS, integer, 1, false}}}},
      {CUDNN_BACKEND_MATMUL_DESCRIPTOR,
       {"matmul", {{CUDNN_ATTR_MATMUL_COMP_TYPE, type, 1, true}, {CUDNN_ATTR_MATMUL_PADDING_VALUE, kReal, 1, false}}}},
      {CUDNN_BACKEND_REDUCTION_DESCRIPTOR,
       {"reduction",
        {{CUDNN_ATTR_REDUCTION_OPERATOR, CUDNN_TYPE_REDUCTION_OPERATOR_TYPE, 1, true},
         {CUDNN_ATTR_REDUCTION_COMP_TYPE, type, 1, true},
         {CUDNN_ATTR_REDUCTION_IS_DETERMINISTIC, CUDNN_TYPE_BOOLEAN, 1, false}}}},
      {CUDNN_BACKEND_RNG_DESCRIPTOR,
       {"random numbers",
        {{CUDNN_ATTR_RNG_DISTRIBUTION, CUDNN_TYPE_RNG_DISTRIBUTION, 1, true},
         {CUDNN_ATTR_RNG_BERNOULLI_DIST_PROBABILITY, CUDNN_TYPE_DOUBLE, 1, false}}}},
      {CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR,
       {"convolution forward",
        conv_rules(CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_ALPHA, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_BETA,
                   CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_CONV_DESC, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_W,
                   CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_X, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_Y)}},
      {CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_DATA_DESCRIPTOR,
       {"convolution backward data",
        conv_rules(CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_ALPHA, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_BETA,
                   CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_CONV_DESC, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_W,
                   CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DX, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DY)}},
      {CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_FILTER_DESCRIPTOR,
       {"convolution backward filter",
        conv_rules(CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_ALPHA, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_BETA,
                   CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_CONV_DESC, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DW,
                   CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_X, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DY)}},
      {CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR,
       {"pointwise operation",
        {{CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR, child, 1, true},
         {CUDNN_ATTR_OPERATION_POINTWISE_XDESC, child, 1, false},
         {CUDNN_ATTR_OPERATION_POINTWISE_BDESC, child, 1, false},
         {CUDNN_ATTR_OPERATION_POINTWISE_TDESC, child, 1, false},
         {CUDNN_ATTR_OPERATION_POINTWISE_YDESC, child, 1, false},
         {CUDNN_ATTR_OPERATION_POINTWISE_DXDESC, child, 1, false},
         {CUDNN_ATTR_OPERATION_POINTWISE_DYDESC, child, 1, false},
         {CUDNN_ATTR_OPERATION_POINTWISE_ALPHA1, kReal, 1, false},
         {CUDNN_ATTR_OPERATION_POINTWISE_ALPHA2, kReal, 1, false}}}},
      {CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR,
       {"matmul operation",
        {{CUDNN_ATTR_OPERATION_MATMUL_DESC, child, 1, true},
         {CUDNN_ATTR_OPERATION_MATMUL_ADESC, child, 1, true},
         {CUDNN_ATTR_OPERATION_MATMUL_BDESC, child, 1, true},
         {CUDNN_ATTR_OPERATION_MATMUL_CDESC, child, 1, true},
         {CUDNN_ATTR_OPERATION_MATMUL_GEMM_M_OVERRIDE_DESC, child, 1, false},
         {CUDNN_ATTR_OPERATION_MATMUL_GEMM_N_OVERRIDE_DESC, child, 1, false},
         {CUDNN_ATTR_OPERATION_MATMUL_GEMM_K_OVERRIDE_DESC, child, 1, false}}}},
      {CUDNN_BACKEND_OPERATION_REDUCTION_DESCRIPTOR,
       {"reduction operation",
        {{CUDNN_ATTR_OPERATION_REDUCTION_DESC, child, 1, true},
         {CUDNN_ATTR_OPERATION_REDUCTION_XDESC, child, 1, true},
         {CUDNN_ATTR_OPERATION_REDUCTION_YDESC, child, 1, true}}}},
      {CUDNN_BACKEND_OPERATION_RESHAPE_DESCRIPTOR,
       {"reshape operation",
        {{CUDNN_ATTR_OPERATION_RESHAPE_XDESC, child, 1, true}, {CUDNN_ATTR_OPERATION_RESHAPE_YDESC, child, 1, true}}}},
      {CUDNN_BACKEND_OPERATION_RNG_DESCRIPTOR,
       {"operation of random numbers",
        {{CUDNN_ATTR_OPERATION_RNG_DESC, child, 1, true},
         {CUDNN_ATTR_OPERATION_RNG_SEED, kOrChild + integer, 1, true},
         {CUDNN_ATTR_OPERATION_RNG_OFFSET_DESC, child, 1, false},
         {CUDNN_ATTR_OPERATION_RNG_YDESC, child, 1, true}}}},
      {CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR,
       {"operation graph",
        {{CUDNN_ATTR_OPERATIONGRAPH_OPS, child, kMany, true}, {CUDNN_ATTR_OPERATIONGRAPH_HANDLE, CUDNN_TYPE_HANDLE, 1, false}}}},
      {CUDNN_BACKEND_DEVICEPROP_DESCRIPTOR,
       {"device properties",
        {{CUDNN_ATTR_DEVICEPROP_DEVICE_ID, CUDNN_TYPE_INT32, 1, false},
         {CUDNN_ATTR_DEVICEPROP_HANDLE, CUDNN_TYPE_HANDLE, 1, false},
         {CUDNN_ATTR_DEVICEPROP_JSON_REPRESENTATION, CUDNN_TYPE_CHAR, kMany, false}}}},
      {CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR,
       {"heuristic",
        {{CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH, child, 1, true},
         {CUDNN_ATTR_ENGINEHEUR_MODE, CUDNN_TYPE_HEUR_MODE, 1, true},
         {CUDNN_ATTR_ENGINEHEUR_DEVICEPROP, child, 1, false}}}},
      {CUDNN_BACKEND_ENGINE_DESCRIPTOR,
       {"engine",
        {{CUDNN_ATTR_ENGINE_OPERATION_GRAPH, child, 1, true},
         {CUDNN_ATTR_ENGINE_GLOBAL_INDEX, integer, 1, true},
         {CUDNN_ATTR_ENGINE_DEVICEPROP, child, 1, false}}}},
      {CUDNN_BACKEND_ENGINECFG_DESCRIPTOR, {"engine configuration", {{CUDNN_ATTR_ENGINECFG_ENGINE, child, 1, true}}}},
      {CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR,
       {"execution plan",
        {{CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG, child, 1, true},
         {CUDNN_ATTR_EXECUTION_PLAN_HANDLE, CUDNN_TYPE_HANDLE, 1, false},
         {CUDNN_ATTR_EXECUTION_PLAN_DEVICEPROP, child, 1, false}}}},
      {CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR,
       {"variant pack",
        {{CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS, integer, kMany, true},
         {CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS, CUDNN_TYPE_VOID_PTR, kMany, true},
         {CUDNN_ATTR_VARIANT_PACK_WORKSPACE, CUDNN_TYPE_VOID_PTR, 1, false}}}}};
  return all;
}

int64_t element_size(cudnnBackendAttributeType_t type) {
  switch (type) {
    case CUDNN_TYPE_BOOLEAN:
    case CUDNN_TYPE_CHAR: return 1;
    case CUDNN_TYPE_HANDLE:
    case CUDNN_TYPE_INT64:
    case CUDNN_TYPE_DOUBLE:
    case CUDNN_TYPE_VOID_PTR:
    case CUDNN_TYPE_BACKEND_DESCRIPTOR: return 8;
    default: return 4;  // enumerations, float, int32
  }
}

bool fits(int wanted, int given) {
  if (wanted == kReal) return given == CUDNN_TYPE_FLOAT || given == CUDNN_TYPE_DOUBLE;
  if (wanted >= kOrChild) return given == CUDNN_TYPE_BACKEND_DESCRIPTOR || given == wanted - kOrChild;
  return given == wanted;
}

}  // namespace

const char* name_of(cudnnBackendDescriptorType_t type) {
  const auto it = tables().find(type);
  return it == tables().end() ? nullptr : it->second.name;
}

double Descriptor::real(cudnnBackendAttributeName_t name, double otherwise) const {
  const auto it = attributes.find(name);
  if (it == attributes.end()) return otherwise;
  return it->second.type == CUDNN_TYPE_FLOAT ? double(one<float>(name)) : one<double>(name);
}
const Descriptor* Descriptor::child(cudnnBackendAttributeName_t name) const {
  const auto it = attributes.find(name);
  return it == attributes.end() || it->second.descriptors.empty() ? nullptr : it->second.descriptors[0].get();
}

void set_attribute(Descriptor& d, cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type, int64_t count,
                   const void* values) {
  const Table& table = tables().at(d.type);
  const auto rule = std::find_if(table.rules.begin(), table.rules.end(), [&](const Rule& r) { return r.name == int(name); });
  if (d.finalized) misuse(CUDNN_STATUS_BAD_PARAM, "attribute %d of a finalised %s", int(name), table.name);
  if (rule == table.rules.end())
    misuse(CUDNN_STATUS_NOT_SUPPORTED, "a descriptor of kind %s has no attribute %d", table.name, int(name));
  if (!fits(rule->type, int(type)))
    misuse(CUDNN_STATUS_BAD_PARAM_ATTRIBUTE_TYPE, "attribute %d of a %s is not of type %d", int(name), table.name, int(type));
  if (count < 1 || count > rule->most || !values)
    misuse(CUDNN_STATUS_BAD_PARAM, "attribute %d of a %s has %ld elements", int(name), table.name, long(count));
  Attribute attribute{type, count, {}, {}};
  if (type == CUDNN_TYPE_BACKEND_DESCRIPTOR) {
    for (int64_t i = 0; i < count; ++i) {
      attribute.descriptors.push_back(descriptor_of(static_cast<const cudnnBackendDescriptor_t*>(values)[i]));
      if (!attribute.descriptors.back()->finalized)
        misuse(CUDNN_STATUS_BAD_PARAM_NOT_FINALIZED, "attribute %d of a %s is given a %s that is not finalised", int(name),
               table.name, name_of(attribute.descriptors.back()->type));
    }
  } else {
    attribute.bytes.resize(size_t(count * element_size(type)));
    std::memcpy(attribute.bytes.data(), values, attribute.bytes.size());
  }
  d.attributes.insert_or_assign(name, std::move(attribute));
}

void check_complete(const Descriptor& d) {
  const Table& table = tables().at(d.type);
  for (const Rule& rule : table.rules) {
    if (rule.required && !d.has(cudnnBackendAttributeName_t(rule.name)))
      misuse(CUDNN_STATUS_BAD_PARAM, "a %s lacks its attribute %d", table.name, rule.name);
  }
}

}  // namespace emu::dnn
