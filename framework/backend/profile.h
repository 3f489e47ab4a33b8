// SPDX-License-Identifier: Apache-2.0
// How long each op call of a piece of a program takes: forward, backward, casts, updates and waits.
//
//   ProfileScope profile(Device::cpu);
//   step(x, y);
//   for (const ProfileSpan& span : profile.spans()) std::cout << span.name << ' ' << span.seconds() << '\n';
//
// A scope sees the thread that opened it. On a GPU it puts marks between the calls in the device's queue, and a span's time is the
// device's. While no scope is open, this costs an op a look at a thread's variable.
//
// A profiler that watches the process, such as Nsight Systems, sees the spans without a scope, of all threads: as NVTX ranges with
// the names "forward", "encoder.0: linear", "optimizer" (cuda/nvtx.h).
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "framework/base/device.h"
#include "framework/base/dtype.h"
#include "framework/base/shape.h"
#include "framework/tensor/tensor.h"

namespace halfstep {

class Stopwatch;
enum class LedgerPass : uint8_t;

// step: a whole training step. part: a pass of it. op: a call, or an optimizer's updates. cast: of autocast, before the op that
// asks for it. wait: the thread does not compute, but waits for data or for other ranks.
enum class SpanKind : uint8_t { step, part, op, cast, wait };

struct ProfileSpan {
  struct Operand {
    Shape shape;
    DType dtype;
  };
  SpanKind kind = SpanKind::op;
  LedgerPass pass{};
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

class ProfileScope {
 public:
  // At most `limit` spans are kept; the later ones are counted. Throws ValueError on Device::meta, whose calls compute nothing, and
  // where this thread has an open scope; RecordingError while work is recorded. TrainStep records no step while a scope is open.
  [[nodiscard]] explicit ProfileScope(Device device, size_t limit = 100'000);
  ~ProfileScope();
  ProfileScope(const ProfileScope&) = delete;

  // In the order in which they began. Waits for a GPU. Throws ValueError inside of a call.
  const std::vector<ProfileSpan>& spans();
  size_t left_out() const { return left_out_; }
  // What a GPU ran for the spans, by time; empty on a CPU. Needs CUPTI, NVIDIA's library for profilers: without it, or where a
  // profiler such as Nsight watches the process, there are none, and no_kernels() says why. Waits for the GPU. Throws as spans().
  const std::vector<ProfileKernel>& kernels();
  const std::string& no_kernels() const { return no_kernels_; }

  static bool is_open() { return open_ != nullptr; }  // in this thread

 private:
  friend class ProfileEntry;
  int64_t now() const;
  int open(SpanKind kind, std::string_view name, std::span<const Tensor> inputs, const std::string* layer);
  void close(int span) noexcept;
  void mark(int span, bool begin) noexcept;

  std::vector<ProfileSpan> spans_;
  std::vector<ProfileKernel> kernels_;
  std::string no_kernels_;
  std::vector<std::pair<int, bool>> marks_;  // of the stopwatch: a span, and is it its begin
  std::unique_ptr<Stopwatch> stopwatch_;
  size_t limit_, left_out_ = 0;
  int open_spans_ = 0, depth_ = 0;
  int64_t start_ = 0;
  static inline thread_local constinit ProfileScope* open_ = nullptr;
};

// Of a profiler that watches the process. A thread's ranges end in the opposite order in which they began.
class ProfilerRanges {
 public:
  virtual void begin(const char* name) noexcept = 0;
  virtual void end() noexcept = 0;

 protected:
  ~ProfilerRanges() = default;
};

// A span of the thread's open scope, and a range of the profiler that watches, from here to the end of this object.
class ProfileEntry {
 public:
  [[nodiscard]] explicit ProfileEntry(SpanKind kind, std::string_view name, std::span<const Tensor> inputs = {},
                                      const std::string* layer = nullptr) {
    if (ProfileScope::open_) [[unlikely]]
      scope_ = ProfileScope::open_, span_ = scope_->open(kind, name, inputs, layer);
    if (ranges_) [[unlikely]]
      begin_range(name, layer);
  }
  ~ProfileEntry() {
    if (ranges_) [[unlikely]]
      ranges_->end();
    if (scope_) [[unlikely]]
      scope_->close(span_);
  }
  ProfileEntry(const ProfileEntry&) = delete;

  // Before the first entry, and never changed. The ranges must live as long as the program.
  static void set_ranges(ProfilerRanges& ranges) { ranges_ = &ranges; }

 private:
  static void begin_range(std::string_view name, const std::string* layer);

  ProfileScope* scope_ = nullptr;
  int span_ = -1;
  static inline constinit ProfilerRanges* ranges_ = nullptr;
};

}  // namespace halfstep
