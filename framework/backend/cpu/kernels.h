// The CPU's kernels, one free function for each of Backend's (framework/backend/backend.h has the contracts).
#pragma once

#include "framework/backend/backend.h"

namespace halfstep::cpu {

void copy(const TensorView& src, const TensorView& dst);
void fill(const TensorView& dst, double value);
void arange(const TensorView& dst, double start, double step);

void unary(Unary op, const TensorView& x, const TensorView& out);
void unary_backward(Unary op, const TensorView& grad, const TensorView& saved, const TensorView& out);
void binary(Binary op, const TensorView& a, const TensorView& b, const TensorView& out);
void binary_backward(Binary op, int input, const TensorView& grad, const TensorView& a, const TensorView& b, const TensorView& out);
void test(Test op, const TensorView& a, const TensorView& b, const TensorView& out);
void where(const TensorView& cond, const TensorView& a, const TensorView& b, const TensorView& out);

void gemm(const GemmArgs& args);

void reduce(Reduce op, const TensorView& x, const TensorView& out);
void arg_reduce(bool largest, const TensorView& x, int dim, const TensorView& values, const TensorView& indices);

void softmax(const TensorView& x, const TensorView& out, int dim, bool log);
void softmax_backward(const TensorView& grad, const TensorView& y, const TensorView& out, int dim, bool log);

void cross_entropy(const CrossEntropyArgs& args, const TensorView& loss, const TensorView& lse, const TensorView& total);
void cross_entropy_backward(const CrossEntropyArgs& args, const TensorView& grad, const TensorView& lse, const TensorView& total,
                            const TensorView& out);
int64_t check_targets(const TensorView& target, int64_t classes, int64_t ignore_index);
void mse(const TensorView& a, const TensorView& b, Reduction reduction, const TensorView& loss);
void mse_backward(const TensorView& a, const TensorView& b, const TensorView& grad, Reduction reduction, double sign,
                  const TensorView& out);

int64_t check_indices(const TensorView& index, int64_t size);
void gather(const TensorView& x, int dim, const TensorView& index, const TensorView& out);
void scatter_add(const TensorView& out, int dim, const TensorView& index, const TensorView& src);

void random_uniform(const TensorView& dst, Generator::State state, double lo, double hi);
void random_normal(const TensorView& dst, Generator::State state, double mean, double stddev);
void random_integers(const TensorView& dst, Generator::State state, int64_t lo, int64_t hi);
void dropout(const TensorView& x, const TensorView& out, double p, Generator::State state);

void check_finite(std::span<const TensorView> grads, float* found_inf);
void unscale(std::span<const TensorView> grads, const float* scale, float* found_inf);
void sgd(std::span<const ParamUpdate> params, const math::SgdArgs& args, const StepControl& control);
void adam(std::span<const ParamUpdate> params, const math::AdamArgs& args, const StepControl& control);
void norm(std::span<const TensorView> tensors, double p, float* out);
void clip(std::span<const TensorView> tensors, const float* norm, double max_norm);

}  // namespace halfstep::cpu
