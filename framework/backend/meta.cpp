#include "framework/backend/meta.h"

#include "framework/base/check.h"

namespace halfstep {
namespace {

class MetaBackend final : public Backend {
 public:
  Device::Type device_type() const override { return Device::Type::meta; }
  std::string describe() const override { return "shapes and dtypes only, no values"; }
  void synchronize() override {}
  void copy_to_host(const void*, void*, size_t bytes) override {
    check<MetaError>(bytes == 0, "meta", "a tensor on the device meta has no values to read",
                     Help{"only shapes, dtypes and sizes are known there: run this on the cpu or a GPU"});
  }
  uint64_t host_reads() const override { return 0; }

  void copy(const TensorView&, const TensorView&) override {}
  void fill(const TensorView&, double) override {}
  void arange(const TensorView&, double, double) override {}
  void copy_from_host(const void*, void*, size_t) override {}
  void unary(Unary, const TensorView&, const TensorView&) override {}
  void unary_backward(Unary, const TensorView&, const TensorView&, const TensorView&) override {}
  void binary(Binary, const TensorView&, const TensorView&, const TensorView&) override {}
  void binary_backward(Binary, int, const TensorView&, const TensorView&, const TensorView&, const TensorView&) override {}
  void test(Test, const TensorView&, const TensorView&, const TensorView&) override {}
  void where(const TensorView&, const TensorView&, const TensorView&, const TensorView&) override {}
  void pointwise(Pointwise, std::span<const TensorView>, double, double, const TensorView&) override {}
  void pointwise_backward(Pointwise, int, const TensorView&, std::span<const TensorView>, double, double,
                          const TensorView&) override {}
  void gemm(const GemmArgs&) override {}
  void reduce(Reduce, const TensorView&, const TensorView&) override {}
  void arg_reduce(bool, const TensorView&, int, const TensorView&, const TensorView&) override {}
  void variance(const TensorView&, double, const TensorView&, const TensorView&) override {}
  void scan(Scan, const TensorView&, int, bool, const TensorView&) override {}
  void sort(const TensorView&, int, bool, int64_t, const TensorView&, const TensorView&) override {}
  void softmax(const TensorView&, const TensorView&, int, bool) override {}
  void softmax_backward(const TensorView&, const TensorView&, const TensorView&, int, bool) override {}
  void cross_entropy(const CrossEntropyArgs&, const TensorView&, const TensorView&, const TensorView&) override {}
  void cross_entropy_backward(const CrossEntropyArgs&, const TensorView&, const TensorView&, const TensorView&,
                              const TensorView&) override {}
  int64_t check_targets(const TensorView&, int64_t, int64_t) override { return -1; }
  void mse(const TensorView&, const TensorView&, Reduction, const TensorView&, const MseGradient&) override {}
  void mse_backward(const TensorView&, const TensorView&, const TensorView&, Reduction, double, const TensorView&) override {}
  int64_t check_indices(const TensorView&, int64_t) override { return -1; }
  void gather(const TensorView&, int, const TensorView&, const TensorView&) override {}
  void scatter_add(const TensorView&, int, const TensorView&, const TensorView&) override {}
  void scatter(const TensorView&, int, const TensorView&, const TensorView&) override {}
  void index_select(const TensorView&, int, const TensorView&, const TensorView&) override {}
  void index_add(const TensorView&, int, const TensorView&, const TensorView&) override {}
  void index_copy(const TensorView&, int, const TensorView&, const TensorView&) override {}
  void conv(const TensorView&, const TensorView&, const TensorView&, const Window&, int64_t, const TensorView&) override {}
  void conv_backward_data(const TensorView&, const TensorView&, const TensorView&, const Window&, int64_t,
                          const TensorView&) override {}
  void conv_backward_weight(const TensorView&, const TensorView&, const Window&, int64_t, const TensorView&,
                            const TensorView&) override {}
  void unfold(const TensorView&, const Window&, const Spatial&, const TensorView&) override {}
  void fold(const TensorView&, const Window&, const Spatial&, const TensorView&) override {}
  void max_pool(const TensorView&, const PoolArgs&, const TensorView&, const TensorView&) override {}
  void max_pool_backward(const TensorView&, const TensorView&, const TensorView&) override {}
  void avg_pool(const TensorView&, const PoolArgs&, const TensorView&) override {}
  void avg_pool_backward(const TensorView&, const PoolArgs&, const TensorView&) override {}
  void normalize(const NormArgs&, const TensorView&, const TensorView&, const TensorView&, const TensorView&, const TensorView&,
                 const TensorView&) override {}
  void normalize_backward(const NormArgs&, const TensorView&, const TensorView&, const TensorView&, const TensorView&,
                          const TensorView&, const TensorView&, const TensorView&, const TensorView&) override {}
  void batch_norm(const BatchNormArgs&, const TensorView&, const TensorView&, const TensorView&, const TensorView&,
                  const TensorView&, const TensorView&, const TensorView&, const TensorView&) override {}
  void batch_norm_backward(const BatchNormArgs&, const TensorView&, const TensorView&, const TensorView&, const TensorView&,
                           const TensorView&, const TensorView&, const TensorView&, const TensorView&) override {}
  void lstm_cell(const TensorView&, const TensorView&, const TensorView&, const TensorView&, const TensorView&,
                 const TensorView&) override {}
  void lstm_cell_backward(const TensorView&, const TensorView&, const TensorView&, const TensorView&, const TensorView&,
                          const TensorView&, const TensorView&) override {}
  void gru_cell(const TensorView&, const TensorView&, const TensorView&, const TensorView&, const TensorView&) override {}
  void gru_cell_backward(const TensorView&, const TensorView&, const TensorView&, const TensorView&, const TensorView&,
                         const TensorView&) override {}
  void resample(const TensorView&, int, const SparseRows&, const TensorView&) override {}
  void grid_sample(const SampleArgs&, const TensorView&, const TensorView&, const TensorView&) override {}
  void grid_sample_backward(const SampleArgs&, const TensorView&, const TensorView&, const TensorView&, const TensorView&,
                            const TensorView&) override {}
  void random_uniform(const TensorView&, Generator::State, double, double) override {}
  void random_normal(const TensorView&, Generator::State, double, double) override {}
  void random_integers(const TensorView&, Generator::State, int64_t, int64_t) override {}
  void dropout(const TensorView&, const TensorView&, double, Generator::State) override {}
  void check_finite(std::span<const TensorView>, float*) override {}
  void unscale(std::span<const TensorView>, const float*, float*) override {}
  void end_step(const float*, const math::StepTail&) override {}
  void sgd(std::span<const ParamUpdate>, const math::SgdArgs&, const StepControl&) override {}
  void adam(std::span<const ParamUpdate>, const math::AdamArgs&, const StepControl&) override {}
  void norm(std::span<const TensorView>, double, float*) override {}
  void clip(std::span<const TensorView>, const float*, double) override {}
};

}  // namespace

std::unique_ptr<Backend> make_meta_backend() { return std::make_unique<MetaBackend>(); }

}  // namespace halfstep
