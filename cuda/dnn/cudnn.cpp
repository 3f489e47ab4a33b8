#include "cuda/dnn/cudnn.h"

#include <dlfcn.h>

#include <array>
#include <cstdlib>
#include <string_view>
#include <vector>

#include "framework/base/check.h"
#include "framework/base/log.h"

namespace halfstep::cuda {
namespace {

constexpr size_t kMajor = 9;  // attributes keep their meaning within it

std::string version_text(size_t v) {
  return std::to_string(v / 10000) + "." + std::to_string(v / 100 % 100) + "." + std::to_string(v % 100);
}

std::vector<std::string> candidates() {
  std::vector<std::string> names;
  if (const char* path = std::getenv("HALFSTEP_CUDNN"); path && *path) names.push_back(path);
#ifdef HALFSTEP_CUDNN_PATH
  names.push_back(HALFSTEP_CUDNN_PATH);
#endif
  names.push_back("libcudnn.so." + std::to_string(kMajor));
  names.push_back("libcudnn.so");
  return names;
}

// Empty, or why this file does not serve.
std::string open(const std::string& path, Cudnn& dnn) {
  void* const handle = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (!handle) return dlerror();
  std::string problem;
#define HS_FIND(name)                                                   \
  dnn.name = reinterpret_cast<decltype(&::name)>(dlsym(handle, #name)); \
  if (!dnn.name) problem = path + " has no " #name;
  HS_CUDNN(HS_FIND)
#undef HS_FIND
  dnn.has_rnn = true;
#define HS_FIND(name)                                                   \
  dnn.name = reinterpret_cast<decltype(&::name)>(dlsym(handle, #name)); \
  if (!dnn.name) dnn.has_rnn = false;
  HS_CUDNN_RNN(HS_FIND)
#undef HS_FIND
  if (problem.empty() && dnn.cudnnGetVersion() / 10000 != kMajor)
    problem = path + " is version " + version_text(dnn.cudnnGetVersion()) + ", not " + std::to_string(kMajor);
  if (!problem.empty()) dlclose(handle);  // otherwise open until the end
  return problem;
}

struct Found {
  Cudnn dnn;
  std::string problem;  // empty: it is there
};

Found load() {
  Found found;
  if (const char* value = std::getenv("HALFSTEP_CUDA_DNN"); value && value == std::string_view("plain")) {
    found.problem = "it is left out by HALFSTEP_CUDA_DNN=plain";
  } else {
    for (const std::string& path : candidates()) {
      Cudnn dnn;
      const std::string problem = open(path, dnn);
      if (problem.empty()) return {dnn, ""};
      found.problem += (found.problem.empty() ? "" : "; ") + problem;
    }
  }
  logging::info("[cudnn] convolutions run as matrix products, without cuDNN " + std::to_string(kMajor) + ": " + found.problem);
  return found;
}

const Found& found() {
  static const Found instance = load();
  return instance;
}

}  // namespace

const Cudnn* find_cudnn() { return found().problem.empty() ? &found().dnn : nullptr; }

const Cudnn& cudnn() {
  const Cudnn* const dnn = find_cudnn();
  check<DeviceError>(dnn, "cudnn", "cuDNN ", kMajor, " cannot be loaded: ", found().problem,
                     Help{"install it (Debian: libcudnn9 of the CUDA repository), or give its path in HALFSTEP_CUDNN"});
  return *dnn;
}

std::string cudnn_version() {
  const Cudnn* const dnn = find_cudnn();
  return dnn ? "cuDNN " + version_text(dnn->cudnnGetVersion()) : "no cuDNN: " + found().problem;
}

void check_cudnn(cudnnStatus_t status, const char* call) {
  if (status == CUDNN_STATUS_SUCCESS) return;
  char last[512] = {0};
  cudnn().cudnnGetLastErrorString(last, sizeof last);
  std::string words = last;
  if (const size_t end = words.find('\n'); end != std::string::npos) words.resize(end);
  fail<DeviceError>("cudnn", call, " failed: ", cudnn().cudnnGetErrorString(status), words.empty() ? "" : ": ", words);
}

}  // namespace halfstep::cuda
