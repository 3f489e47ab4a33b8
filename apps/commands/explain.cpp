// SPDX-License-Identifier: Apache-2.0
#include "apps/config/explain.h"

#include <CLI/CLI.hpp>
#include <iostream>
#include <memory>
#include <string>
#include <vector>

#include "apps/commands/commands.h"
#include "apps/config/json_schema.h"
#include "apps/exit_codes.h"

namespace halfstep::app {

void add_explain(CLI::App& program, Action& chosen) {
  auto what = std::make_shared<std::vector<std::string>>();
  CLI::App* command = program.add_subcommand("explain", "Say what a key of configs, or a type of layer, loss or data, means");
  command
      ->add_option("key", *what,
                   "such as optimizer.momentum, Conv2d, Conv2d.padding, momentum or early stopping; default: all sections")
      ->type_name("KEY");
  command->callback([what, &chosen] {
    chosen = [what] {
      std::string words;
      for (const std::string& word : *what) words += (words.empty() ? "" : " ") + word;
      std::cout << explain(words);
      return kDone;
    };
  });
}

void add_schema(CLI::App& program, Action& chosen) {
  CLI::App* command =
      program.add_subcommand("schema", "Print the JSON Schema of configs, with which editors complete and check them");
  command->callback([&chosen] {
    chosen = [] {
      std::cout << line_of(config_schema()) << '\n';
      return kDone;
    };
  });
}

}  // namespace halfstep::app
