// SPDX-License-Identifier: Apache-2.0
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <filesystem>
#include <iostream>
#include <memory>

#include "apps/commands/commands.h"
#include "apps/commands/options.h"
#include "apps/examine/inspect_data.h"
#include "apps/examine/inspect_model.h"
#include "apps/exit_codes.h"
#include "apps/terminal/terminal.h"
#include "framework/io/weights/weight_file.h"

namespace halfstep::app {
namespace {

struct InspectArguments {
  std::string file, split = "train", out;
  ConfigOptions config;
  std::optional<int> threads;
  bool json = false;
};

int inspect(const InspectArguments& arguments) {
  apply_threads(arguments.threads);
  const Config config = load_config(arguments.file, arguments.config);
  print_warnings(config);
  apply_log_level(config.logging, true);
  check<ConfigError>(config.data.has(arguments.split), "inspect", "the config must have data.", arguments.split, ", but has none",
                     Help{"--split train, val or test"});
  const DataReport report = inspect_data(config, arguments.split);
  SampleSheet sheet;
  if (!arguments.out.empty()) {
    sheet = sample_sheet(config, arguments.split);
    save_png(arguments.out, sheet.picture);
  }
  if (arguments.json) {
    std::cout << line_of(report_json(report)) << '\n';
    return kDone;
  }
  print_report(std::cout, report);
  if (!arguments.out.empty()) {
    std::cout << "samples: " << arguments.out;
    for (size_t row = 0; row < sheet.rows.size(); ++row)
      std::cout << (row == 0 ? ", a row for each class, from the top: " : ", ") << in_line(sheet.rows[row]);
    std::cout << '\n';
  }
  return kDone;
}

int inspect_stored(const std::string& path, const std::string& key, bool values, bool json) {
  check<ConfigError>(!path.empty(), "inspect", "needs a run, a checkpoint, a file, or data and a config",
                     Help{"halfstep inspect runs/digits_mlp, or halfstep inspect data config.json"});
  check<ConfigError>(std::filesystem::path(path).extension() != ".json" || is_weight_index(path), "inspect", path, " is a config",
                     Help{"halfstep inspect data " + path + " shows its data, halfstep plan its model"});
  const Json report = inspect_model(path, values, key);
  if (json)
    std::cout << line_of(report) << '\n';
  else
    print_model_report(std::cout, report, terminal_width(STDOUT_FILENO));
  return kDone;
}

}  // namespace

void add_inspect(CLI::App& program, Action& chosen) {
  auto arguments = std::make_shared<InspectArguments>();
  CLI::App* all = program.add_subcommand("inspect", "Show what a run, a checkpoint or a file of weights holds, or a config's data");
  all->require_subcommand(0, 1);
  struct Stored {
    std::string path, key;
    bool values = false, json = false;
  };
  auto stored = std::make_shared<Stored>();
  all->add_option("path", stored->path,
                  "a run's folder, a checkpoint, a file of safetensors or of torch.save (.pt), or a folder or index of such");
  all->add_option("--key", stored->key, "which dictionary of tensors, of a .pt file that has several: ema/state_dict");
  all->add_flag("--values", stored->values, "also the least, largest and mean value of each tensor, and NaN");
  all->add_flag("--json", stored->json, "one JSON object");
  all->callback([all, stored, &chosen] {
    if (all->get_subcommands().empty())
      chosen = [stored] { return inspect_stored(stored->path, stored->key, stored->values, stored->json); };
  });
  CLI::App* command = all->add_subcommand("data", "Counts, classes, statistics, duplicates, and a picture of samples");
  command->add_option("config", arguments->file, "a JSON config")->required();
  add_set(*command, arguments->config);
  command->add_option("--split", arguments->split, "which data")
      ->check(CLI::IsMember({"train", "val", "test"}))
      ->capture_default_str();
  command->add_option("--out", arguments->out, "write samples after transforms to this PNG file")->type_name("FILE");
  command->add_flag("--json", arguments->json, "one JSON object");
  add_threads(*command, arguments->threads);
  command->callback([arguments, &chosen] { chosen = [arguments] { return inspect(*arguments); }; });
}

}  // namespace halfstep::app
