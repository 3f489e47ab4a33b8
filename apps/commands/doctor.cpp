// SPDX-License-Identifier: Apache-2.0
#include "apps/run/doctor.h"

#include <CLI/CLI.hpp>
#include <iostream>
#include <memory>

#include "apps/commands/commands.h"
#include "apps/commands/options.h"
#include "apps/exit_codes.h"

namespace halfstep::app {
namespace {

struct DoctorArguments {
  std::string file;
  ConfigOptions config;
  std::optional<int> threads;
  bool no_probe = false, json = false;
  uint64_t memory = 0;
};

int doctor(const DoctorArguments& o) {
  apply_threads(o.threads);
  const Config config = load_config(o.file, o.config);
  print_warnings(config);
  apply_log_level(config.logging, true);
  DoctorOptions options{.probe = !o.no_probe, .memory = {}};
  if (o.memory > 0) options.memory = double(o.memory);
  const std::vector<Finding> findings = examine(config, options);
  if (o.json) {
    Json list = Json::array();
    for (const Finding& f : findings)
      list.push_back({{"where", f.where}, {"what", f.what}, {"remedy", f.remedy}, {"gain", f.gain}});
    std::cout << line_of(Json{{"file", o.file}, {"findings", list}}) << '\n';
    return kDone;
  }
  if (findings.empty()) std::cout << o.file << ": nothing found\n";
  for (const Finding& f : findings)
    std::cout << f.where << ": " << f.what << "\n  remedy: " << f.remedy << "\n  gain:   " << f.gain << '\n';
  return kDone;
}

}  // namespace

void add_doctor(CLI::App& program, Action& chosen) {
  auto o = std::make_shared<DoctorArguments>();
  CLI::App* c = program.add_subcommand("doctor", "Find what limits a config's speed and precision");
  c->add_option("config", o->file, "a JSON config")->required();
  add_set(*c, o->config);
  c->add_flag("--no-probe", o->no_probe, "do not time data and steps on the device");
  c->add_option("--memory", o->memory, "of the device, when it is not this machine's")
      ->transform(CLI::AsSizeValue(true))
      ->type_name("BYTES|80GB");
  c->add_flag("--json", o->json, "print the findings as one JSON object");
  add_device(*c, o->config.device);
  add_threads(*c, o->threads);
  c->callback([o, &chosen] { chosen = [o] { return doctor(*o); }; });
}

}  // namespace halfstep::app
