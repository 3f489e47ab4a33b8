// SPDX-License-Identifier: Apache-2.0
#include "cuda/library.h"

#include <dlfcn.h>

#include <cstdlib>

namespace halfstep::cuda {
namespace {

// Opens a file and sets `symbols`; returns why it cannot be used, or "".
std::string open(const std::string& file, const std::vector<LibrarySymbol>& symbols, const std::function<std::string()>& unfit) {
  void* const handle = dlopen(file.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (!handle) return dlerror();
  std::string problem;
  for (const LibrarySymbol& s : symbols) {
    *s.function = dlsym(handle, s.name);
    if (!*s.function && !s.optional && problem.empty()) problem = std::string("has no ") + s.name;
  }
  if (problem.empty()) problem = unfit();
  if (problem.empty()) return "";
  dlclose(handle);
  return file + ' ' + problem;
}

}  // namespace

std::string open_library(const char* variable, const std::vector<std::string>& files, const std::vector<LibrarySymbol>& symbols,
                         const std::function<std::string()>& unfit) {
  const char* const named = std::getenv(variable);
  std::string tried;
  for (const std::string& file : named&& named[0] ? std::vector<std::string>{named} : files) {
    if (file.empty()) continue;
    const std::string problem = open(file, symbols, unfit);
    if (problem.empty()) return "";
    tried += (tried.empty() ? "" : "; ") + problem;
  }
  return tried;
}

std::string library_version(size_t v) {
  return std::to_string(v / 10000) + "." + std::to_string(v / 100 % 100) + "." + std::to_string(v % 100);
}

}  // namespace halfstep::cuda
