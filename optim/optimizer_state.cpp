// SPDX-License-Identifier: Apache-2.0
// Optimizer::state_dict and load_state_dict, and states that ranks share.
#include <algorithm>
#include <charconv>
#include <cmath>
#include <limits>
#include <set>
#include <system_error>

#include "framework/autograd/grad_mode.h"
#include "framework/backend/backend.h"
#include "framework/base/text_stream.h"
#include "framework/ops/ops.h"
#include "optim/gradients.h"
#include "optim/optimizer.h"

namespace halfstep {
namespace {

struct Key {
  size_t param;
  std::string name;
};

// Parses "12.exp_avg" as {12, "exp_avg"}.
std::optional<Key> parse_key(const std::string& key) {
  const size_t dot = key.find('.');
  if (dot == std::string::npos || dot + 1 == key.size()) return {};
  size_t param = 0;
  const auto [end, error] = std::from_chars(key.data(), key.data() + dot, param);
  if (error != std::errc() || end != key.data() + dot) return {};
  return Key{param, key.substr(dot + 1)};
}

const std::string &kGroups = *new std::string("param_groups."),
                  &kFollowers = *new std::string("followers.");  // precedes the keys of options and of kinds

Tensor tensor_of(const OptionValues::mapped_type& value) {
  if (const auto* numbers = std::get_if<std::vector<double>>(&value)) {
    const Shape shape = numbers->size() == 1 ? Shape{} : Shape{int64_t(numbers->size())};
    return from_vector(*numbers, shape, Device::cpu);
  }
  const std::string& text = std::get<std::string>(value);
  return from_vector(std::vector<uint8_t>(text.begin(), text.end()), {int64_t(text.size())}, Device::cpu);
}
OptionValues::mapped_type value_of(const Tensor& t) {
  if (t.dtype() != DType::u8) return t.to_vector<double>();
  const std::vector<int> bytes = t.to_vector<int>();
  return std::string(bytes.begin(), bytes.end());
}
// Returns the value of a number; -1 for a text or a list.
double number_of(const Tensor& t) { return t.numel() == 1 && t.dtype() != DType::u8 ? t.item<double>() : -1; }

// The lines of an error.
class Problems {
 public:
  template <class... Parts>
  void add(const Parts&... parts) {
    if (++count_ <= kListed) ((text_ << "\n  ") << ... << parts);
  }
  // Throws ValueError with the lines, if there are any.
  void raise(const std::string& described) const {
    const std::string more = count_ > kListed ? joined("\n  and ", count_ - kListed, " more") : "";
    check<ValueError>(count_ == 0, "optimizer.load_state_dict", "the state does not fit ", described, ":", text_.str(), more);
  }

 private:
  static constexpr int kListed = 8;
  TextWriter text_;
  int count_ = 0;
};

bool contains(const std::vector<std::string>& names, const std::string& name) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

// The entries of a state that are no tensors of parameters.
struct StoredOptions {
  std::map<size_t, OptionValues> by_group;
  std::map<std::string, std::string> kinds;  // of followers, by the name of their first state
};

StoredOptions parse_options(const std::map<std::string, Tensor>& given, Problems& problems) {
  StoredOptions out;
  for (const auto& [key, t] : given) {
    if (!key.starts_with(kFollowers) && !key.starts_with(kGroups)) continue;
    const OptionValues::mapped_type value = value_of(t);
    if (key.starts_with(kFollowers)) {
      const auto* const kind = std::get_if<std::string>(&value);
      if (kind)
        out.kinds[key.substr(kFollowers.size())] = *kind;
      else
        problems.add(key, ": must be a text");
      continue;
    }
    const std::optional<Key> at = parse_key(key.substr(kGroups.size()));
    if (at)
      out.by_group[at->param][at->name] = value;
    else
      problems.add(key, ": a key must be ", kGroups, "<group>.<name>");
  }
  return out;
}

// Returns the state in its parameter's memory layout; other states are contiguous.
Tensor in_layout_of(const Tensor& param, const Tensor& state) {
  const MemoryFormat format = state.shape() == param.shape() ? param.format() : MemoryFormat::contiguous;
  return state.detach().contiguous(format);
}

}  // namespace

std::map<std::string, Tensor> Optimizer::state_dict() const {
  std::map<std::string, Tensor> out = state_tensors();
  const MemoryScope tag(MemoryTag::workspace);
  for (auto& [key, t] : out) t = t.detach().clone();
  return out;
}

std::map<std::string, Tensor> Optimizer::state_tensors() const {
  check<ValueError>(!shards_, "optimizer.state_dict", "ranks share the states of ", describe(), ", this one has only a part",
                    Help{"call gathered_state_dict() on all ranks, or save_run with RunParts::group"});
  std::map<std::string, Tensor> out = own_states();
  add_options(out);
  return out;
}

void Optimizer::add_options(std::map<std::string, Tensor>& out) const {
  if (sync_host_) sync_host_();
  for (size_t g = 0; g < groups_.size(); ++g) {
    OptionValues values = option_values(g);
    const double rate = last_known_lr(g);
    values["lr"] = std::vector<double>{rate};
    values["initial_lr"] = std::vector<double>{!scheduled_ && was_written(g) ? rate : initial_lr_[g]};
    values["size"] = std::vector<double>{double(groups_[g].params.size())};
    for (const auto& [name, value] : values) out[joined(kGroups, g, ".", name)] = tensor_of(value);
  }
  for (const Follower* f : followers_) out[kFollowers + f->state_names().front()] = tensor_of(f->kind());
}

std::map<std::string, Tensor> Optimizer::own_states() const {
  std::map<std::string, Tensor> out;
  for (size_t g = 0; g < groups_.size(); ++g) {
    const size_t end = g + 1 < groups_.size() ? first_param_[g + 1] : state_.size();
    for (size_t i = first_param_[g]; i < end; ++i) {
      const std::string prefix = std::to_string(i) + ".";
      for (const auto& [name, t] : state_[i]) out[prefix + name] = t;
      if (const auto step = state_[i].find("step"); derived_name() && step != state_[i].end())
        out[prefix + derived_name()] = derived(g, step->second);
    }
  }
  return out;
}

bool Optimizer::is_follower_state(const std::string& state) const {
  return std::any_of(followers_.begin(), followers_.end(), [&](const Follower* f) { return contains(f->state_names(), state); });
}

// Returns the names of the states of each parameter, followers' included.
std::vector<std::vector<std::string>> Optimizer::all_state_names() const {
  std::vector<std::vector<std::string>> names;
  for (size_t g = 0; g < groups_.size(); ++g) {
    for (const Tensor& p : groups_[g].params) names.push_back(state_names(g, p));
    for (size_t i = first_param_[g]; i < names.size() && !names[i].empty(); ++i) {
      for (const Follower* f : followers_) {
        for (std::string& name : f->state_names()) names[i].push_back(std::move(name));
      }
    }
  }
  return names;
}

// Adopts the options of a state. Followers must be of the same kinds.
void Optimizer::load_options(const std::map<std::string, Tensor>& given) {
  Problems problems;
  auto [options, theirs] = parse_options(given, problems);
  const bool old = options.empty();  // the state is of a halfstep that stored neither options nor kinds
  std::map<std::string, std::string> mine;
  for (const Follower* f : followers_) mine[f->state_names().front()] = f->kind();
  for (const auto& [name, kind] : theirs) {
    if (!mine.contains(name))
      problems.add("it goes along with ", kind, " (", name, "), which ", describe(), " does not have here");
    else if (mine[name] != kind)
      problems.add(name, " is of ", kind, ", here of ", mine[name]);
  }
  for (const auto& [name, kind] : mine) {
    if (!old && !theirs.contains(name)) problems.add("it lacks ", kind, " (", name, "), which goes along with the optimizer here");
  }
  problems.raise(describe());
  if (options.empty()) return;
  std::string sizes, wanted;
  bool fits = options.size() == groups_.size();
  for (const auto& [g, values] : options) {
    const auto size = values.find("size");
    const double n = size == values.end() ? -1 : number_of(tensor_of(size->second));
    sizes += joined(sizes.empty() ? "" : ", ", n);
    fits = fits && g < groups_.size() && n == double(groups_[g].params.size());
  }
  for (const ParamGroup& group : groups_) wanted += joined(wanted.empty() ? "" : ", ", group.params.size());
  if (!fits) problems.add("it has groups of ", sizes, " parameters, here are groups of ", wanted);
  problems.raise(describe());
  for (size_t g = 0; g < groups_.size(); ++g) {
    OptionValues& values = options[g];
    const auto rate = [&](const char* name, double own) {
      if (!values.contains(name)) return own;
      const double value = number_of(tensor_of(values[name]));
      check<ValueError>(value >= 0 && std::isfinite(value), "optimizer.load_state_dict", kGroups, g, ".", name,
                        " must be >= 0, got ", value);
      return value;
    };
    const double lr = rate("lr", last_known_lr(g)), initial = rate("initial_lr", initial_lr_[g]);
    for (const char* name : {"lr", "initial_lr", "size"}) values.erase(name);
    set_option_values(g, values);
    put_lr(lr, g);
    initial_lr_[g] = initial;
    written_[g] = false;
  }
  rates_loaded_ = true;
}

void Optimizer::load_state_dict(const std::map<std::string, Tensor>& given) {
  check_own_values("optimizer.load_state_dict");
  if (sync_host_) sync_host_();
  // Load options first, since they decide which states there are; restore the old ones if something does not fit.
  std::vector<OptionValues> before;
  for (size_t g = 0; g < groups_.size(); ++g) before.push_back(option_values(g));
  std::vector<double> rates;
  for (size_t g = 0; g < groups_.size(); ++g) rates.push_back(last_known_lr(g));
  const auto adopted = lr_;
  const auto initial = initial_lr_;
  const auto written = written_;
  const bool loaded = rates_loaded_;
  try {
    load_options(given);
    load_states(given);
  } catch (...) {
    for (size_t g = 0; g < groups_.size(); ++g) {
      set_option_values(g, before[g]);
      put_lr(rates[g], g);
    }
    lr_ = adopted, initial_lr_ = initial, written_ = written, rates_loaded_ = loaded;
    throw;
  }
}

// Returns whether they are more than followers' states: a follower may begin before the first step.
bool Optimizer::has_stepped(const std::map<std::string, Tensor>& states) const {
  return std::any_of(states.begin(), states.end(), [&](const auto& entry) { return !is_follower_state(entry.first); });
}

// Returns the states by parameter. Throws ValueError listing what does not fit.
std::vector<std::map<std::string, Tensor>> Optimizer::checked_states(const std::map<std::string, Tensor>& given) const {
  const std::vector<std::vector<std::string>> names = all_state_names();
  std::vector<std::vector<std::string>> late;  // of each parameter
  for (size_t g = 0; g < groups_.size(); ++g) late.resize(late.size() + groups_[g].params.size(), late_state_names(g));
  std::vector<std::map<std::string, Tensor>> by_param(params_.size());
  bool has_options = false;  // a state with options is complete: a late state that it lacks did not exist
  Problems problems;
  const auto is_derived = [&](const std::string& name) { return derived_name() && name == derived_name(); };
  for (const auto& [key, t] : given) {
    has_options = has_options || key.starts_with(kGroups);
    if (key.starts_with(kGroups) || key.starts_with(kFollowers)) continue;
    const std::optional<Key> at = parse_key(key);
    if (!at) {
      problems.add(key, ": a key must be <parameter>.<name>, as in 0.step");
    } else if (at->param >= params_.size()) {
      problems.add(key, ": the optimizer has ", params_.size(), " parameters");
    } else if (!names[at->param].empty() && !contains(names[at->param], at->name) && !contains(late[at->param], at->name)) {
      problems.add(key, ": ", describe(), " has no such state");
    } else if (!t.defined()) {
      problems.add(key, ": undefined");
    } else if (const auto want = state_layout(at->name, params_[at->param]); want && t.shape() != want->shape) {
      problems.add(key, ": must be ", want->shape, ", got ", t.shape());
    } else {
      by_param[at->param][at->name] = t;
    }
  }
  for (size_t i = 0; i < params_.size(); ++i) {
    if (!has_stepped(by_param[i])) continue;
    for (const std::string& name : names[i]) {
      const bool may_miss = may_lack(name) || is_derived(name) || (has_options && contains(late[i], name));
      if (!by_param[i].contains(name) && !may_miss) problems.add(i, ".", name, ": missing");
    }
  }
  problems.raise(describe());
  return by_param;
}

void Optimizer::load_states(const std::map<std::string, Tensor>& given) {
  const std::vector<std::vector<std::string>> names = all_state_names();
  std::vector<std::map<std::string, Tensor>> by_param = checked_states(given);
  NoGrad off;
  for (size_t i = 0; i < params_.size(); ++i) {
    std::map<std::string, Tensor>& old = state_[i];
    states_dropped_ += int64_t(std::erase_if(old, [&](const auto& entry) { return !by_param[i].contains(entry.first); }));
    if (derived_name()) by_param[i].erase(derived_name());
    for (const auto& [name, t] : by_param[i]) {
      const auto layout = state_layout(name, params_[i]);
      const DType dtype = layout ? layout->dtype : t.dtype();
      if (!is_shared(name)) {
        Tensor& mine = state(i, name, t.shape(), dtype);
        if (!mine.same(t)) mine.copy_(t);
      } else if (shards_->has(i)) {
        const Tensor part = shards_->part(i, in_layout_of(params_[i], t));
        state(i, name, part.shape(), dtype).copy_(part);
      }
    }
    // PyTorch's SGD keeps no step count, but a momentum buffer implies a step.
    const bool counts = contains(names[i], "step") && !by_param[i].contains("step");
    if (counts && has_stepped(by_param[i])) state(i, "step", {}, DType::f32).fill_(1);
    for (const std::string& name : names[i]) {
      const bool unknown = name != "step" && may_lack(name) && has_stepped(by_param[i]) && !by_param[i].contains(name);
      if (unknown) state(i, name, {}, DType::f32).fill_(std::numeric_limits<double>::quiet_NaN());
    }
  }
}

void Optimizer::Follower::begin_states(const std::string& name) {
  for (auto& states : optimizer().state_) {
    optimizer().states_dropped_ += int64_t(std::erase_if(states, [&](const auto& entry) {
      return entry.first == name || entry.first.starts_with(name + "_step") || entry.first.starts_with(name + "_count");
    }));
  }
}

void Optimizer::shard(ProcessGroup& group, const ShardOptions& options) {
  check<ValueError>(!shards_, "optimizer.shard", "ranks share the states of ", describe(), " already");
  if (group.size() == 1) return;
  check<ValueError>(sharing() != Sharing::nothing, "optimizer.shard", "ranks cannot share the states of ", describe(),
                    Help{"use another optimizer, or keep the states whole on every rank"});
  const NoGrad off;
  shards_ = std::make_shared<Shards>(group, sharing() == Sharing::tensors, options);
  for (const ParamGroup& g : groups_) shards_->add(g.params);
  const MemoryScope tag(MemoryTag::optimizer);
  for (size_t i = 0; i < params_.size(); ++i) {
    for (auto& [name, t] : state_[i]) {
      if (is_shared(name) && shards_->has(i) && !shards_->part(i, t).same(t))
        t = shards_->part(i, in_layout_of(params_[i], t)).clone();
    }
    states_dropped_ += int64_t(std::erase_if(state_[i], [&](const auto& s) { return is_shared(s.first) && !shards_->has(i); }));
  }
}

std::map<std::string, Tensor> Optimizer::gathered_state_dict(int root) const {
  if (!shards_) return state_tensors();
  const NoGrad off;
  ProcessGroup& group = shards_->group();
  std::map<std::string, Tensor> out = own_states(), parts;
  std::string own_keys;
  for (const auto& [key, t] : out) {
    if (!is_shared(parse_key(key)->name)) continue;
    own_keys += key + '\n';
    parts[key] = t;
  }
  for (const auto& [key, t] : parts) out.erase(key);
  // All ranks visit the states that any of them has.
  std::set<std::string> keys;
  for (const std::string& keys_of_rank : group.gather(own_keys)) {
    TextReader lines(keys_of_rank);
    for (std::string key; std::getline(lines, key);) keys.insert(key);
  }
  const MemoryScope tag(MemoryTag::workspace);
  for (const std::string& text : keys) {
    const Key key = *parse_key(text);
    const Tensor& p = params_[key.param];
    const StateLayout layout = *state_layout(key.name, p);
    const MemoryFormat format = layout.shape == p.shape() ? p.format() : MemoryFormat::contiguous;
    const Tensor whole = Tensor::empty(layout.shape, {.dtype = layout.dtype, .device = p.device(), .format = format});
    Ticket last = 0;
    for (int rank = 0; rank < group.size(); ++rank) {
      if (shards_->range_of(key.param, rank).size() == 0) continue;
      const Tensor part = shards_->part(key.param, whole, rank), flat = part.alias({part.numel()}, {1});
      if (rank == group.rank()) part.copy_(parts.at(text));
      last = group.broadcast({flat}, rank);
    }
    group.wait(last);
    if (group.rank() == root) out[text] = whole.to(Device::cpu);
  }
  add_options(out);
  if (group.rank() != root) out.clear();
  return out;
}

// Unscales the gradients that the kernels of a sharded step have not unscaled, those of other ranks' parts. As there, nothing
// changes if the step is skipped.
void Optimizer::unscale_all(size_t group) const {
  const Tensors grads = gradients_of(groups_[group].params, /*contiguous=*/true, /*raw=*/true);
  if (grads.empty()) return;
  const MemoryScope tag(MemoryTag::workspace);
  Tensor scale = amp_.grad_scale;
  if (amp_.found_inf.defined()) scale = where(amp_.found_inf.ne(0), ones_like(scale), scale);
  const Tensor found = zeros({}, {.device = scale.device()});  // already checked
  backend_for(scale.device()).unscale(views_of(grads), scale.data_ptr<float>(), found.data_ptr<float>());
}

}  // namespace halfstep
