// SGD and Adam over lists of parameters: unscaling, update and 16-bit copy in one pass over the memory. Two ways:
//   packed  f32 parameters; gradients in f32 or 16 bits: four elements at a time, streamed past the caches but for the 16-bit
//           copy, which the next forward reads
//   any     any floating dtypes, element by element, in C
#include "cuda/kernels/lists.cuh"
#include "framework/math/training.h"

namespace halfstep::cuda {
namespace {

constexpr int kPack = 4;

struct Param {
  Operand param, grad, shadow;
  void* state[3];  // m, v, vmax: floats, or doubles of f64 parameters
  float* step;
};
using ParamList = List<Param, 4096>;

struct Control {
  const float *found_inf, *grad_scale;
  bool write_back;
  const double* lr;
  __device__ bool skips() const { return found_inf && *found_inf != 0; }
  __device__ float factor() const { return grad_scale ? float(1 / double(*grad_scale)) : 1.0f; }
  template <class Args>
  __device__ Args at_rate(Args args) const {
    if (lr) args.lr = *lr;
    return args;
  }
};

// A rule: what it makes of the count of steps before this one (costly: once a block), how many states it keeps, and the new
// parameter.
struct Sgd {
  using Args = math::SgdArgs;
  using Step = bool;  // first
  static constexpr bool kCostly = false;
  static constexpr int kStates = 1;
  __device__ static Step begin(double count, const Args&) { return count == 0; }
  __device__ static int states(const Args& args) { return args.momentum != 0 ? 1 : 0; }
  template <class C>
  __device__ static C update(C p, C g, C (&state)[kStates], const Step& first, const Args& args) {
    return math::sgd_update(p, g, state[0], first, args);
  }
};
struct Adam {
  using Args = math::AdamArgs;
  using Step = math::AdamStep;
  static constexpr bool kCostly = true;
  static constexpr int kStates = 3;
  __device__ static Step begin(double count, const Args& args) { return math::adam_step(count + 1, args); }
  __device__ static int states(const Args& args) { return args.amsgrad ? 3 : 2; }
  template <class C>
  __device__ static C update(C p, C g, C (&state)[kStates], const Step& step, const Args& args) {
    if (!args.amsgrad) state[2] = C(-INFINITY);  // no maximum yet: one path for both
    return math::adam_update(p, g, state[0], state[1], &state[2], step, args);
  }
};

// Packed memory of T, and anything: how elements i, i + 1, ... of a tensor are read and written.
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

template <class Rule, class C, int Pack, class P, class G>
__device__ inline void update_part(const Param& u, const P& param, const G& grad, const ParamList::Part& part,
                                   const Control& control, const typename Rule::Step& step, const typename Rule::Args& args) {
  const float factor = control.factor();
  const int states = Rule::states(args);
  RowGroup<kBlockWarps>::each<Pack>(part.begin, part.end, [&](int64_t i, auto size) {
    constexpr int kSize = decltype(size)::value;
    C p[kSize], s[Rule::kStates][kSize], g[kSize];
    param.load(i, p);
#pragma unroll
    for (int k = 0; k < Rule::kStates; ++k) {
      if (k < states) load_pack<Cached::no>(static_cast<C*>(u.state[k]) + i, s[k]);
    }
    grad.load(i, g);
    if (factor != 1) {
#pragma unroll
      for (int j = 0; j < kSize; ++j) g[j] *= C(factor);
      if (control.write_back) grad.store(i, g);
    }
#pragma unroll
    for (int j = 0; j < kSize; ++j) {
      C state[Rule::kStates];
#pragma unroll
      for (int k = 0; k < Rule::kStates; ++k) state[k] = s[k][j];
      p[j] = Rule::update(p[j], g[j], state, step, args);
#pragma unroll
      for (int k = 0; k < Rule::kStates; ++k) s[k][j] = state[k];
    }
    param.store(i, p);
#pragma unroll
    for (int k = 0; k < Rule::kStates; ++k) {
      if (k < states) store_pack<Cached::no>(static_cast<C*>(u.state[k]) + i, s[k]);
    }
    if (u.shadow.data) store_shadow(u.shadow, i, p);
  });
}

template <class Rule, class C, bool IsPacked>
__global__ void __launch_bounds__(kThreads) step_list(ParamList list, typename Rule::Args given, Control control) {
  if (control.skips()) return;  // all threads alike
  const typename Rule::Args args = control.at_rate(given);
  const ParamList::Part part = list.part();
  const Param u = list.entry[part.tensor];
  typename Rule::Step step;
  if constexpr (Rule::kCostly) {
    SHARED(typename Rule::Step, shared, [1]);
    if (threadIdx.x == 0) shared[0] = Rule::begin(double(*u.step), args);
    __syncthreads();
    step = shared[0];
  } else {
    step = Rule::begin(double(*u.step), args);
  }
  if constexpr (IsPacked) {
    const Packed<float> param(u.param);
    switch (u.grad.dtype) {
      case DType::f16: update_part<Rule, C, kPack>(u, param, Packed<__half>(u.grad), part, control, step, args); break;
      case DType::bf16: update_part<Rule, C, kPack>(u, param, Packed<__nv_bfloat16>(u.grad), part, control, step, args); break;
      default: update_part<Rule, C, kPack>(u, param, Packed<float>(u.grad), part, control, step, args);
    }
  } else {
    update_part<Rule, C, 1>(u, Anything(u.param), Anything(u.grad), part, control, step, args);
  }
}

// After the updates, which read the counts.
__global__ void count_steps(ParamList list, Control control) {
  if (int(threadIdx.x) < list.tensors && !control.skips()) *list.entry[threadIdx.x].step += 1;
}

bool packed(const ParamUpdate& u) {
  const auto fits = [](const TensorView& v, bool dtype) { return !v || (dtype && packs_of(v, kPack)); };
  const auto single = [&](const TensorView& v) { return fits(v, v.dtype == DType::f32); };
  return single(u.param) && fits(u.grad, u.grad.dtype != DType::f64) && fits(u.shadow, is_half(u.shadow.dtype)) && single(u.m) &&
         single(u.v) && single(u.vmax);
}

template <class Rule>
void step_all(const Queue& q, std::span<const ParamUpdate> params, const typename Rule::Args& args, const StepControl& c) {
  const Control control{c.found_inf, c.grad_scale, c.write_back, c.lr};
  const auto step_those = [&](auto kernel, const auto& belongs) {
    const auto add = [&](ParamList& list, const ParamUpdate& u) {
      if (!belongs(u)) return false;
      list.add({u.param, u.grad, u.shadow, {u.m.data, u.v.data, u.vmax.data}, u.step}, u.param.numel());
      return true;
    };
    for_lists<ParamList>(params, add, [&](const ParamList& list) {
      if (list.blocks()) launch(kernel, list.blocks(), kThreads, 0, q.stream, list, args, control);
      launch(count_steps, 1, ParamList::kCapacity, 0, q.stream, list, control);
    });
  };
  const auto wide = [](const ParamUpdate& u) { return u.param.dtype == DType::f64; };
  step_those(step_list<Rule, float, true>, packed);
  step_those(step_list<Rule, float, false>, [&](const ParamUpdate& u) { return !packed(u) && !wide(u); });
  step_those(step_list<Rule, double, false>, wide);
}

}  // namespace

void sgd(const Queue& q, std::span<const ParamUpdate> params, const math::SgdArgs& args, const StepControl& control) {
  step_all<Sgd>(q, params, args, control);
}
void adam(const Queue& q, std::span<const ParamUpdate> params, const math::AdamArgs& args, const StepControl& control) {
  step_all<Adam>(q, params, args, control);
}

}  // namespace halfstep::cuda
