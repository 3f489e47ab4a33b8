// SPDX-License-Identifier: Apache-2.0
#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <csignal>
#include <iomanip>
#include <iostream>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "apps/commands/commands.h"
#include "apps/commands/options.h"
#include "apps/exit_codes.h"
#include "apps/terminal/quantity_text.h"
#include "apps/use/generator.h"
#include "framework/data/formats/text_file.h"
#include "framework/data/sets/text_forms.h"

namespace halfstep::app {
namespace {

struct GenerateArguments {
  ModelOptions model;
  std::string prompt;
  std::optional<std::string> prompt_file;
  int64_t length = 500;
  SamplingOptions sampling;
  bool json = false;
};

double seconds_since(std::chrono::steady_clock::time_point begin) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

std::string prompt_of(const GenerateArguments& arguments) {
  if (!arguments.prompt_file) return arguments.prompt;
  const std::string file = *arguments.prompt_file == "-" ? "/dev/stdin" : *arguments.prompt_file;
  try {
    DataNotes notes;
    std::string text = read_text_file(file, TextEncoding::utf8, "generate --prompt-file", /*tables=*/false, notes);
    if (!notes.summary.empty()) notes.warnings.push_back(notes.summary);
    for (const std::string& note : notes.warnings) std::cerr << "note: the prompt: " << note << '\n';
    return text;
  } catch (const IoError& e) { fail<DataError>("generate", "--prompt-file: ", e.what()); }
}

// Says that the model reads the prompt in another form than it has.
void note_form(const std::string& prompt, const DataForm& form) {
  const auto* const text = std::get_if<TextForm>(&form.source);
  const TextChange change = text ? fitted_text(prompt, text->options).change : TextChange::none;
  if (change != TextChange::none)
    std::cerr << "note: the model reads the prompt with " << change_words(change) << ", as the training text is\n";
}

void note_unknown(const std::vector<std::string>& words) {
  constexpr size_t kShown = 5;
  if (words.empty()) return;
  std::cerr << "note: the training text does not have " << words.size() << (words.size() > 1 ? " words" : " word")
            << " of the prompt, and the model reads <unk> instead: ";
  for (size_t i = 0; i < std::min(words.size(), kShown); ++i) std::cerr << (i ? ", " : "") << words[i];
  std::cerr << (words.size() > kShown ? ", ...\n" : "\n");
}

int generate(const GenerateArguments& arguments) {
  apply_threads(arguments.model.threads);
#ifdef SIGPIPE
  std::signal(SIGPIPE, SIG_DFL);  // a reader that exits, such as `head`, ends the program silently
#endif
  const std::string prompt = prompt_of(arguments);
  Predictor model(arguments.model.path, arguments.model.predictor());
  print_model(model);
  TextSampler sampler(model, arguments.sampling);
  const SequenceReader& reader = sampler.reader();
  if (!reader.by_steps()) {
    std::cerr << "note: the model cannot read token by token, so each token computes up to " << reader.context()
              << " again: " << reader.why_not() << '\n';
  }
  note_form(prompt, model.form());
  note_unknown(sampler.unknown_words(prompt));
  auto begin = std::chrono::steady_clock::now();
  sampler.start(prompt);
  const double read_seconds = seconds_since(begin);

  std::string text;
  const auto write = [&](const std::string& piece) {
    text += piece;
    if (!arguments.json) std::cout << piece << std::flush;
    check<IoError>(bool(std::cout), "generate", "stdout: writing failed");
  };
  if (!arguments.json) std::cout << prompt << std::flush;
  begin = std::chrono::steady_clock::now();
  for (int64_t i = 0; i < arguments.length; ++i) write(sampler.next());
  const double seconds = seconds_since(begin), rate = seconds > 0 ? double(arguments.length) / seconds : 0;
  write(sampler.finish());

  if (arguments.json) {
    std::cout << Json{{"prompt", prompt},
                      {"text", text},
                      {"prompt_tokens", sampler.prompt()},
                      {"tokens", sampler.tokens()},
                      {"seed", arguments.sampling.seed},
                      {"by_steps", reader.by_steps()},
                      {"tokens_per_second", rate},
                      {"step", model.step()},
                      {"checkpoint", model.checkpoint().string()}}
                     .dump(-1, ' ', false, Json::error_handler_t::replace)
              << '\n';
  } else if (const std::string& last = text.empty() ? prompt : text; last.empty() || last.back() != '\n') {
    std::cout << '\n';
  }
  std::cout.flush();
  std::cerr << sampler.prompt().size() << " tokens read in " << number_text(read_seconds, 3) << " s, " << arguments.length
            << " written in " << number_text(seconds, 3) << " s: " << number_text(rate, 3) << " tokens/s\n";
  return kDone;
}

}  // namespace

void add_generate(CLI::App& program, Action& chosen) {
  auto arguments = std::make_shared<GenerateArguments>();
  CLI::App* command = program.add_subcommand("generate", "Write text with a trained language model");
  add_model(*command, arguments->model);
  auto* const prompt =
      command->add_option("--prompt", arguments->prompt, "beginning of the text; numbers for a model of token files");
  command->add_option("--prompt-file", arguments->prompt_file, "read the prompt from a file, unchanged (- is stdin)")
      ->type_name("FILE")
      ->excludes(prompt);
  command->add_option("--length", arguments->length, "tokens to write; default: 500")->check(CLI::NonNegativeNumber);
  command
      ->add_option(
          "--temperature", arguments->sampling.temperature,
          "divides the scores; below 1, probable tokens become more probable; 0: always the most probable token; default: 1")
      ->check(CLI::Range(0.0, 1e6));
  command->add_option("--top-k", arguments->sampling.top_k, "only the K most probable tokens; default: 0, all")
      ->check(CLI::NonNegativeNumber);
  command
      ->add_option("--top-p", arguments->sampling.top_p,
                   "only the most probable tokens that together reach this probability; default: 1")
      ->check(CLI::Range(1e-9, 1.0));
  command->add_option("--seed", arguments->sampling.seed, "another seed, another text; default: 0");
  command->add_flag("--json", arguments->json, "one JSON object, at the end");
  command->callback([arguments, &chosen] { chosen = [arguments] { return generate(*arguments); }; });
}

}  // namespace halfstep::app
