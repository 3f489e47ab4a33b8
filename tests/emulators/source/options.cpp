// SPDX-License-Identifier: Apache-2.0
// The emulator's settings, and its one way to end a program.
#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <string_view>

#include "cuda/gpu.cuh"

namespace emu {
namespace {

Options from_environment() {
  Options o;
  if (const char* text = std::getenv("HALFSTEP_EMU_ORDER")) {
    const std::string_view order_name = text;
    if (order_name != "forward" && order_name != "reverse" && order_name != "random") fail("HALFSTEP_EMU_ORDER=%s", text);
    o.order = order_name == "forward" ? Order::forward : order_name == "reverse" ? Order::reverse : Order::random;
  }
  if (const char* text = std::getenv("HALFSTEP_EMU_SEED")) o.seed = std::strtoull(text, nullptr, 10);
  if (const char* text = std::getenv("HALFSTEP_EMU_MEMORY")) o.memory = std::strtoull(text, nullptr, 10);
  if (const char* text = std::getenv("HALFSTEP_EMU_ASYNC")) o.async = std::string_view(text) == "1";
  const auto count = [](const char* variable, int otherwise) {
    const char* text = std::getenv(variable);
    const int n = text ? std::atoi(text) : otherwise;
    if (n < 1) fail("%s=%s", variable, text);
    return n;
  };
  o.processors = count("HALFSTEP_EMU_PROCESSORS", o.processors);
  o.threads = count("HALFSTEP_EMU_THREADS", o.threads);
  o.capability = count("HALFSTEP_EMU_CAPABILITY", o.capability);
  if (const char* text = std::getenv("HALFSTEP_EMU_NO_IMAGE")) o.has_image = std::string_view(text) != "1";
  return o;
}

}  // namespace

Options& options() {
  static Options o = from_environment();
  return o;
}

void fail(const char* format, ...) {
  va_list arguments;
  va_start(arguments, format);
  std::fputs("cuda_emu: ERROR: ", stderr);
  std::vfprintf(stderr, format, arguments);
  std::fputc('\n', stderr);
  va_end(arguments);
  std::fflush(stderr);
  std::_Exit(99);
}

}  // namespace emu
