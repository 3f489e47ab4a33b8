// SPDX-License-Identifier: Apache-2.0
#include "cuda/recording.h"

#include <algorithm>
#include <cstring>
#include <utility>

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
    uint64_t draws;  // blocks of random numbers per replay
    uint64_t* random_base;
    std::vector<GraphInput> inputs;
    std::vector<InputLaunch> readers;
    std::vector<std::shared_ptr<void>> kept;
  };

  // Takes the graph, whose nodes replays may change.
  GraphRecording(cudaGraph_t graph, Parts parts) : parts_(std::move(parts)), graph_(graph) {
    if (const cudaError_t error = cudaGraphInstantiate(&exec_, graph, 0); error != cudaSuccess) {
      cudaGraphDestroy(graph);
      check_cuda(error, "cudaGraphInstantiate");
    }
    cudaGraphUpload(exec_, parts_.stream);  // so that the first replay need not; that replay reports an error
  }
  ~GraphRecording() override {
    const std::lock_guard lock(parts_.mutex);
    cudaStreamSynchronize(parts_.stream);
    cudaGraphExecDestroy(exec_);
    cudaGraphDestroy(graph_);
    parts_.memory.release(parts_.random_base);
    parts_.memory.release_pool(parts_.pool);
  }

  void replay() override {
    const std::lock_guard lock(parts_.mutex);
    if (parts_.draws > 0) {
      Generator::State state = parts_.generator.state();
      check<RecordingError>(state.seed == parts_.seed, "record", "the generator was seeded anew since the work was recorded");
      parts_.uploader.copy(&state.offset, parts_.random_base, sizeof state.offset, parts_.stream);
      state.offset += parts_.draws;
      parts_.generator.set_state(state);
    }
    check_cuda(cudaGraphLaunch(exec_, parts_.stream), "cudaGraphLaunch");
  }

  bool read_input(size_t i, const void* data) override {
    const std::lock_guard lock(parts_.mutex);
    GraphInput& input = parts_.inputs[i];
    const auto* place = static_cast<const std::byte*>(data);
    // Kernels are chosen by the alignment of their operands, up to the 16 bytes of their widest access.
    if (place != input.memory && (input.fixed || (place - input.memory) % 16 != 0)) return false;
    if (place == input.address) return true;
    input.address = place;
    for (InputLaunch& reader : parts_.readers) {
      if (std::any_of(reader.addresses.begin(), reader.addresses.end(), [&](const auto& a) { return a.input == i; }))
        redirect(reader);
    }
    return true;
  }

 private:
  // Writes the inputs' present addresses into the launch's arguments, and these into its node.
  void redirect(InputLaunch& reader) {
    for (const InputLaunch::Address& a : reader.addresses) {
      const std::byte* const address = parts_.inputs[a.input].address + a.distance;
      std::memcpy(reinterpret_cast<std::byte*>(reader.arguments[a.argument].data()) + a.offset, &address, sizeof address);
    }
    std::vector<void*> arguments;
    for (auto& bytes : reader.arguments) arguments.push_back(bytes.data());
    cudaKernelNodeParams params{};
    params.func = const_cast<void*>(reader.launch.kernel);
    params.gridDim = reader.launch.grid;
    params.blockDim = reader.launch.block;
    params.sharedMemBytes = unsigned(reader.launch.shared_bytes);
    params.kernelParams = arguments.data();
    check_cuda(cudaGraphExecKernelNodeSetParams(exec_, reader.node, &params), "cudaGraphExecKernelNodeSetParams");
  }

  Parts parts_;
  cudaGraph_t graph_;
  cudaGraphExec_t exec_ = nullptr;
};

// Returns the node of the last work captured in this stream; null if unknown.
cudaGraphNode_t last_node(cudaStream_t stream) {
  cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
  const cudaGraphNode_t* nodes = nullptr;
  size_t count = 0;
#if CUDART_VERSION >= 13000
  const cudaGraphEdgeData* edges = nullptr;
  const cudaError_t error = cudaStreamGetCaptureInfo(stream, &status, nullptr, nullptr, &nodes, &edges, &count);
#else
  const cudaError_t error = cudaStreamGetCaptureInfo_v2(stream, &status, nullptr, nullptr, &nodes, &count);
#endif
  return error == cudaSuccess && status == cudaStreamCaptureStatusActive && count == 1 ? nodes[0] : nullptr;
}

}  // namespace

Recorder::Recorder(CudaAllocator& memory, cudaStream_t stream, Uploader& uploader, Generator& generator,
                   std::span<const TensorView> inputs)
    : memory_(memory),
      stream_(stream),
      uploader_(uploader),
      generator_(generator),
      start_(generator.state()),
      random_base_(static_cast<uint64_t*>(memory.allocate(sizeof(uint64_t), MemoryTag::workspace))) {
  for (const TensorView& v : inputs) {
    const auto* begin = static_cast<const std::byte*>(v.data);
    inputs_.push_back({begin, begin + size_t(v.numel()) * size_of(v.dtype), begin});
  }
  memory.empty_cache();  // frees what the same work used until now: its own pool can take that, which later is impossible
  const cudaError_t error = cudaStreamBeginCapture(stream_, cudaStreamCaptureModeThreadLocal);
  if (error != cudaSuccess) memory_.release(random_base_);
  check_cuda(error, "cudaStreamBeginCapture");
  pool_ = memory_.begin_pool();
  launch_watcher = this;
}

Recorder::~Recorder() { launch_watcher = nullptr; }

void Recorder::launched(const KernelLaunch& launch) {
  if (launch.stream != stream_) return;
  InputLaunch reader{.node = nullptr, .launch = launch, .arguments = {}, .addresses = {}};
  for (size_t a = 0; a < launch.count; ++a) {
    // Pointers are aligned to their size, in arguments and their members.
    for (size_t at = 0; at + sizeof(void*) <= launch.sizes[a]; at += sizeof(void*)) {
      const std::byte* p;
      std::memcpy(&p, static_cast<const std::byte*>(launch.arguments[a]) + at, sizeof p);
      for (size_t i = 0; i < inputs_.size(); ++i) {
        if (inputs_[i].holds(p)) reader.addresses.push_back({a, at, i, p - inputs_[i].memory});
      }
    }
  }
  if (reader.addresses.empty()) return;
  reader.node = last_node(stream_);
  if (!reader.node) {
    for (const InputLaunch::Address& a : reader.addresses) inputs_[a.input].fixed = true;
    return;
  }
  for (size_t a = 0; a < launch.count; ++a) {
    std::vector<std::max_align_t> bytes(launch.sizes[a] / sizeof(std::max_align_t) + 1);
    std::memcpy(static_cast<void*>(bytes.data()), launch.arguments[a], launch.sizes[a]);
    reader.arguments.push_back(std::move(bytes));
  }
  reader.launch.arguments = nullptr;
  readers_.push_back(std::move(reader));
}

void keep_in_recording(std::shared_ptr<void> object) {
  if (auto* const recorder = dynamic_cast<Recorder*>(launch_watcher)) recorder->keep(std::move(object));
}

void Recorder::uses_fixed(const void* p) {
  for (GraphInput& input : inputs_) input.fixed = input.fixed || input.holds(p);
}

Generator::State Recorder::relative(Generator::State state) const {
  check<RecordingError>(state.seed == start_.seed && state.offset >= start_.offset, "record",
                        "random numbers of another generator cannot be recorded for replay");
  return {state.seed, state.offset - start_.offset};
}

std::unique_ptr<Recording> Recorder::finish(std::recursive_mutex& mutex) {
  const uint64_t draws = generator_.state().offset - start_.offset;
  check<RecordingError>(draws == 0 || generator_.kind() == GeneratorKind::philox, "record",
                        "random numbers of kind mt19937 are drawn on the host and cannot be recorded for replay");
  cudaGraph_t graph = nullptr;
  check_cuda(cudaStreamEndCapture(stream_, &graph), "cudaStreamEndCapture");
  auto recording = std::make_unique<GraphRecording>(
      graph, GraphRecording::Parts{memory_, pool_, stream_, uploader_, mutex, generator_, start_.seed, draws, random_base_,
                                   std::move(inputs_), std::move(readers_), std::move(kept_)});
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
