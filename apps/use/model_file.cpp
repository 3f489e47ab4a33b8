// SPDX-License-Identifier: Apache-2.0
#include "apps/use/model_file.h"

#include <algorithm>
#include <exception>

#include "framework/io/files/checksum.h"
#include "framework/io/files/other_file.h"
#include "framework/io/weights/safetensors.h"
#include "generated/halfstep_release.h"

namespace halfstep::app {
namespace {

namespace fs = std::filesystem;
constexpr const char* kModel = "model";
constexpr const char* kFileVersion = "1";
constexpr int kMostTries = 100;

Json parsed(const std::map<std::string, std::string>& metadata, const std::string& key, const fs::path& path) {
  const auto found = metadata.find(key);
  check<CheckpointError>(found != metadata.end(), kModel, path.string(), ": its metadata has no ", key);
  const Json out = Json::parse(found->second, nullptr, /*allow_exceptions=*/false);
  check<CheckpointError>(!out.is_discarded(), kModel, path.string(), ": ", key, " in its metadata is no JSON");
  return out;
}

}  // namespace

std::string metadata_digest(const std::map<std::string, std::string>& metadata) {
  std::string text;
  for (const auto& [key, value] : metadata)
    if (key.starts_with("halfstep.") && key != "halfstep.sha256") text += key + '\0' + value + '\0';
  return sha256(text);
}

fs::path model_in_use(const fs::path& path) {
  std::error_code ignored;
  if (fs::is_directory(path, ignored) && checkpoint_step(path) < 0) {
    if (const auto best = best_checkpoint(path)) return *best;
    if (fs::exists(path / "model.safetensors", ignored) && !fs::exists(path / "manifest.json", ignored))
      return path / "model.safetensors";
  }
  if (!fs::is_regular_file(path, ignored)) return resolve_checkpoint(path);
  if (path.extension() == ".safetensors" || is_safetensors(path)) return path;
  const std::string name = path.filename().string();
  if (name != "latest" && name != "best") refuse_other_file<CheckpointError>(kModel, path, head_of_file(path));
  check<CheckpointError>(name == "latest" || name == "best", kModel, path.string(), " is no model that halfstep can use",
                         Help{"a run's folder, a checkpoint, or a .safetensors file that halfstep export wrote"});
  return resolve_checkpoint(path);
}

namespace {

StoredModel load_from(const fs::path& path) {
  std::error_code ignored;
  if (!fs::is_regular_file(path, ignored)) {
    StoredModel out{path, load_checkpoint(path)};
    const Json trainer = out.contents.meta->value("trainer", nlohmann::json::object());
    for (const auto& [key, value] : trainer.items())
      if (value.is_number() && (key.starts_with("val_") || key == "train_loss")) out.metrics[key] = value;
    return out;
  }
  TensorFile file;
  try {
    file = load_safetensors(path);
  } catch (const IoError& e) { fail<CheckpointError>(kModel, "the file cannot be read: ", e.what()); }
  check<CheckpointError>(
      file.metadata.contains("halfstep.config"), kModel, path.string(),
      ": the file holds weights alone, without the config that says what they belong to",
      Help{"\"weights\" of a model's config reads such a file; halfstep export --to safetensors writes whole models"});
  const auto version = file.metadata.find("halfstep.file");
  check<CheckpointError>(version != file.metadata.end() && version->second == kFileVersion, kModel, path.string(),
                         ": the file is of version ", version == file.metadata.end() ? "?" : version->second,
                         ", and this halfstep reads ", kFileVersion);
  const auto digest = file.metadata.find("halfstep.sha256");
  check<CheckpointError>(digest != file.metadata.end() && digest->second == metadata_digest(file.metadata), kModel, path.string(),
                         ": its metadata are not those that halfstep export wrote (halfstep.sha256)",
                         Help{"export the model again; a config is changed in the run, not in the file"});
  const Json step = parsed(file.metadata, "halfstep.step", path);
  check<CheckpointError>(step.is_number_integer(), kModel, path.string(), ": halfstep.step in its metadata is no whole number");
  StoredModel out{.path = path};
  out.contents.model = std::move(file.tensors);
  for (const auto& [alias, name] : file.metadata) {  // names of shared weights
    if (const auto shared = out.contents.model.find(name); shared != out.contents.model.end())
      out.contents.model.emplace(alias, shared->second);
  }
  out.contents.meta =
      nlohmann::json{{"format", 1}, {"config", parsed(file.metadata, "halfstep.config", path)}, {"trainer", {{"steps", step}}}};
  out.contents.data = JsonValue(nlohmann::json(parsed(file.metadata, "halfstep.data", path)));
  out.averaged = file.metadata.contains("halfstep.averaged");
  if (file.metadata.contains("halfstep.metrics")) out.metrics = parsed(file.metadata, "halfstep.metrics", path);
  const auto is_number = [](const Json& value) { return value.is_number(); };
  check<CheckpointError>(out.metrics.is_object() && std::all_of(out.metrics.begin(), out.metrics.end(), is_number), kModel,
                         path.string(), ": halfstep.metrics in its metadata must be numbers by name");
  if (const auto proof = file.metadata.find("halfstep.proof"); proof != file.metadata.end())
    out.proof = read_proof(proof->second, path.string());
  return out;
}

}  // namespace

StoredModel load_model(const fs::path& path) {
  for (int tries = 1;; ++tries) {
    const fs::path used = model_in_use(path);
    try {
      return load_from(used);
    } catch (const std::exception&) {  // of a missing file, whatever reads it
      std::error_code ignored;
      if (tries == kMostTries || fs::exists(used, ignored)) throw;
    }
  }
}

std::map<std::string, std::string> metadata_of(const ModelFile& model, const Proof& proof) {
  std::map<std::string, std::string> out{{"format", "pt"},
                                         {"halfstep", HALFSTEP_VERSION},
                                         {"halfstep.file", kFileVersion},
                                         {"halfstep.config", model.config.dump()},
                                         {"halfstep.data", model.data.dump()},
                                         {"halfstep.step", std::to_string(model.step)},
                                         {"halfstep.proof", to_text(proof)}};
  out.insert(model.weights.shared.begin(), model.weights.shared.end());
  if (!model.metrics.empty()) out["halfstep.metrics"] = model.metrics.dump();
  if (model.averaged) out["halfstep.averaged"] = "true";
  out["halfstep.sha256"] = metadata_digest(out);
  return out;
}

}  // namespace halfstep::app
