// SPDX-License-Identifier: Apache-2.0
// The CUDA backend: every call queues its kernels on one stream and returns.
//
// Index checks record a fault on the device, which the next copy to the host reads and throws. With HALFSTEP_SYNC=1 in the
// environment, every call waits, so that an error is thrown by the call that caused it.
#include "cuda/backend.h"

#include <atomic>
#include <mutex>
#include <optional>
#include <utility>

#include "cuda/allocator.h"
#include "cuda/blas/gemm.h"
#include "cuda/kernels/kernels.h"
#include "cuda/rank_gpu.h"
#include "cuda/recording.h"
#include "cuda/runtime.h"
#include "cuda/stopwatch.h"
#include "cuda/upload_lane.h"
#include "framework/base/check.h"

#ifndef HALFSTEP_NO_CUDNN
#include "cuda/dnn/attention.h"
#include "cuda/dnn/cudnn.h"
#include "cuda/dnn/rnn.h"
#endif
#ifndef HALFSTEP_NO_NCCL
#include "cuda/nccl/group.h"
#endif
#include "framework/backend/dnn.h"
#include "framework/backend/recurrent_library.h"
#include "framework/base/text_stream.h"
#include "framework/comm/device_group.h"

namespace halfstep::cuda {
namespace {

// Describes the tensors among a call's arguments, for its errors.
std::string text_of(const TensorView& v) {
  TextWriter out;
  if (v.data || v.numel() == 0) out << ' ' << name(v.dtype) << v.shape;
  return out.str();
}
std::string text_of(const GemmArgs& g) { return text_of(g.a) + text_of(g.b) + text_of(g.c); }
std::string text_of(const CrossEntropyArgs& c) { return text_of(c.logits) + text_of(c.target); }
template <class T>
std::string text_of(const T& argument) {
  if constexpr (std::is_convertible_v<const T&, const TensorView&>) return text_of(static_cast<const TensorView&>(argument));
  return {};
}

// Throws if a C++ number is passed to a kernel that takes only tensors.
void check_argument(std::string_view call, const TensorView& v) {
  if (!v.number) return;
  const bool takes_numbers =
      call == "binary" || call == "binary_backward" || call == "test" || call == "bitwise" || call == "where";
  check<DeviceError>(takes_numbers, call, "takes tensors of the device, got a C++ number");
}
template <class T>
void check_argument(std::string_view call, const T& argument) {
  if constexpr (std::is_convertible_v<const T&, const TensorView&>) check_argument(call, static_cast<const TensorView&>(argument));
}

std::string describe_dnn() {
#ifdef HALFSTEP_NO_CUDNN
  return "";
#else
  return ", " + cudnn_version();
#endif
}

class CudaBackend final : public Backend,
                          public AttentionLibrary,
                          public RecurrentLibrary,
                          public ProductReporter,
                          public MemoryReporter,
                          public DeviceGroups {
 public:
  explicit CudaBackend(CudaAllocator& memory) : CudaBackend(&memory) {  // after this, an exception runs the destructor
    check_cuda(cudaStreamCreateWithFlags(&queue_.stream, cudaStreamNonBlocking), "cudaStreamCreate");
    queue_.scratch = static_cast<double*>(memory.allocate(kScratchBytes, MemoryTag::workspace));
    const size_t zeros = sizeof(IndexFault) + kCounters * sizeof(uint32_t);
    fault_ = static_cast<IndexFault*>(memory.allocate(zeros, MemoryTag::workspace));
    queue_.counters = reinterpret_cast<uint32_t*>(fault_ + 1);
    // Launches a kernel, so that a build without code for this GPU fails here, not in the middle of training. Zeros take none.
    const TensorView whole{fault_, DType::u8, {int64_t(zeros)}, {1}};
    cuda::fill(queue_, whole, 1);
    cuda::fill(queue_, whole, 0);
  }
  ~CudaBackend() override {
    if (queue_.scratch) memory_.release(queue_.scratch);
    if (fault_) memory_.release(fault_);
    if (queue_.stream) cudaStreamDestroy(queue_.stream);
  }

  Device::Type device_type() const override { return Device::Type::cuda; }
  std::string describe() const override { return describe_device() + ", " + describe_blas() + describe_dnn(); }
  std::vector<ProductReport> take_product_reports() override {
    const std::lock_guard lock(mutex_);
    return product_reports();
  }
  size_t available_memory() override { return memory_.available(); }
  void synchronize() override {
    const std::lock_guard lock(mutex_);
    read_back("synchronize", nullptr, nullptr, 0);
  }
  uint64_t host_reads() const override { return host_reads_; }

#define HS_UNPACK(...) __VA_ARGS__
#define HS_KERNEL(name, parameters, arguments)                                                      \
  void name parameters override {                                                                   \
    run(                                                                                            \
        #name, [&](const auto&... passed) { cuda::name(queue_, passed...); }, HS_UNPACK arguments); \
  }
#include "framework/backend/kernels.def"
#undef HS_UNPACK

  int64_t check_targets(const TensorView& target, int64_t classes, int64_t ignore_index) override {
    run(
        "check_targets", [&](const auto&... passed) { cuda::check_targets(queue_, passed..., fault_); }, target, classes,
        ignore_index);
    return defer_fault();
  }
  int64_t check_indices(const TensorView& index, int64_t size) override {
    run(
        "check_indices", [&](const auto&... passed) { cuda::check_indices(queue_, passed..., fault_); }, index, size);
    return defer_fault();
  }
  AuxLayout activation_aux(Activation activation, int64_t rows, int64_t columns, DType dtype) const override {
    if (activation == Activation::relu && !cuda::wants_relu_mask(dtype)) return {};
    return cuda::activation_aux(activation, rows, columns, dtype);
  }
  int64_t product_row(int64_t m, int64_t n, int64_t k, DType dtype) const override { return cuda::product_row(m, n, k, dtype); }
  // In float32 and float64 the sum costs little beside the product that reads the gradient (fusion.cpp).
  bool adds_up_columns(DType dtype) const override { return is_half(dtype); }

#ifdef HALFSTEP_NO_CUDNN
  bool attention(const AttentionArgs&, Generator::State, const TensorView&, const TensorView&, bool) override { return false; }
  bool attention_backward(const AttentionArgs&, Generator::State, const AttentionGradients&) override { return false; }
  std::optional<RecurrentSpaces> recurrent_spaces(const RecurrentArgs&) override { return {}; }
  bool recurrent(const RecurrentArgs&, const RecurrentTensors&) override { return false; }
  bool recurrent_backward(const RecurrentArgs&, const RecurrentTensors&, const RecurrentGradients&) override { return false; }
#else
  bool attention(const AttentionArgs& args, Generator::State state, const TensorView& out, const TensorView& stats,
                 bool differentiable) override {
    bool done = false;
    run("attention", [&] { done = dnn::attention(queue_, args, dropout_state(args, state), out, stats, differentiable); });
    return done;
  }
  bool attention_backward(const AttentionArgs& args, Generator::State state, const AttentionGradients& gradients) override {
    bool done = false;
    run("attention_backward", [&] { done = dnn::attention_backward(queue_, args, dropout_state(args, state), gradients); });
    return done;
  }
  std::optional<RecurrentSpaces> recurrent_spaces(const RecurrentArgs& args) override {
    std::optional<RecurrentSpaces> found;
    run(
        "recurrent", [&](const auto&... passed) { found = dnn::recurrent_spaces(queue_, passed...); }, args);
    return found;
  }
  bool recurrent(const RecurrentArgs& args, const RecurrentTensors& tensors) override {
    bool done = false;
    run(
        "recurrent", [&](const auto&... passed) { done = dnn::recurrent(queue_, passed...); }, args, tensors);
    return count_recurrent(done);
  }
  bool recurrent_backward(const RecurrentArgs& args, const RecurrentTensors& tensors, const RecurrentGradients& grads) override {
    bool done = false;
    run(
        "recurrent_backward", [&](const auto&... passed) { done = dnn::recurrent_backward(queue_, passed...); }, args, tensors,
        grads);
    return count_recurrent(done);
  }
#endif
  uint64_t recurrent_calls() const override { return recurrent_calls_; }

#ifdef HALFSTEP_NO_NCCL
  std::string why_no_group() override { return "halfstep was built without the header of NCCL, nccl.h"; }
  std::string describe_library() override { return "no NCCL: " + why_no_group(); }
  std::unique_ptr<ProcessGroup> open_group(std::unique_ptr<ProcessGroup>, const GroupOptions&) override {
    fail<DeviceError>("distributed", why_no_group());
  }
#else
  std::string why_no_group() override { return why_no_nccl(); }
  std::string describe_library() override { return describe_nccl(); }
  std::unique_ptr<ProcessGroup> open_group(std::unique_ptr<ProcessGroup> host, const GroupOptions& options) override {
    const auto keep = [this](std::shared_ptr<void> object) { recorder_->keep(std::move(object)); };
    return open_nccl_group(std::move(host), {queue_, mutex_, keep, before_waiting_}, options);
  }
#endif
  std::string device_identity() override { return device_uuid(); }

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
  std::unique_ptr<Stopwatch> open_stopwatch() override { return std::make_unique<CudaStopwatch>(queue_, mutex_); }
  void copy_to_host(const void* src, void* dst, size_t bytes) override {
    const std::lock_guard lock(mutex_);
    read_back("copy_to_host", src, dst, bytes);
  }

  // ---- recording. Holds the lock from begin to end, so that no other thread's work is captured.
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
  explicit CudaBackend(CudaAllocator* memory) : memory_(*memory) {}

  // Queues the launches of f(arguments), one call at a time; errors name the call and its tensors.
  template <class F, class... Arguments>
  void run(std::string_view call, const F& f, const Arguments&... arguments) {
    const std::lock_guard lock(mutex_);
    try {
      (check_argument(call, arguments), ...);
      f(kernel_argument(arguments)...);
      if (sync_ && !queue_.recording) check_cuda(cudaStreamSynchronize(queue_.stream), "the work of this call");
    } catch (const RecordingError&) {
      throw;
    } catch (const DeviceError& e) {
      // An error in a recording need not stop the program: the same work may run without recording.
      if (queue_.recording) fail<RecordingError>("record", e.what());
      std::string text = e.what();
      const size_t help = text.find("\nhelp: ");  // the tensors are inserted before it
      text.insert(help == std::string::npos ? text.size() : help, (std::string() + ... + text_of(arguments)));
      fail<DeviceError>(call, text);
    }
  }

  // Returns an argument as it is passed on; draws of random numbers count from the recording's base.
  template <class T>
  const T& kernel_argument(const T& argument) const {
    return argument;
  }
  Generator::State kernel_argument(const Generator::State& state) const { return recorder_ ? recorder_->relative(state) : state; }

  // Returns the position of the draws; without dropout nothing is drawn, and the state is unused.
  Generator::State dropout_state(const AttentionArgs& args, const Generator::State& state) const {
    return args.dropout_p > 0 ? kernel_argument(state) : state;
  }

  // Copies to the host and waits, then throws the error of a check that failed meanwhile.
  void read_back(const char* call, const void* src, void* dst, size_t bytes) {
    check<RecordingError>(!queue_.recording, "record", "a value cannot be read by the host while work is recorded for replay",
                          Help{"keep .item(), printing and host decisions out of the step"});
    if (before_waiting_) before_waiting_();
    ++host_reads_;
    const auto* fault = static_cast<const IndexFault*>(fault_copy_.data());
    check_cuda(cudaMemcpyAsync(fault_copy_.data(), fault_, sizeof *fault_, cudaMemcpyDeviceToHost, queue_.stream), call);
    if (bytes > 0) check_cuda(cudaMemcpyAsync(dst, src, bytes, cudaMemcpyDeviceToHost, queue_.stream), call);
    check_cuda(cudaStreamSynchronize(queue_.stream), call);
    if (fault->kind == IndexFault::kNone) return;
    const IndexFault found = *fault;
    check_cuda(cudaMemsetAsync(fault_, 0, sizeof *fault_, queue_.stream), "cudaMemsetAsync");
    const char* what = found.kind == IndexFault::kTarget ? "target" : "index";
    fail<IndexError>(what, what, ' ', found.value, " at position ", found.position, " is outside [0, ", found.size,
                     "), found on the GPU by an earlier call", Help{"HALFSTEP_SYNC=1 makes that call itself throw"});
  }
  // Counts a call that cuDNN computed; returns `done`.
  bool count_recurrent(bool done) {
    recurrent_calls_ += done;
    return done;
  }
  // Leaves the result of a check to the next copy to the host: returns -1, the position of "no fault".
  int64_t defer_fault() {
    if (sync_ && !queue_.recording) synchronize();
    return -1;
  }

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
  std::function<void()> before_waiting_;  // hook of the group whose operations are part of recordings
  std::atomic<uint64_t> host_reads_{0}, recurrent_calls_{0};
  const bool sync_ = flag_in_environment("HALFSTEP_SYNC");
};

}  // namespace

std::unique_ptr<Backend> make_backend(CudaAllocator& memory) { return std::make_unique<CudaBackend>(memory); }

void register_backend() {
  const std::string& reason = why_unavailable();
  check<DeviceError>(reason.empty(), "device", "cuda:0 is not available: ", reason);
  static auto* memory = new CudaAllocator;  // never destroyed: tensors in static variables may outlive it
  register_allocator(Device::Type::cuda, memory);
  halfstep::register_backend(make_backend(*memory));
}

}  // namespace halfstep::cuda
