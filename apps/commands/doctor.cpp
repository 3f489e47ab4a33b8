// SPDX-License-Identifier: Apache-2.0
#include "apps/examine/doctor.h"

#include <CLI/CLI.hpp>
#include <filesystem>
#include <iostream>
#include <memory>

#include "apps/commands/commands.h"
#include "apps/commands/options.h"
#include "apps/examine/time_travel.h"
#include "apps/exit_codes.h"
#include "apps/terminal/signals.h"
#include "apps/train/capsule.h"
#include "framework/backend/backend.h"

namespace halfstep::app {
namespace {

struct DoctorArguments {
  std::string file;
  ConfigOptions config;
  std::optional<int> threads;
  std::optional<int64_t> step;
  bool no_probe = false, json = false;
  uint64_t memory = 0;
};

Json replay_json(const ReplayResult& r) {
  Json out{{"first", r.first}, {"last", r.last}, {"differences", r.differences}, {"fault", nullptr}};
  if (!r.still_running.empty()) out["still_running"] = r.still_running;
  if (!r.fault) return out;
  out["fault"] = {{"step", r.last}, {"epoch", r.epoch}, {"attempt", r.attempt}};
  out["fault"].update(verdict_json(*r.fault));
  return out;
}

// Examines a run: computes it again from a checkpoint until a step goes wrong, or until step `last`.
int doctor_of_run(const DoctorArguments& arguments, std::optional<int64_t> last = {}) {
  catch_stop_signals();
  std::ostream& lines = arguments.json ? std::cerr : std::cout;
  ReplayOptions options{.sets = arguments.config.sets, .print_line = [&](const std::string& line) { lines << line << std::endl; }};
  check<ConfigError>(!arguments.step || *arguments.step >= 1, "doctor", "--step counts from 1, got ", arguments.step.value_or(0));
  if (arguments.step) options.from = *arguments.step - 1, options.explain_from = *arguments.step;
  options.until = arguments.step ? arguments.step : last;
  if (arguments.config.device) options.sets.push_back("device=" + *arguments.config.device);
  ReplayResult result = replay(arguments.file, options);
  if (result.fault) try_remedies(arguments.file, options, result);
  if (arguments.json) {
    Json out = replay_json(result);
    out["run"] = arguments.file;
    std::cout << line_of(out) << '\n';
    return result.fault ? kDone : kNotHeld;
  }
  for (const std::string& difference : result.differences) std::cout << "differs: " << difference << '\n';
  const auto list_capsules = [&] {
    std::error_code ignored;
    for (const auto& entry : std::filesystem::directory_iterator(std::filesystem::path(arguments.file) / "capsules", ignored))
      std::cout << "a step that the run explained: halfstep doctor " << entry.path().string() << '\n';
  };
  if (result.fault) {
    std::cout << "step " << result.last << " (epoch " << result.epoch
              << (result.attempt > result.last ? joined(", attempt ", result.attempt, ": skipped ones are no steps") : "") << ")\n"
              << result.fault->text() << '\n';
    if (result.attempt > result.last) list_capsules();  // the fault is in an earlier attempt
    return kDone;
  }
  const int64_t steps = result.last - result.first;
  check<ConfigError>(!arguments.step || result.last >= *arguments.step, "doctor", "the run has no step ",
                     arguments.step.value_or(0), ": it ends at step ", result.last);
  std::cout << "nothing found in " << steps << (steps == 1 ? " step" : " steps")
            << (steps > 1    ? joined(", ", result.first + 1, " to ", result.last)
                : steps == 1 ? joined(", ", result.last)
                             : "")
            << '\n';
  if (steps == 0 && !arguments.step)
    std::cout << (result.still_running.empty() ? "the run ended at this checkpoint"
                                               : "its metrics have no step after this checkpoint")
              << "; --step N looks at an earlier step\n";
  list_capsules();
  return kNotHeld;
}

// Returns "step 5 (epoch 1): the loss is not finite; 8 rows, halfstep 0.2.0, 2 threads".
std::string capsule_title(const Capsule& capsule) {
  int64_t rows = 0;
  for (const Capsule::StoredBatch& b : capsule.batches) rows += b.input.dim() > 0 ? b.input.size(0) : 1;
  return joined("step ", capsule.about.number, " (epoch ", capsule.about.epoch, "): ", capsule.about.what, "; ", rows, " rows",
                capsule.about.ranks > 1 ? joined(" of rank ", capsule.about.rank, " of ", capsule.about.ranks) : "", ", halfstep ",
                capsule.written_by, ", ", capsule.threads, capsule.threads == 1 ? " thread" : " threads",
                capsule.threads == num_threads() ? "" : joined(" (here ", num_threads(), ": last bits may differ)"));
}

// Examines a capsule: computes its step again, and compares the verdict with the run's.
int doctor_of_capsule(const DoctorArguments& arguments) {
  const Capsule capsule = read_capsule(arguments.file);
  if (!capsule.checkpoint_sha256.empty() || capsule.state.model.empty()) {  // the state is elsewhere: the run's data is needed
    DoctorArguments of_run = arguments;
    of_run.file = checkpoint_of(capsule, arguments.file).string();
    return doctor_of_run(of_run, capsule.about.number);
  }
  const Diagnosis d = diagnosis_of(capsule, arguments.file, arguments.config);
  const Json verdict = verdict_json(d);
  const bool same = verdict["cause"] == capsule.verdict["cause"] && verdict["where"] == capsule.verdict["where"];
  if (arguments.json) {
    std::cout << line_of(Json{{"capsule", arguments.file},
                              {"step", capsule.about.number},
                              {"epoch", capsule.about.epoch},
                              {"verdict", verdict},
                              {"verdict_of_run", capsule.verdict},
                              {"same", same}})
              << '\n';
    return same ? kDone : kNotHeld;
  }
  std::cout << capsule_title(capsule) << '\n';
  if (!arguments.config.sets.empty() && d.cause == "not_reproduced")
    std::cout << "  with the changes of --set the step is finite: " << d.evidence << '\n';
  else
    std::cout << d.text() << '\n';
  if (same)
    std::cout << "  the run found the same\n";
  else
    std::cout << "  the run found " << capsule.verdict["cause"].get<std::string>() << ": "
              << capsule.verdict["what"].get<std::string>() << '\n';
  return same ? kDone : kNotHeld;
}

int doctor(const DoctorArguments& arguments) {
  apply_threads(arguments.threads);
  if (std::filesystem::is_directory(arguments.file)) return doctor_of_run(arguments);
  if (std::filesystem::path(arguments.file).extension() == ".safetensors") {
    check<ConfigError>(!arguments.step, "doctor", "--step is for the folder of a run, and ", arguments.file, " holds one step");
    return doctor_of_capsule(arguments);
  }
  check<ConfigError>(!arguments.step, "doctor", "--step is for the folder of a run, and ", arguments.file, " is not a folder");
  const Config config = load_config(arguments.file, arguments.config);
  print_warnings(config);
  apply_log_level(config.logging, true);
  DoctorOptions options{.probe = !arguments.no_probe, .memory = {}};
  if (arguments.memory > 0) options.memory = double(arguments.memory);
  const std::vector<Finding> findings = examine(config, options);
  if (arguments.json) {
    Json list = Json::array();
    for (const Finding& f : findings)
      list.push_back({{"where", f.where}, {"what", f.what}, {"remedy", f.remedy}, {"gain", f.gain}});
    std::cout << line_of(Json{{"file", arguments.file}, {"findings", list}}) << '\n';
    return kDone;
  }
  if (findings.empty()) std::cout << arguments.file << ": nothing found\n";
  for (const Finding& f : findings)
    std::cout << f.where << ": " << f.what << "\n  remedy: " << f.remedy << "\n  gain:   " << f.gain << '\n';
  return kDone;
}

}  // namespace

void add_doctor(CLI::App& program, Action& chosen) {
  auto arguments = std::make_shared<DoctorArguments>();
  CLI::App* command = program.add_subcommand("doctor", "Find what limits a config's speed and precision, or why a run went wrong");
  command->add_option("config", arguments->file, "a JSON config, a run's folder, a checkpoint, or a capsule of a step")->required();
  command
      ->add_option("--step", arguments->step,
                   "of a run: the step to explain, instead of the first bad one after the newest checkpoint")
      ->type_name("N");
  add_set(*command, arguments->config);
  command->add_flag("--no-probe", arguments->no_probe, "do not time data and steps on the device");
  command->add_option("--memory", arguments->memory, "memory of the device, if it is not in this machine")
      ->transform(CLI::AsSizeValue(true))
      ->type_name("BYTES|80GB");
  command->add_flag("--json", arguments->json, "print the findings as one JSON object");
  add_device(*command, arguments->config.device);
  add_threads(*command, arguments->threads);
  command->callback([arguments, &chosen] { chosen = [arguments] { return doctor(*arguments); }; });
}

}  // namespace halfstep::app
