// SPDX-License-Identifier: Apache-2.0
// Rules of optimizer, schedule and steps.
#include <algorithm>
#include <memory>
#include <optional>
#include <utility>

#include "amp/autocast/autocast.h"
#include "apps/catalog/infer.h"
#include "apps/catalog/optimizers.h"
#include "apps/config/dead_rates.h"
#include "apps/config/rules.h"
#include "apps/config/sections.h"
#include "framework/autograd/grad_mode.h"
#include "framework/base/device.h"
#include "framework/ops/ops.h"
#include "layers/feedforward/linear.h"

namespace halfstep::app {
namespace {

class TrainingRules : private RuleSet {
 public:
  TrainingRules(Json& config, const MixedPrecision& precision, Issues& issues) : RuleSet(config, issues), precision_(precision) {}

  // Constructs optimizer, schedule and the like on Device::meta: an exception there is an error of the config.
  void run(const DataFacts& facts) {
    const SavedGenerator generator;
    const DefaultDevice on(Device::meta);
    const std::shared_ptr<Module> model = build_model(config_["model"]);
    if (are_valid({"train"}))
      run_or_report("train.checkpoint_activations",
                    [&] { recompute_activations(*model, config_["train"]["checkpoint_activations"]); });
    if (are_valid({"amp"})) run_or_report("amp.modules", [&] { check_precisions(*model, precision_); });
    if (are_valid({"data", "train", "amp"})) check_batch_of_one(facts, *model);
    if (are_valid({"train"}) && config_["train"]["accumulate_steps"] > 1 && divides_by_uses(config_["model"]))
      issues_.warn(
          "train.accumulate_steps",
          joined("is ", config_["train"]["accumulate_steps"].dump(), ", and scale_grad_by_freq counts the uses of a row in ",
                 "each micro-batch, as in PyTorch: the gradient is not that of one large batch"));
    std::unique_ptr<Optimizer> optimizer;
    if (!are_valid({"optimizer"}) ||
        !run_or_report("optimizer", [&] { optimizer = build_optimizer(config_["optimizer"], *model); }))
      return;
    if (optimizer->needs_closure()) check_closure(*optimizer);
    if (are_valid({"scheduler"}) && config_["scheduler"].is_null() && rates_are_zero(*optimizer))
      issues_.warn("optimizer.lr", "is 0, so no step changes a parameter");
    if (are_valid({"scheduler", "train", "data"}) && !config_["scheduler"].is_null()) check_schedule(facts, *optimizer);
  }

  // Checks what needs no data, with a substitute model's parameters.
  void run_before_data() {
    const SavedGenerator generator;
    const DefaultDevice on(Device::meta);
    const Linear model(1, 1);
    if (!are_valid({"optimizer"})) return;
    Json alone = config_["optimizer"];
    alone["groups"] = Json::array();  // groups name parameters of the real model
    std::unique_ptr<Optimizer> optimizer;
    if (!run_or_report("optimizer", [&] { optimizer = build_optimizer(alone, model); })) return;
    if (!are_valid({"scheduler", "train"}) || config_["scheduler"].is_null() || !config_["optimizer"]["groups"].empty()) return;
    const Json& max_steps = config_["train"]["max_steps"];
    const RunLength length{kUnknownSteps, max_steps.is_null() ? kUnknownSteps * kUnknownSteps : std::max<int64_t>(1, max_steps)};
    run_or_report("scheduler", [&] { build_scheduler(config_["scheduler"], *optimizer, length); });
  }

 private:
  // Constructs the schedule over the length of the run.
  void check_schedule(const DataFacts& facts, Optimizer& optimizer) {
    const std::optional<int64_t> steps = steps_per_epoch(facts);
    const Json &epochs = config_["train"]["epochs"], &max_steps = config_["train"]["max_steps"];
    const std::optional<int64_t> total = !max_steps.is_null() ? std::optional(max_steps.get<int64_t>())
                                         : steps              ? std::optional(*steps * epochs.get<int64_t>())
                                                              : std::nullopt;
    if (total == 0) return;  // there are no steps
    const RunLength length{steps.value_or(kUnknownSteps), total.value_or(kUnknownSteps * kUnknownSteps)};
    std::shared_ptr<Schedule> schedule;
    const bool made = run_or_report("scheduler", [&] { schedule = build_scheduler(config_["scheduler"], optimizer, length); });
    if (made && has_type(config_["scheduler"], "ReduceLROnPlateau") && are_valid({"checkpoint"}) &&
        config_["checkpoint"]["monitor"].is_string() && never_evaluated(config_, config_["checkpoint"]["monitor"]))
      issues_.error("scheduler", "ReduceLROnPlateau looks at " + config_["checkpoint"]["monitor"].get<std::string>() +
                                     ", but train.eval_every is \"never\"");
    if (config_["scheduler"].is_object() && !config_["scheduler"]["length"].is_null())
      issues_.error("scheduler.length", "is for a schedule that another one follows, in a list");
    if (!made || !total) return;
    if (rates_are_zero(optimizer, *schedule, *total))
      issues_.warn(rates_are_zero(optimizer) ? "optimizer.lr" : "scheduler",
                   "makes the rate of each step 0, so no step changes a parameter");
    else if (const std::string dead = dead_rates(config_["scheduler"], optimizer, *schedule, length, steps.has_value());
             !dead.empty())
      issues_.warn("scheduler", dead);
    if (!config_["scheduler"].is_object()) return;
    const int64_t warmup = config_["scheduler"]["warmup_steps"];
    if (warmup >= *total)
      issues_.warn("scheduler.warmup_steps", joined(warmup, " steps of warm-up do not end within the run, which takes ", *total));
  }

  // Runs `make`; an exception becomes an issue at `path`, or at the place below it that the error names. Returns whether there was
  // none.
  template <class F>
  bool run_or_report(const std::string& path, const F& make) {
    try {
      make();
      return true;
    } catch (const Error& e) {
      const std::string text = one_line(e);
      const size_t end = text.find("] ");
      const std::string where = end == std::string::npos ? "" : text.substr(1, end - 1);
      if (where == path || where.starts_with(path + "."))
        issues_.error(where, text.substr(end + 2));
      else
        issues_.error(path, text);
      return false;
    }
  }

  // Returns whether the rate of every group is 0, at first or in each step of the run. The second checks kCheckedSteps
  // steps or up to twice as many.
  static bool rates_are_zero(const Optimizer& optimizer) {
    for (size_t g = 0; g < optimizer.param_groups().size(); ++g)
      if (optimizer.initial_lr(g) != 0) return false;
    return true;
  }
  static bool rates_are_zero(const Optimizer& optimizer, const Schedule& schedule, int64_t steps) {
    const int64_t stride = std::max<int64_t>(steps / kCheckedSteps, 1);
    for (size_t g = 0; g < optimizer.param_groups().size(); ++g)
      for (int64_t step = 0; step < steps && schedule.covers(step); step += stride)
        if (schedule.rate(optimizer.initial_lr(g), step) != 0) return false;
    return true;
  }

  // Returns whether a layer divides its gradient by how often a row was used.
  static bool divides_by_uses(const Json& model) {
    if (model.is_object() && model.contains("scale_grad_by_freq") && model["scale_grad_by_freq"] == true) return true;
    return model.is_structured() && std::any_of(model.begin(), model.end(), divides_by_uses);
  }

  // Checks an optimizer that evaluates the loss itself, several times in a step.
  void check_closure(const Optimizer& optimizer) {
    const std::string type = config_["optimizer"]["type"];
    if (optimizer.param_groups().size() > 1) issues_.error("optimizer", type + " takes all parameters in one group");
    if (are_valid({"amp", "device", "train"}) && precision_.scaler.fixed)
      issues_.error("train.guard", "must not be true with " + type + ", which evaluates the loss itself");
    else if (are_valid({"amp", "device"}) && precision_.scaler.enabled)
      issues_.error("optimizer", type +
                                     " evaluates the loss several times a step, which a gradient scaler does not allow; train in "
                                     "float32 or bfloat16");
    if (!are_valid({"train"})) return;
    const Json none = nullptr;
    const std::pair<const char*, Json> keys[] = {{"accumulate_steps", 1}, {"clip_grad_norm", none}, {"clip_grad_value", none},
                                                 {"clip_grad_agc", none}, {"grad_norm", false},     {"memory_budget", none}};
    for (const auto& [key, allowed] : keys) {
      if (config_["train"][key] != allowed)
        issues_.error(join_path("train", key), "must not be given with " + type + ", which evaluates the loss itself");
    }
    if (config_["train"]["checkpoint_activations"] == "auto")
      issues_.error("train.checkpoint_activations", "must not be \"auto\" with " + type + ", whose steps cannot be planned");
  }

  // Checks layers, such as batch norms, that cannot train on a single sample, which an epoch's last batch may be.
  void check_batch_of_one(const DataFacts& facts, Module& model) {
    const Json &loader = config_["data"]["loader"], &t = config_["train"];
    const int64_t batch = loader["batch_size"];
    const std::optional<Epoch> epoch = epoch_of(facts);
    const bool last = epoch && epoch->samples % batch == 1 && loader["drop_last"] == false && batch > 1;
    if ((!last && batch > 1) || facts.streams > 0) return;
    // Returns whether training ends before that batch.
    const auto ends_before = [&](const Json& limit, int64_t batches) {
      return !limit.is_null() && limit.get<int64_t>() * batches < epoch->batches;
    };
    if (last && (ends_before(t["limit_batches"], 1) || ends_before(t["max_steps"], t["accumulate_steps"]))) return;
    if (t["epochs"] == 0) return;
    try {
      const NoGrad off;
      const Autocast region(Device::meta, precision_.region());
      model(empty(with_batch(1, facts.input), {.dtype = facts.input_dtype}));
    } catch (const Error& e) {
      std::string why = e.what();
      why = why.substr(0, why.find('\n'));
      if (batch == 1) return issues_.error("data.loader.batch_size", "is 1, but the model cannot train on one sample: " + why);
      issues_.error("data.loader.drop_last",
                    joined("must be true, or data.loader.batch_size another number: the last batch of an epoch has one of the ",
                           epoch->samples, " samples, and the model cannot train on one: ", why));
    }
  }

  // Samples and batches of an epoch, if the size of the data is known.
  struct Epoch {
    int64_t samples, batches;
  };
  static int64_t rounded_up(int64_t n, int64_t by) { return (n + by - 1) / by; }
  std::optional<Epoch> epoch_of(const DataFacts& facts) const {
    const Json &loader = config_["data"]["loader"], &sampler = loader["sampler"], &t = config_["train"];
    if (!facts.size) return {};
    const int64_t batch = loader["batch_size"];
    int64_t samples = *facts.size;
    if (!t["overfit_batches"].is_null()) {
      samples = std::min(samples, t["overfit_batches"].get<int64_t>() * batch);
      return Epoch{samples, rounded_up(samples, batch)};
    }
    if (!sampler.is_null() && !sampler["num_samples"].is_null()) samples = sampler["num_samples"];
    return Epoch{samples, loader["drop_last"] == true ? samples / batch : rounded_up(samples, batch)};
  }

  // Returns the optimizer steps of an epoch, if the size of the data is known.
  std::optional<int64_t> steps_per_epoch(const DataFacts& facts) const {
    const Json& t = config_["train"];
    const std::optional<Epoch> epoch = epoch_of(facts);
    if (!epoch) return {};
    int64_t batches = epoch->batches;
    if (!t["limit_batches"].is_null()) batches = std::min(batches, t["limit_batches"].get<int64_t>());
    return std::max<int64_t>(rounded_up(batches, t["accumulate_steps"].get<int64_t>()), 1);
  }

  const MixedPrecision& precision_;
  static constexpr int64_t kCheckedSteps = 1000;
  static constexpr int64_t kUnknownSteps = int64_t(1) << 20;  // of an epoch: more than schedules need

  static bool has_type(const Json& schedule, const char* type) {
    if (schedule.is_array()) return std::any_of(schedule.begin(), schedule.end(), [&](const Json& s) { return has_type(s, type); });
    return schedule.is_object() &&
           (schedule["type"] == type || (schedule.contains("schedulers") && has_type(schedule["schedulers"], type)));
  }
};

}  // namespace

void training_rules(Json& config, const DataFacts& facts, const MixedPrecision& precision, Issues& issues) {
  TrainingRules(config, precision, issues).run(facts);
}

void training_rules_before_data(Json& config, const MixedPrecision& precision, Issues& issues) {
  TrainingRules(config, precision, issues).run_before_data();
}

}  // namespace halfstep::app
