// SPDX-License-Identifier: Apache-2.0
#include "framework/backend/cpu/conv/onednn.h"

#include "framework/backend/backend.h"

#ifdef HALFSTEP_WITH_DNNL
#include <cstring>
#include <list>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "framework/backend/cpu/held_signals.h"
#include "framework/backend/cpu/onednn.h"
#include "framework/backend/cpu/team.h"
#include "framework/backend/workspace.h"
#include "framework/base/check.h"

namespace halfstep::cpu {
namespace {

using Memory = dnnl::memory;
using Algorithm = dnnl::algorithm;

constexpr size_t kPlans = 256;
constexpr int64_t kBlock = 16;       // channels that the library's layouts keep together, padded with zeros
constexpr int64_t kFewChannels = 4;  // ... of which most would be zeros

constexpr int kWords = 11 + 6 * 3;
struct Key {
  int64_t words[kWords];
  bool operator==(const Key& o) const { return std::memcmp(words, o.words, sizeof words) == 0; }
};
struct KeyHash {
  size_t operator()(const Key& key) const {
    uint64_t h = 0;
    for (int64_t w : key.words) h = (h ^ uint64_t(w)) * 0x9E3779B97F4A7C15u, h ^= h >> 29;
    return size_t(h);
  }
};

// How many of OpenMP's threads pay. oneDNN cuts up convolutions itself, and some of its code needs all threads at once.
int threads_of(const ConvProblem& p) {
  int64_t taps = p.channels / p.groups, pixels = p.images;
  for (int64_t n : p.window.size) taps *= n;
  for (int64_t n : p.out) pixels *= n;
  return threads_for(product_work(1, pixels, p.filters, taps, p.from == DType::bf16), num_threads());
}

// A primitive's schedule is made for a number of threads.
Key key_of(const ConvProblem& p) {
  Key key{{int64_t(p.pass), p.images, p.channels, p.filters, p.groups, int64_t(p.from), int64_t(p.to), p.with_bias, p.window.dims,
           omp_get_max_threads(), int64_t(p.format)}};
  int at = 11;
  for (const Spatial* s : {&p.window.size, &p.window.stride, &p.window.padding, &p.window.dilation, &p.in, &p.out})
    for (int64_t n : *s) key.words[at++] = n;
  return key;
}

// What a primitive is made of: the three tensors as they lie in memory, and the window as oneDNN counts it.
struct Shapes {
  Memory::desc x, weight, y, bias;
  bool has_bias = false;
  Memory::dims strides, dilates, before, after;

  explicit Shapes(const ConvProblem& p) {
    const int dims = p.window.dims;
    Memory::dims in{p.images, p.channels}, taps, out{p.images, p.filters};
    if (p.groups > 1) taps.push_back(p.groups);
    taps.push_back(p.filters / p.groups);
    taps.push_back(p.channels / p.groups);
    for (size_t d = 0; d < size_t(dims); ++d) {
      const int64_t stride = p.window.stride[d], reach = (p.window.size[d] - 1) * p.window.dilation[d] + 1;
      in.push_back(p.in[d]);
      taps.push_back(p.window.size[d]);
      out.push_back(p.out[d]);
      strides.push_back(stride);
      dilates.push_back(p.window.dilation[d] - 1);
      before.push_back(p.window.padding[d]);
      after.push_back((p.out[d] - 1) * stride + reach - p.in[d] - p.window.padding[d]);
    }
    x = plain(in, 1, p.format, type_of(p.pass == ConvPass::data ? p.to : p.from));
    weight = plain(taps, p.groups > 1 ? 2 : 1, p.format, type_of(p.pass == ConvPass::weight ? p.to : p.from));
    y = plain(out, 1, p.format, type_of(p.pass == ConvPass::forward ? p.to : p.from));
    has_bias = p.with_bias;
    if (has_bias) bias = plain({p.filters}, 0, MemoryFormat::contiguous, Memory::data_type::f32);
  }
  // The same, with layouts for the library to choose: of the weight, and of images where `all`.
  Shapes free(bool all) const {
    Shapes s = *this;
    s.weight = in_any_layout(weight);
    if (all) s.x = in_any_layout(x), s.y = in_any_layout(y);
    return s;
  }

 private:
  // In channels_last the dimension `channels` is the innermost one.
  static Memory::desc plain(const Memory::dims& sizes, size_t channels, MemoryFormat format, Memory::data_type type) {
    Memory::dims steps(sizes.size(), 1);
    int64_t step = 1;
    const auto lay = [&](size_t d) {
      steps[d] = step;
      step *= sizes[d];
    };
    const bool last = format == MemoryFormat::channels_last;
    if (last) lay(channels);
    for (size_t d = sizes.size(); d-- > 0;)
      if (!last || d != channels) lay(d);
    return Memory::desc(sizes, type, steps);
  }
};

// A primitive and the layouts it wants.
struct Chosen {
  dnnl::primitive primitive;
  Memory::desc x, weight, y, scratch;
  bool leaves_stack = false;
};

dnnl::primitive_attr attributes() {
  dnnl::primitive_attr a;
  a.set_scratchpad_mode(dnnl::scratchpad_mode::user);
  return a;
}

dnnl::convolution_forward::primitive_desc forward(Algorithm how, const Shapes& s) {
  using dnnl::convolution_forward;
  const auto kind = dnnl::prop_kind::forward_training;
  if (s.has_bias)
    return describe<convolution_forward>(attributes(), kind, how, s.x, s.weight, s.bias, s.y, s.strides, s.dilates, s.before,
                                         s.after);
  return describe<convolution_forward>(attributes(), kind, how, s.x, s.weight, s.y, s.strides, s.dilates, s.before, s.after);
}

// The library's own products of columns ("gemm") are slower than ours where it reorders for nothing; its reference code is for
// tests.
bool worth_calling(std::string_view code, bool plain) {
  return code.find("ref") == std::string_view::npos && (plain || code.find("gemm") == std::string_view::npos);
}

// False, or an exception, where there is no code.
bool choose(ConvPass pass, Algorithm how, const Shapes& s, const Shapes& hint, bool plain, Chosen& chosen) {
  if (pass == ConvPass::forward) {
    const auto pd = forward(how, s);
    if (!worth_calling(pd.impl_info_str(), plain)) return false;
    chosen = {dnnl::convolution_forward(pd),
              pd.src_desc(),
              pd.weights_desc(),
              pd.dst_desc(),
              pd.scratchpad_desc(),
              moves_stack_pointer(pd.impl_info_str())};
    return true;
  }
  const auto first = forward(Algorithm::convolution_direct, hint);
  if (pass == ConvPass::data) {
    using Backward = dnnl::convolution_backward_data;
    const auto pd =
        describe_gradient<Backward>(attributes(), first, how, s.x, s.weight, s.y, s.strides, s.dilates, s.before, s.after);
    if (!worth_calling(pd.impl_info_str(), plain)) return false;
    chosen = {Backward(pd),
              pd.diff_src_desc(),
              pd.weights_desc(),
              pd.diff_dst_desc(),
              pd.scratchpad_desc(),
              moves_stack_pointer(pd.impl_info_str())};
    return true;
  }
  using Backward = dnnl::convolution_backward_weights;
  const auto described = [&](const auto&... out) {
    return describe_gradient<Backward>(attributes(), first, how, s.x, s.weight, out..., s.strides, s.dilates, s.before, s.after);
  };
  const auto pd = s.has_bias ? described(s.bias, s.y) : described(s.y);
  if (!worth_calling(pd.impl_info_str(), plain)) return false;
  chosen = {Backward(pd),
            pd.src_desc(),
            pd.diff_weights_desc(),
            pd.diff_dst_desc(),
            pd.scratchpad_desc(),
            moves_stack_pointer(pd.impl_info_str())};
  return true;
}

// The layouts that code is asked for: as the tensors lie, with a free layout of the weight, or all free.
enum class Layouts : uint8_t { plain, images, free };

// A gradient's code wants to know the forward's: one of the operands' dtype throughout.
bool try_choose(const ConvProblem& p, Algorithm how, Layouts layouts, Chosen& chosen) {
  ConvProblem forward_of = p;
  forward_of.pass = ConvPass::forward;
  forward_of.to = p.from;
  try {
    const Shapes shapes(p), hint(forward_of);
    if (layouts == Layouts::plain) return choose(p.pass, how, shapes, hint, true, chosen);
    const bool all = layouts == Layouts::free;
    return choose(p.pass, how, shapes.free(all), hint.free(all), false, chosen);
  } catch (const dnnl::error&) { return false; }
}

bool all_are(const Spatial& s, int64_t value) { return s == Spatial{value, value, value}; }

// Measured. Winograd is 1.8 to 2.5 times direct code where it applies. Reorders cost more than they bring where a layer has one
// tap, or a gradient few channels: products of plain columns are faster, but for one pass.
bool choose(const ConvProblem& p, Chosen& chosen) {
  const Window& w = p.window;
  const bool steps = all_are(w.stride, 1) && all_are(w.dilation, 1), data = p.pass == ConvPass::data,
             last = p.format == MemoryFormat::channels_last;
  if (p.groups == 1) {
    // In channels_last it is one product, without columns.
    const bool reads_all = steps && all_are(w.padding, 0);
    if (all_are(w.size, 1) && last && reads_all) return false;
    if (all_are(w.size, 1) && !last)
      return data && p.from == DType::f32 && reads_all &&
             try_choose(p, Algorithm::convolution_direct, Layouts::plain, chosen);
    if (data && p.channels <= kFewChannels) return false;
    const bool winograd =
        p.from == DType::f32 && w.dims == 2 && w.size == Spatial{3, 3, 1} && steps && p.channels >= kBlock && p.filters >= kBlock;
    if (winograd && try_choose(p, Algorithm::convolution_winograd, Layouts::free, chosen)) return true;
  }
  if (last && try_choose(p, Algorithm::convolution_direct, Layouts::images, chosen)) return true;
  return try_choose(p, Algorithm::convolution_direct, Layouts::free, chosen);
}

}  // namespace

// A primitive with its arguments bound once; a call only changes the pointers. `inner` memory is in the library's layout.
class ConvPlan {
 public:
  ConvPlan(const ConvProblem& p, const Chosen& chosen)
      : threads_(omp_get_max_threads()), leaves_stack_(chosen.leaves_stack), primitive_(chosen.primitive) {
    const Shapes outside(p);
    const bool data = p.pass == ConvPass::data, weight = p.pass == ConvPass::weight;
    bind(x_, outside.x, chosen.x, data ? DNNL_ARG_DIFF_SRC : DNNL_ARG_SRC, data);
    bind(weight_, outside.weight, chosen.weight, weight ? DNNL_ARG_DIFF_WEIGHTS : DNNL_ARG_WEIGHTS, weight);
    bind(y_, outside.y, chosen.y, data || weight ? DNNL_ARG_DIFF_DST : DNNL_ARG_DST, !data && !weight);
    if (p.with_bias) {
      bias_ = Memory(outside.bias, engine(), nullptr);
      arguments_.push_back({weight ? DNNL_ARG_DIFF_BIAS : DNNL_ARG_BIAS, bias_.get()});
    }
    scratch_ = Memory(chosen.scratch, engine(), nullptr);
    scratch_at_ = take(chosen.scratch.get_size());
    arguments_.push_back({DNNL_ARG_SCRATCHPAD, scratch_.get()});
  }

  void run(const void* x, const void* weight, const void* y, const float* bias) {
    thread_local dnnl::stream stream(engine());
    const OpenMpThreads as_made(threads_);
    const Workspace work(Device::cpu, bytes_);
    if (WorkspacePlan::open()) return;
    const void* pointers[3] = {x, weight, y};
    Side* sides[3] = {&x_, &weight_, &y_};
    for (int i = 0; i < 3; ++i) {
      Side& s = *sides[i];
      set(s.outer, pointers[i]);
      if (!s.reorder) continue;
      set(s.inner, work.data() + s.inner_at);
      if (!s.written) execute(s.reorder, stream, {{DNNL_ARG_FROM, s.outer.get()}, {DNNL_ARG_TO, s.inner.get()}});
    }
    if (bias) set(bias_, bias);
    set(scratch_, work.data() + scratch_at_);
    {
      const HeldSignals held(leaves_stack_);
      execute(primitive_, stream, arguments_);
    }
    for (Side* s : sides)
      if (s->reorder && s->written) execute(s->reorder, stream, {{DNNL_ARG_FROM, s->inner.get()}, {DNNL_ARG_TO, s->outer.get()}});
    if (threads_ > 1) openmp_was_used();
  }

 private:
  struct Side {
    Memory outer, inner;      // as the caller has it, as the primitive wants it
    dnnl::primitive reorder;  // between the two; none where they are the same
    size_t inner_at = 0;
    bool written = false;
  };

  void bind(Side& side, const Memory::desc& outside, const Memory::desc& inside, int argument, bool written) {
    side.written = written;
    side.outer = Memory(outside, engine(), nullptr);
    if (inside != outside) {
      side.inner = Memory(inside, engine(), nullptr);
      side.inner_at = take(inside.get_size());
      side.reorder = written ? dnnl::reorder(side.inner, side.outer) : dnnl::reorder(side.outer, side.inner);
    }
    arguments_.push_back({argument, (side.reorder ? side.inner : side.outer).get()});
  }
  size_t take(size_t bytes) {
    const size_t at = bytes_;
    bytes_ += (bytes + 63) / 64 * 64;
    return at;
  }
  static void set(Memory& m, const void* p) { dnnl_memory_set_data_handle(m.get(), const_cast<void*>(p)); }
  static void execute(const dnnl::primitive& p, const dnnl::stream& stream, const std::vector<dnnl_exec_arg_t>& arguments) {
    const dnnl_status_t status = dnnl_primitive_execute(p.get(), stream.get(), int(arguments.size()), arguments.data());
    check<Error>(status == dnnl_success, "conv", "oneDNN failed with status ", int(status));
  }

  int threads_;
  bool leaves_stack_;
  dnnl::primitive primitive_;
  Side x_, weight_, y_;
  Memory bias_, scratch_;
  size_t scratch_at_ = 0, bytes_ = 0;
  std::vector<dnnl_exec_arg_t> arguments_;
};

namespace {

// One a host thread: no lock, and a plan's pointers may be changed freely. Problems without code are remembered, too.
class Plans {
 public:
  ConvPlan* find(const Key& key, const ConvProblem& p) {
    if (const auto it = index_.find(key); it != index_.end()) {
      entries_.splice(entries_.begin(), entries_, it->second);
      return entries_.front().plan.get();
    }
    std::unique_ptr<ConvPlan> plan;
    if (Chosen chosen; choose(p, chosen)) plan = std::make_unique<ConvPlan>(p, chosen);
    if (entries_.size() == kPlans) {
      index_.erase(entries_.back().key);
      entries_.pop_back();
    }
    entries_.push_front({key, std::move(plan)});
    index_[key] = entries_.begin();
    return entries_.front().plan.get();
  }

 private:
  struct Entry {
    Key key;
    std::unique_ptr<ConvPlan> plan;
  };
  std::list<Entry> entries_;  // newest use first
  std::unordered_map<Key, std::list<Entry>::iterator, KeyHash> index_;
};

}  // namespace

ConvPlan* conv_plan(const ConvProblem& problem) {
  thread_local Plans plans;
  const OpenMpThreads threads(threads_of(problem));
  try {
    return plans.find(key_of(problem), problem);
  } catch (const dnnl::error&) { return nullptr; }
}

void run(ConvPlan& plan, const void* x, const void* weight, const void* y, const float* bias) { plan.run(x, weight, y, bias); }

}  // namespace halfstep::cpu
#else
namespace halfstep::cpu {
ConvPlan* conv_plan(const ConvProblem&) { return nullptr; }
void run(ConvPlan&, const void*, const void*, const void*, const float*) {}
}  // namespace halfstep::cpu
#endif
