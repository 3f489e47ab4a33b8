// SPDX-License-Identifier: Apache-2.0
#include "apps/export/exporter.h"

#include <algorithm>

#include "framework/io/atomic_file.h"
#include "framework/io/safetensors.h"

namespace halfstep::app {
namespace {

namespace fs = std::filesystem;
constexpr const char* kExport = "export";

// "runs/digits/step-00000378" -> "digits"; "digits.safetensors" -> "digits"
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

Exported export_safetensors(const ExportSource& source, const ExportOptions& o) {
  ModelFile file = source.as_file();
  if (o.dtype != DType::f32) {
    for (auto& [name, t] : file.weights.tensors)
      if (t.dtype() == DType::f32) t = t.to(o.dtype);
  }
  // The golden samples' answers are those of the model as the run computed it: in mixed precision, if it used that.
  const Predictor as_run(source.path, {.averages = source.model.is_averaged()});
  StateDict rounded;
  for (const auto& [name, t] : file.weights.tensors) rounded.push_back({name, is_half(t.dtype()) ? t.to(DType::f32) : t});
  as_run.parts().model->load_state_dict(rounded, /*strict=*/false);
  const Proof proof = make_proof(as_run);
  if (o.out.has_parent_path()) fs::create_directories(o.out.parent_path());
  save_safetensors(o.out, file.weights.tensors, metadata_of(file, proof));
  return {.path = o.out, .bytes = int64_t(fs::file_size(o.out)), .use = "halfstep predict " + o.out.string() + " INPUT..."};
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
  out.path = o.out;
  out.use = "halfstep predict " + o.out.string() + " INPUT...";
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
  check<ConfigError>(o.replace || !fs::exists(o.out), kExport, o.out.string(), " exists", Help{"--replace, or another --out"});
  check<ConfigError>(!file || !fs::is_directory(o.out), kExport, o.out.string(), " is a folder", Help{"--out names a file"});
  const ExportSource source(model, o.averages);
  return o.to == "onnx"          ? export_onnx_model(source, o)
         : o.to == "safetensors" ? export_safetensors(source, o)
         : o.to == "dir"         ? export_folder(source, o)
         : o.to == "torch"       ? export_torch(source, o)
                                 : export_cpp(source, o);
}

}  // namespace halfstep::app
