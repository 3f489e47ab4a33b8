// SPDX-License-Identifier: Apache-2.0
#include "cuda/dnn/cudnn.h"

#include <algorithm>
#include <cstdlib>
#include <string_view>

#include "cuda/library.h"
#include "framework/base/check.h"
#include "framework/base/log.h"

#ifndef HALFSTEP_CUDNN_PATH  // the build's path
#define HALFSTEP_CUDNN_PATH ""
#endif

namespace halfstep::cuda {
namespace {

constexpr size_t kMajor = 9;  // attributes keep their meaning within a major version

struct LoadedCudnn {
  Cudnn dnn;
  std::string problem;  // empty: the library exists
};

LoadedCudnn load() {
  LoadedCudnn found;
  if (const char* value = std::getenv("HALFSTEP_CUDA_DNN"); value && value == std::string_view("plain")) {
    found.problem = "it is left out by HALFSTEP_CUDA_DNN=plain";
  } else {
    Cudnn& dnn = found.dnn;
#define HS_FIND(name) HS_SYMBOL(dnn, name)
#define HS_FIND_OPTIONAL(name) HS_OPTIONAL_SYMBOL(dnn, name)
    const std::vector<LibrarySymbol> rnn{HS_CUDNN_RNN(HS_FIND_OPTIONAL)};
    std::vector<LibrarySymbol> symbols{HS_CUDNN(HS_FIND)};
#undef HS_FIND_OPTIONAL
#undef HS_FIND
    symbols.insert(symbols.end(), rnn.begin(), rnn.end());
    const std::string major = std::to_string(kMajor);
    found.problem = open_library("HALFSTEP_CUDNN", {HALFSTEP_CUDNN_PATH, "libcudnn.so." + major, "libcudnn.so"}, symbols, [&] {
      const size_t version = dnn.cudnnGetVersion();
      return version / 10000 == kMajor ? "" : "is version " + library_version(version) + ", not " + major;
    });
    dnn.has_rnn = std::all_of(rnn.begin(), rnn.end(), [](const LibrarySymbol& s) { return *s.function != nullptr; });
    if (found.problem.empty()) return found;
  }
  logging::info("[cudnn] convolutions run as matrix products, without cuDNN " + std::to_string(kMajor) + ": " + found.problem);
  return found;
}

const LoadedCudnn& loaded_cudnn() {
  static const LoadedCudnn instance = load();
  return instance;
}

}  // namespace

const Cudnn* find_cudnn() { return loaded_cudnn().problem.empty() ? &loaded_cudnn().dnn : nullptr; }

const Cudnn& cudnn() {
  const Cudnn* const dnn = find_cudnn();
  check<DeviceError>(dnn, "cudnn", "cuDNN ", kMajor, " cannot be loaded: ", loaded_cudnn().problem,
                     Help{"install it (Debian: libcudnn9 of the CUDA repository), or give its path in HALFSTEP_CUDNN"});
  return *dnn;
}

std::string cudnn_version() {
  const Cudnn* const dnn = find_cudnn();
  return dnn ? "cuDNN " + library_version(dnn->cudnnGetVersion()) : "no cuDNN: " + loaded_cudnn().problem;
}

void check_cudnn(cudnnStatus_t status, const char* call) {
  if (status == CUDNN_STATUS_SUCCESS) return;
  char last[512] = {0};
  cudnn().cudnnGetLastErrorString(last, sizeof last);
  std::string message = last;
  if (const size_t end = message.find('\n'); end != std::string::npos) message.resize(end);
  fail<DeviceError>("cudnn", call, " failed: ", cudnn().cudnnGetErrorString(status), message.empty() ? "" : ": ", message);
}

}  // namespace halfstep::cuda
