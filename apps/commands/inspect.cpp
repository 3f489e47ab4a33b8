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

int inspect(const InspectArguments& o) {
  apply_threads(o.threads);
  const Config config = load_config(o.file, o.config);
  print_warnings(config);
  apply_log_level(config.logging, true);
  check<ConfigError>(config.data.has(o.split), "inspect", "the config must have data.", o.split, ", but has none",
                     Help{"--split train, val or test"});
  const DataReport report = inspect_data(config, o.split);
  SampleSheet sheet;
  if (!o.out.empty()) {
    sheet = sample_sheet(config, o.split);
    save_png(o.out, sheet.picture);
  }
  if (o.json) {
    std::cout << line_of(report_json(report)) << '\n';
    return kDone;
  }
  print_report(std::cout, report);
  if (!o.out.empty()) {
    std::cout << "samples: " << o.out;
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
  auto o = std::make_shared<InspectArguments>();
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
  CLI::App* c = all->add_subcommand("data", "Counts, classes, statistics, duplicates, and a picture of samples");
  c->add_option("config", o->file, "a JSON config")->required();
  add_set(*c, o->config);
  c->add_option("--split", o->split, "which data")->check(CLI::IsMember({"train", "val", "test"}))->capture_default_str();
  c->add_option("--out", o->out, "write samples after transforms to this PNG file")->type_name("FILE");
  c->add_flag("--json", o->json, "one JSON object");
  add_threads(*c, o->threads);
  c->callback([o, &chosen] { chosen = [o] { return inspect(*o); }; });
}

}  // namespace halfstep::app
