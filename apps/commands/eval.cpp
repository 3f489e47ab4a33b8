// SPDX-License-Identifier: Apache-2.0
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cmath>
#include <iostream>
#include <memory>

#include "apps/catalog/averages.h"
#include "apps/catalog/datasets.h"
#include "apps/catalog/losses.h"
#include "apps/catalog/optimizers.h"
#include "apps/commands/commands.h"
#include "apps/commands/options.h"
#include "apps/exit_codes.h"
#include "apps/record/metric_sinks.h"
#include "apps/record/run_dir.h"
#include "apps/session/evaluate.h"
#include "apps/session/seen_samples.h"
#include "apps/session/session.h"
#include "apps/terminal/cells.h"
#include "apps/terminal/quantity_text.h"
#include "apps/terminal/terminal.h"
#include "apps/use/model_file.h"
#include "framework/base/log.h"
#include "framework/data/loading/fingerprint.h"

namespace halfstep::app {
namespace {

struct EvalArguments {
  ModelOptions model;
  std::string split;
  ConfigOptions config;  // with the --set options
  bool json = false;
};

// Prints the pairs of classes that are confused most often.
void print_most_confused(const Json& counts, const std::vector<std::string>& names) {
  constexpr size_t kShown = 12;
  std::vector<std::pair<int64_t, std::string>> pairs;
  int64_t correct = 0;
  for (size_t i = 0; i < counts.size(); ++i)
    for (size_t c = 0; c < counts.size(); ++c) {
      const int64_t count = counts[i][c].get<int64_t>();
      if (i == c) correct += count;
      if (i != c && count > 0) pairs.emplace_back(count, names[i] + " taken for " + names[c]);
    }
  std::stable_sort(pairs.begin(), pairs.end(), [](const auto& a, const auto& b) { return a.first > b.first; });
  std::cout << "  the table is wider than the terminal (--json has it): " << correct << " are right, and most often wrong are\n";
  for (size_t i = 0; i < std::min(kShown, pairs.size()); ++i)
    std::cout << "  " << pairs[i].first << "  " << pairs[i].second << '\n';
  if (pairs.size() > kShown) std::cout << "  and " << pairs.size() - kShown << " pairs more\n";
}

// Prints the table; if the terminal is too narrow for it, with numbers instead of names, or else only the most frequent errors.
void print_confusion(const Json& counts, const DataForm& form, size_t width) {
  constexpr size_t kNameWidth = 16;  // columns of a class's name
  std::cout << "confusion matrix (a row: what it is, a column: what the model answers)\n";
  std::vector<std::string> names, heads;
  for (size_t c = 0; c < counts.size(); ++c) {
    names.push_back(in_line(form.class_name(int64_t(c))));
    heads.push_back(names[c]);
  }
  const auto table = [&](const std::vector<std::string>& rows) {
    Cells cells{{""}};
    for (const std::string& h : heads) cells[0].push_back(shortened(h, kNameWidth));
    for (size_t i = 0; i < counts.size(); ++i) {
      cells.push_back({shortened(rows[i], kNameWidth)});
      for (const Json& n : counts[i]) cells.back().push_back(n.dump());
    }
    return cells;
  };
  const auto columns_in = [](const Cells& cells) {
    size_t sum = 0;
    for (size_t c = 0; c < cells[0].size(); ++c) {
      size_t most = 0;
      for (const auto& row : cells) most = std::max(most, columns_of(row[c]));
      sum += most + 2;
    }
    return sum;
  };
  Cells cells = table(names);
  if (width > 0 && columns_in(cells) > width) {  // replaces names by numbers
    std::vector<std::string> rows;
    for (size_t c = 0; c < names.size(); ++c) heads[c] = std::to_string(c), rows.push_back(heads[c] + ' ' + names[c]);
    cells = table(rows);
  }
  if (width > 0 && columns_in(cells) > width) return print_most_confused(counts, names);
  CellsFit fit;
  for (size_t c = 1; c < cells[0].size(); ++c) fit.right.push_back(c);
  print_cells(std::cout, cells, fit);
}

// Throws DataError for data whose shapes and classes differ from the training data's: the config's checks did not read it.
void check_same_facts(const Dataset& data, const DataForm& form, const Config& config, const std::string& split) {
  const DataFacts wanted = facts_of(form, config.json);
  check<DataError>(data.input_shape() == wanted.input && data.target_shape() == wanted.target && data.classes() == wanted.classes,
                   "eval", "data.", split, " must have the training data's input ", wanted.input, ", target ", wanted.target,
                   " and ", wanted.classes, " classes, but has ", data.input_shape(), ", ", data.target_shape(), " and ",
                   data.classes());
}

// Warns of unusual data, and of samples that the model was trained on.
void warn_of_data(const DataLoader<>& loader, const Config& config, const std::string& split, const CheckpointContents& contents,
                  const DataForm* form) {
  for (const std::string& w : loader.dataset().notes().warnings) logging::warn(joined("data.", split, ": ", w));
  const TrainedRun run = trained_run(contents, form);
  const std::string seen = seen_samples(config.json, split, run, split == "train" ? "" : fingerprint(loader.dataset()));
  if (!seen.empty())
    logging::warn(seen + "; these values say nothing about new data: evaluate rows or files that data.train did not have");
  for (const std::string& change : run.past.lines()) logging::warn(change);
}

// Prints the metrics, loss first, and then their tables.
void print_metrics(const EvalResult& r, const DataForm& form) {
  constexpr size_t kAllColumns = 1000;  // of a table, in the lines of metrics by column
  for (const MetricValue& m : r.metrics) {
    if (!m.in_lines()) continue;
    std::cout << ", " << m.name << ' ' << (m.is_share ? number_text(100 * m.value, 4) + " %" : number_text(m.value, 6))
              << last_value_text(m);
  }
  std::cout << '\n';
  for (const std::string& line : lines_by_column(r.metrics, kAllColumns)) std::cout << line << '\n';
  for (const MetricValue& m : r.metrics) {
    if (m.details.is_null()) continue;
    if (is_confusion_matrix(m.details))
      print_confusion(m.details, form, terminal_width(STDOUT_FILENO));
    else
      std::cout << m.name << ": " << m.details.dump() << '\n';
  }
}

// Lets a split be read once, in order; with train.overfit_batches, the batches that training chose, unless `sets` has other data.
void read_in_order(Config& config, const std::string& split, const std::vector<std::string>& sets) {
  const std::string part = "data." + split;
  if (config.train.overfit_batches && split != "test") {
    const bool reads_other = std::any_of(sets.begin(), sets.end(), [&](const std::string& set) { return set.starts_with(part); });
    if (reads_other) config.train.overfit_batches.reset();
    std::cerr << (reads_other ? part + " is read whole: train.overfit_batches is left out with --set " + part + '\n'
                              : "train.overfit_batches: these are the samples of data.train that the run was trained on\n");
  }
  if (!config.train.overfit_batches) config.data.loader.shuffle = false;  // it chooses the batches of train.overfit_batches
  config.data.loader.drop_last = false;
  config.data.loader.sampler = nullptr;
}

int eval(const EvalArguments& arguments) {
  apply_threads(arguments.model.threads);
  const auto replaced = replaced_run(arguments.model.path);
  if (replaced && list_checkpoints(arguments.model.path).empty()) {
    fail<CheckpointError>("eval", arguments.model.path, " holds no checkpoint yet: it is being overwritten",
                          Help{"the run that it held before is in " + replaced->string()});
  }
  const StoredModel stored = load_model(arguments.model.path);
  const std::filesystem::path& checkpoint = stored.path;
  const CheckpointContents& contents = stored.contents;
  const int64_t step = stored_step(contents);
  const std::optional<StoredData> data = stored_data(contents);
  const ConfigOptions options{.sets = arguments.config.sets,
                              .no_amp = arguments.model.no_amp,
                              .device = arguments.model.device,
                              .form = data ? &data->form : nullptr};
  Config config = resolve_config(stored_config(contents), checkpoint.string(), options);
  apply_log_level(config.logging, true);
  std::string split = arguments.split;
  if (split.empty()) split = config.data.has("val") ? "val" : config.data.has("test") ? "test" : "train";
  check<ConfigError>(config.data.has(split), "eval", "the run must have data.", split, ", but has none",
                     Help{"--split val, test or train"});

  ModelParts parts = make_model(config);
  StateDict state;
  for (const auto& [name, tensor] : contents.model) state.push_back({name, tensor});
  const bool averaged = stored.averaged || (!arguments.model.trained_weights && use_averages(contents, state) > 0);
  parts.model->load_state_dict(state);
  read_in_order(config, split, arguments.config.sets);
  const auto loader = make_loader(config, split, nullptr, options.form);
  if (data) check_same_facts(loader->dataset(), data->form, config, split);
  warn_of_data(*loader, config, split, contents, options.form);
  const auto metrics = make_metrics(config, loader->dataset());
  const EvalResult r = evaluate(*parts.model, *parts.loss, config.loss, metrics, *loader, parts.device, parts.region);

  if (arguments.json) {
    Json out = metrics_json(split, r.metrics);
    out.update(Json{{split + ".loss", std::isfinite(r.loss) ? Json(r.loss) : Json()},
                    {"samples", r.samples},
                    {"averaged_weights", averaged},
                    {"seconds", r.seconds},
                    {"step", step},
                    {"checkpoint", checkpoint.string()}});
    if (r.ignored > 0) out.update(Json{{"labels", r.labels}, {"ignored_labels", r.ignored}});
    std::cout << out.dump() << '\n';
    return kDone;
  }
  std::string left_out;
  if (r.ignored > 0) left_out = joined(", ", r.ignored, " of ", r.labels, " labels left out (loss.ignore_index)");
  std::cout << checkpoint.string() << " (step " << step << (averaged ? ", averaged weights" : "") << ") on " << split << ", "
            << r.samples << " samples" << left_out << ": loss " << number_text(r.loss, 6);
  print_metrics(r, loader->dataset().form());
  return kDone;
}

}  // namespace

void add_eval(CLI::App& program, Action& chosen) {
  auto arguments = std::make_shared<EvalArguments>();
  CLI::App* command = program.add_subcommand("eval", "Evaluate a trained model");
  add_model(*command, arguments->model);
  command->add_option("--split", arguments->split, "data to evaluate on; default: val, else test")
      ->check(CLI::IsMember({"train", "val", "test"}));
  add_set(*command, arguments->config);
  command->add_flag("--json", arguments->json, "one JSON object");
  command->callback([arguments, &chosen] { chosen = [arguments] { return eval(*arguments); }; });
}

}  // namespace halfstep::app
