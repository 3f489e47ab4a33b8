// SPDX-License-Identifier: Apache-2.0
#include <CLI/CLI.hpp>
#include <algorithm>
#include <cmath>
#include <iostream>
#include <memory>

#include "apps/catalog/datasets.h"
#include "apps/catalog/losses.h"
#include "apps/catalog/optimizers.h"
#include "apps/commands/commands.h"
#include "apps/commands/options.h"
#include "apps/exit_codes.h"
#include "apps/run/evaluate.h"
#include "apps/run/model_file.h"
#include "apps/run/progress.h"
#include "apps/run/run_dir.h"
#include "apps/run/session.h"

namespace halfstep::app {
namespace {

struct EvalArguments {
  ModelOptions model;
  std::string split;
  ConfigOptions config;  // its sets
  bool json = false;
};

// Rows of numbers, in columns of one width.
void print_table(const MetricValue& m) {
  size_t width = 0;
  for (const Json& row : m.details)
    for (const Json& cell : row) width = std::max(width, cell.dump().size());
  std::cout << m.name << " (a row a class of the data, a column a class of the answer):\n";
  for (const Json& row : m.details) {
    for (const Json& cell : row) std::cout << ' ' << std::string(width - cell.dump().size(), ' ') << cell.dump();
    std::cout << '\n';
  }
}

// Data that the rules of the config did not look at must fit the model.
void check_alike(const Dataset& data, const DataForm& form, const Config& config, const std::string& split) {
  const DataFacts wanted = facts_of(form, config.json);
  check<DataError>(data.input_shape() == wanted.input && data.target_shape() == wanted.target && data.classes() == wanted.classes,
                   "eval", "data.", split, " must have the training data's input ", wanted.input, ", target ", wanted.target,
                   " and ", wanted.classes, " classes, but has ", data.input_shape(), ", ", data.target_shape(), " and ",
                   data.classes());
}

int eval(const EvalArguments& o) {
  apply_threads(o.model.threads);
  const auto replaced = replaced_run(o.model.path);
  if (replaced && list_checkpoints(o.model.path).empty()) {
    fail<CheckpointError>("eval", o.model.path, " holds no checkpoint yet: it is being overwritten",
                          Help{"the run that it held before is in " + replaced->string()});
  }
  const std::filesystem::path checkpoint = model_in_use(o.model.path);
  const StoredModel stored = load_model(checkpoint);
  const CheckpointContents& contents = stored.contents;
  const int64_t step = stored_step(contents);
  const std::optional<StoredData> data = stored_data(contents);
  const ConfigOptions options{
      .sets = o.config.sets, .no_amp = o.model.no_amp, .device = o.model.device, .known = data ? &data->form : nullptr};
  Config config = resolve_config(stored_config(contents), checkpoint.string(), options);
  apply_log_level(config.logging, true);
  std::string split = o.split;
  if (split.empty()) split = config.data.has("val") ? "val" : config.data.has("test") ? "test" : "train";
  check<ConfigError>(config.data.has(split), "eval", "the run must have data.", split, ", but has none",
                     Help{"--split val, test or train"});

  ModelParts parts = make_model(config);
  StateDict state;
  for (const auto& [name, tensor] : contents.model) state.push_back({name, tensor});
  const bool averaged = stored.averaged || (!o.model.trained_weights && use_averages(contents, state) > 0);
  parts.model->load_state_dict(state);
  config.data.loader.shuffle = config.data.loader.drop_last = false;
  config.data.loader.sampler = nullptr;
  const auto loader = make_loader(config, split, nullptr, options.known);
  if (data) check_alike(loader->dataset(), data->form, config, split);
  const auto metrics = make_metrics(config, loader->dataset());
  const EvalResult r = evaluate(*parts.model, *parts.loss, config.loss, metrics, *loader, parts.device, parts.region);

  if (o.json) {
    Json out = metrics_json(split, r.metrics);
    out.update(Json{{split + ".loss", std::isfinite(r.loss) ? Json(r.loss) : Json()},
                    {"samples", r.samples},
                    {"averaged_weights", averaged},
                    {"seconds", r.seconds},
                    {"step", step},
                    {"checkpoint", checkpoint.string()}});
    std::cout << out.dump() << '\n';
    return kDone;
  }
  std::cout << checkpoint.string() << " (step " << step << (averaged ? ", averaged weights" : "") << ") on " << split << ", "
            << r.samples << " samples: loss " << number_text(r.loss, 6);
  for (const MetricValue& m : r.metrics) {
    if (!m.in_lines()) continue;
    std::cout << ", " << m.name << ' ' << (m.is_share ? number_text(100 * m.value, 4) + " %" : number_text(m.value, 6));
  }
  std::cout << '\n';
  for (const MetricValue& m : r.metrics) {
    if (!m.details.is_null()) print_table(m);
  }
  return kDone;
}

}  // namespace

void add_eval(CLI::App& program, Action& chosen) {
  auto o = std::make_shared<EvalArguments>();
  CLI::App* c = program.add_subcommand("eval", "Evaluate a trained model");
  add_model(*c, o->model);
  c->add_option("--split", o->split, "data to evaluate on; default: val, else test")
      ->check(CLI::IsMember({"train", "val", "test"}));
  add_set(*c, o->config);
  c->add_flag("--json", o->json, "one JSON object");
  c->callback([o, &chosen] { chosen = [o] { return eval(*o); }; });
}

}  // namespace halfstep::app
