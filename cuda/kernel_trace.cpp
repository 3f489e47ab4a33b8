// SPDX-License-Identifier: Apache-2.0
#include "cuda/kernel_trace.h"

#if __has_include(<cupti.h>)
#include <cupti.h>
#include <cxxabi.h>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdlib>
#include <map>
#include <mutex>

#include "cuda/library.h"

#ifndef HALFSTEP_CUPTI_PATH
#define HALFSTEP_CUPTI_PATH ""
#endif

namespace halfstep::cuda {
namespace {

// The form of a kernel's record shared by CUDA 12 and 13. Later forms only add fields at the end.
using KernelRecord = CUpti_ActivityKernel9;
#if CUPTI_API_VERSION >= 130000
static_assert(offsetof(KernelRecord, start) == offsetof(CUpti_ActivityKernel10, start));
static_assert(offsetof(KernelRecord, correlationId) == offsetof(CUpti_ActivityKernel10, correlationId));
static_assert(offsetof(KernelRecord, name) == offsetof(CUpti_ActivityKernel10, name));
#endif
using CopyRecord = CUpti_ActivityMemcpy5;
using FillRecord = CUpti_ActivityMemset4;

// Calls of the API are recorded because the records that link a kernel to a span refer to them.
constexpr CUpti_ActivityKind kKinds[] = {
    CUPTI_ACTIVITY_KIND_RUNTIME,           CUPTI_ACTIVITY_KIND_DRIVER, CUPTI_ACTIVITY_KIND_EXTERNAL_CORRELATION,
    CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL, CUPTI_ACTIVITY_KIND_MEMCPY, CUPTI_ACTIVITY_KIND_MEMSET};
constexpr size_t kBufferBytes = size_t(1) << 20, kAlignment = 8;

struct Functions {
  decltype(&cuptiGetVersion) version;
  decltype(&cuptiGetResultString) error_text;
  decltype(&cuptiActivityRegisterCallbacks) register_buffers;
  decltype(&cuptiActivityRegisterTimestampCallback) register_clock;
  decltype(&cuptiActivityEnable) enable;
  decltype(&cuptiActivityDisable) disable;
  decltype(&cuptiActivityFlushAll) flush;
  decltype(&cuptiActivityGetNextRecord) next;
  decltype(&cuptiActivityPushExternalCorrelationId) push;
  decltype(&cuptiActivityPopExternalCorrelationId) pop;
};

// State of the process, because CUPTI is per process. Its own threads call the functions that take buffers.
struct Shared {
  Functions cupti{};
  std::string fault = "not opened";
  bool is_open = false;
  std::mutex mutex;
  std::vector<std::pair<uint32_t, DeviceWork>> work;  // with the number of the launching call
  std::map<uint32_t, int> spans;                      // spans of those calls
};
Shared& shared() {
  static Shared* const s = new Shared;  // never destroyed: CUPTI returns buffers while the program ends
  return *s;
}

uint64_t nanoseconds() {
  return uint64_t(
      std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::steady_clock::now().time_since_epoch()).count());
}

std::string demangled(const char* name) {
  if (!name) return "kernel";
  int status = 0;
  char* const text = abi::__cxa_demangle(name, nullptr, nullptr, &status);
  std::string out = status == 0 && text ? text : name;
  std::free(text);
  return out;
}

const char* copy_name(uint8_t kind) {
  switch (kind) {
    case CUPTI_ACTIVITY_MEMCPY_KIND_HTOD: return "copy: host to device";
    case CUPTI_ACTIVITY_MEMCPY_KIND_DTOH: return "copy: device to host";
    case CUPTI_ACTIVITY_MEMCPY_KIND_DTOD: return "copy: device to device";
    default: return "copy";
  }
}

// Adds a record to the shared work and spans.
void add_record(const CUpti_Activity* record) {
  const auto add_work = [](const auto* r, std::string name) {
    shared().work.push_back(
        {r->correlationId, {.name = std::move(name), .stream = r->streamId, .begin = int64_t(r->start), .end = int64_t(r->end)}});
  };
  switch (record->kind) {
    case CUPTI_ACTIVITY_KIND_KERNEL:
    case CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL: {
      const auto* const r = reinterpret_cast<const KernelRecord*>(record);
      return add_work(r, demangled(r->name));
    }
    case CUPTI_ACTIVITY_KIND_MEMCPY: {
      const auto* const r = reinterpret_cast<const CopyRecord*>(record);
      return add_work(r, copy_name(r->copyKind));
    }
    case CUPTI_ACTIVITY_KIND_MEMSET: return add_work(reinterpret_cast<const FillRecord*>(record), "fill");
    case CUPTI_ACTIVITY_KIND_EXTERNAL_CORRELATION: {
      const auto* const r = reinterpret_cast<const CUpti_ActivityExternalCorrelation*>(record);
      if (r->externalKind == CUPTI_EXTERNAL_CORRELATION_KIND_CUSTOM0) shared().spans[r->correlationId] = int(r->externalId);
      return;
    }
    default: return;
  }
}

void CUPTIAPI give_buffer(uint8_t** buffer, size_t* size, size_t* most_records) {
  *buffer = static_cast<uint8_t*>(std::aligned_alloc(kAlignment, kBufferBytes));
  *size = *buffer ? kBufferBytes : 0;  // without memory its records are lost
  *most_records = 0;
}
void CUPTIAPI take_buffer(CUcontext, uint32_t, uint8_t* buffer, size_t, size_t valid) {
  const std::lock_guard lock(shared().mutex);
  CUpti_Activity* record = nullptr;
  while (valid > 0 && shared().cupti.next(buffer, valid, &record) == CUPTI_SUCCESS) add_record(record);
  std::free(buffer);
}

std::string problem_of(CUptiResult result, const char* what) {
  if (result == CUPTI_SUCCESS) return "";
  const char* text = nullptr;
  if (shared().cupti.error_text(result, &text) != CUPTI_SUCCESS || !text) text = "unknown error";
  return std::string("CUPTI cannot ") + what + ": " + text;
}

// Opens CUPTI, once, because it keeps its callbacks. Returns why it cannot; empty: it can.
std::string open_cupti() {
  Functions& f = shared().cupti;
  const std::string major = std::to_string(CUPTI_API_VERSION / 10000);
  const auto unfit = [&]() -> std::string {
    uint32_t version = 0;
    f.version(&version);
    return version / 10000 == CUPTI_API_VERSION / 10000 ? "" : "is of CUDA " + std::to_string(version / 10000) + ", not " + major;
  };
  const auto symbol = [](const char* name, auto& function) { return LibrarySymbol{name, reinterpret_cast<void**>(&function)}; };
  const std::string missing = open_library(
      "HALFSTEP_CUPTI", {HALFSTEP_CUPTI_PATH, "libcupti.so." + major, "/usr/local/cuda/extras/CUPTI/lib64/libcupti.so." + major},
      {symbol("cuptiGetVersion", f.version), symbol("cuptiGetResultString", f.error_text),
       symbol("cuptiActivityRegisterCallbacks", f.register_buffers),
       symbol("cuptiActivityRegisterTimestampCallback", f.register_clock), symbol("cuptiActivityEnable", f.enable),
       symbol("cuptiActivityDisable", f.disable), symbol("cuptiActivityFlushAll", f.flush),
       symbol("cuptiActivityGetNextRecord", f.next), symbol("cuptiActivityPushExternalCorrelationId", f.push),
       symbol("cuptiActivityPopExternalCorrelationId", f.pop)},
      unfit);
  if (!missing.empty()) return missing;
  const std::string clock = problem_of(f.register_clock(nanoseconds), "take this program's clock");
  return clock.empty() ? problem_of(f.register_buffers(give_buffer, take_buffer), "take buffers") : clock;
}

}  // namespace

KernelTrace::KernelTrace() {
  static const std::string missing = open_cupti();
  Shared& s = shared();
  {
    const std::lock_guard lock(s.mutex);
    fault_ = !missing.empty() ? missing : s.is_open ? "another profile is open" : "";
    if (!fault_.empty()) return;
    s.is_open = true;
    s.work.clear();
    s.spans.clear();
  }
  for (const CUpti_ActivityKind kind : kKinds)
    if (fault_.empty()) fault_ = problem_of(s.cupti.enable(kind), "watch this device");
  if (fault_.empty()) return;
  for (const CUpti_ActivityKind kind : kKinds) s.cupti.disable(kind);
  s.is_open = false;
}

KernelTrace::~KernelTrace() {
  if (!fault_.empty()) return;
  Shared& s = shared();
  for (const CUpti_ActivityKind kind : kKinds) s.cupti.disable(kind);
  s.cupti.flush(
      CUPTI_ACTIVITY_FLAG_FLUSH_FORCED);  // empties CUPTI's buffers, so that the next trace gets none of this one's records
  const std::lock_guard lock(s.mutex);
  s.is_open = false;
}

void KernelTrace::enter(int span) noexcept {
  if (fault_.empty()) shared().cupti.push(CUPTI_EXTERNAL_CORRELATION_KIND_CUSTOM0, uint64_t(span));
}
void KernelTrace::leave() noexcept {
  uint64_t span = 0;
  if (fault_.empty()) shared().cupti.pop(CUPTI_EXTERNAL_CORRELATION_KIND_CUSTOM0, &span);
}

std::vector<DeviceWork> KernelTrace::read() {
  std::vector<DeviceWork> out;
  if (!fault_.empty()) return out;
  Shared& s = shared();
  s.cupti.flush(CUPTI_ACTIVITY_FLAG_FLUSH_FORCED);
  const std::lock_guard lock(s.mutex);
  for (auto& [call, work] : s.work) {
    if (work.end < work.begin) continue;  // not finished
    if (const auto span = s.spans.find(call); span != s.spans.end()) work.span = span->second;
    out.push_back(std::move(work));
  }
  s.work.clear();
  s.spans.clear();
  std::ranges::stable_sort(out, {}, &DeviceWork::begin);
  return out;
}

}  // namespace halfstep::cuda
#else
namespace halfstep::cuda {
KernelTrace::KernelTrace() : fault_("CUPTI's headers were missing when this program was built") {}
KernelTrace::~KernelTrace() = default;
void KernelTrace::enter(int) noexcept {}
void KernelTrace::leave() noexcept {}
std::vector<DeviceWork> KernelTrace::read() { return {}; }
}  // namespace halfstep::cuda
#endif
