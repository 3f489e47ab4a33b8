#include "cuda/recording.h"

#include "framework/base/check.h"

namespace halfstep::cuda {
namespace {

class GraphRecording final : public Recording {
 public:
  struct Parts {
    CudaAllocator& memory;
    CudaAllocator::Pool* pool;
    cudaStream_t stream;
    Uploader& uploader;
    std::recursive_mutex& mutex;
    Generator& generator;
    uint64_t seed;
    uint64_t draws;  // blocks of random numbers a replay takes
    uint64_t* random_base;
  };

  GraphRecording(cudaGraph_t graph, const Parts& parts) : p_(parts) {
    const cudaError_t error = cudaGraphInstantiate(&exec_, graph, 0);
    cudaGraphDestroy(graph);
    check_cuda(error, "cudaGraphInstantiate");
    cudaGraphUpload(exec_, p_.stream);  // so that the first replay need not; an error is that replay's
  }
  ~GraphRecording() override {
    const std::lock_guard lock(p_.mutex);
    cudaStreamSynchronize(p_.stream);
    if (exec_) cudaGraphExecDestroy(exec_);
    p_.memory.release(p_.random_base);
    p_.memory.release_pool(p_.pool);
  }

  void replay() override {
    const std::lock_guard lock(p_.mutex);
    if (p_.draws > 0) {
      Generator::State state = p_.generator.state();
      check<RecordingError>(state.seed == p_.seed, "record", "the generator was seeded anew since the work was recorded");
      p_.uploader.copy(&state.offset, p_.random_base, sizeof state.offset, p_.stream);
      state.offset += p_.draws;
      p_.generator.set_state(state);
    }
    check_cuda(cudaGraphLaunch(exec_, p_.stream), "cudaGraphLaunch");
  }

 private:
  Parts p_;
  cudaGraphExec_t exec_ = nullptr;
};

}  // namespace

Recorder::Recorder(CudaAllocator& memory, cudaStream_t stream, Uploader& uploader, Generator& generator)
    : memory_(memory),
      stream_(stream),
      uploader_(uploader),
      generator_(generator),
      start_(generator.state()),
      random_base_(static_cast<uint64_t*>(memory.allocate(sizeof(uint64_t), MemoryTag::workspace))) {
  memory.empty_cache();  // what the same work had until now: its own pool can take that, which later cannot be had
  const cudaError_t error = cudaStreamBeginCapture(stream_, cudaStreamCaptureModeThreadLocal);
  if (error != cudaSuccess) memory_.release(random_base_);
  check_cuda(error, "cudaStreamBeginCapture");
  pool_ = memory_.begin_pool();
}

Generator::State Recorder::relative(Generator::State state) const {
  check<RecordingError>(state.seed == start_.seed && state.offset >= start_.offset, "record",
                        "random numbers of another generator cannot be recorded for replay");
  return {state.seed, state.offset - start_.offset};
}

std::unique_ptr<Recording> Recorder::finish(std::recursive_mutex& mutex) {
  cudaGraph_t graph = nullptr;
  check_cuda(cudaStreamEndCapture(stream_, &graph), "cudaStreamEndCapture");
  const uint64_t draws = generator_.state().offset - start_.offset;
  auto recording = std::make_unique<GraphRecording>(
      graph, GraphRecording::Parts{memory_, pool_, stream_, uploader_, mutex, generator_, start_.seed, draws, random_base_});
  generator_.set_state(start_);
  memory_.end_pool();
  return recording;
}

void Recorder::abandon() noexcept {
  cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
  cudaStreamIsCapturing(stream_, &status);
  if (status != cudaStreamCaptureStatusNone) {
    cudaGraph_t graph = nullptr;
    cudaStreamEndCapture(stream_, &graph);
    if (graph) cudaGraphDestroy(graph);
  }
  cudaGetLastError();
  generator_.set_state(start_);
  memory_.release(random_base_);
  memory_.end_pool();
  memory_.release_pool(pool_);
}

}  // namespace halfstep::cuda
