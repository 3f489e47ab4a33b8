// SPDX-License-Identifier: Apache-2.0
#include "apps/export/exporter.h"

#include <algorithm>

#include "apps/export/layer_code.h"
#include "apps/export/preparation.h"
#include "framework/io/files/atomic_file.h"
#include "framework/io/weights/safetensors.h"

namespace halfstep::app {
namespace {

namespace fs = std::filesystem;
constexpr const char* kExport = "export";

// Returns "digits" for "runs/digits/step-00000378" and for "digits.safetensors".
std::string name_of(const fs::path& model) {
  const fs::path at = fs::weakly_canonical(fs::absolute(model));
  if (at.extension() == ".safetensors") return at.stem() == "model" ? at.parent_path().filename().string() : at.stem().string();
  const bool is_in_run = checkpoint_step(at) >= 0 || at.filename() == "latest" || at.filename() == "best";
  return (is_in_run ? at.parent_path() : at).filename().string();
}

fs::path default_path(const fs::path& model, const std::string& to) {
  const std::string name = name_of(model);
  return to == "onnx" ? name + ".onnx" : to == "safetensors" ? name + ".safetensors" : name + "-" + to;
}

std::string use_line(const ExportSource& source, const fs::path& out) {
  const std::string command = source.command();
  return "halfstep " + command + ' ' + shell_word(out.string()) + (command == "predict" ? " INPUT..." : " --prompt TEXT");
}

// Checks that `out` may be written: it does not exist, or --replace was given and it is an earlier export.
void check_destination(const ExportOptions& options, bool is_file) {
  const fs::file_status status = fs::symlink_status(options.out);
  const std::string name = options.out.string();
  if (!fs::exists(status)) return;
  check<ConfigError>(options.replace, kExport, name, " exists", Help{"--replace, or another --out"});
  check<ConfigError>(fs::is_regular_file(status) || fs::is_directory(status), kExport, name,
                     " is no file or folder, but a link or device");
  check<ConfigError>(is_file != fs::is_directory(status), kExport, name, is_file ? " is a folder" : " is a file",
                     Help{is_file ? "--out names a file" : "--out names a folder"});
  for (const char* of_run : {"manifest.json", "latest", "config.resolved.json"})
    check<ConfigError>(!fs::exists(options.out / of_run), kExport, name, " is a run or a checkpoint, which an export would damage",
                       Help{"another --out"});
}

}  // namespace

ExportSource::ExportSource(const fs::path& run_or_file, bool averages)
    : stored(load_model(run_or_file)),
      model(stored, {.device = "cpu", .amp = false, .averages = averages}),
      data{{"form", Json(*to_json(model.form()))}, {"transforms", model.stored_transforms()}} {}

ModelFile ExportSource::as_file() const {
  return {.weights = saved_state(*model.parts().model),
          .config = stored_config(stored.contents),
          .data = data,
          .metrics = stored.metrics,
          .step = model.step(),
          .averaged = model.is_averaged()};
}

Proof ExportSource::proof_as_run(const TensorMap& weights) const {
  const Predictor as_run(stored, {.device = "cpu", .averages = model.is_averaged()});
  StateDict state;
  for (const auto& [name, t] : weights) state.push_back({name, is_half(t.dtype()) ? t.to(DType::f32) : t});
  as_run.parts().model->load_state_dict(state, /*strict=*/false);  // a shared tensor has one of its names
  return make_proof(as_run);
}

std::string ExportSource::command() const { return std::holds_alternative<TextForm>(model.form().source) ? "generate" : "predict"; }

Exported export_safetensors(const ExportSource& source, const ExportOptions& options) {
  ModelFile file = source.as_file();
  if (options.dtype != DType::f32) {
    for (auto& [name, t] : file.weights.tensors)
      if (t.dtype() == DType::f32) t = t.to(options.dtype);
  }
  if (options.out.has_parent_path()) fs::create_directories(options.out.parent_path());  // of a folder
  save_safetensors(options.out, file.weights.tensors, metadata_of(file, source.proof_as_run(file.weights.tensors)));
  return {.path = options.out, .bytes = int64_t(fs::file_size(options.out)), .use = use_line(source, options.out)};
}

Exported export_folder(const ExportSource& source, const ExportOptions& options) {
  ExportOptions file_options = options;
  file_options.out = options.out / "model.safetensors";
  Exported out = export_safetensors(source, file_options);
  const auto write = [&](const char* name, const std::string& text) {
    atomic_write(options.out / name, text);
    out.bytes += int64_t(text.size());
  };
  write("config.json", stored_config(source.stored.contents).dump(2) + '\n');
  write("data.json", source.data.dump(2) + '\n');
  write("README.md", model_card(source));
  if (const std::string tokenizer = tokenizer_file(source.model.form()); !tokenizer.empty()) write("tokenizer.json", tokenizer);
  out.path = options.out;
  out.use = use_line(source, options.out);
  return out;
}

Exported write_code(const ExportSource& source, const ExportOptions& options, const Preparation& prepare,
                    const std::map<std::string, std::string>& files) {
  const Predictor& model = source.model;
  const ModelFile file = source.as_file();
  const Proof proof =
      make_proof(model, golden_inputs(model, prepare), [&](const Tensor& x) { return prepared_output(model, prepare, x); });
  fs::create_directories(options.out);
  const fs::path weights = options.out / "model.safetensors", samples = options.out / "proof.safetensors";
  save_safetensors(weights, file.weights.tensors, metadata_of(file, source.proof_as_run(file.weights.tensors)));
  save_safetensors(samples, {{"input", proof.input}, {"output", proof.output}});
  Exported out{.path = options.out, .bytes = int64_t(fs::file_size(weights) + fs::file_size(samples))};
  std::map<std::string, std::string> texts = files;
  if (const std::string tokenizer = tokenizer_file(model.form()); !tokenizer.empty()) texts["tokenizer.json"] = tokenizer;
  for (const auto& [name, text] : texts) {
    atomic_write(options.out / name, text);
    out.bytes += int64_t(text.size());
  }
  for (const Json& t : prepare.outside) out.notes += "note: " + transform_text(t) + " is not in the code: prepare inputs with it\n";
  if (!prepare.wide.empty())
    out.notes += "note: give inputs in float64, since float32 does not have the digits of " + prepare.wide + '\n';
  return out;
}

Exported export_model(const fs::path& model, const ExportOptions& given) {
  ExportOptions options = given;
  const bool is_onnx = options.to == "onnx", is_file = is_onnx || options.to == "safetensors";
  check<ConfigError>(is_onnx || !(options.raw || options.probabilities || options.external || options.test_data > 0), kExport,
                     "--raw, --probabilities, --external and --test-data are for --to onnx, got --to ", options.to);
  check<ConfigError>(is_file || options.dtype == DType::f32, kExport, "--dtype is for --to onnx and --to safetensors, got --to ",
                     options.to);
  check<ConfigError>(!is_onnx || options.dtype != DType::bf16, kExport, "ONNX runtimes do not compute in bfloat16",
                     Help{"--dtype float32 or float16"});
  if (options.out.empty()) options.out = default_path(model, options.to);
  check<ConfigError>(options.to != "safetensors" || options.out.extension() == ".safetensors", kExport,
                     "--out must end in .safetensors, got ", options.out.string(), Help{"predict knows the file by this ending"});
  check_destination(options, is_file);
  const ExportSource source(model, options.averages);
  if (is_file && options.out.has_parent_path()) fs::create_directories(options.out.parent_path());
  return options.to == "onnx"          ? export_onnx_model(source, options)
         : options.to == "safetensors" ? export_safetensors(source, options)
         : options.to == "dir"         ? export_folder(source, options)
         : options.to == "torch"       ? export_torch(source, options)
                                       : export_cpp(source, options);
}

}  // namespace halfstep::app
