// The training step's tail over lists of tensors: finite check, unscaling, SGD, Adam and the scale's update. A launch takes up to
// kListSize tensors; blockIdx.y is the tensor, and the blocks along x share its elements. The host reads nothing.
#include "cuda/kernels/elementwise.cuh"
#include "framework/math/training.h"

namespace halfstep::cuda {
namespace {

constexpr int kListSize = 24;

__device__ inline int64_t first_element() { return int64_t(blockIdx.x) * blockDim.x + threadIdx.x; }
__device__ inline int64_t element_step() { return int64_t(gridDim.x) * blockDim.x; }
template <class C>
__device__ inline bool finite(C x) {
  return x - x == C(0);
}

// Blocks that say so store the same 1: all of them atomically, so that the stores do not race.
__device__ inline void raise_flag(float* flag, bool raised) {
  if (__syncthreads_or(raised) && threadIdx.x == 0) atomicExch(flag, 1.0f);
}

// ---- check and unscale. With a null scale nothing is written but the flag.
struct GradList {
  Operand grad[kListSize];
  int64_t n[kListSize];
};

template <class C, class Offset>
__device__ inline bool unscale_elements(const Operand& grad, int64_t n, const float* scale, const Offset& offset) {
  const float factor = scale ? float(1 / double(*scale)) : 1.0f;
  bool bad = false;
  for (int64_t i = first_element(); i < n; i += element_step()) {
    const int64_t at = offset(i);
    const C g = grad.load<C>(at);
    bad = bad || !finite(g);
    if (factor != 1) grad.store(at, C(g * C(factor)));
  }
  return bad;
}

__global__ void __launch_bounds__(kThreads) unscale_list(GradList list, const float* scale, float* found_inf) {
  const Operand grad = list.grad[blockIdx.y];
  const auto same = [](int64_t i) { return i; };
  raise_flag(found_inf, grad.dtype == DType::f64 ? unscale_elements<double>(grad, list.n[blockIdx.y], scale, same)
                                                 : unscale_elements<float>(grad, list.n[blockIdx.y], scale, same));
}

__global__ void __launch_bounds__(kThreads) unscale_strided(Operand grad, Space<1> space, const float* scale, float* found_inf) {
  const auto offset = [&](int64_t i) { return space.offset(i); };
  raise_flag(found_inf, grad.dtype == DType::f64 ? unscale_elements<double>(grad, space.numel, scale, offset)
                                                 : unscale_elements<float>(grad, space.numel, scale, offset));
}

// The common gradients of a training step: 16 bytes at a time, only read.
template <class T>
__global__ void __launch_bounds__(kThreads) check_list(GradList list, float* found_inf) {
  constexpr int kSize = Pack<T>::kSize;
  const int64_t n = list.n[blockIdx.y], packs = n / kSize;
  const T* grad = static_cast<const T*>(list.grad[blockIdx.y].data);
  bool bad = false;
  for (int64_t p = first_element(); p < packs; p += element_step()) {
    const Pack<T> g = reinterpret_cast<const Pack<T>*>(grad)[p];
#pragma unroll
    for (int j = 0; j < kSize; ++j) bad = bad || !finite(to_f(g.v[j]));
  }
  for (int64_t i = packs * kSize + first_element(); i < n; i += element_step()) bad = bad || !finite(to_f(grad[i]));
  raise_flag(found_inf, bad);
}

// ---- optimizers
struct ParamList {
  struct Entry {
    Operand param, grad, shadow;
    void *m, *v, *vmax;
    float* step;
    int64_t n;
  } entry[kListSize];
};

struct Control {
  const float *found_inf, *grad_scale;
  bool write_back;
  __device__ bool skips() const { return found_inf && *found_inf != 0; }
  __device__ float factor() const { return grad_scale ? float(1 / double(*grad_scale)) : 1.0f; }
};

// f(i, p, g) gives the new parameter. C: float, or double for f64 parameters.
template <class C, class F>
__device__ inline void update_elements(const ParamList::Entry& u, const Control& control, const F& f) {
  const float factor = control.factor();
  for (int64_t i = first_element(); i < u.n; i += element_step()) {
    C g = u.grad.load<C>(i);
    if (factor != 1) {
      g *= C(factor);
      if (control.write_back) u.grad.store(i, g);
    }
    const C p = f(i, u.param.load<C>(i), g);
    u.param.store(i, p);
    if (u.shadow.data) u.shadow.store(i, p);
  }
}

template <class C>
__global__ void __launch_bounds__(kThreads) sgd_list(ParamList list, math::SgdArgs args, Control control) {
  const ParamList::Entry& u = list.entry[blockIdx.y];
  if ((u.param.dtype == DType::f64) != std::is_same_v<C, double> || control.skips()) return;
  C* const momentum = static_cast<C*>(u.m);
  const bool first = *u.step == 0;
  update_elements<C>(u, control, [&](int64_t i, C p, C g) {
    C buffer = args.momentum != 0 ? momentum[i] : C(0);
    p = math::sgd_update(p, g, buffer, first, args);
    if (args.momentum != 0) momentum[i] = buffer;
    return p;
  });
}

template <class C>
__global__ void __launch_bounds__(kThreads) adam_list(ParamList list, math::AdamArgs args, Control control) {
  const ParamList::Entry& u = list.entry[blockIdx.y];
  if ((u.param.dtype == DType::f64) != std::is_same_v<C, double> || control.skips()) return;  // the whole block
  SHARED(math::AdamStep, shared, [1]);
  if (threadIdx.x == 0) shared[0] = math::adam_step(double(*u.step) + 1, args);
  __syncthreads();
  const math::AdamStep step = shared[0];
  C *const m = static_cast<C*>(u.m), *const v = static_cast<C*>(u.v),
           *const vmax = args.amsgrad ? static_cast<C*>(u.vmax) : nullptr;
  update_elements<C>(u, control, [&](int64_t i, C p, C g) {
    C first = m[i], second = v[i], top = vmax ? vmax[i] : C(0);
    p = math::adam_update(p, g, first, second, vmax ? &top : nullptr, step, args);
    m[i] = first;
    v[i] = second;
    if (vmax) vmax[i] = top;
    return p;
  });
}

// After the updates, which read the counts.
__global__ void count_steps(ParamList list, int tensors, Control control) {
  if (int(threadIdx.x) < tensors && !control.skips()) *list.entry[threadIdx.x].step += 1;
}

__global__ void update_scale_kernel(float* scale, int32_t* tracker, const float* found_inf, double growth, double backoff,
                                    int32_t interval) {
  if (threadIdx.x == 0) math::advance_scale(*scale, *tracker, *found_inf != 0, growth, backoff, interval);
}

dim3 list_grid(int64_t largest, int tensors) { return dim3(blocks_for(largest, 4 * kThreads), unsigned(tensors)); }

// Dense gradients of dtype `t` (any floating dtype when null) in lists; f(list, tensors, largest).
template <class Belongs, class F>
void for_grad_lists(std::span<const TensorView> grads, const Belongs& belongs, const F& f) {
  GradList list;
  int tensors = 0;
  int64_t largest = 0;
  for (const TensorView& g : grads) {
    if (g.numel() == 0 || !belongs(g)) continue;
    list.grad[tensors] = g;
    list.n[tensors++] = g.numel();
    largest = g.numel() > largest ? g.numel() : largest;
    if (tensors < kListSize) continue;
    f(list, tensors, largest);
    tensors = 0;
    largest = 0;
  }
  if (tensors) f(list, tensors, largest);
}

void unscale_all(const Queue& q, std::span<const TensorView> grads, const float* scale, float* found_inf) {
  const auto packed = [scale](const TensorView& g) {  // check_list's
    return !scale && g.is_contiguous() && aligned16(g.data) && g.dtype != DType::f64;
  };
  const auto check = [&](DType t, auto kernel) {
    for_grad_lists(
        grads, [&](const TensorView& g) { return packed(g) && g.dtype == t; },
        [&](const GradList& list, int tensors, int64_t largest) {
          launch(kernel, list_grid(largest, tensors), kThreads, 0, q.stream, list, found_inf);
        });
  };
  check(DType::f32, check_list<float>);
  check(DType::f16, check_list<__half>);
  check(DType::bf16, check_list<__nv_bfloat16>);
  for_grad_lists(
      grads, [&](const TensorView& g) { return g.is_contiguous() && !packed(g); },
      [&](const GradList& list, int tensors, int64_t largest) {
        launch(unscale_list, list_grid(largest, tensors), kThreads, 0, q.stream, list, scale, found_inf);
      });
  for (const TensorView& g : grads) {
    if (g.numel() == 0 || g.is_contiguous()) continue;
    const Space<1> space(g.shape, {&g.strides});
    launch(unscale_strided, blocks_for(space.numel, kThreads), kThreads, 0, q.stream, Operand(g), space, scale, found_inf);
  }
}

// Both kernels over all lists: one for f64 parameters, one for the others; each leaves the other's tensors alone.
template <class Single, class Wide, class Args>
void step_all(const Queue& q, std::span<const ParamUpdate> params, Single single, Wide wide, const Args& args,
              const StepControl& c) {
  const Control control{c.found_inf, c.grad_scale, c.write_back};
  for (size_t begin = 0; begin < params.size(); begin += kListSize) {
    const size_t end = begin + kListSize < params.size() ? begin + kListSize : params.size();
    const int tensors = int(end - begin);
    ParamList list;
    int64_t largest = 0;
    bool any_single = false, any_wide = false;
    for (int k = 0; k < tensors; ++k) {
      const ParamUpdate& u = params[begin + size_t(k)];
      const int64_t n = u.param.numel();
      list.entry[k] = {u.param, u.grad, u.shadow, u.m.data, u.v.data, u.vmax.data, u.step, n};
      largest = n > largest ? n : largest;
      (u.param.dtype == DType::f64 ? any_wide : any_single) = true;
    }
    if (any_single && largest) launch(single, list_grid(largest, tensors), kThreads, 0, q.stream, list, args, control);
    if (any_wide && largest) launch(wide, list_grid(largest, tensors), kThreads, 0, q.stream, list, args, control);
    launch(count_steps, 1, 32, 0, q.stream, list, tensors, control);
  }
}

}  // namespace

void check_finite(const Queue& q, std::span<const TensorView> grads, float* found_inf) {
  unscale_all(q, grads, nullptr, found_inf);
}
void unscale(const Queue& q, std::span<const TensorView> grads, const float* scale, float* found_inf) {
  unscale_all(q, grads, scale, found_inf);
}
void update_scale(const Queue& q, float* scale, int32_t* tracker, const float* found_inf, double growth, double backoff,
                  int32_t interval) {
  launch(update_scale_kernel, 1, 32, 0, q.stream, scale, tracker, found_inf, growth, backoff, interval);
}
void sgd(const Queue& q, std::span<const ParamUpdate> params, const math::SgdArgs& args, const StepControl& control) {
  step_all(q, params, sgd_list<float>, sgd_list<double>, args, control);
}
void adam(const Queue& q, std::span<const ParamUpdate> params, const math::AdamArgs& args, const StepControl& control) {
  step_all(q, params, adam_list<float>, adam_list<double>, args, control);
}

}  // namespace halfstep::cuda
