// SPDX-License-Identifier: Apache-2.0
// Runs a training history: all its parts, window by window, and the numbers to compare, in the order of scripts/history_torch.py.
#pragma once

#include <algorithm>
#include <optional>
#include <set>

#include "tests/amp/history.h"

namespace halfstep::testing::history {

struct HistoryNumber {
  double value, scale;  // of the elements summed
  std::string label;
};

class Run {
 public:
  // Makes the parts as they are before window `from`, with first values. own: with dropout and a random order.
  Run(const Json& given, bool own, int64_t from = 0) : spec_(given), own_(own), net_(net_of(spec_["net"], own)) {
    set_first_weights(net_, spec_);
    std::tie(x_, y_) = data_of(spec_);
    loss_ = criterion_of(spec_["loss"]);
    const Json& opt = spec_["opt"];
    std::vector<Json> groups, owns;
    for (const Json& g : spec_["groups"]) groups.push_back(g), owns.push_back(spec_["group_args"][owns.size()]);
    std::vector<Json> later;  // groups added after the schedules
    for (const Json& e : events(0, from)) {
      if (e[1] != "add") continue;
      if (int64_t(spec_["n"]) % 2 == 0)
        later.push_back(e);
      else
        groups.push_back(e[2]), owns.push_back(e[3]);
    }
    optimizer_ = of_kind(opt["kind"], [&]<class Opt>() -> std::unique_ptr<Optimizer> {
      std::vector<ParamGroup> all;
      for (size_t i = 0; i < groups.size(); ++i) all.push_back(group_of<Opt>(params_of(groups[i]), opt["args"], owns[i]));
      return std::make_unique<Opt>(std::move(all), with(typename Opt::Options(), opt["args"]));
    });
    for (const Json& s : list("schedules")) schedules_.push_back(schedule_of(s, *optimizer_));
    for (const Json& a : list("averages"))
      averages_.push_back(std::make_unique<WeightAverage>(*optimizer_, WeightAverageOptions{.decay = a.value("decay", 0.999),
                                                                                           .warm_up = a.value("warm_up", false),
                                                                                           .equal = a.value("equal", false),
                                                                                           .start = a.value("start", 0),
                                                                                           .every = a.value("every", 1)}));
    for (const Json& e : later) take(e);
    const bool scales = spec_.contains("scaler");
    const Json s = scales ? spec_["scaler"] : Json::object();
    scaler_ = GradScaler(GradScalerOptions{.init_scale = s.value("init_scale", 65536.0),
                                           .growth_factor = s.value("growth_factor", 2.0),
                                           .backoff_factor = s.value("backoff_factor", 0.5),
                                           .growth_interval = s.value("growth_interval", 2000),
                                           .enabled = scales});
    batch_ = spec_["batch"];
    for (const Json& e : events(0, from)) {
      if (e[1] == "batch") batch_ = e[2];
      if (e[1] == "freeze" || e[1] == "thaw") take(e);
    }
    loader_.emplace(make_loader());
    if (spec_["mode"] != "step") return;
    const Json clip = spec_.value("clip", Json::object());
    step_.emplace(net_, *loss_, *optimizer_, scaler_, schedules_.empty() ? nullptr : schedules_[0].get(),
                  TrainStepOptions{.clip_grad_norm = clip.value("norm", 0.0),
                                   .clip_grad_value = clip.value("value", 0.0),
                                   .accumulate_steps = spec_["accumulate"]});
  }

  RunParts parts() {
    return {.model = net_,
            .optimizer = optimizer_.get(),
            .scaler = &scaler_,
            .schedule = schedules_.empty() ? nullptr : schedules_[0].get(),
            .loader = &*loader_};
  }
  void save(const std::filesystem::path& dir, int64_t window) {
    Json others = Json::array();  // RunParts has one schedule
    for (size_t i = 1; i < schedules_.size(); ++i) others.push_back(schedules_[i]->state_dict());
    save_run(dir, window, parts(), Json{{"schedules", others}});
  }
  void load(const std::filesystem::path& dir) {
    const SavedRun last = load_run(dir, parts());
    const Json own = *last.own;
    for (size_t i = 1; i < schedules_.size(); ++i)
      schedules_[i]->load_state_dict(own["schedules"][i - 1].get<std::map<std::string, double>>());
  }

  void windows(int64_t from, int64_t to, std::vector<HistoryNumber>& out) {
    numbers_ = &out;
    for (window_ = from; window_ < to; ++window_) {
      loss_->factor = 1;
      const std::vector<Json> now = events(window_, window_ + 1);
      for (const Json& e : now) {
        if (e[1] == "factor") loss_->factor = e[2];
        take(e);
      }
      const bool applied = step_ ? by_train_step() : optimizer_->needs_closure() ? by_closure() : by_hand();
      for (size_t i = 0; i < schedules_.size(); ++i) {
        if (dynamic_cast<ReduceLROnPlateau*>(schedules_[i].get()))
          schedules_[i]->observe(spec_["metrics"][size_t(window_)].get<double>());
        else if (!step_ || i > 0)
          schedules_[i]->step(applied);
      }
      after_step(applied);
      for (const Json& e : now) {
        if (e[1] == "scale") scaler_.update(e[2].get<double>());
        if (e[1] == "evaluate") evaluate();
      }
    }
  }

  // Appends all values, which PyTorch's numbers end with.
  void all_values(std::vector<HistoryNumber>& out) {
    each_tensor([&](const Tensor& t, const std::string& label) {
      if (!t.defined()) return;
      double scale = 0;
      for (const double v : t.to_vector<double>()) scale = std::max(scale, std::abs(v));
      for (const double v : t.to_vector<double>()) out.push_back({v, scale, "at the end, an element of " + label});
    });
  }
  // Returns the bits of the whole state, by name.
  std::map<std::string, std::string> bits() const {
    std::map<std::string, std::string> out;
    const auto add = [&](const std::string& name, const Tensor& t) {
      out[name] = std::string(static_cast<const char*>(t.contiguous().const_data_ptr()), t.nbytes());
    };
    for (const NamedTensor& t : net_.state_dict()) add(t.name, t.tensor);
    for (const auto& [name, t] : optimizer_->state_dict()) add("optimizer." + name, t);
    return out;
  }

 private:
  using Loader = decltype(DataLoader(Pairs(), LoaderOptions{}));
  using Pair = std::pair<Tensor, Tensor>;

  Loader make_loader() const {
    LoaderOptions o{.batch_size = batch_, .seed = 7};
    if (own_)
      o.shuffle = true;
    else
      o.sampler = Order();
    return Loader(Pairs{x_, y_}, o);
  }
  std::vector<Json> list(const char* key) const {
    return spec_.contains(key) ? spec_[key].get<std::vector<Json>>() : std::vector<Json>{};
  }
  std::vector<Json> events(int64_t from, int64_t to) const {
    std::vector<Json> out;
    for (const Json& e : list("events")) {
      if (e[0] >= from && e[0] < to) out.push_back(e);
    }
    return out;
  }
  std::vector<Tensor> params_of(const Json& ids) const {
    std::vector<Tensor> out;
    for (const size_t i : ids) out.push_back(net_.parameters()[i]);
    return out;
  }

  void take(const Json& e) {
    const std::string what = e[1];
    if (what == "lr") {
      if (e[2] == -1)
        optimizer_->set_lr(e[3].get<double>());
      else if (int64_t(spec_["n"]) % 2 == 0)
        optimizer_->set_lr(e[3], e[2].get<size_t>());
      else
        optimizer_->param_groups()[e[2].get<size_t>()].lr = e[3].get<double>();
    } else if (what == "option") {
      of_kind(spec_["opt"]["kind"], [&]<class Opt>() {
        auto& options = dynamic_cast<Opt&>(*optimizer_).options(e[2].get<size_t>());
        options = with(options, Json{{e[3].get<std::string>(), e[4]}});
      });
    } else if (what == "add") {
      of_kind(spec_["opt"]["kind"], [&]<class Opt>() {
        optimizer_->add_param_group(group_of<Opt>(params_of(e[2]), spec_["opt"]["args"], e[3]));
      });
    } else if (what == "freeze" || what == "thaw") {
      net_.parameters()[e[2].get<size_t>()].set_requires_grad(what == "thaw");
    } else if (what == "batch") {
      batch_ = e[2];
      const LoaderPosition place = loader_->position();
      loader_.emplace(make_loader());
      loader_->set_position(place);
    } else if (what == "put") {
      averages_[0]->copy_to_parameters();
    }
  }

  // ---- a step

  // Returns the micro-batches of a window, which ends with the epoch.
  std::vector<Pair> window() {
    std::vector<Pair> out;
    while (int64_t(out.size()) < int64_t(spec_["accumulate"])) {
      if (auto batch = loader_->next())
        out.push_back(std::move(*batch));
      else if (!out.empty())
        break;
    }
    return out;
  }

  bool by_closure() {
    const auto [x, y] = window()[0];
    const Tensor loss = *optimizer_->step([&, x = x, y = y] {
      optimizer_->zero_grad();
      const Tensor now = (*loss_)(net_(x), y);
      now.backward();
      return now;
    });
    put_number(loss.item<double>(), "the loss");
    return true;
  }

  bool by_train_step() {
    StepResult result;
    for (const auto& [x, y] : window()) {
      result = (*step_)(x, y);
      put_number(result.loss.item<double>(), "the loss of a micro-batch");
    }
    if (!result.stepped) result = step_->flush();
    REQUIRE(result.stepped);
    const bool applied = result.outcome.applied(), clips = clip().contains("norm");
    if (optimizer_->needs_closure()) return applied;
    put_number(applied && clips ? result.grad_norm.item<double>() : 0, "the norm of the gradients");
    return applied;
  }

  bool by_hand() {
    const double micro_batches = spec_["accumulate"];
    optimizer_->zero_grad();
    for (const auto& [x, y] : window()) {
      Tensor loss = (*loss_)(net_(x), y);
      put_number(loss.item<double>(), "the loss of a micro-batch");
      if (micro_batches > 1) loss = loss / micro_batches;
      if (int64_t(spec_["n"]) % 3 == 0)
        scaler_.backward(loss);
      else
        scaler_.scale(loss).backward();
    }
    double norm = 0;
    if (!clip().empty()) {
      const Gradients gradients = scaler_.unscale_(*optimizer_);
      if (clip().contains("value")) clip_grad_value_(gradients, clip()["value"]);
      if (clip().contains("norm")) {
        const double type = clip().value("type", 2.0);  // 0: maximum norm
        norm = clip_grad_norm_(gradients, clip()["norm"], type > 0 ? type : INFINITY).item<double>();
      }
    }
    const StepOutcome outcome = scaler_.step(*optimizer_);
    scaler_.update();
    put_number(outcome.applied() ? norm : 0, "the norm of the gradients");
    return outcome.applied();
  }

  Json clip() const { return spec_.value("clip", Json::object()); }

  void evaluate() {
    const NoGrad off;
    const WeightAverage::Scope averaged(*averages_[0]);
    net_.eval();
    put(net_(x_.slice(0, 0, 8)), "the output of the averaged weights");
    net_.train();
  }

  // ---- numbers

  void put_number(double value, const std::string& label, double scale = -1) {
    numbers_->push_back({value, scale < 0 ? std::abs(value) : scale, joined("window ", window_, ", ", label)});
  }
  // Adds a sum with fixed weights; the sum of absolute values is the scale.
  void put(const Tensor& t, const std::string& label) {
    double sum = 0, scale = 0, j = 0;
    if (t.defined()) {
      const std::vector<double> values = t.to_vector<double>();
      for (const double v : values) {
        const double weight = 1 + 0.5 * std::sin(2.3 * j++ + 0.7);
        sum += v * weight, scale += std::abs(v * weight);
      }
    }
    put_number(sum, label, scale);
  }

  // Returns a state of a parameter; undefined before its first step.
  Tensor state_of(const std::map<std::string, Tensor>& states, const Tensor& p, const std::string& name) const {
    const std::vector<Tensor> all = optimizer_->parameters();
    for (size_t i = 0; i < all.size(); ++i) {
      const std::string prefix = std::to_string(i) + ".";
      if (!all[i].same(p) || !states.contains(prefix + name)) continue;
      const auto step = states.find(prefix + "step");
      if (step == states.end() || step->second.item<double>() > 0) return states.at(prefix + name);
    }
    return {};
  }

  template <class F>
  void each_tensor(const F& f) const {
    const std::vector<Tensor> params = net_.parameters();
    for (size_t i = 0; i < params.size(); ++i) f(params[i].detach(), joined("parameter ", i));
    for (const NamedTensor& b : net_.named_buffers()) f(b.tensor, b.name);
    for (size_t a = 0; a < averages_.size(); ++a) {
      const Tensors all = averages_[a]->averages();
      const std::vector<Tensor> mine = optimizer_->parameters();
      for (size_t i = 0; i < params.size(); ++i) {
        Tensor average;
        for (size_t k = 0; k < mine.size(); ++k) {
          if (mine[k].same(params[i])) average = all[k];
        }
        f(average, joined("average ", a, " of parameter ", i));
      }
    }
    const std::map<std::string, Tensor> states = optimizer_->state_dict();
    for (const Json& name : list("states")) {
      for (size_t i = 0; i < params.size(); ++i)
        f(state_of(states, params[i], name), joined(name.get<std::string>(), " of parameter ", i));
    }
  }

  void after_step(bool applied) {
    put_number(applied, "whether the step was applied");
    if (scaler_.is_enabled()) put_number(scaler_.get_scale(), "the scale");
    const size_t groups = spec_["opt"]["kind"] == "Muon" ? 1 : optimizer_->param_groups().size();
    for (size_t g = 0; g < groups; ++g) {
      put_number(optimizer_->lr(g), joined("the rate of group ", g));
      if (spec_.value("momenta", false)) put_number(optimizer_->momentum(g), joined("the momentum of group ", g));
    }
    each_tensor([&](const Tensor& t, const std::string& label) { put(t, label); });
  }

  const Json spec_;
  bool own_;
  Sequential net_;
  Tensor x_, y_;
  std::unique_ptr<Criterion> loss_;
  std::unique_ptr<Optimizer> optimizer_;
  std::vector<SchedulePtr> schedules_;
  std::vector<std::unique_ptr<WeightAverage>> averages_;
  GradScaler scaler_;
  int64_t batch_ = 1, window_ = 0;
  std::optional<Loader> loader_;
  std::optional<TrainStep> step_;
  std::vector<HistoryNumber>* numbers_ = nullptr;
};

}  // namespace halfstep::testing::history
