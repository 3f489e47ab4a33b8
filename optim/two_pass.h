// SPDX-License-Identifier: Apache-2.0
// Optimizers whose step depends on whole tensors: norms, means of rows and columns, products. A first pass, or ops, compute from a
// gradient the direction of the step; a second pass makes the step. Both read found_inf on the device, as the optimizers of one
// pass do (optim/optimizers.h).
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "optim/optimizers.h"

namespace halfstep {

// Runs the passes for one parameter after the other, so that only one direction is in memory.
class TwoPassOptimizer : public FusedOptimizer {
 public:
  std::optional<Tensor> step(const Closure& closure = nullptr) override;

 protected:
  using FusedOptimizer::FusedOptimizer;
  // Returns whether the parameters of a group need two passes; else rule() steps them in one.
  virtual bool needs_two_passes(size_t) const { return true; }
  Sharing sharing() const override { return Sharing::tensors; }
  // The direction for the second pass.
  struct Direction {
    Tensor direction;    // like the parameter, of any floating dtype
    Tensor number = {};  // 0-dim f32: factor of the rate, if apply_rule() reads one
  };
  // Computes the direction from the result of rule(), which the kernel writes behind the rule's states. It has the shape and device
  // of `param`.
  virtual Direction compute_direction(size_t group, const Tensor& param, Tensor result) = 0;
  virtual math::ApplyRule apply_rule(size_t group, double lr) const = 0;

 private:
  void run_two_passes(size_t group, std::vector<ParamUpdate>& params);
};

// Adam whose step is scaled in each tensor to the tensor's own length: p -= lr |p| / |d| d with d = m^ / (sqrt(v^) + eps) +
// weight_decay p (You et al. 2020). The ratio is 1 if either norm is 0, and for parameters without weight decay unless
// always_adapt.
struct LAMBOptions {
  double lr = 1e-3;
  NumberTuple<2> betas = {0.9, 0.999};
  double eps = 1e-6, weight_decay = 0.01;
  bool always_adapt = false, maximize = false;
  static constexpr const char* kName = "LAMB";
  static const std::vector<Option<LAMBOptions>>& list();
};
class LAMB : public WithOptions<LAMBOptions, TwoPassOptimizer> {
 public:
  using WithOptions::WithOptions;

 protected:
  UpdateRule rule(size_t group, double lr) const override;
  std::vector<std::string> states(size_t) const override { return {"exp_avg", "exp_avg_sq"}; }
  Direction compute_direction(size_t group, const Tensor& param, Tensor result) override;
  math::ApplyRule apply_rule(size_t group, double lr) const override;
};

// Momentum whose matrices are made nearly orthogonal by Newton-Schulz steps in bfloat16 (Jordan et al. 2024; PyTorch's Muon, with
// its defaults). As in Jordan's code the filters of a convolution are one matrix [out, rest], and AdamW steps everything else: the
// parameters of each group with fewer than two dimensions, and groups with `matrices` false, become groups of their own behind it,
// with adamw_lr (0: lr), adamw_betas and adamw_eps. Use AdamW for embeddings and the last layer too.
struct MuonOptions {
  double lr = 1e-3, weight_decay = 0.1, momentum = 0.95;
  bool nesterov = true;
  NumberTuple<3> ns_coefficients = {3.4445, -4.775, 2.0315};
  double eps = 1e-7;
  int64_t ns_steps = 5;
  // "original": lr sqrt(max(1, rows / columns)); "match_rms_adamw": lr 0.2 sqrt(max(rows, columns)); "spectral_unclamped": lr
  // sqrt(rows / columns)
  std::string adjust_lr_fn = "original";
  bool matrices = true;
  double adamw_lr = 0;
  NumberTuple<2> adamw_betas = {0.9, 0.95};
  double adamw_eps = 1e-10;
  void check_change(const MuonOptions& before) const;
  static constexpr const char* kName = "Muon";
  static const std::vector<Option<MuonOptions>>& list();
};
class Muon : public WithOptions<MuonOptions, TwoPassOptimizer> {
 public:
  Muon(std::vector<Tensor> params, const MuonOptions& options = {});
  template <HasParameters M>
  explicit Muon(const M& module, const MuonOptions& options = {}) : WithOptions(module, options) {}
  Muon(std::vector<ParamGroup> groups, const MuonOptions& options = {});
  void add_param_group(ParamGroup group) override;

 protected:
  UpdateRule rule(size_t group, double lr) const override;
  std::vector<std::string> states(size_t group) const override;
  bool needs_two_passes(size_t group) const override { return options_of(group).matrices; }
  Direction compute_direction(size_t group, const Tensor& param, Tensor result) override;
  math::ApplyRule apply_rule(size_t group, double lr) const override;
};

// Adam without a first moment, which keeps the second moment of a matrix as the means of its rows and columns (Shazeer & Stern
// 2018; PyTorch's Adafactor, with its defaults). eps[0] is by default float32's epsilon, as in PyTorch.
struct AdafactorOptions {
  double lr = 1e-2, beta2_decay = -0.8;
  NumberTuple<2> eps = {0x1p-23, 1e-3};
  double d = 1.0, weight_decay = 0;
  bool maximize = false;
  void(check)(std::string_view name) const;
  static constexpr const char* kName = "Adafactor";
  static const std::vector<Option<AdafactorOptions>>& list();
};
class Adafactor : public WithOptions<AdafactorOptions, Optimizer> {
 public:
  using WithOptions::WithOptions;
  std::optional<Tensor> step(const Closure& closure = nullptr) override;
  bool handles_amp() const override { return true; }

 protected:
  std::vector<std::string> state_names(size_t group, const Tensor& param) const override;
  std::optional<StateLayout> state_layout(const std::string& name, const Tensor& param) const override;
  Sharing sharing() const override { return Sharing::tensors; }
};

}  // namespace halfstep
