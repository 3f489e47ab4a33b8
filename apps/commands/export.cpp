// SPDX-License-Identifier: Apache-2.0
#include <CLI/CLI.hpp>
#include <iostream>
#include <memory>

#include "apps/commands/commands.h"
#include "apps/commands/options.h"
#include "apps/exit_codes.h"
#include "apps/export/exporter.h"
#include "apps/terminal/progress.h"

namespace halfstep::app {
namespace {

struct ExportArguments {
  std::string model, dtype = "float32";
  ExportOptions options;
  bool trained_weights = false;
};

int run_export(const ExportArguments& given) {
  ExportOptions o = given.options;
  o.dtype = *parse_dtype(given.dtype);
  o.averages = !given.trained_weights;
  const Exported made = export_model(given.model, o);
  std::cerr << made.notes;
  std::cout << "wrote " << made.path.string() << ", " << bytes_text(double(made.bytes)) << "; use it by\n  " << made.use << '\n';
  return kDone;
}

}  // namespace

void add_export(CLI::App& program, Action& chosen) {
  auto o = std::make_shared<ExportArguments>();
  CLI::App* c = program.add_subcommand("export", "Write a trained model for other programs");
  c->add_option("model", o->model, "a run's folder (its best checkpoint, else its latest), RUN/latest, a checkpoint, or a file")
      ->required();
  c->add_option("--to", o->options.to,
                "onnx; safetensors: one file that predict takes; dir: this file in a folder with a model card; torch, cpp: code")
      ->required()
      ->check(CLI::IsMember({"onnx", "safetensors", "dir", "torch", "cpp"}));
  c->add_option("--out", o->options.out, "file or folder; default: named after the run, in the current folder")->type_name("PATH");
  c->add_option("--dtype", o->dtype, "float32, float16; of safetensors also bfloat16: the weights alone")
      ->check(CLI::IsMember({"float32", "float16", "bfloat16"}));
  c->add_flag("--raw", o->options.raw, "onnx: inputs as the model takes them, without scaling and Normalize");
  c->add_flag("--probabilities", o->options.probabilities, "onnx: probabilities of classes");
  c->add_option("--test-data", o->options.test_data, "onnx: N folders test_data_set_0 ... beside it, with inputs and outputs")
      ->type_name("N")
      ->check(CLI::Range(int64_t(0), int64_t(1000)));
  c->add_flag("--external", o->options.external, "onnx: tensors in a file of their own beside it (always above 2 GiB)");
  c->add_flag("--trained-weights", o->trained_weights,
              "use the trained weights, even if the run has an average of them (train.ema, swa)");
  c->add_flag("--replace", o->options.replace, "replace an existing file or folder");
  c->callback([o, &chosen] { chosen = [o] { return run_export(*o); }; });
}

}  // namespace halfstep::app
