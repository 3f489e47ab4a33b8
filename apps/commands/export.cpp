// SPDX-License-Identifier: Apache-2.0
#include <CLI/CLI.hpp>
#include <iostream>
#include <memory>

#include "apps/commands/commands.h"
#include "apps/commands/options.h"
#include "apps/exit_codes.h"
#include "apps/export/exporter.h"
#include "apps/terminal/quantity_text.h"

namespace halfstep::app {
namespace {

struct ExportArguments {
  std::string model, dtype = "float32";
  ExportOptions options;
  bool trained_weights = false;
};

int run_export(const ExportArguments& arguments) {
  ExportOptions options = arguments.options;
  options.dtype = *parse_dtype(arguments.dtype);
  options.averages = !arguments.trained_weights;
  const Exported exported = export_model(arguments.model, options);
  std::cerr << exported.notes;
  std::cout << "wrote " << exported.path.string() << ", " << bytes_text(double(exported.bytes)) << "; use it by\n  " << exported.use
            << '\n';
  return kDone;
}

}  // namespace

void add_export(CLI::App& program, Action& chosen) {
  auto arguments = std::make_shared<ExportArguments>();
  CLI::App* command = program.add_subcommand("export", "Write a trained model for other programs");
  command
      ->add_option("model", arguments->model,
                   "a run's folder (its best checkpoint, else its latest), RUN/latest, a checkpoint, or a file")
      ->required();
  command
      ->add_option("--to", arguments->options.to,
                   "onnx; safetensors: one file that predict takes; dir: this file in a folder with a model card; torch, cpp: code")
      ->required()
      ->check(CLI::IsMember({"onnx", "safetensors", "dir", "torch", "cpp"}));
  command->add_option("--out", arguments->options.out, "file or folder; default: named after the run, in the current folder")
      ->type_name("PATH");
  command->add_option("--dtype", arguments->dtype, "float32, float16; of safetensors also bfloat16: the weights alone")
      ->check(CLI::IsMember({"float32", "float16", "bfloat16"}));
  command->add_flag("--raw", arguments->options.raw, "onnx: inputs as the model takes them, without scaling and Normalize");
  command->add_flag("--probabilities", arguments->options.probabilities, "onnx: probabilities of classes");
  command
      ->add_option("--test-data", arguments->options.test_data,
                   "onnx: N folders test_data_set_0 ... beside it, with inputs and outputs")
      ->type_name("N")
      ->check(CLI::Range(int64_t(0), int64_t(1000)));
  command->add_flag("--external", arguments->options.external,
                    "onnx: tensors in a file of their own beside it (always above 2 GiB)");
  command->add_flag("--trained-weights", arguments->trained_weights,
                    "use the trained weights, even if the run has an average of them (train.ema, swa)");
  command->add_flag("--replace", arguments->options.replace, "replace an existing file or folder");
  command->callback([arguments, &chosen] { chosen = [arguments] { return run_export(*arguments); }; });
}

}  // namespace halfstep::app
