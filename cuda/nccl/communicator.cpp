// SPDX-License-Identifier: Apache-2.0
#include "cuda/nccl/communicator.h"

#include <sched.h>

#include <cstring>
#include <thread>
#include <utility>

#include "framework/base/check.h"

namespace halfstep::cuda {
namespace {

using Clock = std::chrono::steady_clock;

constexpr int kEagerTests = 1000;  // polls before the host sleeps between them
constexpr auto kNap = std::chrono::microseconds(20);
constexpr double kAnswerSeconds = 0.5;  // time in which living ranks must answer
constexpr double kFinalizeSeconds = 5;  // longest wait for ncclCommFinalize

double since(Clock::time_point t) { return std::chrono::duration<double>(Clock::now() - t).count(); }

}  // namespace

// Gives the stream the highest priority: an exchange begins when a multiprocessor is next free, and not when backward has nothing
// more to start.
Communicator::Communicator(const Nccl& nccl, ProcessGroup& host, double timeout_s, int max_blocks)
    : nccl_(nccl), host_(&host), rank_(host.rank()), max_blocks_(max_blocks), timeout_(timeout_s) {
  int lowest = 0, highest = 0;
  check_cuda(cudaDeviceGetStreamPriorityRange(&lowest, &highest), "cudaDeviceGetStreamPriorityRange");
  check_cuda(cudaStreamCreateWithPriority(&stream_, cudaStreamNonBlocking, highest), "cudaStreamCreate");
}

Communicator::~Communicator() {
  if (host_) abort();
  if (comm_) {
    const auto from = Clock::now();
    ncclResult_t state = nccl_.ncclCommFinalize(comm_);
    for (; state == ncclInProgress && since(from) < kFinalizeSeconds; state = progress()) std::this_thread::sleep_for(kNap);
    nccl_.ncclCommDestroy(comm_);
  }
  cudaStreamDestroy(stream_);
}

void Communicator::open() {
  ncclUniqueId id{};
  if (rank_ == 0) check_nccl("ncclGetUniqueId", nccl_.ncclGetUniqueId(&id));
  const Tensor bytes = Tensor::empty({int64_t(sizeof id)}, {.dtype = DType::u8, .device = Device::cpu});
  std::memcpy(bytes.data_ptr(), &id, sizeof id);
  host_->wait(host_->broadcast({bytes}, 0));
  std::memcpy(&id, bytes.data_ptr(), sizeof id);
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  // Calls return at once, so that the timeout also ends calls that wait for a rank that is gone. NCCL then starts a thread for
  // each group of calls, which takes 20 to 50 us in eager steps and nothing in replays.
  config.blocking = 0;
#if NCCL_VERSION_CODE >= NCCL_VERSION(2, 17, 0)
  config.maxCTAs = max_blocks_;
#endif
  finish_call("ncclCommInitRankConfig", nccl_.ncclCommInitRankConfig(&comm_, host_->size(), id, rank_, &config));
}

void Communicator::check_whole() const {
  if (broken_.empty()) return;
  if (fault_is_here_) throw DeviceError(broken_);
  throw PeerLostError(broken_);
}

void Communicator::group(const std::string& what, const std::function<ncclResult_t()>& calls) {
  check_nccl("ncclGroupStart", nccl_.ncclGroupStart());
  const ncclResult_t result = calls();
  const ncclResult_t end = nccl_.ncclGroupEnd();
  finish_call(what, result == ncclSuccess || result == ncclInProgress ? end : result);
}

void Communicator::wait_for(const std::string& what, const Event& event) {
  const auto from = Clock::now();
  for (int i = 0;; ++i) {
    const cudaError_t state = cudaEventQuery(event.get());
    if (state == cudaSuccess) return;
    if (state != cudaErrorNotReady) check_cuda(state, "cudaEventQuery");
    cudaGetLastError();  // "not ready" must not become the next call's error
    check_nccl(what, progress());
    pause(what, i, from);
  }
}

void Communicator::finish_call(const std::string& what, ncclResult_t result) {
  const auto from = Clock::now();
  for (int i = 0; result == ncclInProgress; ++i) {
    result = progress();
    if (result == ncclInProgress) pause(what, i, from);
  }
  check_nccl(what, result);
}

ncclResult_t Communicator::progress() const {
  ncclResult_t state = ncclSuccess;
  const ncclResult_t asked = nccl_.ncclCommGetAsyncError(comm_, &state);
  return asked == ncclSuccess ? state : asked;
}

void Communicator::pause(const std::string& what, int turn, Clock::time_point from) {
  if (since(from) > timeout_) throw_lost(what, joined("did not end within ", timeout_, " s"));
  if (turn < kEagerTests)
    sched_yield();
  else
    std::this_thread::sleep_for(kNap);
}

// Only a remote error means that a rank is lost. All others are faults of this machine or of halfstep.
void Communicator::check_nccl(const std::string& what, ncclResult_t result) {
  if (result == ncclSuccess || result == ncclInProgress) return;
  if (result == ncclRemoteError) throw_lost(what, joined("failed (", nccl_.ncclGetErrorString(result), ")"));
  throw_failed(what, result);
}

void Communicator::throw_failed(const std::string& what, ncclResult_t result) {
  const char* const said = nccl_.ncclGetLastError(comm_);
  std::string last = said ? said : "";
  while (!last.empty() && (last.back() == '\n' || last.back() == ' ')) last.pop_back();
  const char* advice = "NCCL_DEBUG=WARN in the environment says more";
  if (result == ncclSystemError)
    advice = "in a container /dev/shm may be too small: docker run --shm-size=1g; NCCL_DEBUG=WARN in the environment says more";
  else if (result == ncclUnhandledCudaError)
    advice = "the GPU may be out of memory (NCCL takes up to 1 GB), or the GPUs cannot reach each other (NCCL_P2P_DISABLE=1); "
             "NCCL_DEBUG=WARN in the environment says more";
  abort();
  fault_is_here_ = true;
  broken_ = joined("[distributed] ", what, " over NCCL on rank ", rank_, " failed on this machine: ",
                   nccl_.ncclGetErrorString(result), last.empty() ? "" : ": ", last,
                   Help{joined(advice, "; distributed.backend \"host\" does without NCCL")});
  throw DeviceError(broken_);
}

// Throws an error with the ranks that are gone, as the host's group names them.
void Communicator::throw_lost(const std::string& what, const std::string& how) {
  abort();
  std::string who = "all ranks live, but one of them is late or does something else";
  try {
    host_->set_timeout(kAnswerSeconds);
    host_->wait(host_->barrier());
  } catch (const PeerLostError& e) {
    who = e.what();
    who = who.substr(0, who.find('\n'));
    if (const size_t at = who.rfind(": "); at != std::string::npos) who = who.substr(at + 2);
  }
  broken_ = joined("[distributed] ", what, " over NCCL on rank ", rank_, ' ', how, ": ", who,
                   Help{"a rank ended, was stopped, is cut off, or needs longer than distributed.timeout_s for a step; the last "
                        "checkpoint is whole: start all ranks again with --resume auto"});
  throw PeerLostError(broken_);
}

void Communicator::mark_broken(const std::string& why) {
  abort();
  broken_ = why;
}

void Communicator::abort() {
  ncclComm_t const comm = std::exchange(comm_, nullptr);
  if (!comm) return;
  if (recorded_)  // running work ends at once, the call when the recordings are gone
    std::thread([&nccl = nccl_, comm] { nccl.ncclCommAbort(comm); }).detach();
  else
    nccl_.ncclCommAbort(comm);
}

}  // namespace halfstep::cuda
