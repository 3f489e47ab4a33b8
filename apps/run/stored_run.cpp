// SPDX-License-Identifier: Apache-2.0
#include "apps/run/stored_run.h"

#include <algorithm>
#include <fstream>

#include "apps/catalog/infer.h"
#include "apps/run/session.h"
#include "framework/base/check.h"

namespace halfstep::app {

StoredRun open_run(const char* command, const std::filesystem::path& run, const std::optional<int64_t>& latest,
                   const std::function<void(const std::string&)>& say) {
  StoredRun out;
  const bool is_checkpoint = checkpoint_step(run) >= 0 && std::filesystem::is_directory(run);
  out.folder = is_checkpoint ? run.parent_path() : run;
  check<CheckpointError>(std::filesystem::is_directory(out.folder), command, run.string(),
                         " is neither a run's folder nor a config",
                         Help{"give the folder that `halfstep train` names, or a JSON config"});
  std::vector<int64_t> steps = list_checkpoints(out.folder);
  std::reverse(steps.begin(), steps.end());
  for (const int64_t step : steps) {
    if (is_checkpoint ? step > checkpoint_step(run) : latest && step > *latest) continue;
    const std::filesystem::path at = out.folder / checkpoint_name(step);
    try {
      out.contents = load_checkpoint(at);
      out.checkpoint = at;
      break;
    } catch (const CheckpointError& e) {
      if (say) say(joined("passed over: ", one_line(e)));
    }
  }
  if (out.contents) {
    out.config = stored_config(*out.contents);
    return out;
  }
  std::ifstream in(out.folder / "config.resolved.json");
  check<CheckpointError>(in.good(), command, out.folder.string(), " has no checkpoint and no config.resolved.json",
                         Help{"give the folder of a run, or a JSON config"});
  out.config = Json::parse(in);
  return out;
}

}  // namespace halfstep::app
