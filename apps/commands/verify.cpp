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

int verify_config(VerifyArguments o) {
  catch_stop_signals();
  apply_threads(o.threads);
  if (!o.out.empty()) {
    const std::filesystem::path out = std::filesystem::absolute(o.out), folder = out.parent_path();
    check<ConfigError>(!std::filesystem::is_directory(out), "verify", "--out must be a file, got the folder ", o.out);
    check<ConfigError>(std::filesystem::is_directory(folder), "verify", "--out needs a folder that is there, got ",
                       folder.string());
  }
  const Config config = load_config(o.file, o.config);
  print_warnings(config);
  apply_log_level(config.logging, true);
  if (!config.data_fault.empty()) throw DataError(config.data_fault);
  std::ostream& lines = o.json ? std::cerr : std::cout;
  o.verify.program = std::filesystem::read_symlink("/proc/self/exe");
  o.verify.say = [&](const std::string& line) { lines << line << std::endl; };
  lines << o.file << ": " << o.verify.steps << " steps on " << config.device << ", " << num_threads() << " threads" << std::endl;
  const Certificate certificate = verify(config, o.verify);

  Json json{{"config", o.file},
            {"build", version_text()},
            {"machine", {{"host", host_name()}, {"device", backend_for(config.device).describe()}, {"threads", num_threads()}}},
            {"resolved_config", config.json}};
  json.update(certificate_json(certificate));
  if (o.json)
    std::cout << line_of(json) << '\n';
  else
    std::cout << (certificate.holds() ? "all equal" : "NOT EQUAL") << ": state after step " << certificate.states.rbegin()->first
              << ' ' << hash_of(certificate.states.rbegin()->second) << std::endl;
  if (o.out.empty()) return certificate.holds() ? kDone : kNotHeld;
  atomic_write(o.out, json.dump(2) + "\n");
  lines << "certificate: " << o.out << '\n';
  return certificate.holds() ? kDone : kNotHeld;
}

}  // namespace

void add_verify(CLI::App& program, Action& chosen) {
  auto o = std::make_shared<VerifyArguments>();
  CLI::App* c = program.add_subcommand("verify", "Compute a config's first steps in several ways, which must give the same bits");
  c->add_option("config", o->file, "a JSON config")->required();
  add_set(*c, o->config);
  c->add_flag("--no-amp", o->config.no_amp, "in float32 even if the config asks for mixed precision");
  c->add_option("--steps", o->verify.steps, "number of steps; default: 24")->type_name("N");
  c->add_option("--ranks", o->verify.ranks, "number of ranks; default: 2")->type_name("N");
  c->add_option("--out", o->out, "write the certificate here: build, machine, config, and the hashes of each step")
      ->type_name("FILE");
  c->add_flag("--json", o->json, "print the certificate as one JSON object on stdout; everything else goes to stderr");
  add_device(*c, o->config.device);
  add_threads(*c, o->threads);
  c->callback([o, &chosen] { chosen = [o] { return verify_config(*o); }; });
}

}  // namespace halfstep::app
