// SPDX-License-Identifier: Apache-2.0
#include "apps/session/stored_run.h"

#include <algorithm>
#include <fstream>

#include "apps/catalog/infer.h"
#include "apps/record/run_lock.h"
#include "apps/record/run_record.h"
#include "apps/session/session.h"
#include "framework/base/check.h"
#include "framework/io/files/atomic_file.h"
#include "framework/io/files/json.h"

namespace halfstep::app {
namespace {

// Opens the newest readable checkpoint that fits. Returns false if one vanished, because its run continues.
bool open_checkpoint(StoredRun& out, const std::optional<int64_t>& latest, const std::function<void(const std::string&)>& report) {
  std::vector<int64_t> steps = list_checkpoints(out.folder);
  std::reverse(steps.begin(), steps.end());
  bool vanished = false;
  for (const int64_t step : steps) {
    if (latest && step > *latest) continue;
    const std::filesystem::path at = out.folder / checkpoint_name(step);
    try {
      out.contents = load_checkpoint(at);
      out.checkpoint = at;
      return true;
    } catch (const IoError& e) {
      std::error_code ignored;
      if (std::filesystem::exists(at, ignored)) {
        if (report) report(joined("passed over: ", one_line(e)));
      } else {
        vanished = true;
      }
    }
  }
  return !vanished;
}

// Returns run.json's fingerprint of the data for steps after this one: a run may be resumed with other data.
std::string recorded_data(const std::filesystem::path& folder, int64_t step) {
  try {
    std::string out;
    const Json record = read_json<Json>(read_file(folder / "run.json", kMostRecordBytes));
    for (const Json& start : record.at("starts"))
      if (start.at("step").get<int64_t>() <= step) out = start.value("data_sha256", "");
    return out;
  } catch (const Error&) {
  } catch (const Json::exception&) {}  // missing or damaged: unknown
  return {};
}

}  // namespace

StoredRun open_run(const char* command, const std::filesystem::path& run, const std::optional<int64_t>& latest,
                   const std::function<void(const std::string&)>& report) {
  StoredRun out;
  const bool is_checkpoint = checkpoint_step(run) >= 0 && std::filesystem::is_directory(run);
  out.folder = is_checkpoint ? run.parent_path() : run;
  check<CheckpointError>(std::filesystem::is_directory(out.folder), command, run.string(),
                         " is neither a run's folder nor a config",
                         Help{"give the folder that `halfstep train` names, or a JSON config"});
  constexpr int kTries = 5;  // a running run removes older checkpoints
  for (int i = 0; i < kTries && !open_checkpoint(out, is_checkpoint ? checkpoint_step(run) : latest, report); ++i) {}
  if (out.contents) {
    out.config = stored_config(*out.contents);
    out.data_sha256 = recorded_data(out.folder, stored_step(*out.contents));
    if (out.data_sha256.empty()) out.data_sha256 = stored_data_sha256(*out.contents);
    return out;
  }
  out.data_sha256 = recorded_data(out.folder, 0);
  std::ifstream in(out.folder / "config.resolved.json");
  check<CheckpointError>(in.good(), command, out.folder.string(), " has no checkpoint and no config.resolved.json",
                         Help{"give the folder of a run, or a JSON config"});
  out.config = Json::parse(in);
  return out;
}

std::optional<RunningRun> still_running(const std::filesystem::path& folder) {
  const std::optional<std::string> holder = lock_holder(folder);
  if (!holder) return {};
  RunningRun out{.holder = *holder};
  std::ifstream in(folder / "metrics.jsonl", std::ios::binary);
  constexpr std::streamoff kTailBytes = std::streamoff(1) << 20;  // at the file's end, which are read: lines are shorter
  in.seekg(0, std::ios::end);
  in.seekg(std::max<std::streamoff>(0, std::streamoff(in.tellg()) - kTailBytes));
  for (std::string line; std::getline(in, line) && !in.eof();) {  // the last line may be incomplete
    const Json entry = Json::parse(line, nullptr, false);
    if (!entry.is_object() || !entry.contains("step") || !entry.contains("attempted")) continue;
    if (!entry["step"].is_number_integer() || !entry["attempted"].is_number_integer()) continue;
    out.step = entry["step"], out.attempted = entry["attempted"];
  }
  return out;
}

}  // namespace halfstep::app
