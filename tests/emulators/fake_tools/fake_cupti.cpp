// SPDX-License-Identifier: Apache-2.0
// In place of CUPTI: records what the emulator's streams do, with the numbers of the calls and the ids that were pushed around
// them. HALFSTEP_FAKE_CUPTI=busy: enabling fails as it does under another profiler; =old: a library of CUDA 12.
#include <cupti.h>

#include <cstdlib>
#include <cstring>
#include <deque>
#include <set>
#include <string>
#include <vector>

#include "tests/emulators/source/runtime.h"

namespace {

using emu::fail;

CUpti_BuffersCallbackRequestFunc request = nullptr;
CUpti_BuffersCallbackCompleteFunc complete = nullptr;
CUpti_TimestampCallbackFunc timestamp = nullptr;
std::set<CUpti_ActivityKind> kinds;
std::deque<std::string> names;  // which records point to
thread_local std::vector<uint64_t> pushed;
uint32_t calls = 0;

struct Buffer {
  uint8_t* bytes = nullptr;
  size_t size = 0, used = 0;
};
Buffer buffer;

void give_back() {
  if (buffer.bytes) complete(nullptr, 0, buffer.bytes, buffer.size, buffer.used);
  buffer = {};
}
template <class Record>
void append(const Record& record) {
  static_assert(sizeof(Record) % 8 == 0);
  if (!kinds.contains(record.kind)) return;
  if (buffer.used + sizeof record > buffer.size) {
    give_back();
    size_t most = 1;
    request(&buffer.bytes, &buffer.size, &most);
    if (most != 0 || !buffer.bytes || buffer.size < sizeof record || reinterpret_cast<uintptr_t>(buffer.bytes) % 8 != 0)
      fail("CUPTI: a buffer that holds no record");
    buffer.size = sizeof(CUpti_ActivityKernel9) * 5;  // a small one, so that a trace needs several
  }
  std::memcpy(buffer.bytes + buffer.used, &record, sizeof record);
  buffer.used += sizeof record;
}

// A call gives work to a stream: the ids come now, the work's record when the stream has done it.
void given(emu::Task& task, const emu::Stream& stream) {
  if (!kinds.contains(CUPTI_ACTIVITY_KIND_RUNTIME) && !kinds.contains(CUPTI_ACTIVITY_KIND_DRIVER)) return;
  const uint32_t call = ++calls;
  const std::string name = task.kernel ? emu::kernel_name(task.kernel) : task.what ? task.what : "";
  if (name.empty()) return;
  if (!pushed.empty()) {
    CUpti_ActivityExternalCorrelation id{};
    id.kind = CUPTI_ACTIVITY_KIND_EXTERNAL_CORRELATION;
    id.externalKind = CUPTI_EXTERNAL_CORRELATION_KIND_CUSTOM0;
    id.externalId = pushed.back();
    id.correlationId = call;
    append(id);
  }
  CUpti_ActivityAPI api{};
  api.kind = CUPTI_ACTIVITY_KIND_RUNTIME;
  api.correlationId = call;
  append(api);
  const auto stream_id = uint32_t(reinterpret_cast<uintptr_t>(&stream) >> 4);
  task.work = [work = std::move(task.work), name, call, stream_id] {
    const uint64_t begin = timestamp();
    work();
    const auto record = [&](auto r, CUpti_ActivityKind kind) {
      r.kind = kind;
      r.correlationId = call, r.streamId = stream_id;
      r.start = begin, r.end = timestamp();
      return r;
    };
    if (name == "copy") {
      auto copy = record(CUpti_ActivityMemcpy6{}, CUPTI_ACTIVITY_KIND_MEMCPY);
      copy.copyKind = CUPTI_ACTIVITY_MEMCPY_KIND_HTOD;
      return append(copy);
    }
    if (name == "fill") return append(record(CUpti_ActivityMemset4{}, CUPTI_ACTIVITY_KIND_MEMSET));
    auto kernel = record(CUpti_ActivityKernel10{}, CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL);
    kernel.name = names.emplace_back(name).c_str();
    append(kernel);
  };
}

bool behaves(const char* how) {
  const char* const wanted = std::getenv("HALFSTEP_FAKE_CUPTI");
  return wanted && std::string(wanted) == how;
}

}  // namespace

extern "C" {

CUptiResult cuptiGetVersion(uint32_t* version) {
  *version = behaves("old") ? 120000 : CUPTI_API_VERSION;
  return CUPTI_SUCCESS;
}
CUptiResult cuptiGetResultString(CUptiResult, const char** text) {
  *text = "CUPTI_ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED";
  return CUPTI_SUCCESS;
}
CUptiResult cuptiActivityRegisterTimestampCallback(CUpti_TimestampCallbackFunc function) {
  if (!kinds.empty()) fail("CUPTI: the clock comes before the first kind");
  timestamp = function;
  return CUPTI_SUCCESS;
}
CUptiResult cuptiActivityRegisterCallbacks(CUpti_BuffersCallbackRequestFunc requested,
                                           CUpti_BuffersCallbackCompleteFunc completed) {
  request = requested, complete = completed;
  return CUPTI_SUCCESS;
}
CUptiResult cuptiActivityEnable(CUpti_ActivityKind kind) {
  if (!request || !timestamp) fail("CUPTI: a kind is enabled before buffers and a clock are there");
  if (behaves("busy") && kind == CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL) return CUPTI_ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED;
  kinds.insert(kind);
  emu::task_given = given;
  return CUPTI_SUCCESS;
}
CUptiResult cuptiActivityDisable(CUpti_ActivityKind kind) {
  kinds.erase(kind);
  if (kinds.empty()) emu::task_given = nullptr;
  return CUPTI_SUCCESS;
}
CUptiResult cuptiActivityFlushAll(uint32_t) {
  const emu::Lock lock(emu::runtime_mutex());
  give_back();
  return CUPTI_SUCCESS;
}
CUptiResult cuptiActivityGetNextRecord(uint8_t* bytes, size_t valid, CUpti_Activity** record) {
  // Records lie one after another, each as long as its kind is.
  const auto length = [](const CUpti_Activity* r) -> size_t {
    switch (r->kind) {
      case CUPTI_ACTIVITY_KIND_EXTERNAL_CORRELATION: return sizeof(CUpti_ActivityExternalCorrelation);
      case CUPTI_ACTIVITY_KIND_RUNTIME: return sizeof(CUpti_ActivityAPI);
      case CUPTI_ACTIVITY_KIND_MEMCPY: return sizeof(CUpti_ActivityMemcpy6);
      case CUPTI_ACTIVITY_KIND_MEMSET: return sizeof(CUpti_ActivityMemset4);
      default: return sizeof(CUpti_ActivityKernel10);
    }
  };
  uint8_t* const next = *record ? reinterpret_cast<uint8_t*>(*record) + length(*record) : bytes;
  if (next >= bytes + valid) return CUPTI_ERROR_MAX_LIMIT_REACHED;
  *record = reinterpret_cast<CUpti_Activity*>(next);
  return CUPTI_SUCCESS;
}
CUptiResult cuptiActivityPushExternalCorrelationId(CUpti_ExternalCorrelationKind, uint64_t id) {
  pushed.push_back(id);
  return CUPTI_SUCCESS;
}
CUptiResult cuptiActivityPopExternalCorrelationId(CUpti_ExternalCorrelationKind, uint64_t* id) {
  if (pushed.empty()) fail("CUPTI: an id is popped that was not pushed");
  *id = pushed.back();
  pushed.pop_back();
  return CUPTI_SUCCESS;
}

}  // extern "C"
