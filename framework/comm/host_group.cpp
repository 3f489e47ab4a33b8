#include "framework/comm/host_group.h"

#include <sched.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstring>
#include <deque>
#include <exception>
#include <map>
#include <mutex>
#include <thread>
#include <utility>

#include "framework/comm/rank_sum.h"

namespace halfstep {
namespace {

using Clock = std::chrono::steady_clock;

constexpr int64_t kPiece = int64_t(1) << 28;  // bytes of one exchange: counts of MPI are ints
constexpr int kEagerTests = 100;              // before the thread leaves its core to those that compute
constexpr auto kNap = std::chrono::microseconds(50);
constexpr auto kRollCall = std::chrono::milliseconds(800);

double since(Clock::time_point t) { return std::chrono::duration<double>(Clock::now() - t).count(); }

std::string listed(const std::vector<int>& ranks) {
  std::string out = ranks.size() == 1 ? "rank " : "ranks ";
  for (size_t i = 0; i < ranks.size(); ++i) out += (i == 0 ? "" : i + 1 == ranks.size() ? " and " : ", ") + std::to_string(ranks[i]);
  return out;
}

struct Parts {
  std::vector<int> counts, offsets;
  int total = 0;
  int64_t first = 0, mine = 0;  // elements of this rank's part

  // n elements of `bytes` each in nearly equal parts.
  Parts(int64_t n, size_t bytes, int rank, int size) {
    for (int r = 0; r < size; ++r) {
      const int64_t from = n * r / size, to = n * (r + 1) / size;
      counts.push_back(int((to - from) * int64_t(bytes)));
      offsets.push_back(int(from * int64_t(bytes)));
      if (r == rank) first = from, mine = to - from;
    }
    total = int(n * int64_t(bytes));
  }
};

// `count` parts of `bytes` each.
struct EqualParts {
  std::vector<int> counts, offsets;
  EqualParts(int64_t bytes, int size) {
    for (int r = 0; r < size; ++r) counts.push_back(int(bytes)), offsets.push_back(int(bytes * r));
  }
};

}  // namespace

// What the group and its thread share. The thread owns the transport.
class HostGroup::Worker {
 public:
  explicit Worker(const GroupOptions& options) : timeout(options.timeout_s) {}

  // ---- in the thread
  void run(const std::function<std::unique_ptr<Transport>()>& open) {
    try {
      transport_ = open();
    } catch (...) { error_ = std::current_exception(); }
    {
      const std::lock_guard lock(mutex_);
      opened_ = true;
    }
    changed_.notify_all();
    if (error_) return;
    for (;;) {
      Job job;
      {
        std::unique_lock lock(mutex_);
        wake_.wait(lock, [&] { return leave_ || !jobs_.empty(); });
        if (jobs_.empty()) return;
        job = std::move(jobs_.front());
        jobs_.pop_front();
      }
      began_ = Clock::now();
      what_ = job.what;
      std::exception_ptr error;
      try {
        job.work(*this);
      } catch (...) { error = std::current_exception(); }
      {
        const std::lock_guard lock(mutex_);
        done_ = job.ticket;
        if (error) error_ = error, failed_ = job.ticket;
      }
      changed_.notify_all();
      if (error) return;
    }
  }
  Transport& transport() { return *transport_; }

  // Until the operation is over.
  void complete() {
    for (int i = 0; !transport_->test(); ++i) {
      // While the caller computes, it needs the core more than a transfer that takes longer than a few tests does.
      if (i < kEagerTests || waited_for_.load(std::memory_order_relaxed))
        sched_yield();
      else
        std::this_thread::sleep_for(kNap);
      if (i % 64 == 63 && since(began_) > timeout.load()) lost();
    }
  }

  template <class T>
  void reduce(T* data, int64_t n, ReduceOp op) {
    const int size = transport_->size();
    const int64_t piece = kPiece / int64_t(sizeof(T));
    for (int64_t from = 0; from < n; from += piece) {
      const int64_t count = std::min(piece, n - from);
      const Parts parts(count, sizeof(T), transport_->rank(), size);
      const EqualParts into(parts.mine * int64_t(sizeof(T)), size);
      T* const gathered = scratch<T>(0, parts.mine * size);
      transport_->all_to_all(data + from, parts.counts, parts.offsets, gathered, into.counts, into.offsets);
      complete();
      reduce_ranks(gathered, gathered, size_t(parts.mine), size, op);
      transport_->all_gather(gathered, int(parts.mine * int64_t(sizeof(T))), data + from, parts.counts, parts.offsets);
      complete();
    }
  }

  void reduce(void* data, DType dtype, int64_t n, ReduceOp op, Wire wire) {
    if (wire == Wire::bf16 && dtype == DType::f32) {
      auto* const values = static_cast<float*>(data);
      bf16* const low = scratch<bf16>(1, n);
      for (int64_t i = 0; i < n; ++i) low[i] = bf16(values[i]);
      reduce(low, n, op);
      for (int64_t i = 0; i < n; ++i) values[i] = float(low[i]);
      return;
    }
    dispatch(dtype, [&](auto zero) { reduce(static_cast<decltype(zero)*>(data), n, op); });
  }

  template <class T>
  T* scratch(int which, int64_t n) {
    std::vector<std::byte>& memory = scratch_[which];
    if (memory.size() < size_t(n) * sizeof(T)) memory.resize(size_t(n) * sizeof(T));
    return reinterpret_cast<T*>(memory.data());
  }

  // ---- in the caller's
  void wait_until_open() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return opened_; });
    if (error_) std::rethrow_exception(error_);
  }
  Ticket submit(std::string what, std::function<void(Worker&)> work) {
    Ticket ticket;
    {
      const std::lock_guard lock(mutex_);
      if (error_) std::rethrow_exception(error_);
      ticket = ++submitted_;
      jobs_.push_back({ticket, std::move(what), std::move(work)});
    }
    wake_.notify_one();
    return ticket;
  }
  void wait(Ticket ticket) {
    std::unique_lock lock(mutex_);
    waited_for_ = true;
    changed_.wait(lock, [&] { return done_ >= ticket || error_; });
    waited_for_ = false;
    if (error_ && ticket >= failed_) std::rethrow_exception(error_);
  }
  void leave() {
    {
      const std::lock_guard lock(mutex_);
      leave_ = true;
    }
    wake_.notify_one();
  }
  bool idle() {
    const std::lock_guard lock(mutex_);
    return error_ || done_ == submitted_;
  }

  std::thread thread;
  std::atomic<double> timeout;

 private:
  struct Job {
    Ticket ticket = 0;
    std::string what;
    std::function<void(Worker&)> work;
  };

  [[noreturn]] void lost() {
    std::vector<char> heard(size_t(transport_->size()), 0);
    std::vector<int> silent;
    const auto asked = Clock::now();
    do {
      transport_->roll_call(heard);
      if (std::find(heard.begin(), heard.end(), 0) == heard.end()) break;
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    } while (Clock::now() - asked < kRollCall);
    // One more turn of the progress engine, so that what was told last leaves this process.
    transport_->roll_call(heard);
    for (size_t r = 0; r < heard.size(); ++r)
      if (!heard[r]) silent.push_back(int(r));
    fail<PeerLostError>("distributed", what_, " on rank ", transport_->rank(), " did not end within ", timeout.load(), " s: ",
                        silent.empty() ? "all ranks answer, but one of them is late or does something else"
                                       : listed(silent) + (silent.size() == 1 ? " does" : " do") + " not answer",
                        Help{"a rank ended, was stopped, is cut off, or needs longer than distributed.timeout_s for a step; the last "
                             "checkpoint is whole: start all ranks again with --resume auto"});
  }

  std::unique_ptr<Transport> transport_;
  std::vector<std::byte> scratch_[3];
  Clock::time_point began_;
  std::string what_;
  std::atomic<bool> waited_for_{false};

  std::mutex mutex_;
  std::condition_variable wake_, changed_;
  std::deque<Job> jobs_;
  Ticket submitted_ = 0, done_ = 0, failed_ = 0;
  bool opened_ = false, leave_ = false;
  std::exception_ptr error_;
};

// What must live until an operation is waited for.
struct HostGroup::Kept {
  std::map<Ticket, Tensors> alive;
  std::map<Ticket, std::vector<Copy>> back;
  Tensors now;            // of the operation that is being begun
  std::vector<Copy> now_back;
};

std::unique_ptr<HostGroup> HostGroup::open(const std::function<std::unique_ptr<Transport>()>& open, const GroupOptions& options) {
  auto worker = std::make_shared<Worker>(options);
  worker->thread = std::thread([worker, open] { worker->run(open); });
  try {
    worker->wait_until_open();
  } catch (...) {
    worker->thread.join();
    throw;
  }
  Transport& t = worker->transport();
  return std::unique_ptr<HostGroup>(new HostGroup(worker, t.rank(), t.size()));
}

HostGroup::HostGroup(std::shared_ptr<Worker> worker, int rank, int size)
    : ProcessGroup(rank, size), worker_(std::move(worker)), kept_(std::make_unique<Kept>()) {}

HostGroup::~HostGroup() {
  if (!worker_->thread.joinable()) return;
  worker_->leave();
  // An operation that is under way may never end. Then the thread keeps what it needs, and goes with the process.
  if (worker_->idle()) {
    worker_->thread.join();
    return;
  }
  worker_->thread.detach();
  kept_.release();  // on purpose: the transport still writes there
}

std::string HostGroup::describe() const { return worker_->transport().describe(); }
void HostGroup::set_timeout(double seconds) { worker_->timeout = seconds; }

Tensor HostGroup::on_host(const Tensor& t, bool reads, bool writes) {
  check<ValueError>(t.is_contiguous(), "distributed", "tensors that are exchanged must be contiguous, got strides of ", t.shape());
  Tensor host = t;
  if (!t.device().is_cpu()) {
    host = reads ? t.detach().to(Device::cpu) : Tensor::empty(t.shape(), {.dtype = t.dtype(), .device = Device::cpu});
    if (writes) kept_->now_back.push_back({host, t});
  } else if (writes) {
    t.bump_version();
  }
  kept_->now.push_back(host);
  return host;
}

Ticket HostGroup::submit(std::string what, std::function<void(Worker&)> work) {
  const Tensors alive = std::exchange(kept_->now, {});
  std::vector<Copy> back = std::exchange(kept_->now_back, {});
  const Ticket ticket = worker_->submit(std::move(what), std::move(work));
  kept_->alive[ticket] = alive;
  if (!back.empty()) kept_->back[ticket] = std::move(back);
  return ticket;
}

namespace {

struct Span {
  void* data;
  size_t bytes;
};

void check_list(const Tensors& tensors) {
  check<ValueError>(!tensors.empty(), "distributed", "there must be a tensor to exchange");
  for (const Tensor& t : tensors)
    check<DTypeError>(t.dtype() == tensors[0].dtype(), "distributed", "tensors of one operation must have one dtype, got ",
                      tensors[0].dtype(), " and ", t.dtype());
}

}  // namespace

Ticket HostGroup::all_reduce(const Tensors& tensors, ReduceOp op, Wire wire) {
  check_list(tensors);
  std::vector<Span> parts;
  int64_t n = 0;
  for (const Tensor& t : tensors) {
    const Tensor host = on_host(t, true, true);
    parts.push_back({host.data(), host.nbytes()});
    n += host.numel();
  }
  const DType dtype = tensors[0].dtype();
  return submit("all_reduce", [=](Worker& w) {
    if (parts.size() == 1) return w.reduce(parts[0].data, dtype, n, op, wire);
    std::byte* const all = w.scratch<std::byte>(2, n * int64_t(size_of(dtype)));
    size_t at = 0;
    for (const Span& p : parts) std::memcpy(all + std::exchange(at, at + p.bytes), p.data, p.bytes);
    w.reduce(all, dtype, n, op, wire);
    at = 0;
    for (const Span& p : parts) std::memcpy(p.data, all + std::exchange(at, at + p.bytes), p.bytes);
  });
}

Ticket HostGroup::broadcast(const Tensors& tensors, int root) {
  check<ValueError>(root >= 0 && root < size(), "distributed", "root must be a rank below ", size(), ", got ", root);
  std::vector<Span> parts;
  for (const Tensor& t : tensors) {
    const Tensor host = on_host(t, rank() == root, rank() != root);
    parts.push_back({host.data(), host.nbytes()});
  }
  return submit("broadcast", [=](Worker& w) {
    for (const Span& p : parts) {
      for (size_t from = 0; from < p.bytes; from += size_t(kPiece)) {
        w.transport().broadcast(static_cast<std::byte*>(p.data) + from, int(std::min(size_t(kPiece), p.bytes - from)), root);
        w.complete();
      }
    }
  });
}

Ticket HostGroup::reduce_scatter(const Tensor& from, const Tensor& to) {
  check<ShapeError>(from.numel() == to.numel() * size() && from.dtype() == to.dtype(), "reduce_scatter", "`from` must be ", size(),
                    " times `to` in its dtype, got ", from.dtype(), " ", from.shape(), " and ", to.dtype(), " ", to.shape());
  check<ValueError>(int64_t(from.nbytes()) <= kPiece, "reduce_scatter", "takes at most ", kPiece, " bytes, got ", from.nbytes());
  const Tensor source = on_host(from, true, false), result = on_host(to, false, true);
  const void* send = source.data();
  void* receive = result.data();
  const int64_t each = to.numel();
  const DType dtype = to.dtype();
  const int ranks = size();
  return submit("reduce_scatter", [=](Worker& w) {
    dispatch(dtype, [&](auto zero) {
      using T = decltype(zero);
      const EqualParts parts(each * int64_t(sizeof(T)), ranks);
      T* const gathered = w.scratch<T>(0, each * ranks);
      w.transport().all_to_all(send, parts.counts, parts.offsets, gathered, parts.counts, parts.offsets);
      w.complete();
      reduce_ranks(gathered, static_cast<T*>(receive), size_t(each), ranks, ReduceOp::sum);
    });
  });
}

Ticket HostGroup::all_gather(const Tensor& from, const Tensor& to) {
  check<ShapeError>(to.numel() == from.numel() * size() && from.dtype() == to.dtype(), "all_gather", "`to` must be ", size(),
                    " times `from` in its dtype, got ", to.dtype(), " ", to.shape(), " and ", from.dtype(), " ", from.shape());
  check<ValueError>(int64_t(to.nbytes()) < int64_t(1) << 31, "all_gather", "takes less than 2^31 bytes, got ", to.nbytes());
  const Tensor source = on_host(from, true, false), result = on_host(to, false, true);
  const void* send = source.data();
  void* receive = result.data();
  const auto bytes = int64_t(from.nbytes());
  const int ranks = size();
  return submit("all_gather", [=](Worker& w) {
    const EqualParts parts(bytes, ranks);
    w.transport().all_gather(send, int(bytes), receive, parts.counts, parts.offsets);
    w.complete();
  });
}

Ticket HostGroup::barrier() {
  return submit("barrier", [](Worker& w) {
    w.transport().barrier();
    w.complete();
  });
}

void HostGroup::wait(Ticket ticket) {
  const auto from = Clock::now();
  worker_->wait(ticket);
  wait_seconds_ += since(from);
  kept_->alive.erase(kept_->alive.begin(), kept_->alive.upper_bound(ticket));
  for (auto it = kept_->back.begin(); it != kept_->back.end() && it->first <= ticket; it = kept_->back.erase(it)) {
    for (const Copy& c : it->second) c.to.copy_(c.from);
  }
}

void HostGroup::close() {
  if (!worker_->thread.joinable()) return;
  wait(submit("the end", [](Worker& w) {
    w.transport().barrier();  // in this one a rank that is gone is noticed, in the library's own end it is not
    w.complete();
    w.transport().close();
  }));
  worker_->leave();
  worker_->thread.join();
}

}  // namespace halfstep
