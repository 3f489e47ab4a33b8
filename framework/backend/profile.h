// SPDX-License-Identifier: Apache-2.0
// Measures each op call of a piece of a program: forward, backward, casts, updates and waits.
//
//   ProfileScope profile(Device::cpu);
//   step(x, y);
//   for (const ProfileSpan& span : profile.spans()) std::cout << span.name << ' ' << span.seconds() << '\n';
//
// A scope sees the thread that opened it. On a GPU it puts marks between the calls in the device's queue, and a span's time is the
// device's.
//
// A profiler that watches the process, such as Nsight Systems, sees the spans without a scope, of all threads: as NVTX ranges with
// the names "forward", "encoder.0: linear", "optimizer" (cuda/nvtx.h).
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "framework/backend/observe.h"
#include "framework/base/guard.h"

namespace halfstep {

class Stopwatch;

struct ProfileSpan {
  struct Operand {
    Shape shape;
    DType dtype;
  };
  SpanKind kind = SpanKind::op;  // of an optimizer's updates, too
  StepPass pass{};
  int depth = 0;                            // number of ops and casts around it
  std::string name;                         // "linear"
  const std::string* layer = nullptr;       // "encoder.0"; null outside of any
  std::vector<Operand> inputs;              // of a backward: the gradients that come in
  int64_t begin = 0, end = 0;               // of the call, nanoseconds since the scope was opened
  double device_begin = 0, device_end = 0;  // of its work on a GPU, seconds since then; both 0 on a CPU
  double seconds() const { return device_end > 0 ? device_end - device_begin : double(end - begin) * 1e-9; }
};

// A kernel, a copy or a fill on a GPU; times in nanoseconds since the scope was opened.
struct ProfileKernel {
  std::string name;  // "void gemm_kernel<...>(...)"
  int span = -1;     // the index of the innermost span that launched it; -1: launched outside of spans, or by another thread
  uint32_t stream = 0;
  int64_t begin = 0, end = 0;
};

class ProfileScope final : public OpObserver, LocalGuard {
 public:
  // Keeps at most `limit` spans and counts the later ones. Throws ValueError on Device::meta, whose calls compute nothing, and if
  // this thread has an open scope; RecordingError while work is recorded. TrainStep records no step while a scope is open.
  [[nodiscard]] explicit ProfileScope(Device device, size_t limit = 100'000);
  ~ProfileScope() override;

  // Returns the spans in the order of their begin. Waits for a GPU. Throws ValueError inside of a call.
  const std::vector<ProfileSpan>& spans();
  size_t left_out() const { return left_out_; }
  // Returns the kernels that a GPU ran for the spans, by time; nothing on a CPU. Needs CUPTI, NVIDIA's library for profilers:
  // without it, or while a profiler such as Nsight watches the process, the list is empty and no_kernels() gives the reason. Waits
  // for the GPU. Throws as spans().
  const std::vector<ProfileKernel>& kernels();
  const std::string& no_kernels() const { return no_kernels_; }

  void begin(const ObservedCall& call) override;
  void end(const ObservedCall& call, const CallResult& result) override;

 private:
  struct Mark {
    int span;  // -1: the start of the scope
    bool is_begin;
  };
  int64_t now() const;  // nanoseconds since the scope was opened
  void mark(int span, bool is_begin) noexcept;

  std::vector<ProfileSpan> spans_;
  std::vector<ProfileKernel> kernels_;
  std::string no_kernels_;
  std::vector<Mark> marks_;  // of the stopwatch, in its order
  std::unique_ptr<Stopwatch> stopwatch_;
  size_t limit_, left_out_ = 0;
  std::vector<int> open_;  // spans that are open, one inside the other; -1: one that is not kept
  int depth_ = 0;          // ops and casts among them
  int64_t start_ = 0;      // nanoseconds of std::chrono::steady_clock
  std::optional<Observing> observing_;
};

}  // namespace halfstep
