// SPDX-License-Identifier: Apache-2.0
#include "framework/backend/cpu/conv/primitive.h"

#ifdef HALFSTEP_WITH_DNNL
#include <algorithm>
#include <cstring>
#include <list>
#include <mutex>
#include <string_view>
#include <unordered_map>

#include "framework/backend/backend.h"
#include "framework/backend/cpu/gemm/gemm.h"
#include "framework/backend/cpu/held_signals.h"
#include "framework/backend/cpu/team.h"
#include "framework/base/check.h"
#include "framework/base/float_state.h"
#include "framework/base/fork_mutex.h"

namespace halfstep::cpu {

// A primitive and its layouts.
struct ChosenCode {
  dnnl::primitive primitive;
  dnnl::memory::desc x, weight, y, scratch;
  bool leaves_stack = false;
};

namespace {

using Memory = dnnl::memory;
using Algorithm = dnnl::algorithm;

constexpr size_t kCachedCodes = 256;   // primitives that a thread keeps
constexpr int64_t kChannelBlock = 16;  // block of channels in the library's layouts, padded with zeros
constexpr int64_t kFewChannels = 4;    // number of channels up to which most of a block would be zeros

constexpr int kNumbers = 13, kWords = kNumbers + 6 * 3;  // numbers of a problem besides its spatial sizes; all
struct Key {
  int64_t words[kWords];
  bool operator==(const Key& o) const { return std::memcmp(words, o.words, sizeof words) == 0; }
};
struct KeyHash {
  size_t operator()(const Key& key) const { return hash_of_words(key.words, sizeof key.words); }
};

// Returns the cache key, which includes the number of threads because a primitive's schedule depends on it.
Key key_of(const ConvProblem& p) {
  Key key{{int64_t(p.pass), p.images, p.channels, p.filters, p.groups, int64_t(p.from), int64_t(p.to), p.with_bias, p.window.dims,
           omp_get_max_threads(), int64_t(p.format), p.laid, p.filters_in_y}};
  int at = kNumbers;
  for (const Spatial* s : {&p.window.size, &p.window.stride, &p.window.padding, &p.window.dilation, &p.in, &p.out})
    for (int64_t n : *s) key.words[at++] = n;
  return key;
}

// The shapes of a primitive: the three tensors as they are in memory, and the window as oneDNN counts it.
struct Shapes {
  Memory::desc x, weight, y, bias;
  bool has_bias = false, laid = false;
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
    laid = p.laid;
    weight = plain(taps, p.groups > 1 ? 2 : 1, laid ? MemoryFormat::contiguous : p.format,
                   type_of(p.pass == ConvPass::weight ? p.to : p.from));
    y = plain(out, 1, p.format, type_of(p.pass == ConvPass::forward ? p.to : p.from), p.filters_in_y);
    has_bias = p.with_bias;
    if (has_bias) bias = plain({p.filters}, 0, MemoryFormat::contiguous, Memory::data_type::f32);
  }
  // Returns the same with layouts that the library may choose: of the weight, and with `all` of the images.
  Shapes with_free_layouts(bool all) const {
    Shapes s = *this;
    s.weight = in_any_layout(weight);
    if (all) s.x = in_any_layout(x), s.y = in_any_layout(y);
    return s;
  }

 private:
  // Describes plain memory; in channels_last the dimension `channels` is innermost. `channels_in_memory`: their
  // number, if these are a part of them; else 0.
  static Memory::desc plain(const Memory::dims& sizes, size_t channels, MemoryFormat format, Memory::data_type type,
                            int64_t channels_in_memory = 0) {
    Memory::dims steps(sizes.size(), 1);
    int64_t step = 1;
    const auto lay = [&](size_t d) {
      steps[d] = step;
      step *= d == channels && channels_in_memory > 0 ? channels_in_memory : sizes[d];
    };
    const bool last = format == MemoryFormat::channels_last;
    if (last) lay(channels);
    for (size_t d = sizes.size(); d-- > 0;)
      if (!last || d != channels) lay(d);
    return Memory::desc(sizes, type, steps);
  }
};

dnnl::primitive_attr attributes() {
  dnnl::primitive_attr a;
  a.set_scratchpad_mode(dnnl::scratchpad_mode::user);
  return a;
}

dnnl::convolution_forward::primitive_desc forward(Algorithm algorithm, const Shapes& s) {
  using dnnl::convolution_forward;
  // Only inference code lets us keep Winograd's transformed weight. Other code is requested as without a laid weight: version 3
  // may choose different code for inference, with other bits.
  const bool infers = s.laid && algorithm == Algorithm::convolution_winograd;
  const auto kind = infers ? dnnl::prop_kind::forward_inference : dnnl::prop_kind::forward_training;
  if (s.has_bias)
    return describe<convolution_forward>(attributes(), kind, algorithm, s.x, s.weight, s.bias, s.y, s.strides, s.dilates, s.before,
                                         s.after);
  return describe<convolution_forward>(attributes(), kind, algorithm, s.x, s.weight, s.y, s.strides, s.dilates, s.before, s.after);
}

// Returns whether code is worth calling. The library's own products of columns ("gemm") are slower than ours unless plain layouts
// save reorders; its reference code is for tests.
bool is_worth_calling(std::string_view code, bool plain) {
  return code.find("ref") == std::string_view::npos && (plain || code.find("gemm") == std::string_view::npos);
}

// Chooses a primitive. Returns false, or throws, if there is none.
bool choose(ConvPass pass, Algorithm algorithm, const Shapes& s, const Shapes& hint, bool plain, ChosenCode& chosen) {
  if (pass == ConvPass::forward) {
    const auto description = forward(algorithm, s);
    if (!is_worth_calling(description.impl_info_str(), plain)) return false;
    chosen = {dnnl::convolution_forward(description),
              description.src_desc(),
              description.weights_desc(),
              description.dst_desc(),
              description.scratchpad_desc(),
              moves_stack_pointer(description.impl_info_str())};
    return true;
  }
  const auto first = forward(Algorithm::convolution_direct, hint);
  if (pass == ConvPass::data) {
    using Backward = dnnl::convolution_backward_data;
    const auto description =
        describe_gradient<Backward>(attributes(), first, algorithm, s.x, s.weight, s.y, s.strides, s.dilates, s.before, s.after);
    if (!is_worth_calling(description.impl_info_str(), plain)) return false;
    chosen = {Backward(description),       description.diff_src_desc(),   description.weights_desc(),
              description.diff_dst_desc(), description.scratchpad_desc(), moves_stack_pointer(description.impl_info_str())};
    return true;
  }
  using Backward = dnnl::convolution_backward_weights;
  const auto described = [&](const auto&... out) {
    return describe_gradient<Backward>(attributes(), first, algorithm, s.x, s.weight, out..., s.strides, s.dilates, s.before,
                                       s.after);
  };
  const auto description = s.has_bias ? described(s.bias, s.y) : described(s.y);
  if (!is_worth_calling(description.impl_info_str(), plain)) return false;
  chosen = {Backward(description),       description.src_desc(),        description.diff_weights_desc(),
            description.diff_dst_desc(), description.scratchpad_desc(), moves_stack_pointer(description.impl_info_str())};
  return true;
}

// Requested layouts: those of the tensors, those with a free layout of the weight, or all free.
enum class Layouts : uint8_t { plain, images, free };

// Tries one choice. Code for a gradient needs the description of its forward, in the operands' dtype throughout.
bool try_choose(const ConvProblem& p, Algorithm algorithm, Layouts layouts, ChosenCode& chosen) {
  ConvProblem forward_of = p;
  forward_of.pass = ConvPass::forward;
  forward_of.to = p.from;
  try {
    const Shapes shapes(p), hint(forward_of);
    if (layouts == Layouts::plain) return choose(p.pass, algorithm, shapes, hint, true, chosen);
    const bool all = layouts == Layouts::free;
    return choose(p.pass, algorithm, shapes.with_free_layouts(all), hint.with_free_layouts(all), false, chosen);
  } catch (const dnnl::error&) { return false; }
}

bool all_are(const Spatial& s, int64_t value) { return s == Spatial{value, value, value}; }

// Returns whether the library has Winograd's method for this CPU: version 2 has it for AVX-512 only.
bool has_winograd() {
  return made_once([] {
    const Window window{.dims = 2, .size = {3, 3, 1}};
    const ConvProblem small{ConvPass::forward, 1, kChannelBlock, kChannelBlock, 1, window, {10, 10, 1}, {8, 8, 1}};
    ChosenCode chosen;
    return try_choose(small, Algorithm::convolution_winograd, Layouts::free, chosen);
  });
}

// Measured. Without AVX-512, version 2 of the library is slower for images in channels_last than for its own layout, although each
// call copies to and from that layout. Not so for windows of one tap.
bool prefers_own_layout(const ConvProblem& p) {
  return DNNL_VERSION_MAJOR < 3 && !library_has_avx512() && p.groups == 1 && !all_are(p.window.size, 1);
}

}  // namespace

bool winograd_applies(const ConvProblem& p) {
  const Window& w = p.window;
  if (p.laid ? 4 * taps_of(p) * int64_t(sizeof(float)) > kMostWinogradBytes : image_elements(p) * 2 < taps_of(p)) return false;
  return p.groups == 1 && p.from == DType::f32 && w.dims == 2 && w.size == Spatial{3, 3, 1} && all_are(w.stride, 1) &&
         all_are(w.dilation, 1) && p.channels >= kChannelBlock && p.filters >= kChannelBlock && has_winograd();
}

bool changes_layout(const ConvProblem& p) {
  return p.format != MemoryFormat::channels_last || winograd_applies(p) || prefers_own_layout(p);
}

namespace {

// Measured. Winograd is 1.8 to 2.5 times as fast as direct code. Reorders cost more than they gain for layers with one tap and for
// gradients with few channels: there, products of plain columns are faster, except in one pass.
bool choose(const ConvProblem& p, ChosenCode& chosen) {
  const Window& w = p.window;
  const bool has_unit_steps = all_are(w.stride, 1) && all_are(w.dilation, 1), is_data_pass = p.pass == ConvPass::data,
             channels_last = p.format == MemoryFormat::channels_last;
  if (p.groups == 1) {
    // In channels_last this is one product without columns.
    const bool reads_all = has_unit_steps && all_are(w.padding, 0);
    if (all_are(w.size, 1) && channels_last && reads_all) return false;
    if (all_are(w.size, 1) && !channels_last)
      return is_data_pass && p.from == DType::f32 && reads_all &&
             try_choose(p, Algorithm::convolution_direct, Layouts::plain, chosen);
    if (is_data_pass && p.channels <= kFewChannels) return false;
    if (winograd_applies(p) && try_choose(p, Algorithm::convolution_winograd, Layouts::free, chosen)) return true;
  }
  const bool keeps_layout = channels_last && !prefers_own_layout(p) && p.filters_in_y == 0;
  if (keeps_layout && try_choose(p, Algorithm::convolution_direct, Layouts::images, chosen)) return true;
  return try_choose(p, Algorithm::convolution_direct, Layouts::free, chosen);
}

void set_data(const Memory& m, const void* p) { dnnl_memory_set_data_handle(m.get(), const_cast<void*>(p)); }
void execute(const dnnl::primitive& p, const std::vector<dnnl_exec_arg_t>& arguments) {
  const dnnl_status_t status = dnnl_primitive_execute(p.get(), stream().get(), int(arguments.size()), arguments.data());
  check_success("conv", status);
}

}  // namespace

ConvCode::ConvCode(const ConvProblem& p, const ChosenCode& chosen)
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
  scratch_bytes_ = whole_lines(chosen.scratch.get_size());
  arguments_.push_back({DNNL_ARG_SCRATCHPAD, scratch_.get()});
  FirstUse::watch_end_after("made " + code_name(primitive_));
}

uint64_t ConvCode::weight_layout() const {
  static constinit ForkMutex mutex;
  const std::lock_guard lock(mutex);
  static auto& layouts = *new std::vector<Memory::desc>;
  auto found = std::find(layouts.begin(), layouts.end(), weight_.inner_desc);
  if (found == layouts.end()) found = layouts.insert(found, weight_.inner_desc);
  return uint64_t(found - layouts.begin()) + 1;
}

void ConvCode::lay_weight(const void* weight, char* to) {
  const OpenMpThreads openmp_threads(threads_);
  weight_.set_memory(weight, to);
}

void ConvCode::run(const void* x, const void* weight, const void* y, const float* bias, const void* laid, char* memory) {
  const FloatState plain;  // OpenMP's threads inherit it when they begin
  const FirstUse first(!used_);
  const OpenMpThreads openmp_threads(threads_);
  char* const x_inner = memory + scratch_bytes_;
  char* const y_inner = x_inner + x_.bytes;
  set_data(scratch_, memory);
  x_.set_memory(x, x_inner);
  y_.set_memory(y, y_inner);
  if (laid)
    set_data(weight_.inner, laid);
  else
    weight_.set_memory(weight, y_inner + y_.bytes);
  if (bias) set_data(bias_, bias);
  {
    const HeldSignals held(leaves_stack_);
    execute(primitive_, arguments_);
  }
  for (const Side* s : {&x_, &weight_, &y_})
    if (s->reorder && s->written) execute(s->reorder, {{DNNL_ARG_FROM, s->inner.get()}, {DNNL_ARG_TO, s->outer.get()}});
  if (threads_ > 1) openmp_was_used();
  if (used_) return;
  FirstUse::watch_end_after(code_name(primitive_));
  for (const Side* s : {&x_, &weight_, &y_})
    if (s->reorder) FirstUse::watch_end_after(code_name(s->reorder));
  used_ = true;
}

void ConvCode::Side::set_memory(const void* at, void* inner_at) const {
  set_data(outer, at);
  if (!reorder) return;
  set_data(inner, inner_at);
  if (!written) execute(reorder, {{DNNL_ARG_FROM, outer.get()}, {DNNL_ARG_TO, inner.get()}});
}

void ConvCode::bind(Side& side, const Memory::desc& outside, const Memory::desc& inside, int argument, bool written) {
  side.written = written;
  side.outer = Memory(outside, engine(), nullptr);
  side.inner_desc = inside;
  if (inside != outside) {
    side.inner = Memory(inside, engine(), nullptr);
    side.bytes = whole_lines(inside.get_size());
    side.reorder = written ? dnnl::reorder(side.inner, side.outer) : dnnl::reorder(side.outer, side.inner);
  }
  arguments_.push_back({argument, (side.reorder ? side.inner : side.outer).get()});
}

namespace {

// The code of the problems that a thread used last; null for a problem without code.
class CodeCache {
 public:
  ConvCode* find(const Key& key, const ConvProblem& p) {
    if (const auto it = index_.find(key); it != index_.end()) {
      entries_.splice(entries_.begin(), entries_, it->second);
      return entries_.front().code.get();
    }
    const FirstUse first;
    std::unique_ptr<ConvCode> code;
    if (ChosenCode chosen; choose(p, chosen)) code = std::make_unique<ConvCode>(p, chosen);
    if (entries_.size() == kCachedCodes) {
      index_.erase(entries_.back().key);
      entries_.pop_back();
    }
    entries_.push_front({key, std::move(code)});
    index_[key] = entries_.begin();
    return entries_.front().code.get();
  }

 private:
  struct Entry {
    Key key;
    std::unique_ptr<ConvCode> code;
  };
  std::list<Entry> entries_;  // most recently used first
  std::unordered_map<Key, std::list<Entry>::iterator, KeyHash> index_;
};

}  // namespace

ConvCode* code_of(const ConvProblem& p, int threads) {
  const OpenMpThreads openmp_threads(threads);
  try {
    return of_this_thread<CodeCache>().find(key_of(p), p);
  } catch (const dnnl::error&) { return nullptr; }
}

}  // namespace halfstep::cpu
#endif
