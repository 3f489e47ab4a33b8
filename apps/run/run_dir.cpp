#include "apps/run/run_dir.h"

#include "framework/base/check.h"
#include "framework/io/atomic_file.h"
#include "framework/io/checkpoint.h"

namespace halfstep::app {
namespace fs = std::filesystem;
namespace {

constexpr const char* kMetrics = "metrics.jsonl";
constexpr const char* kConfig = "config.resolved.json";

bool holds_run(const fs::path& dir) {
  std::error_code none;
  if (!fs::is_directory(dir, none)) return false;
  return !list_checkpoints(dir).empty() || (fs::exists(dir / kMetrics, none) && fs::file_size(dir / kMetrics, none) > 0);
}

void remove_run(const fs::path& dir) {
  for (const auto& entry : fs::directory_iterator(dir)) {
    const std::string name = entry.path().filename().string();
    const bool ours = name.starts_with("step-") || name == "latest" || name == "best" || name == kMetrics || name == kConfig;
    if (ours) fs::remove_all(entry.path());
  }
}

}  // namespace

RunDir::RunDir(fs::path path, const std::optional<std::string>& resume, bool overwrite) : path_(std::move(path)) {
  if (resume && *resume != "auto") {
    checkpoint_ = resolve_checkpoint(*resume);
  } else if (resume && fs::is_directory(path_)) {
    checkpoint_ = latest_checkpoint(path_);
  }
  if (!holds_run(path_) || resume) return;
  check<ConfigError>(overwrite, "train", path_.string(), " already holds a run",
                     Help{"--resume auto goes on with it, --overwrite starts over, --set output_dir=DIR writes elsewhere"});
  remove_run(path_);
}

void RunDir::open(const Json& config, int64_t step, bool metrics) {
  std::error_code error;
  fs::create_directories(path_, error);
  check<IoError>(!error, "train", "output_dir must be a folder that can be written, got ", path_.string(), " (", error.message(),
                 ")");
  atomic_write(path_ / kConfig, config.dump(2) + "\n");
  if (!metrics) return;
  std::string kept;
  if (std::ifstream old(path_ / kMetrics); old && step > 0) {
    for (std::string line; std::getline(old, line);) {
      const Json entry = Json::parse(line, nullptr, false);
      if (entry.is_object() && entry.value("step", int64_t(0)) <= step) kept += line + "\n";
    }
  }
  atomic_write(path_ / kMetrics, kept);
  metrics_.open(path_ / kMetrics, std::ios::app);
}

void RunDir::record(const Json& metrics) {
  if (metrics_.is_open()) metrics_ << metrics.dump() << std::endl;
}

}  // namespace halfstep::app
