// SPDX-License-Identifier: Apache-2.0
// Normalisations; the formulas: framework/ops/reduce/normalization.h. Parameters: weight (ones) and bias (zeros), where affine.
#pragma once

#include <concepts>
#include <optional>
#include <string>

#include "layers/layer.h"

namespace halfstep {

struct BatchNormOptions {
  double eps = 1e-5;
  std::optional<double> momentum = 0.1;  // share of the new statistics; unset: all batches so far count the same
  bool affine = true;
  bool track_running_stats = true;
  bool bias = true;   // of an affine one
  bool sync = false;  // training takes the statistics of all ranks' samples, where ranks train together
};
struct InstanceNormOptions {
  double eps = 1e-5;
  std::optional<double> momentum = 0.1;
  bool affine = false;
  bool track_running_stats = false;
  bool bias = true;
};
// All arguments by name: BatchNorm2d({.num_features = 8, .eps = 1e-3}).
struct BatchNormArguments {
  ByName by_name = ByName();
  Required<int64_t> num_features;
  double eps = 1e-5;
  std::optional<double> momentum = 0.1;
  bool affine = true, track_running_stats = true, bias = true;
  BatchNormOptions rest() const { return {eps, momentum, affine, track_running_stats, bias}; }
};
struct InstanceNormArguments {
  ByName by_name = ByName();
  Required<int64_t> num_features;
  double eps = 1e-5;
  std::optional<double> momentum = 0.1;
  bool affine = false, track_running_stats = false, bias = true;
  InstanceNormOptions rest() const { return {eps, momentum, affine, track_running_stats, bias}; }
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
class BatchNorm1d : public BatchNormNd {  // [N, C] or [N, C, L]
 public:
  explicit BatchNorm1d(Whole num_features, const BatchNormOptions& o = {}) : BatchNormNd("BatchNorm1d", 2, 3, num_features, o) {}
  explicit BatchNorm1d(const BatchNormArguments& a) : BatchNorm1d(*a.num_features, a.rest()) {}
};
class BatchNorm2d : public BatchNormNd {  // [N, C, H, W]
 public:
  explicit BatchNorm2d(Whole num_features, const BatchNormOptions& o = {}) : BatchNormNd("BatchNorm2d", 4, 4, num_features, o) {}
  explicit BatchNorm2d(const BatchNormArguments& a) : BatchNorm2d(*a.num_features, a.rest()) {}
};
class BatchNorm3d : public BatchNormNd {  // [N, C, D, H, W]
 public:
  explicit BatchNorm3d(Whole num_features, const BatchNormOptions& o = {}) : BatchNormNd("BatchNorm3d", 5, 5, num_features, o) {}
  explicit BatchNorm3d(const BatchNormArguments& a) : BatchNorm3d(*a.num_features, a.rest()) {}
};
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
class InstanceNorm1d : public InstanceNormNd {
 public:
  explicit InstanceNorm1d(Whole features, const InstanceNormOptions& o = {}) : InstanceNormNd("InstanceNorm1d", 1, features, o) {}
  explicit InstanceNorm1d(const InstanceNormArguments& a) : InstanceNorm1d(*a.num_features, a.rest()) {}
};
class InstanceNorm2d : public InstanceNormNd {
 public:
  explicit InstanceNorm2d(Whole features, const InstanceNormOptions& o = {}) : InstanceNormNd("InstanceNorm2d", 2, features, o) {}
  explicit InstanceNorm2d(const InstanceNormArguments& a) : InstanceNorm2d(*a.num_features, a.rest()) {}
};
class InstanceNorm3d : public InstanceNormNd {
 public:
  explicit InstanceNorm3d(Whole features, const InstanceNormOptions& o = {}) : InstanceNormNd("InstanceNorm3d", 3, features, o) {}
  explicit InstanceNorm3d(const InstanceNormArguments& a) : InstanceNorm3d(*a.num_features, a.rest()) {}
};

struct LayerNormOptions {
  double eps = 1e-5;
  bool elementwise_affine = true;
  bool bias = true;
};
struct LayerNormArguments {
  ByName by_name = ByName();
  Required<Sizes> normalized_shape;
  double eps = 1e-5;
  bool elementwise_affine = true, bias = true;
};
// Over the last dimensions, which are normalized_shape; weight and bias have it, too.
class LayerNorm : public Module {
 public:
  explicit LayerNorm(const Sizes& normalized_shape, const LayerNormOptions& options = {});
  LayerNorm(const Sizes& normalized_shape, std::floating_point auto eps) : LayerNorm(normalized_shape, LayerNormOptions{eps}) {}
  explicit LayerNorm(const LayerNormArguments& a)
      : LayerNorm(*a.normalized_shape, LayerNormOptions{a.eps, a.elementwise_affine, a.bias}) {}
  Tensor forward(const Tensor& x) override { return layer_norm(x, shape_, weight, bias, options_.eps); }
  bool is_recordable() const override { return true; }
  std::string describe() const override;
  Parameter weight, bias;

 private:
  Shape shape_;
  LayerNormOptions options_;
};

struct RMSNormOptions {
  std::optional<double> eps = {};  // unset: the dtype's epsilon
  bool elementwise_affine = true;
};
class RMSNorm : public Module {  // without a mean and a bias
 public:
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
};
struct GroupNormArguments {
  ByName by_name = ByName();
  Required<int64_t> num_groups, num_channels;
  double eps = 1e-5;
  bool affine = true, bias = true;
};
// Over the channels of each group and all positions of [N, C, ...]; weight and bias: [num_channels].
class GroupNorm : public Module {
 public:
  GroupNorm(Whole num_groups, Whole num_channels, const GroupNormOptions& options = {});
  explicit GroupNorm(const GroupNormArguments& a) : GroupNorm(*a.num_groups, *a.num_channels, {a.eps, a.affine, a.bias}) {}
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
};
class LocalResponseNorm : public FunctionLayer {
 public:
  explicit LocalResponseNorm(Whole size, const LocalResponseNormOptions& options = {});
  LocalResponseNorm(Whole size, PlainNumber auto alpha, double beta = 0.75, double k = 1)
      : LocalResponseNorm(size, LocalResponseNormOptions{double(alpha), beta, k}) {}
};

struct UnitNormOptions {
  double p = 2;
  int64_t dim = 1;
  double eps = 1e-12;
};
// x / max(|x|_p, eps) along dim: torch.nn.functional.normalize as a layer, which Keras calls UnitNormalization.
class UnitNorm : public FunctionLayer {
 public:
  explicit UnitNorm(const UnitNormOptions& options = {});
  explicit UnitNorm(PlainNumber auto p, int64_t dim = 1, double eps = 1e-12) : UnitNorm(UnitNormOptions{double(p), dim, eps}) {}
};

}  // namespace halfstep
