// SPDX-License-Identifier: Apache-2.0
// Rows of optimizers, and the parameter groups of a config.
#include "apps/catalog/optimizers.h"

#include <algorithm>
#include <set>
#include <utility>

#include "amp/step/param_groups.h"
#include "apps/catalog/option_fields.h"
#include "apps/schema/pattern.h"
#include "optim/lbfgs.h"
#include "optim/two_pass.h"

namespace halfstep::app {
namespace {

constexpr int kMaxGroups = 100;

Field groups_field(const Section& section) {
  return list("groups", Json::array(), optional_section("", section, "a group"), "parameters with options of their own, by name")
      .items(0, kMaxGroups);
}

// Makes the row of a library optimizer: every option is a field, and a field of each group.
template <class Class>
OptimizerRow row_of(std::string doc) {
  using O = typename Class::Options;
  auto& section = *new Section{"groups", {pattern("match", nullptr, "pattern to find in a parameter's name").required()}};  // kept
  std::vector<Field> fields;
  const FieldRules rules{.most = kMaxCount};
  for (const Option<O>& option : O::list()) {
    fields.push_back(field_of(option, option.get(O{}), rules));
    section.fields.push_back(field_of(option, {}, rules));  // without a default
  }
  fields.push_back(groups_field(section));
  OptimizerRow row{{O::kName, std::move(doc), std::move(fields)}, nullptr};
  row.options = [](const Json& self, const Json& group) -> std::any {
    O out;
    read_options(self, out);
    if (!group.is_null()) read_options(group, out);
    return out;
  };
  row.make = [options = row.options](const Json& self, std::vector<ParamGroup> groups) -> std::unique_ptr<Optimizer> {
    return std::make_unique<Class>(std::move(groups), std::any_cast<O>(options(self, Json())));
  };
  return row;
}

const Section& group_section() {
  static const Section section{"groups",
                               {pattern("match", nullptr, "pattern to find in a parameter's name").required(),
                                number("lr", nullptr, "learning rate of the group").at_least(0),
                                number("weight_decay", nullptr, "weight decay of the group").at_least(0)}};
  return section;
}

struct GroupRule {
  Pattern match;
  ParamGroup decaying, other;  // other: biases and norms, if they do not decay
};

// Returns a config's groups, without parameters, and a last one that matches all names.
std::vector<GroupRule> group_rules(const OptimizerRow& row, const Json& self) {
  std::vector<GroupRule> rules;
  for (const Json& g : self["groups"]) {
    GroupRule rule{Pattern(g["match"].get<std::string>()), {}, {}};
    if (row.options) {
      rule.decaying.options = row.options(self, g);
    } else {
      if (!g["lr"].is_null()) rule.decaying.lr = g["lr"].get<double>();
      if (!g["weight_decay"].is_null()) rule.decaying.weight_decay = g["weight_decay"].get<double>();
    }
    rules.push_back(std::move(rule));
  }
  rules.push_back({Pattern(""), {}, {}});
  for (GroupRule& r : rules) {
    r.other = r.decaying;
    r.other.weight_decay = 0.0;
  }
  return rules;
}

// Sorts the parameters by the first group that matches their names. With no_decay_norm_bias each group is split in two.
std::vector<ParamGroup> group_parameters(const OptimizerRow& row, const Json& self, const Module& model) {
  std::vector<GroupRule> rules = group_rules(row, self);
  const bool spares_some = self["no_decay_norm_bias"] == true;
  check<ConfigError>(!spares_some || !row.options || self.contains("weight_decay"), "optimizer", self["type"].get<std::string>(),
                     " has no weight decay that no_decay_norm_bias could spare a parameter");
  const std::vector<std::string> names = spares_some ? norms_and_biases(model) : std::vector<std::string>{};
  const std::set<std::string> spared(names.begin(), names.end());
  for (const NamedTensor& p : model.named_parameters()) {
    for (GroupRule& r : rules) {
      if (!r.match.found_in(p.name)) continue;
      (spared.contains(p.name) ? r.other : r.decaying).params.push_back(p.tensor);
      break;
    }
  }
  std::vector<ParamGroup> out;
  for (size_t i = 0; i < rules.size(); ++i) {
    if (i + 1 < rules.size() && rules[i].decaying.params.empty() && rules[i].other.params.empty()) {
      fail<ConfigError>("optimizer.groups", "match ", self["groups"][i]["match"].dump(),
                        " must be found in a parameter's name, but is in none");
    }
    for (ParamGroup* g : {&rules[i].decaying, &rules[i].other}) {
      if (!g->params.empty()) out.push_back(std::move(*g));
    }
  }
  check<ConfigError>(!out.empty(), "optimizer", "the model has no parameters to train");
  const auto parameters = model.parameters();
  const bool trains = std::any_of(parameters.begin(), parameters.end(), [](const Tensor& p) { return p.requires_grad(); });
  check<ConfigError>(trains, "optimizer", "the model has no parameters to train: all are frozen",
                     Help{"leave a layer out of freeze"});
  return out;
}

}  // namespace

Catalog<OptimizerRow>& optimizer_catalog() {
  static Catalog<OptimizerRow>& catalog = *[] {
    auto* const made = new Catalog<OptimizerRow>(
        "optimizer",
        {groups_field(group_section()),
         boolean("no_decay_norm_bias", false, "no weight decay for biases, and for the parameters of normalisations")});
    made->add(row_of<SGD>("p -= lr (momentum buffer of) g"));
    made->add(row_of<Adam>("adaptive moments; weight decay added to the gradient"));
    made->add(row_of<AdamW>("adaptive moments; decoupled weight decay"));
    made->add(row_of<NAdam>("Adam with Nesterov's momentum"));
    made->add(row_of<RAdam>("Adam that omits the second moment until its estimate is reliable"));
    made->add(row_of<Adamax>("Adam with the largest gradient, which fades, as second moment"));
    made->add(row_of<RMSprop>("the gradient over the root of its mean square"));
    made->add(row_of<Adagrad>("the gradient over the root of the sum of its squares"));
    made->add(row_of<Adadelta>("steps as large as the last ones, relative to the gradients"));
    made->add(row_of<ASGD>("SGD with a falling step and averaged weights"));
    made->add(row_of<Rprop>("a step size for each weight, by the signs of gradients; for full batches"));
    made->add(row_of<LBFGS>("quasi-Newton, several evaluations a step; for full batches, without a scaler"));
    made->add(row_of<Lion>("the sign of a moment; decoupled weight decay"));
    made->add(row_of<AdEMAMix>("AdamW with a second, slow moment"));
    made->add(row_of<LAMB>("Adam with steps in proportion to each tensor's norm, for large batches"));
    made->add(row_of<Muon>("momentum made orthogonal for matrices, AdamW for the rest"));
    made->add(row_of<Adafactor>("second moments of matrices by rows and columns, to save memory"));
    return made;
  }();
  return catalog;
}

std::unique_ptr<Optimizer> build_optimizer(const Json& self, const Module& model) {
  const OptimizerRow& row = optimizer_catalog().row(self);
  return row.make(self, group_parameters(row, self, model));
}

}  // namespace halfstep::app
