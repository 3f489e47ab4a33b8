// SPDX-License-Identifier: Apache-2.0
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <filesystem>
#include <iostream>
#include <memory>

#include "apps/commands/commands.h"
#include "apps/exit_codes.h"
#include "apps/schema/shell_word.h"
#include "apps/start/init_config.h"
#include "apps/terminal/terminal.h"
#include "framework/io/files/atomic_file.h"

namespace halfstep::app {
namespace {

struct InitArguments {
  std::string data, out;
  InitWishes wishes;
  bool replace = false;
};

int init(const InitArguments& arguments) {
  check<ConfigError>(arguments.out.empty() || arguments.replace || !std::filesystem::exists(arguments.out), "init", arguments.out,
                     " exists", Help{"--replace replaces it"});
  const InitConfig config = init_config(arguments.data, arguments.wishes);
  const std::string file = arguments.out.empty() ? config.name + ".json" : arguments.out, word = shell_word(file);
  if (arguments.out.empty())
    std::cout << with_fitting_comments(config.text, terminal_width(STDOUT_FILENO));
  else
    atomic_write(arguments.out, config.text);
  std::cerr << config.what << '\n';
  for (const std::string& note : config.notes) std::cerr << "  " << note << '\n';
  std::cerr << (arguments.out.empty() ? "Store the config with --out " + word + ", then:\n" : "Wrote " + file + "; next:\n")
            << "  halfstep inspect data " << word << "   describe the data\n"
            << "  halfstep validate " << word << "       check the config\n"
            << "  halfstep train " << word << '\n';
  return kDone;
}

}  // namespace

void add_init(CLI::App& program, Action& chosen) {
  auto arguments = std::make_shared<InitArguments>();
  CLI::App* command =
      program.add_subcommand("init", "Look at data and print a first config for it, with the reason of each choice");
  command
      ->add_option(
          "data", arguments->data,
          "a table, series or text, .npz or .safetensors arrays, a folder of pictures in folders of classes, or a folder with "
          "MNIST's or CIFAR-10's files")
      ->required();
  command
      ->add_option("--target", arguments->wishes.target,
                   "the column of a table, or the array, that is to be predicted; by name or number")
      ->type_name("COLUMN");
  command->add_option("--task", arguments->wishes.task, "predict classes, or numbers")
      ->check(CLI::IsMember({"classification", "regression"}));
  command
      ->add_option("--text", arguments->wishes.text, "a column of texts, whose words are the input in place of all other columns")
      ->type_name("COLUMN");
  command
      ->add_option("--set", arguments->wishes.sets,
                   "how the data is read, as a config has it: data.encoding=latin-1, data.delimiter, data.skip_rows=[1], "
                   "data.header=false; data.on_error=skip for pictures")
      ->type_name("data.KEY=VALUE");
  command->add_option("--out", arguments->out, "write the config to this file")->type_name("FILE");
  command->add_flag("--replace", arguments->replace, "replace the file");
  command->callback([arguments, &chosen] { chosen = [arguments] { return init(*arguments); }; });
}

}  // namespace halfstep::app
