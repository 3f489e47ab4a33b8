// SPDX-License-Identifier: Apache-2.0
#include "layers/feedforward/normalization.h"

#include "amp/autocast/autocast.h"
#include "framework/autograd/grad_mode.h"
#include "framework/autograd/recompute.h"
#include "framework/parallel/sum_over_ranks.h"

namespace halfstep {
namespace {

// Returns a filled tensor, whose memory counts as that of parameters.
Tensor parameter(const Shape& shape, double value) {
  MemoryScope tag(MemoryTag::parameters);
  return full(shape, value);
}

Shape checked_shape(const char* type, const Sizes& shape) {
  check<ValueError>(!shape.empty(), type, "normalized_shape must have a dimension");
  check_arguments(type, LayerNorm::arguments(), shape);
  return shape.values();
}

template <class O>
Option<O> eps_of() {
  return option("eps", &O::eps, "added to the variance").at_least(0);
}
template <class O>
Option<O> norm_bias_of() {
  return option("bias", &O::bias, "add a bias, where affine");
}
template <class O>
OptionList<O> running_list() {
  return {
      eps_of<O>(),
      option("momentum", &O::momentum, "share of the new statistics; \"cumulative\", PyTorch's None: all batches count the same")
          .at_least(0)
          .at_most(1)
          .one_of({"cumulative"}),
      option("affine", &O::affine, "has weights"),
      option("track_running_stats", &O::track_running_stats, "gathers statistics for evaluation"), norm_bias_of<O>()};
}
}  // namespace

HALFSTEP_OPTIONS(BatchNormOptions,
                 running_list<O>() +
                     OptionList<O>{option("sync", &O::sync, "statistics of all ranks' samples, where ranks train together")})
HALFSTEP_OPTIONS(InstanceNormOptions, running_list<O>())
HALFSTEP_OPTIONS(LayerNormOptions, eps_of<O>(), option("elementwise_affine", &O::elementwise_affine, "has weights"),
                 norm_bias_of<O>())
HALFSTEP_OPTIONS(RMSNormOptions, option("eps", &O::eps, "left out: the dtype's epsilon").at_least(0),
                 option("elementwise_affine", &O::elementwise_affine, "has weights"))
HALFSTEP_OPTIONS(GroupNormOptions, eps_of<O>(), option("affine", &O::affine, "has weights"), norm_bias_of<O>())
HALFSTEP_OPTIONS(LocalResponseNormOptions, option("alpha", &O::alpha, "factor"), option("beta", &O::beta, "exponent"),
                 option("k", &O::k, "summand"))
HALFSTEP_OPTIONS(UnitNormOptions, option("p", &O::p, "which norm; 2: the length").above(0),
                 option("dim", &O::dim, "dimension").at_least(-kMaxDims).at_most(kMaxDims),
                 option("eps", &O::eps, "least divisor").at_least(0))

HALFSTEP_ARGUMENTS(RunningNorm, argument("num_features", "channels").at_least(1))
HALFSTEP_ARGUMENTS(LayerNorm, argument("normalized_shape", "sizes of the last dimensions").at_least(1))
HALFSTEP_ARGUMENTS(GroupNorm, argument("num_groups", "groups, which divide the channels").at_least(1),
                   argument("num_channels", "channels").at_least(1))
HALFSTEP_ARGUMENTS(LocalResponseNorm, argument("size", "channels").at_least(1))

RunningNorm::RunningNorm(const char* type, int64_t num_features, const BatchNormOptions& o)
    : type_(type), num_features_(num_features), options_(o) {
  check_arguments(type, arguments(), num_features);
  check_options(type, o);
  weight = register_parameter("weight", o.affine ? parameter({num_features}, 1) : Tensor());
  bias = register_parameter("bias", o.affine && o.bias ? parameter({num_features}, 0) : Tensor());
  const bool tracks = o.track_running_stats;
  running_mean = register_buffer("running_mean", tracks ? parameter({num_features}, 0) : Tensor());
  running_var = register_buffer("running_var", tracks ? parameter({num_features}, 1) : Tensor());
  num_batches_tracked = register_buffer("num_batches_tracked", tracks ? zeros({}, {.dtype = DType::i64}) : Tensor());
}

std::string RunningNorm::describe() const {
  BatchNormOptions shown = options_;
  shown.bias = shown.affine && shown.bias;
  return Repr(type_)
      .arg(num_features_)
      .options(shown, 0, {"eps", "momentum", "affine", "bias", "track_running_stats"})
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

// Normalises by the statistics over all ranks' samples, and updates the running ones if there are some.
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
  const double own_count = double(x.numel()) / double(channels);
  const Tensor sums =
      sum_over_ranks(cat({sum(x, others), full({1}, own_count, {.dtype = x.dtype(), .device = x.device()})}, 0), group);
  const Tensor n = sums.narrow(0, channels, 1).detach();
  if (!n.device().is_meta() && n.item<double>() <= 1)
    fail<ValueError>(norm.describe(), "needs more than one value per channel in training, got ", x.shape(), " on each rank");
  const Tensor mean = sums.narrow(0, 0, channels) / n, centered = x - mean.reshape(shape);
  const Tensor variance = sum_over_ranks(sum(centered * centered, others), group) / n;
  if (norm.running_mean.defined() && !TakenStates::recomputing()) {
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

// Returns the weight of this batch in the running statistics: momentum, or 1 / (batches so far, this one included).
double RunningNorm::share_of_batch(const Tensor& x) const {
  // Avoids the read on meta, where there is no number and no value depends on it.
  if (options_.momentum || x.device() == Device::meta) return options_.momentum.value_or(0);
  return 1 / double(num_batches_tracked.item<int64_t>() + 1);
}

// Call after the batch was accepted: a refused batch does not count.
void RunningNorm::count_batch() const {
  const NoGrad off;
  if (!TakenStates::recomputing()) num_batches_tracked.add_(1);
}

Tensor BatchNormNd::add_relu(const Tensor& x, const Tensor& residual) {
  if (!residual.defined() || has_hooks() || precision() || recomputes_in_backward() || autocast::any_policies())
    return halfstep::add_relu((*this)(x), residual);
  return run([&](const Tensor& in) { return normalized(in, /*relu=*/true, residual); }, x);
}

Tensor BatchNormNd::normalized(const Tensor& x, bool relu, const Tensor& residual) {
  check_input(x, least_rank_, most_rank_, 1);
  const bool tracks = running_mean.defined();
  ProcessGroup* const group = options_.sync && training() ? current_group() : nullptr;
  // Let the op count the batch unless the count is needed before.
  const bool counts_here = training() && tracks && (group || !options_.momentum);
  const double momentum = counts_here ? share_of_batch(x) : options_.momentum.value_or(0);
  Tensor y;
  if (group) {
    y = batch_norm_over_ranks(x, *this, momentum, options_.eps, *group);
    if (relu) y = residual.defined() ? halfstep::add_relu(y, residual) : halfstep::relu(y);
  } else {
    const bool by_batch = training() || !tracks;
    const Tensor batches = counts_here ? Tensor() : Tensor(num_batches_tracked);
    y = residual.defined()
            ? batch_norm_add_relu(x, residual, running_mean, running_var, weight, bias, by_batch, momentum, options_.eps, batches)
            : batch_norm(x, running_mean, running_var, weight, bias, by_batch, momentum, options_.eps, relu, batches);
  }
  if (counts_here) count_batch();
  return y;
}

Tensor InstanceNormNd::forward(const Tensor& x) {
  const bool batched = x.dim() == dims_ + 2;
  check_input(x, dims_ + 1, dims_ + 2, batched ? 1 : 0);
  // Count batches only if the count decides the average. PyTorch counts none here, and with an unset momentum it moves nothing.
  const bool averages = training() && running_mean.defined() && !options_.momentum;
  const double momentum = averages ? share_of_batch(x) : options_.momentum.value_or(0);
  const Tensor y = instance_norm(batched ? x : x.unsqueeze(0), running_mean, running_var, weight, bias,
                                 training() || !running_mean.defined(), momentum, options_.eps);
  if (averages) count_batch();
  return batched ? y : y.squeeze(0);
}

LayerNorm::LayerNorm(const Sizes& normalized_shape, const LayerNormOptions& o)
    : shape_(checked_shape("LayerNorm", normalized_shape)), options_(o) {
  check_options(kName, o);
  options_.bias = o.bias && o.elementwise_affine;
  weight = register_parameter("weight", o.elementwise_affine ? parameter(shape_, 1) : Tensor());
  bias = register_parameter("bias", o.elementwise_affine && o.bias ? parameter(shape_, 0) : Tensor());
}

std::string LayerNorm::describe() const { return Repr(kName).arg(shape_).options(options_).str(); }

RMSNorm::RMSNorm(const Sizes& normalized_shape, const RMSNormOptions& o)
    : shape_(checked_shape("RMSNorm", normalized_shape)), options_(o) {
  check_options(kName, o);
  weight = register_parameter("weight", o.elementwise_affine ? parameter(shape_, 1) : Tensor());
}

std::string RMSNorm::describe() const { return Repr(kName).arg(shape_).options(options_).str(); }

GroupNorm::GroupNorm(Integer groups, Integer channels, const GroupNormOptions& o)
    : num_groups_(groups), num_channels_(channels), options_(o) {
  const int64_t num_groups = groups, num_channels = channels;
  check_arguments(kName, arguments(), num_groups, num_channels);
  check<ValueError>(num_channels % num_groups == 0, "GroupNorm", "num_channels must be divisible by num_groups, got ", num_channels,
                    " and ", num_groups);
  check_options(kName, o);
  options_.bias = o.bias && o.affine;
  weight = register_parameter("weight", o.affine ? parameter({num_channels}, 1) : Tensor());
  bias = register_parameter("bias", o.affine && o.bias ? parameter({num_channels}, 0) : Tensor());
}

Tensor GroupNorm::forward(const Tensor& x) {
  check<ShapeError>(x.dim() >= 2 && x.size(1) == num_channels_, "GroupNorm", "needs ", num_channels_,
                    " channels in dimension 1, got ", x.shape());
  return group_norm(x, num_groups_, weight, bias, options_.eps);
}

std::string GroupNorm::describe() const { return Repr(kName).arg(num_groups_).arg(num_channels_).options(options_).str(); }

LocalResponseNorm::LocalResponseNorm(Integer size, const LocalResponseNormOptions& o)
    : FunctionLayer(Repr(kName).arg(int64_t(size)).options(o).str(),
                    [=](const Tensor& x) { return local_response_norm(x, size, o.alpha, o.beta, o.k); }) {
  check_options(kName, o);
  check_arguments(kName, arguments(), size);
}

}  // namespace halfstep
