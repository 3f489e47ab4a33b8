// SPDX-License-Identifier: Apache-2.0
#include "amp/step/grad_scaler.h"

#include <cmath>
#include <limits>
#include <string_view>

#include "framework/autograd/grad_mode.h"
#include "framework/autograd/scaled_backward.h"
#include "framework/backend/backend.h"
#include "framework/ops/ops.h"
#include "optim/clip.h"
#include "optim/gradients.h"
#include "optim/optimizer.h"

namespace halfstep {
namespace {

enum class Stage { ready, unscaled, stepped };

// State of an optimizer since the last update.
struct Record {
  Stage stage = Stage::ready;
  Tensor found_inf;  // undefined until checked, as grad_norm also does, or if there was no gradient
};

// Passes device scalars to the optimizer for one step, and removes them also when the step throws.
struct AmpGuard {
  [[nodiscard]] AmpGuard(Optimizer& o, AmpStep s, std::function<void()> test_gradients, const math::StepTail& tail) : optimizer(o) {
    optimizer.begin_amp(std::move(s), std::move(test_gradients), tail);
  }
  ~AmpGuard() { optimizer.end_amp(); }
  AmpGuard(const AmpGuard&) = delete;
  Optimizer& optimizer;
};

constexpr const char* kKeys[] = {"scale", "growth_factor", "backoff_factor", "growth_interval", "_growth_tracker"};

// Returns false on meta, where nothing is computed.
bool is_set(const Tensor& found_inf) { return !found_inf.device().is_meta() && found_inf.item<float>() != 0; }
}  // namespace

HALFSTEP_OPTIONS(GradScalerOptions, option("growth_factor", &O::growth_factor, "after growth_interval clean steps").above(1),
                 option("backoff_factor", &O::backoff_factor, "after a skipped step").above(0).under(1),
                 option("growth_interval", &O::growth_interval, "clean steps").at_least(1))

bool StepOutcome::applied() const { return !found_inf_.defined() || !is_set(found_inf_); }

const std::optional<Tensor>& StepOutcome::value() const {
  static const std::optional<Tensor> nothing;
  return value_ && applied() ? value_ : nothing;
}

struct GradScaler::Impl {
  GradScalerOptions options;
  double init_scale = 0;  // initial value of the device scalar
  int64_t init_tracker = 0;
  Tensor scale, tracker;               // 0-dim f32 and i32 on the device; made by the first scale()
  std::shared_ptr<LossScale> marks;    // of the gradients that `scale` multiplies; made with it
  Tensor unit_seed;                    // first gradient of backward if disabled
  std::map<uint64_t, Record> records;  // by optimizer id

  // Changes an option of the list. Throws ValueError for a value outside its bounds.
  void set(std::string_view name, const OptionValue& value) {
    for (const Option<GradScalerOptions>& o : GradScalerOptions::list())
      if (o.name == name) check_option("GradScaler", o, value), o.put(options, value);
  }
  static void check_growth_interval(int64_t v) {
    check<ValueError>(v >= 1 && v <= std::numeric_limits<int32_t>::max(), "GradScaler",
                      "growth_interval must be >= 1 and below 2^31, got ", v);
  }

  // Returns whether gradients are multiplied by a scale.
  bool scales() const { return options.enabled && !(options.fixed && init_scale == 1); }

  void check_not_fixed() const {
    check<AmpError>(!options.fixed, "GradScaler.update", "the scale is fixed", Help{"leave out .fixed in the options"});
  }

  void check_has_scale(const char* where) const {
    check<AmpError>(scale.defined(), where, "needs a scale, but scale() was not used in this iteration",
                    Help{"call scaler.scale(loss).backward() first"});
  }

  void check_loss(const Tensor& loss) {
    check<DTypeError>(loss.is_floating_point(), "GradScaler.scale", "a loss must be floating point, got ", loss.dtype());
    if (!scale.defined()) create_state(loss.device());
    check<DeviceError>(loss.device() == scale.device(), "GradScaler.scale", "losses must be on the device of the scale, ",
                       scale.device(), ", got ", loss.device());
  }

  void create_state(Device device) {
    MemoryScope tag(MemoryTag::workspace);
    scale = full({}, init_scale, {.device = device});
    tracker = full({}, double(init_tracker), {.dtype = DType::i32, .device = device});
    marks = std::make_shared<LossScale>(scale);
  }
  // Returns the mark of gradients that are multiplied by the scale; null if there is none.
  std::shared_ptr<LossScale> mark() const { return scales() ? marks : nullptr; }

  // Returns all gradients, on the scale's device.
  Tensors gradients(Optimizer& optimizer, bool unscale, const char* where) const {
    const std::vector<Tensor> params = optimizer.parameters();
    for (size_t i = 0; i < params.size(); ++i) {
      const Tensor& g = params[i].raw_grad();
      if (!g.defined()) continue;
      const auto name = [&] { return params[i].label().empty() ? "parameter " + std::to_string(i) : params[i].label(); };
      if (params[i].dtype() == DType::f16)
        fail<AmpError>(where, "attempting to unscale FP16 gradients: the gradient of ", name(), " is float16",
                       Help{"keep parameters in float32 and let autocast lower the ops"});
      if (g.device() != scale.device())
        fail<DeviceError>(where, "gradients must be on the device of the scale, ", scale.device(), ", but the gradient of ", name(),
                          " is on ", g.device());
      const auto& meta = params[i].impl()->autograd;
      if (meta->scaled && !meta->mixed && marks && !marks->fits(params[i]) && !unmark_zeros(params[i]))
        fail<AmpError>(where, "the gradient of ", name(), " is multiplied by another scale than this scaler's now",
                       Help{"step each optimizer with the scaler of its losses, before the update() that follows the backward"});
    }
    return gradients_of(params, /*contiguous=*/false, /*raw=*/!unscale);
  }

  // Checks all gradients and divides them by the scale. Returns undefined if there is no gradient. The host reads nothing.
  Tensor unscale(Optimizer& optimizer, const char* where) {
    const Tensors grads = gradients(optimizer, /*unscale=*/true, where);
    if (grads.empty()) return {};
    MemoryScope tag(MemoryTag::workspace);
    const Tensor found = zeros({}, {.device = scale.device()});
    backend_for(scale.device()).unscale(views_of(grads), scale.data_ptr<float>(), found.data_ptr<float>());
    for (const Tensor& g : grads) g.bump_version();
    mark_unscaled(optimizer.parameters());
    return found;
  }

  void bump_versions() {
    scale.bump_version();
    tracker.bump_version();
  }
  // Adds the scale's part to a step's end.
  void add_to(math::StepTail& tail) const {
    tail.scale = scale.data_ptr<float>();
    tail.tracker = tracker.data_ptr<int32_t>();
    tail.rule = {.interval = int32_t(options.growth_interval), .least = float(options.min_scale), .most = float(options.max_scale)};
    if (options.fixed) return;
    tail.rule.growth = options.growth_factor;
    tail.rule.backoff = options.backoff_factor;
  }
};

GradScaler::Impl& GradScaler::impl() const {
  check<AmpError>(impl_ != nullptr, "GradScaler", "this scaler was moved from", Help{"use the one that it was moved to"});
  return *impl_;
}

GradScaler::GradScaler(const GradScalerOptions& o) : impl_(std::make_unique<Impl>()) {
  if (o.enabled) {
    check<ValueError>(std::isfinite(o.init_scale) && o.init_scale > 0, "GradScaler", "init_scale must be > 0 and finite, got ",
                      o.init_scale);
    Impl::check_growth_interval(o.growth_interval);
    check_options("GradScaler", o);
    check<ValueError>(o.min_scale >= 0 && o.min_scale <= o.max_scale, "GradScaler", "0 <= min_scale <= max_scale must hold, got ",
                      o.min_scale, " and ", o.max_scale);
  }
  impl().options = o;
  impl().init_scale = o.init_scale;
}
GradScaler::GradScaler(GradScaler&& other) noexcept : impl_(std::move(other.impl_)) {}
GradScaler& GradScaler::operator=(GradScaler&& other) noexcept {
  impl_ = std::move(other.impl_);
  return *this;
}
GradScaler::~GradScaler() = default;

Tensor GradScaler::scale(const Tensor& loss) {
  if (!is_enabled()) return loss;
  impl().check_loss(loss);
  const Tensor product = mul(loss, impl().scale);
  if (impl().scales() && product.requires_grad()) {
    product.register_hook([mark = impl().mark()](const Tensor&) {
      ScaledBackward::mark(mark);
      return Tensor();
    });
  }
  return product;
}

Tensor GradScaler::seed(Device device, double weight) {
  const NoGrad off;
  const MemoryScope tag(MemoryTag::workspace);
  if (is_enabled() && !impl().scale.defined()) impl().create_state(device);
  if (!is_enabled() && (!impl().unit_seed.defined() || impl().unit_seed.device() != device))
    impl().unit_seed = ones({}, {.device = device});
  const Tensor& unweighted = is_enabled() ? impl().scale : impl().unit_seed;
  const Tensor out = weight == 1 ? unweighted : unweighted * weight;
  if (impl().scales()) out.impl()->meta().scaled = true;
  return out;
}

void GradScaler::backward(const Tensor& loss, double weight) {
  check<ShapeError>(loss.numel() == 1, "GradScaler.backward", "a loss must have one element, got ", loss.shape());
  if (is_enabled()) impl().check_loss(loss);
  const Tensor first = seed(loss.device(), weight).reshape(loss.shape());
  const ScaledBackward scaled(impl().mark());
  loss.backward(first);
}

void GradScaler::backward(const Tensor& loss, const Tensor& weight) {
  check<ShapeError>(loss.numel() == 1, "GradScaler.backward", "a loss must have one element, got ", loss.shape());
  if (is_enabled()) impl().check_loss(loss);
  const Tensor product = no_grad([&] { return seed(loss.device()) * weight.to(DType::f32); });
  const ScaledBackward scaled(impl().mark());
  loss.backward(product.reshape(loss.shape()));
}

Tensors GradScaler::scale(const Tensors& losses) {
  Tensors out;
  out.reserve(losses.size());
  for (const Tensor& loss : losses) out.push_back(scale(loss));
  return out;
}

Gradients GradScaler::unscale_(Optimizer& optimizer) {
  if (!is_enabled()) return optimizer.parameters();
  impl().check_has_scale("GradScaler.unscale_");
  Record& record = impl().records[optimizer.id()];
  check<AmpError>(record.stage != Stage::unscaled, "GradScaler.unscale_",
                  "was already called on this optimizer since the last update()",
                  Help{"call it once per iteration, after the last backward"});
  check<AmpError>(record.stage != Stage::stepped, "GradScaler.unscale_", "is called after step() on this optimizer",
                  Help{"the order is backward, unscale_, step, update"});
  NoGrad off;
  record.found_inf = impl().unscale(optimizer, "GradScaler.unscale_");
  record.stage = Stage::unscaled;
  return optimizer.parameters();
}

Tensor GradScaler::grad_norm(Optimizer& optimizer) {
  const char* const where = "GradScaler.grad_norm";
  const NoGrad off;
  const MemoryScope tag(MemoryTag::workspace);
  if (!is_enabled()) return halfstep::grad_norm(optimizer.parameters());
  impl().check_has_scale(where);
  Record& record = impl().records[optimizer.id()];
  check<AmpError>(record.stage == Stage::ready, where, "is called after unscale_() or step() on this optimizer",
                  Help{"after unscale_() call grad_norm(optimizer.parameters())"});
  const Tensors grads = impl().gradients(optimizer, /*unscale=*/false, where);
  const Device device = impl().scale.device();
  if (grads.empty()) return zeros({}, {.device = device});
  const Tensor norm = Tensor::empty({}, {.device = device});
  record.found_inf = Tensor::empty({}, {.device = device});
  backend_for(device).grad_norm(views_of(grads), impl().scales() ? impl().scale.data_ptr<float>() : nullptr, norm.data_ptr<float>(),
                                record.found_inf.data_ptr<float>());
  return norm;
}

StepOutcome GradScaler::step(Optimizer& optimizer, const Closure& closure) {
  if (!is_enabled()) {
    StepOutcome outcome;
    outcome.value_ = optimizer.step(closure);
    return outcome;
  }
  check<AmpError>(!closure, "GradScaler.step", "takes no closure while the scaler is enabled",
                  Help{"an optimizer that evaluates the loss again would use gradients of another scale"});
  bool tail_pending = true;
  return step_with_tail(optimizer, {}, {}, tail_pending);
}

// Steps the optimizer, whose kernel also does `tail` if it can; tail_pending: whether the tail remains to be done.
StepOutcome GradScaler::step_with_tail(Optimizer& optimizer, const math::StepTail& tail, const NormClip& clip,
                                       bool& tail_pending) {
  impl().check_has_scale("GradScaler.step");
  Record& record = impl().records[optimizer.id()];
  check<AmpError>(record.stage != Stage::stepped, "GradScaler.step", "was already called on this optimizer since the last update()",
                  Help{"call scaler.update() once, at the end of each iteration"});
  NoGrad off;
  StepOutcome outcome;
  tail_pending = true;
  if (optimizer.handles_amp()) {
    const bool unscaled = record.stage == Stage::unscaled;
    std::function<void()> test_gradients;
    if (!unscaled && !record.found_inf.defined()) {
      const Tensors grads = impl().gradients(optimizer, /*unscale=*/false, "GradScaler.step");
      if (!grads.empty()) {
        const MemoryScope tag(MemoryTag::workspace);
        record.found_inf = Tensor::empty({}, {.device = impl().scale.device()});
        test_gradients = [grads, found = record.found_inf] {
          Backend& backend = backend_for(found.device());
          backend.fill(found.view(), 0);
          backend.check_finite(views_of(grads), found.data_ptr<float>());
        };
      }
    }
    const AmpGuard amp(optimizer, {record.found_inf, unscaled || !impl().scales() ? Tensor() : impl().scale, clip},
                       std::move(test_gradients), tail);
    outcome.value_ = optimizer.step();
    const Optimizer::RemainingWork undone = optimizer.end_amp();
    if (undone.test_gradients) undone.test_gradients();
    tail_pending = undone.tail;
    if (optimizer.keeps_unscaled_gradients() && impl().scales()) mark_unscaled(optimizer.parameters());
  } else {
    if (record.stage == Stage::ready) record.found_inf = impl().unscale(optimizer, "GradScaler.step");
    record.stage = Stage::unscaled;
    check<AmpError>(record.found_inf.defined(), "GradScaler.step",
                    "no inf checks were recorded for this optimizer: no parameter has a gradient",
                    Help{"call backward() on a loss that depends on its parameters"});
    if (!is_set(record.found_inf)) outcome.value_ = optimizer.step();
  }
  record.stage = Stage::stepped;
  outcome.found_inf_ = record.found_inf;
  return outcome;
}

StepOutcome GradScaler::finish(Optimizer& optimizer, math::StepTail tail, const Tensor& skip, const NormClip& clip) {
  const auto end = [&](const Tensor& found, Device device) {
    backend_for(device).end_step(found.defined() ? found.data_ptr<float>() : nullptr, tail);
  };
  const bool tail_is_empty = !tail.count && !tail.ring;
  if (!is_enabled()) {
    const AmpGuard amp(optimizer, {skip, Tensor(), clip}, nullptr, tail);
    StepOutcome outcome;
    outcome.found_inf_ = skip;
    outcome.value_ = optimizer.step();
    if (optimizer.end_amp().tail && !tail_is_empty) end(skip, optimizer.parameters().front().device());
    return outcome;
  }
  impl().check_has_scale("GradScaler.finish");
  const bool is_only_one = impl().records.empty() || (impl().records.size() == 1 && impl().records.contains(optimizer.id()));
  if (is_only_one) impl().add_to(tail);
  bool tail_pending = true;
  StepOutcome outcome = step_with_tail(optimizer, tail, clip, tail_pending);
  if (!is_only_one || !outcome.found_inf().defined()) {  // update() throws if there is no gradient
    tail.scale = nullptr;
    update();
    if (!tail_is_empty && tail_pending) end(outcome.found_inf(), impl().scale.device());
    return outcome;
  }
  impl().marks->change(/*known=*/false);  // to know it would cost a copy a step
  if (tail_pending) end(outcome.found_inf(), impl().scale.device());
  impl().bump_versions();
  impl().records.clear();
  return outcome;
}

void GradScaler::update(std::optional<double> new_scale) {
  if (!is_enabled()) return;
  impl().check_has_scale("GradScaler.update");
  NoGrad off;
  if (new_scale) {
    impl().check_not_fixed();
    check<ValueError>(std::isfinite(*new_scale) && *new_scale > 0, "GradScaler.update",
                      "the new scale must be > 0 and finite, got ", *new_scale);
    impl().marks->change();
    impl().scale.fill_(*new_scale);
  } else {
    Tensor found;
    for (const auto& entry : impl().records) {
      const Tensor& found_inf = entry.second.found_inf;
      if (found_inf.defined()) found = found.defined() ? add(found, found_inf) : found_inf;
    }
    check<AmpError>(found.defined(), "GradScaler.update", "no inf checks were recorded prior to update",
                    Help{"call scaler.step(optimizer) or scaler.unscale_(optimizer) first, with gradients in place"});
    math::StepTail tail;
    impl().add_to(tail);
    impl().marks->change();
    backend_for(impl().scale.device()).end_step(found.data_ptr<float>(), tail);
    impl().bump_versions();
  }
  impl().records.clear();
}

void GradScaler::update(const Tensor& new_scale) {
  if (!is_enabled()) return;
  impl().check_has_scale("GradScaler.update");
  impl().check_not_fixed();
  check<ValueError>(new_scale.numel() == 1, "GradScaler.update", "the new scale must have one element, got ", new_scale.shape());
  check<ValueError>(!new_scale.requires_grad(), "GradScaler.update", "the new scale must not require grad",
                    Help{"pass scale.detach()"});
  check<DTypeError>(new_scale.is_floating_point(), "GradScaler.update", "the new scale must be floating point, got ",
                    new_scale.dtype());
  check<DeviceError>(new_scale.device().type == impl().scale.device().type, "GradScaler.update", "the new scale must be on ",
                     impl().scale.device(), ", got ", new_scale.device());
  const double value = new_scale.item<double>();
  check<ValueError>(std::isfinite(value) && value > 0, "GradScaler.update", "the new scale must be > 0 and finite, got ", value);
  NoGrad off;
  impl().marks->change();
  impl().scale.copy_(new_scale.reshape({}));
  impl().records.clear();
}

void GradScaler::abandon() { impl().records.clear(); }

double GradScaler::get_scale() const {
  if (!is_enabled()) return 1;
  return impl().scale.defined() ? impl().scale.item<double>() : impl().init_scale;
}
int64_t GradScaler::get_growth_tracker() const {
  if (!is_enabled()) return 0;
  return impl().tracker.defined() ? impl().tracker.item<int64_t>() : impl().init_tracker;
}
double GradScaler::get_growth_factor() const { return impl().options.growth_factor; }
void GradScaler::set_growth_factor(double v) { impl().set("growth_factor", v); }
double GradScaler::get_backoff_factor() const { return impl().options.backoff_factor; }
void GradScaler::set_backoff_factor(double v) { impl().set("backoff_factor", v); }
int64_t GradScaler::get_growth_interval() const { return impl().options.growth_interval; }
void GradScaler::set_growth_interval(int64_t v) {
  Impl::check_growth_interval(v);
  impl().options.growth_interval = v;
}
double GradScaler::get_min_scale() const { return impl().options.min_scale; }
bool GradScaler::is_enabled() const { return impl().options.enabled; }
bool GradScaler::is_fixed() const { return impl().options.enabled && impl().options.fixed; }

GradScaler::StateDict GradScaler::state_dict() const {
  if (!is_enabled() || is_fixed()) return {};
  return {{"scale", get_scale()},
          {"growth_factor", get_growth_factor()},
          {"backoff_factor", get_backoff_factor()},
          {"growth_interval", double(get_growth_interval())},
          {"_growth_tracker", double(get_growth_tracker())}};
}

void GradScaler::load_state_dict(const StateDict& state) {
  if (!is_enabled() || is_fixed()) return;
  check<ValueError>(!state.empty(), "GradScaler.load_state_dict", "the state is empty: was it saved from a disabled scaler?");
  for (const char* key : kKeys) {
    check<ValueError>(state.contains(key), "GradScaler.load_state_dict", "the state needs the key ", key);
  }
  const double scale = state.at("scale"), interval = state.at("growth_interval");
  check<ValueError>(std::isfinite(scale) && scale > 0, "GradScaler.load_state_dict", "the scale must be > 0 and finite, got ",
                    scale);
  check<ValueError>(interval >= 1 && interval <= std::numeric_limits<int32_t>::max(), "GradScaler.load_state_dict",
                    "growth_interval must be >= 1 and below 2^31, got ", interval);
  impl().set("growth_factor", state.at("growth_factor"));
  impl().set("backoff_factor", state.at("backoff_factor"));
  impl().options.growth_interval = int64_t(interval);
  impl().init_scale = scale;
  impl().init_tracker = int64_t(state.at("_growth_tracker"));
  if (impl().scale.defined()) {
    NoGrad off;
    impl().marks->change();
    impl().scale.fill_(impl().init_scale);
    impl().tracker.fill_(double(impl().init_tracker));
  }
}

}  // namespace halfstep
