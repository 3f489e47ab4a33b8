// SPDX-License-Identifier: Apache-2.0
#include "apps/config/rules.h"

#include <algorithm>
#include <filesystem>

#include "apps/catalog/datasets.h"
#include "apps/catalog/infer.h"
#include "apps/catalog/losses.h"
#include "apps/catalog/metrics.h"
#include "apps/config/sections.h"
#include "apps/schema/suggest.h"
#include "framework/data/formats/read_once.h"
#include "framework/data/tables/csv_table.h"
#include "framework/data/transforms/statistics.h"
#include "framework/ops/core/op_policy.h"

namespace halfstep::app {
namespace {

constexpr size_t kMaxName = 255, kMaxPath = 3500;  // bytes; Linux allows 4095 in all, and a run adds names of its own
constexpr int64_t kMaxParameters = int64_t(1) << 50;

class Rules : private RuleSet {
 public:
  Rules(Json& config, Issues& issues, const DataForm* known) : RuleSet(config, issues), known_(known) {}

  RuleResult run() {
    check_length();
    check_output_dir();
    RuleResult out;
    find_precision(out);
    check_schedule();
    check_diagnostics();
    data_rules(config_, issues_);
    if (are_valid({"data", "seed"}) && !waits_for_others(out)) find_facts(out);
    if (out.facts) {
      data_rules(config_, *out.facts, issues_);
      if (are_valid({"model"})) infer_layers(out);
    }
    if (are_valid({"metrics", "data"})) check_metric_list(out.facts);
    if (out.facts && are_valid({"model"})) training_rules(config_, *out.facts, out.precision, issues_);
    return out;
  }

 private:
  void check_length() {
    if (!are_valid({"train"})) return;
    const Json& t = config_["train"];
    if (t["deterministic"] == false)
      issues_.error("train.deterministic", "must be true: every run gives the same bits on every device, at no cost in speed");
    if (t["overfit_batches"].is_number() && !config_["data"].is_null() && are_valid({"data"}) &&
        !config_["data"]["loader"]["sampler"].is_null())
      issues_.error("train.overfit_batches", "must not be given together with data.loader.sampler");
    const Json &recomputed = t["checkpoint_activations"], &budget = t["memory_budget"];
    if (are_valid({"performance"}) && config_["performance"]["cuda_graph"] == true && !(recomputed.empty() && budget.is_null()))
      issues_.error("performance.cuda_graph",
                    joined("must not be true together with train.", recomputed.empty() ? "memory_budget" : "checkpoint_activations",
                           ", whose steps are not recorded"));
    if (!budget.is_null() && !recomputed.empty() && recomputed != "auto")
      issues_.error("train.memory_budget",
                    "must not be given together with patterns in checkpoint_activations: either the plan chooses, or you do");
    if (t["epochs"].is_null() && t["max_steps"].is_null()) issues_.error("train", "needs epochs or max_steps");
    if (!t["epochs"].is_null() && !t["max_steps"].is_null())
      issues_.error("train.max_steps", "must not be given together with epochs");
    if (t["ema"]["enabled"] == true && t["swa"]["enabled"] == true)
      issues_.error("train.swa", "must not be given together with ema: evaluations use one average");
  }

  void check_diagnostics() {
    if (!are_valid({"diagnostics"})) return;
    const Json& every = config_["diagnostics"]["every"];
    if (parse_interval(every)->unit == Interval::Unit::seconds)
      issues_.error("diagnostics.every",
                    "must be in steps or epochs, got " + every.dump() + ": the clock does not decide which steps are observed");
  }

  // Reports a name that no file system takes, before anything is trained.
  void check_output_dir() {
    if (!are_valid({"output_dir"})) return;
    const std::filesystem::path path = config_["output_dir"].get<std::string>();
    const bool long_part = std::any_of(path.begin(), path.end(), [](const auto& p) { return p.native().size() > kMaxName; });
    if (path.empty()) issues_.error("output_dir", "must not be empty");
    if (are_valid({"name"}) && config_["name"] == "") issues_.error("name", "must not be empty");
    if (long_part || path.native().size() > kMaxPath) {
      issues_.error("output_dir", "may have " + std::to_string(kMaxPath) + " bytes, and " + std::to_string(kMaxName) +
                                      " between two slashes, got " + std::to_string(path.native().size()));
    }
  }

  void find_precision(RuleResult& out) {
    if (are_valid({"device"})) {
      try {
        named_device(config_["device"]);
      } catch (const ConfigError& e) {
        issues_.error("device", "must be \"auto\", \"cpu\", \"cuda\" or \"cuda:N\", got " + config_["device"].dump());
      }
    }
    if (!are_valid({"amp", "device"})) return;
    out.precision = mixed_precision(config_);
    for (const auto& [op, policy] : out.precision.policies.by_name()) {
      try {
        check_names(OpPolicies{{op, policy}});
      } catch (const ValueError& e) {
        issues_.error(join_path("amp.policy", op), one_line(e).substr(std::string("[autocast] ").size()));
      }
    }
    const std::optional<DType>& low = out.precision.low;
    const GradScalerOptions& scaler = out.precision.scaler;
    const bool scales = scaler.enabled && !scaler.fixed;
    if (scales && scaler.min_scale > scaler.max_scale) {
      issues_.error("amp.scaler.min_scale",
                    joined("must not be above max_scale, got ", scaler.min_scale, " and ", scaler.max_scale));
    }
    const bool f16 = low == DType::f16 || std::any_of(out.precision.modules.begin(), out.precision.modules.end(),
                                                      [](const auto& m) { return m.second == DType::f16; });
    if (low && f16 && !scales) {
      issues_.warn("amp.scaler.enabled", "float16 without a gradient scaler loses small gradients; \"auto\" or true is safer");
    }
    if (low == DType::bf16 && !f16 && scales) {
      issues_.warn("amp.scaler.enabled", "bfloat16 has the range of float32 and needs no gradient scaler");
    }
  }

  void check_schedule() {
    if (!are_valid({"scheduler", "train"}) || !config_["scheduler"].is_object() || !config_["scheduler"].contains("T_max")) return;
    const Json& s = config_["scheduler"];
    Json end = s["interval"] == "step" ? s["T_max"] : Json();
    if (end.is_null() && s["T_max"].is_null()) end = config_["train"]["max_steps"];
    if (!end.is_null() && s["warmup_steps"].get<int64_t>() >= end.get<int64_t>()) {
      issues_.error("scheduler.warmup_steps",
                    "must be less than the " + end.dump() + " steps until the end, got " + s["warmup_steps"].dump());
    }
  }

  // Returns whether the data, which takes long to read, should wait until errors that need no data are fixed.
  bool waits_for_others(const RuleResult& out) {
    constexpr double kQuickBytes = 16e6;  // read before a user waits
    if (known_ || bytes_to_read(config_) < kQuickBytes) return false;
    training_rules_before_data(config_, out.precision, issues_);
    if (are_valid({"metrics"})) check_metrics(config_["metrics"], {}, issues_);
    return issues_.errors() > 0;
  }

  void find_facts(RuleResult& out) {
    const ReadCache<const CsvTable> tables;  // each split takes a part of one table
    if (known_) {
      out.facts = facts_of(*known_, config_);
      return;
    }
    out.facts = facts_of_split("train", out);
    if (!out.facts) return;
    store_numbering(*out.facts);
    balance_weights(*out.facts);
    if (are_valid({"model"})) compare_padding(config_["model"], "model", out.facts->padding);
    if (out.facts->classes == 1 && !out.facts->label_sequences)
      issues_.warn("data.train", "has one class, of which every model is right: accuracy is always 100 %");
    std::vector<std::string> warned = out.facts->notes.warnings;
    for (const std::string& w : warned) issues_.warn("data.train", w);
    for (const char* split : {"val", "test"}) {
      if (config_["data"][split].is_null()) continue;
      const auto held_out = facts_of_split(split, out);
      if (!held_out) continue;
      for (const std::string& w : held_out->notes.warnings) {
        if (std::find(warned.begin(), warned.end(), w) == warned.end()) issues_.warn(join_path("data", split), w);
      }
      const std::string path = join_path("data", split), own = shape_text(*held_out), wanted = shape_text(*out.facts);
      if (own != wanted) {
        issues_.error(path, "must have the shapes and classes of data.train, " + wanted + ", but has " + own);
      } else if (held_out->size && *held_out->size < 1) {
        issues_.error(path, "has no samples");
      }
    }
  }

  // Returns the facts of a split. Bad data is not an error of the config: it is distinguished from missing data.
  std::optional<DataFacts> facts_of_split(const char* split, RuleResult& out) {
    const auto unreadable = [&](const Error& e) {
      if (out.data_fault.empty()) out.data_fault = e.what();
      return std::nullopt;
    };
    try {
      return dataset_facts(config_, split);
    } catch (const DataError& e) { return unreadable(e); } catch (const IoError& e) {
      return unreadable(e);
    } catch (const MemoryError&) { throw; } catch (const Error& e) {  // such as missing columns
      issues_.error(join_path("data", split), one_line(e));
      return std::nullopt;
    }
  }

  // Warns of layers that ignore another token than the one that pads the rows of texts.
  void compare_padding(const Json& at, const std::string& path, int64_t padding) {
    if (padding < 0 || !at.is_structured()) return;
    if (at.is_object() && at.contains("padding_idx") && at["padding_idx"].is_number() && at["padding_idx"] != padding)
      issues_.warn(join_path(path, "padding_idx"),
                   joined("leaves out token ", at["padding_idx"].dump(), ", but data.train fills texts up with token ", padding));
    for (const auto& [key, value] : at.items()) compare_padding(value, join_path(path, key), padding);
  }

  // Replaces "balanced" by numbers computed from the training data, so that resuming and evaluating a run use the same weights.
  void balance_weights(const DataFacts& facts) {
    Json& loss = config_["loss"];
    if (!are_valid({"loss"}) || !loss.contains("weight") || loss["weight"] != "balanced" || facts.classes == 0) return;
    std::vector<int64_t> counts;
    DataForm form;
    try {
      Json raw = config_;
      raw["data"]["train"]["transforms"] = Json::array();  // may need statistics of all samples
      const auto data = build_dataset(raw, "train");
      counts = class_counts(*data, loss.value("ignore_index", int64_t(-1)));
      form = data->form();
    } catch (const DataError&) { return; } catch (const IoError&) {
      return;  // missing files: training reports them
    }
    std::string none;
    for (size_t i = 0; i < counts.size(); ++i) {
      if (counts[i] == 0) none += (none.empty() ? "" : ", ") + form.class_name(int64_t(i));
    }
    if (!none.empty()) issues_.warn("loss.weight", "is 1 for these classes, which have no sample in data.train: " + none);
    loss["weight"] = balanced_class_weights(counts);
  }

  static std::string shape_text(const DataFacts& facts) {
    std::string out = joined("input ", facts.input);
    if (facts.vocabulary > 0) out += joined(" of ", facts.vocabulary, " tokens");
    if (facts.classes == 0 || !facts.target.empty()) out += joined(", target ", facts.target);
    return facts.classes > 0 ? out + joined(", ", facts.classes, " classes") : out;
  }

  // Stores the meaning of the training data's numbers (tokens, classes, scaling) in the config, so that held-out data is read in
  // the same way even after the training data was removed.
  void store_numbering(const DataFacts& facts) {
    Json& train = config_["data"]["train"];
    const Json tokens = stored_vocabulary(config_);
    if (!tokens.is_null()) train["vocabulary"] = tokens;
    const auto fill = [&](const char* key, int64_t value) {
      if (train.contains(key) && train[key].is_null() && value > 0) train[key] = value;
    };
    if (tokens.is_null()) fill("vocab_size", facts.vocabulary);
    fill("classes", facts.classes);
  }

  void check_metric_list(const std::optional<DataFacts>& facts) {
    const std::optional<Targets> targets = facts ? std::optional(facts->targets()) : std::nullopt;
    check_metrics(config_["metrics"], targets, issues_);
    for (size_t i = 0; are_valid({"metrics"}) && facts && facts->classes > 0 && i < config_["metrics"].size(); ++i) {
      const Json& m = config_["metrics"][i];
      if (m["type"] == "top_k" && m["k"].get<int64_t>() > facts->classes)
        issues_.error(join_path(join_path("metrics", i), "k"),
                      "must be at most the number of classes, " + std::to_string(facts->classes) + ", got " + m["k"].dump());
    }
    if (are_valid({"metrics", "checkpoint"})) choose_monitors(targets);
  }

  // Returns the metric that is always computed for such data, or the loss.
  std::string first_choice(std::optional<Targets> targets) const {
    if (targets) {
      for (const NamedMetric& m : build_metrics(config_["metrics"], targets))
        if (m.always) return m.name;
    }
    return "loss";
  }

  // Chooses the values that decide about the best checkpoint and about stopping, and their direction.
  void choose_monitors(std::optional<Targets> targets) {
    Json& ck = config_["checkpoint"];
    if (ck["keep_best"].is_null()) ck["keep_best"] = config_["data"]["val"].is_null() ? 0 : 1;
    choose_monitor(ck, "checkpoint", ck["keep_best"] != 0, targets);
    Json& stop = config_["train"]["early_stopping"];
    if (!are_valid({"train"}) || stop.is_null()) return;
    if (stop["monitor"].is_null()) {
      if (!are_valid({"checkpoint"})) return;  // its error is the same
      stop["monitor"] = ck["monitor"];
      if (stop["mode"].is_null()) stop["mode"] = ck["mode"];
    }
    choose_monitor(stop, "train.early_stopping", true, targets);
  }

  void choose_monitor(Json& ck, const std::string& path, bool used, std::optional<Targets> targets) {
    const bool val = !config_["data"]["val"].is_null();
    if (ck["monitor"].is_null()) ck["monitor"] = !val ? "train/loss" : "val/" + first_choice(targets);
    const std::string what = ck["monitor"];
    bool more_is_better = false, known = false;  // known: a metric that fits the data
    std::vector<std::string> legal = {"val/loss"};
    for (const NamedMetric& m : build_metrics(config_["metrics"], {})) {
      if (what == "val/" + m.name) known = true, more_is_better = m.metric->more_is_better();
    }
    for (const NamedMetric& m : build_metrics(config_["metrics"], targets)) legal.push_back("val/" + m.name);
    legal.push_back("train/loss");
    const bool fits = std::find(legal.begin(), legal.end(), what) != legal.end();
    const char* better = more_is_better ? "max" : "min";
    if (ck["mode"].is_null()) ck["mode"] = better;
    const bool is_own =
        path == "checkpoint" || what != config_["checkpoint"]["monitor"] || ck["mode"] != config_["checkpoint"]["mode"];
    if ((known || fits) && ck["mode"] != better && is_own)
      issues_.warn(path + ".mode", "is " + ck["mode"].dump() + ", but " + what + " is better the " +
                                       (more_is_better ? "larger" : "smaller") + " it is");
    if (!known && !fits)
      return issues_.error(path + ".monitor",
                           "must be " + one_of(legal) + ", got " + ck["monitor"].dump() + did_you_mean(what, legal));
    if (!used) return;
    if (what.starts_with("val/") && !val) issues_.error(path + ".monitor", what + " needs data.val");
    if (path == "train.early_stopping" && never_evaluated(config_, what))
      issues_.error(path, "looks at " + what + ", but train.eval_every is \"never\"");
    if (!fits)
      issues_.error(path + ".monitor",
                    what + (targets == Targets::numbers ? " needs data with classes" : " needs numbers as targets"));
  }

  void infer_layers(RuleResult& out) {
    InferredModel inferred = infer_model(config_["model"], *out.facts, out.precision, "model", issues_);
    config_["model"] = inferred.model;
    if (!inferred.output) return;
    out.layers = inferred.layers;
    int64_t parameters = 0;
    for (const LayerRow& row : out.layers) {
      parameters += row.parameters;  // each below 2^62
      if (parameters > kMaxParameters)
        return issues_.error("model", "may have " + std::to_string(kMaxParameters) + " parameters, got more");
    }
    if (!are_valid({"loss"})) return;
    check_loss(config_["loss"], inferred, *out.facts, out.precision, issues_);
    check_last_layer(config_["loss"], out.layers, issues_);
  }

  const DataForm* known_;
};

}  // namespace

RuleResult apply_rules(Json& config, Issues& issues, const DataForm* known) { return Rules(config, issues, known).run(); }

}  // namespace halfstep::app
