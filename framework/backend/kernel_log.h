// SPDX-License-Identifier: Apache-2.0
// A log of the kernels that a thread runs: what each reads and writes, and whether the values are finite. From it follows which
// kernel an infinity or NaN comes from.
//
//   KernelLog log(Device::cpu);
//   log.root("input", x);
//   Tensor loss = loss_fn(net(x), y);
//   const Origin origin = origin_of(log, loss);     // log.events()[origin.event], or a root that was not finite
//
// It changes no bit of what is computed. It waits for the device after each kernel, so it is for a step that is computed again,
// not for training. What a library computes as a whole on a GPU (attention, recurrent layers) is computed by kernels in its place,
// which the log has.
//
// With Look::gradients it is for a step of training itself: it only notes the largest gradient in float16, and leaves the library
// its work, whose own kernels it does not see.
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
  bool number = false;                // a C++ number
  std::vector<int> producers;         // events that wrote the memory, in order; <= -2: roots. Empty: not known
  std::optional<ValueCounts> counts;  // set where the kernel wrote values that are not finite
};
struct KernelWrite {
  DType dtype = DType::f32;
  Shape shape;
  ValueCounts counts;
};
struct KernelEvent {
  std::string kernel;                  // "gemm"; of elementwise kernels and reductions which one: "div", "sum"
  std::string op;                      // that called it: "linear"; "autocast" for its casts; else the kernel
  const std::string* layer = nullptr;  // "encoder.0"; null outside of any
  StepPass pass = StepPass::forward;
  std::vector<KernelRead> reads;
  std::vector<KernelWrite> writes;
  bool any_not_finite() const;  // whether it writes values that are not finite
};

class KernelLog final : public OpObserver {
 public:
  // everything: attention and recurrent networks are computed kernel by kernel, so that each is seen; other bits than those of a
  // device's library. kernels: what a library computes as a whole stays its work, and is one event. gradients: largest_gradient()
  // alone.
  enum class Look : uint8_t { everything, kernels, gradients };
  // For tests: called after event `event` with its first floating output.
  using Change = std::function<void(int event, const TensorView& out)>;
  // Throws ValueError on Device::meta, and where the thread has an open log.
  [[nodiscard]] explicit KernelLog(Device device, Change change = nullptr, Look look = Look::everything);
  ~KernelLog() override;
  KernelLog(const KernelLog&) = delete;

  // Adds a tensor that existed before: "input", "param:fc1.weight". Ignores undefined tensors. `on_purpose`: its infinities are
  // intended, such as those of a mask.
  void root(std::string name, const Tensor& t, bool on_purpose = false);
  // Called after each event, with the memory that it wrote.
  using Seen = std::function<void(const KernelEvent&, std::span<const TensorView> writes)>;
  void on_event(Seen seen) { seen_ = std::move(seen); }
  bool is_on_purpose(int producer) const { return on_purpose_[size_t(-2 - producer)]; }
  const std::vector<KernelEvent>& events() const { return events_; }
  const std::string& root_name(int producer) const { return roots_[size_t(-2 - producer)]; }
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
  static constexpr int kHost = -1;  // a producer that is no event

  struct Range {
    uintptr_t end;
    int event;
  };
  ValueCounts count(const TensorView& v);
  void take_over(const TensorView& v, int event);  // assigns its memory to this event from now on
  std::vector<int> producers_of(const TensorView& v) const;
  std::vector<std::optional<ValueCounts>> before(std::span<const TensorView> reads, std::span<const TensorView> writes);
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
  std::map<uintptr_t, Range> owners_;  // by the first byte; ranges do not overlap
  Tensor row_;                         // of the kernel `tally`
  std::string op_;                     // the outermost call that is open
  int depth_ = 0, casting_ = 0;        // calls and casts that are open
  // Counts of the values that running kernels overwrite.
  std::map<const ObservedKernel*, std::vector<std::optional<ValueCounts>>> before_;
  std::optional<Observing> observing_;
};

// Source of the values that are not finite.
struct Origin {
  std::string root;             // the root that had them; empty: an event produced them
  int event = -1;               // else this event wrote it from good values, or from infinities that are there on purpose
  std::optional<int> nan_born;  // the first event on the way that made a NaN of infinities
  bool planted = false;         // the event read infinities that are there on purpose, such as those of a mask
  bool is_known() const { return !root.empty() || event >= 0; }
};
// Follows the values of `sink` that are not finite back to the event that produced them from finite ones, or to the root that had
// them. Does not follow infinities that were written on purpose: C++ numbers and tensors that no observed kernel wrote, passed on
// by fill, where, copy, add, sub or mul, without a NaN.
Origin origin_of(const KernelLog& log, const Tensor& sink);

}  // namespace halfstep
