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

Json as_json(const ReplayResult& r) {
  Json out{{"first", r.first}, {"last", r.last}, {"differences", r.differences}, {"fault", nullptr}};
  if (!r.still_running.empty()) out["still_running"] = r.still_running;
  if (!r.fault) return out;
  out["fault"] = {{"step", r.last}, {"epoch", r.epoch}, {"attempt", r.attempt}};
  out["fault"].update(verdict_json(*r.fault));
  return out;
}

// Examines a run: computes it again from a checkpoint until a step goes wrong, or until step `last`.
int doctor_of_run(const DoctorArguments& o, std::optional<int64_t> last = {}) {
  catch_stop_signals();
  std::ostream& lines = o.json ? std::cerr : std::cout;
  ReplayOptions options{.sets = o.config.sets, .say = [&](const std::string& line) { lines << line << std::endl; }};
  check<ConfigError>(!o.step || *o.step >= 1, "doctor", "--step counts from 1, got ", o.step.value_or(0));
  if (o.step) options.from = *o.step - 1, options.explain_from = *o.step;
  options.until = o.step ? o.step : last;
  if (o.config.device) options.sets.push_back("device=" + *o.config.device);
  ReplayResult result = replay(o.file, options);
  if (result.fault) try_remedies(o.file, options, result);
  if (o.json) {
    Json out = as_json(result);
    out["run"] = o.file;
    std::cout << line_of(out) << '\n';
    return result.fault ? kDone : kNotHeld;
  }
  for (const std::string& difference : result.differences) std::cout << "differs: " << difference << '\n';
  const auto list_capsules = [&] {
    std::error_code none;
    for (const auto& entry : std::filesystem::directory_iterator(std::filesystem::path(o.file) / "capsules", none))
      std::cout << "a step that the run explained: halfstep doctor " << entry.path().string() << '\n';
  };
  if (result.fault) {
    std::cout << "step " << result.last << " (epoch " << result.epoch
              << (result.attempt > result.last ? joined(", attempt ", result.attempt, ": skipped ones are no steps") : "") << ")\n"
              << result.fault->text() << '\n';
    if (result.attempt > result.last) list_capsules();  // the fault is in an earlier attempt
    return kDone;
  }
  const int64_t taken = result.last - result.first;
  check<ConfigError>(!o.step || result.last >= *o.step, "doctor", "the run has no step ", o.step.value_or(0), ": it ends at step ",
                     result.last);
  std::cout << "nothing found in " << taken << (taken == 1 ? " step" : " steps")
            << (taken > 1    ? joined(", ", result.first + 1, " to ", result.last)
                : taken == 1 ? joined(", ", result.last)
                             : "")
            << '\n';
  if (taken == 0 && !o.step)
    std::cout << (result.still_running.empty() ? "the run ended at this checkpoint"
                                               : "its metrics have no step after this checkpoint")
              << "; --step N looks at an earlier step\n";
  list_capsules();
  return kNotHeld;
}

// Returns "step 5 (epoch 1): the loss is not finite; 8 rows, halfstep 0.2.0, 2 threads".
std::string title(const Capsule& c) {
  int64_t rows = 0;
  for (const Capsule::StoredBatch& b : c.batches) rows += b.input.dim() > 0 ? b.input.size(0) : 1;
  return joined("step ", c.about.number, " (epoch ", c.about.epoch, "): ", c.about.what, "; ", rows, " rows",
                c.about.ranks > 1 ? joined(" of rank ", c.about.rank, " of ", c.about.ranks) : "", ", halfstep ", c.written_by,
                ", ", c.threads, c.threads == 1 ? " thread" : " threads",
                c.threads == num_threads() ? "" : joined(" (here ", num_threads(), ": last bits may differ)"));
}

// Examines a capsule: computes its step again, and compares the verdict with the run's.
int doctor_of_capsule(const DoctorArguments& o) {
  const Capsule capsule = read_capsule(o.file);
  if (!capsule.checkpoint_sha256.empty() || capsule.state.model.empty()) {  // the state is elsewhere: the run's data is needed
    DoctorArguments of_run = o;
    of_run.file = checkpoint_of(capsule, o.file).string();
    return doctor_of_run(of_run, capsule.about.number);
  }
  const Diagnosis d = diagnosis_of(capsule, o.file, o.config);
  const Json verdict = verdict_json(d);
  const bool same = verdict["cause"] == capsule.verdict["cause"] && verdict["where"] == capsule.verdict["where"];
  if (o.json) {
    std::cout << line_of(Json{{"capsule", o.file},
                              {"step", capsule.about.number},
                              {"epoch", capsule.about.epoch},
                              {"verdict", verdict},
                              {"verdict_of_run", capsule.verdict},
                              {"same", same}})
              << '\n';
    return same ? kDone : kNotHeld;
  }
  std::cout << title(capsule) << '\n';
  if (!o.config.sets.empty() && d.cause == "not_reproduced")
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

int doctor(const DoctorArguments& o) {
  apply_threads(o.threads);
  if (std::filesystem::is_directory(o.file)) return doctor_of_run(o);
  if (std::filesystem::path(o.file).extension() == ".safetensors") {
    check<ConfigError>(!o.step, "doctor", "--step is for the folder of a run, and ", o.file, " holds one step");
    return doctor_of_capsule(o);
  }
  check<ConfigError>(!o.step, "doctor", "--step is for the folder of a run, and ", o.file, " is not a folder");
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
  CLI::App* c = program.add_subcommand("doctor", "Find what limits a config's speed and precision, or why a run went wrong");
  c->add_option("config", o->file, "a JSON config, a run's folder, a checkpoint, or a capsule of a step")->required();
  c->add_option("--step", o->step, "of a run: the step to explain, instead of the first bad one after the newest checkpoint")
      ->type_name("N");
  add_set(*c, o->config);
  c->add_flag("--no-probe", o->no_probe, "do not time data and steps on the device");
  c->add_option("--memory", o->memory, "memory of the device, if it is not in this machine")
      ->transform(CLI::AsSizeValue(true))
      ->type_name("BYTES|80GB");
  c->add_flag("--json", o->json, "print the findings as one JSON object");
  add_device(*c, o->config.device);
  add_threads(*c, o->threads);
  c->callback([o, &chosen] { chosen = [o] { return doctor(*o); }; });
}

}  // namespace halfstep::app
