// The arithmetic of a training step's tail, shared by host and device: scaler state machine and optimizer updates.
// Sources: PyTorch's amp_update_scale and its fused SGD, Adam and AdamW; Kingma & Ba 2015; Loshchilov & Hutter 2019.
#pragma once

#include <math.h>
#include <stdint.h>

#include "framework/base/hd.h"

namespace halfstep::math {

// Growth reaches neither inf nor past a clean interval; `>=` so that a shortened interval takes effect at once.
HS_HD void advance_scale(float& scale, int32_t& tracker, bool found_inf, double growth, double backoff, int32_t interval) {
  if (found_inf) {
    scale = float(double(scale) * backoff);
    tracker = 0;
    return;
  }
  if (++tracker >= interval) {
    const float grown = float(double(scale) * growth);
    if (grown <= 3.402823466e38f) scale = grown;
    tracker = 0;
  }
}

// Results that outlive the next step, one element a step. In device memory, as what it points to.
struct ResultRing {
  void* loss;        // of any floating dtype
  float* found_inf;
  int64_t next;      // the element that the next step writes
};

// The small things that end a step. A part whose first pointer is null is left out; all point to device memory.
struct StepTail {
  // The loss scale, which found_inf moves (advance_scale).
  float* scale = nullptr;
  int32_t* tracker = nullptr;
  double growth = 1, backoff = 1;
  int32_t interval = 1;
  // A schedule: counts a step that was applied, then rates[g] = table[g][*count % width].
  int64_t* count = nullptr;
  const double* table = nullptr;  // [groups, width]
  double* rates = nullptr;        // [groups]
  int64_t width = 0, groups = 0;
  // ring->loss[ring->next] = *loss, ring->found_inf[ring->next] = found_inf, then the next element.
  ResultRing* ring = nullptr;
  const void* loss = nullptr;
  int32_t loss_bytes = 0;  // 2, 4 or 8

  HS_HD void run(bool found_inf) const {
    if (scale) advance_scale(*scale, *tracker, found_inf, growth, backoff, interval);
    if (count) {
      if (!found_inf) ++*count;
      for (int64_t g = 0; g < groups; ++g) rates[g] = table[g * width + *count % width];
    }
    if (!ring) return;
    const int64_t at = ring->next++;
    if (loss_bytes == 2) static_cast<uint16_t*>(ring->loss)[at] = *static_cast<const uint16_t*>(loss);
    if (loss_bytes == 4) static_cast<uint32_t*>(ring->loss)[at] = *static_cast<const uint32_t*>(loss);
    if (loss_bytes == 8) static_cast<uint64_t*>(ring->loss)[at] = *static_cast<const uint64_t*>(loss);
    ring->found_inf[at] = found_inf ? 1.0f : 0.0f;
  }
};

struct SgdArgs {
  double lr = 1e-3, momentum = 0, dampening = 0, weight_decay = 0;
  bool nesterov = false, maximize = false;
};

// g: the unscaled gradient. `buffer` is the momentum (unused when momentum is 0); `first` on a parameter's first applied step.
template <class T> HS_HD T sgd_update(T p, T g, T& buffer, bool first, const SgdArgs& a) {
  if (a.maximize) g = -g;
  if (a.weight_decay != 0) g += T(a.weight_decay) * p;  // 0 times an infinite parameter would be NaN
  if (a.momentum != 0) {
    buffer = first ? g : T(a.momentum) * buffer + T(1 - a.dampening) * g;
    g = a.nesterov ? g + T(a.momentum) * buffer : buffer;
  }
  return p - T(a.lr) * g;
}

struct AdamArgs {
  double lr = 1e-3, beta1 = 0.9, beta2 = 0.999, eps = 1e-8, weight_decay = 0;
  bool decoupled = false;  // true: AdamW
  bool amsgrad = false, maximize = false;
};

// What Adam needs of the step count t (1 on the first applied step), computed once a step in double.
struct AdamStep {
  double step_size;        // lr / (1 - beta1^t)
  double bias2_sqrt;       // sqrt(1 - beta2^t)
};
HS_HD AdamStep adam_step(double t, const AdamArgs& a) {
  return {a.lr / (1 - ::pow(a.beta1, t)), ::sqrt(1 - ::pow(a.beta2, t))};
}

// m, v: first and second moment; vmax: running maximum of v (amsgrad only).
template <class T> HS_HD T adam_update(T p, T g, T& m, T& v, T* vmax, const AdamStep& s, const AdamArgs& a) {
  if (a.maximize) g = -g;
  if (a.weight_decay != 0) {
    if (a.decoupled) p -= T(a.lr * a.weight_decay) * p;
    else g += T(a.weight_decay) * p;
  }
  m = T(a.beta1) * m + T(1 - a.beta1) * g;
  v = T(a.beta2) * v + T(1 - a.beta2) * g * g;
  T second = v;
  if (vmax) second = *vmax = (*vmax > v ? *vmax : v);
  const T root = T(sizeof(T) == 4 ? ::sqrtf(float(second)) : ::sqrt(double(second)));
  return p - T(s.step_size) * m / (root / T(s.bias2_sqrt) + T(a.eps));
}

}  // namespace halfstep::math
