// SPDX-License-Identifier: Apache-2.0
#include <CLI/CLI.hpp>
#include <filesystem>
#include <iostream>
#include <memory>

#include "amp/diagnosis/module_search.h"
#include "amp/diagnosis/tuning.h"
#include "apps/commands/commands.h"
#include "apps/commands/options.h"
#include "apps/exit_codes.h"
#include "apps/terminal/quantity_text.h"
#include "apps/train/plan.h"
#include "apps/train/trainer.h"
#include "apps/use/loaded_run.h"
#include "framework/base/text_stream.h"
#include "framework/io/files/atomic_file.h"

namespace halfstep::app {
namespace {

namespace fs = std::filesystem;

struct TuneArguments : BatchesOptions {
  std::string out;
  double budget = 0.1;
  bool overwrite = false;
};

// Returns each layer's share of a step's operations.
std::map<std::string, double> shares_of(const Config& config) {
  std::map<std::string, double> out;
  double sum = 0;
  for (const LayerRow& row : plan_step(config).layers) {
    for (const LoggedCall& call : row.calls) {
      out[row.name] += call.flops();
      sum += call.flops();
    }
  }
  for (auto& [name, flops] : out) flops = sum > 0 ? flops / sum : 0;
  return out;
}

// Returns whether the float32 gradient is not 0, as it may be for a model that has fitted its batches.
bool has_gradient(const Parity& p) { return p.error > 0 || p.noise > 0; }

std::string error_text(const Parity& p) {
  if (p.error == 0) return joined("the gradient is the same in float32, bit for bit, ", name(p.verdict()));
  return joined("the gradient's error is ", number_text(p.measure(), 3), p.by_noise ? " of the noise" : " of the gradient", ", ",
                name(p.verdict()));
}

std::string share_text(double share) { return number_text(100 * share, 2) + " %"; }

// Returns the config that the new one extends.
fs::path base_config(const TuneArguments& arguments) {
  fs::path base = arguments.path;
  if (!fs::is_directory(base)) return base;
  if (!fs::exists(base / "config.resolved.json")) base = base.parent_path();  // the path was a checkpoint's
  return base / "config.resolved.json";
}

// Returns the path of base_config relative to the new config's folder.
std::string relative_base(const TuneArguments& arguments) {
  const fs::path base = base_config(arguments);
  const fs::path folder = fs::absolute(arguments.out).parent_path();
  return fs::absolute(base).lexically_normal().lexically_relative(folder.lexically_normal()).generic_string();
}

// Formats JSON on one line, with a blank after each comma and colon.
std::string spaced_line(const Json& value) {
  const std::string text = value.dump(1);
  std::string out;
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] != '\n') {
      out += text[i];
      continue;
    }
    if (out.back() == ',') out += ' ';
    i = text.find_first_not_of(' ', i + 1) - 1;
  }
  return out;
}

// Converts --set options, which the new config must contain too: "a.b=1" to {"a": {"b": 1}}. Throws ConfigError for a place in a
// list, which an extending config cannot change.
Json settings_of(const std::vector<std::string>& sets) {
  Json out = Json::object();
  for (const std::string& set : sets) {
    const size_t equals = set.find('=');
    Json* at = &out;
    TextReader path(set.substr(0, equals));
    for (std::string part; std::getline(path, part, '.');) {
      check<ConfigError>(part.find_first_not_of("0123456789") != std::string::npos, "tune", "--set ", set,
                         " is in a list, which the new config cannot change",
                         Help{"change it in the config that the new one extends"});
      at = &(*at)[part];
    }
    const Json value = Json::parse(set.substr(equals + 1), nullptr, /*allow_exceptions=*/false);
    *at = value.is_discarded() ? Json(set.substr(equals + 1)) : value;
  }
  return out;
}

// Returns a few lines that extend the first config.
std::string tuned_config(const TuneArguments& arguments, LoadedRun& opened, const Tuning& tuning) {
  std::string modules;
  std::string out = joined("// Written by `halfstep tune ", arguments.path, "` from ", arguments.batches,
                           arguments.batches == 1 ? " batch" : " batches", " at step ", opened.step, ".\n");
  if (!tuning.why_low.empty()) out += joined("// ", tuning.low, ": ", tuning.why_low, ".\n");
  for (const TunedModule& m : tuning.modules) out += joined("// ", m.path, ": ", m.why, ".\n");
  if (!tuning.modules.empty()) out += joined("// ", share_text(tuning.share), " of the operations are in float32 for this.\n");
  out += joined("// Then ", error_text(tuning.after), ".\n");
  Json config = {{"extends", relative_base(arguments)}, {"output_dir", opened.config.output_dir + "-tuned"}};
  config.update(settings_of(arguments.config.sets), /*merge_objects=*/true);
  if (!config["amp"].is_object()) config["amp"] = Json::object();  // from --set amp=true
  if (opened.was_float32) config["amp"]["enabled"] = true;
  config["amp"]["dtype"] = joined(tuning.low);
  for (const TunedModule& m : tuning.modules) config["amp"]["modules"][pattern_for(*opened.session.model, m.path)] = "float32";
  out += "{";
  for (const auto& [key, value] : config.items())  // one on a line
    out += joined(out.ends_with("{") ? "\n  " : ",\n  ", Json(key).dump(), ": ", spaced_line(value));
  return out + "\n}\n";
}

void print_tuning(const TuneArguments& arguments, const Tuning& tuning) {
  if (!tuning.why_low.empty()) std::cout << "  " << tuning.low << ": " << tuning.why_low << '\n';
  for (const TunedModule& m : tuning.modules) std::cout << "  " << m.path << " in float32:\n    " << m.why << '\n';
  if (tuning.modules.empty() && tuning.why_low.empty()) std::cout << "  no module needs float32\n";
  if (!tuning.modules.empty()) std::cout << "  " << share_text(tuning.share) << " of the operations are in float32 for this\n";
  std::cout << "  " << error_text(tuning.after) << '\n';
  if (tuning.after.verdict() == Parity::Verdict::harmful)
    std::cout << "  nothing within " << share_text(arguments.budget)
              << " of the operations (--budget) makes that less: train in float32,\n"
              << "  \"amp\": false. No file was written\n";
  else
    std::cout << "written to " << arguments.out << ": halfstep train " << arguments.out << '\n';
}

Json tuning_json(const TuneArguments& arguments, const Tuning& tuning, bool is_written) {
  Json out{{"path", arguments.path}, {"out", nullptr}, {"fault", nullptr}};
  if (tuning.fault) {
    out["fault"] = {{"cause", tuning.fault->cause},
                    {"where", tuning.fault->where},
                    {"what", tuning.fault->sentence},
                    {"evidence", tuning.fault->evidence}};
    return out;
  }
  if (is_written) out["out"] = arguments.out;
  Json modules = Json::array();
  for (const TunedModule& m : tuning.modules) modules.push_back({{"name", m.path}, {"why", m.why}});
  out.update({{"dtype", joined(tuning.low)},
              {"why_dtype", tuning.why_low},
              {"modules", modules},
              {"share", tuning.share},
              {"before", or_null(tuning.before.measure())},
              {"after", or_null(tuning.after.measure())},
              {"by", tuning.after.by_noise ? "noise" : "gradient"},
              {"verdict", name(tuning.after.verdict())}});
  return out;
}

int tune_config(const TuneArguments& arguments) {
  check<ConfigError>(!fs::is_directory(arguments.out), "tune", "--out must be a file, got the folder ", arguments.out);
  check<ConfigError>(arguments.overwrite || !fs::exists(arguments.out), "tune", arguments.out, " is there already",
                     Help{"give another --out, or --overwrite"});
  check<ConfigError>(!fs::exists(arguments.out) || !fs::equivalent(arguments.out, arguments.path), "tune",
                     "--out is the config itself", Help{"the new config extends it: give another name"});
  const fs::path folder = fs::absolute(arguments.out).parent_path();
  check<ConfigError>(fs::is_directory(folder), "tune", "--out needs a folder that is there, got ", folder.string());
  apply_threads(arguments.threads);
  LoadedRun opened = open_in_16_bits("tune", arguments.path, arguments.config);
  print_warnings(opened.config);
  apply_log_level(opened.config.logging, true);
  const Tuning tuning =
      tune(next_batches(opened, arguments.batches), {.budget = arguments.budget, .shares = shares_of(opened.config)});
  const bool holds = !tuning.fault && tuning.after.verdict() != Parity::Verdict::harmful && has_gradient(tuning.after);
  if (holds) atomic_write(arguments.out, tuned_config(arguments, opened, tuning));
  if (arguments.json) {
    std::cout << line_of(tuning_json(arguments, tuning, holds)) << '\n';
    return holds ? kDone : kNotHeld;
  }
  std::cout << arguments.path << " at step " << opened.step << ", " << opened.config.low.value_or(DType::f32) << ":\n";
  if (opened.left_out > 0) std::cout << "  " << left_out_text(opened) << '\n';
  if (tuning.fault)
    std::cout << tuning.fault->text() << "\n  neither modules in float32 nor bfloat16 mend this: no file was written\n";
  else if (!has_gradient(tuning.after))
    std::cout << "  the gradient of these batches is 0, in float32 as well: there is nothing to compare. No file was written.\n"
              << "  " << base_config(arguments) << " tunes from the first values\n";
  else
    print_tuning(arguments, tuning);
  return holds ? kDone : kNotHeld;
}

}  // namespace

void add_tune(CLI::App& program, Action& chosen) {
  auto arguments = std::make_shared<TuneArguments>();
  CLI::App* command = program.add_subcommand("tune", "Write a config with the modules in float32 that mixed precision needs");
  command->add_option("--out", arguments->out, "the new config, which extends the first")->required()->type_name("FILE");
  command->add_flag("--overwrite", arguments->overwrite, "replace that file");
  command
      ->add_option("--budget", arguments->budget, "largest share of the operations in float32, for modules in which rounding hurts")
      ->check(CLI::Range(0.0, 1.0))
      ->capture_default_str();
  add_batches(*command, *arguments);
  command->callback([arguments, &chosen] { chosen = [arguments] { return tune_config(*arguments); }; });
}

}  // namespace halfstep::app
