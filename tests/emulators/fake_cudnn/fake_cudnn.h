// SPDX-License-Identifier: Apache-2.0
// Internal header of the fake cuDNN. It has the functions that cuda/dnn calls, on the emulator's memory and streams, and accepts
// what cuDNN's headers and documentation allow.
//   refusals   what the real one may decline (a graph that no engine knows, a plan that does not build): a status, as there
//   misuse     what the real one answers with BAD_PARAM, or computes garbage from: it ends the program with the broken rule, as a
//              caller could take any status for a refusal and go another way. HALFSTEP_FAKE_DNN_MISUSE=status gives the status
//   HALFSTEP_FAKE_DNN_REFUSE=0x3   bits of Family: no engine for graphs that have one of these operations (0x8: beside a
//                                  convolution); 0x40: no RNN
//   HALFSTEP_FAKE_DNN_FAIL=n       executions of the first n engines that the heuristic proposes are refused
//   HALFSTEP_FAKE_DNN_WORKSPACE=n  bytes of workspace that every engine and network takes at least
//   HALFSTEP_FAKE_DNN_VERSION=n    the version that it says it is: 91200 for 9.12.0
//   HALFSTEP_FAKE_DNN_SLOW=0x10    bits of engine indices that take some milliseconds
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "cuda/dnn/cudnn.h"
#include "tests/emulators/source/runtime.h"

namespace emu::dnn {

using Dims = std::vector<int64_t>;

// Thrown to the boundary of the C functions.
struct Failure {
  cudnnStatus_t status;
  std::string text;
  bool is_misuse;
};
[[noreturn]] void misuse(cudnnStatus_t status, const char* format, ...) __attribute__((format(printf, 2, 3)));
[[noreturn]] void refuse(cudnnStatus_t status, const char* format, ...) __attribute__((format(printf, 2, 3)));
cudnnStatus_t report(const char* call, const Failure& failure);

// Wraps the body of a C function.
template <class F>
cudnnStatus_t guarded(const char* call, const F& body) {
  const Lock lock(runtime_mutex());
  try {
    body();
    return CUDNN_STATUS_SUCCESS;
  } catch (const Failure& failure) { return report(call, failure); }
}
unsigned long setting(const char* name);

// ---- Tensors (tensor.cpp)
struct Tensor {
  int64_t uid = 0;
  cudnnDataType_t type = CUDNN_DATA_FLOAT;
  Dims dims, strides;
  int64_t alignment = 1;
  bool is_virtual = false, by_value = false;

  size_t rank() const { return dims.size(); }
  int64_t elements() const;
  int64_t extent() const;  // count of elements from the first to the last
  size_t bytes() const;    // of the extent
  std::string text() const;
  bool operator==(const Tensor&) const = default;
};
int64_t size_of(cudnnDataType_t type);  // misuse for unsupported types
double load(cudnnDataType_t type, const void* from, int64_t at);
void store(cudnnDataType_t type, void* to, int64_t at, double value);
double rounded(cudnnDataType_t type, double value);
double rounded_to_tf32(double value);
bool elements_overlap(const Tensor& t);  // two of them share memory
// Calls f(offset) for every element in row-major order of dims; strides of broadcast dimensions are 0.
template <class F>
void for_each_offset(const Dims& dims, const Dims& strides, const F& f) {
  Dims at(dims.size(), 0);
  int64_t offset = 0;
  for (int64_t d : dims) {
    if (d == 0) return;
  }
  while (true) {
    f(offset);
    size_t d = dims.size();
    while (d-- > 0) {
      offset += strides[d];
      if (++at[d] < dims[d]) break;
      offset -= strides[d] * dims[d];
      at[d] = 0;
    }
    if (d == size_t(-1)) return;
  }
}
Dims row_major(const Dims& dims);
std::string text_of(const Dims& dims);

// ---- Operations (operations.cpp) and graphs (graph.cpp)
enum Family : unsigned {
  kForward = 1,
  kBackwardData = 2,
  kBackwardFilter = 4,
  kPointwise = 8,
  kMatmul = 16,
  kOther = 32,
  kRnn = 64
};
enum class Kind { conv_forward, conv_backward_data, conv_backward_filter, pointwise, matmul, reduction, reshape, rng };

struct Convolution {
  cudnnDataType_t compute = CUDNN_DATA_FLOAT;
  bool flipped = false;  // CUDNN_CONVOLUTION, not cross-correlation
  Dims before, after, stride, dilation;
};
struct Pointwise {
  cudnnPointwiseMode_t mode = CUDNN_POINTWISE_ADD;
  cudnnDataType_t compute = CUDNN_DATA_FLOAT;
  double lower = 0, upper = 0, slope = 0, elu_alpha = 1, softplus_beta = 1, swish_beta = 1;
  bool has_lower = false, has_upper = false;
  bool keeps_nan = false;  // else a ReLU treats NaN as the smallest number
  int64_t axis = -1;
};
struct Reduction {
  cudnnReduceTensorOp_t mode = CUDNN_REDUCE_TENSOR_ADD;
  cudnnDataType_t compute = CUDNN_DATA_FLOAT;
};
struct Rng {
  cudnnRngDistribution_t distribution = CUDNN_RNG_DISTRIBUTION_BERNOULLI;
  double probability = 0.5;
};
struct Operation {
  Kind kind = Kind::pointwise;
  std::vector<Tensor> in;  // conv: x or dy, then w or the other; pointwise: the mode's operands; rng: seed, offset
  Tensor out;
  double alpha = 1, beta = 0;  // pointwise: alpha1, alpha2
  Convolution conv;
  Pointwise pointwise;
  Reduction reduction;
  Rng rng;
  int64_t seed = 0;           // if it is not a tensor
  size_t extents[3] = {};     // matmul: places in `in` of the used sizes of m, n, k, for each of the first dimension; 0: all
  bool reads_beyond = false;  // its operands' ends: see graph.cpp
  bool accumulates = false;   // adds to the output's values, in an order that varies: see graph.cpp

  unsigned family() const;
};
struct Graph {
  std::vector<Operation> operations;  // sorted: each follows those whose results it reads
  std::map<int64_t, Tensor> tensors;  // by uid
  int matmuls = 0;
  bool has_conv = false;
  bool has_handle = false;
};

// ---- Engines (graph.cpp)
enum class Arithmetic { exact, tf32, half_inputs, coarse, varying };
struct Engine {
  int64_t index = 0;
  Arithmetic arithmetic = Arithmetic::exact;
  std::vector<cudnnBackendNumericalNote_t> numerical;
  std::vector<cudnnBackendBehaviorNote_t> behavior;
  int64_t workspace = 0;
  bool broken = false;  // its plans do not build
};
struct Config {
  std::shared_ptr<const Graph> graph;
  Engine engine;
  mutable bool built = false;
  bool compiled() const;  // at run time
};
struct Plan {
  std::shared_ptr<const Graph> graph;
  Engine engine;
  mutable bool destroyed = false;  // by the caller: its kernels, which may have been compiled for it, are gone
};
std::vector<Engine> all_engines(const Graph& graph);
std::vector<Engine> proposed_engines(const Graph& graph, cudnnBackendHeurMode_t mode);

// ---- Descriptors (attributes.cpp)
struct Descriptor;
struct Attribute {
  cudnnBackendAttributeType_t type;
  int64_t count;
  std::vector<char> bytes;
  std::vector<std::shared_ptr<const Descriptor>> descriptors;
};
// A finalised descriptor is immutable: others share it, so it stays valid when the caller destroys it.
struct Descriptor {
  cudnnBackendDescriptorType_t type;
  bool finalized = false;
  std::map<cudnnBackendAttributeName_t, Attribute> attributes;
  // The result of finalising, one of:
  std::shared_ptr<const Tensor> tensor;
  std::shared_ptr<const Operation> operation;  // also of descriptors of a convolution, a pointwise function and so on
  std::shared_ptr<const Graph> graph;
  std::shared_ptr<const Config> config;  // engine and engine configuration
  std::shared_ptr<const Plan> plan;
  std::vector<Engine> proposals;

  bool has(cudnnBackendAttributeName_t name) const { return attributes.contains(name); }
  template <class T>
  std::vector<T> all(cudnnBackendAttributeName_t name) const {
    const auto it = attributes.find(name);
    if (it == attributes.end()) return {};
    std::vector<T> values(size_t(it->second.count));
    std::memcpy(values.data(), it->second.bytes.data(), it->second.bytes.size());
    return values;
  }
  template <class T>
  T one(cudnnBackendAttributeName_t name, T otherwise = {}) const {
    if (const auto it = attributes.find(name); it != attributes.end()) std::memcpy(&otherwise, it->second.bytes.data(), sizeof(T));
    return otherwise;
  }
  double real(cudnnBackendAttributeName_t name, double otherwise) const;  // reads a float or a double
  const Descriptor* child(cudnnBackendAttributeName_t name) const;        // null if not set
};
const char* name_of(cudnnBackendDescriptorType_t type);  // null if not supported
void set_attribute(Descriptor& d, cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type, int64_t count,
                   const void* values);
void check_complete(const Descriptor& d);  // checks that all required attributes are set
std::shared_ptr<Descriptor> descriptor_of(cudnnBackendDescriptor_t handle);

std::shared_ptr<const Tensor> make_tensor(const Descriptor& d);
std::shared_ptr<const Operation> make_operation(const Descriptor& d);
std::shared_ptr<const Graph> make_graph(const Descriptor& d);
void finalize_engine(Descriptor& d);  // heuristic, engine, configuration, plan
void get_engine_attribute(const Descriptor& d, cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type,
                          int64_t requested, int64_t* count, void* values);

// ---- Execution (execute.cpp, compute.cpp)
struct Handle {
  cudaStream_t stream = nullptr;
};
Handle& handle_of(cudnnHandle_t handle);
void execute(cudaStream_t stream, const std::shared_ptr<const Plan>& plan, const Descriptor& pack);

using Values = std::vector<double>;  // row-major
// Computes an operation's result; `before` has its output's old values, read if beta is not 0.
Values compute(const Operation& op, const std::vector<const Values*>& in, const Values& before, Arithmetic arithmetic,
               uint64_t run);
Values bernoulli(const Operation& op, int64_t seed, int64_t offset);

struct Range {
  std::string what;
  const char* at;
  Tensor tensor;  // its geometry
  bool written;
};
// Checks that ranges lie in live allocations, and that written ranges share no element with others.
void check_ranges(const std::vector<Range>& ranges);
void check_aligned(const char* what, const void* p, int64_t alignment);
bool is_device_memory(const void* p);

}  // namespace emu::dnn
