// SPDX-License-Identifier: Apache-2.0
// Common parts of the fuzzers. A harness is one file for each format:
//   HALFSTEP_FUZZ_HARNESS(csv) { ... return 0; }     // reads `data` and `size`, and hands them to a reader inside typed()
// With libFuzzer each is the function that libFuzzer calls. Without it all are in one program, whose main.cpp calls the requested
// one: with the seeds of corpus/, then with damaged copies of them.
#pragma once

#include <sys/mman.h>
#include <unistd.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "framework/base/check.h"
#include "framework/base/log.h"

#if defined(__clang__)
#define HALFSTEP_FUZZ_UNSEEN __attribute__((no_sanitize("coverage")))
#else
#define HALFSTEP_FUZZ_UNSEEN
#endif

namespace halfstep::fuzz {

using Harness = int (*)(const uint8_t* data, size_t size);
inline std::map<std::string, Harness>& harnesses() {
  static std::map<std::string, Harness> all;
  return all;
}

#ifdef HALFSTEP_FUZZ_ALONE
#define HALFSTEP_FUZZ_HARNESS(format) extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size)
#else
#define HALFSTEP_FUZZ_HARNESS(format)                                                                          \
  static int fuzz_##format(const uint8_t* data, size_t size);                                                  \
  static const bool is_harness_##format = halfstep::fuzz::harnesses().emplace(#format, fuzz_##format).second; \
  static int fuzz_##format([[maybe_unused]] const uint8_t* data, [[maybe_unused]] size_t size)
#endif

// Ends the program, which reports a finding to either driver.
[[noreturn]] inline void found(const char* what, std::string_view text = {}) {
  std::fprintf(stderr, "FOUND: %s: %.*s\n", what, int(text.size()), text.data());
  std::abort();
}

// Compares without instrumentation: the fuzzer would otherwise learn these words and put them into its inputs.
HALFSTEP_FUZZ_UNSEEN inline bool holds(const char* text, const char* part) {
  for (; *text; ++text) {
    const char *t = text, *p = part;
    while (*p && *t == *p) ++t, ++p;
    if (!*p) return true;
  }
  return false;
}

// Runs `f`, which may throw halfstep::Error in the form of docs/errors.md; any other exception ends the program.
template <class F>
void typed(F&& f) {
  try {
    f();
  } catch (const Error& e) {
    if (e.what()[0] != '[') found("an error without [where]", e.what());
    for (const char* raw : {"json.exception", "parse error at", "filesystem error", "basic_string", "std::", "vector::", "map::at"})
      if (holds(e.what(), raw)) found("a library's own words", e.what());
  }
}

// Writes `data` to a file in memory.
class MemoryFile {
 public:
  explicit MemoryFile(std::string_view data) : fd_(::memfd_create("fuzz", MFD_CLOEXEC)) {
    for (size_t at = 0; at < data.size();) {
      const ssize_t n = ::write(fd_, data.data() + at, data.size() - at);
      if (n <= 0) std::abort();
      at += size_t(n);
    }
  }
  ~MemoryFile() { ::close(fd_); }
  MemoryFile(const MemoryFile&) = delete;
  std::filesystem::path path() const { return "/proc/self/fd/" + std::to_string(fd_); }

 private:
  int fd_;
};

// Returns one folder for the whole program, in memory if possible, and makes it the working directory.
inline const std::filesystem::path& folder() {
  static const struct Folder {
    std::filesystem::path path;
    Folder() {
      logging::set_level(logging::Level::off);
      const bool memory = std::filesystem::is_directory("/dev/shm");
      std::string name =
          (memory ? std::filesystem::path("/dev/shm") : std::filesystem::temp_directory_path()) / "halfstep-fuzz-XXXXXX";
      if (!::mkdtemp(name.data()) || ::chdir(name.c_str()) != 0) std::abort();
      path = name;
    }
    ~Folder() {
      std::error_code ignored;
      std::filesystem::remove_all(path, ignored);
    }
  } folder;
  return folder.path;
}

inline void put(const std::filesystem::path& path, std::string_view bytes) {
  if (!std::ofstream(path, std::ios::binary).write(bytes.data(), std::streamsize(bytes.size()))) std::abort();
}

// Splits an input of several texts, which lines "=====" separate. Missing ones are empty.
inline std::vector<std::string_view> parts(std::string_view input, size_t count) {
  constexpr std::string_view kLine = "\n=====\n";
  std::vector<std::string_view> out;
  while (out.size() + 1 < count) {
    const size_t at = input.find(kLine);
    out.push_back(input.substr(0, at));
    input = at == std::string_view::npos ? std::string_view() : input.substr(at + kLine.size());
  }
  out.push_back(input);
  return out;
}

inline std::string_view text_of(const uint8_t* data, size_t size) { return {reinterpret_cast<const char*>(data), size}; }

}  // namespace halfstep::fuzz
