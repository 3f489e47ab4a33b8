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
  uint32_t* counters = nullptr;            // kCounters in device memory, where a launch's blocks count; 0 between launches
  const uint64_t* random_base = nullptr;   // device memory; when set, added to the offset of every random draw
  bool recording = false;                  // launches are being recorded for replay: nothing may wait, measure or allocate
};
inline constexpr size_t kScratchBytes = size_t(1) << 20;
// Of losses the first, of optimizers those from kStepCounters on: launches of different kinds may not count in the same.
inline constexpr size_t kCounters = 8, kStepCounters = 4;

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

void pointwise(const Queue& queue, Pointwise op, std::span<const TensorView> in, double p, double q, const TensorView& out);
void pointwise_backward(const Queue& queue, Pointwise op, int input, const TensorView& grad, std::span<const TensorView> in,
                        double p, double q, const TensorView& out);

void variance(const Queue& q, const TensorView& x, double correction, const TensorView& mean, const TensorView& var);
void scan(const Queue& q, Scan op, const TensorView& x, int dim, bool reverse, const TensorView& out);
void sort(const Queue& q, const TensorView& x, int dim, bool descending, int64_t k, const TensorView& values,
          const TensorView& indices);

void scatter(const Queue& q, const TensorView& out, int dim, const TensorView& index, const TensorView& src);
void index_select(const Queue& q, const TensorView& x, int dim, const TensorView& index, const TensorView& out);
void index_add(const Queue& q, const TensorView& out, int dim, const TensorView& index, const TensorView& src);
void index_copy(const Queue& q, const TensorView& out, int dim, const TensorView& index, const TensorView& src);

void unfold(const Queue& q, const TensorView& x, const Window& window, const Spatial& positions, const TensorView& columns);
void fold(const Queue& q, const TensorView& columns, const Window& window, const Spatial& positions, const TensorView& out);
void max_pool(const Queue& q, const TensorView& x, const PoolArgs& args, const TensorView& out, const TensorView& indices);
void max_pool_backward(const Queue& q, const TensorView& grad, const TensorView& indices, const TensorView& out);
void avg_pool(const Queue& q, const TensorView& x, const PoolArgs& args, const TensorView& out);
void avg_pool_backward(const Queue& q, const TensorView& grad, const PoolArgs& args, const TensorView& out);
void normalize(const Queue& q, const NormArgs& args, const TensorView& x, const TensorView& weight, const TensorView& bias,
               const TensorView& out, const TensorView& mean, const TensorView& rstd);
void normalize_backward(const Queue& q, const NormArgs& args, const TensorView& grad, const TensorView& x,
                        const TensorView& weight, const TensorView& mean, const TensorView& rstd, const TensorView& dx,
                        const TensorView& dweight, const TensorView& dbias);
void batch_norm(const Queue& q, const BatchNormArgs& args, const TensorView& x, const TensorView& weight,
                const TensorView& bias, const TensorView& running_mean, const TensorView& running_var, const TensorView& out,
                const TensorView& mean, const TensorView& rstd);
void batch_norm_backward(const Queue& q, const BatchNormArgs& args, const TensorView& grad, const TensorView& x,
                         const TensorView& weight, const TensorView& mean, const TensorView& rstd, const TensorView& dx,
                         const TensorView& dweight, const TensorView& dbias);
void lstm_cell(const Queue& q, const TensorView& x_gates, const TensorView& h_gates, const TensorView& c,
               const TensorView& h_out, const TensorView& c_out, const TensorView& activated);
void lstm_cell_backward(const Queue& q, const TensorView& dh, const TensorView& dc, const TensorView& activated,
                        const TensorView& c, const TensorView& c_out, const TensorView& dgates, const TensorView& dc_in);
void gru_cell(const Queue& q, const TensorView& x_gates, const TensorView& h_gates, const TensorView& h,
              const TensorView& h_out, const TensorView& activated);
void gru_cell_backward(const Queue& q, const TensorView& dh, const TensorView& activated, const TensorView& h,
                       const TensorView& dx_gates, const TensorView& dh_gates, const TensorView& dh_in);
void resample(const Queue& q, const TensorView& x, int dim, const SparseRows& matrix, const TensorView& out);
void grid_sample(const Queue& q, const SampleArgs& args, const TensorView& x, const TensorView& grid, const TensorView& out);
void grid_sample_backward(const Queue& q, const SampleArgs& args, const TensorView& grad, const TensorView& x,
                          const TensorView& grid, const TensorView& dx, const TensorView& dgrid);

void random_uniform(const Queue& q, const TensorView& dst, Generator::State state, double lo, double hi);
void random_normal(const Queue& q, const TensorView& dst, Generator::State state, double mean, double stddev);
void random_integers(const Queue& q, const TensorView& dst, Generator::State state, int64_t lo, int64_t hi);
void dropout(const Queue& q, const TensorView& x, const TensorView& out, double p, Generator::State state);

void check_finite(const Queue& q, std::span<const TensorView> grads, float* found_inf);
void unscale(const Queue& q, std::span<const TensorView> grads, const float* scale, float* found_inf);
void end_step(const Queue& q, const float* found_inf, const math::StepTail& tail);
void sgd(const Queue& q, std::span<const ParamUpdate> params, const math::SgdArgs& args, const StepControl& control);
void adam(const Queue& q, std::span<const ParamUpdate> params, const math::AdamArgs& args, const StepControl& control);
void norm(const Queue& q, std::span<const TensorView> tensors, double p, float* out);
void clip(const Queue& q, std::span<const TensorView> tensors, const float* norm, double max_norm);

// ---- products, where cuBLASLt has no code or is not there (cuda/blas/gemm.cpp decides)
// c = a b + bias (+ c when accumulate): one thread an element. Shapes and dtypes as GemmArgs's; bias may be empty.
void plain_product(const Queue& q, const TensorView& a, const TensorView& b, const TensorView& bias, const TensorView& c,
                   bool accumulate);
// out = act(x + bias), and aux where given. x: [M, N], contiguous, of out's floating dtype; may be out. Without out aux alone is
// written. It is as activation_aux of cuda/blas/gemm.h has it.
void bias_activation(const Queue& q, const TensorView& x, const TensorView& bias, Activation activation, const TensorView& aux,
                     const TensorView& out);
// out = act'(aux) * grad. May be in place.
void activation_derivative(const Queue& q, const TensorView& grad, Activation activation, const TensorView& aux,
                           const TensorView& out);

}  // namespace halfstep::cuda
