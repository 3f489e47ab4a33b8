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

void pointwise(Pointwise op, std::span<const TensorView> in, double p, double q, const TensorView& out);
void pointwise_backward(Pointwise op, int input, const TensorView& grad, std::span<const TensorView> in, double p, double q,
                        const TensorView& out);

void variance(const TensorView& x, double correction, const TensorView& mean, const TensorView& var);
void scan(Scan op, const TensorView& x, int dim, bool reverse, const TensorView& out);
void sort(const TensorView& x, int dim, bool descending, int64_t k, const TensorView& values, const TensorView& indices);

void scatter(const TensorView& out, int dim, const TensorView& index, const TensorView& src);
void index_select(const TensorView& x, int dim, const TensorView& index, const TensorView& out);
void index_add(const TensorView& out, int dim, const TensorView& index, const TensorView& src);
void index_copy(const TensorView& out, int dim, const TensorView& index, const TensorView& src);

void conv(const TensorView& x, const TensorView& weight, const TensorView& bias, const Window& window, int64_t groups,
          const TensorView& out);
void conv_backward_data(const TensorView& grad, const TensorView& weight, const TensorView& bias, const Window& window,
                        int64_t groups, const TensorView& out);
void conv_backward_weight(const TensorView& x, const TensorView& grad, const Window& window, int64_t groups,
                          const TensorView& out, const TensorView& bias_out);
void unfold(const TensorView& x, const Window& window, const Spatial& positions, const TensorView& columns);
void fold(const TensorView& columns, const Window& window, const Spatial& positions, const TensorView& out);
void max_pool(const TensorView& x, const PoolArgs& args, const TensorView& out, const TensorView& indices);
void max_pool_backward(const TensorView& grad, const TensorView& indices, const TensorView& out);
void avg_pool(const TensorView& x, const PoolArgs& args, const TensorView& out);
void avg_pool_backward(const TensorView& grad, const PoolArgs& args, const TensorView& out);
void normalize(const NormArgs& args, const TensorView& x, const TensorView& weight, const TensorView& bias,
               const TensorView& out, const TensorView& mean, const TensorView& rstd);
void normalize_backward(const NormArgs& args, const TensorView& grad, const TensorView& x, const TensorView& weight,
                        const TensorView& mean, const TensorView& rstd, const TensorView& dx, const TensorView& dweight,
                        const TensorView& dbias);
void batch_norm(const BatchNormArgs& args, const TensorView& x, const TensorView& weight, const TensorView& bias,
                const TensorView& running_mean, const TensorView& running_var, const TensorView& out, const TensorView& mean,
                const TensorView& rstd);
void batch_norm_backward(const BatchNormArgs& args, const TensorView& grad, const TensorView& x, const TensorView& weight,
                         const TensorView& mean, const TensorView& rstd, const TensorView& dx, const TensorView& dweight,
                         const TensorView& dbias);
void lstm_cell(const TensorView& x_gates, const TensorView& h_gates, const TensorView& c, const TensorView& h_out,
               const TensorView& c_out, const TensorView& activated);
void lstm_cell_backward(const TensorView& dh, const TensorView& dc, const TensorView& activated, const TensorView& c,
                        const TensorView& c_out, const TensorView& dgates, const TensorView& dc_in);
void gru_cell(const TensorView& x_gates, const TensorView& h_gates, const TensorView& h, const TensorView& h_out,
              const TensorView& activated);
void gru_cell_backward(const TensorView& dh, const TensorView& activated, const TensorView& h, const TensorView& dx_gates,
                       const TensorView& dh_gates, const TensorView& dh_in);
void resample(const TensorView& x, int dim, const SparseRows& matrix, const TensorView& out);
void grid_sample(const SampleArgs& args, const TensorView& x, const TensorView& grid, const TensorView& out);
void grid_sample_backward(const SampleArgs& args, const TensorView& grad, const TensorView& x, const TensorView& grid,
                          const TensorView& dx, const TensorView& dgrid);

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
