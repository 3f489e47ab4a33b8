// SPDX-License-Identifier: Apache-2.0
// In a profiler's place: NVTX opens this library and calls its functions. It keeps the ranges as one text.
#include <nvtx3/nvToolsExt.h>

#include <mutex>
#include <string>

namespace {

std::mutex mutex;
std::string ranges;
thread_local int depth = 0;

int push(const char* name) {
  const std::lock_guard lock(mutex);
  ranges.append(size_t(2 * depth), ' ').append(name).append("\n");
  return depth++;
}
int pop() {
  const std::lock_guard lock(mutex);
  if (depth == 0) ranges += "an end without a begin\n";
  return --depth;
}

}  // namespace

extern "C" {

// Each range in a line, indented by the ranges around it.
const char* recorded_ranges() { return ranges.c_str(); }
int open_ranges() { return depth; }

int InitializeInjectionNvtx2(NvtxGetExportTableFunc_t tables) {
  const auto* callbacks = static_cast<const NvtxExportTableCallbacks*>(tables(NVTX_ETID_CALLBACKS));
  NvtxFunctionTable core = nullptr;
  unsigned size = 0;
  if (!callbacks || !callbacks->GetModuleFunctionTable(NVTX_CB_MODULE_CORE, &core, &size) || size <= NVTX_CBID_CORE_RangePop)
    return 0;
  *core[NVTX_CBID_CORE_RangePushA] = reinterpret_cast<NvtxFunctionPointer>(&push);
  *core[NVTX_CBID_CORE_RangePop] = reinterpret_cast<NvtxFunctionPointer>(&pop);
  return 1;
}

}  // extern "C"
