// SPDX-License-Identifier: Apache-2.0
// A log of the kernels that a thread runs: the tensors that each reads and writes, and whether their values are finite. It shows
// which kernel an infinity or NaN comes from.
//
//   KernelLog log(Device::cpu);
//   log.add_root("input", x);
//   Tensor loss = loss_fn(net(x), y);
//   const Origin origin = origin_of(log, loss);     // log.events()[origin.event], or a root that was not finite
//
// It waits for the device after each kernel, so it is for a step that is computed again, not for training. It changes no bit of the
// results, except where a GPU's library would compute attention or recurrent layers as a whole: there halfstep's own kernels run
// instead, so that the log has them (Look).
//
// With Look::gradients it is for a step of training itself: it only notes the largest gradient in float16. Calls of a library stay
// whole, and the log does not see their kernels.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "framework/backend/backend.h"
#include "framework/backend/observe.h"
#include "framework/base/guard.h"

namespace halfstep {

// Counts of a floating tensor's values; all zero for other tensors.
struct ValueCounts {
  int64_t numel = 0, nan = 0, positive_inf = 0, negative_inf = 0;
  int64_t zero = 0, negative = 0, subnormal = 0;  // negative: finite values below zero
  double largest = 0, smallest = 0;               // of the finite, nonzero magnitudes; 0: there are none
  int64_t inf() const { return positive_inf + negative_inf; }
  bool any_not_finite() const { return nan > 0 || inf() > 0; }
};
// Waits for the device.
ValueCounts count_values(const Tensor& t);

struct KernelRead {
  DType dtype = DType::f32;
  Shape shape;
  bool number = false;                // whether it is a C++ number
  std::vector<int> producers;         // events that wrote the memory, ascending; <= -2: roots. Empty: unknown
  std::optional<ValueCounts> counts;  // set where the kernel wrote values that are not finite
};
struct KernelWrite {
  DType dtype = DType::f32;
  Shape shape;
  ValueCounts counts;
};
struct KernelEvent {
  std::string kernel;                  // "gemm"; of elementwise kernels and reductions which one: "div", "sum"
  std::string op;                      // the caller: "linear"; "autocast" for its casts; outside of ops the kernel
  const std::string* layer = nullptr;  // "encoder.0"; null outside of any
  StepPass pass = StepPass::forward;
  std::vector<KernelRead> reads;
  std::vector<KernelWrite> writes;
  bool any_not_finite() const;  // whether it writes values that are not finite
};

class KernelLog final : public OpObserver, LocalGuard {
 public:
  // everything: halfstep's own kernels compute attention and recurrent networks, with other bits than a device's library. kernels:
  // a call that a library computes as a whole stays so, and is one event. gradients: largest_gradient() alone.
  enum class Look : uint8_t { everything, kernels, gradients };
  // For tests: called after kernel `event` with its first floating output, before its values are counted.
  using Change = std::function<void(int event, const TensorView& out)>;
  // Throws ValueError on Device::meta, and where the thread has an open log.
  [[nodiscard]] explicit KernelLog(Device device, Change change = nullptr, Look look = Look::everything);
  ~KernelLog() override;

  // Adds a tensor that existed before: "input", "param:fc1.weight". Ignores undefined tensors. `on_purpose`: its infinities are
  // intended, such as those of a mask.
  void add_root(std::string name, const Tensor& t, bool on_purpose = false);
  // Called after each event, with the memory that it wrote.
  using Seen = std::function<void(const KernelEvent&, std::span<const TensorView> writes)>;
  void on_event(Seen seen) { seen_ = std::move(seen); }
  bool is_on_purpose(int producer) const { return on_purpose_[root_index(producer)]; }
  const std::vector<KernelEvent>& events() const { return events_; }
  const std::string& root_name(int producer) const { return roots_[root_index(producer)]; }
  std::vector<int> producers_of(const Tensor& t) const { return producers_of(t.view()); }
  // Returns the largest value that kernels of the backward wrote in float16: infinity after an overflow, 0 if they wrote nothing.
  // Needs Look::gradients.
  double largest_gradient() const { return largest_gradient_; }

  void begin(const ObservedCall& call) override;
  void end(const ObservedCall& call, const CallResult& result) override;
  void before_kernel(const ObservedKernel& kernel) override;
  void kernel(const ObservedKernel& kernel) override;
  std::optional<Kernels> observes_kernels() const override { return Kernels{device_, look_ != Look::everything}; }

 private:
  static constexpr int kHost = -1;  // the producer of memory that the host wrote
  // Roots are the producers -2, -3, ... in the order of add_root().
  static size_t root_index(int producer) { return size_t(-2 - producer); }

  struct Range {
    uintptr_t end;
    int producer;
  };
  ValueCounts count(const TensorView& v);
  // Makes `producer` the one of this memory.
  void set_producer(const TensorView& v, int producer);
  std::vector<int> producers_of(const TensorView& v) const;
  // Counts the values of those reads that the kernel overwrites.
  std::vector<std::optional<ValueCounts>> count_overwritten(std::span<const TensorView> reads, std::span<const TensorView> writes);
  void log_gradient(const TensorView& v);

  Device device_;
  Backend& real_;
  Change change_;
  Look look_;
  double largest_gradient_ = 0;
  Seen seen_;
  std::vector<KernelEvent> events_;
  std::vector<std::string> roots_;
  std::vector<bool> on_purpose_;       // of roots
  std::map<uintptr_t, Range> ranges_;  // by the first byte; they do not overlap
  Tensor row_;                         // output of the kernel `tally`
  std::string op_;                     // the outermost open call
  int depth_ = 0, casting_ = 0;        // numbers of open calls and casts
  // For each running kernel, the result of count_overwritten().
  std::map<const ObservedKernel*, std::vector<std::optional<ValueCounts>>> overwritten_;
  std::optional<Observing> observing_;
};

// Source of the values that are not finite.
struct Origin {
  std::string root;             // the root that had them; empty: an event produced them
  int event = -1;               // else this event wrote them from finite values, or from infinities that are there on purpose
  std::optional<int> nan_born;  // the first event on the way that made a NaN of infinities
  bool planted = false;         // the event read infinities that are there on purpose, such as those of a mask
  bool is_known() const { return !root.empty() || event >= 0; }
};
// Follows the values of `sink` that are not finite back to the event that produced them from finite ones, or to the root that had
// them. Does not follow infinities that were written on purpose: C++ numbers and tensors that no observed kernel wrote, passed on
// by fill, where, copy, add, sub or mul, without a NaN.
Origin origin_of(const KernelLog& log, const Tensor& sink);

}  // namespace halfstep
