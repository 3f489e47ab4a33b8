// The CUDA backend: every call queues its kernels on one stream and returns.
//
// Index checks leave a note on the device, which the next copy to the host reads and throws. HALFSTEP_SYNC=1 in the environment
// waits after every call, so that an error is thrown by the call that made it.
#include "cuda/backend.h"

#include <atomic>
#include <mutex>
#include <optional>
#include <sstream>

#include "cuda/allocator.h"
#include "cuda/blas/gemm.h"
#include "cuda/convolution.h"
#include "cuda/kernels/kernels.h"
#include "cuda/recording.h"
#include "cuda/runtime.h"
#include "cuda/upload_lane.h"
#include "framework/base/check.h"

namespace halfstep::cuda {
namespace {

std::string text_of(const TensorView& v) {
  std::ostringstream out;
  if (v.data || v.numel() == 0) out << ' ' << name(v.dtype) << v.shape;
  return out.str();
}

class CudaBackend final : public Backend, public ProductReporter {
 public:
  explicit CudaBackend(CudaAllocator& memory) : memory_(memory) {
    check_cuda(cudaStreamCreateWithFlags(&queue_.stream, cudaStreamNonBlocking), "cudaStreamCreate");
    queue_.scratch = static_cast<double*>(memory.allocate(kScratchBytes, MemoryTag::workspace));
    const size_t zeros = sizeof(IndexFault) + kCounters * sizeof(uint32_t);
    fault_ = static_cast<IndexFault*>(memory.allocate(zeros, MemoryTag::workspace));
    queue_.counters = reinterpret_cast<uint32_t*>(fault_ + 1);
    // By a kernel: a build without code for this GPU shows here, not in the middle of a training.
    cuda::fill(queue_, {fault_, DType::u8, {int64_t(zeros)}, {1}}, 0);
  }
  ~CudaBackend() override {
    memory_.release(queue_.scratch);
    memory_.release(fault_);
    cudaStreamDestroy(queue_.stream);
  }

  Device::Type device_type() const override { return Device::Type::cuda; }
  std::string describe() const override { return describe_device() + ", " + describe_blas(); }
  std::vector<ProductReport> take_product_reports() override {
    const std::lock_guard lock(mutex_);
    return product_reports();
  }
  void synchronize() override {
    const std::lock_guard lock(mutex_);
    read_back("synchronize", nullptr, nullptr, 0);
  }
  uint64_t host_reads() const override { return host_reads_; }

  // ---- data movement
  void copy(const TensorView& src, const TensorView& dst) override {
    run("copy", [&] { cuda::copy(queue_, src, dst); }, src, dst);
  }
  void fill(const TensorView& dst, double value) override {
    run("fill", [&] { cuda::fill(queue_, dst, value); }, dst);
  }
  void arange(const TensorView& dst, double start, double step) override {
    run("arange", [&] { cuda::arange(queue_, dst, start, step); }, dst);
  }
  void copy_from_host(const void* src, void* dst, size_t bytes) override {
    run("copy_from_host", [&] {
      check<RecordingError>(!queue_.recording, "record", "a copy from the host cannot be recorded for replay");
      uploader_.copy(src, dst, bytes, queue_.stream);
    });
  }
  std::unique_ptr<UploadLane> open_upload_lane() override {
    const std::lock_guard lock(mutex_);
    return std::make_unique<CudaUploadLane>(queue_.stream, mutex_);
  }
  void copy_to_host(const void* src, void* dst, size_t bytes) override {
    const std::lock_guard lock(mutex_);
    read_back("copy_to_host", src, dst, bytes);
  }

  // ---- elementwise
  void unary(Unary op, const TensorView& x, const TensorView& out) override {
    run("unary", [&] { cuda::unary(queue_, op, x, out); }, x, out);
  }
  void unary_backward(Unary op, const TensorView& grad, const TensorView& saved, const TensorView& out) override {
    run("unary_backward", [&] { cuda::unary_backward(queue_, op, grad, saved, out); }, grad, saved, out);
  }
  void binary(Binary op, const TensorView& a, const TensorView& b, const TensorView& out) override {
    run<true>("binary", [&] { cuda::binary(queue_, op, a, b, out); }, a, b, out);
  }
  void binary_backward(Binary op, int input, const TensorView& grad, const TensorView& a, const TensorView& b,
                       const TensorView& out) override {
    run<true>("binary_backward", [&] { cuda::binary_backward(queue_, op, input, grad, a, b, out); }, grad, a, b, out);
  }
  void test(Test op, const TensorView& a, const TensorView& b, const TensorView& out) override {
    run<true>("test", [&] { cuda::test(queue_, op, a, b, out); }, a, b, out);
  }
  void where(const TensorView& cond, const TensorView& a, const TensorView& b, const TensorView& out) override {
    run<true>("where", [&] { cuda::where(queue_, cond, a, b, out); }, cond, a, b, out);
  }

  // ---- matrix products
  void gemm(const GemmArgs& args) override {
    run("gemm", [&] { cuda::gemm(queue_, args); }, args.a, args.b, args.c);
  }
  AuxLayout activation_aux(Activation activation, int64_t rows, int64_t columns, DType dtype) const override {
    return cuda::activation_aux(activation, rows, columns, dtype);
  }

  // ---- reductions, rows, losses
  void reduce(Reduce op, const TensorView& x, const TensorView& out) override {
    run("reduce", [&] { cuda::reduce(queue_, op, x, out); }, x, out);
  }
  void arg_reduce(bool largest, const TensorView& x, int dim, const TensorView& values, const TensorView& indices) override {
    run("arg_reduce", [&] { cuda::arg_reduce(queue_, largest, x, dim, values, indices); }, x, indices);
  }
  void softmax(const TensorView& x, const TensorView& out, int dim, bool log) override {
    run("softmax", [&] { cuda::softmax(queue_, x, out, dim, log); }, x, out);
  }
  void softmax_backward(const TensorView& grad, const TensorView& y, const TensorView& out, int dim, bool log) override {
    run("softmax_backward", [&] { cuda::softmax_backward(queue_, grad, y, out, dim, log); }, grad, y, out);
  }
  void cross_entropy(const CrossEntropyArgs& args, const TensorView& loss, const TensorView& lse,
                     const TensorView& total) override {
    run("cross_entropy", [&] { cuda::cross_entropy(queue_, args, loss, lse, total); }, args.logits, args.target);
  }
  void cross_entropy_backward(const CrossEntropyArgs& args, const TensorView& grad, const TensorView& lse, const TensorView& total,
                              const TensorView& out) override {
    run("cross_entropy_backward", [&] { cuda::cross_entropy_backward(queue_, args, grad, lse, total, out); }, args.logits, out);
  }
  int64_t check_targets(const TensorView& target, int64_t classes, int64_t ignore_index) override {
    run("check_targets", [&] { cuda::check_targets(queue_, target, classes, ignore_index, fault_); }, target);
    return report_now();
  }
  void mse(const TensorView& a, const TensorView& b, Reduction reduction, const TensorView& loss,
           const MseGradient& gradient) override {
    run("mse", [&] { cuda::mse(queue_, a, b, reduction, loss, gradient); }, a, b);
  }
  void mse_backward(const TensorView& a, const TensorView& b, const TensorView& grad, Reduction reduction, double sign,
                    const TensorView& out) override {
    run("mse_backward", [&] { cuda::mse_backward(queue_, a, b, grad, reduction, sign, out); }, a, b, out);
  }

  // ---- indexing
  int64_t check_indices(const TensorView& index, int64_t size) override {
    run("check_indices", [&] { cuda::check_indices(queue_, index, size, fault_); }, index);
    return report_now();
  }
  void gather(const TensorView& x, int dim, const TensorView& index, const TensorView& out) override {
    run("gather", [&] { cuda::gather(queue_, x, dim, index, out); }, x, index);
  }
  void scatter_add(const TensorView& out, int dim, const TensorView& index, const TensorView& src) override {
    run("scatter_add", [&] { cuda::scatter_add(queue_, out, dim, index, src); }, out, index, src);
  }

  void pointwise(Pointwise op, std::span<const TensorView> in, double p, double q, const TensorView& out) override {
    run("pointwise", [&] { cuda::pointwise(queue_, op, in, p, q, out); }, out);
  }
  void pointwise_backward(Pointwise op, int input, const TensorView& grad, std::span<const TensorView> in, double p, double q,
                          const TensorView& out) override {
    run("pointwise_backward", [&] { cuda::pointwise_backward(queue_, op, input, grad, in, p, q, out); }, grad, out);
  }
  void variance(const TensorView& x, double correction, const TensorView& mean, const TensorView& var) override {
    run("variance", [&] { cuda::variance(queue_, x, correction, mean, var); }, x, mean, var);
  }
  void scan(Scan op, const TensorView& x, int dim, bool reverse, const TensorView& out) override {
    run("scan", [&] { cuda::scan(queue_, op, x, dim, reverse, out); }, x, out);
  }
  void sort(const TensorView& x, int dim, bool descending, int64_t k, const TensorView& values,
            const TensorView& indices) override {
    run("sort", [&] { cuda::sort(queue_, x, dim, descending, k, values, indices); }, x, values, indices);
  }
  void scatter(const TensorView& out, int dim, const TensorView& index, const TensorView& src) override {
    run("scatter", [&] { cuda::scatter(queue_, out, dim, index, src); }, out, index, src);
  }
  void index_select(const TensorView& x, int dim, const TensorView& index, const TensorView& out) override {
    run("index_select", [&] { cuda::index_select(queue_, x, dim, index, out); }, x, index, out);
  }
  void index_add(const TensorView& out, int dim, const TensorView& index, const TensorView& src) override {
    run("index_add", [&] { cuda::index_add(queue_, out, dim, index, src); }, out, index, src);
  }
  void index_copy(const TensorView& out, int dim, const TensorView& index, const TensorView& src) override {
    run("index_copy", [&] { cuda::index_copy(queue_, out, dim, index, src); }, out, index, src);
  }
  void conv(const TensorView& x, const TensorView& weight, const TensorView& bias, const Window& window, int64_t groups,
            const TensorView& out) override {
    run("conv", [&] { cuda::conv(queue_, x, weight, bias, window, groups, out); }, x, weight, bias, out);
  }
  void conv_backward_data(const TensorView& grad, const TensorView& weight, const TensorView& bias, const Window& window,
                          int64_t groups, const TensorView& out) override {
    run("conv_backward_data", [&] { cuda::conv_backward_data(queue_, grad, weight, bias, window, groups, out); }, grad, weight, bias, out);
  }
  void conv_backward_weight(const TensorView& x, const TensorView& grad, const Window& window, int64_t groups,
                            const TensorView& out, const TensorView& bias_out) override {
    run("conv_backward_weight", [&] { cuda::conv_backward_weight(queue_, x, grad, window, groups, out, bias_out); }, x, grad, out, bias_out);
  }
  void unfold(const TensorView& x, const Window& window, const Spatial& positions, const TensorView& columns) override {
    run("unfold", [&] { cuda::unfold(queue_, x, window, positions, columns); }, x, columns);
  }
  void fold(const TensorView& columns, const Window& window, const Spatial& positions, const TensorView& out) override {
    run("fold", [&] { cuda::fold(queue_, columns, window, positions, out); }, columns, out);
  }
  void max_pool(const TensorView& x, const PoolArgs& args, const TensorView& out, const TensorView& indices) override {
    run("max_pool", [&] { cuda::max_pool(queue_, x, args, out, indices); }, x, out, indices);
  }
  void max_pool_backward(const TensorView& grad, const TensorView& indices, const TensorView& out) override {
    run("max_pool_backward", [&] { cuda::max_pool_backward(queue_, grad, indices, out); }, grad, indices, out);
  }
  void avg_pool(const TensorView& x, const PoolArgs& args, const TensorView& out) override {
    run("avg_pool", [&] { cuda::avg_pool(queue_, x, args, out); }, x, out);
  }
  void avg_pool_backward(const TensorView& grad, const PoolArgs& args, const TensorView& out) override {
    run("avg_pool_backward", [&] { cuda::avg_pool_backward(queue_, grad, args, out); }, grad, out);
  }
  void normalize(const NormArgs& args, const TensorView& x, const TensorView& weight, const TensorView& bias,
                 const TensorView& out, const TensorView& mean, const TensorView& rstd) override {
    run("normalize", [&] { cuda::normalize(queue_, args, x, weight, bias, out, mean, rstd); }, x, weight, bias, out);
  }
  void normalize_backward(const NormArgs& args, const TensorView& grad, const TensorView& x, const TensorView& weight,
                          const TensorView& mean, const TensorView& rstd, const TensorView& dx, const TensorView& dweight,
                          const TensorView& dbias) override {
    run("normalize_backward", [&] { cuda::normalize_backward(queue_, args, grad, x, weight, mean, rstd, dx, dweight, dbias); }, grad, x, weight, mean);
  }
  void batch_norm(const BatchNormArgs& args, const TensorView& x, const TensorView& weight, const TensorView& bias,
                  const TensorView& running_mean, const TensorView& running_var, const TensorView& out,
                  const TensorView& mean, const TensorView& rstd) override {
    run("batch_norm", [&] { cuda::batch_norm(queue_, args, x, weight, bias, running_mean, running_var, out, mean, rstd); }, x, weight, bias, running_mean);
  }
  void batch_norm_backward(const BatchNormArgs& args, const TensorView& grad, const TensorView& x, const TensorView& weight,
                           const TensorView& mean, const TensorView& rstd, const TensorView& dx, const TensorView& dweight,
                           const TensorView& dbias) override {
    run("batch_norm_backward", [&] { cuda::batch_norm_backward(queue_, args, grad, x, weight, mean, rstd, dx, dweight, dbias); }, grad, x, weight, mean);
  }
  void lstm_cell(const TensorView& x_gates, const TensorView& h_gates, const TensorView& c, const TensorView& h_out,
                 const TensorView& c_out, const TensorView& activated) override {
    run("lstm_cell", [&] { cuda::lstm_cell(queue_, x_gates, h_gates, c, h_out, c_out, activated); }, x_gates, h_gates, c, h_out);
  }
  void lstm_cell_backward(const TensorView& dh, const TensorView& dc, const TensorView& activated, const TensorView& c,
                          const TensorView& c_out, const TensorView& dgates, const TensorView& dc_in) override {
    run("lstm_cell_backward", [&] { cuda::lstm_cell_backward(queue_, dh, dc, activated, c, c_out, dgates, dc_in); }, dh, dc, activated, c);
  }
  void gru_cell(const TensorView& x_gates, const TensorView& h_gates, const TensorView& h, const TensorView& h_out,
                const TensorView& activated) override {
    run("gru_cell", [&] { cuda::gru_cell(queue_, x_gates, h_gates, h, h_out, activated); }, x_gates, h_gates, h, h_out);
  }
  void gru_cell_backward(const TensorView& dh, const TensorView& activated, const TensorView& h, const TensorView& dx_gates,
                         const TensorView& dh_gates, const TensorView& dh_in) override {
    run("gru_cell_backward", [&] { cuda::gru_cell_backward(queue_, dh, activated, h, dx_gates, dh_gates, dh_in); }, dh, activated, h, dx_gates);
  }
  void resample(const TensorView& x, int dim, const SparseRows& matrix, const TensorView& out) override {
    run("resample", [&] { cuda::resample(queue_, x, dim, matrix, out); }, x, out);
  }
  void grid_sample(const SampleArgs& args, const TensorView& x, const TensorView& grid, const TensorView& out) override {
    run("grid_sample", [&] { cuda::grid_sample(queue_, args, x, grid, out); }, x, grid, out);
  }
  void grid_sample_backward(const SampleArgs& args, const TensorView& grad, const TensorView& x, const TensorView& grid,
                            const TensorView& dx, const TensorView& dgrid) override {
    run("grid_sample_backward", [&] { cuda::grid_sample_backward(queue_, args, grad, x, grid, dx, dgrid); }, grad, x, grid, dx);
  }

  // ---- random numbers
  void random_uniform(const TensorView& dst, Generator::State state, double lo, double hi) override {
    run("random_uniform", [&] { cuda::random_uniform(queue_, dst, from_base(state), lo, hi); }, dst);
  }
  void random_normal(const TensorView& dst, Generator::State state, double mean, double stddev) override {
    run("random_normal", [&] { cuda::random_normal(queue_, dst, from_base(state), mean, stddev); }, dst);
  }
  void random_integers(const TensorView& dst, Generator::State state, int64_t lo, int64_t hi) override {
    run("random_integers", [&] { cuda::random_integers(queue_, dst, from_base(state), lo, hi); }, dst);
  }
  void dropout(const TensorView& x, const TensorView& out, double p, Generator::State state) override {
    run("dropout", [&] { cuda::dropout(queue_, x, out, p, from_base(state)); }, x, out);
  }

  // ---- the training tail
  void check_finite(std::span<const TensorView> grads, float* found_inf) override {
    run("check_finite", [&] { cuda::check_finite(queue_, grads, found_inf); });
  }
  void unscale(std::span<const TensorView> grads, const float* scale, float* found_inf) override {
    run("unscale", [&] { cuda::unscale(queue_, grads, scale, found_inf); });
  }
  void end_step(const float* found_inf, const math::StepTail& tail) override {
    run("end_step", [&] { cuda::end_step(queue_, found_inf, tail); });
  }
  void sgd(std::span<const ParamUpdate> params, const math::SgdArgs& args, const StepControl& control) override {
    run("sgd", [&] { cuda::sgd(queue_, params, args, control); });
  }
  void adam(std::span<const ParamUpdate> params, const math::AdamArgs& args, const StepControl& control) override {
    run("adam", [&] { cuda::adam(queue_, params, args, control); });
  }
  void norm(std::span<const TensorView> tensors, double p, float* out) override {
    run("norm", [&] { cuda::norm(queue_, tensors, p, out); });
  }
  void clip(std::span<const TensorView> tensors, const float* norm, double max_norm) override {
    run("clip", [&] { cuda::clip(queue_, tensors, norm, max_norm); });
  }

  // ---- recording. The lock is held from begin to end, so that no other thread's work is caught.
  bool can_record() const override { return true; }
  void begin_recording(Generator& generator, std::span<const TensorView> inputs) override {
    mutex_.lock();
    try {
      check<RecordingError>(!recorder_, "record", "a recording is already under way");
      recorder_.emplace(memory_, queue_.stream, uploader_, generator, inputs);
      queue_.recording = true;
      queue_.random_base = recorder_->random_base();
    } catch (...) {
      mutex_.unlock();
      throw;
    }
  }
  std::unique_ptr<Recording> end_recording() override {
    std::unique_ptr<Recording> result;
    try {
      result = recorder_->finish(mutex_);
    } catch (...) {
      abandon_recording();
      throw;
    }
    stop_recording();
    return result;
  }
  void abandon_recording() noexcept override {
    if (!recorder_) return;
    recorder_->abandon();
    stop_recording();
  }

 private:
  // Queues what f launches, one call at a time; errors name the call and its tensors. Numbers: whether views may be C++ numbers.
  template <bool Numbers = false, class F, class... Views>
  void run(const char* call, const F& f, const Views&... views) {
    const std::lock_guard lock(mutex_);
    try {
      (check<DeviceError>(Numbers || !views.number, call, "takes tensors of the device, got a C++ number"), ...);
      f();
      if (sync_ && !queue_.recording) check_cuda(cudaStreamSynchronize(queue_.stream), "the work of this call");
    } catch (const RecordingError&) {
      throw;
    } catch (const DeviceError& e) {
      // What goes wrong in a recording is no reason to stop: the same work may run without.
      if (queue_.recording) fail<RecordingError>("record", e.what());
      std::string text = e.what();
      const size_t help = text.find("\nhelp: ");  // the tensors belong before it
      text.insert(help == std::string::npos ? text.size() : help, (std::string() + ... + text_of(views)));
      fail<DeviceError>(call, text);
    }
  }

  // Copies to the host and waits, then throws what a check found meanwhile.
  void read_back(const char* call, const void* src, void* dst, size_t bytes) {
    check<RecordingError>(!queue_.recording, "record", "a value cannot be read by the host while work is recorded for replay",
                          Help{"keep .item(), printing and host decisions out of the step"});
    ++host_reads_;
    const auto* fault = static_cast<const IndexFault*>(fault_copy_.data());
    check_cuda(cudaMemcpyAsync(fault_copy_.data(), fault_, sizeof *fault_, cudaMemcpyDeviceToHost, queue_.stream), call);
    if (bytes > 0) check_cuda(cudaMemcpyAsync(dst, src, bytes, cudaMemcpyDeviceToHost, queue_.stream), call);
    check_cuda(cudaStreamSynchronize(queue_.stream), call);
    if (fault->kind == 0) return;
    const IndexFault found = *fault;
    check_cuda(cudaMemsetAsync(fault_, 0, sizeof *fault_, queue_.stream), "cudaMemsetAsync");
    const char* what = found.kind == 1 ? "target" : "index";
    fail<IndexError>(what, what, ' ', found.value, " at position ", found.position, " is outside [0, ", found.size,
                     "), found on the GPU by an earlier call", Help{"HALFSTEP_SYNC=1 makes that call itself throw"});
  }
  int64_t report_now() {
    if (sync_ && !queue_.recording) synchronize();
    return -1;
  }

  Generator::State from_base(Generator::State state) const { return recorder_ ? recorder_->relative(state) : state; }
  void stop_recording() noexcept {
    recorder_.reset();
    queue_.recording = false;
    queue_.random_base = nullptr;
    mutex_.unlock();
  }

  CudaAllocator& memory_;
  Queue queue_;
  IndexFault* fault_ = nullptr;
  Pinned fault_copy_{sizeof(IndexFault)};
  Uploader uploader_;
  std::optional<Recorder> recorder_;
  std::recursive_mutex mutex_;
  std::atomic<uint64_t> host_reads_{0};
  const bool sync_ = flag_in_environment("HALFSTEP_SYNC");
};

}  // namespace

void register_backend() {
  const std::string& reason = why_unavailable();
  check<DeviceError>(reason.empty(), "device", "cuda:0 is not available: ", reason);
  static auto* memory = new CudaAllocator;  // never destroyed: tensors in static variables may outlive it
  register_allocator(Device::Type::cuda, memory);
  halfstep::register_backend(std::make_unique<CudaBackend>(*memory));
}

}  // namespace halfstep::cuda
