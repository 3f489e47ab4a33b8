// SPDX-License-Identifier: Apache-2.0
#include <CLI/CLI.hpp>
#include <iostream>
#include <memory>
#include <string>
#include <vector>

#include "apps/catalog/class_weights.h"
#include "apps/catalog/datasets.h"
#include "apps/catalog/pictures.h"
#include "apps/catalog/weights.h"
#include "apps/commands/commands.h"
#include "apps/commands/options.h"
#include "apps/exit_codes.h"

namespace halfstep::app {
namespace {

struct ValidateArguments {
  std::vector<std::string> files;
  ConfigOptions config;
  bool json = false;
};

// Returns what the config's training data mean.
StoredData data_of(const Config& config) {
  const DefaultDevice on(Device::cpu);  // the model is on Device::meta
  const Json filled = with_statistics(config.json);
  return {build_dataset(filled, "train")->form(), prediction_transforms(filled)};
}

int validate_files(const ValidateArguments& arguments) {
  int code = kDone;
  for (const std::string& file : arguments.files) {
    try {
      Config config = load_config(file, arguments.config);
      PictureReport pictures;
      if (config.facts && config.data_fault.empty()) pictures = examine_pictures(config.json, {.seconds = kPictureSeconds});
      for (const std::string& warning : pictures.warnings()) config.warnings.push_back(joined(file, ": ", warning));
      config.data_fault += pictures.error();
      if (config.facts && config.data_fault.empty()) config.data_fault = fault_of_unread(config.json);
      const bool readable = config.data_fault.empty();
      const std::string notes = config.facts ? config.facts->notes.line() : "";
      const std::vector<std::string> class_weights =
          config.facts ? class_weight_lines(config.json, config.facts->names, nullptr) : std::vector<std::string>{};
      const DataOfModel data = readable ? DataOfModel([&] { return data_of(config); }) : DataOfModel();
      const std::vector<std::string> weights =
          config.facts ? check_weights(config.model, "model", data) : std::vector<std::string>{};
      if (arguments.json) {
        Json answer{{"file", file}, {"valid", true}, {"warnings", config.warnings}, {"config", config.json}};
        if (!readable) answer["data_error"] = config.data_fault;
        if (!weights.empty()) answer["weights"] = weights;
        if (pictures.pictures > 0)
          answer["pictures"] = {{"all", pictures.pictures}, {"opened", pictures.checked}, {"bad", pictures.bad}};
        if (!notes.empty()) answer["data"] = notes;
        if (!class_weights.empty()) answer["class_weights"] = class_weights;
        std::cout << line_of(answer) << '\n';
      } else {
        print_warnings(config);
        if (readable)
          std::cout << file << ": valid" << (config.facts ? "" : " (shapes not checked: the data files are not there)") << '\n';
        else
          std::cout << file << ": cannot be trained with: its keys are right, but its data cannot be read\n";
        if (!notes.empty()) std::cout << "  data.train: " << notes << '\n';
        if (pictures.pictures > 0)
          std::cout << "  " << pictures.opened(kPictureSeconds) << ", " << pictures.bad << " cannot be read\n";
        for (const std::string& line : class_weights) std::cout << "  " << line << '\n';
        for (const std::string& line : weights) std::cout << "  " << line << '\n';
      }
      if (!readable) {
        std::cerr << config.data_fault << '\n';
        if (code == kDone) code = kData;
      }
    } catch (const ConfigError& e) {
      if (arguments.json) std::cout << line_of(Json{{"file", file}, {"valid", false}, {"error", e.what()}}) << '\n';
      std::cerr << e.what() << '\n';
      code = kUsage;
    }
  }
  return code;
}

}  // namespace

void add_validate(CLI::App& program, Action& chosen) {
  auto arguments = std::make_shared<ValidateArguments>();
  CLI::App* command = program.add_subcommand("validate", "Check configs without running them");
  command->add_option("config", arguments->files, "JSON configs")->required();
  add_set(*command, arguments->config);
  command->add_flag("--json", arguments->json, "one JSON object for each config, with the resolved config");
  command->callback([arguments, &chosen] { chosen = [arguments] { return validate_files(*arguments); }; });
}

}  // namespace halfstep::app
