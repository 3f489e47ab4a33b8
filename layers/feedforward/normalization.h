// SPDX-License-Identifier: Apache-2.0
// Normalisations. Most compute y = (x - mean) / sqrt(var + eps) weight + bias, and differ in the elements over which mean and var
// are taken (framework/ops/reduce/normalization.h); the others have their formulas below. Parameters, where affine: weight (ones)
// and bias (zeros).
#pragma once

#include <optional>
#include <string>
#include <utility>

#include "layers/module/layer.h"

namespace halfstep {

struct BatchNormOptions {
  double eps = 1e-5;
  std::optional<double> momentum = 0.1;  // unset: all batches so far weigh the same
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
// The base of batch and instance normalisation. Parameters: weight and bias [num_features]; buffers: running_mean, running_var
// [num_features] and num_batches_tracked [] (i64), which are undefined without track_running_stats.
class RunningNorm : public Module {
 public:
  static const Arguments<int64_t>& arguments();
  std::string describe() const override;
  void reset_running_stats() const;  // sets means to 0, variances to 1, batches to 0
  double eps() const { return options_.eps; }
  bool syncs() const { return options_.sync; }
  void set_sync(bool sync) { options_.sync = sync; }
  // Freezes the running statistics, for fine-tuning with small batches: from now on the layer normalises by them in training too,
  // and does not update them. Copies inherit this. weight and bias are still trained (see requires_grad_(false)). Throws
  // ValueError if statistics are not tracked. false: the next call of train() decides again.
  void freeze_statistics(bool on = true);
  bool has_frozen_statistics() const { return stays_in_eval(); }
  std::optional<double> momentum() const { return options_.momentum; }  // unset: equal averages
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

// Freezes the statistics of all batch and instance norms of the model that track them. Returns their number.
int64_t freeze_statistics(Module& model, bool on = true);

// Normalises each channel of [N, C, ...] over the batch and all positions. In training it uses the batch's statistics, and updates
// the running ones by running += momentum (batch - running) (TrainStep restores those of a skipped step); in evaluation it uses
// the running ones, or the batch's if they are not tracked. Throws ShapeError for an input of another rank or number of channels,
// ValueError for one value per channel in training.
class BatchNormNd : public RunningNorm {
 public:
  Tensor forward(const Tensor& x) override { return normalized(x, /*relu=*/false); }
  Tensor forward_relu(const Tensor& x) { return normalized(x, /*relu=*/true); }
  // Computes relu(layer(x)), in one pass unless a hook or a policy for ops needs the value between.
  Tensor relu(const Tensor& x) {
    return has_hooks() || autocast::any_policies() ? halfstep::relu((*this)(x))
                                                   : run([this](const Tensor& in) { return forward_relu(in); }, x);
  }
  // Computes add_relu(layer(x), residual), as at the end of a residual block, in one pass by the same rule, which also holds for a
  // layer with a precision of its own, or recomputed in backward.
  Tensor add_relu(const Tensor& x, const Tensor& residual);
  bool is_recordable() const override { return options_.momentum.has_value(); }  // else forward reads the number of batches

 protected:
  BatchNormNd(const char* type, int least_rank, int most_rank, int64_t num_features, const BatchNormOptions& options)
      : RunningNorm(type, num_features, options), least_rank_(least_rank), most_rank_(most_rank) {}

 private:
  Tensor normalized(const Tensor& x, bool relu, const Tensor& residual = Tensor());

  int least_rank_, most_rank_;
};
// BatchNorm1d: [N, C] or [N, C, L], BatchNorm2d: [N, C, H, W], BatchNorm3d: [N, C, D, H, W].
template <int n>
class BatchNorm : public BatchNormNd, public OfDims<"BatchNorm", n> {
 public:
  using Options = BatchNormOptions;
  using OfDims<"BatchNorm", n>::kName;
  explicit BatchNorm(Integer num_features, const BatchNormOptions& options = {})
      : BatchNormNd(kName, n == 1 ? 2 : n + 2, n + 2, num_features, options) {}
};
using BatchNorm1d = BatchNorm<1>;
using BatchNorm2d = BatchNorm<2>;
using BatchNorm3d = BatchNorm<3>;
// Takes any of these shapes, with `sync` set. The name is PyTorch's.
class SyncBatchNorm : public BatchNormNd {  // [N, C, ...]
 public:
  explicit SyncBatchNorm(Integer num_features, const BatchNormOptions& o = {})
      : BatchNormNd("SyncBatchNorm", 2, kMaxDims, num_features, o) {
    set_sync(true);
  }
  static void convert_sync_batchnorm(Module& model);  // sets `sync` of all its batch norms
};

// Normalises each channel of each sample over its positions: [N, C, in...] or [C, in...]. Running statistics, if tracked, are
// updated as in batch normalisation, by the samples' means and variances, averaged over the batch.
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
  explicit InstanceNorm(Integer num_features, const InstanceNormOptions& options = {})
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
// Normalises over the last dimensions, normalized_shape, which is also the shape of weight and bias.
class LayerNorm : public Module {
 public:
  using Options = LayerNormOptions;
  static constexpr const char* kName = "LayerNorm";
  static const Arguments<Sizes>& arguments();
  explicit LayerNorm(const Sizes& normalized_shape, const LayerNormOptions& options = {});
  Tensor forward(const Tensor& x) override { return layer_norm(x, shape_, weight, bias, options_.eps); }
  // Return layer(x) and the pair of layer(x + branch) and the sum, in one pass (ResidualStream calls both). rounded: as in
  // layer_norm. Hooks are not called.
  Tensor in_dtype(const Tensor& x, std::optional<DType> rounded) {
    return run([&](const Tensor& in) { return layer_norm(in, shape_, weight, bias, options_.eps, rounded); }, x);
  }
  std::pair<Tensor, Tensor> of_sum(const Tensor& x, const Tensor& branch, std::optional<DType> rounded) {
    const auto both = [&](const Tensor& a, const Tensor& b) {
      const Tensors out = add_layer_norm(a, b, shape_, weight, bias, options_.eps, rounded);
      return std::pair(out[0], out[1]);
    };
    return run(both, x, branch);
  }
  bool is_recordable() const override { return true; }
  std::string describe() const override;
  Parameter weight, bias;

 private:
  Shape shape_;
  LayerNormOptions options_;
};

struct RMSNormOptions {
  std::optional<double> eps = {};  // unset: the epsilon of float32, for an f64 input that of float64
  bool elementwise_affine = true;
  static const OptionList<RMSNormOptions>& list();
};
class RMSNorm : public Module {  // y = x / sqrt(mean(x^2) + eps) weight
 public:
  using Options = RMSNormOptions;
  static constexpr const char* kName = "RMSNorm";
  static const Arguments<Sizes>& arguments() { return LayerNorm::arguments(); }
  explicit RMSNorm(const Sizes& normalized_shape, const RMSNormOptions& options = {});
  Tensor forward(const Tensor& x) override { return rms_norm(x, shape_, weight, options_.eps); }
  // As those of LayerNorm.
  Tensor in_dtype(const Tensor& x, std::optional<DType> rounded) {
    return run([&](const Tensor& in) { return rms_norm(in, shape_, weight, options_.eps, rounded); }, x);
  }
  std::pair<Tensor, Tensor> of_sum(const Tensor& x, const Tensor& branch, std::optional<DType> rounded) {
    const auto both = [&](const Tensor& a, const Tensor& b) {
      const Tensors out = add_rms_norm(a, b, shape_, weight, options_.eps, rounded);
      return std::pair(out[0], out[1]);
    };
    return run(both, x, branch);
  }
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
// Normalises each group of channels of each sample over its channels and positions: [N, C, ...]; weight and bias: [num_channels].
class GroupNorm : public Module {
 public:
  using Options = GroupNormOptions;
  static constexpr const char* kName = "GroupNorm";
  static const Arguments<int64_t, int64_t>& arguments();
  GroupNorm(Integer num_groups, Integer num_channels, const GroupNormOptions& options = {});
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
  static const Arguments<int64_t>& arguments();
  explicit LocalResponseNorm(Integer size, const LocalResponseNormOptions& options = {});
};

struct UnitNormOptions {
  double p = 2;
  int64_t dim = 1;
  double eps = 1e-12;
  static const OptionList<UnitNormOptions>& list();
  Tensor operator()(const Tensor& x) const { return normalize(x, p, {dim}, eps); }
};
// Computes x / max(|x|_p, eps) along dim: torch.nn.functional.normalize as a layer; Keras's UnitNormalization.
using UnitNorm = OptionLayer<"UnitNorm", UnitNormOptions>;

}  // namespace halfstep
