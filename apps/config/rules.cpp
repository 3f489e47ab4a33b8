#include "apps/config/rules.h"

#include <algorithm>
#include <filesystem>

#include "apps/catalog/datasets.h"
#include "apps/catalog/losses.h"
#include "apps/catalog/metrics.h"
#include "apps/catalog/optimizers.h"
#include "apps/catalog/transforms.h"
#include "apps/config/sections.h"
#include "apps/schema/suggest.h"

namespace halfstep::app {
namespace {

constexpr size_t kMaxName = 255, kMaxPath = 3500;  // bytes; Linux takes 4095 in all, and a run adds names of its own
constexpr int64_t kMaxParameters = int64_t(1) << 50;

bool sample_fits(const Json& shape) {
  int64_t values = 1;
  for (const Json& size : shape) {
    if (size.get<int64_t>() > kMaxSample / values) return false;
    values *= size.get<int64_t>();
  }
  return true;
}

class Rules {
 public:
  Rules(Json& config, Issues& issues) : c_(config), issues_(issues) {}

  RuleResult run() {
    length();
    output_dir();
    precision();
    schedule();
    ranges();
    streams();
    RuleResult out;
    if (clean({"data", "seed"})) facts(out);
    if (out.facts) {
      batches(*out.facts);
      class_users(*out.facts);
      if (clean({"model"})) model(out);
    }
    if (clean({"metrics", "data"})) metrics(out.facts);
    return out;
  }

 private:
  bool clean(std::initializer_list<const char*> paths) const {
    for (const char* p : paths) {
      if (issues_.touches(p)) return false;
    }
    return true;
  }

  void length() {
    if (!clean({"train"})) return;
    const Json& t = c_["train"];
    if (t["deterministic"] == false)
      issues_.error("train.deterministic",
                    "must be true: every run gives the same bits on every device, and none is faster without");
    if (t["overfit_batches"].is_number() && !c_["data"].is_null() && clean({"data"}) && !c_["data"]["loader"]["sampler"].is_null())
      issues_.error("train.overfit_batches", "must not be given together with data.loader.sampler");
    if (clean({"performance"}) && c_["performance"]["cuda_graph"] == true && !t["checkpoint_activations"].empty())
      issues_.error("performance.cuda_graph",
                    "must not be true together with train.checkpoint_activations, whose steps are not recorded");
    if (t["epochs"].is_null() && t["max_steps"].is_null()) issues_.error("train", "needs epochs or max_steps");
    if (!t["epochs"].is_null() && !t["max_steps"].is_null())
      issues_.error("train.max_steps", "must not be given together with epochs");
    if (t["ema"]["enabled"] == true && t["swa"]["enabled"] == true)
      issues_.error("train.swa", "must not be given together with ema: evaluations use one average");
  }

  // A name that no file system takes is found before anything is trained.
  void output_dir() {
    if (!clean({"output_dir"})) return;
    const std::filesystem::path path = c_["output_dir"].get<std::string>();
    const bool long_part = std::any_of(path.begin(), path.end(), [](const auto& p) { return p.native().size() > kMaxName; });
    if (path.empty()) issues_.error("output_dir", "must not be empty");
    if (long_part || path.native().size() > kMaxPath) {
      issues_.error("output_dir", "may have " + std::to_string(kMaxPath) + " bytes, and " + std::to_string(kMaxName) +
                                      " between two slashes, got " + std::to_string(path.native().size()));
    }
  }

  void precision() {
    if (clean({"device"})) {
      try {
        named_device(c_["device"]);
      } catch (const ConfigError& e) {
        issues_.error("device", "must be \"auto\", \"cpu\", \"cuda\" or \"cuda:N\", got " + c_["device"].dump());
      }
    }
    if (!clean({"amp", "device"})) return;
    const AmpSection amp = read_amp(c_["amp"]);
    const Device device = named_device(c_["device"]);
    const auto dtype = amp_dtype(amp, device);
    const bool scaled = scaler_options(amp, device).enabled;
    if (dtype == DType::f16 && !scaled) {
      issues_.warn("amp.scaler.enabled", "float16 without a gradient scaler loses small gradients; \"auto\" or true is safer");
    }
    if (dtype == DType::bf16 && scaled) {
      issues_.warn("amp.scaler.enabled", "bfloat16 has the range of float32 and needs no gradient scaler");
    }
  }

  void schedule() {
    if (!clean({"scheduler", "train"}) || !c_["scheduler"].is_object() || !c_["scheduler"].contains("T_max")) return;
    const Json& s = c_["scheduler"];
    Json end = s["interval"] == "step" ? s["T_max"] : Json();
    if (end.is_null() && s["T_max"].is_null()) end = c_["train"]["max_steps"];
    if (!end.is_null() && s["warmup_steps"].get<int64_t>() >= end.get<int64_t>()) {
      issues_.error("scheduler.warmup_steps",
                    "must be less than the " + end.dump() + " steps until the end, got " + s["warmup_steps"].dump());
    }
  }

  void ranges() {
    for (const char* split : {"train", "val", "test"}) {
      const std::string path = join_path("data", split);
      if (issues_.touches(path) || c_["data"][split].is_null()) continue;
      const Json& self = c_["data"][split];
      if (!(self["range"][0].get<double>() < self["range"][1].get<double>())) {
        issues_.error(path + ".range", "must go from a smaller to a larger fraction, got " + self["range"].dump());
      }
      parts(self, path);
      if (self.contains("delimiter") && self["delimiter"].get<std::string>().size() != 1) {
        issues_.error(path + ".delimiter", "must be one character, got " + self["delimiter"].dump());
      }
      for (const char* shape : {"input_shape", "target_shape"}) {
        if (!self.contains(shape) || sample_fits(self[shape])) continue;
        issues_.error(join_path(path, shape),
                      "a sample may have " + std::to_string(kMaxSample) + " values, got " + self[shape].dump());
      }
      if (self["type"] == "Random" && self["classes"] != 0 && !self["target_shape"].empty()) {
        issues_.error(path + ".target_shape", "must not be given together with classes");
      }
    }
  }

  // "fold" and "stratified".
  void parts(const Json& self, const std::string& path) {
    const bool folds = !self["fold"].is_null(), whole = self["range"] == Json{0.0, 1.0};
    if (folds && !whole) issues_.error(path + ".fold", "must not be given together with range");
    if (folds && (self["fold"][1] < 2 || self["fold"][0] >= self["fold"][1]))
      issues_.error(path + ".fold", "must be [k, K] with 0 <= k < K and K >= 2, got " + self["fold"].dump());
    const bool cut_here = folds || (self["stratified"] == true && !whole);
    if (cut_here && self.contains("standardize") && self["standardize"] == true)
      issues_.error(path + ".standardize",
                    R"(would look at held-out data; use "transforms": [{"type": "Normalize", "from": "data"}])");
    if (self["stratified"] == true && self.contains("task") && self["task"] == "regression")
      issues_.error(path + ".stratified", "needs data with classes");
  }

  // Transforms that make shares of classes, and samplers that weigh classes.
  void class_users(const DataFacts& facts) {
    const Json& transforms = c_["data"]["train"]["transforms"];
    for (size_t i = 0; i < transforms.size(); ++i) {
      if (!transform_catalog().row(transforms[i]).softens_targets || !clean({"loss"})) continue;
      if (c_["loss"]["type"] != "CrossEntropyLoss")
        issues_.error(join_path("data.train.transforms", i),
                      transforms[i]["type"].get<std::string>() +
                          " makes shares of classes, which CrossEntropyLoss takes, but loss is " +
                          c_["loss"]["type"].get<std::string>());
    }
    const Json& sampler = c_["data"]["loader"]["sampler"];
    if (sampler.is_null() || sampler["type"] != "weighted") return;
    if (facts.classes == 0) return issues_.error("data.loader.sampler", "weighted needs data with classes");
    if (sampler["weights"].is_array() && int64_t(sampler["weights"].size()) != facts.classes)
      issues_.error("data.loader.sampler.weights", "must have one number for each of the " + std::to_string(facts.classes) +
                                                       " classes, got " + std::to_string(sampler["weights"].size()));
  }

  // Data that is read in streams has an order of its own.
  void streams() {
    if (!clean({"data"})) return;
    Json& loader = c_["data"]["loader"];
    const bool stateful = loader["stateful"] == true;
    if (stateful && loader["shuffle"] == true)
      issues_.error("data.loader.shuffle", "must not be true with stateful: a batch goes on where the one before it ended");
    if (stateful && !loader["sampler"].is_null())
      issues_.error("data.loader.sampler", "must not be given with stateful: a batch goes on where the one before it ended");
    if (stateful && clean({"train"}) && !c_["train"]["checkpoint_activations"].empty())
      issues_.error("train.checkpoint_activations", "must not be given with stateful, whose layers would go on twice");
    if (loader["shuffle"].is_null()) loader["shuffle"] = !stateful;
    for (const char* split : {"train", "val", "test"}) {
      const Json& self = c_["data"][split];
      if (stateful && !self.is_null() && !dataset_catalog().row(self).streams) {
        issues_.error("data.loader.stateful", joined("needs data that can be read in streams, which is Text, but data.", split,
                                                     " is ", self["type"].get<std::string>()));
      }
      if (stateful && !self.is_null() && (!self["fold"].is_null() || self["stratified"] == true))
        issues_.error(join_path("data", split), "fold and stratified take samples out of order, which stateful does not allow");
    }
  }

  void facts(RuleResult& out) {
    try {
      out.facts = dataset_facts(c_, "train");
    } catch (const ConfigError& e) {  // columns that the file does not have
      issues_.error("data.train", e.what());
    } catch (const Error&) {
      // bad data, which the run itself reports as such
    }
    if (out.facts) hold(*out.facts);
    if (!out.facts || c_["data"]["val"].is_null()) return;
    try {
      const auto val = dataset_facts(c_, "val");
      if (val && (!(val->input == out.facts->input) || val->classes != out.facts->classes || !(val->target == out.facts->target) ||
                  val->vocabulary != out.facts->vocabulary)) {
        issues_.error("data.val", "must have the shapes and classes of data.train");
      }
    } catch (const ConfigError& e) { issues_.error("data.val", e.what()); } catch (const Error&) {
    }
  }

  // What was learnt from the training data about what its numbers stand for: held-out data is read alike, also where the training
  // data is no longer there.
  void hold(const DataFacts& facts) {
    Json& train = c_["data"]["train"];
    const Json tokens = stored_vocabulary(c_);
    if (!tokens.is_null()) train["vocabulary"] = tokens;
    const auto fill = [&](const char* key, int64_t value) {
      if (train.contains(key) && train[key].is_null() && value > 0) train[key] = value;
    };
    if (tokens.is_null()) fill("vocab_size", facts.vocabulary);
    fill("classes", facts.classes);
  }

  void batches(const DataFacts& facts) {
    const int64_t batch = c_["data"]["loader"]["batch_size"];
    if (facts.size && *facts.size < 1) return issues_.error("data.train", "has no samples");
    if (facts.size && c_["data"]["loader"]["drop_last"] == true && batch > *facts.size) {
      issues_.error("data.loader.batch_size", "is " + std::to_string(batch) + ", but data.train has " +
                                                  std::to_string(*facts.size) + " samples: with drop_last there is no batch");
    }
  }

  void metrics(const std::optional<DataFacts>& facts) {
    const std::optional<Targets> targets = facts ? std::optional(facts->targets()) : std::nullopt;
    check_metrics(c_["metrics"], targets, issues_);
    for (size_t i = 0; clean({"metrics"}) && facts && facts->classes > 0 && i < c_["metrics"].size(); ++i) {
      const Json& m = c_["metrics"][i];
      if (m["type"] == "top_k" && m["k"].get<int64_t>() > facts->classes)
        issues_.error(join_path(join_path("metrics", i), "k"),
                      "must be at most the number of classes, " + std::to_string(facts->classes) + ", got " + m["k"].dump());
    }
    if (clean({"metrics", "checkpoint"})) monitor(targets);
  }

  // The metric that is there for such data whatever a config lists, or the loss.
  std::string first_choice(std::optional<Targets> targets) const {
    if (targets) {
      for (const NamedMetric& m : build_metrics(c_["metrics"], targets))
        if (m.always) return m.name;
    }
    return "loss";
  }

  // Which values decide about the best checkpoint and about stopping, and which way.
  void monitor(std::optional<Targets> targets) {
    Json& ck = c_["checkpoint"];
    if (ck["keep_best"].is_null()) ck["keep_best"] = c_["data"]["val"].is_null() ? 0 : 1;
    monitored(ck, "checkpoint", ck["keep_best"] != 0, targets);
    Json& stop = c_["train"]["early_stopping"];
    if (clean({"train"}) && !stop.is_null()) monitored(stop, "train.early_stopping", true, targets);
  }

  void monitored(Json& ck, const std::string& path, bool used, std::optional<Targets> targets) {
    const bool val = !c_["data"]["val"].is_null();
    if (ck["monitor"].is_null()) ck["monitor"] = !val ? "train/loss" : "val/" + first_choice(targets);
    const std::string what = ck["monitor"];
    bool more_is_better = false, known = false;  // known: of data that it fits
    std::vector<std::string> legal = {"val/loss"};
    for (const NamedMetric& m : build_metrics(c_["metrics"], {})) {
      if (what == "val/" + m.name) known = true, more_is_better = m.metric->more_is_better();
    }
    for (const NamedMetric& m : build_metrics(c_["metrics"], targets)) legal.push_back("val/" + m.name);
    legal.push_back("train/loss");
    const bool fits = std::find(legal.begin(), legal.end(), what) != legal.end();
    if (ck["mode"].is_null()) ck["mode"] = more_is_better ? "max" : "min";
    if (!known && !fits)
      return issues_.error(path + ".monitor",
                           "must be " + one_of(legal) + ", got " + ck["monitor"].dump() + did_you_mean(what, legal));
    if (!used) return;
    if (what.starts_with("val/") && !val) issues_.error(path + ".monitor", what + " needs data.val");
    if (!fits)
      issues_.error(path + ".monitor",
                    what + (targets == Targets::numbers ? " needs data with classes" : " needs numbers as targets"));
  }

  std::optional<DType> low() const {
    if (!clean({"amp", "device"})) return {};
    return amp_dtype(read_amp(c_["amp"]), named_device(c_["device"]));
  }

  void model(RuleResult& out) {
    InferredModel inferred = infer_model(c_["model"], *out.facts, low(), "model", issues_);
    c_["model"] = inferred.model;
    if (!inferred.output) return;
    out.layers = inferred.layers;
    int64_t parameters = 0;
    for (const LayerRow& row : out.layers) {
      parameters += row.parameters;  // of a layer: below 2^62
      if (parameters > kMaxParameters)
        return issues_.error("model", "may have " + std::to_string(kMaxParameters) + " parameters, got more");
    }
    if (!clean({"loss"})) return;
    check_loss(c_["loss"], inferred, *out.facts, issues_);
    if (c_["loss"]["type"] == "CrossEntropyLoss" && !out.layers.empty() && out.layers.back().what.starts_with("Softmax")) {
      issues_.warn("model", "ends in Softmax, which CrossEntropyLoss applies itself; leave it out");
    }
  }

  Json& c_;
  Issues& issues_;
};

}  // namespace

RuleResult apply_rules(Json& config, Issues& issues) { return Rules(config, issues).run(); }

}  // namespace halfstep::app
