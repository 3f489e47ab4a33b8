// SPDX-License-Identifier: Apache-2.0
#include "amp/diagnosis/parity.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cmath>
#include <iomanip>
#include <iostream>
#include <memory>

#include "apps/commands/commands.h"
#include "apps/commands/options.h"
#include "apps/exit_codes.h"
#include "apps/terminal/quantity_text.h"
#include "apps/train/trainer.h"
#include "apps/use/loaded_run.h"

namespace halfstep::app {
namespace {

struct ParityArguments : BatchesOptions {
  bool bisect = false;
};

constexpr size_t kNameWidth = 44;  // of a table's first column
constexpr double kLeastGain = 0.001;  // that is listed

std::string short_name(const std::string& name) { return name.size() < kNameWidth ? name : name.substr(0, kNameWidth - 4) + "..."; }

// Returns "conv1 Conv2d".
std::string title_of(const ModuleParity& m) {
  return joined(m.path, m.path.empty() ? "" : " ", m.what.substr(0, m.what.find('(')));
}

std::string percent_text(double share) { return number_text(std::round(1000 * share) / 10, 4) + " %"; }

void print_verdict(const Parity& p) {
  const double measure = p.measure();
  std::cout << "  verdict   " << name(p.verdict()) << ": ";
  if (!p.by_noise) {
    std::cout << "the error of rounding is " << number_text(measure, 3) << " of the gradient\n";
  } else if (p.verdict() == Parity::Verdict::harmful) {
    std::cout << "rounding moves the gradient by more than the choice of a batch does\n";
  } else {
    std::cout << "rounding adds " << number_text(100 * measure * measure, 2)
              << " % to the variance that batches give the gradient\n";
  }
  std::cout << "  error     " << number_text(measure, 3) << (p.by_noise ? " of the noise" : " of the gradient")
            << "; harmless below " << p.harmless_below() << ", harmful from 1";
  if (!p.by_noise)
    std::cout << (p.batches == 1
                      ? ". One batch has no noise; --batches takes more"
                      : ". The batches have no noise:\n            training ends where the gradient is as small as its error");
  std::cout << "\n  gradient  error " << number_text(p.error, 3) << ", noise " << number_text(p.noise, 3) << ", bias "
            << number_text(p.bias, 3) << ", each of its length; cosine " << number_text(p.cosine, 6) << "\n            "
            << number_text(100 * p.flushed, 2) << " % of it flushed to 0";
  if (!p.worst.empty()) std::cout << "; worst: " << p.worst << ", error " << number_text(p.worst_error, 3);
  if (p.update_error)
    std::cout << "\n  update    error " << number_text(*p.update_error, 3)
              << " of its length, by the optimizer; no verdict goes by it";
  std::cout << "\n  loss      " << number_text(p.loss, 6) << ", in float32 " << number_text(p.loss_f32, 6) << '\n';
}

void print_modules(const std::vector<ModuleParity>& modules) {
  size_t exact = 0;
  std::cout << '\n'
            << std::left << std::setw(kNameWidth) << "  module, alone" << std::right << std::setw(10) << "roundings"
            << std::setw(12) << "error" << std::setw(12) << "expected" << std::setw(8) << "ratio" << '\n';
  for (const ModuleParity& m : modules) {
    if (m.roundings == 0 && m.error == 0) {
      ++exact;
      continue;
    }
    std::cout << "  " << std::left << std::setw(kNameWidth - 2) << short_name(title_of(m)) << std::right << std::setw(10)
              << m.roundings << std::setw(12) << number_text(m.error, 3) << std::setw(12) << number_text(m.expected, 3)
              << std::setw(8) << number_text(m.ratio(), 2) << (m.loses_precision() ? "  loses precision" : "") << '\n';
  }
  if (exact > 0) std::cout << "  " << exact << (exact == 1 ? " module computes" : " modules compute") << " in float32\n";
}

// A variant of the step, with a part of it in float32.
struct Trial {
  std::string name;
  double measure, gain;  // measure: see Parity::measure; gain: the share of the error that is removed
};

// Returns the trials, largest gain first.
std::vector<Trial> trials_of(const Parity& p, const std::vector<ParityVariant>& variants) {
  std::vector<Trial> out;
  for (size_t i = 0; i < p.variants.size(); ++i)
    out.push_back({variants[i].name, p.variants[i], p.measure() > 0 ? 1 - p.variants[i] / p.measure() : 0});
  std::stable_sort(out.begin(), out.end(), [](const Trial& a, const Trial& b) { return a.gain > b.gain; });
  return out;
}

void print_trials(const Parity& p, const std::vector<Trial>& trials) {
  if (trials.empty()) return;
  std::cout << '\n'
            << std::left << std::setw(kNameWidth) << "  in float32" << std::right << std::setw(16)
            << (p.by_noise ? "error / noise" : "error") << std::setw(12) << "less by" << '\n';
  size_t small = 0;
  for (const Trial& t : trials) {
    if (std::abs(t.gain) < kLeastGain) {
      ++small;
      continue;
    }
    std::cout << "  " << std::left << std::setw(kNameWidth - 2) << short_name(t.name) << std::right << std::setw(16)
              << number_text(t.measure, 3) << std::setw(12) << percent_text(t.gain) << '\n';
  }
  if (small > 0) std::cout << "  " << small << (small == 1 ? " other changes" : " others change") << " it by less than 0.1 %\n";
}

Json parity_json(const Parity& p, const std::vector<Trial>& trials) {
  Json modules = Json::array(), bisected = Json::array();
  for (const ModuleParity& m : p.modules)
    modules.push_back({{"name", m.path},
                       {"what", m.what},
                       {"roundings", m.roundings},
                       {"error", or_null(m.error)},
                       {"expected", m.expected},
                       {"ratio", or_null(m.ratio())},
                       {"loses_precision", m.loses_precision()}});
  for (const Trial& t : trials)
    bisected.push_back({{"in_float32", t.name}, {"measure", or_null(t.measure)}, {"gain", or_null(t.gain)}});
  Json out{{"verdict", p.fault ? "none" : name(p.verdict())},
           {"fault", nullptr},
           {"dtype", joined(p.low)},
           {"batches", p.batches},
           {"scale", p.scale}};
  if (p.fault) {
    out["fault"] = {{"cause", p.fault->cause}, {"where", p.fault->where}, {"what", p.fault->sentence}};
    return out;
  }
  out.update({{"measure", or_null(p.measure())},
              {"by", p.by_noise ? "noise" : "gradient"},
              {"error", or_null(p.error)},
              {"update_error", or_null(p.update_error)},
              {"noise", p.noise},
              {"cosine", p.cosine},
              {"bias", p.bias},
              {"flushed", p.flushed},
              {"worst", p.worst},
              {"worst_error", p.worst_error},
              {"loss", p.loss},
              {"loss_float32", p.loss_f32},
              {"modules", modules},
              {"bisected", bisected}});
  return out;
}

int parity(const ParityArguments& arguments) {
  apply_threads(arguments.threads);
  LoadedRun opened = open_in_16_bits("parity", arguments.path, arguments.config);
  print_warnings(opened.config);
  apply_log_level(opened.config.logging, true);
  const StepUnderTest step = next_batches(opened, arguments.batches);
  const std::vector<ParityVariant> variants = arguments.bisect ? bisection(step) : std::vector<ParityVariant>();
  Optimizer& optimizer = *opened.session.optimizer;
  for (size_t g = 0; g < optimizer.param_groups().size(); ++g)  // a schedule may end at 0, where updates could not be compared
    if (optimizer.lr(g) == 0) optimizer.set_lr(optimizer.initial_lr(g), g);
  const Parity p = compare_with_float32(step, variants, &optimizer);
  const std::vector<Trial> trials = trials_of(p, variants);
  const bool holds = p.verdict() != Parity::Verdict::harmful;
  if (arguments.json) {
    Json out = parity_json(p, trials);
    out["path"] = arguments.path, out["step"] = opened.step, out["left_out"] = opened.left_out;
    std::cout << line_of(out) << '\n';
    return holds ? kDone : kNotHeld;
  }
  std::cout << arguments.path << " at step " << opened.step << ": " << p.low << " against float32, " << arguments.batches
            << (arguments.batches == 1 ? " batch" : " batches")
            << (p.scale != 1 ? joined(", loss scale ", number_text(p.scale, 6)) : "") << '\n';
  if (opened.left_out > 0) std::cout << "  " << left_out_text(opened) << '\n';
  if (opened.was_float32) std::cout << "  amp is off there: this is what " << p.low << " would do; amp.dtype chooses another\n";
  if (p.fault) {
    std::cout << "  verdict   none: a batch has no finite gradient\n" << p.fault->text() << '\n';
    return kNotHeld;
  }
  print_verdict(p);
  print_modules(p.modules);
  print_trials(p, trials);
  return holds ? kDone : kNotHeld;
}

}  // namespace

void add_parity(CLI::App& program, Action& chosen) {
  auto arguments = std::make_shared<ParityArguments>();
  CLI::App* command = program.add_subcommand("parity", "Compare 16 bits with float32: does rounding hurt the training?");
  command->add_flag("--bisect", arguments->bisect, "find the reason: how much the error falls if parts of the step are in float32");
  add_batches(*command, *arguments);
  command->callback([arguments, &chosen] { chosen = [arguments] { return parity(*arguments); }; });
}

}  // namespace halfstep::app
