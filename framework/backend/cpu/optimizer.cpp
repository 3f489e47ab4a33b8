// SPDX-License-Identifier: Apache-2.0
// The fused optimizer passes: parameters, gradients and states are read and written once, and unscaled, clipped and copied to 16
// bits in the same pass.
#include <algorithm>
#include <array>
#include <variant>
#include <vector>

#include "framework/backend/cpu/kernels.h"
#include "framework/backend/cpu/tensor_lists.h"
#include "framework/math/update_rules.h"

namespace halfstep::cpu {
namespace {

// Updates n elements by a rule with `States` states, each in its own array.
template <int States, class Rule, class T>
HS_CLONES void update_run(T* p, const T* g, const std::array<T*, ParamUpdate::kStates> states, int64_t n,
                          const typename Rule::Step step, const Rule rule) {
  static_assert(States <= int(ParamUpdate::kStates));
  T *const s0 = states[0], *const s1 = states[1], *const s2 = states[2];
  HS_INDEPENDENT
  for (int64_t i = 0; i < n; ++i) {
    T state[Rule::kStates] = {};
    if constexpr (States > 0) state[0] = s0[i];
    if constexpr (States > 1) state[1] = s1[i];
    if constexpr (States > 2) state[2] = s2[i];
    p[i] = rule.update(p[i], g[i], state, step);
    if constexpr (States > 0) s0[i] = state[0];
    if constexpr (States > 1) s1[i] = state[1];
    if constexpr (States > 2) s2[i] = state[2];
  }
}

// Does the same for a number of states, `count`, that only a running program has.
template <class Rule, class T, int States = 0>
void update_with(const Rule& rule, int count, T* p, const T* g, const std::array<T*, ParamUpdate::kStates>& states, int64_t n,
                 const typename Rule::Step& step) {
  if (count == States) return update_run<States>(p, g, states, n, step, rule);
  if constexpr (States < Rule::kStates) update_with<Rule, T, States + 1>(rule, count, p, g, states, n, step);
}

template <class T>
HS_CLONES void scale_to(const T* in, T factor, T* out, int64_t n) {
  HS_INDEPENDENT
  for (int64_t i = 0; i < n; ++i) out[i] = in[i] * factor;
}

// Processes a piece of one parameter in blocks: calls f(p, g, begin, n), which updates n elements of p, those from element `begin`
// on, from the gradient times the factor, g; then stores the 16-bit copy, and g if `write_back`.
template <class T, class F>
void update_blocks(const ParamUpdate& u, const TensorPiece& piece, float factor, bool write_back, const F& f) {
  alignas(64) T p_buffer[kBlock], g_buffer[kBlock];
  const bool p_direct = u.param.dtype == dtype_of<T>, g_direct = u.grad.dtype == dtype_of<T>;
  for (int64_t i = piece.begin; i < piece.end; i += kBlock) {
    const int64_t n = std::min(kBlock, piece.end - i);
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

void test_gradients(std::span<const ParamUpdate> params, float* found_inf) {
  std::vector<TensorView> grads;
  for (const ParamUpdate& u : params) grads.push_back(u.grad);
  *found_inf = 0;
  check_finite(grads, found_inf);
}

// Updates all parameters and then the step counts, unless an inf was found; then runs the tail.
template <class Rule>
void step_all(std::span<const ParamUpdate> params, Rule rule, const StepControl& control) {
  if (control.test_gradients) test_gradients(params, control.found_inf);
  const bool skips = control.found_inf && *control.found_inf != 0;
  if (skips) return control.tail.run(true);
  const int state_count = rule.states();  // before a schedule sets the momentum to 0
  math::take_rates(rule, control.lr, control.momentum);
  std::vector<typename Rule::Step> steps;
  for (const ParamUpdate& u : params)
    steps.push_back(rule.begin(Rule::kCounts ? double(*u.step) : 0, u.number ? double(*u.number) : 0));
  const float factor = math::gradient_factor(control.grad_scale, control.grad_norm, control.max_norm);
  const std::vector<TensorPiece> pieces = pieces_of(params.size(), [&](size_t k) { return params[k].param.numel(); });
  for_pieces(pieces, [&](size_t index) {
    const TensorPiece& piece = pieces[index];
    const ParamUpdate& u = params[piece.tensor];
    if (math::is_idle(rule, steps[piece.tensor])) return;
    const auto update_in = [&]<class T>(T) {
      update_blocks<T>(u, piece, factor, control.write_back, [&](T* p, const T* g, int64_t i, int64_t n) {
        std::array<T*, ParamUpdate::kStates> states{};
        for (size_t k = 0; k < size_t(state_count); ++k) states[k] = u.state[k].template as<T>() + i;
        update_with(rule, state_count, p, g, states, n, steps[piece.tensor]);
      });
    };
    u.param.dtype == DType::f64 ? update_in(double{}) : update_in(float{});
  });
  for (size_t k = 0; k < params.size(); ++k) {
    if constexpr (Rule::kCounts) *params[k].step += 1;
    if constexpr (math::HasNumber<Rule>) *params[k].number = steps[k].number;
  }
  control.tail.run(false);
}

}  // namespace

void update(std::span<const ParamUpdate> params, const UpdateRule& rule, const StepControl& control) {
  rule.visit([&](const auto& r) { step_all(params, r, control); });
}

void end_step(const float* found_inf, const math::StepTail& tail) { tail.run(found_inf && *found_inf != 0); }

}  // namespace halfstep::cpu
