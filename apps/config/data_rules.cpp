// SPDX-License-Identifier: Apache-2.0
// Rules of the section "data".
#include "apps/catalog/datasets.h"
#include "apps/catalog/transforms.h"
#include "apps/config/rules.h"
#include "apps/config/shared_samples.h"
#include "framework/base/list_text.h"

namespace halfstep::app {
namespace {

bool sample_fits(const Json& shape) {
  int64_t values = 1;
  for (const Json& size : shape) {
    if (size.get<int64_t>() > kMaxSample / values) return false;
    values *= size.get<int64_t>();
  }
  return true;
}

class DataRules : private RuleSet {
 public:
  using RuleSet::RuleSet;

  void check_alone() {
    check_splits();
    check_held_out();
    check_streams();
  }

  void check_with(const DataFacts& facts) {
    check_batch_size(facts);
    check_class_users(facts);
  }

 private:
  void check_splits() {
    for (const char* split : {"train", "val", "test"}) {
      const std::string path = join_path("data", split);
      if (issues_.touches(path) || config_["data"][split].is_null()) continue;
      const Json& self = config_["data"][split];
      if (!(self["range"][0].get<double>() < self["range"][1].get<double>())) {
        issues_.error(path + ".range", "must go from a smaller to a larger fraction, got " + self["range"].dump());
      }
      check_parts(self, path);
      check_table(self, path);
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

  void check_table(const Json& self, const std::string& path) {
    if (!self.contains("delimiter")) return;
    const std::string delimiter = self["delimiter"];
    if (delimiter != "auto" && delimiter != "blanks" && (delimiter.size() != 1 || delimiter == "\n" || delimiter == "\""))
      issues_.error(path + ".delimiter", "must be one character, \"blanks\" or \"auto\", got " + self["delimiter"].dump());
    if (self["thousands"] == self["decimal"])
      issues_.error(path + ".thousands", "must not be decimal, too, which is " + self["decimal"].dump());
    if (self["type"] != "CSV") return;
    if (self["fill"] != 0.0 && self["missing"] != "constant")
      issues_.error(path + ".fill", "is for \"missing\": \"constant\", but missing is " + self["missing"].dump());
    if (self["unknown"] == "missing" && self["missing"] == "refuse")
      issues_.error(path + ".unknown", "is \"missing\", which needs a rule for missing values, but missing is \"refuse\"");
    if (!self["features"].empty() && !self["exclude"].empty())
      issues_.error(path + ".exclude", "must not be given together with features");
    check_texts(self, path);
    if (self["dates"].empty() && (self["dates_as"] != "number" || self["date_order"] != "ymd"))
      issues_.error(path + ".dates", "must name the columns that dates_as and date_order are for");
  }

  // Checks that texts are a table's only input.
  void check_texts(const Json& self, const std::string& path) {
    const bool has_texts = !self["texts"].empty();
    for (const Field& f : dataset_catalog().row(self).component.fields) {
      const bool of_texts = f.key == "tokenizer" || f.key == "seq_len" || f.key == "max_words" || f.key == "min_count" ||
                            f.key == "tokenizer_file",
                 of_others = f.key == "features" || f.key == "exclude" || f.key == "dates" || f.key == "categories" ||
                             f.key == "unknown" || f.key == "standardize" || f.key == "fill";
      if (self[f.key] == f.fallback || !(has_texts ? of_others : of_texts)) continue;
      issues_.error(join_path(path, f.key), has_texts ? "is for columns of numbers and categories, but texts are the whole input"
                                                      : "is for \"texts\", which names no column");
    }
    if (has_texts && (self["missing"] == "mean" || self["missing"] == "median"))
      issues_.error(path + ".missing", "of texts must be \"refuse\", \"drop_row\" or \"constant\" (a text without words), got " +
                                           self["missing"].dump());
    if (has_texts && self["tokenizer"] == "bpe" && self["tokenizer_file"].is_null() && path == "data.train")
      issues_.error(path + ".tokenizer_file", "must name the tokenizer of \"tokenizer\": \"bpe\"");
  }

  // Checks held-out data against the training data: no shared samples, and inputs of the same kind.
  void check_held_out() {
    if (!are_valid({"data.train"})) return;
    const Json& train = config_["data"]["train"];
    for (const char* split : {"val", "test"}) {
      const std::string path = join_path("data", split);
      const Json& self = config_["data"][split];
      if (self.is_null() || !are_valid({path.c_str()})) continue;
      for (size_t i = 0; i < self["transforms"].size(); ++i) {
        if (transform_catalog().row(self["transforms"][i]).softens_targets)
          issues_.error(join_path(path + ".transforms", i),
                        self["transforms"][i]["type"].get<std::string>() + " mixes samples, which is for data.train alone");
      }
      if (normalizes(train) && !normalizes(self))
        issues_.warn(path + ".transforms",
                     "has no Normalize, but data.train has: the model is evaluated on inputs of another scale");
      if (self["type"] != train["type"]) continue;
      for (const auto& [key, what] : {std::pair{"standardize", "inputs"}, {"standardize_target", "targets"}}) {
        if (self.contains(key) && self[key] != train[key])
          issues_.warn(join_path(path, key), joined("is ", self[key].dump(), ", but ", train[key].dump(),
                                                    " for data.train: the model is evaluated on ", what, " of another scale"));
      }
      check_shared(split);
    }
  }

  // Checks that a split has no samples of the training data.
  void check_shared(const std::string& split) {
    if (!are_valid({"data.root", "seed"})) return;
    const std::string path = join_path("data", split), trained_split = "train";
    const SplitRequest held_out{config_, split}, trained{config_, trained_split};
    const Json &fold = held_out.self()["fold"], &trained_fold = trained.self()["fold"];
    if (!fold.is_null() && fold != trained_fold && have_same_source(held_out, trained))
      return issues_.error(path + ".fold",
                           "must be that of data.train, " + trained_fold.dump() + ", or both share samples, got " + fold.dump());
    const SharedSamples shared = shared_samples(held_out, trained);
    if (!shared.any()) return;
    const char* const before_remedy = shared.key.empty() ? ": " : "; ";
    issues_.warn(shared.key.empty() ? path : join_path(path, shared.key),
                 shared.message + (shared.remedy.empty() ? "" : before_remedy + shared.remedy));
  }

  static bool normalizes(const Json& self) {
    return std::any_of(self["transforms"].begin(), self["transforms"].end(),
                       [](const Json& t) { return t["type"] == "Normalize"; });
  }

  // Checks "fold" and "stratified".
  void check_parts(const Json& self, const std::string& path) {
    const bool folds = !self["fold"].is_null(), full_range = self["range"] == Json{0.0, 1.0};
    if (folds && !full_range) issues_.error(path + ".fold", "must not be given together with range");
    if (folds && (self["fold"][1] < 2 || self["fold"][0] >= self["fold"][1]))
      issues_.error(path + ".fold", "must be [k, K] with 0 <= k < K and K >= 2, got " + self["fold"].dump());
    const bool cut_here = folds || (self["stratified"] == true && !full_range);
    if (cut_here && !dataset_catalog().row(self).takes_parts && self.contains("standardize") && self["standardize"] == true)
      issues_.error(path + ".standardize",
                    R"(would look at held-out data; use "transforms": [{"type": "Normalize", "from": "data"}])");
    if (self.contains("standardize_target") && self["standardize_target"] == true && self["task"] == "classification")
      issues_.error(path + ".standardize_target", "needs \"task\": \"regression\": classes have no scale");
    if (self["stratified"] == true && self.contains("task") && self["task"] == "regression")
      issues_.error(path + ".stratified", "needs data with classes");
  }

  // Returns ", a, b, c" for the names of classes, which weights are in the order of; "" without names.
  static std::string in_order(const std::vector<std::string>& names) { return names.empty() ? "" : ", " + list_text(names, 20); }

  // Checks transforms that make shares of classes, and samplers that weigh classes.
  void check_class_users(const DataFacts& facts) {
    const Json& transforms = config_["data"]["train"]["transforms"];
    for (size_t i = 0; i < transforms.size(); ++i) {
      if (!transform_catalog().row(transforms[i]).softens_targets || !are_valid({"loss"})) continue;
      if (config_["loss"]["type"] != "CrossEntropyLoss")
        issues_.error(join_path("data.train.transforms", i),
                      transforms[i]["type"].get<std::string>() +
                          " makes shares of classes, which CrossEntropyLoss takes, but loss is " +
                          config_["loss"]["type"].get<std::string>());
    }
    const Json& sampler = config_["data"]["loader"]["sampler"];
    if (sampler.is_null() || sampler["type"] != "weighted") return;
    if (facts.classes == 0) return issues_.error("data.loader.sampler", "weighted needs data with classes");
    const Json &weights = sampler["weights"], &draws = sampler["num_samples"];
    if (weights.is_array() && int64_t(weights.size()) != facts.classes) {
      issues_.error("data.loader.sampler.weights", joined("must have one number for each of the ", facts.classes, " classes",
                                                          in_order(facts.names), ", got ", weights.size()));
    } else if (weights.is_array() && std::all_of(weights.begin(), weights.end(), [](const Json& w) { return w == 0; })) {
      issues_.error("data.loader.sampler.weights", "must not all be 0");
    }
    if (sampler["replacement"] == false && facts.size && !draws.is_null() && draws.get<int64_t>() > *facts.size)
      issues_.error("data.loader.sampler.num_samples",
                    joined("must be at most the ", *facts.size, " samples of data.train without replacement, got ", draws.dump()));
  }

  // Checks data that is read in streams, which has an order of its own, and fills in the default of shuffle.
  void check_streams() {
    if (!are_valid({"data"})) return;
    Json& loader = config_["data"]["loader"];
    const bool stateful = loader["stateful"] == true;
    if (stateful && loader["shuffle"] == true)
      issues_.error("data.loader.shuffle", "must not be true with stateful: a batch starts where the one before it ended");
    if (stateful && !loader["sampler"].is_null())
      issues_.error("data.loader.sampler", "must not be given with stateful: a batch starts where the one before it ended");
    if (stateful && are_valid({"train"}) && !config_["train"]["checkpoint_activations"].empty())
      issues_.error("train.checkpoint_activations",
                    "must not be given with stateful, whose layers would advance their state twice");
    if (loader["shuffle"].is_null()) loader["shuffle"] = !stateful;
    for (const char* split : {"train", "val", "test"}) {
      const Json& self = config_["data"][split];
      if (stateful && !self.is_null() && !dataset_catalog().row(self).streams) {
        issues_.error("data.loader.stateful", joined("needs data that can be read in streams, which is Text, but data.", split,
                                                     " is ", self["type"].get<std::string>()));
      }
      if (stateful && !self.is_null() && (!self["fold"].is_null() || self["stratified"] == true))
        issues_.error(join_path("data", split), "fold and stratified take samples out of order, which stateful does not allow");
    }
  }

  void check_batch_size(const DataFacts& facts) {
    const int64_t batch = config_["data"]["loader"]["batch_size"];
    if (facts.size && *facts.size < 1) return issues_.error("data.train", "has no samples");
    if (facts.size && config_["data"]["loader"]["drop_last"] == true && batch > *facts.size) {
      issues_.error("data.loader.batch_size", "is " + std::to_string(batch) + ", but data.train has " +
                                                  std::to_string(*facts.size) + " samples: with drop_last there is no batch");
    }
  }
};

}  // namespace

void data_rules(Json& config, Issues& issues) { DataRules(config, issues).check_alone(); }
void data_rules(Json& config, const DataFacts& facts, Issues& issues) { DataRules(config, issues).check_with(facts); }

}  // namespace halfstep::app
