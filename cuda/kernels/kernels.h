// The CUDA kernels' launchers, one free function for each of Backend's with the contract of framework/backend/backend.h.
// They return when the work is queued on the stream. Results do not depend on the device's size: the same bits on every run.
#pragma once

#include "framework/backend/backend.h"

struct CUstream_st;

namespace halfstep::cuda {

// Where to work: `scratch` is kScratchBytes of device memory that no other stream uses.
struct Queue {
  CUstream_st* stream = nullptr;
  double* scratch = nullptr;
};
inline constexpr size_t kScratchBytes = size_t(1) << 20;

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
void softmax(const Queue& q, const TensorView& x, const TensorView& out, int dim, bool log);
void softmax_backward(const Queue& q, const TensorView& grad, const TensorView& y, const TensorView& out, int dim, bool log);

void cross_entropy(const Queue& q, const CrossEntropyArgs& args, const TensorView& loss, const TensorView& lse,
                   const TensorView& total);
void cross_entropy_backward(const Queue& q, const CrossEntropyArgs& args, const TensorView& grad, const TensorView& lse,
                            const TensorView& total, const TensorView& out);
void mse(const Queue& q, const TensorView& a, const TensorView& b, Reduction reduction, const TensorView& loss);
void mse_backward(const Queue& q, const TensorView& a, const TensorView& b, const TensorView& grad, Reduction reduction,
                  double sign, const TensorView& out);

void random_uniform(const Queue& q, const TensorView& dst, Generator::State state, double lo, double hi);
void random_normal(const Queue& q, const TensorView& dst, Generator::State state, double mean, double stddev);
void dropout(const Queue& q, const TensorView& x, const TensorView& out, double p, Generator::State state);

void check_finite(const Queue& q, std::span<const TensorView> grads, float* found_inf);
void unscale(const Queue& q, std::span<const TensorView> grads, const float* scale, float* found_inf);
void update_scale(const Queue& q, float* scale, int32_t* tracker, const float* found_inf, double growth, double backoff,
                  int32_t interval);
void sgd(const Queue& q, std::span<const ParamUpdate> params, const math::SgdArgs& args, const StepControl& control);
void adam(const Queue& q, std::span<const ParamUpdate> params, const math::AdamArgs& args, const StepControl& control);

}  // namespace halfstep::cuda
