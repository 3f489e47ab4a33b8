// The fused optimizer passes: one walk over parameters, gradients and state, with the unscaling and the 16-bit copy on the way.
#include <algorithm>

#include "framework/backend/cpu/kernels.h"
#include "framework/backend/cpu/lists.h"

namespace halfstep::cpu {
namespace {

template <class T>
HS_CLONES void sgd_plain(T* p, const T* g, int64_t n, const math::SgdArgs args) {
  HS_INDEPENDENT
  for (int64_t i = 0; i < n; ++i) {
    T unused = 0;
    p[i] = math::sgd_update(p[i], g[i], unused, false, args);
  }
}
template <class T>
HS_CLONES void sgd_momentum(T* p, const T* g, T* m, int64_t n, bool first, const math::SgdArgs args) {
  HS_INDEPENDENT
  for (int64_t i = 0; i < n; ++i) {
    T buffer = m[i];
    p[i] = math::sgd_update(p[i], g[i], buffer, first, args);
    m[i] = buffer;
  }
}

template <class T>
HS_CLONES void adam_plain(T* p, const T* g, T* m, T* v, int64_t n, const math::AdamStep step, const math::AdamArgs args) {
  HS_INDEPENDENT
  for (int64_t i = 0; i < n; ++i) {
    T first = m[i], second = v[i];
    p[i] = math::adam_update(p[i], g[i], first, second, static_cast<T*>(nullptr), step, args);
    m[i] = first;
    v[i] = second;
  }
}
template <class T>
HS_CLONES void adam_amsgrad(T* p, const T* g, T* m, T* v, T* vmax, int64_t n, const math::AdamStep step,
                            const math::AdamArgs args) {
  HS_INDEPENDENT
  for (int64_t i = 0; i < n; ++i) {
    T first = m[i], second = v[i], top = vmax[i];
    p[i] = math::adam_update(p[i], g[i], first, second, &top, step, args);
    m[i] = first;
    v[i] = second;
    vmax[i] = top;
  }
}

template <class T>
HS_CLONES void scale_to(const T* in, T factor, T* out, int64_t n) {
  HS_INDEPENDENT
  for (int64_t i = 0; i < n; ++i) out[i] = in[i] * factor;
}

// Walks a part of one parameter in blocks: f(p, g, at, n) updates n elements of p from the unscaled g, `at` from the start.
template <class T, class F>
void walk(const ParamUpdate& u, const Part& part, float factor, bool write_back, const F& f) {
  alignas(64) T p_buffer[kBlock], g_buffer[kBlock];
  const bool p_direct = u.param.dtype == dtype_of<T>, g_direct = u.grad.dtype == dtype_of<T>;
  for (int64_t i = part.begin; i < part.end; i += kBlock) {
    const int64_t n = std::min(kBlock, part.end - i);
    T* p = p_direct ? u.param.as<T>() + i : p_buffer;
    if (!p_direct) load<T>(u.param.dtype, at(u.param, i), 1, p, n);
    const T* g = g_direct ? u.grad.as<const T>() + i : g_buffer;
    if (!g_direct) load<T>(u.grad.dtype, at(u.grad, i), 1, g_buffer, n);
    if (factor != 1) {
      T* scaled = g_direct && write_back ? u.grad.as<T>() + i : g_buffer;
      scale_to(g, T(factor), scaled, n);
      if (!g_direct && write_back) store<T>(u.grad.dtype, scaled, at(u.grad, i), 1, n);
      g = scaled;
    }
    f(p, g, i, n);
    if (!p_direct) store<T>(u.param.dtype, p, at(u.param, i), 1, n);
    if (u.shadow) store<T>(u.shadow.dtype, p, at(u.shadow, i), 1, n);
  }
}

template <class Args>
Args with_rate(Args args, const StepControl& control) {
  if (control.lr) args.lr = *control.lr;
  return args;
}

void check(std::span<const ParamUpdate> params, float* found_inf) {
  std::vector<TensorView> grads;
  for (const ParamUpdate& u : params) grads.push_back(u.grad);
  *found_inf = 0;
  check_finite(grads, found_inf);
}

// update(tag, parameter, its part, gradient factor) for every part, then the step counts, nothing of both when an inf was found;
// last the tail.
template <class F>
void step_all(std::span<const ParamUpdate> params, const StepControl& control, const F& update) {
  if (control.check) check(params, control.found_inf);
  const bool skips = control.found_inf && *control.found_inf != 0;
  if (skips) return control.tail.run(true);
  const float factor = control.grad_scale ? float(1 / double(*control.grad_scale)) : 1.0f;
  const std::vector<Part> parts = cut(params.size(), [&](size_t k) { return params[k].param.numel(); });
  for_parts(parts, [&](size_t index) {
    const Part& part = parts[index];
    if (params[part.tensor].param.dtype == DType::f64)
      update(double{}, part.tensor, part, factor);
    else
      update(float{}, part.tensor, part, factor);
  });
  for (const ParamUpdate& u : params) *u.step += 1;
  control.tail.run(false);
}

}  // namespace

void sgd(std::span<const ParamUpdate> params, const math::SgdArgs& given, const StepControl& control) {
  const math::SgdArgs args = with_rate(given, control);
  step_all(params, control, [&](auto tag, size_t k, const Part& part, float factor) {
    using T = decltype(tag);
    const ParamUpdate& u = params[k];
    const bool first = *u.step == 0;
    walk<T>(u, part, factor, control.write_back, [&](T* p, const T* g, int64_t i, int64_t n) {
      if (args.momentum == 0)
        sgd_plain(p, g, n, args);
      else
        sgd_momentum(p, g, u.m.as<T>() + i, n, first, args);
    });
  });
}

void adam(std::span<const ParamUpdate> params, const math::AdamArgs& given, const StepControl& control) {
  const math::AdamArgs args = with_rate(given, control);
  std::vector<math::AdamStep> steps;
  for (const ParamUpdate& u : params) steps.push_back(math::adam_step(double(*u.step) + 1, args));
  step_all(params, control, [&](auto tag, size_t k, const Part& part, float factor) {
    using T = decltype(tag);
    const ParamUpdate& u = params[k];
    walk<T>(u, part, factor, control.write_back, [&](T* p, const T* g, int64_t i, int64_t n) {
      T *m = u.m.as<T>() + i, *v = u.v.as<T>() + i;
      if (args.amsgrad)
        adam_amsgrad(p, g, m, v, u.vmax.as<T>() + i, n, steps[k], args);
      else
        adam_plain(p, g, m, v, n, steps[k], args);
    });
  });
}

}  // namespace halfstep::cpu
