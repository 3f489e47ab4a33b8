#include "apps/build/training_parts.h"

#include <re2/re2.h>

#include <sstream>

namespace halfstep::app {
namespace {

constexpr size_t kMaxPattern = 1000, kMaxGroups = 100;

// The training step weighs batches by their samples, which takes a mean.
Field reduction() { return not_yet("reduction", "mean", "another reduction"); }

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
                               {text("match", nullptr, "regular expression (RE2), found anywhere in a parameter's name").required(),
                                number("lr", nullptr, "learning rate of the group").at_least(0),
                                number("weight_decay", nullptr, "weight decay of the group").at_least(0)}};
  return section;
}

// Patterns come with configs from anywhere, so they are RE2's: it finds them in time proportional to the name, whatever the
// pattern, and bounds its memory, where a matcher that backtracks can be made to run for years.
std::unique_ptr<RE2> compiled(const std::string& pattern) {
  RE2::Options options(RE2::Quiet);
  options.set_max_mem(1 << 20);
  return std::make_unique<RE2>(pattern, options);
}

std::vector<ParamGroup> group_parameters(const Json& self, const Module& model) {
  struct Rule {
    std::unique_ptr<RE2> match;
    ParamGroup decaying, other;  // other: biases and norms, when they are kept from decay
  };
  std::vector<Rule> rules;
  for (const Json& g : self["groups"]) {
    Rule rule{compiled(g["match"].get<std::string>()), {}, {}};
    if (!g["lr"].is_null()) rule.decaying.lr = g["lr"].get<double>();
    if (!g["weight_decay"].is_null()) rule.decaying.weight_decay = g["weight_decay"].get<double>();
    rules.push_back(std::move(rule));
  }
  rules.push_back({compiled(""), {}, {}});
  const bool spare = self["no_decay_norm_bias"] == true;
  for (Rule& r : rules) r.other = {{}, r.decaying.lr, 0.0};
  for (const NamedTensor& p : model.named_parameters()) {
    for (Rule& r : rules) {
      if (!RE2::PartialMatch(p.name, *r.match)) continue;
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
  return out;
}

}  // namespace

const Family& loss_family() {
  static const Family family{
      "loss",
      {{"MSELoss", "mean of (output - target)^2", {reduction()}},
       {"CrossEntropyLoss",
        "negative log-likelihood of the class under softmax(output)",
        {reduction(), number("label_smoothing", 0.0, "share spread over all classes").at_least(0).at_most(1),
         integer("ignore_index", -100, "class that is not counted"), not_yet("weight", nullptr, "CrossEntropyLoss weight")}}},
      {},
      {"L1Loss", "SmoothL1Loss", "HuberLoss", "NLLLoss", "BCELoss", "BCEWithLogitsLoss", "KLDivLoss", "CTCLoss"}};
  return family;
}

std::unique_ptr<Loss> build_loss(const Json& loss) {
  if (loss["type"] == "MSELoss") return std::make_unique<MSELoss>();
  CrossEntropyOptions options;
  options.label_smoothing = loss["label_smoothing"];
  options.ignore_index = loss["ignore_index"];
  return std::make_unique<CrossEntropyLoss>(options);
}

void check_loss(const Json& loss, const Shape& output, const DataFacts& facts, Issues& issues) {
  std::ostringstream text;
  if (loss["type"] == "CrossEntropyLoss") {
    if (facts.classes == 0) {
      issues.error("loss", "CrossEntropyLoss needs data with classes, but data.train has numbers as targets; use \"MSELoss\"");
    } else if (output.size() != 1 || output[0] < facts.classes) {
      text << "the output must have shape [" << facts.classes << "], one a class, got " << output;
      if (output.size() > 1) text << "; put \"Flatten\" before the last Linear";
      issues.error("model", text.str());
    } else if (output[0] > facts.classes) {
      text << "the output has " << output[0] << " values for " << facts.classes << " classes";
      issues.warn("model", text.str());
    }
  } else if (facts.classes > 0) {
    issues.error("loss", loss["type"].get<std::string>() +
                             " needs numbers as targets, but data.train has classes; use \"CrossEntropyLoss\"");
  } else if (!(output == facts.target)) {
    text << "the output must have the target's shape " << facts.target << ", got " << output;
    issues.error("model", text.str());
  }
}

const Family& optimizer_family() {
  static const Family family{
      "optimizer",
      {{"SGD",
        "p -= lr (momentum buffer of) g",
        {number("lr", 1e-3, "learning rate").at_least(0),
         number("momentum", 0.0, "share of the last step that is kept").at_least(0).below(1),
         number("dampening", 0.0, "share of the gradient left out of the buffer"),
         number("weight_decay", 0.0, "added to the gradient").at_least(0), boolean("nesterov", false, "look one step ahead"),
         boolean("maximize", false, "climb instead of descend")}},
       {"Adam", "adaptive moments; weight decay in the gradient", adam_fields(0.0)},
       {"AdamW", "adaptive moments; decoupled weight decay", adam_fields(0.01)}},
      {list("groups", Json::array(), optional_section("", group_section(), "a group"),
            "parameters with their own lr or weight_decay"),
       boolean("no_decay_norm_bias", false, "no weight decay for biases and norms (parameters with one dimension)")},
      {"RMSprop", "Adagrad", "Adadelta", "Adamax", "NAdam", "RAdam", "LBFGS", "Lion", "LAMB", "Muon", "Adafactor"}};
  return family;
}

void check_groups(const Json& groups, Issues& issues) {
  if (groups.size() > kMaxGroups) {
    return issues.error("optimizer.groups",
                        "may have " + std::to_string(kMaxGroups) + " entries, got " + std::to_string(groups.size()));
  }
  for (size_t i = 0; i < groups.size(); ++i) {
    const std::string path = join_path(join_path("optimizer.groups", i), "match");
    const Json& match = groups[i]["match"];
    if (match.get_ref<const std::string&>().size() > kMaxPattern) {
      issues.error(path, "must not be longer than " + std::to_string(kMaxPattern) + " bytes");
    } else if (const auto pattern = compiled(match.get<std::string>()); !pattern->ok()) {
      issues.error(path, "must be a regular expression, got " + match.dump() + ": " + pattern->error());
    }
  }
}

std::unique_ptr<Optimizer> build_optimizer(const Json& self, const Module& model) {
  std::vector<ParamGroup> groups = group_parameters(self, model);
  if (self["type"] == "SGD") {
    return std::make_unique<SGD>(std::move(groups), SGDOptions{.lr = self["lr"],
                                                               .momentum = self["momentum"],
                                                               .dampening = self["dampening"],
                                                               .weight_decay = self["weight_decay"],
                                                               .nesterov = self["nesterov"],
                                                               .maximize = self["maximize"]});
  }
  const AdamOptions options{.lr = self["lr"],
                            .beta1 = self["betas"][0],
                            .beta2 = self["betas"][1],
                            .eps = self["eps"],
                            .weight_decay = self["weight_decay"],
                            .amsgrad = self["amsgrad"],
                            .maximize = self["maximize"]};
  if (self["type"] == "Adam") return std::make_unique<Adam>(std::move(groups), options);
  return std::make_unique<AdamW>(std::move(groups), options);
}

const Family& scheduler_family() {
  static const Family family{
      "scheduler",
      {{"StepLR",
        "lr gamma^(count / step_size)",
        {integer("step_size", nullptr, "steps or epochs, see interval").at_least(1).at_most(kMaxCount).required(),
         number("gamma", 0.1, "factor").above(0)}},
       {"CosineAnnealingLR",
        "warm-up, then half a cosine down to eta_min",
        {integer("T_max", nullptr, "where eta_min is reached, in steps or epochs; left out: the end of training")
             .at_least(1)
             .at_most(kMaxCount),
         number("eta_min", 0.0, "last learning rate").at_least(0),
         integer("warmup_steps", 0, "steps from lr/warmup_steps up to lr").at_least(0).at_most(kMaxCount)}}},
      {choice("interval", "step", {"step", "epoch"}, "what step_size and T_max count")},
      {"MultiStepLR", "ExponentialLR", "CosineAnnealingWarmRestarts", "OneCycleLR", "PolynomialLR", "LinearLR", "ConstantLR",
       "CyclicLR", "ReduceLROnPlateau", "SequentialLR"}};
  return family;
}

std::unique_ptr<Schedule> build_scheduler(const Json& self, Optimizer& optimizer, int64_t steps_per_epoch, int64_t total_steps) {
  if (self.is_null()) return nullptr;
  const int64_t unit = self["interval"] == "epoch" ? steps_per_epoch : 1;
  if (self["type"] == "StepLR")
    return std::make_unique<StepLR>(optimizer, self["step_size"].get<int64_t>() * unit, self["gamma"].get<double>());
  const int64_t t_max = self["T_max"].is_null() ? total_steps : self["T_max"].get<int64_t>() * unit;
  const int64_t warmup = self["warmup_steps"];
  check<ConfigError>(warmup < t_max, "scheduler.warmup_steps", "must be less than the ", t_max, " steps until T_max, got ", warmup);
  return std::make_unique<CosineAnnealingLR>(optimizer, t_max, self["eta_min"].get<double>(), warmup);
}

}  // namespace halfstep::app
