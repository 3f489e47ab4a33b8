#include "cuda/nccl/group.h"

#include <sched.h>

#include <chrono>
#include <cstring>
#include <deque>
#include <functional>
#include <thread>
#include <utility>
#include <vector>

#include "cuda/nccl/nccl.h"
#include "cuda/runtime.h"
#include "framework/base/check.h"
#include "framework/comm/operands.h"

namespace halfstep::cuda {
namespace {

using Clock = std::chrono::steady_clock;

constexpr int kEagerTests = 1000;  // before the host leaves its core to others
constexpr auto kNap = std::chrono::microseconds(20);
constexpr double kAsk = 0.5;  // seconds in which the ranks that live say so

double since(Clock::time_point t) { return std::chrono::duration<double>(Clock::now() - t).count(); }

struct Numbers {
  ncclDataType_t type;
  ncclRedOp_t op;
};
Numbers numbers(DType dtype, ReduceOp op) {
  const ncclRedOp_t how = op == ReduceOp::sum ? ncclSum : op == ReduceOp::max ? ncclMax : ncclMin;
  switch (dtype) {
    case DType::f16: return {ncclFloat16, how};
    case DType::bf16: return {ncclBfloat16, how};
    case DType::f32: return {ncclFloat32, how};
    case DType::f64: return {ncclFloat64, how};
    case DType::u8: return {ncclUint8, how};
    case DType::i8: return {ncclInt8, how};
    case DType::i32: return {ncclInt32, how};
    case DType::i64: return {ncclInt64, how};
    case DType::boolean: return {ncclUint8, op == ReduceOp::sum ? ncclMax : how};
    case DType::i16: break;
  }
  fail<DTypeError>("distributed", "NCCL does not add ", dtype, Help{"exchange it on the cpu, or as int32"});
}

class NcclGroup final : public ProcessGroup {
 public:
  NcclGroup(std::unique_ptr<ProcessGroup> host, const Nccl& nccl, const Queue& queue, std::recursive_mutex& mutex,
            const GroupOptions& options)
      : ProcessGroup(host->rank(), host->size()),
        host_(std::move(host)),
        nccl_(nccl),
        queue_(queue),
        mutex_(mutex),
        timeout_(options.timeout_s) {}
  ~NcclGroup() override {
    abort();
    begun_.clear();
    if (stream_) cudaStreamDestroy(stream_);
  }

  void open() {
    ncclUniqueId id{};
    if (rank() == 0) held("ncclGetUniqueId", nccl_.ncclGetUniqueId(&id));
    const Tensor bytes = Tensor::empty({int64_t(sizeof id)}, {.dtype = DType::u8, .device = Device::cpu});
    std::memcpy(bytes.data(), &id, sizeof id);
    host_->wait(host_->broadcast({bytes}, 0));
    std::memcpy(&id, bytes.data(), sizeof id);
    check_cuda(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking), "cudaStreamCreate");
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    config.blocking = 0;
    settle("ncclCommInitRankConfig", nccl_.ncclCommInitRankConfig(&comm_, size(), id, rank(), &config));
  }

  std::string describe() const override { return nccl_version(nccl_) + ", " + host_->describe(); }
  void set_timeout(double seconds) override {
    timeout_ = seconds;
    host_->set_timeout(seconds);
  }

  Ticket all_reduce(const Tensors& tensors, ReduceOp op, Wire wire) override {
    check_list(tensors);
    if (on_host(tensors)) return noted(host_->all_reduce(tensors, op, wire));
    const Numbers n = numbers(wire == Wire::bf16 && tensors[0].dtype() == DType::f32 ? DType::bf16 : tensors[0].dtype(), op);
    Operation o{.what = "all_reduce"};
    for (const Tensor& t : tensors) {
      const bool narrow = n.type == ncclBfloat16 && t.dtype() == DType::f32;
      const Tensor sent = narrow ? t.detach().to(DType::bf16) : t;
      if (narrow) o.back.push_back({sent, t});
      o.alive.push_back(sent);
    }
    return begin(std::move(o), [&](const Tensor& t) {
      return nccl_.ncclAllReduce(t.data(), t.data(), size_t(t.numel()), n.type, n.op, comm_, stream_);
    });
  }
  Ticket broadcast(const Tensors& tensors, int root) override {
    check_root(root, size());
    if (on_host(tensors)) return noted(host_->broadcast(tensors, root));
    return begin({.what = "broadcast", .alive = tensors}, [&](const Tensor& t) {
      return nccl_.ncclBroadcast(t.data(), t.data(), t.nbytes(), ncclUint8, root, comm_, stream_);
    });
  }
  Ticket reduce_scatter(const Tensor& from, const Tensor& to) override {
    check_parts("reduce_scatter", "from", from, "to", to, size());
    if (on_host({from, to})) return noted(host_->reduce_scatter(from, to));
    const Numbers n = numbers(to.dtype(), ReduceOp::sum);
    return begin({.what = "reduce_scatter", .alive = {to}, .read = {from}}, [&](const Tensor&) {
      return nccl_.ncclReduceScatter(from.data(), to.data(), size_t(to.numel()), n.type, n.op, comm_, stream_);
    });
  }
  Ticket all_gather(const Tensor& from, const Tensor& to) override {
    check_parts("all_gather", "to", to, "from", from, size());
    if (on_host({from, to})) return noted(host_->all_gather(from, to));
    return begin({.what = "all_gather", .alive = {to}, .read = {from}}, [&](const Tensor&) {
      return nccl_.ncclAllGather(from.data(), to.data(), from.nbytes(), ncclUint8, comm_, stream_);
    });
  }
  Ticket barrier() override {
    check_whole();
    return noted(host_->barrier());
  }

  void wait(Ticket ticket) override {
    check_whole();
    const auto from = Clock::now();
    for (; !begun_.empty() && begun_.front().ticket <= ticket; begun_.pop_front()) {
      Operation& o = begun_.front();
      finish(o);
      for (const Copy& c : o.back) c.to.copy_(c.from);
      idle_.push_back(std::move(o.done));
    }
    for (; !hosted_.empty() && hosted_.front().first <= ticket; hosted_.pop_front()) host_->wait(hosted_.front().second);
    wait_seconds_ += since(from);
  }

  void close() override {
    wait(last_);
    host_->wait(host_->barrier());  // in this one a rank that is gone is noticed and named
    if (comm_) {
      settle("ncclCommFinalize", nccl_.ncclCommFinalize(comm_));
      held("ncclCommDestroy", nccl_.ncclCommDestroy(std::exchange(comm_, nullptr)));
    }
    host_->close();
  }

 private:
  struct Copy {
    Tensor from, to;
  };
  struct Operation {
    std::string what;
    Tensors alive = {};           // written, one by each call of the library; kept until the end
    Tensors read = {};            // kept as well
    std::vector<Copy> back = {};  // what to do with results
    std::unique_ptr<Event> done = nullptr;
    Ticket ticket = 0;
  };

  // Are all on the host? Else all must be here.
  bool on_host(const Tensors& tensors) const {
    check_whole();
    bool host = true, device = true;
    for (const Tensor& t : tensors) {
      check_contiguous(t);
      (t.device().is_cpu() ? device : host) = false;
    }
    check<ValueError>(host || device, "distributed", "tensors of one operation must be on one device, got the cpu and cuda");
    return host;
  }
  void check_whole() const {
    if (!broken_.empty()) throw PeerLostError(broken_);
  }

  Ticket noted(Ticket of_host) {
    hosted_.emplace_back(++last_, of_host);
    return last_;
  }

  Ticket begin(Operation o, const std::function<ncclResult_t(const Tensor&)>& call) {
    std::unique_ptr<Event> ready = take_event();
    {
      const std::lock_guard lock(mutex_);
      check<RecordingError>(!queue_.recording, "record", "exchanges between ranks cannot be recorded for replay");
      ready->record(queue_.stream);
    }
    check_cuda(cudaStreamWaitEvent(stream_, ready->get(), 0), "cudaStreamWaitEvent");
    idle_.push_back(std::move(ready));  // the stream waits for what it stands for now
    held("ncclGroupStart", nccl_.ncclGroupStart());
    ncclResult_t worst = ncclSuccess;
    for (const Tensor& t : o.alive) {
      if (t.numel() == 0) continue;
      const ncclResult_t result = call(t);
      if (result != ncclSuccess && result != ncclInProgress) worst = result;
      t.bump_version();
    }
    const ncclResult_t end = nccl_.ncclGroupEnd();
    settle(o.what, worst == ncclSuccess ? end : worst);  // from here on the work is in the stream
    o.done = take_event();
    o.done->record(stream_);
    o.ticket = ++last_;
    begun_.push_back(std::move(o));
    return last_;
  }

  std::unique_ptr<Event> take_event() {
    if (idle_.empty()) return std::make_unique<Event>(false);
    std::unique_ptr<Event> event = std::move(idle_.back());
    idle_.pop_back();
    return event;
  }

  void finish(const Operation& o) {
    const auto from = Clock::now();
    for (int i = 0;; ++i) {
      const cudaError_t state = cudaEventQuery(o.done->get());
      if (state == cudaSuccess) return;
      if (state != cudaErrorNotReady) check_cuda(state, "cudaEventQuery");
      cudaGetLastError();  // that it is not ready is no error of what comes next
      held(o.what, progress());
      pause(o.what, i, from);
    }
  }

  // The library's calls return before they are done, so that one which waits for a rank that is gone ends too.
  void settle(const std::string& what, ncclResult_t result) {
    const auto from = Clock::now();
    for (int i = 0; result == ncclInProgress; ++i) {
      result = progress();
      if (result == ncclInProgress) pause(what, i, from);
    }
    held(what, result);
  }
  ncclResult_t progress() {
    ncclResult_t state = ncclSuccess;
    const ncclResult_t asked = nccl_.ncclCommGetAsyncError(comm_, &state);
    return asked == ncclSuccess ? state : asked;
  }
  void pause(const std::string& what, int turn, Clock::time_point from) {
    if (since(from) > timeout_) lost(what, joined("did not end within ", timeout_, " s"));
    if (turn < kEagerTests)
      sched_yield();
    else
      std::this_thread::sleep_for(kNap);
  }

  void held(const std::string& what, ncclResult_t result) {
    if (result == ncclSuccess || result == ncclInProgress) return;
    const char* const text = nccl_.ncclGetErrorString(result);
    if (result != ncclInvalidArgument && result != ncclInvalidUsage) lost(what, joined("failed (", text, ")"));
    abort();
    broken_ = joined("[distributed] ", what, " over NCCL on rank ", rank(), " failed: ", text);
    fail<DeviceError>("distributed", what, " over NCCL on rank ", rank(), " failed: ", text,
                      Help{"NCCL_DEBUG=WARN says more; distributed.backend \"mpi\" does without NCCL"});
  }

  // The host's group tells who is gone.
  [[noreturn]] void lost(const std::string& what, const std::string& how) {
    abort();
    std::string who = "all ranks live, but one of them is late or does something else";
    try {
      host_->set_timeout(kAsk);
      host_->wait(host_->barrier());
    } catch (const PeerLostError& e) {
      who = e.what();
      who = who.substr(0, who.find('\n'));
      if (const size_t at = who.rfind(": "); at != std::string::npos) who = who.substr(at + 2);
    }
    broken_ = joined("[distributed] ", what, " over NCCL on rank ", rank(), ' ', how, ": ", who,
                     Help{"a rank ended, was stopped, is cut off, or needs longer than distributed.timeout_s for a step; the last "
                          "checkpoint is whole: start all ranks again with --resume auto"});
    throw PeerLostError(broken_);
  }
  void abort() {
    if (comm_) nccl_.ncclCommAbort(std::exchange(comm_, nullptr));  // also what runs on the device
  }

  std::unique_ptr<ProcessGroup> host_;
  const Nccl& nccl_;
  const Queue& queue_;
  std::recursive_mutex& mutex_;
  double timeout_;
  cudaStream_t stream_ = nullptr;
  ncclComm_t comm_ = nullptr;
  std::string broken_;  // why nothing can be exchanged any more
  Ticket last_ = 0;
  std::deque<Operation> begun_;                   // on the device, not waited for
  std::deque<std::pair<Ticket, Ticket>> hosted_;  // ours, and the host group's
  std::vector<std::unique_ptr<Event>> idle_;
};

}  // namespace

std::string why_no_nccl() {
  std::string why;
  find_nccl(why);
  return why;
}

std::unique_ptr<ProcessGroup> open_nccl_group(std::unique_ptr<ProcessGroup> host, const Queue& queue, std::recursive_mutex& mutex,
                                              const GroupOptions& options) {
  std::string why;
  const Nccl* const nccl = find_nccl(why);
  check<DeviceError>(nccl, "distributed", "NCCL 2 cannot be loaded: ", why,
                     Help{"install it (Debian: libnccl2 of the CUDA repository), or give its path in HALFSTEP_NCCL"});
  auto group = std::make_unique<NcclGroup>(std::move(host), *nccl, queue, mutex, options);
  group->open();
  return group;
}

}  // namespace halfstep::cuda
