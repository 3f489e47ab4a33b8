// SPDX-License-Identifier: Apache-2.0
#include "framework/comm/host_group.h"

#include <algorithm>
#include <cstring>
#include <map>
#include <utility>
#include <vector>

#include "framework/comm/host_worker.h"
#include "framework/comm/operands.h"

namespace halfstep {

using namespace comm;
// Memory that must live until an operation has been waited for.
struct HostGroup::OperationMemory {
  std::map<Ticket, Tensors> tensors;
  std::map<Ticket, std::vector<Copy>> results;  // copied to their device at the end
  // Those of the operation that is submitted next:
  Tensors next_tensors;
  std::vector<Copy> next_results;
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
  const Transport& transport = worker->transport();
  return std::unique_ptr<HostGroup>(new HostGroup(worker, transport.rank(), transport.size()));
}

HostGroup::HostGroup(std::shared_ptr<Worker> worker, int rank, int size)
    : ProcessGroup(rank, size), worker_(std::move(worker)), memory_(std::make_unique<OperationMemory>()) {}

HostGroup::~HostGroup() {
  if (!worker_->thread.joinable()) return;
  worker_->stop();
  // An operation in progress may never end. Then the thread and its memory stay until the process ends.
  if (worker_->idle()) {
    worker_->thread.join();
    return;
  }
  worker_->thread.detach();
  memory_.release();  // leaked on purpose: the transport still writes there
}

std::string HostGroup::describe() const { return worker_->transport().describe(); }
void HostGroup::set_timeout(double seconds) { worker_->timeout = seconds; }

Tensor HostGroup::on_host(const Tensor& t, bool reads, bool writes) {
  check_contiguous(t);
  Tensor host = t;
  if (!t.device().is_cpu()) {
    host = reads ? t.detach().to(Device::cpu) : Tensor::empty(t.shape(), {.dtype = t.dtype(), .device = Device::cpu});
    if (writes) memory_->next_results.push_back({host, t});
  } else if (writes) {
    t.bump_version();
  }
  memory_->next_tensors.push_back(host);
  return host;
}

Ticket HostGroup::submit(std::string what, std::function<void(Worker&)> work) {
  const Tensors tensors = std::exchange(memory_->next_tensors, {});
  std::vector<Copy> results = std::exchange(memory_->next_results, {});
  const Ticket ticket = worker_->submit(std::move(what), std::move(work));
  memory_->tensors[ticket] = tensors;
  if (!results.empty()) memory_->results[ticket] = std::move(results);
  return ticket;
}

namespace {

// The bytes of one tensor on the host.
struct HostBytes {
  void* data;
  size_t bytes;
};

}  // namespace

Ticket HostGroup::all_reduce(const Tensors& tensors, ReduceOp op, Wire wire) {
  check_list(tensors);
  std::vector<HostBytes> parts;
  int64_t n = 0;
  for (const Tensor& t : tensors) {
    const Tensor host = on_host(t, true, true);
    parts.push_back({host.data_ptr(), host.nbytes()});
    n += host.numel();
  }
  const DType dtype = tensors[0].dtype();
  return submit("all_reduce", [=](Worker& w) {
    if (parts.size() == 1) return w.reduce(parts[0].data, dtype, n, op, wire);
    std::byte* const joined = w.scratch<std::byte>(Scratch::joined, n * int64_t(size_of(dtype)));
    size_t at = 0;
    for (const HostBytes& p : parts) std::memcpy(joined + std::exchange(at, at + p.bytes), p.data, p.bytes);
    w.reduce(joined, dtype, n, op, wire);
    at = 0;
    for (const HostBytes& p : parts) std::memcpy(p.data, joined + std::exchange(at, at + p.bytes), p.bytes);
  });
}

Ticket HostGroup::broadcast(const Tensors& tensors, int root) {
  check_root(root, size());
  std::vector<HostBytes> parts;
  for (const Tensor& t : tensors) {
    const Tensor host = on_host(t, rank() == root, rank() != root);
    parts.push_back({host.data_ptr(), host.nbytes()});
  }
  return submit("broadcast", [=](Worker& w) {
    for (const HostBytes& p : parts) {
      for (size_t from = 0; from < p.bytes; from += size_t(kPiece)) {
        w.transport().broadcast(static_cast<std::byte*>(p.data) + from, int(std::min(size_t(kPiece), p.bytes - from)), root);
        w.complete();
      }
    }
  });
}

Ticket HostGroup::reduce_scatter(const Tensor& from, const Tensor& to) {
  check_parts("reduce_scatter", "from", from, "to", to, size());
  check<ValueError>(int64_t(from.nbytes()) <= kPiece, "reduce_scatter", "takes at most ", kPiece, " bytes, got ", from.nbytes());
  const Tensor source = on_host(from, true, false), result = on_host(to, false, true);
  const void* send = source.data_ptr();
  void* receive = result.data_ptr();
  const int64_t part_size = to.numel();
  const DType dtype = to.dtype();
  const int ranks = size();
  return submit("reduce_scatter", [=](Worker& w) {
    dispatch(dtype, [&](auto zero) {
      using T = decltype(zero);
      const EqualParts parts(part_size * int64_t(sizeof(T)), ranks);
      T* const received = w.scratch<T>(Scratch::received, part_size * ranks);
      w.transport().all_to_all(send, parts.counts, parts.offsets, received, parts.counts, parts.offsets);
      w.complete();
      std::vector<const T*> numbers_of_rank;
      for (int r = 0; r < ranks; ++r) numbers_of_rank.push_back(received + r * part_size);
      reduce_ranks<T>(numbers_of_rank, static_cast<T*>(receive), size_t(part_size), ReduceOp::sum);
    });
  });
}

Ticket HostGroup::all_gather(const Tensor& from, const Tensor& to) {
  check_parts("all_gather", "to", to, "from", from, size());
  check<ValueError>(int64_t(to.nbytes()) < int64_t(1) << 31, "all_gather", "takes less than 2^31 bytes, got ", to.nbytes());
  const Tensor source = on_host(from, true, false), result = on_host(to, false, true);
  const void* send = source.data_ptr();
  void* receive = result.data_ptr();
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
  const auto start = Clock::now();
  worker_->wait(ticket);
  wait_seconds_ += since(start);
  memory_->tensors.erase(memory_->tensors.begin(), memory_->tensors.upper_bound(ticket));
  auto& results = memory_->results;
  for (auto it = results.begin(); it != results.end() && it->first <= ticket; it = results.erase(it)) {
    for (const Copy& c : it->second) c.to.copy_(c.from);
  }
}

void HostGroup::close() {
  if (!worker_->thread.joinable()) return;
  wait(submit("the end", [](Worker& w) {
    w.transport().barrier();  // notices a rank that is gone, unlike the library's own shutdown
    w.complete();
    w.transport().close();
  }));
  worker_->stop();
  worker_->thread.join();
}

}  // namespace halfstep
