// SPDX-License-Identifier: Apache-2.0
#include "cuda/nccl/group.h"

#include <algorithm>
#include <chrono>
#include <deque>
#include <utility>
#include <vector>

#include "cuda/kernels/rank_sum.h"
#include "cuda/launches.h"
#include "cuda/nccl/communicator.h"
#include "framework/backend/dnn.h"
#include "framework/base/check.h"
#include "framework/comm/operands.h"

namespace halfstep::cuda {
namespace {

using Clock = std::chrono::steady_clock;

constexpr int64_t kAlign = 16;        // bytes: parts begin at aligned addresses
constexpr size_t kQueuedReplays = 4;  // recorded steps that the host queues before it waits for the first

// Keeps the first failure of several calls.
class Calls {
 public:
  void operator+=(ncclResult_t result) {
    if (first_ == ncclSuccess && result != ncclInProgress) first_ = result;
  }
  operator ncclResult_t() const { return first_; }

 private:
  ncclResult_t first_ = ncclSuccess;
};

// Numbers that are summed in the order of the ranks: rank r sums up to `chunk` of them, from element r * stride on.
struct Sum {
  std::byte* from;
  int64_t numbers, stride, chunk;
  std::byte* to;      // destination of this rank's sums; null: their place in the stage
  size_t offset = 0;  // offset in the stage, which has a chunk for each rank
  // Returns the number of sums of a rank.
  int64_t count_of(int rank) const { return std::clamp(numbers - rank * stride, int64_t(0), chunk); }
};

class NcclGroup final : public ProcessGroup {
 public:
  NcclGroup(std::unique_ptr<ProcessGroup> host, const Nccl& nccl, const DeviceQueue& compute, const GroupOptions& options)
      : ProcessGroup(host->rank(), host->size()),
        host_(std::move(host)),
        nccl_(nccl),
        compute_(compute),
        library_sums_(options.library_sums || size() <= 2),
        stage_bytes_(int64_t(options.stage_mb * 1024 * 1024)),
        comm_(std::make_shared<Communicator>(nccl, *host_, options.timeout_s, options.max_blocks)) {
    comm_->open();
  }
  ~NcclGroup() override {
    compute_.before_waiting = nullptr;
    if (!comm_) return;
    comm_->abort();
    comm_->leave();
  }

  std::string describe() const override { return nccl_version(nccl_) + ", " + host_->describe(); }
  void set_timeout(double seconds) override {
    comm_->set_timeout(seconds);
    host_->set_timeout(seconds);
  }
  bool can_record() const override { return true; }
  // A replay has no end of its own: each is marked, so that the timeout measures a few steps and not all that the host could queue.
  void replayed() override {
    comm_->check_whole();
    std::unique_ptr<Event> end = take_event();
    {
      const std::lock_guard lock(compute_.mutex);
      end->record(compute_.queue.stream);
    }
    replays_.push_back(std::move(end));
    for (; replays_.size() > kQueuedReplays; replays_.pop_front()) {
      comm_->wait_for("a recorded step", *replays_.front());
      idle_.push_back(std::move(replays_.front()));
    }
  }

  Ticket all_reduce(const Tensors& tensors, ReduceOp op, Wire wire) override {
    check_list(tensors);
    if (on_host(tensors)) return add_host_ticket(host_->all_reduce(tensors, op, wire));
    const DType dtype = wire == Wire::bf16 && tensors[0].dtype() == DType::f32 ? DType::bf16 : tensors[0].dtype();
    const NcclNumbers n = nccl_numbers(dtype, op);
    Operation o{.what = "all_reduce"};
    for (const Tensor& t : tensors) {
      const bool narrow = dtype != t.dtype();
      const Tensor sent = narrow ? t.detach().to(dtype) : t;
      if (narrow) o.back.push_back({sent, t});
      o.written.push_back(sent);
    }
    if (op == ReduceOp::sum && is_summed_in_order(dtype))
      return begin(std::move(o), [&](Operation& operation) { sum_in_order(operation, n.type); });
    return begin(std::move(o), [&](Operation& operation) {
      call_for_each(operation, [&](const Tensor& t) {
        return nccl_.ncclAllReduce(t.data_ptr(), t.data_ptr(), size_t(t.numel()), n.type, n.op, comm_->get(), comm_->stream());
      });
    });
  }
  Ticket broadcast(const Tensors& tensors, int root) override {
    check_root(root, size());
    if (on_host(tensors)) return add_host_ticket(host_->broadcast(tensors, root));
    return begin({.what = "broadcast", .written = tensors}, [&](Operation& operation) {
      call_for_each(operation, [&](const Tensor& t) {
        return nccl_.ncclBroadcast(t.data_ptr(), t.data_ptr(), t.nbytes(), ncclUint8, root, comm_->get(), comm_->stream());
      });
    });
  }
  Ticket reduce_scatter(const Tensor& from, const Tensor& to) override {
    check_parts("reduce_scatter", "from", from, "to", to, size());
    if (on_host({from, to})) return add_host_ticket(host_->reduce_scatter(from, to));
    const NcclNumbers n = nccl_numbers(to.dtype(), ReduceOp::sum);
    return begin({.what = "reduce_scatter", .written = {to}, .read = {from}}, [&](Operation& operation) {
      if (is_summed_in_order(to.dtype())) return scatter_in_order(operation, n.type);
      call_for_each(operation, [&](const Tensor&) {
        return nccl_.ncclReduceScatter(from.data_ptr(), to.data_ptr(), size_t(to.numel()), n.type, n.op, comm_->get(),
                                       comm_->stream());
      });
    });
  }
  Ticket all_gather(const Tensor& from, const Tensor& to) override {
    check_parts("all_gather", "to", to, "from", from, size());
    if (on_host({from, to})) return add_host_ticket(host_->all_gather(from, to));
    return begin({.what = "all_gather", .written = {to}, .read = {from}}, [&](Operation& operation) {
      call_for_each(operation, [&](const Tensor&) {
        return nccl_.ncclAllGather(from.data_ptr(), to.data_ptr(), from.nbytes(), ncclUint8, comm_->get(), comm_->stream());
      });
    });
  }
  Ticket barrier() override {
    check_whole();
    return add_host_ticket(host_->barrier());
  }

  void wait(Ticket ticket) override {
    check_whole();
    const auto from = Clock::now();
    for (; !begun_.empty() && begun_.front().ticket <= ticket; begun_.pop_front()) {
      Operation& o = begun_.front();
      const bool recording = is_recording();
      check<RecordingError>(o.recorded || !recording, "record",
                            "an exchange that began before a recording cannot be waited for in it");
      if (recording)
        check_cuda(cudaStreamWaitEvent(compute_.queue.stream, o.done->get(), 0), "cudaStreamWaitEvent");
      else if (!o.recorded)
        comm_->wait_for(o.what, *o.done);
      const bool ended = recording == o.recorded;  // otherwise its recording was abandoned
      for (size_t i = 0; ended && i < o.back.size(); ++i) o.back[i].to.copy_(o.back[i].from);
      idle_.push_back(std::move(o.done));
    }
    try {
      for (; !hosted_.empty() && hosted_.front().first <= ticket; hosted_.pop_front()) host_->wait(hosted_.front().second);
    } catch (const PeerLostError& e) {  // work on the device that needs other ranks never ends either
      comm_->mark_broken(e.what());
      throw;
    }
    wait_seconds_ += std::chrono::duration<double>(Clock::now() - from).count();
  }

  void close() override {
    wait(last_);
    host_->wait(host_->barrier());  // this one notices and names a rank that is gone
    compute_.before_waiting = nullptr;
    comm_->leave();
    comm_.reset();  // ends here, or with the last recording
    host_->close();
  }

 private:
  struct Copy {
    Tensor from, to;
  };
  struct Operation {
    std::string what;
    Tensors written = {};         // kept until the end
    Tensors read = {};            // kept until the end
    std::vector<Copy> back = {};  // copies of the results
    std::unique_ptr<Event> done = nullptr;
    Ticket ticket = 0;
    bool recorded = false;
  };

  // Returns whether all are on the host; otherwise all must be on this device.
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
    check<ValueError>(comm_ != nullptr, "distributed", "the group was closed");
    comm_->check_whole();
  }
  bool is_summed_in_order(DType dtype) const { return !library_sums_ && is_floating(dtype); }

  // Returns this group's ticket for an operation of the host group.
  Ticket add_host_ticket(Ticket of_host) {
    hosted_.emplace_back(++last_, of_host);
    return last_;
  }

  // Begins an operation behind all work queued so far: enqueue(o) puts it into the communicator's stream.
  template <class F>
  Ticket begin(Operation o, const F& enqueue) {
    std::unique_ptr<Event> ready = take_event();
    {
      const std::lock_guard lock(compute_.mutex);
      o.recorded = compute_.queue.recording;
      std::erase_if(begun_, [&](const Operation& b) { return b.recorded && !o.recorded; });  // from an abandoned recording
      ready->record(compute_.queue.stream);
      check_cuda(cudaStreamWaitEvent(comm_->stream(), ready->get(), 0), "cudaStreamWaitEvent");
    }
    idle_.push_back(std::move(ready));  // the stream waits for the work that it marks now
    if (o.recorded) {
      comm_->mark_recorded();
      compute_.keep(comm_);
      for (const Tensors* list : {&o.written, &o.read})
        for (const Tensor& t : *list) launch_watcher->uses_fixed(t.data_ptr());
      compute_.before_waiting = [this] { wait_for_device(); };
    }
    enqueue(o);
    for (const Tensor& t : o.written) t.bump_version();
    o.done = take_event();
    o.done->record(comm_->stream());
    o.ticket = ++last_;
    begun_.push_back(std::move(o));
    return last_;
  }

  // Calls the library for each tensor that is written.
  template <class F>
  void call_for_each(const Operation& o, const F& call) {
    comm_->group(o.what, [&] {
      Calls calls;
      for (const Tensor& t : o.written) {
        if (t.numel() > 0) calls += call(t);
      }
      return ncclResult_t(calls);
    });
  }

  // ---- sums in the order of the ranks
  // Sums the tensors in rounds of at most as many numbers as the stage holds: each rank sums its part, then all gather the parts.
  void sum_in_order(Operation& o, ncclDataType_t type) {
    const DType dtype = o.written[0].dtype();
    const auto bytes = int64_t(size_of(dtype)), unit = kAlign / bytes;
    const int64_t most = std::max(unit, stage_bytes_ / bytes / size() / unit * unit) * size();  // numbers at a time
    std::vector<Sum> sums;
    const auto end_round = [&] {
      sum(o, sums, type, dtype);
      comm_->group(o.what, [&] {
        Calls calls;
        for (const Sum& s : sums) {
          std::byte* const gathered = s.to ? s.from : staged(s);
          calls += nccl_.ncclAllGather(gathered + rank() * s.chunk * bytes, gathered, size_t(s.chunk * bytes), ncclUint8,
                                       comm_->get(), comm_->stream());
        }
        return ncclResult_t(calls);
      });
      for (const Sum& s : sums) {
        if (!s.to)
          check_cuda(cudaMemcpyAsync(s.from, staged(s), size_t(s.numbers * bytes), cudaMemcpyDeviceToDevice, comm_->stream()),
                     "cudaMemcpyAsync");
      }
      sums.clear();
    };
    int64_t staged = 0;
    for (const Tensor& t : o.written) {
      for (int64_t from = 0; from < t.numel(); from += most) {
        const int64_t n = std::min(most, t.numel() - from), share = (n + size() - 1) / size();
        const bool in_place = n % size() == 0;  // whether parts are gathered directly into place
        const int64_t chunk = in_place ? share : (share + unit - 1) / unit * unit;
        if (staged + chunk * size() > most) end_round(), staged = 0;
        auto* const data = static_cast<std::byte*>(t.data_ptr()) + from * bytes;
        sums.push_back({data, n, chunk, chunk, in_place ? data + rank() * chunk * bytes : nullptr});
        staged += chunk * size();
      }
    }
    if (!sums.empty()) end_round();
  }
  // Sums this rank's part of the numbers, in rounds as above.
  void scatter_in_order(Operation& o, ncclDataType_t type) {
    const Tensor from = o.read[0], to = o.written[0];
    const auto bytes = int64_t(size_of(to.dtype()));
    const int64_t most = std::max(int64_t(1), stage_bytes_ / bytes / size());
    for (int64_t at = 0; at < to.numel(); at += most) {
      std::vector<Sum> sums{{static_cast<std::byte*>(from.data_ptr()) + at * bytes, from.numel() - at, to.numel(),
                             std::min(most, to.numel() - at), static_cast<std::byte*>(to.data_ptr()) + at * bytes}};
      sum(o, sums, type, to.dtype());
    }
  }

  // Sends each rank the part that it sums, receives this rank's part, and sums it.
  void sum(Operation& o, std::vector<Sum>& sums, ncclDataType_t type, DType dtype) {
    const auto bytes = int64_t(size_of(dtype));
    size_t bytes_needed = 0;
    for (Sum& s : sums)
      s.offset = std::exchange(bytes_needed, bytes_needed + size_t((s.chunk * size() * bytes + kAlign - 1) / kAlign * kAlign));
    make_stage(o, bytes_needed);
    comm_->group(o.what, [&] {
      Calls calls;
      for (const Sum& s : sums) {
        for (int peer = 0; peer < size(); ++peer) {
          if (peer == rank()) continue;
          if (s.count_of(peer) > 0)
            calls += nccl_.ncclSend(s.from + peer * s.stride * bytes, size_t(s.count_of(peer)), type, peer, comm_->get(),
                                    comm_->stream());
          if (s.count_of(rank()) > 0)
            calls += nccl_.ncclRecv(staged(s) + peer * s.chunk * bytes, size_t(s.count_of(rank())), type, peer, comm_->get(),
                                    comm_->stream());
        }
      }
      return ncclResult_t(calls);
    });
    const std::lock_guard lock(compute_.mutex);  // no other thread's recording may capture it
    for (const Sum& s : sums) {
      if (s.count_of(rank()) == 0) continue;
      std::byte* const own_part = staged(s) + rank() * s.chunk * bytes;
      sum_ranks(comm_->stream(), dtype, s.from + rank() * s.stride * bytes, staged(s), s.to ? s.to : own_part, s.count_of(rank()),
                s.chunk, size(), rank());
    }
  }
  std::byte* staged(const Sum& s) const { return static_cast<std::byte*>(stage_.data_ptr()) + s.offset; }
  // Gives the stage at least this size, and keeps it for the operation.
  void make_stage(Operation& o, size_t bytes) {
    if (!stage_.defined() || stage_.nbytes() < bytes) {
      if (o.recorded)
        throw NotPrepared("[record] an exchange of this size is made for the first time, which cannot be recorded for replay");
      const MemoryScope tag(MemoryTag::workspace);
      stage_ = Tensor::empty({int64_t(bytes)}, {.dtype = DType::u8, .device = Device::cuda});
    }
    o.read.push_back(stage_);  // a larger one may replace it
    if (o.recorded) compute_.keep(std::make_shared<Tensor>(stage_));
  }

  // ---- recordings
  bool is_recording() const {
    const std::lock_guard lock(compute_.mutex);
    return compute_.queue.recording;  // by this thread; otherwise it would have waited
  }
  // Waits for everything queued, because replays have no end of their own to wait for.
  void wait_for_device() {
    comm_->check_whole();
    if (!queue_end_) queue_end_ = std::make_unique<Event>(false);
    queue_end_->record(compute_.queue.stream);
    comm_->wait_for("a recorded step", *queue_end_);
  }

  std::unique_ptr<Event> take_event() {
    if (idle_.empty()) return std::make_unique<Event>(false);
    std::unique_ptr<Event> event = std::move(idle_.back());
    idle_.pop_back();
    return event;
  }

  std::unique_ptr<ProcessGroup> host_;
  const Nccl& nccl_;
  DeviceQueue compute_;
  const bool library_sums_;
  const int64_t stage_bytes_;
  std::shared_ptr<Communicator> comm_;
  Tensor stage_;  // other ranks' numbers that wait for their sum
  Ticket last_ = 0;
  std::deque<Operation> begun_;                   // operations on the device that were not waited for
  std::deque<std::pair<Ticket, Ticket>> hosted_;  // tickets of ours, and of the host group
  std::vector<std::unique_ptr<Event>> idle_;
  std::deque<std::unique_ptr<Event>> replays_;  // ends of replays, the oldest first
  std::unique_ptr<Event> queue_end_;
};

}  // namespace

std::string why_no_nccl() {
  std::string why;
  find_nccl(why);
  return why;
}

std::string describe_nccl() {
  std::string why;
  const Nccl* const nccl = find_nccl(why);
  return nccl ? nccl_version(*nccl) : "no NCCL: " + why;
}

std::unique_ptr<ProcessGroup> open_nccl_group(std::unique_ptr<ProcessGroup> host, const DeviceQueue& compute,
                                              const GroupOptions& options) {
  std::string why;
  const Nccl* const nccl = find_nccl(why);
  check<DeviceError>(nccl, "distributed", "NCCL 2 cannot be loaded: ", why,
                     Help{"install it (Debian: libnccl2 of the CUDA repository), or give its path in HALFSTEP_NCCL"});
  return std::make_unique<NcclGroup>(std::move(host), *nccl, compute, options);
}

}  // namespace halfstep::cuda
