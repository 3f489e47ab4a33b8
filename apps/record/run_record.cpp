// SPDX-License-Identifier: Apache-2.0
#include "apps/record/run_record.h"

#include <algorithm>
#include <ctime>
#include <utility>

#include "apps/catalog/infer.h"
#include "apps/terminal/build_info.h"
#include "framework/base/check.h"
#include "framework/base/log.h"
#include "framework/io/files/atomic_file.h"
#include "framework/io/files/json.h"

namespace halfstep::app {
namespace {

constexpr size_t kMostStarts = 100;  // keeps the file small if a run is resumed very often

// Returns "2026-11-26T10:41:08Z".
std::string utc_now() {
  const std::time_t now = std::time(nullptr);
  std::tm parts{};
  gmtime_r(&now, &parts);
  char text[32];
  std::strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%SZ", &parts);
  return text;
}

Json earlier_starts(const std::filesystem::path& path) {
  std::error_code ignored;
  if (!std::filesystem::is_regular_file(path, ignored)) return Json::array();  // an older halfstep wrote none
  try {
    const Json old = read_json<Json>(read_file(path, kMostRecordBytes));
    if (old.is_object() && old.contains("starts") && old["starts"].is_array()) return old["starts"];
  } catch (const Error&) {}  // reported below
  logging::warn(path.string() + " is not what halfstep writes; it begins anew");
  return Json::array();
}

}  // namespace

RunRecord::RunRecord(std::filesystem::path path, const Json& facts, int64_t step, bool continues) : path_(std::move(path)) {
  Json start = {{"time", utc_now()}, {"step", step}};
  start.update(build_info());
  start.update(facts);
  Json starts = continues ? earlier_starts(path_) : Json::array();
  while (starts.size() >= kMostStarts) starts.erase(0);
  starts.push_back(start);
  json_ = {{"version", 1}, {"starts", starts}, {"ending", "running"}, {"ended", nullptr}, {"summary", nullptr}};
  atomic_write(path_, json_.dump(2, ' ', false, Json::error_handler_t::replace) + "\n");
}

void RunRecord::end(const std::string& ending, const Json& summary) {
  json_["ending"] = ending;
  json_["ended"] = utc_now();
  json_["summary"] = summary;
  try {
    atomic_write(path_, json_.dump(2, ' ', false, Json::error_handler_t::replace) + "\n");
  } catch (const IoError& e) { logging::warn(one_line(e)); }
}

Json command_line() {
  Json out = Json::array();
  std::string bytes;
  try {
    bytes = read_file("/proc/self/cmdline", kMostRecordBytes);
  } catch (const IoError&) { return out; }
  for (size_t begin = 0; begin < bytes.size();) {
    const size_t end = std::min(bytes.find('\0', begin), bytes.size());
    out.push_back(bytes.substr(begin, end - begin));
    begin = end + 1;
  }
  return out;
}

}  // namespace halfstep::app
