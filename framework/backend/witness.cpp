// SPDX-License-Identifier: Apache-2.0
#include "framework/backend/witness.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <utility>

#include "framework/backend/accesses.h"
#include "framework/backend/backend.h"
#include "framework/backend/dnn.h"
#include "framework/backend/recurrent_library.h"
#include "framework/base/check.h"
#include "framework/base/layer_path.h"
#include "framework/math/tally.h"
#include "framework/math/update_rules.h"

namespace halfstep {
namespace {

std::string_view kind_of(Unary op) {
  constexpr std::string_view names[] = {
#define HS_UNARY(name) #name,
#include "generated/elementwise_names.def"
  };
  return names[size_t(op)];
}
std::string_view kind_of(Binary op) {
  constexpr std::string_view names[] = {
#define HS_BINARY(name) #name,
#include "generated/elementwise_names.def"
  };
  return names[size_t(op)];
}
std::string_view kind_of(Pointwise op) {
  constexpr std::string_view names[] = {
#define HS_POINTWISE(name) #name,
#include "generated/pointwise_names.def"
  };
  return names[size_t(op)];
}
std::string_view kind_of(Reduce op) {
  constexpr std::string_view names[] = {"sum", "mean", "prod", "max", "min", "any", "all", "sum_abs", "sum_squares"};
  return names[size_t(op)];
}
template <class T>
std::string_view kind_of(const T&) {
  return {};
}

// "binary_backward" of div: "div_backward".
std::string named(std::string_view kernel, std::string_view kind) {
  if (kind.empty()) return std::string(kernel);
  return std::string(kind) + (kernel.ends_with("_backward") ? "_backward" : "");
}

// The bytes between a view's first and last element.
std::pair<uintptr_t, uintptr_t> extent(const TensorView& v) {
  int64_t low = 0, high = 0;
  for (int d = 0; d < v.shape.size(); ++d) {
    if (v.shape[d] == 0) return {0, 0};
    const int64_t reach = v.strides[d] * (v.shape[d] - 1);
    (reach < 0 ? low : high) += reach;
  }
  const auto first = reinterpret_cast<uintptr_t>(v.data);
  const int64_t size = int64_t(size_of(v.dtype));
  return {first + uintptr_t(low * size), first + uintptr_t((high + 1) * size)};
}

bool overlap(const TensorView& a, const TensorView& b) {
  const auto [a_begin, a_end] = extent(a);
  const auto [b_begin, b_end] = extent(b);
  return a_begin < b_end && b_begin < a_end;
}

ValueCounts counts_of_number(const TensorView& v) {
  const double x = v.dtype == DType::f64 ? *v.as<double>() : double(*v.as<float>());
  ValueCounts out{.numel = 1};
  out.nan = std::isnan(x);
  out.positive_inf = std::isinf(x) && x > 0;
  out.negative_inf = std::isinf(x) && x < 0;
  out.zero = x == 0;
  if (!std::isfinite(x) || x == 0) return out;
  out.negative = x < 0;
  out.largest = out.smallest = std::abs(x);
  return out;
}

ValueCounts counts_of_row(const int64_t* row, int64_t numel) {
  ValueCounts out{.numel = numel};
  out.nan = row[math::kTallyNan];
  out.positive_inf = row[math::kTallyPositiveInf];
  out.negative_inf = row[math::kTallyNegativeInf];
  out.zero = row[math::kTallyZero];
  out.negative = row[math::kTallyNegative];
  out.subnormal = row[math::kTallySubnormal];
  out.largest = std::bit_cast<double>(row[math::kTallyLargest]);
  if (out.largest > 0) out.smallest = std::bit_cast<double>(row[math::kTallySmallest]);
  return out;
}

ValueCounts counted(Backend& backend, const TensorView& v, const TensorView& row) {
  if (!is_floating(v.dtype) || v.numel() == 0) return {.numel = v.numel()};
  if (v.number) return counts_of_number(v);
  backend.tally(v, false, row);
  int64_t host[math::kTallyCounts];
  backend.copy_to_host(row.data, host, sizeof host);
  return counts_of_row(host, v.numel());
}

Tensor tally_row(Device device) {
  const MemoryScope tag(MemoryTag::workspace);
  return Tensor::empty({math::kTallyCounts}, {.dtype = DType::i64, .device = device});
}

}  // namespace

ValueCounts count_values(const Tensor& t) { return counted(backend_for(t.device()), t.view(), tally_row(t.device()).view()); }

bool KernelEvent::bad() const {
  return std::any_of(writes.begin(), writes.end(), [](const KernelWrite& w) { return w.counts.bad(); });
}

// Hands each call to the device's backend, and reports it to the witness.
class WitnessBackend : public Backend {
 public:
  WitnessBackend(Witness& witness, Backend& real) : w_(witness), real_(real) {}

#define HS_UNPACK(...) __VA_ARGS__
#define HS_KERNEL(name, parameters, arguments)                      \
  void name parameters override {                                   \
    look(                                                           \
        #name, [&] { real_.name arguments; }, HS_UNPACK arguments); \
  }
#include "framework/backend/kernels.def"
#undef HS_UNPACK

  Device::Type device_type() const override { return real_.device_type(); }
  std::string describe() const override { return real_.describe(); }
  void synchronize() override { real_.synchronize(); }
  void copy_from_host(const void* src, void* dst, size_t bytes) override {
    real_.copy_from_host(src, dst, bytes);
    w_.take_over({dst, DType::u8, {int64_t(bytes)}, {1}}, kHost);
  }
  void copy_to_host(const void* src, void* dst, size_t bytes) override { real_.copy_to_host(src, dst, bytes); }
  std::unique_ptr<UploadLane> open_upload_lane() override { return real_.open_upload_lane(); }
  std::unique_ptr<Stopwatch> open_stopwatch() override { return real_.open_stopwatch(); }
  uint64_t host_reads() const override { return real_.host_reads(); }
  AuxLayout activation_aux(Activation activation, int64_t rows, int64_t columns, DType dtype) const override {
    return real_.activation_aux(activation, rows, columns, dtype);
  }
  AuxLayout packed_layout(int64_t k, int64_t n, DType dtype) const override { return real_.packed_layout(k, n, dtype); }
  void pack(InView b, OutView packed) override { real_.pack(b, packed); }
  bool gains_by_packing(int64_t rows, int64_t k, int64_t n, DType dtype) const override {
    return real_.gains_by_packing(rows, k, n, dtype);
  }
  // In order, in this thread: the same parts, so the same bits.
  int64_t sides(int64_t rows, int64_t multiplications, DType dtype) const override {
    return real_.sides(rows, multiplications, dtype);
  }
  int64_t check_targets(const TensorView& target, int64_t classes, int64_t ignore_index) override {
    return real_.check_targets(target, classes, ignore_index);
  }
  int64_t check_indices(const TensorView& index, int64_t size) override { return real_.check_indices(index, size); }

 protected:
  using Views = std::vector<TensorView>;

  // A call of a library, which may decline.
  template <class Call>
  bool look_at_library(const char* kernel, Views reads, Views writes, const Call& call) {
    if (w_.look_ == Witness::Look::gradients) return call();
    for (Views* views : {&reads, &writes}) std::erase_if(*views, [](const TensorView& v) { return !v; });
    auto before = w_.before(reads, writes);
    const bool done = call();
    if (done) w_.saw(named(kernel, {}), reads, writes, std::move(before));
    return done;
  }

 private:
  static constexpr int kHost = -1;  // a producer that is no event

  template <class Call, class... Arguments>
  void look(std::string_view kernel, const Call& call, const Arguments&... arguments) {
    if (w_.look_ == Witness::Look::gradients) return look_at_gradients(call, arguments...);
    std::string_view kind;
    (
        [&] {
          if (const std::string_view k = kind_of(arguments); !k.empty()) kind = k;
        }(),
        ...);
    Views reads, writes;
    (collect(arguments, reads, writes), ...);
    if (const BatchNormArgs* norm = first<BatchNormArgs>(arguments...); norm && norm->training && kernel == "batch_norm")
      std::erase_if(reads, [&](const TensorView& r) {  // the running statistics, of which nothing else depends
        return std::any_of(writes.begin(), writes.end(), [&](const TensorView& o) { return o.data == r.data; });
      });
    auto before = w_.before(reads, writes);
    call();
    w_.saw(named(kernel, kind), reads, writes, std::move(before));
  }
  // An event for each parameter.
  template <class Call>
  void look(std::string_view, const Call& call, const std::span<const ParamUpdate>& params, const UpdateRule& rule,
            const StepControl&) {
    if (w_.look_ == Witness::Look::gradients) return call();
    std::vector<Views> reads(params.size()), writes(params.size());
    std::vector<std::vector<std::optional<ValueCounts>>> before;
    for (size_t i = 0; i < params.size(); ++i) {
      collect(params[i], reads[i], writes[i]);
      before.push_back(w_.before(reads[i], writes[i]));
    }
    call();
    const std::string_view name = rule.visit([](const auto& r) -> std::string_view { return r.kName; });
    for (size_t i = 0; i < params.size(); ++i) w_.saw(name, reads[i], writes[i], std::move(before[i]));
  }

  template <class Call, class... Arguments>
  void look_at_gradients(const Call& call, const Arguments&... arguments) {
    call();
    if (Ledger::current_pass() != LedgerPass::backward) return;
    Views reads, writes;
    (collect(arguments, reads, writes), ...);
    for (const TensorView& v : writes) w_.saw_gradient(v);
  }

  template <class T>
  static void collect(const T& argument, Views& reads, Views& writes) {
    each_access(argument, [&](const TensorView& v, Access access) {
      if (!v) return;
      if (access != Access::write) reads.push_back(v);
      if (access != Access::read) writes.push_back(v);
    });
  }
  template <class Wanted, class... T>
  static const Wanted* first(const T&... arguments) {
    const Wanted* found = nullptr;
    (
        [&] {
          if constexpr (std::is_same_v<T, Wanted>) found = &arguments;
        }(),
        ...);
    return found;
  }

  Witness& w_;
  Backend& real_;
};

// What a device's library computes as a whole stays its work.
class LibraryWitness final : public WitnessBackend, public AttentionLibrary, public RecurrentLibrary {
 public:
  LibraryWitness(Witness& witness, Backend& real, AttentionLibrary& attention, RecurrentLibrary& recurrent)
      : WitnessBackend(witness, real), attention_(attention), recurrent_(recurrent) {}

  bool attention(const AttentionArgs& args, Generator::State state, const TensorView& out, const TensorView& stats,
                 bool differentiable) override {
    return look_at_library("attention", {args.q, args.k, args.v}, {out, stats},
                           [&] { return attention_.attention(args, state, out, stats, differentiable); });
  }
  bool attention_backward(const AttentionArgs& args, Generator::State state, const AttentionGradients& gradients) override {
    return look_at_library("attention_backward", {args.q, args.k, args.v, gradients.out, gradients.stats, gradients.grad},
                           {gradients.dq, gradients.dk, gradients.dv},
                           [&] { return attention_.attention_backward(args, state, gradients); });
  }
  std::optional<RecurrentSpaces> recurrent_spaces(const RecurrentArgs& args) override { return recurrent_.recurrent_spaces(args); }
  bool recurrent(const RecurrentArgs& args, const RecurrentTensors& tensors) override {
    return look_at_library("recurrent", {tensors.x, tensors.weights, tensors.h, tensors.c},
                           {tensors.y, tensors.h_out, tensors.c_out}, [&] { return recurrent_.recurrent(args, tensors); });
  }
  bool recurrent_backward(const RecurrentArgs& args, const RecurrentTensors& tensors, const RecurrentGradients& grads) override {
    return look_at_library(
        "recurrent_backward", {tensors.x, tensors.weights, tensors.h, tensors.c, tensors.y, grads.y, grads.h, grads.c},
        {grads.dx, grads.dh, grads.dc, grads.dweights}, [&] { return recurrent_.recurrent_backward(args, tensors, grads); });
  }
  uint64_t recurrent_calls() const override { return recurrent_.recurrent_calls(); }

 private:
  AttentionLibrary& attention_;
  RecurrentLibrary& recurrent_;
};

Witness::Witness(Device device, Change change, Look look)
    : device_(device), real_(backend_for(device)), change_(std::move(change)), look_(look), row_(tally_row(device)) {
  check<ValueError>(!device.is_meta(), "Witness", "a witness needs values, which Device::meta does not have");
  check<ValueError>(!open_, "Witness", "this thread has an open witness");
  if (look != Look::gradients) ledger_ = std::make_unique<LedgerScope>(device);
  if (look == Look::everything) {
    backend_ = std::make_unique<WitnessBackend>(*this, real_);
  } else {
    auto* const attention = dynamic_cast<AttentionLibrary*>(&real_);
    auto* const recurrent = dynamic_cast<RecurrentLibrary*>(&real_);
    if (attention && recurrent)
      backend_ = std::make_unique<LibraryWitness>(*this, real_, *attention, *recurrent);
    else
      backend_ = std::make_unique<WitnessBackend>(*this, real_);
  }
  open_ = this;
}
Witness::~Witness() { open_ = nullptr; }

void Witness::root(std::string name, const Tensor& t, bool on_purpose) {
  if (!t.defined()) return;
  roots_.push_back(std::move(name));
  on_purpose_.push_back(on_purpose);
  take_over(t.view(), -1 - int(roots_.size()));
}

ValueCounts Witness::count(const TensorView& v) { return counted(real_, v, row_.view()); }

void Witness::take_over(const TensorView& v, int event) {
  const auto [begin, end] = extent(v);
  if (begin >= end) return;
  auto at = owners_.lower_bound(begin);
  if (at != owners_.begin()) {
    auto& [first, range] = *std::prev(at);
    if (range.end > begin) {
      if (range.end > end) owners_[end] = range;
      range.end = begin;
    }
  }
  at = owners_.lower_bound(begin);
  while (at != owners_.end() && at->first < end) {
    const Range old = at->second;
    at = owners_.erase(at);
    if (old.end > end) owners_[end] = old;
  }
  owners_[begin] = {end, event};
}

std::vector<int> Witness::producers_of(const TensorView& v) const {
  const auto [begin, end] = extent(v);
  std::vector<int> out;
  auto at = owners_.upper_bound(begin);
  if (at != owners_.begin()) --at;
  for (; at != owners_.end() && at->first < end; ++at)
    if (at->second.end > begin && at->second.event != -1) out.push_back(at->second.event);
  std::sort(out.begin(), out.end());
  out.erase(std::unique(out.begin(), out.end()), out.end());
  return out;
}

// What those reads hold that the kernel overwrites.
std::vector<std::optional<ValueCounts>> Witness::before(std::span<const TensorView> reads, std::span<const TensorView> writes) {
  std::vector<std::optional<ValueCounts>> out(reads.size());
  for (size_t i = 0; i < reads.size(); ++i) {
    if (reads[i].number) continue;
    if (std::any_of(writes.begin(), writes.end(), [&](const TensorView& w) { return overlap(reads[i], w); }))
      out[i] = count(reads[i]);
  }
  return out;
}

void Witness::saw(std::string_view kernel, std::span<const TensorView> reads, std::span<const TensorView> writes,
                  std::vector<std::optional<ValueCounts>> before) {
  const int id = int(events_.size());
  KernelEvent e;
  e.kernel = kernel;
  e.op = Ledger::current_op();
  if (e.op.empty()) e.op = kernel;
  e.pass = Ledger::current_pass();
  e.layer = LayerScope::current();
  Ledger::kernel(kernel, 0, 0);
  if (change_) {
    const auto out =
        std::find_if(writes.begin(), writes.end(), [](const TensorView& v) { return is_floating(v.dtype) && v.numel() > 0; });
    if (out != writes.end()) change_(id, *out);
  }
  for (const TensorView& v : writes) e.writes.push_back({v.dtype, v.shape, count(v)});
  const bool bad = e.bad();
  for (size_t i = 0; i < reads.size(); ++i) {
    const TensorView& v = reads[i];
    KernelRead r{v.dtype, v.shape, v.number, {}, {}};
    if (!v.number) r.producers = producers_of(v);
    if (bad) r.counts = before[i] ? before[i] : count(v);
    e.reads.push_back(std::move(r));
  }
  for (const TensorView& v : writes) take_over(v, id);
  events_.push_back(std::move(e));
  if (seen_) seen_(events_.back(), writes);
}

void Witness::saw_gradient(const TensorView& v) {
  if (v.dtype != DType::f16) return;
  const ValueCounts c = count(v);
  largest_gradient_ = c.bad() ? std::numeric_limits<double>::infinity() : std::max(largest_gradient_, c.largest);
}

}  // namespace halfstep
