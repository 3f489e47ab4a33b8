#include "apps/catalog/optimizers.h"

#include <algorithm>

#include "apps/schema/pattern.h"

namespace halfstep::app {
namespace {

std::vector<Field> adam_fields(double weight_decay) {
  return {number("lr", 1e-3, "learning rate").at_least(0),
          list("betas", Json{0.9, 0.999}, number("", nullptr, "decay rate").at_least(0).below(1), "decay rates of the two moments")
              .items(2, 2),
          number("eps", 1e-8, "added to the denominator").at_least(0),
          number("weight_decay", weight_decay, "decay of the weights").at_least(0),
          boolean("amsgrad", false, "use the largest second moment seen"),
          boolean("maximize", false, "climb instead of descend")};
}

const Section& group_section() {
  static const Section section{"groups",
                               {pattern("match", nullptr, "found anywhere in a parameter's name").required(),
                                number("lr", nullptr, "learning rate of the group").at_least(0),
                                number("weight_decay", nullptr, "weight decay of the group").at_least(0)}};
  return section;
}

std::vector<ParamGroup> group_parameters(const Json& self, const Module& model) {
  struct Rule {
    Pattern match;
    ParamGroup decaying, other;  // other: biases and norms, when they are kept from decay
  };
  std::vector<Rule> rules;
  for (const Json& g : self["groups"]) {
    Rule rule{Pattern(g["match"].get<std::string>()), {}, {}};
    if (!g["lr"].is_null()) rule.decaying.lr = g["lr"].get<double>();
    if (!g["weight_decay"].is_null()) rule.decaying.weight_decay = g["weight_decay"].get<double>();
    rules.push_back(std::move(rule));
  }
  rules.push_back({Pattern(""), {}, {}});
  const bool spare = self["no_decay_norm_bias"] == true;
  for (Rule& r : rules) r.other = {{}, r.decaying.lr, 0.0};
  for (const NamedTensor& p : model.named_parameters()) {
    for (Rule& r : rules) {
      if (!r.match.found_in(p.name)) continue;
      (spare && p.tensor.dim() < 2 ? r.other : r.decaying).params.push_back(p.tensor);
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
  const auto all = model.parameters();
  check<ConfigError>(std::any_of(all.begin(), all.end(), [](const Tensor& p) { return p.requires_grad(); }), "optimizer",
                     "the model has no parameters to train: all are frozen", Help{"leave a layer out of freeze"});
  return out;
}

std::unique_ptr<Optimizer> make_sgd(const Json& self, std::vector<ParamGroup> groups) {
  return std::make_unique<SGD>(std::move(groups), SGDOptions{.lr = self["lr"],
                                                             .momentum = self["momentum"],
                                                             .dampening = self["dampening"],
                                                             .weight_decay = self["weight_decay"],
                                                             .nesterov = self["nesterov"],
                                                             .maximize = self["maximize"]});
}

template <class O>
std::unique_ptr<Optimizer> make_adam(const Json& self, std::vector<ParamGroup> groups) {
  return std::make_unique<O>(std::move(groups), AdamOptions{.lr = self["lr"],
                                                            .beta1 = self["betas"][0],
                                                            .beta2 = self["betas"][1],
                                                            .eps = self["eps"],
                                                            .weight_decay = self["weight_decay"],
                                                            .amsgrad = self["amsgrad"],
                                                            .maximize = self["maximize"]});
}

// Of step_size and T_max, in steps.
int64_t unit_of(const Json& self, const RunLength& run) { return self["interval"] == "epoch" ? run.steps_per_epoch : 1; }

std::unique_ptr<Schedule> make_cosine(const Json& self, Optimizer& optimizer, const RunLength& run) {
  const int64_t t_max = self["T_max"].is_null() ? run.total_steps : self["T_max"].get<int64_t>() * unit_of(self, run);
  const int64_t warmup = self["warmup_steps"];
  check<ConfigError>(warmup < t_max, "scheduler.warmup_steps", "must be less than the ", t_max, " steps until T_max, got ", warmup);
  return std::make_unique<CosineAnnealingLR>(optimizer, t_max, self["eta_min"].get<double>(), warmup);
}

}  // namespace

Catalog<OptimizerRow>& optimizer_catalog() {
  static Catalog<OptimizerRow>& all = *[] {
    auto* const made = new Catalog<OptimizerRow>(
        "optimizer",
        {list("groups", Json::array(), optional_section("", group_section(), "a group"),
              "parameters with their own lr or weight_decay")
             .items(0, 100),
         boolean("no_decay_norm_bias", false, "no weight decay for biases and norms (parameters with one dimension)")});
    made->add({{"SGD",
                "p -= lr (momentum buffer of) g",
                {number("lr", 1e-3, "learning rate").at_least(0),
                 number("momentum", 0.0, "share of the last step that is kept").at_least(0).below(1),
                 number("dampening", 0.0, "share of the gradient left out of the buffer"),
                 number("weight_decay", 0.0, "added to the gradient").at_least(0),
                 boolean("nesterov", false, "look one step ahead"), boolean("maximize", false, "climb instead of descend")}},
               make_sgd});
    made->add({{"Adam", "adaptive moments; weight decay in the gradient", adam_fields(0.0)}, make_adam<Adam>});
    made->add({{"AdamW", "adaptive moments; decoupled weight decay", adam_fields(0.01)}, make_adam<AdamW>});
    return made;
  }();
  return all;
}

std::unique_ptr<Optimizer> build_optimizer(const Json& self, const Module& model) {
  return optimizer_catalog().row(self).make(self, group_parameters(self, model));
}

Catalog<SchedulerRow>& scheduler_catalog() {
  static Catalog<SchedulerRow>& all = *[] {
    auto* const made =
        new Catalog<SchedulerRow>("scheduler", {choice("interval", "step", {"step", "epoch"}, "what step_size and T_max count")});
    made->add({{"StepLR",
                "lr gamma^(count / step_size)",
                {integer("step_size", nullptr, "steps or epochs, see interval").at_least(1).at_most(kMaxCount).required(),
                 number("gamma", 0.1, "factor").above(0)}},
               [](const Json& self, Optimizer& optimizer, const RunLength& run) {
                 return std::make_unique<StepLR>(optimizer, self["step_size"].get<int64_t>() * unit_of(self, run),
                                                 self["gamma"].get<double>());
               }});
    made->add({{"CosineAnnealingLR",
                "warm-up, then half a cosine down to eta_min",
                {integer("T_max", nullptr, "where eta_min is reached, in steps or epochs; left out: the end of training")
                     .at_least(1)
                     .at_most(kMaxCount),
                 number("eta_min", 0.0, "last learning rate").at_least(0),
                 integer("warmup_steps", 0, "steps from lr/warmup_steps up to lr").at_least(0).at_most(kMaxCount)}},
               make_cosine});
    return made;
  }();
  return all;
}

std::unique_ptr<Schedule> build_scheduler(const Json& self, Optimizer& optimizer, const RunLength& run) {
  return self.is_null() ? nullptr : scheduler_catalog().row(self).make(self, optimizer, run);
}

}  // namespace halfstep::app
