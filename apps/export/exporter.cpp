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
  const bool inside = checkpoint_step(at) >= 0 || at.filename() == "latest" || at.filename() == "best";
  return (inside ? at.parent_path() : at).filename().string();
}

fs::path default_path(const fs::path& model, const std::string& to) {
  const std::string name = name_of(model);
  return to == "onnx" ? name + ".onnx" : to == "safetensors" ? name + ".safetensors" : name + "-" + to;
}

std::string use_line(const ExportSource& source, const fs::path& out) {
  const std::string command = source.use_by_name();
  return "halfstep " + command + ' ' + shell_word(out.string()) + (command == "predict" ? " INPUT..." : " --prompt TEXT");
}

// Checks that `out` may be written: it does not exist, or --replace was given and it is an earlier export.
void check_place(const ExportOptions& o, bool file) {
  const fs::file_status there = fs::symlink_status(o.out);
  const std::string name = o.out.string();
  if (!fs::exists(there)) return;
  check<ConfigError>(o.replace, kExport, name, " exists", Help{"--replace, or another --out"});
  check<ConfigError>(fs::is_regular_file(there) || fs::is_directory(there), kExport, name,
                     " is no file or folder, but a link or device");
  check<ConfigError>(file != fs::is_directory(there), kExport, name, file ? " is a folder" : " is a file",
                     Help{file ? "--out names a file" : "--out names a folder"});
  for (const char* of_run : {"manifest.json", "latest", "config.resolved.json"})
    check<ConfigError>(!fs::exists(o.out / of_run), kExport, name, " is a run or a checkpoint, which an export would damage",
                       Help{"another --out"});
}

}  // namespace

ExportSource::ExportSource(const fs::path& at, bool averages)
    : path(model_in_use(at)),
      stored(load_model(path)),
      model(path, {.device = "cpu", .amp = false, .averages = averages}),
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
  const Predictor as_run(path, {.device = "cpu", .averages = model.is_averaged()});
  StateDict state;
  for (const auto& [name, t] : weights) state.push_back({name, is_half(t.dtype()) ? t.to(DType::f32) : t});
  as_run.parts().model->load_state_dict(state, /*strict=*/false);  // a shared tensor has one of its names
  return make_proof(as_run);
}

std::string ExportSource::use_by_name() const {
  return std::holds_alternative<TextForm>(model.form().source) ? "generate" : "predict";
}

Exported export_safetensors(const ExportSource& source, const ExportOptions& o) {
  ModelFile file = source.as_file();
  if (o.dtype != DType::f32) {
    for (auto& [name, t] : file.weights.tensors)
      if (t.dtype() == DType::f32) t = t.to(o.dtype);
  }
  if (o.out.has_parent_path()) fs::create_directories(o.out.parent_path());  // of a folder
  save_safetensors(o.out, file.weights.tensors, metadata_of(file, source.proof_as_run(file.weights.tensors)));
  return {.path = o.out, .bytes = int64_t(fs::file_size(o.out)), .use = use_line(source, o.out)};
}

Exported export_folder(const ExportSource& source, const ExportOptions& o) {
  ExportOptions of_file = o;
  of_file.out = o.out / "model.safetensors";
  Exported out = export_safetensors(source, of_file);
  const auto write = [&](const char* name, const std::string& text) {
    atomic_write(o.out / name, text);
    out.bytes += int64_t(text.size());
  };
  write("config.json", stored_config(source.stored.contents).dump(2) + '\n');
  write("data.json", source.data.dump(2) + '\n');
  write("README.md", model_card(source));
  if (const std::string tokenizer = tokenizer_file(source.model.form()); !tokenizer.empty()) write("tokenizer.json", tokenizer);
  out.path = o.out;
  out.use = use_line(source, o.out);
  return out;
}

Exported write_code(const ExportSource& source, const ExportOptions& o, const Preparation& prepare,
                    const std::map<std::string, std::string>& files) {
  const Predictor& model = source.model;
  const ModelFile file = source.as_file();
  const Proof proof =
      make_proof(model, golden_inputs(model, prepare), [&](const Tensor& x) { return prepared_output(model, prepare, x); });
  fs::create_directories(o.out);
  const fs::path weights = o.out / "model.safetensors", samples = o.out / "proof.safetensors";
  save_safetensors(weights, file.weights.tensors, metadata_of(file, source.proof_as_run(file.weights.tensors)));
  save_safetensors(samples, {{"input", proof.input}, {"output", proof.output}});
  Exported out{.path = o.out, .bytes = int64_t(fs::file_size(weights) + fs::file_size(samples))};
  std::map<std::string, std::string> all = files;
  if (const std::string tokenizer = tokenizer_file(model.form()); !tokenizer.empty()) all["tokenizer.json"] = tokenizer;
  for (const auto& [name, text] : all) {
    atomic_write(o.out / name, text);
    out.bytes += int64_t(text.size());
  }
  for (const Json& t : prepare.outside) out.notes += "note: " + transform_text(t) + " is not in the code: prepare inputs with it\n";
  return out;
}

Exported export_model(const fs::path& model, const ExportOptions& given) {
  ExportOptions o = given;
  const bool onnx = o.to == "onnx", file = onnx || o.to == "safetensors";
  check<ConfigError>(onnx || !(o.raw || o.probabilities || o.external || o.test_data > 0), kExport,
                     "--raw, --probabilities, --external and --test-data are for --to onnx, got --to ", o.to);
  check<ConfigError>(file || o.dtype == DType::f32, kExport, "--dtype is for --to onnx and --to safetensors, got --to ", o.to);
  check<ConfigError>(!onnx || o.dtype != DType::bf16, kExport, "ONNX runtimes do not compute in bfloat16",
                     Help{"--dtype float32 or float16"});
  if (o.out.empty()) o.out = default_path(model, o.to);
  check<ConfigError>(o.to != "safetensors" || o.out.extension() == ".safetensors", kExport, "--out must end in .safetensors, got ",
                     o.out.string(), Help{"predict knows the file by this ending"});
  check_place(o, file);
  const ExportSource source(model, o.averages);
  if (file && o.out.has_parent_path()) fs::create_directories(o.out.parent_path());
  return o.to == "onnx"          ? export_onnx_model(source, o)
         : o.to == "safetensors" ? export_safetensors(source, o)
         : o.to == "dir"         ? export_folder(source, o)
         : o.to == "torch"       ? export_torch(source, o)
                                 : export_cpp(source, o);
}

}  // namespace halfstep::app
