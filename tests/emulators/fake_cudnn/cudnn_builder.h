// SPDX-License-Identifier: Apache-2.0
// Builds and runs graphs of cuDNN's backend API concisely, for tests that call the fake library.
#pragma once

#include <algorithm>
#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "cuda/dnn/cudnn.h"
#include "tests/cuda/kernels/device.h"

namespace halfstep::testing {

using Numbers = std::vector<int64_t>;

inline void ok(cudnnStatus_t status) {
  char text[512] = {0};
  if (status != CUDNN_STATUS_SUCCESS) cudnnGetLastErrorString(text, sizeof text);
  REQUIRE_MESSAGE(status == CUDNN_STATUS_SUCCESS, int(status), " ", text);
}

template <class T>
constexpr cudnnBackendAttributeType_t attribute_type() {
  if constexpr (std::is_same_v<T, int64_t>)
    return CUDNN_TYPE_INT64;
  else if constexpr (std::is_same_v<T, float>)
    return CUDNN_TYPE_FLOAT;
  else if constexpr (std::is_same_v<T, double>)
    return CUDNN_TYPE_DOUBLE;
  else if constexpr (std::is_same_v<T, bool>)
    return CUDNN_TYPE_BOOLEAN;
  else if constexpr (std::is_same_v<T, cudnnDataType_t>)
    return CUDNN_TYPE_DATA_TYPE;
  else if constexpr (std::is_same_v<T, cudnnPointwiseMode_t>)
    return CUDNN_TYPE_POINTWISE_MODE;
  else if constexpr (std::is_same_v<T, cudnnConvolutionMode_t>)
    return CUDNN_TYPE_CONVOLUTION_MODE;
  else if constexpr (std::is_same_v<T, cudnnReduceTensorOp_t>)
    return CUDNN_TYPE_REDUCTION_OPERATOR_TYPE;
  else if constexpr (std::is_same_v<T, cudnnRngDistribution_t>)
    return CUDNN_TYPE_RNG_DISTRIBUTION;
  else if constexpr (std::is_same_v<T, cudnnBackendHeurMode_t>)
    return CUDNN_TYPE_HEUR_MODE;
  else if constexpr (std::is_same_v<T, cudnnHandle_t>)
    return CUDNN_TYPE_HANDLE;
  else if constexpr (std::is_same_v<T, cudnnBackendDescriptor_t>)
    return CUDNN_TYPE_BACKEND_DESCRIPTOR;
  else
    static_assert(sizeof(T) == 0, "no attribute type");
}

class Desc {
 public:
  explicit Desc(cudnnBackendDescriptorType_t type) { ok(cudnnBackendCreateDescriptor(type, &d_)); }
  ~Desc() {
    if (d_) cudnnBackendDestroyDescriptor(d_);
  }
  Desc(Desc&& o) noexcept : d_(std::exchange(o.d_, nullptr)) {}

  template <class T>
  Desc& set(cudnnBackendAttributeName_t name, const T& value) {
    ok(cudnnBackendSetAttribute(d_, name, attribute_type<T>(), 1, &value));
    return *this;
  }
  Desc& set(cudnnBackendAttributeName_t name, const Numbers& v) {
    ok(cudnnBackendSetAttribute(d_, name, CUDNN_TYPE_INT64, int64_t(v.size()), v.data()));
    return *this;
  }
  Desc& set(cudnnBackendAttributeName_t name, const std::vector<cudnnBackendDescriptor_t>& v) {
    ok(cudnnBackendSetAttribute(d_, name, CUDNN_TYPE_BACKEND_DESCRIPTOR, int64_t(v.size()), v.data()));
    return *this;
  }
  Desc& set_pointers(cudnnBackendAttributeName_t name, const std::vector<void*>& v) {
    ok(cudnnBackendSetAttribute(d_, name, CUDNN_TYPE_VOID_PTR, int64_t(v.size()), v.data()));
    return *this;
  }
  Desc& finalize() {
    ok(cudnnBackendFinalize(d_));
    return *this;
  }
  template <class T>
  std::vector<T> get(cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type, int64_t most) const {
    std::vector<T> v(static_cast<size_t>(most));
    int64_t n = 0;
    ok(cudnnBackendGetAttribute(d_, name, type, most, &n, v.data()));
    v.resize(size_t(n));
    return v;
  }
  cudnnBackendDescriptor_t raw() const { return d_; }
  operator cudnnBackendDescriptor_t() const { return d_; }

 private:
  cudnnBackendDescriptor_t d_ = nullptr;
};

inline cudnnHandle_t dnn_handle(cudaStream_t stream = nullptr) {
  static const cudnnHandle_t handle = [] {
    cudnnHandle_t h;
    ok(cudnnCreate(&h));
    return h;
  }();
  ok(cudnnSetStream(handle, stream));
  return handle;
}

inline cudnnDataType_t dnn_type(DType t) {
  switch (t) {
    case DType::f16: return CUDNN_DATA_HALF;
    case DType::bf16: return CUDNN_DATA_BFLOAT16;
    case DType::f64: return CUDNN_DATA_DOUBLE;
    case DType::i64: return CUDNN_DATA_INT64;
    default: return CUDNN_DATA_FLOAT;
  }
}

inline Numbers packed(const Numbers& dims) {
  Numbers strides(dims.size());
  int64_t step = 1;
  for (size_t d = dims.size(); d-- > 0; step *= dims[d]) strides[d] = step;
  return strides;
}

struct DnnEngine {
  Desc config;
  int64_t index = -1;
  std::vector<cudnnBackendNumericalNote_t> notes;
  bool is_noted(cudnnBackendNumericalNote_t note) const { return std::find(notes.begin(), notes.end(), note) != notes.end(); }
};

class DnnPlan {
 public:
  DnnPlan(const Desc& config, int64_t index) : plan_(CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR), index(index) {
    plan_.set(CUDNN_ATTR_EXECUTION_PLAN_HANDLE, dnn_handle()).set(CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG, config.raw());
    status = cudnnBackendFinalize(plan_);
  }
  int64_t workspace() const { return plan_.get<int64_t>(CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE, CUDNN_TYPE_INT64, 1)[0]; }
  cudnnStatus_t execute(const std::map<int64_t, void*>& pointers, void* workspace, cudaStream_t stream = nullptr) const {
    Numbers uids;
    std::vector<void*> at;
    for (const auto& [uid, p] : pointers) {
      uids.push_back(uid);
      at.push_back(p);
    }
    Desc pack(CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR);
    pack.set(CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS, uids).set_pointers(CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS, at);
    if (workspace) pack.set_pointers(CUDNN_ATTR_VARIANT_PACK_WORKSPACE, {workspace});
    pack.finalize();
    return cudnnBackendExecute(dnn_handle(stream), plan_, pack);
  }

 private:
  Desc plan_;

 public:
  const int64_t index;  // of its engine
  cudnnStatus_t status;
};

class DnnGraph {
 public:
  struct T {
    int64_t uid;
    Numbers dims, strides;
    cudnnDataType_t type;
    std::shared_ptr<Desc> desc;
  };
  struct Row {
    cudnnBackendDescriptorType_t op;
    cudnnBackendAttributeName_t conv, x, w, y, alpha, beta;
  };

  T tensor(const Numbers& dims, const Numbers& strides, cudnnDataType_t type, bool is_virtual = false, bool by_value = false,
           int64_t alignment = 16) {
    auto d = std::make_shared<Desc>(CUDNN_BACKEND_TENSOR_DESCRIPTOR);
    const int64_t uid = next_++;
    d->set(CUDNN_ATTR_TENSOR_DATA_TYPE, type).set(CUDNN_ATTR_TENSOR_DIMENSIONS, dims).set(CUDNN_ATTR_TENSOR_STRIDES, strides);
    d->set(CUDNN_ATTR_TENSOR_UNIQUE_ID, uid).set(CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, alignment);
    d->set(CUDNN_ATTR_TENSOR_IS_VIRTUAL, is_virtual).set(CUDNN_ATTR_TENSOR_IS_BY_VALUE, by_value).finalize();
    return {uid, dims, strides, type, d};
  }
  // Adds a tensor on the device, whose pointer is passed when the graph runs.
  T tensor(const TensorView& v) {
    const T t = tensor(Numbers(v.shape.begin(), v.shape.end()), Numbers(v.strides.begin(), v.strides.end()), dnn_type(v.dtype),
                       false, false, int64_t(size_of(v.dtype)));
    pointers[t.uid] = v.data;
    return t;
  }
  T middle(const Numbers& dims, cudnnDataType_t type = CUDNN_DATA_FLOAT) { return tensor(dims, packed(dims), type, true); }
  T scalar(size_t rank, float value) {
    const T t = tensor(Numbers(rank, 1), Numbers(rank, 1), CUDNN_DATA_FLOAT, false, true, 4);
    values_.push_back(std::make_unique<float>(value));
    pointers[t.uid] = values_.back().get();
    return t;
  }

  static const Row& row(int direction) {
    static constexpr Row rows[3] = {
        {CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_CONV_DESC,
         CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_X, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_W,
         CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_Y, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_ALPHA,
         CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_BETA},
        {CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_DATA_DESCRIPTOR, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_CONV_DESC,
         CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DX, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_W,
         CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DY, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_ALPHA,
         CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_BETA},
        {CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_FILTER_DESCRIPTOR, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_CONV_DESC,
         CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_X, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DW,
         CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DY, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_ALPHA,
         CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_BETA}};
    return rows[direction];
  }
  // Adds a convolution. direction 0: y = conv(x, w); 1: x from y; 2: w from x and y.
  void conv(int direction, const T& x, const T& w, const T& y, const Numbers& pad, const Numbers& stride, const Numbers& dilation,
            float alpha = 1, float beta = 0, const Numbers& after = {}) {
    Desc c(CUDNN_BACKEND_CONVOLUTION_DESCRIPTOR);
    c.set(CUDNN_ATTR_CONVOLUTION_COMP_TYPE, CUDNN_DATA_FLOAT).set(CUDNN_ATTR_CONVOLUTION_CONV_MODE, CUDNN_CROSS_CORRELATION);
    c.set(CUDNN_ATTR_CONVOLUTION_SPATIAL_DIMS, int64_t(pad.size())).set(CUDNN_ATTR_CONVOLUTION_PRE_PADDINGS, pad);
    c.set(CUDNN_ATTR_CONVOLUTION_POST_PADDINGS, after.empty() ? pad : after).set(CUDNN_ATTR_CONVOLUTION_FILTER_STRIDES, stride);
    c.set(CUDNN_ATTR_CONVOLUTION_DILATIONS, dilation).finalize();
    const Row& r = row(direction);
    add(r.op).set(r.conv, c.raw()).set(r.x, x.desc->raw()).set(r.w, w.desc->raw()).set(r.y, y.desc->raw());
    ops.back().set(r.alpha, alpha).set(r.beta, beta).finalize();
  }
  void pointwise_to(cudnnPointwiseMode_t mode, const T& x, const T& y, const T* b = nullptr, const T* t = nullptr,
                    int64_t axis = -1) {
    Desc d(CUDNN_BACKEND_POINTWISE_DESCRIPTOR);
    d.set(CUDNN_ATTR_POINTWISE_MODE, mode).set(CUDNN_ATTR_POINTWISE_MATH_PREC, CUDNN_DATA_FLOAT);
    if (axis >= 0) d.set(CUDNN_ATTR_POINTWISE_AXIS, axis);
    d.finalize();
    const bool backward = mode >= CUDNN_POINTWISE_RELU_BWD && mode <= CUDNN_POINTWISE_GELU_APPROX_TANH_BWD;
    Desc& op = add(CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR);
    op.set(CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR, d.raw());
    op.set(backward ? CUDNN_ATTR_OPERATION_POINTWISE_DYDESC : CUDNN_ATTR_OPERATION_POINTWISE_XDESC, x.desc->raw());
    op.set(backward ? CUDNN_ATTR_OPERATION_POINTWISE_DXDESC : CUDNN_ATTR_OPERATION_POINTWISE_YDESC, y.desc->raw());
    if (b) op.set(backward ? CUDNN_ATTR_OPERATION_POINTWISE_XDESC : CUDNN_ATTR_OPERATION_POINTWISE_BDESC, b->desc->raw());
    if (t) op.set(CUDNN_ATTR_OPERATION_POINTWISE_TDESC, t->desc->raw());
    op.finalize();
  }
  T pointwise(cudnnPointwiseMode_t mode, const T& x, const T* b = nullptr, const T* t = nullptr, int64_t axis = -1,
              cudnnDataType_t type = CUDNN_DATA_FLOAT) {
    const T y = middle(x.dims, type);
    pointwise_to(mode, x, y, b, t, axis);
    return y;
  }
  void matmul(const T& a, const T& b, const T& c, const T* rows = nullptr) {
    Desc d(CUDNN_BACKEND_MATMUL_DESCRIPTOR);
    d.set(CUDNN_ATTR_MATMUL_COMP_TYPE, CUDNN_DATA_FLOAT).finalize();
    Desc& op = add(CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR);
    op.set(CUDNN_ATTR_OPERATION_MATMUL_DESC, d.raw()).set(CUDNN_ATTR_OPERATION_MATMUL_ADESC, a.desc->raw());
    op.set(CUDNN_ATTR_OPERATION_MATMUL_BDESC, b.desc->raw()).set(CUDNN_ATTR_OPERATION_MATMUL_CDESC, c.desc->raw());
    if (rows) op.set(CUDNN_ATTR_OPERATION_MATMUL_GEMM_M_OVERRIDE_DESC, rows->desc->raw());
    op.finalize();
  }
  void reduce(cudnnReduceTensorOp_t mode, const T& x, const T& y) {
    Desc d(CUDNN_BACKEND_REDUCTION_DESCRIPTOR);
    d.set(CUDNN_ATTR_REDUCTION_OPERATOR, mode).set(CUDNN_ATTR_REDUCTION_COMP_TYPE, CUDNN_DATA_FLOAT).finalize();
    Desc& op = add(CUDNN_BACKEND_OPERATION_REDUCTION_DESCRIPTOR);
    op.set(CUDNN_ATTR_OPERATION_REDUCTION_DESC, d.raw()).set(CUDNN_ATTR_OPERATION_REDUCTION_XDESC, x.desc->raw());
    op.set(CUDNN_ATTR_OPERATION_REDUCTION_YDESC, y.desc->raw()).finalize();
  }
  void reshape(const T& x, const T& y) {
    Desc& op = add(CUDNN_BACKEND_OPERATION_RESHAPE_DESCRIPTOR);
    op.set(CUDNN_ATTR_OPERATION_RESHAPE_XDESC, x.desc->raw()).set(CUDNN_ATTR_OPERATION_RESHAPE_YDESC, y.desc->raw()).finalize();
  }
  void bernoulli(const T& seed, const T& offset, double probability, const T& y) {
    Desc d(CUDNN_BACKEND_RNG_DESCRIPTOR);
    d.set(CUDNN_ATTR_RNG_DISTRIBUTION, CUDNN_RNG_DISTRIBUTION_BERNOULLI);
    d.set(CUDNN_ATTR_RNG_BERNOULLI_DIST_PROBABILITY, probability).finalize();
    Desc& op = add(CUDNN_BACKEND_OPERATION_RNG_DESCRIPTOR);
    op.set(CUDNN_ATTR_OPERATION_RNG_DESC, d.raw()).set(CUDNN_ATTR_OPERATION_RNG_SEED, seed.desc->raw());
    op.set(CUDNN_ATTR_OPERATION_RNG_OFFSET_DESC, offset.desc->raw()).set(CUDNN_ATTR_OPERATION_RNG_YDESC, y.desc->raw()).finalize();
  }
  Desc& add(cudnnBackendDescriptorType_t type) { return ops.emplace_back(type); }

  // Returns the heuristic's proposals in order.
  std::vector<DnnEngine> engines(cudnnBackendHeurMode_t mode = CUDNN_HEUR_MODE_A) {
    Desc graph(CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR);
    std::vector<cudnnBackendDescriptor_t> raw;
    for (const Desc& op : ops) raw.push_back(op.raw());
    graph.set(CUDNN_ATTR_OPERATIONGRAPH_HANDLE, dnn_handle()).set(CUDNN_ATTR_OPERATIONGRAPH_OPS, raw).finalize();
    Desc heuristic(CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR);
    heuristic.set(CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH, graph.raw()).set(CUDNN_ATTR_ENGINEHEUR_MODE, mode).finalize();
    int64_t n = 0;
    ok(cudnnBackendGetAttribute(heuristic, CUDNN_ATTR_ENGINEHEUR_RESULTS, CUDNN_TYPE_BACKEND_DESCRIPTOR, 0, &n, nullptr));
    std::vector<DnnEngine> found;
    raw.clear();
    for (int64_t i = 0; i < n; ++i) {
      found.push_back({Desc(CUDNN_BACKEND_ENGINECFG_DESCRIPTOR), -1, {}});
      raw.push_back(found.back().config.raw());
    }
    if (n) ok(cudnnBackendGetAttribute(heuristic, CUDNN_ATTR_ENGINEHEUR_RESULTS, CUDNN_TYPE_BACKEND_DESCRIPTOR, n, &n, raw.data()));
    for (DnnEngine& e : found) {
      const Desc engine(CUDNN_BACKEND_ENGINE_DESCRIPTOR);
      cudnnBackendDescriptor_t at = engine.raw();
      ok(cudnnBackendGetAttribute(e.config, CUDNN_ATTR_ENGINECFG_ENGINE, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &n, &at));
      e.index = engine.get<int64_t>(CUDNN_ATTR_ENGINE_GLOBAL_INDEX, CUDNN_TYPE_INT64, 1)[0];
      e.notes = engine.get<cudnnBackendNumericalNote_t>(CUDNN_ATTR_ENGINE_NUMERICAL_NOTE, CUDNN_TYPE_NUMERICAL_NOTE,
                                                        CUDNN_NUMERICAL_NOTE_TYPE_COUNT);
    }
    return found;
  }
  DnnPlan plan(int64_t engine) {
    for (const DnnEngine& e : engines()) {
      if (e.index == engine) return DnnPlan(e.config, e.index);
    }
    FAIL("no engine ", engine);
    throw 0;
  }
  // Runs with the last engine proposed, which is exact, unless another is named.
  void run(int64_t engine = -1, cudaStream_t stream = nullptr) {
    const DnnPlan p = plan(engine < 0 ? engines().back().index : engine);
    ok(p.status);
    void* workspace = nullptr;
    if (const int64_t bytes = p.workspace()) REQUIRE(cudaMalloc(&workspace, size_t(bytes)) == cudaSuccess);
    ok(p.execute(pointers, workspace, stream));
    REQUIRE(cudaStreamSynchronize(stream) == cudaSuccess);
    cudaFree(workspace);
  }

  std::map<int64_t, void*> pointers;
  std::vector<Desc> ops;

 private:
  int64_t next_ = 1;
  std::vector<std::unique_ptr<float>> values_;
};

// ---- a small convolution
inline const Numbers kX{1, 2, 3, 3}, kW{2, 2, 1, 1};
inline constexpr auto kFp16 = CUDNN_DATA_HALF;
// Adds y = conv(x, w) with x and y of one shape.
inline void conv(DnnGraph& g, const DnnGraph::T& x, const DnnGraph::T& w, const DnnGraph::T& y) {
  g.conv(0, x, w, y, {0, 0}, {1, 1}, {1, 1});
}

// A convolution that runs, for tests that break it.
struct RunningConv {
  RunningConv()
      : x(uniform(DType::f16, {1, 2, 3, 3}, 1)), w(uniform(DType::f16, {2, 2, 1, 1}, 2)), y(poisoned(DType::f16, {1, 2, 3, 3})) {
    tx = g.tensor(x), tw = g.tensor(w), ty = g.tensor(y);
    conv(g, tx, tw, ty);
  }
  void run(int64_t engine = -1, void* workspace = nullptr) {
    const DnnPlan plan = g.plan(engine < 0 ? g.engines().back().index : engine);
    ok(plan.status);
    ok(plan.execute(g.pointers, workspace));
  }
  OnDevice x, w, y;
  DnnGraph g;
  DnnGraph::T tx, tw, ty;
};
inline constexpr int64_t kWithWorkspace = 4;  // an engine that needs workspace

}  // namespace halfstep::testing
