// SPDX-License-Identifier: Apache-2.0
// The subcommands. Each function adds one to the program; running it returns an exit code or throws.
#pragma once

#include <CLI/App.hpp>
#include <functional>
#include <string>
#include <vector>

#include "apps/commands/program.h"

namespace halfstep::app {

using Action = std::function<int()>;

// `chosen` is set when the subcommand was given.
void add_init(CLI::App& program, Action& chosen);
void add_train(CLI::App& program, Action& chosen);
void add_lr_find(CLI::App& program, Action& chosen);
void add_eval(CLI::App& program, Action& chosen);
void add_predict(CLI::App& program, Action& chosen);
void add_generate(CLI::App& program, Action& chosen);
void add_export(CLI::App& program, Action& chosen);
void add_validate(CLI::App& program, Action& chosen);
void add_doctor(CLI::App& program, Action& chosen);
void add_parity(CLI::App& program, Action& chosen);
void add_tune(CLI::App& program, Action& chosen);
void add_verify(CLI::App& program, Action& chosen);
void add_sweep(CLI::App& program, Action& chosen);
void add_plan(CLI::App& program, Action& chosen);
void add_inspect(CLI::App& program, Action& chosen);
void add_report(CLI::App& program, Action& chosen);
void add_compare(CLI::App& program, Action& chosen);
void add_explain(CLI::App& program, Action& chosen);
void add_schema(CLI::App& program, Action& chosen);
void add_completion(CLI::App& program, Action& chosen);
void add_devices(CLI::App& program, Action& chosen);
void add_bench(CLI::App& program, Action& chosen);
void add_op(CLI::App& program, Action& chosen);
void add_ops(CLI::App& program, Action& chosen);

// Prints the completions of the last of `words`, the arguments after the program's name, one on a line. No output: complete file
// names.
void complete(const CLI::App& program, const std::vector<std::string>& words);

}  // namespace halfstep::app
