// SPDX-License-Identifier: Apache-2.0
#include "apps/examine/verify.h"

#include <CLI/CLI.hpp>
#include <filesystem>
#include <iostream>
#include <memory>

#include "apps/commands/commands.h"
#include "apps/commands/options.h"
#include "apps/exit_codes.h"
#include "apps/session/ranks.h"
#include "apps/terminal/build_info.h"
#include "apps/terminal/signals.h"
#include "framework/backend/backend.h"
#include "framework/io/files/atomic_file.h"

namespace halfstep::app {
namespace {

struct VerifyArguments {
  std::string file, out;
  ConfigOptions config;
  VerifyOptions verify;
  std::optional<int> threads;
  bool json = false;
};

int verify_config(VerifyArguments arguments) {
  catch_stop_signals();
  apply_threads(arguments.threads);
  if (!arguments.out.empty()) {
    const std::filesystem::path out = std::filesystem::absolute(arguments.out), folder = out.parent_path();
    check<ConfigError>(!std::filesystem::is_directory(out), "verify", "--out must be a file, got the folder ", arguments.out);
    check<ConfigError>(std::filesystem::is_directory(folder), "verify", "--out needs a folder that is there, got ",
                       folder.string());
  }
  const Config config = load_config(arguments.file, arguments.config);
  print_warnings(config);
  apply_log_level(config.logging, true);
  if (!config.data_fault.empty()) throw DataError(config.data_fault);
  std::ostream& lines = arguments.json ? std::cerr : std::cout;
  arguments.verify.program = std::filesystem::read_symlink("/proc/self/exe");
  arguments.verify.print_line = [&](const std::string& line) { lines << line << std::endl; };
  lines << arguments.file << ": " << arguments.verify.steps << " steps on " << config.device << ", " << num_threads() << " threads"
        << std::endl;
  const Certificate certificate = verify(config, arguments.verify);

  Json json{{"config", arguments.file},
            {"build", version_text()},
            {"machine", {{"host", host_name()}, {"device", backend_for(config.device).describe()}, {"threads", num_threads()}}},
            {"resolved_config", config.json}};
  json.update(certificate_json(certificate));
  if (arguments.json)
    std::cout << line_of(json) << '\n';
  else
    std::cout << (certificate.holds() ? "all equal" : "NOT EQUAL") << ": state after step " << certificate.states.rbegin()->first
              << ' ' << hash_of(certificate.states.rbegin()->second) << std::endl;
  if (arguments.out.empty()) return certificate.holds() ? kDone : kNotHeld;
  atomic_write(arguments.out, json.dump(2) + "\n");
  lines << "certificate: " << arguments.out << '\n';
  return certificate.holds() ? kDone : kNotHeld;
}

}  // namespace

void add_verify(CLI::App& program, Action& chosen) {
  auto arguments = std::make_shared<VerifyArguments>();
  CLI::App* command =
      program.add_subcommand("verify", "Compute a config's first steps in several ways, which must give the same bits");
  command->add_option("config", arguments->file, "a JSON config")->required();
  add_set(*command, arguments->config);
  command->add_flag("--no-amp", arguments->config.no_amp, "in float32 even if the config asks for mixed precision");
  command->add_option("--steps", arguments->verify.steps, "number of steps; default: 24")->type_name("N");
  command->add_option("--ranks", arguments->verify.ranks, "number of ranks; default: 2")->type_name("N");
  command->add_option("--out", arguments->out, "write the certificate here: build, machine, config, and the hashes of each step")
      ->type_name("FILE");
  command->add_flag("--json", arguments->json,
                    "print the certificate as one JSON object on stdout; everything else goes to stderr");
  add_device(*command, arguments->config.device);
  add_threads(*command, arguments->threads);
  command->callback([arguments, &chosen] { chosen = [arguments] { return verify_config(*arguments); }; });
}

}  // namespace halfstep::app
