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

int init(const InitArguments& o) {
  check<ConfigError>(o.out.empty() || o.replace || !std::filesystem::exists(o.out), "init", o.out, " exists",
                     Help{"--replace replaces it"});
  const InitConfig s = init_config(o.data, o.wishes);
  const std::string file = o.out.empty() ? s.name + ".json" : o.out, word = shell_word(file);
  if (o.out.empty())
    std::cout << with_fitting_comments(s.text, terminal_width(STDOUT_FILENO));
  else
    atomic_write(o.out, s.text);
  std::cerr << s.what << '\n';
  for (const std::string& note : s.notes) std::cerr << "  " << note << '\n';
  std::cerr << (o.out.empty() ? "Store the config with --out " + word + ", then:\n" : "Wrote " + file + "; next:\n")
            << "  halfstep inspect data " << word << "   describe the data\n"
            << "  halfstep validate " << word << "       check the config\n"
            << "  halfstep train " << word << '\n';
  return kDone;
}

}  // namespace

void add_init(CLI::App& program, Action& chosen) {
  auto o = std::make_shared<InitArguments>();
  CLI::App* c = program.add_subcommand("init", "Look at data and print a first config for it, with the reason of each choice");
  c->add_option(
       "data", o->data,
       "a table, series or text, .npz or .safetensors arrays, a folder of pictures in folders of classes, or a folder with "
       "MNIST's or CIFAR-10's files")
      ->required();
  c->add_option("--target", o->wishes.target, "the column of a table, or the array, that is to be predicted; by name or number")
      ->type_name("COLUMN");
  c->add_option("--task", o->wishes.task, "predict classes, or numbers")->check(CLI::IsMember({"classification", "regression"}));
  c->add_option("--text", o->wishes.text, "a column of texts, whose words are the input in place of all other columns")
      ->type_name("COLUMN");
  c->add_option("--set", o->wishes.sets,
                "how the data is read, as a config has it: data.encoding=latin-1, data.delimiter, data.skip_rows=[1], "
                "data.header=false; data.on_error=skip for pictures")
      ->type_name("data.KEY=VALUE");
  c->add_option("--out", o->out, "write the config to this file")->type_name("FILE");
  c->add_flag("--replace", o->replace, "replace the file");
  c->callback([o, &chosen] { chosen = [o] { return init(*o); }; });
}

}  // namespace halfstep::app
