// SPDX-License-Identifier: Apache-2.0
#include "framework/io/checkpoint/checkpoint.h"

#include <fcntl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <iterator>
#include <string>
#include <string_view>
#include <vector>

#include "framework/base/check.h"
#include "framework/base/log.h"
#include "framework/base/number_text.h"
#include "framework/io/files/atomic_file.h"
#include "framework/io/files/checksum.h"
#include "framework/io/files/json.h"
#include "framework/io/weights/safetensors.h"
#include "framework/io/weights/safetensors_header.h"
#include "generated/halfstep_release.h"

namespace halfstep {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

constexpr const char* kCheckpoint = "checkpoint";
constexpr const char* kFormat = "halfstep-checkpoint";
constexpr int kVersion = 2;  // version 1 has no data.json
constexpr const char *kModelFile = "model.safetensors", *kStateFile = "state.safetensors", *kMetaFile = "state.json";
constexpr const char* kFiles[] = {kModelFile, kStateFile, kMetaFile};  // of every checkpoint
constexpr const char* kDataFile = "data.json";                         // of checkpoints whose inputs are known
constexpr const char *kBeingWritten = ".tmp", *kBeingRemoved = ".old", *kUnreadable = ".unreadable";
constexpr const char *kLatest = "latest", *kBest = "best";

struct NewerVersion : CheckpointError {
  using CheckpointError::CheckpointError;
};

// Lengths of "step-" with the 8 digits that checkpoint_name() writes at least, and with 18, which always fit an int64.
constexpr size_t kShortestName = 13, kLongestName = 23;

// Returns the step of a checkpoint's directory name; -1 for any other name.
int64_t step_of(std::string_view name) {
  if (!name.starts_with("step-") || name.size() < kShortestName || name.size() > kLongestName) return -1;
  if (!std::all_of(name.begin() + 5, name.end(), is_digit)) return -1;
  const int64_t step = std::stoll(std::string(name.substr(5)));
  return checkpoint_name(step) == name ? step : -1;
}

// Returns the same for a name that ends in `suffix`.
int64_t step_of(std::string_view name, std::string_view suffix) {
  return name.ends_with(suffix) ? step_of(name.substr(0, name.size() - suffix.size())) : -1;
}

fs::path with_suffix(const fs::path& path, const std::string& suffix) { return path.string() + suffix; }

// Runs `action`; turns errors of std::filesystem into IoError.
template <class F>
auto with_io_errors(F&& action) {
  try {
    return action();
  } catch (const fs::filesystem_error& e) { fail<IoError>(kCheckpoint, e.path1().string(), ": ", e.code().message()); }
}

json read_json_file(const fs::path& path) {
  check<CheckpointError>(fs::is_regular_file(path), kCheckpoint, path.string(), ": the file is missing");
  try {
    return read_json<json>(read_file(path));
  } catch (const JsonError& e) { fail<CheckpointError>(kCheckpoint, path.string(), ": not valid JSON: ", e.what()); }
}

// Returns the files of a checkpoint, according to its manifest.
std::vector<std::string> files_of(const json& manifest_files) {
  std::vector<std::string> out(std::begin(kFiles), std::end(kFiles));
  if (manifest_files.is_object() && manifest_files.contains(kDataFile)) out.emplace_back(kDataFile);
  return out;
}

// Returns the entries of the manifest's files, after checking the sizes of the files.
json read_manifest(const fs::path& checkpoint) {
  const fs::path path = checkpoint / "manifest.json";
  const json manifest = read_json_file(path);
  const auto value = [](const json& object, const std::string& key) {
    const auto found = object.is_object() ? object.find(key) : object.end();
    return found == object.end() ? json() : *found;
  };
  check<CheckpointError>(value(manifest, "format") == kFormat, kCheckpoint, path.string(), ": not the manifest of a checkpoint");
  const json version = value(manifest, "version");
  if (version.is_number_integer() && version > kVersion) {
    fail<NewerVersion>(kCheckpoint, path.string(), ": version ", version.dump(),
                       " was written by a newer halfstep, this build reads version ", kVersion);
  }
  check<CheckpointError>(version == 1 || version == kVersion, kCheckpoint, path.string(), ": version ", version.dump(),
                         " is not known, this build reads versions 1 and ", kVersion);
  const json files = value(manifest, "files");
  for (const std::string& file : files_of(files)) {
    const json entry = value(files, file), bytes = value(entry, "bytes");
    check<CheckpointError>(bytes.is_number_unsigned() && value(entry, "sha256").is_string(), kCheckpoint, path.string(),
                           ": must hold bytes and sha256 of ", file, ", got ", entry.dump().substr(0, 100));
    check<CheckpointError>(fs::is_regular_file(checkpoint / file), kCheckpoint, (checkpoint / file).string(),
                           ": the file is missing");
    const uint64_t size = fs::file_size(checkpoint / file);
    check<CheckpointError>(bytes == size, kCheckpoint, (checkpoint / file).string(), ": must have ", bytes.dump(), " bytes, has ",
                           size);
  }
  return files;
}

// Returns whether the manifest can be read and all files have its sizes. This overlooks changed bytes, which verify_checkpoint
// finds, but reads only one small file.
bool has_whole_files(const fs::path& checkpoint) {
  try {
    read_manifest(checkpoint);
    return true;
  } catch (const IoError&) { return false; }
}

// Returns the name in a pointer file; empty if there is none. The name must be a step's: a pointer never leads elsewhere.
std::string read_pointer(const fs::path& pointer) {
  if (!fs::is_regular_file(pointer)) return {};
  std::string name = read_file(pointer);
  while (!name.empty() && (name.back() == '\n' || name.back() == '\r' || name.back() == ' ')) name.pop_back();
  check<CheckpointError>(step_of(name) >= 0, kCheckpoint, pointer.string(), ": must hold the name of a checkpoint, e.g. ",
                         checkpoint_name(1234), ", got \"", name.substr(0, 80), '"');
  return name;
}

// Returns the same, but "" for a damaged pointer: the code that protects a run's only good state from pruning must not fail.
std::string read_pointer_or_empty(const fs::path& pointer) {
  try {
    return read_pointer(pointer);
  } catch (const IoError&) { return {}; }
}

// Writes the name of the step's checkpoint into a pointer file, unless it is there.
void write_pointer(const fs::path& dir, const char* pointer, int64_t step, Waits waits) {
  with_io_errors([&] {
    const std::string name = checkpoint_name(step);
    check<CheckpointError>(fs::is_directory(dir / name), kCheckpoint, (dir / name).string(), ": there is no such checkpoint");
    if (read_pointer_or_empty(dir / pointer) != name) atomic_write(dir / pointer, name + '\n', waits);
  });
}

// Renames first, so that a half-removed checkpoint does not look like a damaged one.
void remove_checkpoint(const fs::path& checkpoint) {
  const fs::path old = with_suffix(checkpoint, kBeingRemoved);
  fs::remove_all(old);
  fs::rename(checkpoint, old);
  fs::remove_all(old);
}

// Renames `from` to `to`. If `to` exists, the two change places in one step; where the file system cannot do that, `to` is first
// moved out of the way, and clean_up_checkpoints completes what a crash leaves.
void put_in_place(const fs::path& from, const fs::path& to) {
  if (fs::exists(to) && !has_whole_files(to)) set_aside(to);
  if (!fs::exists(to)) return fs::rename(from, to);
  constexpr unsigned kExchange = 1u << 1;  // RENAME_EXCHANGE; musl before 1.2.6 has neither the name nor the function
  if (::syscall(SYS_renameat2, AT_FDCWD, from.c_str(), AT_FDCWD, to.c_str(), kExchange) == 0) return;
  const fs::path old = with_suffix(to, kBeingRemoved);
  fs::remove_all(old);
  fs::rename(to, old);
  try {
    fs::rename(from, to);
  } catch (...) {
    fs::rename(old, to);
    throw;
  }
  fs::remove_all(old);
}

// Removes all but the newest `keep_last` checkpoints, those of the steps `keep` and those of the pointers. pace: also keeps those
// on the disk while newer ones are not.
void prune(const fs::path& dir, int keep_last, const std::vector<int64_t>& keep, const CheckpointPace* pace) {
  const auto is_last_on_disk = [&](int64_t step) { return pace && pace->has_pending() && !pace->is_pending(step); };
  std::vector<int64_t> steps = list_checkpoints(dir);
  std::erase_if(steps, [&](int64_t step) { return !has_whole_files(dir / checkpoint_name(step)); });
  const std::string latest = read_pointer_or_empty(dir / kLatest), best = read_pointer_or_empty(dir / kBest);
  for (size_t i = 0; i + size_t(keep_last) < steps.size(); ++i) {
    const std::string name = checkpoint_name(steps[i]);
    const bool is_listed = std::find(keep.begin(), keep.end(), steps[i]) != keep.end();
    if (!is_listed && name != latest && name != best && !is_last_on_disk(steps[i])) remove_checkpoint(dir / name);
  }
}

// Returns a message "[checkpoint] r/step-...: why" without its heading, for a list.
std::string without_heading(const std::string& message) {
  const std::string heading = std::string("[") + kCheckpoint + "] ";
  return message.starts_with(heading) ? message.substr(heading.size()) : message;
}

}  // namespace

std::string checkpoint_name(int64_t step) {
  char buffer[40];
  std::snprintf(buffer, sizeof buffer, "step-%08lld", static_cast<long long>(step));
  return buffer;
}

std::vector<int64_t> list_checkpoints(const fs::path& dir) {
  std::vector<int64_t> steps;
  std::error_code error;
  for (fs::directory_iterator entry(dir, error), end; !error && entry != end; entry.increment(error)) {
    const int64_t step = step_of(entry->path().filename().string());
    std::error_code ignored;
    if (step >= 0 && entry->is_directory(ignored)) steps.push_back(step);
  }
  check<IoError>(!error || error == std::errc::no_such_file_or_directory, kCheckpoint, dir.string(),
                 ": cannot be read: ", error.message());
  std::sort(steps.begin(), steps.end());
  return steps;
}

int64_t checkpoint_step(const fs::path& checkpoint) {
  return step_of((checkpoint.has_filename() ? checkpoint : checkpoint.parent_path()).filename().string());
}

fs::path save_checkpoint(const fs::path& dir, int64_t step, const CheckpointContents& contents, int keep_last,
                         const std::vector<int64_t>& keep, CheckpointPace* pace) {
  check<ValueError>(step >= 0, kCheckpoint, "a step must not be negative, got ", step);
  const fs::path done = dir / checkpoint_name(step), temporary = with_suffix(done, kBeingWritten);
  with_io_errors([&] {
    // A checkpoint on the disk is not replaced by one that is not.
    const bool waits = !pace || pace->is_due() || (fs::exists(done) && !pace->is_pending(step));
    const Waits file_waits = pace ? Waits::no : Waits::yes;  // a pace waits for all files together
    try {
      fs::create_directories(dir);
      fs::remove_all(temporary);
      fs::create_directory(temporary);
      write_safetensors(temporary / kModelFile, contents.model,
                        {{"format", "pt"}, {"halfstep", HALFSTEP_VERSION}, {"step", std::to_string(step)}}, file_waits);
      write_safetensors(temporary / kStateFile, contents.state, {}, file_waits);
      atomic_write(temporary / kMetaFile, write_json(*contents.meta, 2, kCheckpoint) + '\n', file_waits);
      if (contents.data) atomic_write(temporary / kDataFile, write_json(**contents.data, 1, kCheckpoint) + '\n', file_waits);
      json manifest = {{"format", kFormat}, {"version", kVersion}, {"step", step}, {"files", json::object()}};
      if (contents.data) manifest["files"][kDataFile] = json::object();
      for (const std::string& file : files_of(manifest["files"])) {
        manifest["files"][file] = {{"bytes", fs::file_size(temporary / file)}, {"sha256", sha256_file(temporary / file)}};
      }
      atomic_write(temporary / "manifest.json", manifest.dump(2) + '\n', file_waits);
      if (pace && waits) sync_files(temporary);  // before a name leads to them
      put_in_place(temporary, done);
    } catch (...) {
      std::error_code ignored;
      fs::remove_all(temporary, ignored);  // frees room on a full disk
      throw;
    }
    if (waits) sync_directory(dir);
    fs::remove_all(temporary);
    atomic_write(dir / kLatest, checkpoint_name(step) + '\n', file_waits);
    if (pace) pace->add(step);
    if (pace && waits) pace->wait(dir);
    if (keep_last > 0) prune(dir, keep_last, keep, pace);
  });
  return done;
}

void settle_checkpoints(const fs::path& dir, CheckpointPace& pace, int keep_last, const std::vector<int64_t>& keep) {
  if (!pace.has_pending()) return;
  with_io_errors([&] {
    pace.wait(dir);
    if (keep_last > 0) prune(dir, keep_last, keep, nullptr);
  });
}

void mark_latest(const fs::path& dir, int64_t step) { write_pointer(dir, kLatest, step, Waits::yes); }
void mark_best(const fs::path& dir, int64_t step, Waits waits) { write_pointer(dir, kBest, step, waits); }

void verify_checkpoint(const fs::path& checkpoint) {
  with_io_errors([&] {
    const json files = read_manifest(checkpoint);
    for (const std::string& file : files_of(files)) {
      const std::string digest = sha256_file(checkpoint / file);
      check<CheckpointError>(files[file]["sha256"] == digest, kCheckpoint, (checkpoint / file).string(),
                             ": the file is damaged: its SHA-256 is ", digest, ", the manifest says ",
                             files[file]["sha256"].dump());
    }
  });
}

fs::path resolve_checkpoint(const fs::path& given) {
  return with_io_errors([&]() -> fs::path {
    const fs::path path = given.has_filename() ? given : given.parent_path();
    if (fs::is_regular_file(path))
      return path.parent_path() / (path.filename() == "manifest.json" ? fs::path() : fs::path(read_pointer(path)));
    check<CheckpointError>(fs::is_directory(path), kCheckpoint, given.string(), ": there is no such file or directory");
    if (fs::exists(path / "manifest.json") || step_of(path.filename().string()) >= 0) return path;
    const auto latest = latest_checkpoint(path);
    check<CheckpointError>(latest.has_value(), kCheckpoint, path.string(), ": holds no checkpoint");
    return *latest;
  });
}

CheckpointContents load_checkpoint(const fs::path& path, Device device) {
  try {
    return with_io_errors([&] {
      const fs::path checkpoint = resolve_checkpoint(path);
      verify_checkpoint(checkpoint);
      CheckpointContents out{load_safetensors(checkpoint / kModelFile, device).tensors,
                             load_safetensors(checkpoint / kStateFile, device).tensors, read_json_file(checkpoint / kMetaFile)};
      if (read_manifest(checkpoint).contains(kDataFile)) out.data = read_json_file(checkpoint / kDataFile);
      return out;
    });
  } catch (const CheckpointError&) { throw; } catch (const IoError& e) {
    throw CheckpointError(e.what());
  }
}

std::optional<fs::path> latest_checkpoint(const fs::path& dir, std::vector<fs::path>* passed_over) {
  return with_io_errors([&]() -> std::optional<fs::path> {
    const std::vector<int64_t> steps = list_checkpoints(dir);
    if (steps.empty() && !fs::exists(dir / kLatest)) return {};
    const std::string latest = read_pointer_or_empty(dir / kLatest);
    std::vector<std::string> names;
    if (!latest.empty()) names.push_back(latest);
    for (auto step = steps.rbegin(); step != steps.rend(); ++step) {
      if (checkpoint_name(*step) != latest) names.push_back(checkpoint_name(*step));
    }
    std::vector<std::string> faults;
    if (latest.empty()) faults.push_back((dir / kLatest).string() + " is missing or damaged");
    std::vector<fs::path> tried;
    bool found_newer_version = false;
    for (const std::string& name : names) {
      try {
        verify_checkpoint(dir / name);
        if (found_newer_version) {
          faults.push_back((dir / name).string() + ": can be read, but is not the newest");
          continue;
        }
        if (!faults.empty())
          logging::warn("the latest checkpoint cannot be used (" + faults.front() + "); falling back to " + (dir / name).string());
        if (passed_over) passed_over->insert(passed_over->end(), tried.begin(), tried.end());
        return dir / name;
      } catch (const IoError& e) {
        const bool was_replaced = !fs::exists(dir / name) && read_pointer_or_empty(dir / kLatest) != latest;
        if (was_replaced) return latest_checkpoint(dir, passed_over);
        found_newer_version = found_newer_version || dynamic_cast<const NewerVersion*>(&e);
        faults.push_back(without_heading(e.what()));
        tried.push_back(dir / name);
      }
    }
    std::string list;
    for (const std::string& fault : faults) list += "\n  " + fault;
    fail<CheckpointError>(kCheckpoint, dir.string(),
                          found_newer_version
                              ? ": was written by a newer halfstep, and resuming from an older one would lose its steps:"
                              : ": holds checkpoints, but none can be read:",
                          list);
  });
}

std::optional<fs::path> best_checkpoint(const fs::path& dir) {
  const std::string best = with_io_errors([&] { return read_pointer(dir / kBest); });
  if (best.empty()) return {};
  return dir / best;
}

void set_aside(const fs::path& checkpoint) {
  with_io_errors([&] {
    if (!fs::exists(checkpoint)) return;  // `latest` may have named a missing checkpoint
    fs::path aside = with_suffix(checkpoint, kUnreadable);
    for (int i = 2; fs::exists(fs::symlink_status(aside)); ++i)
      aside = with_suffix(checkpoint, kUnreadable + ("-" + std::to_string(i)));
    fs::rename(checkpoint, aside);
    sync_directory(checkpoint.parent_path());
    logging::warn(checkpoint.string() + " cannot be read; it is kept as " + aside.string());
  });
}

void clean_up_checkpoints(const fs::path& dir) {
  with_io_errors([&] {
    std::vector<fs::path> written, old;
    for (const auto& entry : fs::directory_iterator(dir)) {
      const std::string name = entry.path().filename().string();
      if (step_of(name, kBeingWritten) >= 0) written.push_back(entry.path());
      if (step_of(name, kBeingRemoved) >= 0) old.push_back(entry.path());
    }
    for (const fs::path& path : written) {
      const fs::path done = dir / checkpoint_name(step_of(path.filename().string(), kBeingWritten));
      bool can_complete = !fs::exists(done);
      try {
        if (can_complete) verify_checkpoint(path);
      } catch (const CheckpointError&) { can_complete = false; }
      if (can_complete)
        fs::rename(path, done);
      else
        fs::remove_all(path);
    }
    for (const fs::path& path : old) fs::remove_all(path);
    for (const char* pointer : {kLatest, kBest}) remove_abandoned(dir / pointer);
  });
}

bool is_checkpoint_name(const std::string& name) {
  if (name == kLatest || name == kBest || step_of(name) >= 0) return true;
  const size_t dot = name.find(kUnreadable);
  return dot != std::string::npos && step_of(std::string_view(name).substr(0, dot)) >= 0;
}

}  // namespace halfstep
