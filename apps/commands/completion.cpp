// SPDX-License-Identifier: Apache-2.0
// Completion in shells. The shell's part is a few lines that ask the program, so that its lists are never out of date.
#include <CLI/CLI.hpp>
#include <iostream>
#include <map>
#include <memory>

#include "apps/commands/commands.h"
#include "apps/config/explain.h"
#include "apps/exit_codes.h"

namespace halfstep::app {
namespace {

const std::map<std::string, const char*> kShells = {
    {"bash", R"sh(# halfstep completion bash >~/.local/share/bash-completion/completions/halfstep
_halfstep() {
  local IFS=$'\n' words word
  COMP_WORDBREAKS=${COMP_WORDBREAKS//=}
  _get_comp_words_by_ref -n = words cword 2>/dev/null || { words=("${COMP_WORDS[@]}"); cword=$COMP_CWORD; }
  COMPREPLY=($(halfstep __complete "${words[@]:1:cword}" 2>/dev/null))
  [[ ${#COMPREPLY[@]} -eq 1 && ${COMPREPLY[0]} == *= ]] && compopt -o nospace
}
complete -o bashdefault -o default -F _halfstep halfstep
)sh"},
    {"zsh", R"sh(#compdef halfstep
# halfstep completion zsh >~/.zfunc/_halfstep, with fpath+=~/.zfunc before compinit in ~/.zshrc
_halfstep() {
  local -a answers
  answers=(${(f)"$(halfstep __complete "${(@)words[2,CURRENT]}" 2>/dev/null)"})
  if (( ${#answers} == 1 )) && [[ $answers[1] == *= ]]; then compadd -U -Q -S '' -a answers
  elif (( ${#answers} )); then compadd -U -Q -a answers
  else _files; fi
}
# At the first Tab zsh runs this file as the function; in a file that is sourced it is to be registered.
if [[ $funcstack[1] == _halfstep ]]; then _halfstep "$@"; else compdef _halfstep halfstep; fi
)sh"},
    {"fish", R"sh(# halfstep completion fish >~/.config/fish/completions/halfstep.fish
complete -c halfstep -a '(halfstep __complete (commandline -opc)[2..] (commandline -ct) 2>/dev/null)'
)sh"}};

// Prints the words that start with `begin`, each with `suffix`.
void print_matching(const std::vector<std::string>& words, const std::string& begin, const std::string& suffix = "") {
  for (const std::string& word : words)
    if (word.starts_with(begin)) std::cout << word << suffix << '\n';
}

}  // namespace

void complete(const CLI::App& program, const std::vector<std::string>& words) {
  if (words.empty()) return;
  const std::string& last = words.back();
  const CLI::App* command = &program;
  for (size_t i = 0; i + 1 < words.size(); ++i) {
    const CLI::App* const outer = command;
    for (const CLI::App* inner : outer->get_subcommands({}))
      if (inner->get_name() == words[i]) command = inner;
  }
  if (words.size() > 1 && words[words.size() - 2] == "--set") {
    const size_t equals = last.find('=');
    if (equals == std::string::npos) return print_matching(setting_paths(), last, "=");
    const std::string path = last.substr(0, equals);
    std::vector<std::string> settings;
    for (const std::string& word : words_of_setting(path)) settings.push_back(path + "=" + word);
    return print_matching(settings, last);
  }
  if (last.starts_with('-')) {
    std::vector<std::string> options;
    for (const CLI::Option* o : command->get_options())
      for (const std::string& name : o->get_lnames()) options.push_back("--" + name);
    return print_matching(options, last);
  }
  std::vector<std::string> names;
  for (const CLI::App* c : command->get_subcommands({})) names.push_back(c->get_name());
  if (command->get_name() == "completion")
    for (const auto& [shell, script] : kShells) names.push_back(shell);
  if (command->get_name() == "explain") {
    names = setting_paths();
    for (const std::string& type : type_names()) names.push_back(type);
  }
  print_matching(names, last);
}

void add_completion(CLI::App& program, Action& chosen) {
  auto shell = std::make_shared<std::string>();
  CLI::App* command = program.add_subcommand("completion", "Print the script that makes a shell complete halfstep's arguments");
  command->add_option("shell", *shell, "bash, zsh or fish")->required()->check(CLI::IsMember({"bash", "zsh", "fish"}));
  command->callback([shell, &chosen] {
    chosen = [shell] {
      std::cout << kShells.at(*shell);
      return kDone;
    };
  });
}

}  // namespace halfstep::app
