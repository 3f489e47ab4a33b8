// SPDX-License-Identifier: Apache-2.0
#include "apps/train/capsule.h"

#include <algorithm>
#include <iterator>
#include <map>
#include <utility>
#include <vector>

#include "amp/step/run_state.h"
#include "apps/catalog/infer.h"
#include "apps/catalog/modules.h"
#include "apps/config/config_path.h"
#include "apps/record/run_dir.h"
#include "apps/use/model_file.h"
#include "framework/backend/backend.h"
#include "framework/io/checkpoint/generator_state.h"
#include "framework/io/files/checksum.h"
#include "framework/io/files/json.h"
#include "framework/io/weights/safetensors.h"
#include "generated/halfstep_release.h"

namespace halfstep::app {
namespace {

namespace fs = std::filesystem;
constexpr const char* kDoctor = "doctor";
constexpr const char* kCapsuleVersion = "1";
constexpr const char* kModelPart = "model.";

std::string numbered(const char* what, size_t i) { return joined(what, '.', i); }

size_t bytes_of(const TensorMap& tensors) {
  size_t out = 0;
  for (const auto& [name, t] : tensors) out += t.nbytes();
  return out;
}

// Returns the number of capsules, without the one of a failed run.
int64_t capsules_in(const fs::path& folder) {
  std::error_code ignored;
  int64_t out = 0;
  for (const auto& entry : fs::directory_iterator(folder, ignored)) {
    const bool of_failed_run = entry.path().filename().string().starts_with(kFailedCapsule);
    out += entry.path().extension() == ".safetensors" && !of_failed_run;
  }
  return out;
}

// Returns a config that computes the same step on any device: "auto" becomes the dtype of mixed precision that the run used.
Json portable(Json config, const StepUnderTest& step) {
  if (step.low) config["amp"]["dtype"] = joined(*step.low);
  return config;
}

Json batch_json(const TestedBatch& b) {
  Json rows;
  if (b.rows) rows = {b.rows->first, b.rows->rows, b.rows->total};
  return {{"weight", b.weight}, {"samples", b.samples}, {"rows", rows}};
}

Json step_json(const StepUnderTest& step, const CapsuleStep& about, const Diagnosis& verdict) {
  Json batches = Json::array();
  for (const TestedBatch& b : step.batches) batches.push_back(batch_json(b));
  const StepHistory& h = about.history;
  return {{"step", about.number},
          {"epoch", about.epoch},
          {"what", about.what},
          {"scale", step.scale},
          {"low_gradients", step.low_gradients},
          {"random", generator_json(step.random)},
          {"batches", batches},
          {"rank", about.rank},
          {"ranks", about.ranks},
          {"history",
           {{"loss", h.loss}, {"update", h.update}, {"broke_weights", h.broke_weights}, {"eps", h.eps ? Json(*h.eps) : Json()}}},
          {"verdict", verdict_json(verdict)},
          {"written_by",
           {{"halfstep", HALFSTEP_VERSION}, {"threads", num_threads()}, {"device", backend_for(step.device).describe()}}}};
}

// Returns the newest checkpoint before the step, for a state that is too large, or that ranks share.
Json checkpoint_before(const fs::path& dir, int64_t step) {
  const std::vector<int64_t> all = list_checkpoints(dir);
  const auto later = std::lower_bound(all.begin(), all.end(), step);
  if (later == all.begin()) return {{"path", ""}, {"sha256", ""}};
  const fs::path at = fs::absolute(dir / checkpoint_name(*std::prev(later)));
  return {{"path", at.string()}, {"sha256", sha256_file(at / "manifest.json")}};
}

}  // namespace

std::optional<fs::path> write_capsule(const Config& config, Session& session, const StepUnderTest& step, const CapsuleStep& about,
                                      const Diagnosis& verdict) {
  const fs::path folder = fs::path(config.output_dir) / "capsules", path = folder / joined("step-", about.number, ".safetensors");
  if (capsules_in(folder) >= config.diagnostics.capsules && !fs::exists(path)) return {};
  const bool has_whole_state = !session.optimizer->is_sharded();
  CheckpointContents state = halfstep::pack(RunParts{*session.model, has_whole_state ? session.optimizer.get() : nullptr,
                                                     &session.scaler, session.schedule.get(), nullptr});
  Json json = step_json(step, about, verdict);
  TensorMap tensors;
  for (size_t i = 0; i < step.batches.size(); ++i) {
    tensors[numbered("input", i)] = step.batches[i].inputs.at(0);
    tensors[numbered("target", i)] = step.batches[i].targets.at(0);
  }
  const size_t limit = size_t(config.diagnostics.capsule_mb) << 20;  // bytes
  if (!has_whole_state || bytes_of(tensors) + bytes_of(state.model) + bytes_of(state.state) > limit) {
    json["checkpoint"] = checkpoint_before(config.output_dir, about.number);
  } else {
    for (const auto& [name, t] : state.model) tensors[kModelPart + name] = t;
    tensors.insert(state.state.begin(), state.state.end());
  }
  std::map<std::string, std::string> metadata{{"halfstep", HALFSTEP_VERSION},
                                              {"halfstep.capsule", kCapsuleVersion},
                                              {"halfstep.config", portable(config.json, step).dump()},
                                              {"halfstep.data", to_json(session.form)->dump()},
                                              {"halfstep.state", state.meta->dump()},
                                              {"halfstep.step", line_of(json)},
                                              {"halfstep.tensors", sha256(tensors)}};
  metadata["halfstep.sha256"] = metadata_digest(metadata);
  std::error_code error;
  fs::create_directories(folder, error);
  check<IoError>(!error, "train", "cannot make ", folder.string(), ": ", error.message());
  save_safetensors(path, tensors, metadata);
  return path;
}

namespace {

// Reads a capsule's file. Throws CheckpointError.
class CapsuleReader {
 public:
  explicit CapsuleReader(const fs::path& path) : path_(path) {
    try {
      file_ = load_safetensors(path);
    } catch (const IoError& e) { fail<CheckpointError>(kDoctor, "the capsule cannot be read: ", e.what()); }
    expect(file_.metadata.contains("halfstep.capsule"), "the file is no capsule",
           "halfstep train writes capsules into the folder of a run: capsules/step-N.safetensors");
    const std::string& version = file_.metadata.at("halfstep.capsule");
    expect(version == kCapsuleVersion,
           joined("the capsule is of version ", version, ", and this halfstep reads ", kCapsuleVersion));
    expect(text("halfstep.sha256") == metadata_digest(file_.metadata), "its metadata are not those that were written");
    expect(text("halfstep.tensors") == sha256(file_.tensors), "its tensors are not those that were written");
  }

  Capsule read() {
    Capsule out;
    out.config = json("halfstep.config");
    out.data = json("halfstep.data");
    out.state.meta = nlohmann::json(json("halfstep.state"));
    const Json step = json("halfstep.step");
    expect(step.is_object(), "halfstep.step is no object");
    const nlohmann::json sorted = step;
    read_step(StoredJson(sorted, "a capsule"), out);
    out.verdict = step["verdict"];
    for (auto& [name, t] : file_.tensors) {
      if (name.starts_with(kModelPart))
        out.state.model[name.substr(std::string(kModelPart).size())] = t;
      else
        out.state.state[name] = t;
    }
    return out;
  }

 private:
  void expect(bool holds, const std::string& fault, const char* help = "copy the capsule again, or train the run again") const {
    check<CheckpointError>(holds, kDoctor, path_.string(), ": ", fault, Help{help});
  }
  const std::string& text(const std::string& key) const {
    expect(file_.metadata.contains(key), "its metadata have no " + key);
    return file_.metadata.at(key);
  }
  Json json(const std::string& key) const {
    try {
      return read_json<Json>(text(key));
    } catch (const JsonError& e) { fail<CheckpointError>(kDoctor, path_.string(), ": ", key, " is no JSON: ", e.what()); }
  }
  Tensor take_tensor(const std::string& name) {
    const auto found = file_.tensors.find(name);
    expect(found != file_.tensors.end(), "the tensor " + name + " is missing");
    const Tensor out = found->second;
    file_.tensors.erase(found);
    return out;
  }

  void read_step(const StoredJson& stored, Capsule& out) {
    out.about.number = stored.integer("step", 1);
    out.about.epoch = stored.integer("epoch", 1);
    stored.expect(stored.get("what").is_string(), "what", "a text");
    out.about.what = stored.get("what").get<std::string>();
    out.about.rank = int(stored.integer("rank", 0));
    out.about.ranks = int(stored.integer("ranks", 1));
    const StoredJson history = stored.part("history"), random = stored.part("random"), writer = stored.part("written_by");
    out.about.history = {history.number("loss"), history.number("update"), history.get("broke_weights") == true,
                         history.number_or_null("eps")};
    out.scale = stored.number("scale");
    out.low_gradients = stored.get("low_gradients") == true;
    out.random = generator_state(random);
    out.threads = writer.integer("threads", 1);
    writer.expect(writer.get("halfstep").is_string(), "halfstep", "a version");
    out.written_by = writer.get("halfstep").get<std::string>();
    const StoredJson verdict = stored.part("verdict");
    for (const char* key : {"cause", "where", "what"}) verdict.expect(verdict.get(key).is_string(), key, "a text");
    const auto& batches = stored.get("batches");
    stored.expect(batches.is_array() && !batches.empty(), "batches", "a list");
    for (size_t i = 0; i < batches.size(); ++i) {
      stored.expect(batches[i].is_object(), "batches", "a list of objects");
      out.batches.push_back(take_batch(StoredJson(batches[i], "a batch of a capsule"), i));
    }
    if (!stored.has("checkpoint")) return;
    const StoredJson checkpoint = stored.part("checkpoint");
    for (const char* key : {"path", "sha256"}) checkpoint.expect(checkpoint.get(key).is_string(), key, "a text");
    out.checkpoint = checkpoint.get("path").get<std::string>();
    out.checkpoint_sha256 = checkpoint.get("sha256").get<std::string>();
  }

  // Returns the micro-batch with this index, whose tensors it takes from the file.
  Capsule::StoredBatch take_batch(const StoredJson& stored, size_t i) {
    const auto are_integers = [](const nlohmann::json& list) {
      return list.is_array() && std::all_of(list.begin(), list.end(), [](const auto& v) { return v.is_number_integer(); });
    };
    Capsule::StoredBatch out{take_tensor(numbered("input", i)), take_tensor(numbered("target", i)), stored.number("weight")};
    stored.expect(are_integers(stored.get("samples")), "samples", "a list of numbers");
    out.samples = stored.get("samples").get<std::vector<int64_t>>();
    if (!stored.has("rows")) return out;
    const auto& rows = stored.get("rows");
    stored.expect(are_integers(rows) && rows.size() == 3, "rows", "three numbers");
    out.rows = {rows[0].get<int64_t>(), rows[1].get<int64_t>(), rows[2].get<int64_t>()};
    stored.expect(out.rows->first >= 0 && out.rows->rows >= 0 && out.rows->first <= out.rows->total - out.rows->rows, "rows",
                  "rows of a batch");
    return out;
  }

  fs::path path_;
  TensorFile file_;
};

}  // namespace

Capsule read_capsule(const fs::path& path) { return CapsuleReader(path).read(); }

Diagnosis diagnosis_of(const Capsule& capsule, const std::string& name, const ConfigOptions& changes) {
  const DataForm form = read_form(nlohmann::json(capsule.data));
  ConfigOptions options = changes;
  options.form = &form;
  const Config config = resolve_config(capsule.config, name, options);
  const ModelParts parts = make_model(config);
  recompute_activations(*parts.model, config.train.checkpoint_activations);
  CheckpointContents state = capsule.state;
  for (auto& [key, t] : state.state) t = t.to(parts.device);
  try {
    halfstep::unpack(state, RunParts{*parts.model, nullptr, nullptr, nullptr, nullptr});
  } catch (const ValueError& e) {
    fail<CheckpointError>(kDoctor, name, ": the state does not fit the model of its config: ", one_line(e));
  }
  parts.model->train();
  StepUnderTest step{.module = *parts.model, .batches = {}, .device = parts.device, .low = parts.low};
  step.policies = config.policies;
  step.scale = capsule.scale;
  step.low_gradients = capsule.low_gradients;
  step.random = capsule.random;
  for (const Capsule::StoredBatch& b : capsule.batches) {
    const Tensor input = b.input.to(parts.device), target = b.target.to(parts.device);
    const auto loss = [&parts, &step, input, target, rows = b.rows] {
      const DrawsOf draws(rows);
      if (rows) default_generator().set_state(step.random);  // the rows of a window draw as one batch
      return (*parts.loss)((*parts.model)(input), target);
    };
    step.batches.push_back({loss, {input}, {target}, b.weight, b.samples, b.rows});
  }
  Diagnosis out = diagnose(step, capsule.about.history);
  out.config_path = place_in_config(config, out.where);
  return out;
}

fs::path checkpoint_of(const Capsule& capsule, const fs::path& path) {
  const fs::path former = capsule.checkpoint, beside = path.parent_path().parent_path() / former.filename();
  check<CheckpointError>(!former.empty(), kDoctor, path.string(), ": the capsule has no state, and its run had no checkpoint",
                         Help{"a larger diagnostics.capsule_mb keeps the state in the capsule"});
  for (const fs::path& at : {former, beside}) {
    std::error_code ignored;
    if (fs::exists(at / "manifest.json", ignored) && sha256_file(at / "manifest.json") == capsule.checkpoint_sha256) return at;
  }
  fail<CheckpointError>(kDoctor, path.string(), ": the capsule has no state, and the checkpoint that does, ", former.string(),
                        ", is gone or was replaced", Help{"a larger diagnostics.capsule_mb keeps the state in the capsule"});
}

Json verdict_json(const Diagnosis& verdict) {
  const auto word = [](Remedy::Tried tried) {
    return tried == Remedy::Tried::untried ? "untried" : tried == Remedy::Tried::holds ? "good" : "not enough";
  };
  Json remedies = Json::array();
  for (const Remedy& r : verdict.remedies) remedies.push_back({{"text", r.text}, {"tried", word(r.tried)}, {"result", r.result}});
  return {{"cause", verdict.cause},
          {"where", verdict.where},
          {"place", verdict.config_path.empty() ? Json() : Json(verdict.config_path)},
          {"what", verdict.sentence},
          {"evidence", verdict.evidence},
          {"remedies", remedies}};
}

}  // namespace halfstep::app
