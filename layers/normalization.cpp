// SPDX-License-Identifier: Apache-2.0
#include "layers/normalization.h"

#include "amp/autocast/autocast.h"
#include "framework/autograd/checkpoint.h"
#include "framework/autograd/grad_mode.h"
#include "framework/parallel/sum_over_ranks.h"

namespace halfstep {
namespace {

Tensor parameter(const Shape& shape, double value) {
  MemoryScope tag(MemoryTag::parameters);
  return full(shape, value);
}

void check_eps(const char* type, double eps) { check<ValueError>(eps >= 0, type, "eps must be >= 0, got ", eps); }

Shape normalized(const char* type, const Sizes& shape) {
  check<ValueError>(!shape.empty(), type, "normalized_shape must have a dimension");
  for (int64_t s : shape.values()) check<ValueError>(s >= 1, type, "normalized_shape must be >= 1, got ", shape.values());
  return shape.values();
}

}  // namespace

RunningNorm::RunningNorm(const char* type, int64_t num_features, const BatchNormOptions& o)
    : type_(type), num_features_(num_features), options_(o) {
  check<ValueError>(num_features >= 1, type, "num_features must be >= 1, got ", num_features);
  check_eps(type, o.eps);
  check<ValueError>(!o.momentum || (*o.momentum >= 0 && *o.momentum <= 1), type, "momentum must be in [0, 1], got ",
                    o.momentum.value_or(0));
  weight = register_parameter("weight", o.affine ? parameter({num_features}, 1) : Tensor());
  bias = register_parameter("bias", o.affine && o.bias ? parameter({num_features}, 0) : Tensor());
  const bool tracks = o.track_running_stats;
  running_mean = register_buffer("running_mean", tracks ? parameter({num_features}, 0) : Tensor());
  running_var = register_buffer("running_var", tracks ? parameter({num_features}, 1) : Tensor());
  num_batches_tracked = register_buffer("num_batches_tracked", tracks ? zeros({}, {.dtype = DType::i64}) : Tensor());
}

std::string RunningNorm::describe() const {
  return Repr(type_)
      .arg(num_features_)
      .arg("eps", options_.eps)
      .arg("momentum", options_.momentum)
      .arg("affine", options_.affine)
      .arg("bias", options_.affine && options_.bias)
      .arg("track_running_stats", options_.track_running_stats)
      .arg_if(has_frozen_statistics(), "frozen_statistics", true)
      .arg_if(options_.sync && type_ != std::string_view("SyncBatchNorm"), "sync", options_.sync)
      .str();
}

void RunningNorm::freeze_statistics(bool on) {
  check<ValueError>(!on || running_mean.defined(), describe(), "statistics must be tracked to be frozen",
                    Help{"make it with track_running_stats"});
  stay_in_eval(on);
}

int64_t freeze_statistics(Module& model, bool on) {
  int64_t found = 0;
  model.apply([&](Module& m) {
    auto* const norm = dynamic_cast<RunningNorm*>(&m);
    if (!norm || !norm->running_mean.defined()) return;
    norm->freeze_statistics(on);
    ++found;
  });
  return found;
}

void SyncBatchNorm::convert_sync_batchnorm(Module& model) {
  model.apply([](Module& m) {
    if (auto* const norm = dynamic_cast<BatchNormNd*>(&m)) norm->set_sync(true);
  });
}

void RunningNorm::reset_running_stats() const {
  if (!running_mean.defined()) return;
  const NoGrad off;
  running_mean.fill_(0);
  running_var.fill_(1);
  num_batches_tracked.fill_(0);
}

void RunningNorm::check_input(const Tensor& x, int least, int most, int channels_dim) const {
  check_rank(type_, x, least, most);
  check<ShapeError>(x.size(channels_dim) == num_features_, type_, "needs ", num_features_, " channels in dimension ", channels_dim,
                    ", got ", x.shape());
}

namespace {

// Batch normalisation whose statistics are those of all ranks' samples, and move the running ones, where given.
Tensor batch_norm_over_ranks(const Tensor& x0, const RunningNorm& norm, double momentum, double eps, ProcessGroup& group) {
  const autocast::Off off;
  const Tensor x = x0.to(widened(x0.dtype()));
  const int64_t channels = x.size(1);
  Dims others;
  Shape shape;
  for (int d = 0; d < x.dim(); ++d) {
    if (d != 1) others.push_back(d);
    shape.push_back(d == 1 ? channels : 1);
  }
  const double here = double(x.numel()) / double(channels);
  const Tensor sums = sum_over_ranks(cat({sum(x, others), full({1}, here, {.dtype = x.dtype(), .device = x.device()})}, 0), group);
  const Tensor n = sums.narrow(0, channels, 1).detach();
  if (!n.device().is_meta() && n.item<double>() <= 1)
    fail<ValueError>(norm.describe(), "needs more than one value per channel in training, got ", x.shape(), " on each rank");
  const Tensor mean = sums.narrow(0, 0, channels) / n, centered = x - mean.reshape(shape);
  const Tensor variance = sum_over_ranks(sum(centered * centered, others), group) / n;
  if (norm.running_mean.defined() && !TakenStates::again()) {
    const NoGrad quiet;
    norm.running_mean.mul_(1 - momentum).add_(mean.detach() * momentum);
    norm.running_var.mul_(1 - momentum).add_(variance.detach() * n / (n - 1.0) * momentum);
  }
  Tensor y = centered * rsqrt(variance + eps).reshape(shape);
  if (norm.weight.defined()) y = y * norm.weight.reshape(shape);
  if (norm.bias.defined()) y = y + norm.bias.reshape(shape);
  return y.to(x0.dtype());
}

}  // namespace

// The share of a batch's statistics in the running ones: for equal averages that of the batch that is computed.
double RunningNorm::share_of_batch(const Tensor& x) const {
  // On meta there is no number to read, and none of the values depends on it.
  if (options_.momentum || x.device() == Device::meta) return options_.momentum.value_or(0);
  return 1 / double(num_batches_tracked.item<int64_t>() + 1);
}

// Once the batch was taken: one that was refused does not count.
void RunningNorm::count_batch() const {
  const NoGrad off;
  if (!TakenStates::again()) num_batches_tracked.add_(1);
}

Tensor BatchNormNd::normalized(const Tensor& x, bool relu) {
  check_input(x, least_rank_, most_rank_, 1);
  const bool tracks = running_mean.defined();
  ProcessGroup* const group = options_.sync && training() ? current_group() : nullptr;
  // The op counts the batch itself, unless the number is needed before.
  const bool counts_here = training() && tracks && (group || !options_.momentum);
  const double momentum = counts_here ? share_of_batch(x) : options_.momentum.value_or(0);
  Tensor y;
  if (group) {
    y = batch_norm_over_ranks(x, *this, momentum, options_.eps, *group);
    if (relu) y = halfstep::relu(y);
  } else {
    y = batch_norm(x, running_mean, running_var, weight, bias, training() || !tracks, momentum, options_.eps, relu,
                   counts_here ? Tensor() : Tensor(num_batches_tracked));
  }
  if (counts_here) count_batch();
  return y;
}

Tensor InstanceNormNd::forward(const Tensor& x) {
  const bool batched = x.dim() == dims_ + 2;
  check_input(x, dims_ + 1, dims_ + 2, batched ? 1 : 0);
  // Batches are counted where they decide the average; PyTorch counts none, and an unset momentum moves nothing there.
  const bool averages = training() && running_mean.defined() && !options_.momentum;
  const double momentum = averages ? share_of_batch(x) : options_.momentum.value_or(0);
  const Tensor y = instance_norm(batched ? x : x.unsqueeze(0), running_mean, running_var, weight, bias,
                                 training() || !running_mean.defined(), momentum, options_.eps);
  if (averages) count_batch();
  return batched ? y : y.squeeze(0);
}

LayerNorm::LayerNorm(const Sizes& normalized_shape, const LayerNormOptions& o)
    : shape_(normalized("LayerNorm", normalized_shape)), options_(o) {
  check_eps("LayerNorm", o.eps);
  weight = register_parameter("weight", o.elementwise_affine ? parameter(shape_, 1) : Tensor());
  bias = register_parameter("bias", o.elementwise_affine && o.bias ? parameter(shape_, 0) : Tensor());
}

std::string LayerNorm::describe() const {
  return Repr("LayerNorm")
      .arg(shape_)
      .arg("eps", options_.eps)
      .arg("elementwise_affine", options_.elementwise_affine)
      .arg("bias", bias.defined())
      .str();
}

RMSNorm::RMSNorm(const Sizes& normalized_shape, const RMSNormOptions& o)
    : shape_(normalized("RMSNorm", normalized_shape)), options_(o) {
  check_eps("RMSNorm", o.eps.value_or(0));
  weight = register_parameter("weight", o.elementwise_affine ? parameter(shape_, 1) : Tensor());
}

std::string RMSNorm::describe() const {
  return Repr("RMSNorm").arg(shape_).arg("eps", options_.eps).arg("elementwise_affine", options_.elementwise_affine).str();
}

GroupNorm::GroupNorm(Whole groups, Whole channels, const GroupNormOptions& o)
    : num_groups_(groups), num_channels_(channels), options_(o) {
  const int64_t num_groups = groups, num_channels = channels;
  check<ValueError>(num_groups >= 1 && num_channels >= 1, "GroupNorm", "num_groups and num_channels must be >= 1, got ", num_groups,
                    " and ", num_channels);
  check<ValueError>(num_channels % num_groups == 0, "GroupNorm", "num_channels must be divisible by num_groups, got ", num_channels,
                    " and ", num_groups);
  check_eps("GroupNorm", o.eps);
  weight = register_parameter("weight", o.affine ? parameter({num_channels}, 1) : Tensor());
  bias = register_parameter("bias", o.affine && o.bias ? parameter({num_channels}, 0) : Tensor());
}

Tensor GroupNorm::forward(const Tensor& x) {
  check<ShapeError>(x.dim() >= 2 && x.size(1) == num_channels_, "GroupNorm", "needs ", num_channels_,
                    " channels in dimension 1, got ", x.shape());
  return group_norm(x, num_groups_, weight, bias, options_.eps);
}

std::string GroupNorm::describe() const {
  return Repr("GroupNorm")
      .arg(num_groups_)
      .arg(num_channels_)
      .arg("eps", options_.eps)
      .arg("affine", options_.affine)
      .arg("bias", bias.defined())
      .str();
}

LocalResponseNorm::LocalResponseNorm(Whole size, const LocalResponseNormOptions& o)
    : FunctionLayer(Repr("LocalResponseNorm").arg(int64_t(size)).arg("alpha", o.alpha).arg("beta", o.beta).arg("k", o.k).str(),
                    [=](const Tensor& x) { return local_response_norm(x, size, o.alpha, o.beta, o.k); }) {
  check<ValueError>(size >= 1, "LocalResponseNorm", "size must be >= 1, got ", int64_t(size));
}

UnitNorm::UnitNorm(const UnitNormOptions& o)
    : FunctionLayer(Repr("UnitNorm").arg("p", o.p).arg("dim", o.dim).arg("eps", o.eps).str(),
                    [=](const Tensor& x) { return normalize(x, o.p, {o.dim}, o.eps); }) {
  check<ValueError>(o.p > 0, "UnitNorm", "p must be > 0, got ", o.p);
  check_eps("UnitNorm", o.eps);
}

}  // namespace halfstep
