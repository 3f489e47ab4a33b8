// SPDX-License-Identifier: Apache-2.0
#include "apps/record/metrics_file.h"

#include <sys/stat.h>

#include <algorithm>
#include <string_view>

#include "framework/base/check.h"
#include "framework/base/log.h"
#include "framework/io/files/atomic_file.h"
#include "framework/io/files/json.h"

namespace halfstep::app {
namespace {

// Classifies a line; one that a crash cut off, or of another program, is foreign.
EntryPlace place_of_line(std::string_view line, const ResumePoint& from) {
  try {
    return place_of(read_json<Json>(line), from);
  } catch (const JsonError&) { return EntryPlace::foreign; }
}

// Returns the lines up to `from` that will not be written again. foreign: incremented for each line that is not of a run.
std::string lines_until(const ResumePoint& from, const std::string& text, int64_t& foreign) {
  std::string kept;
  for (size_t begin = 0; begin < text.size();) {
    const size_t end = std::min(text.find('\n', begin), text.size());
    const std::string_view line = std::string_view(text).substr(begin, end - begin);
    begin = end + 1;
    const EntryPlace place = place_of_line(line, from);
    if (place == EntryPlace::foreign && !line.empty()) ++foreign;
    if (place == EntryPlace::before) kept.append(line).push_back('\n');
  }
  return kept;
}

}  // namespace

EntryPlace place_of(const Json& entry, const ResumePoint& from) {
  if (!entry.is_object() || !entry.contains("step") || !entry["step"].is_number_integer()) return EntryPlace::foreign;
  const Json& attempted = entry.contains("attempted") ? entry["attempted"] : entry["step"];  // older files lack it
  const int64_t step = attempted.is_number_integer() ? attempted.get<int64_t>() : -1;
  if (step < 0) return EntryPlace::foreign;
  if (step != from.step) return step < from.step ? EntryPlace::before : EntryPlace::again;
  if (entry.contains("train/epoch_loss")) {
    const Json epoch = entry.value("epoch", Json());
    return epoch.is_number_integer() && epoch.get<int64_t>() <= from.epoch ? EntryPlace::before : EntryPlace::again;
  }
  return (entry.contains("val/loss") ? from.last_eval_step : from.last_log_step) == step ? EntryPlace::before : EntryPlace::again;
}

MetricsFile::MetricsFile(const std::filesystem::path& path, const ResumePoint& from) {
  std::string kept;
  struct stat status = {};
  if (::stat(path.c_str(), &status) == 0) {
    check<IoError>(S_ISREG(status.st_mode), "metrics", path.string(), " must be a regular file");
    int64_t foreign = 0;
    if (from.step > 0) kept = lines_until(from, read_file(path), foreign);
    if (foreign > 0)
      logging::warn(path.string() + ": left out lines that are not metrics of a run, " + std::to_string(foreign) + " in all");
  }
  file_ = AppendedFile(path, kept);
}

void MetricsFile::write(const Json& entry) {
  file_.append((file_.is_torn() ? "\n" : "") + entry.dump(-1, ' ', false, Json::error_handler_t::replace) + '\n');
}

}  // namespace halfstep::app
