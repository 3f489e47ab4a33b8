// SPDX-License-Identifier: Apache-2.0
#include "optim/lbfgs.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "amp/autocast/autocast.h"
#include "framework/autograd/grad_mode.h"
#include "framework/ops/ops.h"

namespace halfstep {
namespace {

double dot_of(const Tensor& a, const Tensor& b) { return (a * b).sum({}, false, DType::f64).item<double>(); }
// Returns the largest |element|.
double largest(const Tensor& a) { return a.abs().max().item<double>(); }

// Returns the minimum, within [low, high], of the cubic through two points with these slopes.
double cubic_minimum(double x1, double f1, double g1, double x2, double f2, double g2, double low, double high) {
  const double d1 = g1 + g2 - 3 * (f1 - f2) / (x1 - x2), square = d1 * d1 - g1 * g2;
  if (!(square >= 0)) return (low + high) / 2;
  const double d2 = std::sqrt(square);
  const double at =
      x1 <= x2 ? x2 - (x2 - x1) * ((g2 + d2 - d1) / (g2 - g1 + 2 * d2)) : x1 - (x1 - x2) * ((g1 + d2 - d1) / (g1 - g2 + 2 * d2));
  return std::min(std::max(at, low), high);
}

constexpr double kLeastCurvature = 1e-10;  // of a step that enters the history, as in PyTorch

}  // namespace

HALFSTEP_OPTIONS(
    LBFGSOptions, option("lr", &O::lr, "length of a step, of a search the first one tried").at_least(0),
    option("max_iter", &O::max_iter, "iterations a step").at_least(1),
    option("max_eval", &O::max_eval, "evaluations a step; 0: 5/4 of max_iter").at_least(0),
    option("tolerance_grad", &O::tolerance_grad, "stops where no element of the gradient is larger").at_least(0),
    option("tolerance_change", &O::tolerance_change, "stops where nothing changes more").at_least(0),
    option("history_size", &O::history_size, "steps that are remembered").at_least(1),
    option("line_search_fn", &O::line_search_fn, "line search for the length of a step").one_of({"none", "strong_wolfe"}),
    option("maximize", &O::maximize, "climb instead of descend"))

void LBFGSOptions::check_change(const LBFGSOptions& before) const {
  halfstep::check<ValueError>(history_size == before.history_size, kName, "history_size cannot change after ", before.history_size,
                              ", got ", history_size, Help{"build a new optimizer"});
}

double LBFGS::evaluate(const Closure& closure, Tensor* loss) {
  const Tensor out = *Optimizer::evaluate(closure);
  if (loss) *loss = out;
  const double value = out.item<double>();
  return options_of(0).maximize ? -value : value;
}

Tensor LBFGS::flat_gradient() const {
  check_unscaled();
  const NoGrad off;
  Tensors parts;
  for (const Tensor& p : groups()[0].params) {
    const Tensor grad = p.grad();
    parts.push_back(
        (grad.defined() ? grad.detach() : zeros_like(p)).reshape({-1}).to(p.dtype() == DType::f64 ? DType::f64 : DType::f32));
  }
  const Tensor all = cat(parts);
  return options_of(0).maximize ? -all : all;
}

// Sets parameters = from + t direction, or adds t direction if `from` is null.
void LBFGS::move(double t, const Tensor& direction, const Tensor* from) {
  const NoGrad off;
  int64_t at = 0;
  for (const Tensor& p : groups()[0].params) {
    const auto part = [&](const Tensor& flat) { return flat.narrow(0, at, p.numel()).reshape(p.shape()); };
    const Tensor moved = (from ? part(*from) : p.detach().to(direction.dtype())) + part(direction) * t;
    p.detach().copy_(moved);
    at += p.numel();
  }
}

// Adds the last step and the change of the gradient to the history, if the loss is convex along the step.
void LBFGS::remember(const Tensor& gradient) {
  Tensor& numbers = state(0, "numbers", {kNumbers}, DType::f64);
  std::vector<double> values = numbers.to_vector<double>();
  const Tensor change = gradient - state(0, "gradient", gradient.shape(), gradient.dtype());
  const Tensor moved = state(0, "direction", gradient.shape(), gradient.dtype()) * values[kLength];
  const double curvature = dot_of(change, moved);
  if (!(curvature > kLeastCurvature)) return;
  const std::string slot = std::to_string(int64_t(values[kNext]));
  state(0, "change" + slot, gradient.shape(), gradient.dtype()).copy_(change);
  state(0, "moved" + slot, gradient.shape(), gradient.dtype()).copy_(moved);
  values[kNext] = double((int64_t(values[kNext]) + 1) % options_of(0).history_size);
  values[kPairs] = std::min(values[kPairs] + 1, double(options_of(0).history_size));
  values[kScale] = curvature / dot_of(change, change);
  numbers.copy_(tensor(values, {kNumbers}, {.dtype = DType::f64}).to(numbers.device()));
}

// Returns minus the approximate inverse Hessian times the gradient, by the two loops over the history (Nocedal & Wright 2006,
// algorithm 7.4; y: change, s: moved, rho: inverse, alpha: weight).
Tensor LBFGS::newton_direction(const Tensor& gradient) {
  const std::vector<double> numbers = state(0, "numbers", {kNumbers}, DType::f64).to_vector<double>();
  const int64_t pairs = int64_t(numbers[kPairs]), size = options_of(0).history_size;
  const auto pair = [&](const char* name, int64_t i) {  // the i-th oldest
    const int64_t slot = (int64_t(numbers[kNext]) - pairs + i + 2 * size) % size;
    return state(0, name + std::to_string(slot), gradient.shape(), gradient.dtype());
  };
  std::vector<double> weight(size_t(pairs), 0.0), inverse(size_t(pairs), 0.0);
  Tensor q = -gradient;
  for (int64_t i = pairs - 1; i >= 0; --i) {
    const Tensor change = pair("change", i), moved = pair("moved", i);
    inverse[size_t(i)] = 1 / dot_of(change, moved);
    weight[size_t(i)] = dot_of(moved, q) * inverse[size_t(i)];
    q = q - change * weight[size_t(i)];
  }
  q = q * numbers[kScale];
  for (int64_t i = 0; i < pairs; ++i)
    q = q + pair("moved", i) * (weight[size_t(i)] - dot_of(pair("change", i), q) * inverse[size_t(i)]);
  return q;
}

namespace {

// Returns the next length to try within a bracket: the minimum of a cubic, or, if that is too near an end for the second time or
// is the end itself, a tenth of the bracket away from it. `insufficient`: whether the last one was too near.
template <class Point>
double next_length(const Point (&bracket)[2], bool& insufficient) {
  const double left = std::min(bracket[0].t, bracket[1].t), right = std::max(bracket[0].t, bracket[1].t);
  const double at =
      cubic_minimum(bracket[0].t, bracket[0].loss, bracket[0].slope, bracket[1].t, bracket[1].loss, bracket[1].slope, left, right);
  const double margin = 0.1 * (right - left);
  const bool near = std::min(right - at, at - left) < margin, moves = near && (insufficient || at >= right || at <= left);
  insufficient = near && !moves;
  if (!moves) return at;
  return std::abs(at - right) < std::abs(at - left) ? right - margin : left + margin;
}

// Returns copies of all parameters as one vector.
Tensor flat_values(const std::vector<Tensor>& params, DType dtype) {
  Tensors parts;
  for (const Tensor& p : params) parts.push_back(p.detach().reshape({-1}).to(dtype).clone());
  return cat(parts);
}

}  // namespace

// Finds a length that satisfies the strong Wolfe conditions (Nocedal & Wright 2006, algorithms 3.5 and 3.6): brackets one, then
// shrinks the bracket. start: the loss and slope at length 0; t: the first length; max_element: the largest |element| of the
// direction. Sets `evaluations` to their number.
LBFGS::Point LBFGS::search(const Evaluate& evaluate, const Point& start, double t, double max_element, double tolerance_change,
                           int64_t max_tries, int64_t& evaluations) {
  constexpr double kDecrease = 1e-4, kCurvature = 0.9;  // c1 and c2 of the conditions
  const auto is_flat = [&](const Point& p) { return std::abs(p.slope) <= -kCurvature * start.slope; };
  const auto too_high = [&](const Point& p) { return p.loss > start.loss + kDecrease * p.t * start.slope; };
  Point last = start, now = evaluate(t);
  evaluations = 1;
  int64_t tries = 0;
  Point bracket[2];
  bool found = false, done = false;
  while (tries < max_tries) {
    if (too_high(now) || (tries > 1 && now.loss >= last.loss) || now.slope >= 0) {
      done = !too_high(now) && !(tries > 1 && now.loss >= last.loss) && is_flat(now);
      bracket[0] = done ? now : last, bracket[1] = now;
      found = true;
      break;
    }
    if (is_flat(now)) {
      bracket[0] = bracket[1] = now;
      found = done = true;
      break;
    }
    // As in PyTorch: farther by at least a hundredth of the last stretch, to at most ten times the length.
    const double next =
        cubic_minimum(last.t, last.loss, last.slope, now.t, now.loss, now.slope, now.t + 0.01 * (now.t - last.t), now.t * 10);
    last = now;
    now = evaluate(next);
    ++evaluations, ++tries;
  }
  if (!found) bracket[0] = start, bracket[1] = now;

  int low = bracket[0].loss <= bracket[1].loss ? 0 : 1;
  bool insufficient = false;
  while (!done && tries < max_tries) {
    if (std::abs(bracket[1].t - bracket[0].t) * max_element < tolerance_change) break;
    now = evaluate(next_length(bracket, insufficient));
    ++evaluations, ++tries;
    Point &best = bracket[low], &other = bracket[1 - low];
    if (too_high(now) || now.loss >= best.loss) {
      other = now;
      low = bracket[0].loss <= bracket[1].loss ? 0 : 1;
    } else {
      if (is_flat(now))
        done = true;
      else if (now.slope * (other.t - best.t) >= 0)
        other = best;
      best = now;
    }
  }
  return bracket[low];
}

// Moves the parameters to the result of a line search. first: the loss, gradient and slope at the start, and the first length to
// try.
LBFGS::Point LBFGS::search_along(const Closure& closure, const Tensor& direction, const Point& first, const LBFGSOptions& o,
                                 int64_t max_tries, int64_t& evaluations) {
  const Tensor from = flat_values(groups()[0].params, first.gradient.dtype());
  const Evaluate at = [&](double length) {
    move(length, direction, &from);
    const double value = evaluate(closure);
    const Tensor slopes = flat_gradient();
    return Point{length, value, slopes, dot_of(slopes, direction)};
  };
  const Point start{0, first.loss, first.gradient, first.slope};
  const Point end = search(at, start, first.t, largest(direction), o.tolerance_change, max_tries, evaluations);
  move(end.t, direction, &from);
  return end;
}

std::optional<Tensor> LBFGS::step(const Closure& closure) {
  check<ValueError>(bool(closure), "LBFGS.step", "needs a closure that computes the loss and its gradients",
                    Help{"opt.step([&] { opt.zero_grad(); Tensor loss = ...; loss.backward(); return loss; })"});
  check<ValueError>(groups().size() == 1, "LBFGS.step", "all parameters must be in one group, got ", groups().size(), " groups");
  adopt_options();  // the closure makes the gradients
  const LBFGSOptions o = options_with(0, last_known_lr(0));
  Tensor first_loss;
  const double loss = evaluate(closure, &first_loss);
  const NoGrad off;
  const Autocast exact(first_loss.device(), DType::bf16, false);
  const Tensor gradient = flat_gradient();
  if (largest(gradient) <= o.tolerance_grad) return first_loss;
  iterate(closure, o, loss, gradient);
  run_followers();
  return first_loss;
}

// Makes the iterations of a step. loss, gradient: at the current parameters.
void LBFGS::iterate(const Closure& closure, const LBFGSOptions& o, double loss, Tensor gradient) {
  const int64_t most_evaluations = o.max_eval > 0 ? o.max_eval : o.max_iter * 5 / 4;
  const auto vector_state = [&](const char* name) -> Tensor& { return state(0, name, gradient.shape(), gradient.dtype()); };
  const auto set_number = [&](StateNumber which, double value) {
    Tensor& numbers = state(0, "numbers", {kNumbers}, DType::f64);
    numbers.select(0, which).fill_(value);
  };
  const std::vector<double> before_step = state(0, "numbers", {kNumbers}, DType::f64).to_vector<double>();
  double iterations = before_step[kIterations], total = before_step[kEvaluations] + 1;
  int64_t evaluations = 1;
  for (int64_t i = 1; i <= o.max_iter; ++i) {
    const bool first = iterations++ == 0;
    first ? set_number(kScale, 1) : remember(gradient);
    vector_state("direction").copy_(first ? -gradient : newton_direction(gradient));
    const Tensor direction = vector_state("direction");
    vector_state("gradient").copy_(gradient);
    const double before = loss;
    state(0, "previous_loss", {}, DType::f64).fill_(before);
    double t = first ? std::min(1.0, 1 / gradient.abs().sum().item<double>()) * o.lr : o.lr;
    const double slope = dot_of(gradient, direction);
    set_number(kLength, t);
    set_number(kIterations, iterations);
    if (slope > -o.tolerance_change) break;

    int64_t evaluated = 0;
    if (o.line_search_fn == "strong_wolfe") {
      const Point end = search_along(closure, direction, {t, loss, gradient, slope}, o, most_evaluations - evaluations, evaluated);
      t = end.t, loss = end.loss, gradient = end.gradient;
    } else {
      move(t, direction);
      if (i != o.max_iter) {
        loss = evaluate(closure);
        gradient = flat_gradient();
        evaluated = 1;
      }
    }
    set_number(kLength, t);
    evaluations += evaluated;
    total += double(evaluated);
    if (evaluations >= most_evaluations || largest(gradient) <= o.tolerance_grad ||
        largest(direction) * std::abs(t) <= o.tolerance_change || std::abs(loss - before) < o.tolerance_change)
      break;
  }
  set_number(kEvaluations, total);
}

}  // namespace halfstep
