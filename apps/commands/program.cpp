// SPDX-License-Identifier: Apache-2.0
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cctype>
#include <charconv>
#include <cmath>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <iostream>
#include <memory>
#include <new>
#include <optional>
#include <string_view>
#include <system_error>
#include <vector>

#include "apps/commands/commands.h"
#include "apps/commands/help.h"
#include "apps/config/explain.h"
#include "apps/exit_codes.h"
#include "apps/schema/suggest.h"
#include "apps/terminal/build_info.h"
#include "apps/terminal/signals.h"
#include "apps/terminal/terminal.h"
#include "framework/backend/export_error.h"
#include "framework/base/log.h"
#include "framework/base/number_text.h"
#include "framework/comm/launcher.h"
#include "framework/comm/process_group.h"
#include "framework/io/checkpoint/checkpoint.h"

namespace halfstep::app {
namespace {

constexpr const char* kExitCodes =
    "Exit codes: 0 done; 1 failure; 2 usage or config; 3 data; 4 diverged; 5 device or memory;\n"
    "            6 a check failed; 74 another rank is lost;\n"
    "            75 stopped by SIGTERM, SIGHUP or SIGUSR1 after saving; 130 interrupted after saving";

// Returns what is wrong with a text for an option of this type; "" if nothing.
std::string fault_of_number(const std::string& type, const std::string& text) {
  const char* const begin = text.c_str() + (text.starts_with('+') ? 1 : 0);
  const char* const end = text.c_str() + text.size();
  const auto is_read = [&](auto number) {
    const auto [stop, error] = std::from_chars(begin, end, number);
    return stop == end && error == std::errc();
  };
  if (type == "FLOAT") {
    const std::optional<double> number = number_of({begin, end});
    return number && std::isfinite(*number) ? "" : "must be a finite number, got " + text;
  }
  const char* const digits = begin + (begin != end && *begin == '-' ? 1 : 0);
  const bool is_octal = end - digits > 1 && *digits == '0';
  if (!is_octal && (type == "UINT" ? is_read(uint64_t()) : is_read(int64_t()))) return "";
  return type == "UINT" ? "must be a whole number from 0 to 18446744073709551615, got " + text
                        : "must be a whole number of less than 2^63, got " + text;
}

// Makes options of numbers refuse texts of which CLI11 takes another number: the nearest one of the type for one out of its range,
// an octal one for "010", and NaN, which no range leaves out.
void check_numbers(CLI::App& app) {
  for (CLI::Option* option : app.get_options()) {
    std::string type = option->get_type_name();
    type.resize(std::min(type.find_first_of(": "), type.size()));
    if (type == "N") type = "INT";
    if (type != "INT" && type != "UINT" && type != "FLOAT") continue;
    option->transform(CLI::Validator([type](std::string& text) { return fault_of_number(type, text); }, ""));
  }
  for (CLI::App* command : app.get_subcommands({})) check_numbers(*command);
}

// Returns the index of the first argument that is an unknown option; 0: none.
int unknown_option(const CLI::App& command, int argc, const char* const* argv) {
  for (int i = 2; i < argc; ++i) {
    const std::string name = std::string(argv[i]).substr(0, std::string(argv[i]).find('='));
    if (name.size() > 1 && name[0] == '-' && !std::isdigit(static_cast<unsigned char>(name[1])) &&
        !command.get_option_no_throw(name))
      return i;
  }
  return 0;
}

// Suggests another option of the command, or the config key that the word means: "--set train.epochs=3" for "--epochs 3".
std::string help_for_option(const CLI::App& command, int at, int argc, const char* const* argv) {
  std::string word = argv[at], value;
  if (const size_t equals = word.find('='); equals != std::string::npos) {
    value = word.substr(equals + 1);
    word.resize(equals);
  } else if (at + 1 < argc && argv[at + 1][0] != '-') {
    value = argv[at + 1];
  }
  std::vector<std::string> options;
  for (const CLI::Option* o : command.get_options())
    for (const std::string& name : o->get_lnames()) options.push_back("--" + name);
  const std::string near = suggest(word, options);
  if (!near.empty()) return "did you mean " + near + "?";
  if (command.get_option_no_throw("--set")) {
    const std::string path = setting_named(word.substr(word.find_first_not_of('-')));
    if (!path.empty()) return "did you mean --set " + path + "=" + (value.empty() ? "VALUE" : value) + "?";
  }
  return "halfstep " + command.get_name() + " --help";
}

int usage_error(const CLI::ParseError& e, const CLI::App& program, int argc, const char* const* argv) {
  std::vector<std::string> commands;
  for (const CLI::App* c : program.get_subcommands({})) commands.push_back(c->get_name());
  const bool known = argc > 1 && std::find(commands.begin(), commands.end(), argv[1]) != commands.end();
  const bool unknown = argc > 1 && !known && argv[1][0] != '-';
  if (unknown) {
    const std::string near = suggest(argv[1], commands);
    std::cerr << "[usage] unknown command \"" << argv[1]
              << "\"\nhelp: " << (near.empty() ? "the commands are " + one_of(commands) : "did you mean \"halfstep " + near + "\"?")
              << '\n';
    return kUsage;
  }
  const CLI::App* const command = known ? program.get_subcommand(argv[1]) : nullptr;
  const int option = command && command->get_subcommands({}).empty() ? unknown_option(*command, argc, argv) : 0;
  if (option > 0) {
    std::cerr << "[usage] halfstep " << argv[1] << " has no option "
              << std::string(argv[option]).substr(0, std::string(argv[option]).find('='))
              << "\nhelp: " << help_for_option(*command, option, argc, argv) << '\n';
    return kUsage;
  }
  std::cerr << "[usage] " << e.what() << "\nhelp: halfstep" << (known ? std::string(" ") + argv[1] : "") << " --help\n";
  return kUsage;
}

}  // namespace

namespace {

// Returns the prefix of messages on ranks other than the first: "rank 2: ".
std::string speaker() {
  try {
    const int rank = detect_launch().rank;
    return rank == 0 ? "" : "rank " + std::to_string(rank) + ": ";
  } catch (const Error&) { return ""; }
}

}  // namespace

int report_exception() {
  const auto report = [](const std::exception& e, int code) {
    std::cerr << speaker() + e.what() + '\n';  // one write: ranks share stderr
    return code;
  };
  try {
    throw;
  } catch (const StoppedError& e) {
    const int number = stop_signal();
    report(e, kFailed);
    std::signal(number, SIG_DFL);
    std::raise(number);
    return kFailed;
  } catch (const PeerLostError& e) { return report(e, kPeerLost); } catch (const ConfigError& e) {
    return report(e, kUsage);
  } catch (const DataError& e) { return report(e, kData); } catch (const ExportError& e) {
    return report(e, kUsage);
  } catch (const CheckpointError& e) { return report(e, kData); } catch (const DivergedError& e) {
    return report(e, kDiverged);
  } catch (const DeviceError& e) { return report(e, kDevice); } catch (const MemoryError& e) {
    return report(e, kDevice);
  } catch (const std::bad_alloc&) {
    std::cerr << "[memory] the host has no memory left\n";
    return kDevice;
  } catch (const Error& e) { return report(e, kFailed); } catch (const std::filesystem::filesystem_error& e) {
    std::cerr << "[file] " << e.path1().string() << ": " << e.code().message() << '\n';
    return kFailed;
  } catch (const std::system_error& e) {
    std::cerr << "[system] " << e.code().message() << '\n';
    return kFailed;
  } catch (const std::exception& e) {
    logging::debug(e.what());  // a third-party library's message, of no help to users
    std::cerr
        << "[halfstep] a defect of halfstep itself\nhelp: please report the command and its input; \"logging.level\": \"debug\" "
           "shows more\n";
    return kFailed;
  } catch (...) {
    std::cerr << "[halfstep] unknown failure\n";
    return kFailed;
  }
}

namespace {

// Returns whether the command's stdout is for programs, or a text with its own line breaks.
bool writes_data(const CLI::App& command) {
  for (const char* name : {"completion", "generate", "init", "schema"})
    if (command.get_name() == name) return true;
  for (const char* name : {"--json", "--csv", "--lines"})
    if (const CLI::Option* o = command.get_option_no_throw(name); o && o->count() > 0) return true;
  const std::vector<CLI::App*> inner = command.get_subcommands();
  return std::any_of(inner.begin(), inner.end(), [](const CLI::App* c) { return writes_data(*c); });
}

int run_command(int argc, const char* const* argv) {
  CLI::App program{"Trains neural networks in mixed precision", "halfstep"};
  program.formatter(std::make_shared<FittedHelp>());
  program.set_version_flag("--version", version_text());
  program.footer(kExitCodes);
  program.require_subcommand(1);
  Action chosen;
  add_init(program, chosen);
  add_train(program, chosen);
  add_lr_find(program, chosen);
  add_eval(program, chosen);
  add_predict(program, chosen);
  add_generate(program, chosen);
  add_export(program, chosen);
  add_validate(program, chosen);
  add_plan(program, chosen);
  add_inspect(program, chosen);
  add_doctor(program, chosen);
  add_parity(program, chosen);
  add_tune(program, chosen);
  add_verify(program, chosen);
  add_sweep(program, chosen);
  add_report(program, chosen);
  add_compare(program, chosen);
  add_explain(program, chosen);
  add_schema(program, chosen);
  add_completion(program, chosen);
  add_devices(program, chosen);
  add_bench(program, chosen);
  add_op(program, chosen);
  add_ops(program, chosen);
  check_numbers(program);
  if (argc > 1 && argv[1] == std::string_view("__complete")) {
    complete(program, {argv + 2, argv + argc});
    return kDone;
  }
  // Turns `halfstep help train` into `halfstep train --help`.
  std::vector<const char*> arguments(argv, argv + argc);
  if (argc > 1 && argv[1] == std::string_view("help")) {
    arguments.erase(arguments.begin() + 1);
    arguments.insert(arguments.begin() + std::min(argc, 3) - 1, "--help");
  }
  argc = int(arguments.size()), argv = arguments.data();
  try {
    const PlainLocale plain;  // CLI11 reads numbers by strtod
    program.parse(argc, argv);
  } catch (const CLI::ParseError& e) {
    if (e.get_exit_code() == 0) return program.exit(e);  // --help, --version
    return usage_error(e, program, argc, argv);
  }
  std::optional<FittedStream> fitted;
  if (!writes_data(*program.get_subcommands().at(0))) fitted.emplace(std::cout, STDOUT_FILENO);
  try {
    return chosen();
  } catch (...) { return report_exception(); }
}

// Prints a message of the library for a person at a terminal.
void print_message(logging::Level level, std::string_view message) {
  erase_redrawn_line();
  const char* const no_color = std::getenv("NO_COLOR");
  const bool color = !(no_color && *no_color);
  const char* const name = level == logging::Level::warn ? "warning" : level == logging::Level::error ? "error" : "note";
  std::cerr << (color ? "\033[33m" : "") << name << ':' << (color ? "\033[0m" : "") << ' ' << message << '\n';
}

// Returns whether everything was written to stdout.
bool stdout_is_written() {
  std::cout.flush();
  if (std::fflush(stdout) == 0 && std::cout && !std::ferror(stdout)) return true;
  std::cerr << "[halfstep] some output could not be written: a full disk, or a pipe whose reader is gone\n";
  return false;
}

}  // namespace

int run_program(int argc, const char* const* argv) {
  std::signal(SIGXFSZ, SIG_IGN);  // a write beyond the limit then fails with an error that names the file
  report_shortened_files();
  const FittedStream messages(std::cerr, STDERR_FILENO);
  if (terminal_width(STDERR_FILENO) > 0) logging::set_writer(print_message);
  const int code = run_command(argc, argv);
  return stdout_is_written() || code != kDone ? code : kFailed;
}

}  // namespace halfstep::app
