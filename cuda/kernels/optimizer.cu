// SPDX-License-Identifier: Apache-2.0
// The rules of framework/math/update_rules.h over lists of parameters: unscaling, clipping, update and 16-bit copy in one pass over
// the memory. Two ways:
//   packed  f32 parameters; gradients in f32 or 16 bits: four elements at a time. Only the 16-bit copy, which the next forward
//           reads, is kept in the caches
//   any     any floating dtypes, element by element, in the compute type C
// One launch does everything at the end of a step. Its blocks take tickets as they start. The first few check the gradients, and
// compute what the updates need from the step counts; the others wait for those and update; the last block to finish counts the
// step and runs the tail. A block waits only for earlier tickets, so for running blocks: however few fit on the device at a time,
// none waits forever.
#include <algorithm>
#include <variant>
#include <vector>

#include "cuda/kernels/tensor_lists.cuh"
#include "framework/math/update_rules.h"

namespace halfstep::cuda {
namespace {

constexpr int kPack = 4;
constexpr uint32_t kCheckedParts = 4;  // parts of parameters checked by one block

// A ParamUpdate (framework/backend/backend.h) in the form that kernels read.
struct Param {
  Operand param, grad, shadow;
  void* state[ParamUpdate::kStates];  // floats, or doubles for f64 parameters
  float *step, *number;
  __device__ double count() const { return step ? double(*step) : 0; }
  __device__ double own_number() const { return number ? double(*number) : 0; }
};
using ParamList = List<Param, 4096>;
constexpr int kMostChunks = 8;  // of 4096 elements, per block

// Counts of blocks: those that have taken a ticket, checking ones that are ready, and updating ones that are done. bad: whether a
// gradient is not finite.
struct Progress {
  uint32_t tickets, ready, done, bad;
};
static_assert(sizeof(Progress) <= (kCounters - kStepCounters) * sizeof(uint32_t));

struct Control {
  float* found_inf;
  const float* grad_scale;
  bool write_back, test_gradients;
  const float* grad_norm;
  double max_norm;
  const double *lr, *momentum;
  Progress* progress;
  void* steps;         // for each parameter, the result of Rule::begin for its count
  uint32_t checkers = 0;  // number of blocks that must finish before any parameter changes
  __device__ float factor() const { return math::gradient_factor(grad_scale, grad_norm, max_norm); }
  template <class Rule>
  __device__ Rule at_rate(Rule rule) const {
    math::take_rates(rule, lr, momentum);
    return rule;
  }
};

// Out of line: powers take many registers, which the updates would have to spill.
template <class Rule>
__device__ __noinline__ typename Rule::Step begin_costly(const Rule& rule, double count, double number) {
  return rule.begin(count, number);
}

// Packed memory of T, or any memory: how elements i, i + 1, ... of a tensor are accessed.
template <class T, Cached cached = Cached::no>
struct Packed {
  T* data;
  __device__ explicit Packed(const Operand& o) : data(static_cast<T*>(o.data)) {}
  template <class C, int N>
  __device__ void load(int64_t i, C (&x)[N]) const {
    load_pack<cached>(data + i, x);
  }
  template <class C, int N>
  __device__ void store(int64_t i, const C (&x)[N]) const {
    store_pack<cached>(data + i, x);
  }
};
struct Anything {
  Operand o;
  __device__ explicit Anything(const Operand& o) : o(o) {}
  template <class C>
  __device__ void load(int64_t i, C (&x)[1]) const {
    x[0] = o.load_floating<C>(i);
  }
  template <class C>
  __device__ void store(int64_t i, const C (&x)[1]) const {
    o.store_floating(i, x[0]);
  }
};
template <class C, int N>
__device__ inline void store_shadow(const Operand& shadow, int64_t i, const C (&x)[N]) {
  if constexpr (N == 1)
    shadow.store_floating(i, x[0]);
  else if (shadow.dtype == DType::f16)
    Packed<__half, Cached::yes>(shadow).store(i, x);
  else
    Packed<__nv_bfloat16, Cached::yes>(shadow).store(i, x);
}

// N elements of a parameter, its gradient and its states.
template <class Rule, class C, int N>
struct Elements {
  C p[N], s[Rule::kStates][N], g[N];

  template <class P, class G>
  __device__ void load(const Param& u, const P& param, const G& grad, int64_t i, int states) {
    param.load(i, p);
#pragma unroll
    for (int k = 0; k < Rule::kStates; ++k) {
      if (k < states) {
        load_pack<Cached::no>(static_cast<C*>(u.state[k]) + i, s[k]);
      } else {
#pragma unroll
        for (int j = 0; j < N; ++j) s[k][j] = 0;
      }
    }
    grad.load(i, g);
  }
  template <class G>
  __device__ void scale_gradient(const G& grad, int64_t i, float factor, bool write_back) {
    if (factor == 1) return;
#pragma unroll
    for (int j = 0; j < N; ++j) g[j] *= C(factor);
    if (write_back) grad.store(i, g);
  }
  __device__ void update(const Rule& rule, const typename Rule::Step& step) {
#pragma unroll
    for (int j = 0; j < N; ++j) {
      C state[Rule::kStates];
#pragma unroll
      for (int k = 0; k < Rule::kStates; ++k) state[k] = s[k][j];
      p[j] = rule.update(p[j], g[j], state, step);
#pragma unroll
      for (int k = 0; k < Rule::kStates; ++k) s[k][j] = state[k];
    }
  }
  template <class P>
  __device__ void store(const Param& u, const P& param, int64_t i, int states) const {
    param.store(i, p);
#pragma unroll
    for (int k = 0; k < Rule::kStates; ++k) {
      if (k < states) store_pack<Cached::no>(static_cast<C*>(u.state[k]) + i, s[k]);
    }
    if (u.shadow.data) store_shadow(u.shadow, i, p);
  }
};

// For rules with one state, a thread reads the elements of two rounds before it writes those of the first, which doubles the reads
// in progress. More states would need too many registers.
template <class Rule, class C, int Pack, class P, class G>
__device__ inline void update_part(const Param& u, const P& param, const G& grad, const ParamList::Part& part,
                                   const Control& control, const typename Rule::Step& step, const Rule& rule, int states) {
  constexpr int kRounds = Pack > 1 && Rule::kStates == 1 ? 2 : 1, kStep = kThreads * Pack;
  const float factor = control.factor();
  const auto finish = [&](auto& e, int64_t i) {
    e.scale_gradient(grad, i, factor, control.write_back);
    e.update(rule, step);
    e.store(u, param, i, states);
  };
  int64_t i = part.begin + int64_t(threadIdx.x) * Pack;
  for (; i + Pack <= part.end; i += kRounds * kStep) {
    Elements<Rule, C, Pack> e[kRounds];
#pragma unroll
    for (int k = 0; k < kRounds; ++k) {
      if (i + k * kStep + Pack <= part.end) e[k].load(u, param, grad, i + k * kStep, states);
    }
#pragma unroll
    for (int k = 0; k < kRounds; ++k) {
      if (i + k * kStep + Pack <= part.end) finish(e[k], i + k * kStep);
    }
  }
  if constexpr (Pack > 1) {
    i = part.end / Pack * Pack + threadIdx.x;
    if (i >= part.end) return;
    Elements<Rule, C, 1> one;
    one.load(u, param, grad, i, states);
    finish(one, i);
  }
}

template <int Pack, class G>
__device__ inline bool part_has_bad(const G& grad, const ParamList::Part& part) {
  bool bad = false;
  RowGroup<kBlockWarps>::each<Pack, 4>(part.begin, part.end, [&](int64_t i, auto size) {
    std::conditional_t<Pack == 1, double, float> g[size.value];
    grad.load(i, g);
#pragma unroll
    for (int j = 0; j < size.value; ++j) bad |= !finite(g[j]);  // with || each load would wait for the previous one
  });
  return bad;
}

// Returns whether this thread found a gradient that is not finite in the parts of its block.
template <bool IsPacked>
__device__ inline bool has_bad(const ParamList& list, uint32_t ticket) {
  bool bad = false;
  const uint32_t begin = ticket * kCheckedParts, rest = list.first[list.tensors] - begin;
  for (uint32_t k = 0; k < (rest < kCheckedParts ? rest : kCheckedParts); ++k) {
    const ParamList::Part part = list.part(begin + k);
    const Operand grad = list.entry[part.tensor].grad;
    if constexpr (IsPacked) {
      switch (grad.dtype) {
        case DType::f16: bad |= part_has_bad<kPack>(Packed<__half, Cached::yes>(grad), part); break;
        case DType::bf16: bad |= part_has_bad<kPack>(Packed<__nv_bfloat16, Cached::yes>(grad), part); break;
        default: bad |= part_has_bad<kPack>(Packed<float, Cached::yes>(grad), part);
      }
    } else {
      bad |= part_has_bad<1>(Anything(grad), part);
    }
  }
  return bad;
}

template <class Rule, class C, bool IsPacked>
__device__ inline void update_param(const Param& u, const ParamList::Part& part, const Control& control,
                                    const typename Rule::Step& step, const Rule& rule, int states) {
  if constexpr (IsPacked) {
    const Packed<float> param(u.param);
    switch (u.grad.dtype) {
      case DType::f16: update_part<Rule, C, kPack>(u, param, Packed<__half>(u.grad), part, control, step, rule, states); break;
      case DType::bf16:
        update_part<Rule, C, kPack>(u, param, Packed<__nv_bfloat16>(u.grad), part, control, step, rule, states);
        break;
      default: update_part<Rule, C, kPack>(u, param, Packed<float>(u.grad), part, control, step, rule, states);
    }
  } else {
    update_part<Rule, C, 1>(u, Anything(u.param), Anything(u.grad), part, control, step, rule, states);
  }
}

template <class Rule, class C, bool IsPacked>
__global__ void __launch_bounds__(kThreads, 4)  // at least 4 blocks on a multiprocessor; without this bound ptxas spills registers
    step_list(ParamList list, Rule given, Control control, math::StepTail tail) {
  SHARED(uint32_t, shared, [2]);
  Progress& progress = *control.progress;
  if (threadIdx.x == 0) shared[0] = atomicAdd(&progress.tickets, 1u);
  __syncthreads();
  const uint32_t ticket = shared[0];
  auto* const steps = static_cast<typename Rule::Step*>(control.steps);
  const int thread = int(threadIdx.x);
  if (ticket < control.checkers) {  // the same for all threads
    if (Rule::kCostly && ticket == 0 && thread < list.tensors)
      steps[thread] = begin_costly(control.at_rate(given), list.entry[thread].count(), list.entry[thread].own_number());
    bool bad = false;
    if (control.test_gradients) bad = has_bad<IsPacked>(list, ticket);
    const bool raised = __syncthreads_or(bad);
    if (thread == 0) {
      if (raised) atomicExch(&progress.bad, 1u);
      __threadfence();
      atomicAdd(&progress.ready, 1u);
    }
    return;
  }

  if (thread == 0) {
    if (control.checkers) wait_for(&progress.ready, control.checkers);
    shared[1] = control.test_gradients ? progress.bad : control.found_inf && *control.found_inf != 0;
  }
  __syncthreads();
  const bool skips = shared[1] != 0;
  if (const uint32_t block = ticket - control.checkers; !skips && block < list.first[list.tensors]) {
    const ParamList::Part part = list.part(block);
    const Param u = list.entry[part.tensor];
    const Rule rule = control.at_rate(given);
    typename Rule::Step step;
    if constexpr (Rule::kCostly)
      step = steps[part.tensor];
    else
      step = rule.begin(u.count(), u.own_number());
    const int states = given.states();  // before a schedule sets the momentum to 0
    if (!math::is_idle(rule, step)) update_param<Rule, C, IsPacked>(u, part, control, step, rule, states);
  }

  __syncthreads();
  if (thread == 0) shared[0] = is_last_block(&progress.done, gridDim.x - control.checkers);
  __syncthreads();
  if (shared[0] == 0) return;
  if (thread < list.tensors && !skips) {
    if constexpr (Rule::kCounts) *list.entry[thread].step += 1;
    if constexpr (math::HasNumber<Rule>) *list.entry[thread].number = steps[thread].number;
  }
  if (thread != 0) return;
  if (control.test_gradients) *control.found_inf = skips ? 1.0f : 0.0f;
  tail.run(skips);
  for (uint32_t* counter : {&progress.tickets, &progress.ready, &progress.bad}) atomicExch(counter, 0u);
}

// Returns whether the packed way can update this parameter.
bool can_be_packed(const ParamUpdate& u) {
  const auto fits = [](const TensorView& v, bool dtype) { return !v || (dtype && packs_of(v, kPack)); };
  const auto single = [&](const TensorView& v) { return fits(v, v.dtype == DType::f32); };
  return single(u.param) && fits(u.grad, u.grad.dtype != DType::f64) && fits(u.shadow, is_half(u.shadow.dtype)) &&
         std::all_of(u.state.begin(), u.state.end(), single);
}

// Checks the gradients of a step that takes several launches.
void test_all(const Queue& q, std::span<const ParamUpdate> params, float* found_inf) {
  std::vector<TensorView> grads;
  for (const ParamUpdate& u : params) grads.push_back(u.grad);
  check_launch(cudaMemsetAsync(found_inf, 0, sizeof *found_inf, q.stream));
  check_finite(q, grads, found_inf);
}

template <class Rule>
void step_all(const Queue& q, std::span<const ParamUpdate> params, const Rule& rule, const StepControl& c) {
  static_assert(ParamList::kCapacity * sizeof(typename Rule::Step) <= kScratchBytes);
  enum Kind { kPacked, kAny, kWide, kKinds };
  const auto kind_of = [](const ParamUpdate& u) { return can_be_packed(u) ? kPacked : u.param.dtype == DType::f64 ? kWide : kAny; };
  int members[kKinds] = {}, launches = 0;
  int64_t elements = 0;
  for (const ParamUpdate& u : params) {
    ++members[kind_of(u)];
    elements += u.param.numel();
  }
  for (const int n : members) launches += (n + ParamList::kCapacity - 1) / ParamList::kCapacity;
  Control control{c.found_inf,
                  c.grad_scale,
                  c.write_back,
                  c.test_gradients && launches == 1,
                  c.grad_norm,
                  c.max_norm,
                  c.lr,
                  c.momentum,
                  reinterpret_cast<Progress*>(q.counters + kStepCounters),
                  q.scratch};
  if (c.test_gradients && !control.test_gradients) test_all(q, params, c.found_inf);
  if (launches == 0) end_step(q, c.found_inf, c.tail);

  const auto step_those = [&](auto kernel, Kind kind) {
    const auto add = [&](ParamList& list, const ParamUpdate& u) {
      if (kind_of(u) != kind) return false;
      if (list.tensors == 0) list.lengthen(elements, resident_threads() / kThreads, kMostChunks);
      Param entry{u.param, u.grad, u.shadow, {}, u.step, u.number};
      for (size_t k = 0; k < u.state.size(); ++k) entry.state[k] = u.state[k].data;
      list.add(entry, u.param.numel());
      return true;
    };
    for_lists<ParamList>(params, add, [&](const ParamList& list) {
      const uint32_t blocks = std::max(list.blocks(), 1u);
      control.checkers = control.test_gradients ? (blocks + kCheckedParts - 1) / kCheckedParts : Rule::kCostly ? 1 : 0;
      --launches;  // those that remain; the last one runs the tail
      launch(kernel, control.checkers + blocks, kThreads, 0, q.stream, list, rule, control,
             launches == 0 ? c.tail : math::StepTail());
    });
  };
  step_those(step_list<Rule, float, true>, kPacked);
  step_those(step_list<Rule, float, false>, kAny);
  step_those(step_list<Rule, double, false>, kWide);
}

}  // namespace

void update(const Queue& q, std::span<const ParamUpdate> params, const UpdateRule& rule, const StepControl& control) {
  rule.visit([&](const auto& r) { step_all(q, params, r, control); });
}

}  // namespace halfstep::cuda
