// SPDX-License-Identifier: Apache-2.0
// Normalisations; the formulas: framework/ops/reduce/normalization.h. Parameters: weight (ones) and bias (zeros), where affine.
#pragma once

#include <optional>
#include <string>

#include "layers/module/layer.h"

namespace halfstep {

struct BatchNormOptions {
  double eps = 1e-5;
  std::optional<double> momentum = 0.1;  // unset: all batches so far count the same
  bool affine = true;
  bool track_running_stats = true;
  bool bias = true;
  bool sync = false;
  static const OptionList<BatchNormOptions>& list();
};
struct InstanceNormOptions {
  double eps = 1e-5;
  std::optional<double> momentum = 0.1;
  bool affine = false;
  bool track_running_stats = false;
  bool bias = true;
  static const OptionList<InstanceNormOptions>& list();
};
// What batch and instance normalisation share. Parameters: weight and bias [num_features], buffers: running_mean, running_var
// [num_features] and num_batches_tracked [] (i64); undefined without affine and track_running_stats.
class RunningNorm : public Module {
 public:
  std::string describe() const override;
  void reset_running_stats() const;  // to means of 0, variances of 1 and no batches
  double eps() const { return options_.eps; }
  bool syncs() const { return options_.sync; }
  void set_sync(bool sync) { options_.sync = sync; }
  // For fine-tuning with small batches: from now on it normalises by its running statistics and leaves them as they are, also after
  // train(), as in evaluation. Copies do, too. weight and bias are still trained (requires_grad_(false)). Throws ValueError where
  // statistics are not tracked. false: as train() says from its next call on.
  void freeze_statistics(bool on = true);
  bool has_frozen_statistics() const { return stays_in_eval(); }
  std::optional<double> momentum() const { return options_.momentum; }  // nothing: the running statistics are equal averages
  void set_momentum(std::optional<double> momentum) { options_.momentum = momentum; }
  Parameter weight, bias;
  ModuleBuffer running_mean, running_var, num_batches_tracked;

 protected:
  RunningNorm(const char* type, int64_t num_features, const BatchNormOptions& options);
  void check_input(const Tensor& x, int least, int most, int channels_dim) const;
  double share_of_batch(const Tensor& x) const;
  void count_batch() const;
  const char* type_;
  int64_t num_features_;
  BatchNormOptions options_;
};

// Freezes the statistics of all batch and instance norms of the model that track them. How many there are.
int64_t freeze_statistics(Module& model, bool on = true);

// Over [N, C, ...] for each channel. Training normalises by the batch's statistics and moves the running ones with each forward
// (TrainStep takes those of a skipped step back); evaluation uses the running ones, or the batch's where they are not tracked.
// Throws ShapeError for an input of another rank or other channels, ValueError for one value per channel in training.
class BatchNormNd : public RunningNorm {
 public:
  Tensor forward(const Tensor& x) override { return normalized(x, /*relu=*/false); }
  Tensor forward_relu(const Tensor& x) { return normalized(x, /*relu=*/true); }
  // relu(layer(x)), in one pass if no hook needs the value between.
  Tensor relu(const Tensor& x) {
    return has_hooks() || autocast::any_policies() ? halfstep::relu((*this)(x))
                                                 : run([this](const Tensor& in) { return forward_relu(in); }, x);
  }
  bool is_recordable() const override { return options_.momentum.has_value(); }  // else forward reads how many batches there were

 protected:
  BatchNormNd(const char* type, int least_rank, int most_rank, int64_t num_features, const BatchNormOptions& options)
      : RunningNorm(type, num_features, options), least_rank_(least_rank), most_rank_(most_rank) {}

 private:
  Tensor normalized(const Tensor& x, bool relu);

  int least_rank_, most_rank_;
};
// BatchNorm1d: [N, C] or [N, C, L], BatchNorm2d: [N, C, H, W], BatchNorm3d: [N, C, D, H, W].
template <int n>
class BatchNorm : public BatchNormNd, public OfDims<"BatchNorm", n> {
 public:
  using Options = BatchNormOptions;
  using OfDims<"BatchNorm", n>::kName;
  explicit BatchNorm(Whole num_features, const BatchNormOptions& options = {})
      : BatchNormNd(kName, n == 1 ? 2 : n + 2, n + 2, num_features, options) {}
};
using BatchNorm1d = BatchNorm<1>;
using BatchNorm2d = BatchNorm<2>;
using BatchNorm3d = BatchNorm<3>;
// Any of these shapes, with `sync`: PyTorch's name for it.
class SyncBatchNorm : public BatchNormNd {  // [N, C, ...]
 public:
  explicit SyncBatchNorm(Whole num_features, const BatchNormOptions& o = {})
      : BatchNormNd("SyncBatchNorm", 2, kMaxDims, num_features, o) {
    set_sync(true);
  }
  static void convert_sync_batchnorm(Module& model);  // sets `sync` of all batch norms in it
};

// For each channel of each sample: [N, C, in...] or [C, in...]. Running statistics, where tracked, as in batch normalisation.
class InstanceNormNd : public RunningNorm {
 public:
  Tensor forward(const Tensor& x) override;
  bool is_recordable() const override { return !running_mean.defined() || momentum().has_value(); }

 protected:
  InstanceNormNd(const char* type, int dims, int64_t num_features, const InstanceNormOptions& o)
      : RunningNorm(type, num_features, {o.eps, o.momentum, o.affine, o.track_running_stats, o.bias}), dims_(dims) {}

 private:
  int dims_;
};
template <int n>
class InstanceNorm : public InstanceNormNd, public OfDims<"InstanceNorm", n> {
 public:
  using Options = InstanceNormOptions;
  using OfDims<"InstanceNorm", n>::kName;
  explicit InstanceNorm(Whole num_features, const InstanceNormOptions& options = {})
      : InstanceNormNd(kName, n, num_features, options) {}
};
using InstanceNorm1d = InstanceNorm<1>;
using InstanceNorm2d = InstanceNorm<2>;
using InstanceNorm3d = InstanceNorm<3>;

struct LayerNormOptions {
  double eps = 1e-5;
  bool elementwise_affine = true;
  bool bias = true;
  static const OptionList<LayerNormOptions>& list();
};
// Over the last dimensions, which are normalized_shape; weight and bias have it, too.
class LayerNorm : public Module {
 public:
  using Options = LayerNormOptions;
  static constexpr const char* kName = "LayerNorm";
  explicit LayerNorm(const Sizes& normalized_shape, const LayerNormOptions& options = {});
  Tensor forward(const Tensor& x) override { return layer_norm(x, shape_, weight, bias, options_.eps); }
  bool is_recordable() const override { return true; }
  std::string describe() const override;
  Parameter weight, bias;

 private:
  Shape shape_;
  LayerNormOptions options_;
};

struct RMSNormOptions {
  std::optional<double> eps = {};
  bool elementwise_affine = true;
  static const OptionList<RMSNormOptions>& list();
};
class RMSNorm : public Module {  // without a mean and a bias
 public:
  using Options = RMSNormOptions;
  static constexpr const char* kName = "RMSNorm";
  explicit RMSNorm(const Sizes& normalized_shape, const RMSNormOptions& options = {});
  Tensor forward(const Tensor& x) override { return rms_norm(x, shape_, weight, options_.eps); }
  bool is_recordable() const override { return true; }
  std::string describe() const override;
  Parameter weight;

 private:
  Shape shape_;
  RMSNormOptions options_;
};

struct GroupNormOptions {
  double eps = 1e-5;
  bool affine = true;
  bool bias = true;
  static const OptionList<GroupNormOptions>& list();
};
// Over the channels of each group and all positions of [N, C, ...]; weight and bias: [num_channels].
class GroupNorm : public Module {
 public:
  using Options = GroupNormOptions;
  static constexpr const char* kName = "GroupNorm";
  GroupNorm(Whole num_groups, Whole num_channels, const GroupNormOptions& options = {});
  Tensor forward(const Tensor& x) override;
  bool is_recordable() const override { return true; }
  std::string describe() const override;
  Parameter weight, bias;

 private:
  int64_t num_groups_, num_channels_;
  GroupNormOptions options_;
};

struct LocalResponseNormOptions {
  double alpha = 1e-4, beta = 0.75, k = 1;
  static const OptionList<LocalResponseNormOptions>& list();
};
class LocalResponseNorm : public FunctionLayer {
 public:
  using Options = LocalResponseNormOptions;
  static constexpr const char* kName = "LocalResponseNorm";
  explicit LocalResponseNorm(Whole size, const LocalResponseNormOptions& options = {});
};

struct UnitNormOptions {
  double p = 2;
  int64_t dim = 1;
  double eps = 1e-12;
  static const OptionList<UnitNormOptions>& list();
  Tensor operator()(const Tensor& x) const { return normalize(x, p, {dim}, eps); }
};
// x / max(|x|_p, eps) along dim: torch.nn.functional.normalize as a layer, which Keras calls UnitNormalization.
using UnitNorm = OptionLayer<"UnitNorm", UnitNormOptions>;

}  // namespace halfstep
