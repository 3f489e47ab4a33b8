#include "framework/io/checkpoint.h"

#include <fcntl.h>

#include <algorithm>
#include <cstdio>
#include <string>
#include <string_view>

#include "framework/base/check.h"
#include "framework/base/log.h"
#include "framework/io/atomic_file.h"
#include "framework/io/checksum.h"
#include "framework/io/safetensors.h"

namespace halfstep {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

constexpr const char* kWhere = "checkpoint";
constexpr const char* kFormat = "halfstep-checkpoint";
constexpr int kVersion = 1;
constexpr const char* kFiles[] = {"model.safetensors", "state.safetensors", "state.json"};

std::string step_name(int64_t step) {
  char buffer[40];
  std::snprintf(buffer, sizeof buffer, "step-%08lld", static_cast<long long>(step));
  return buffer;
}

// The step of a checkpoint's directory name; -1 for any other name.
int64_t step_of(const std::string& name) {
  if (name.rfind("step-", 0) != 0 || name.size() < 13 || name.size() > 23) return -1;
  if (!std::all_of(name.begin() + 5, name.end(), [](char c) { return c >= '0' && c <= '9'; })) return -1;
  return std::stoll(name.substr(5));
}

json parse_json(const fs::path& path) {
  try {
    return json::parse(read_file(path));
  } catch (const json::exception& e) { fail<IoError>(kWhere, path.string(), ": not valid JSON: ", e.what()); }
}

// The name in a pointer file; empty when there is none. The name must be a step's: a pointer never leads elsewhere.
std::string pointee(const fs::path& pointer) {
  if (!fs::is_regular_file(pointer)) return {};
  std::string name = read_file(pointer);
  while (!name.empty() && (name.back() == '\n' || name.back() == '\r' || name.back() == ' ')) name.pop_back();
  check<IoError>(step_of(name) >= 0, kWhere, pointer.string(), ": must hold the name of a checkpoint, e.g. ", step_name(1234),
                 ", got \"", name.substr(0, 80), '"');
  return name;
}

// What keeps the pruning from removing a run's only good state must not fail for a damaged pointer.
std::string pointee_or_empty(const fs::path& pointer) {
  try {
    return pointee(pointer);
  } catch (const IoError&) { return {}; }
}

template <class F>
void guarded(const fs::path& path, F&& action) {
  try {
    action();
  } catch (const fs::filesystem_error& e) { fail<IoError>(kWhere, path.string(), ": ", e.code().message()); }
}

// Renames `from` to `to`; when there is a `to` already, the two change places in one step, or where the file system cannot do
// that, `to` is removed first.
void put_in_place(const fs::path& from, const fs::path& to) {
  if (fs::exists(to)) {
    if (::renameat2(AT_FDCWD, from.c_str(), AT_FDCWD, to.c_str(), RENAME_EXCHANGE) == 0) return;
    fs::remove_all(to);
  }
  fs::rename(from, to);
}

void prune(const fs::path& dir, int keep_last) {
  const std::vector<int64_t> steps = list_checkpoints(dir);
  const std::string latest = pointee_or_empty(dir / "latest"), best = pointee_or_empty(dir / "best");
  for (size_t i = 0; i + size_t(keep_last) < steps.size(); ++i) {
    const std::string name = step_name(steps[i]);
    if (name != latest && name != best) fs::remove_all(dir / name);
  }
}

bool is_whole(const fs::path& checkpoint, std::string& why) {
  try {
    verify_checkpoint(checkpoint);
    return true;
  } catch (const IoError& e) {
    why = e.what();
    return false;
  }
}

}  // namespace

std::vector<int64_t> list_checkpoints(const fs::path& dir) {
  std::vector<int64_t> steps;
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(dir, error)) {
    const int64_t step = step_of(entry.path().filename().string());
    if (step >= 0 && entry.is_directory(error)) steps.push_back(step);
  }
  std::sort(steps.begin(), steps.end());
  return steps;
}

fs::path save_checkpoint(const fs::path& dir, int64_t step, const CheckpointContents& contents, int keep_last) {
  check<ValueError>(step >= 0, kWhere, "a step must not be negative, got ", step);
  const std::string name = step_name(step);
  const fs::path done = dir / name, temporary = dir / (name + ".tmp");
  guarded(done, [&] {
    fs::create_directories(dir);
    fs::remove_all(temporary);
    fs::create_directory(temporary);
    save_safetensors(temporary / kFiles[0], contents.model);
    save_safetensors(temporary / kFiles[1], contents.state);
    atomic_write(temporary / kFiles[2], contents.meta.dump(2) + '\n');
    json manifest = {{"format", kFormat}, {"version", kVersion}, {"step", step}, {"files", json::object()}};
    for (const char* file : kFiles) {
      manifest["files"][file] = {{"bytes", fs::file_size(temporary / file)}, {"sha256", sha256_file(temporary / file)}};
    }
    atomic_write(temporary / "manifest.json", manifest.dump(2) + '\n');
    put_in_place(temporary, done);
    sync_directory(dir);
    fs::remove_all(temporary);
    atomic_write(dir / "latest", name + '\n');
    if (keep_last > 0) prune(dir, keep_last);
  });
  return done;
}

void mark_best(const fs::path& dir, int64_t step) {
  const std::string name = step_name(step);
  check<IoError>(fs::is_directory(dir / name), kWhere, (dir / name).string(), ": there is no such checkpoint");
  atomic_write(dir / "best", name + '\n');
}

void verify_checkpoint(const fs::path& checkpoint) {
  const fs::path manifest_path = checkpoint / "manifest.json";
  const json manifest = parse_json(manifest_path);
  try {
    check<IoError>(manifest.at("format") == kFormat, kWhere, manifest_path.string(), ": not the manifest of a checkpoint");
    check<IoError>(manifest.at("version") == kVersion, kWhere, manifest_path.string(), ": version ", manifest.at("version").dump(),
                   " is not known, this build reads version ", kVersion);
    for (const char* file : kFiles) {
      const fs::path path = checkpoint / file;
      const json& entry = manifest.at("files").at(file);
      const auto expected = entry.at("bytes").get<uint64_t>();
      check<IoError>(fs::is_regular_file(path), kWhere, path.string(), ": the file is missing");
      const uint64_t bytes = fs::file_size(path);
      check<IoError>(bytes == expected, kWhere, path.string(), ": must have ", expected, " bytes, has ", bytes);
      const std::string digest = sha256_file(path);
      check<IoError>(digest == entry.at("sha256"), kWhere, path.string(), ": the file is damaged: its SHA-256 is ", digest,
                     ", the manifest says ", entry.at("sha256").dump());
    }
  } catch (const json::exception& e) {
    fail<IoError>(kWhere, manifest_path.string(), ": not the manifest of a checkpoint: ", e.what());
  }
}

fs::path resolve_checkpoint(const fs::path& path) {
  if (fs::is_regular_file(path) && path.filename() != "manifest.json") return path.parent_path() / pointee(path);
  if (fs::is_regular_file(path)) return path.parent_path();
  check<IoError>(fs::is_directory(path), kWhere, path.string(), ": there is no such file or directory");
  if (fs::exists(path / "manifest.json") || step_of(path.filename().string()) >= 0) return path;
  const auto latest = latest_checkpoint(path);
  check<IoError>(latest.has_value(), kWhere, path.string(), ": holds no checkpoint that is whole");
  return *latest;
}

CheckpointContents load_checkpoint(const fs::path& path, Device device) {
  const fs::path checkpoint = resolve_checkpoint(path);
  verify_checkpoint(checkpoint);
  return {load_safetensors(checkpoint / kFiles[0], device).tensors, load_safetensors(checkpoint / kFiles[1], device).tensors,
          parse_json(checkpoint / kFiles[2])};
}

std::optional<fs::path> latest_checkpoint(const fs::path& dir) {
  const std::vector<int64_t> steps = list_checkpoints(dir);
  const std::string latest = pointee_or_empty(dir / "latest");
  std::string why = (dir / "latest").string() + " is missing or damaged";
  if (!latest.empty() && is_whole(dir / latest, why)) return dir / latest;
  if (steps.empty()) return {};
  for (auto step = steps.rbegin(); step != steps.rend(); ++step) {
    const fs::path candidate = dir / step_name(*step);
    std::string ignored;
    if (candidate.filename() == latest || !is_whole(candidate, ignored)) continue;
    logging::warn("the latest checkpoint cannot be used (" + why + "); falling back to " + candidate.string());
    return candidate;
  }
  logging::warn("no checkpoint in " + dir.string() + " can be used (" + why + ")");
  return {};
}

std::optional<fs::path> best_checkpoint(const fs::path& dir) {
  const std::string best = pointee(dir / "best");
  if (best.empty()) return {};
  return dir / best;
}

}  // namespace halfstep
