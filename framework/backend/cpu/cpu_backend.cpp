#include "framework/backend/cpu/cpu_backend.h"

#include <atomic>
#include <cstring>
#include <fstream>

#include "framework/backend/cpu/gemm/gemm.h"
#include "framework/backend/cpu/kernels.h"

namespace halfstep {
namespace {

std::string cpu_name() {
  std::ifstream info("/proc/cpuinfo");
  for (std::string line; std::getline(info, line);) {
    if (line.starts_with("model name")) {
      const size_t colon = line.find(": ");
      if (colon != std::string::npos) return line.substr(colon + 2);
    }
  }
  return "CPU";
}

std::string instruction_set() {
#if defined(__x86_64__) && defined(__GNUC__)
#ifdef HALFSTEP_MULTIARCH
  if (__builtin_cpu_supports("x86-64-v4")) return "x86-64-v4 (AVX-512)";
  if (__builtin_cpu_supports("x86-64-v3")) return "x86-64-v3 (AVX2)";
  return "x86-64-v2";
#else
  return "as compiled";
#endif
#else
  return "portable";
#endif
}

class CpuBackend final : public Backend {
 public:
  Device::Type device_type() const override { return Device::Type::cpu; }
  std::string describe() const override {
    const int n = num_threads();
    return cpu_name() + ", " + std::to_string(n) + (n == 1 ? " thread" : " threads") + ", loops " + instruction_set() +
           ", bf16 matmul: " + cpu::bf16_support();
  }
  void synchronize() override {}

  void copy(const TensorView& src, const TensorView& dst) override { cpu::copy(src, dst); }
  void fill(const TensorView& dst, double value) override { cpu::fill(dst, value); }
  void arange(const TensorView& dst, double start, double step) override { cpu::arange(dst, start, step); }
  void copy_from_host(const void* src, void* dst, size_t bytes) override {
    if (bytes > 0) std::memcpy(dst, src, bytes);
  }
  void copy_to_host(const void* src, void* dst, size_t bytes) override {
    ++host_reads_;
    if (bytes > 0) std::memcpy(dst, src, bytes);
  }

  void unary(Unary op, const TensorView& x, const TensorView& out) override { cpu::unary(op, x, out); }
  void unary_backward(Unary op, const TensorView& grad, const TensorView& saved, const TensorView& out) override {
    cpu::unary_backward(op, grad, saved, out);
  }
  void binary(Binary op, const TensorView& a, const TensorView& b, const TensorView& out) override { cpu::binary(op, a, b, out); }
  void binary_backward(Binary op, int input, const TensorView& grad, const TensorView& a, const TensorView& b,
                       const TensorView& out) override {
    cpu::binary_backward(op, input, grad, a, b, out);
  }
  void test(Test op, const TensorView& a, const TensorView& b, const TensorView& out) override { cpu::test(op, a, b, out); }
  void where(const TensorView& cond, const TensorView& a, const TensorView& b, const TensorView& out) override {
    cpu::where(cond, a, b, out);
  }

  void gemm(const GemmArgs& args) override { cpu::gemm(args); }

  void reduce(Reduce op, const TensorView& x, const TensorView& out) override { cpu::reduce(op, x, out); }
  void arg_reduce(bool largest, const TensorView& x, int dim, const TensorView& values, const TensorView& indices) override {
    cpu::arg_reduce(largest, x, dim, values, indices);
  }

  void softmax(const TensorView& x, const TensorView& out, int dim, bool log) override { cpu::softmax(x, out, dim, log); }
  void softmax_backward(const TensorView& grad, const TensorView& y, const TensorView& out, int dim, bool log) override {
    cpu::softmax_backward(grad, y, out, dim, log);
  }

  void cross_entropy(const CrossEntropyArgs& args, const TensorView& loss, const TensorView& lse,
                     const TensorView& total) override {
    cpu::cross_entropy(args, loss, lse, total);
  }
  void cross_entropy_backward(const CrossEntropyArgs& args, const TensorView& grad, const TensorView& lse, const TensorView& total,
                              const TensorView& out) override {
    cpu::cross_entropy_backward(args, grad, lse, total, out);
  }
  int64_t check_targets(const TensorView& target, int64_t classes, int64_t ignore_index) override {
    return cpu::check_targets(target, classes, ignore_index);
  }
  void mse(const TensorView& a, const TensorView& b, Reduction reduction, const TensorView& loss,
           const MseGradient& gradient) override {
    cpu::mse(a, b, reduction, loss);
    if (gradient.out) cpu::mse_backward(a, b, gradient.grad, reduction, 1, gradient.out);
  }
  void mse_backward(const TensorView& a, const TensorView& b, const TensorView& grad, Reduction reduction, double sign,
                    const TensorView& out) override {
    cpu::mse_backward(a, b, grad, reduction, sign, out);
  }

  int64_t check_indices(const TensorView& index, int64_t size) override { return cpu::check_indices(index, size); }
  void gather(const TensorView& x, int dim, const TensorView& index, const TensorView& out) override {
    cpu::gather(x, dim, index, out);
  }
  void scatter_add(const TensorView& out, int dim, const TensorView& index, const TensorView& src) override {
    cpu::scatter_add(out, dim, index, src);
  }

  void pointwise(Pointwise op, std::span<const TensorView> in, double p, double q, const TensorView& out) override {
    cpu::pointwise(op, in, p, q, out);
  }
  void pointwise_backward(Pointwise op, int input, const TensorView& grad, std::span<const TensorView> in, double p, double q,
                          const TensorView& out) override {
    cpu::pointwise_backward(op, input, grad, in, p, q, out);
  }
  void variance(const TensorView& x, double correction, const TensorView& mean, const TensorView& var) override {
    cpu::variance(x, correction, mean, var);
  }
  void scan(Scan op, const TensorView& x, int dim, bool reverse, const TensorView& out) override {
    cpu::scan(op, x, dim, reverse, out);
  }
  void sort(const TensorView& x, int dim, bool descending, int64_t k, const TensorView& values,
            const TensorView& indices) override {
    cpu::sort(x, dim, descending, k, values, indices);
  }
  void scatter(const TensorView& out, int dim, const TensorView& index, const TensorView& src) override {
    cpu::scatter(out, dim, index, src);
  }
  void index_select(const TensorView& x, int dim, const TensorView& index, const TensorView& out) override {
    cpu::index_select(x, dim, index, out);
  }
  void index_add(const TensorView& out, int dim, const TensorView& index, const TensorView& src) override {
    cpu::index_add(out, dim, index, src);
  }
  void index_copy(const TensorView& out, int dim, const TensorView& index, const TensorView& src) override {
    cpu::index_copy(out, dim, index, src);
  }
  void conv(const TensorView& x, const TensorView& weight, const TensorView& bias, const Window& window, int64_t groups,
            const TensorView& out) override {
    cpu::conv(x, weight, bias, window, groups, out);
  }
  void conv_backward_data(const TensorView& grad, const TensorView& weight, const TensorView& bias, const Window& window,
                          int64_t groups, const TensorView& out) override {
    cpu::conv_backward_data(grad, weight, bias, window, groups, out);
  }
  void conv_backward_weight(const TensorView& x, const TensorView& grad, const Window& window, int64_t groups,
                            const TensorView& out, const TensorView& bias_out) override {
    cpu::conv_backward_weight(x, grad, window, groups, out, bias_out);
  }
  void unfold(const TensorView& x, const Window& window, const Spatial& positions, const TensorView& columns) override {
    cpu::unfold(x, window, positions, columns);
  }
  void fold(const TensorView& columns, const Window& window, const Spatial& positions, const TensorView& out) override {
    cpu::fold(columns, window, positions, out);
  }
  void max_pool(const TensorView& x, const PoolArgs& args, const TensorView& out, const TensorView& indices) override {
    cpu::max_pool(x, args, out, indices);
  }
  void max_pool_backward(const TensorView& grad, const TensorView& indices, const TensorView& out) override {
    cpu::max_pool_backward(grad, indices, out);
  }
  void avg_pool(const TensorView& x, const PoolArgs& args, const TensorView& out) override {
    cpu::avg_pool(x, args, out);
  }
  void avg_pool_backward(const TensorView& grad, const PoolArgs& args, const TensorView& out) override {
    cpu::avg_pool_backward(grad, args, out);
  }
  void normalize(const NormArgs& args, const TensorView& x, const TensorView& weight, const TensorView& bias,
                 const TensorView& out, const TensorView& mean, const TensorView& rstd) override {
    cpu::normalize(args, x, weight, bias, out, mean, rstd);
  }
  void normalize_backward(const NormArgs& args, const TensorView& grad, const TensorView& x, const TensorView& weight,
                          const TensorView& mean, const TensorView& rstd, const TensorView& dx, const TensorView& dweight,
                          const TensorView& dbias) override {
    cpu::normalize_backward(args, grad, x, weight, mean, rstd, dx, dweight, dbias);
  }
  void batch_norm(const BatchNormArgs& args, const TensorView& x, const TensorView& weight, const TensorView& bias,
                  const TensorView& running_mean, const TensorView& running_var, const TensorView& out,
                  const TensorView& mean, const TensorView& rstd) override {
    cpu::batch_norm(args, x, weight, bias, running_mean, running_var, out, mean, rstd);
  }
  void batch_norm_backward(const BatchNormArgs& args, const TensorView& grad, const TensorView& x, const TensorView& weight,
                           const TensorView& mean, const TensorView& rstd, const TensorView& dx, const TensorView& dweight,
                           const TensorView& dbias) override {
    cpu::batch_norm_backward(args, grad, x, weight, mean, rstd, dx, dweight, dbias);
  }
  void lstm_cell(const TensorView& x_gates, const TensorView& h_gates, const TensorView& c, const TensorView& h_out,
                 const TensorView& c_out, const TensorView& activated) override {
    cpu::lstm_cell(x_gates, h_gates, c, h_out, c_out, activated);
  }
  void lstm_cell_backward(const TensorView& dh, const TensorView& dc, const TensorView& activated, const TensorView& c,
                          const TensorView& c_out, const TensorView& dgates, const TensorView& dc_in) override {
    cpu::lstm_cell_backward(dh, dc, activated, c, c_out, dgates, dc_in);
  }
  void gru_cell(const TensorView& x_gates, const TensorView& h_gates, const TensorView& h, const TensorView& h_out,
                const TensorView& activated) override {
    cpu::gru_cell(x_gates, h_gates, h, h_out, activated);
  }
  void gru_cell_backward(const TensorView& dh, const TensorView& activated, const TensorView& h, const TensorView& dx_gates,
                         const TensorView& dh_gates, const TensorView& dh_in) override {
    cpu::gru_cell_backward(dh, activated, h, dx_gates, dh_gates, dh_in);
  }
  void resample(const TensorView& x, int dim, const SparseRows& matrix, const TensorView& out) override {
    cpu::resample(x, dim, matrix, out);
  }
  void grid_sample(const SampleArgs& args, const TensorView& x, const TensorView& grid, const TensorView& out) override {
    cpu::grid_sample(args, x, grid, out);
  }
  void grid_sample_backward(const SampleArgs& args, const TensorView& grad, const TensorView& x, const TensorView& grid,
                            const TensorView& dx, const TensorView& dgrid) override {
    cpu::grid_sample_backward(args, grad, x, grid, dx, dgrid);
  }
  void random_uniform(const TensorView& dst, Generator::State state, double lo, double hi) override {
    cpu::random_uniform(dst, state, lo, hi);
  }
  void random_normal(const TensorView& dst, Generator::State state, double mean, double stddev) override {
    cpu::random_normal(dst, state, mean, stddev);
  }
  void random_integers(const TensorView& dst, Generator::State state, int64_t lo, int64_t hi) override {
    cpu::random_integers(dst, state, lo, hi);
  }
  void dropout(const TensorView& x, const TensorView& out, double p, Generator::State state) override {
    cpu::dropout(x, out, p, state);
  }

  void check_finite(std::span<const TensorView> grads, float* found_inf) override { cpu::check_finite(grads, found_inf); }
  void unscale(std::span<const TensorView> grads, const float* scale, float* found_inf) override {
    cpu::unscale(grads, scale, found_inf);
  }
  void end_step(const float* found_inf, const math::StepTail& tail) override { tail.run(found_inf && *found_inf != 0); }
  void sgd(std::span<const ParamUpdate> params, const math::SgdArgs& args, const StepControl& control) override {
    cpu::sgd(params, args, control);
  }
  void adam(std::span<const ParamUpdate> params, const math::AdamArgs& args, const StepControl& control) override {
    cpu::adam(params, args, control);
  }
  void norm(std::span<const TensorView> tensors, double p, float* out) override { cpu::norm(tensors, p, out); }
  void clip(std::span<const TensorView> tensors, const float* norm, double max_norm) override {
    cpu::clip(tensors, norm, max_norm);
  }

  uint64_t host_reads() const override { return host_reads_; }

 private:
  std::atomic<uint64_t> host_reads_{0};
};

}  // namespace

std::unique_ptr<Backend> make_cpu_backend() { return std::make_unique<CpuBackend>(); }

}  // namespace halfstep
