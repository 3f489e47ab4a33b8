// SPDX-License-Identifier: Apache-2.0
// FusedOptimizer: options and states in libtorch's classes, steps in halfstep's.
#include "framework/ops/ops.h"
#include "optim/lbfgs.h"
#include "optim/optimizers.h"
#include "torch/optim/optim.h"
#include "torch/serialize/archive.h"

namespace torch::optim {

std::vector<OptimizerParamState::Field> AdamParamState::fields() {
  return {{"step", &step_, nullptr},
          {"exp_avg", nullptr, &exp_avg_},
          {"exp_avg_sq", nullptr, &exp_avg_sq_},
          {"max_exp_avg_sq", nullptr, &max_exp_avg_sq_}};
}
std::vector<OptimizerParamState::Field> RMSpropParamState::fields() {
  return {{"step", &step_, nullptr},
          {"square_avg", nullptr, &square_avg_},
          {"momentum_buffer", nullptr, &momentum_buffer_},
          {"grad_avg", nullptr, &grad_avg_}};
}

namespace {
bool same(const Tensor& a, const Tensor& b) {
  if (a.is_same(b)) return true;
  return a.defined() && b.defined() && a.sizes() == b.sizes() && torch::equal(a, b);
}
bool same(const std::deque<Tensor>& a, const std::deque<Tensor>& b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(), [](const Tensor& x, const Tensor& y) { return same(x, y); });
}
}  // namespace
bool operator==(const OptimizerParamState& a, const OptimizerParamState& b) {
  const auto of_a = const_cast<OptimizerParamState&>(a).fields(), of_b = const_cast<OptimizerParamState&>(b).fields();
  return std::equal(of_a.begin(), of_a.end(), of_b.begin(), of_b.end(),
                    [](const auto& x, const auto& y) { return x.number ? *x.number == *y.number : same(*x.tensor, *y.tensor); });
}
bool operator==(const LBFGSParamState& a, const LBFGSParamState& b) {
  return a.al().has_value() == b.al().has_value() && a.func_evals() == b.func_evals() && a.n_iter() == b.n_iter() &&
         a.t() == b.t() && a.prev_loss() == b.prev_loss() &&
         same(a.d(), b.d()) && same(a.H_diag(), b.H_diag()) && same(a.prev_flat_grad(), b.prev_flat_grad()) &&
         same(a.old_dirs(), b.old_dirs()) && same(a.old_stps(), b.old_stps()) && same(a.ro(), b.ro());
}

namespace {

// ---- options
template <class A, class B>
void assign(A& to, const B& from) {
  to = from;
}
void assign(hs::NumberTuple<2>& to, const betas_t& from) { to = {std::get<0>(from), std::get<1>(from)}; }
void assign(betas_t& to, const hs::NumberTuple<2>& from) { to = {from[0], from[1]}; }
void assign(int64_t& to, const std::optional<int64_t>& from) { to = from.value_or(0); }
void assign(std::optional<int64_t>& to, int64_t from) { to = from == 0 ? std::nullopt : std::optional(from); }
void assign(std::string& to, const std::optional<std::string>& from) {
  TORCH_CHECK(!from || *from == "strong_wolfe", "only 'strong_wolfe' is supported");
  to = from.value_or("none");
}
void assign(std::optional<std::string>& to, const std::string& from) { to = from == "none" ? std::nullopt : std::optional(from); }

// Options of the optimizers, by the names that both libraries have.
#define HS_SGD(X) X(lr) X(momentum) X(dampening) X(weight_decay) X(nesterov)
#define HS_ADAM(X) X(lr) X(betas) X(eps) X(weight_decay) X(amsgrad)
#define HS_ADAGRAD(X) X(lr) X(lr_decay) X(weight_decay) X(initial_accumulator_value) X(eps)
#define HS_RMSPROP(X) X(lr) X(alpha) X(eps) X(weight_decay) X(momentum) X(centered)
#define HS_LBFGS(X) X(lr) X(max_iter) X(max_eval) X(tolerance_grad) X(tolerance_change) X(history_size) X(line_search_fn)
#define HS_TO(name) assign(out.name, o.name());
#define HS_FROM(name) assign(o.name(), own.name);
#define HS_MERGE(name) \
  if (o.name() == fresh.name()) o.name(defaults.name());
template <class Options>
struct Kind;
#define HS_KIND(Name, OPTIONS)                                                      \
  template <>                                                                       \
  struct Kind<Name##Options> {                                                      \
    using Own = hs::Name;                                                           \
    using State = Name##ParamState;                                                 \
  };                                                                                \
  hs::Name##Options to_hs(const Name##Options& o) {                                 \
    hs::Name##Options out;                                                          \
    OPTIONS(HS_TO) return out;                                                      \
  }                                                                                 \
  void from_hs(Name##Options& o, const hs::Name##Options& own) { OPTIONS(HS_FROM) } \
  void merge(Name##Options& o, const Name##Options& fresh, const Name##Options& defaults) { OPTIONS(HS_MERGE) }
HS_KIND(SGD, HS_SGD)
HS_KIND(Adam, HS_ADAM)
HS_KIND(AdamW, HS_ADAM)
HS_KIND(Adagrad, HS_ADAGRAD)
HS_KIND(RMSprop, HS_RMSPROP)
HS_KIND(LBFGS, HS_LBFGS)
template <class Options>
using OwnOf = typename Kind<Options>::Own;
template <class Options>
using StateOf = typename Kind<Options>::State;

// Returns the options of a group; the defaults if the program has removed it, or if it has none yet.
template <class Options>
const Options& options_of(const std::vector<OptimizerParamGroup>& groups, size_t g, const OptimizerOptions& defaults) {
  return static_cast<const Options&>(g < groups.size() && groups[g].has_options() ? groups[g].options() : defaults);
}
template <class Options>
hs::ParamGroup group_of(const OptimizerParamGroup& g) {
  const auto& o = static_cast<const Options&>(g.options());
  hs::ParamGroup out;
  out.params = ::torch::detail::H(g.params());
  out.lr = o.lr();
  out.options = to_hs(o);
  return out;
}

// ---- states
using Tensors = std::map<std::string, hs::Tensor>;

// Returns halfstep's states of parameter i.
Tensors states_of(const Tensors& all, size_t i) {
  const std::string prefix = std::to_string(i) + ".";
  Tensors out;
  for (auto at = all.lower_bound(prefix); at != all.end() && at->first.starts_with(prefix); ++at)
    out[at->first.substr(prefix.size())] = at->second;
  return out;
}
// Replaces halfstep's states of parameter i.
void replace(Tensors& all, size_t i, const Tensors& states) {
  const std::string prefix = std::to_string(i) + ".";
  std::erase_if(all, [&](const auto& item) { return item.first.starts_with(prefix); });
  for (const auto& [name, t] : states) all[prefix + name] = t;
}
hs::Tensor number_like(const hs::Tensor& p, double value) {
  return hs::full({}, value, {.dtype = hs::DType::f32, .device = p.device()});
}

// Fills a state with halfstep's of a parameter; false: it has none.
template <class Options, class State>
bool show(State& state, Tensors own, const hs::Tensor& p, [[maybe_unused]] const Options& options) {
  if constexpr (std::is_same_v<State, AdagradParamState>) {
    // halfstep adds the initial value in the first step.
    if (!own.count("step")) own = {{"step", number_like(p, 0)}, {"sum", hs::zeros_like(p)}};
    if (own["step"].template item<double>() == 0) own["sum"] = own["sum"] + options.initial_accumulator_value();
  }
  bool any = false;
  for (const auto& f : state.fields()) {
    const auto at = own.find(f.name);
    if (at == own.end()) continue;
    any = true;
    if (f.number)
      *f.number = at->second.template item<int64_t>();
    else
      *f.tensor = at->second;
  }
  return any;
}
bool show(LBFGSParamState& state, const Tensors& own, const hs::Tensor& p, const LBFGSOptions&) {
  if (!own.count("numbers")) return false;
  const std::vector<double> n = own.at("numbers").to_vector<double>();
  const auto find = [&](const std::string& name) { return own.count(name) ? Tensor(own.at(name)) : Tensor(); };
  state.n_iter(int64_t(n[hs::LBFGS::kIterations])).func_evals(int64_t(n[hs::LBFGS::kEvaluations])).t(n[hs::LBFGS::kLength]);
  state.H_diag(hs::full({}, n[hs::LBFGS::kScale], {.dtype = p.dtype(), .device = p.device()}));
  state.d(find("direction")).prev_flat_grad(find("gradient"));
  if (own.count("previous_loss")) state.prev_loss(own.at("previous_loss").item<double>());
  const int64_t pairs = int64_t(n[hs::LBFGS::kPairs]), next = int64_t(n[hs::LBFGS::kNext]);
  for (int64_t i = 0; i < pairs; ++i) {
    const std::string slot = std::to_string((next + i) % pairs);  // next is the oldest one's, or pairs if the history is not full
    state.old_dirs().push_back(find("change" + slot));
    state.old_stps().push_back(find("moved" + slot));
    state.ro().push_back(1 / (state.old_dirs().back() * state.old_stps().back()).sum());
  }
  return true;
}

// Returns a state as halfstep's of a parameter.
template <class Options, class State>
Tensors to_hs(State state, const hs::Tensor& p, [[maybe_unused]] const Options& options) {
  if constexpr (std::is_same_v<State, AdagradParamState>) {
    if (state.step() == 0 && state.sum().defined()) state.sum(state.sum() - options.initial_accumulator_value());
  }
  Tensors out;
  for (const auto& f : state.fields()) {
    if (f.number)
      out[f.name] = hs::full({}, double(*f.number), {.dtype = hs::DType::f32, .device = p.device()});
    else if (f.tensor->defined())
      out[f.name] = f.tensor->h();
  }
  return out;
}
Tensors to_hs(const LBFGSParamState& state, const hs::Tensor& p, const LBFGSOptions& options) {
  const size_t pairs = state.old_dirs().size(), size = size_t(options.history_size());
  TORCH_CHECK(state.old_stps().size() == pairs && pairs <= size, "LBFGS: old_dirs and old_stps have ", pairs, " and ",
              state.old_stps().size(), " tensors, must be equally many, and at most history_size, ", size);
  TORCH_CHECK(!state.al(), "LBFGS: al is scratch memory of a step, and cannot be set");
  Tensors out;
  const auto put = [&](const std::string& name, const Tensor& t) {
    if (t.defined()) out[name] = t.h();
  };
  put("direction", state.d());
  put("gradient", state.prev_flat_grad());
  for (size_t i = 0; i < pairs; ++i) {
    put("change" + std::to_string(i), state.old_dirs()[i]);
    put("moved" + std::to_string(i), state.old_stps()[i]);
    const double ro = 1 / (state.old_dirs()[i] * state.old_stps()[i]).sum().item<double>();
    TORCH_CHECK(state.ro().empty() || std::abs(state.ro().at(i).item<double>() / ro - 1) < 1e-3,
                "LBFGS: ro follows from old_dirs and old_stps, and cannot be set");
  }
  std::vector<double> numbers(hs::LBFGS::kNumbers);
  numbers[hs::LBFGS::kIterations] = double(state.n_iter());
  numbers[hs::LBFGS::kEvaluations] = double(state.func_evals());
  numbers[hs::LBFGS::kLength] = state.t();
  numbers[hs::LBFGS::kScale] = state.H_diag().defined() ? state.H_diag().item<double>() : 1;
  numbers[hs::LBFGS::kPairs] = double(pairs);
  numbers[hs::LBFGS::kNext] = double(pairs % size);
  out["numbers"] = hs::tensor(numbers, {hs::LBFGS::kNumbers}, {.dtype = hs::DType::f64}).to(p.device());
  out["previous_loss"] = hs::full({}, state.prev_loss(), {.dtype = hs::DType::f64, .device = p.device()});
  return out;
}

// Returns a copy that shows later what was written into tensors that halfstep's states do not share.
template <class State>
State copied(State state, const Tensors& own) {
  const auto copy = [](Tensor& t) { t = t.defined() ? t.clone() : t; };
  if constexpr (std::is_same_v<State, LBFGSParamState>) {
    copy(state.H_diag());
    for (Tensor& t : state.ro()) copy(t);
  }
  for (const auto& f : state.fields()) {
    const auto at = own.find(f.name);
    if (f.tensor && (at == own.end() || !f.tensor->h().same(at->second))) copy(*f.tensor);
  }
  return state;
}

// ---- buffers by position, as libtorch 1.4 and programs that follow it write them
struct Buffers {
  const char *old, *own;
};
std::vector<Buffers> buffers_of(const SGDOptions&) { return {{"momentum_buffers", "momentum_buffer"}}; }
std::vector<Buffers> buffers_of(const AdamOptions&) {
  return {{"step_buffers", "step"},
          {"exp_average_buffers", "exp_avg"},
          {"exp_average_sq_buffers", "exp_avg_sq"},
          {"max_exp_average_sq_buffers", "max_exp_avg_sq"}};
}
std::vector<Buffers> buffers_of(const AdamWOptions&) { return buffers_of(AdamOptions()); }
std::vector<Buffers> buffers_of(const AdagradOptions&) { return {{"step_buffers", "step"}, {"sum_buffers", "sum"}}; }
std::vector<Buffers> buffers_of(const RMSpropOptions&) {
  return {{"square_average_buffers", "square_avg"}, {"momentum_buffers", "momentum_buffer"}, {"grad_average_buffers", "grad_avg"}};
}
std::vector<Buffers> buffers_of(const LBFGSOptions&) { return {{"old_dirs", "old_dirs"}, {"old_stps", "old_stps"}}; }

std::deque<Tensor> list_of(const Tensors& given, const std::string& name) {
  std::deque<Tensor> out;
  const auto size = given.find(name + "/size");
  const int64_t n = size == given.end() ? 0 : size->second.item<int64_t>();
  for (int64_t i = 0; i < n; ++i) {
    const auto at = given.find(name + "/" + std::to_string(i));
    TORCH_CHECK(at != given.end(), "No such serialized tensor '", name, "/", i, "'");
    out.push_back(at->second);
  }
  return out;
}
LBFGSParamState old_lbfgs(const Tensors& given) {
  LBFGSParamState out;
  const auto find = [&](const char* name) {
    const auto at = given.find(name);
    TORCH_CHECK(at != given.end(), "No such serialized tensor '", name, "'");
    return Tensor(at->second);
  };
  out.d(find("d")).H_diag(find("H_diag")).prev_flat_grad(find("prev_flat_grad"));
  out.t(find("t").item<double>()).prev_loss(find("prev_loss").item<double>());
  out.old_dirs(list_of(given, "old_dirs")).old_stps(list_of(given, "old_stps"));
  return out;
}

}  // namespace

template <class Options>
struct FusedOptimizer<Options>::States {
  std::map<void*, StateOf<Options>> by_parameter;
};

template <class Options>
FusedOptimizer<Options>::FusedOptimizer(std::vector<OptimizerParamGroup> groups, Options defaults)
    : Optimizer(std::vector<OptimizerParamGroup>(), std::make_unique<Options>(defaults)) {
  TORCH_CHECK((!std::is_same_v<Options, LBFGSOptions> || groups.size() == 1),
              "LBFGS doesn't support per-parameter options (parameter groups)");
  for (const auto& g : groups) add_param_group(g);
  adopt_parameters();
}
template <class Options>
FusedOptimizer<Options>::~FusedOptimizer() = default;
template <class Options>
void FusedOptimizer<Options>::merge_defaults(OptimizerOptions& options) const {
  const Options fresh = [] {
    if constexpr (std::is_default_constructible_v<Options>)
      return Options();
    else
      return Options(1e-3);
  }();
  merge(static_cast<Options&>(options), fresh, static_cast<const Options&>(defaults()));
}

// Makes halfstep's optimizer once there is a parameter.
template <class Options>
std::unique_ptr<hs::Optimizer> FusedOptimizer<Options>::make() const {
  std::vector<hs::ParamGroup> own;
  size_t parameters = 0;
  for (const auto& g : param_groups_) {
    own.push_back(group_of<Options>(g));
    parameters += g.params().size();
  }
  if (parameters == 0) return nullptr;
  return std::make_unique<OwnOf<Options>>(std::move(own), to_hs(static_cast<const Options&>(defaults())));
}

// Adds groups that halfstep's optimizer lacks. Makes a new one, with the states by parameter, if parameters of a group changed.
template <class Options>
void FusedOptimizer<Options>::adopt_parameters() {
  if (!own_) {
    own_ = make();
    return;
  }
  const auto groups = std::as_const(*own_).param_groups();
  bool as_before = param_groups_.size() >= groups.size();
  for (size_t g = 0; as_before && g < groups.size(); ++g) {
    const std::vector<Tensor>& now = param_groups_[g].params();
    const std::vector<hs::Tensor>& before = groups[g].params;
    as_before = std::equal(now.begin(), now.end(), before.begin(), before.end(), [](auto& a, auto& b) { return a.h().same(b); });
  }
  if (as_before) {
    for (size_t g = groups.size(); g < param_groups_.size(); ++g) own_->add_param_group(group_of<Options>(param_groups_[g]));
    return;
  }
  const Tensors all = own_->state_tensors();
  std::map<void*, Tensors> before;
  const std::vector<hs::Tensor> parameters = own_->parameters();
  for (size_t i = 0; i < parameters.size(); ++i) before[parameters[i].impl()] = states_of(all, i);
  if constexpr (std::is_same_v<Options, LBFGSOptions>) {
    TORCH_CHECK(parameters.empty() || before[parameters[0].impl()].empty(), "LBFGS: parameters cannot change after a step");
  }
  auto next = make();
  TORCH_CHECK(next, "all parameters of the optimizer were removed");
  Tensors moved = next->state_tensors();
  const std::vector<hs::Tensor> now = next->parameters();
  for (size_t i = 0; i < now.size(); ++i) {
    const auto at = before.find(now[i].impl());
    if (at == before.end()) continue;
    replace(moved, i, at->second);
    before.erase(at);
  }
  for (const auto& removed : before) state_.erase(removed.first);
  next->load_state_dict(moved);
  own_ = std::move(next);
}

// Gives halfstep the states that the program has written, added or erased.
template <class Options>
void FusedOptimizer<Options>::adopt_states() {
  if (!seen_) return;
  using State = StateOf<Options>;
  auto& own = static_cast<OwnOf<Options>&>(*own_);
  Tensors all = own_->state_tensors();
  bool changed = false;
  size_t known = 0, i = 0;
  for (size_t g = 0; g < own.param_groups().size(); ++g) {
    for (const hs::Tensor& p : own.param_groups()[g].params) {
      const auto entry = state_.find(p.impl());
      const auto seen = seen_->by_parameter.find(p.impl());
      const bool there = entry != state_.end() && entry->second;
      known += entry != state_.end();
      const State* const written = there ? dynamic_cast<const State*>(entry->second.get()) : nullptr;
      TORCH_CHECK(!there || written, "state() has a state of another optimizer's class");
      const bool was = seen != seen_->by_parameter.end();
      if (there != was || (was && !(*written == seen->second))) {
        replace(all, i, written ? to_hs(*written, p, options_of<Options>(param_groups_, g, defaults())) : Tensors());
        changed = true;
      }
      ++i;
    }
  }
  TORCH_CHECK(known == state_.size(), "state() has a state of a tensor that is no parameter");
  if (changed) own_->load_state_dict(all);
}

template <class Options>
void FusedOptimizer<Options>::refresh_state(bool first) {
  if (!own_ || (!seen_ && !first)) return;
  try {
    if (first) adopt_states();
  } catch (const Error&) { return; }  // shown as the program left them: the next step says what does not fit
  if (!seen_) seen_ = std::make_unique<States>();
  const Tensors all = own_->state_tensors();
  auto& own = static_cast<OwnOf<Options>&>(*own_);
  std::map<void*, StateOf<Options>> now;
  size_t i = 0;
  for (size_t g = 0; g < own.param_groups().size(); ++g) {
    for (const hs::Tensor& p : own.param_groups()[g].params) {
      StateOf<Options> state;
      const Tensors states = states_of(all, i++);
      if (!show(state, states, p, options_of<Options>(param_groups_, g, defaults()))) continue;
      auto& entry = state_[p.impl()];
      if (entry)
        static_cast<StateOf<Options>&>(*entry) = state;
      else
        entry = std::make_unique<StateOf<Options>>(state);
      now.emplace(p.impl(), copied(state, states));
    }
  }
  std::erase_if(state_, [&](const auto& item) { return !now.contains(item.first); });
  seen_->by_parameter = std::move(now);
}

template <class Options>
hs::Optimizer* FusedOptimizer<Options>::halfstep() {
  adopt_parameters();
  if (!own_) return nullptr;
  adopt_states();
  auto& own = static_cast<OwnOf<Options>&>(*own_);
  for (size_t i = 0; i < param_groups_.size(); ++i) own.options(i) = to_hs(static_cast<const Options&>(param_groups_[i].options()));
  if (seen_) refresh_state();
  return own_.get();
}
template <class Options>
Tensor FusedOptimizer<Options>::step(LossClosure closure) {
  Tensor loss;
  if (closure && !std::is_same_v<Options, LBFGSOptions>) {  // first, since it may change options and states
    const hs::EnableGrad on;
    loss = std::exchange(closure, nullptr)();
  }
  hs::Optimizer* const own = halfstep();
  if (closure)
    loss = own ? Tensor(*own->step([&]() -> hs::Tensor { return closure().h(); })) : closure();
  else if (own)
    own->step();
  refresh_state();
  return loss;
}
template <class Options>
void FusedOptimizer<Options>::load(serialize::InputArchive& archive) {
  if (load_old(archive)) return;
  Optimizer::load(archive);
  const auto& own = static_cast<const OwnOf<Options>&>(*own_);
  for (size_t i = 0; i < param_groups_.size(); ++i) from_hs(static_cast<Options&>(param_groups_[i].options()), own.options(i));
  refresh_state();
}
// Loads an archive of buffers by position. Returns false if it is none.
template <class Options>
bool FusedOptimizer<Options>::load_old(serialize::InputArchive& archive) {
  const Tensors given = archive.tensors();
  const auto buffers = buffers_of(static_cast<const Options&>(defaults()));
  const auto there = [&](const Buffers& b) { return given.count(b.old + std::string("/size")) != 0; };
  if (std::none_of(buffers.begin(), buffers.end(), there)) return false;
  TORCH_WARN("The file has an optimizer's buffers in the old serialization format, of libtorch 1.4. Save it again.");
  TORCH_CHECK(halfstep(), "load: the optimizer has no parameters");
  Tensors all = own_->state_tensors();
  const std::vector<hs::Tensor> parameters = own_->parameters();
  if constexpr (std::is_same_v<Options, LBFGSOptions>) {
    replace(all, 0, to_hs(old_lbfgs(given), parameters.at(0), static_cast<const Options&>(param_groups_[0].options())));
  } else {
    std::vector<Tensors> states(parameters.size());
    for (const Buffers& b : buffers) {
      const std::deque<Tensor> list = list_of(given, b.old);
      TORCH_CHECK(list.size() <= states.size(), b.old, " has ", list.size(), " tensors for ", states.size(), " parameters");
      for (size_t i = 0; i < list.size(); ++i) states[i][b.own] = list[i].h();
    }
    for (size_t i = 0; i < states.size(); ++i) replace(all, i, states[i]);
  }
  own_->load_state_dict(all);
  refresh_state();
  return true;
}

template class OptimizerCloneableParamState<SGDParamState>;
template class OptimizerCloneableParamState<AdamParamState>;
template class OptimizerCloneableParamState<AdagradParamState>;
template class OptimizerCloneableParamState<RMSpropParamState>;
template class OptimizerCloneableParamState<LBFGSParamState>;
#define HS_DEFINE(Name)                                    \
  template class OptimizerCloneableOptions<Name##Options>; \
  template class FusedOptimizer<Name##Options>;
HS_DEFINE(SGD)
HS_DEFINE(Adam)
HS_DEFINE(AdamW)
HS_DEFINE(Adagrad)
HS_DEFINE(RMSprop)
HS_DEFINE(LBFGS)

}  // namespace torch::optim
