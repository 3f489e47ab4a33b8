// SPDX-License-Identifier: Apache-2.0
// L-BFGS: Newton's method with an inverse Hessian made of the last steps (Liu & Nocedal 1989; PyTorch's LBFGS, its arguments,
// defaults and stopping rules), for full batches and few parameters. It evaluates the loss several times a step:
//
//   LBFGS opt(net.parameters(), {.line_search_fn = "strong_wolfe"});
//   opt.step([&] {
//     opt.zero_grad();
//     Tensor loss = mse_loss(net(x), y);
//     loss.backward();
//     return loss;
//   });
//
// It decides on the host, so it waits for the device. A GradScaler refuses it, because closures would have to scale their losses.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "optim/optimizers.h"

namespace halfstep {

struct LBFGSOptions {
  double lr = 1;
  int64_t max_iter = 20;           // iterations in a step
  int64_t max_eval = 0;            // evaluations in a step; 0: max_iter * 5 / 4
  double tolerance_grad = 1e-7;    // stops if no element of the gradient is larger
  double tolerance_change = 1e-9;  // ... or if neither parameters nor loss change by more
  int64_t history_size = 100;
  std::string line_search_fn = "none";  // "none": every step is lr long; "strong_wolfe"
  bool maximize = false;
  void check_change(const LBFGSOptions& before) const;
  static constexpr const char* kName = "LBFGS";
  static const std::vector<Option<LBFGSOptions>>& list();
};
class LBFGS : public WithOptions<LBFGSOptions, Optimizer> {
 public:
  using WithOptions::WithOptions;
  // Returns the loss before the step. Throws ValueError without a closure, and for several groups.
  std::optional<Tensor> step(const Closure& closure = nullptr) override;
  bool needs_closure() const override { return true; }
  // Indices of the numbers that it keeps between steps. They and vectors over all parameters are states of the first parameter:
  // "numbers", "direction", "gradient", and for each slot of the history "change0", of the gradient, and "moved0".
  enum StateNumber {
    kIterations,   // in all steps
    kEvaluations,  // in all steps
    kLength,       // of the last iteration: it moved by kLength direction
    kScale,        // the initial inverse Hessian is kScale times the identity
    kPairs,        // in the history
    kNext,         // slot of the next pair
    kNumbers
  };

 protected:
  std::optional<StateLayout> state_layout(const std::string&, const Tensor&) const override { return {}; }

 private:
  // A point on the line of a search: its length, the loss, its gradient, and the slope along the direction.
  struct Point {
    double t, loss;
    Tensor gradient;
    double slope;
  };
  using Evaluate = std::function<Point(double t)>;
  static Point search(const Evaluate& evaluate, const Point& start, double t, double max_element, double tolerance_change,
                      int64_t max_tries, int64_t& evaluations);
  Point search_along(const Closure& closure, const Tensor& direction, const Point& first, const LBFGSOptions& o, int64_t max_tries,
                     int64_t& evaluations);

  void iterate(const Closure& closure, const LBFGSOptions& o, double loss, Tensor gradient);
  double evaluate(const Closure& closure, Tensor* loss = nullptr);
  Tensor flat_gradient() const;
  void move(double t, const Tensor& direction, const Tensor* from = nullptr);
  Tensor newton_direction(const Tensor& gradient);
  void remember(const Tensor& gradient);
};

}  // namespace halfstep
