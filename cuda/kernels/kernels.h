// The CUDA kernels' launchers, one free function for each of Backend's with the contract of framework/backend/backend.h.
// They return when the work is queued on the stream. Results do not depend on the device's size: the same bits on every run.
#pragma once

#include "framework/backend/backend.h"

struct CUstream_st;

namespace halfstep::cuda {

// Where to work. One call at a time uses a queue.
struct Queue {
  CUstream_st* stream = nullptr;
  double* scratch = nullptr;               // kScratchBytes of device memory that nothing else uses
  const uint64_t* random_base = nullptr;   // device memory; when set, added to the offset of every random draw
  bool recording = false;                  // launches are being recorded for replay: nothing may wait, measure or allocate
};
inline constexpr size_t kScratchBytes = size_t(1) << 20;

// In device memory: the first bad index or target met by a check, for the host to report.
struct IndexFault {
  int32_t kind;       // 0: none, 1: target, 2: index
  int32_t pad;
  int64_t position, value, size;
};

void copy(const Queue& q, const TensorView& src, const TensorView& dst);
void fill(const Queue& q, const TensorView& dst, double value);
void arange(const Queue& q, const TensorView& dst, double start, double step);

void unary(const Queue& q, Unary op, const TensorView& x, const TensorView& out);
void unary_backward(const Queue& q, Unary op, const TensorView& grad, const TensorView& saved, const TensorView& out);
void binary(const Queue& q, Binary op, const TensorView& a, const TensorView& b, const TensorView& out);
void binary_backward(const Queue& q, Binary op, int input, const TensorView& grad, const TensorView& a, const TensorView& b,
                     const TensorView& out);
void test(const Queue& q, Test op, const TensorView& a, const TensorView& b, const TensorView& out);
void where(const Queue& q, const TensorView& cond, const TensorView& a, const TensorView& b, const TensorView& out);

void reduce(const Queue& q, Reduce op, const TensorView& x, const TensorView& out);
void arg_reduce(const Queue& q, bool largest, const TensorView& x, int dim, const TensorView& values, const TensorView& indices);
void softmax(const Queue& q, const TensorView& x, const TensorView& out, int dim, bool log);
void softmax_backward(const Queue& q, const TensorView& grad, const TensorView& y, const TensorView& out, int dim, bool log);

void cross_entropy(const Queue& q, const CrossEntropyArgs& args, const TensorView& loss, const TensorView& lse,
                   const TensorView& total);
void cross_entropy_backward(const Queue& q, const CrossEntropyArgs& args, const TensorView& grad, const TensorView& lse,
                            const TensorView& total, const TensorView& out);
void mse(const Queue& q, const TensorView& a, const TensorView& b, Reduction reduction, const TensorView& loss,
         const MseGradient& gradient = {});
void mse_backward(const Queue& q, const TensorView& a, const TensorView& b, const TensorView& grad, Reduction reduction,
                  double sign, const TensorView& out);

// Records the first bad element in `fault` unless it already holds one.
void check_targets(const Queue& q, const TensorView& target, int64_t classes, int64_t ignore_index, IndexFault* fault);
void check_indices(const Queue& q, const TensorView& index, int64_t size, IndexFault* fault);
void gather(const Queue& q, const TensorView& x, int dim, const TensorView& index, const TensorView& out);
void scatter_add(const Queue& q, const TensorView& out, int dim, const TensorView& index, const TensorView& src);

void random_uniform(const Queue& q, const TensorView& dst, Generator::State state, double lo, double hi);
void random_normal(const Queue& q, const TensorView& dst, Generator::State state, double mean, double stddev);
void random_integers(const Queue& q, const TensorView& dst, Generator::State state, int64_t lo, int64_t hi);
void dropout(const Queue& q, const TensorView& x, const TensorView& out, double p, Generator::State state);

void check_finite(const Queue& q, std::span<const TensorView> grads, float* found_inf);
void unscale(const Queue& q, std::span<const TensorView> grads, const float* scale, float* found_inf);
void update_scale(const Queue& q, float* scale, int32_t* tracker, const float* found_inf, double growth, double backoff,
                  int32_t interval);
void advance_rates(const Queue& q, int64_t* count, const float* found_inf, const TensorView& table, const TensorView& rates);
void sgd(const Queue& q, std::span<const ParamUpdate> params, const math::SgdArgs& args, const StepControl& control);
void adam(const Queue& q, std::span<const ParamUpdate> params, const math::AdamArgs& args, const StepControl& control);
void norm(const Queue& q, std::span<const TensorView> tensors, double p, float* out);
void clip(const Queue& q, std::span<const TensorView> tensors, const float* norm, double max_norm);

// ---- products, where cuBLASLt has no code or is not there (cuda/blas/gemm.cpp decides)
// c = a b + bias (+ c when accumulate): one thread an element. Shapes and dtypes as GemmArgs's; bias may be empty.
void plain_product(const Queue& q, const TensorView& a, const TensorView& b, const TensorView& bias, const TensorView& c,
                   bool accumulate);
// out = act(x + bias), and aux where given. x: [M, N], contiguous, of out's floating dtype; may be out. aux: as activation_aux
// of cuda/blas/gemm.h has it.
void bias_activation(const Queue& q, const TensorView& x, const TensorView& bias, Activation activation, const TensorView& aux,
                     const TensorView& out);
// out = act'(aux) * grad. May be in place.
void activation_derivative(const Queue& q, const TensorView& grad, Activation activation, const TensorView& aux,
                           const TensorView& out);

}  // namespace halfstep::cuda
