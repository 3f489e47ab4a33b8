// SPDX-License-Identifier: Apache-2.0
#include "cuda/blas/tuning_cache.h"

#include <unistd.h>

#include <cerrno>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <map>
#include <string_view>

#include "framework/base/log.h"
#include "framework/base/text_stream.h"

namespace halfstep::cuda {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kFirstLine = "halfstep products 1";
constexpr size_t kMostResults = 4096;       // a longer file would be restarted
constexpr uintmax_t kMostBytes = 4u << 20;  // a larger file is not ours

using TuningResults = std::map<std::string, TuningResult>;  // by device TAB product

struct Contents {
  TuningResults results;
  bool ours = true;  // whether the file is ours or missing, so that it may be written
};

std::optional<TuningResult> parse(const std::string& text) {
  TextReader in(text);
  TuningResult v;
  std::string rest;
  if (!(in >> v.rung >> v.candidate >> v.algorithm >> v.ms) || in >> rest) return {};
  if (v.candidate < 0 || !std::isfinite(v.ms) || v.ms < 0) return {};
  return v;
}

Contents read(const std::string& path) {
  Contents out;
  std::error_code error;
  const fs::file_status status = fs::status(path, error);
  if (status.type() == fs::file_type::not_found) return out;
  out.ours = false;
  std::ifstream file;
  std::string line;
  if (fs::is_regular_file(status) && fs::file_size(path, error) <= kMostBytes && !error) file.open(path);
  if (file.is_open() && file.peek() == std::ifstream::traits_type::eof()) {  // an empty file counts as missing
    out.ours = true;
    return out;
  }
  if (!file.is_open() || !std::getline(file, line) || line != kFirstLine) {
    logging::warn_once("[products] " + path + " is not a list of products that the tuner wrote: it is neither read nor changed");
    return out;
  }
  out.ours = true;
  bool damaged = false;
  while (std::getline(file, line)) {
    const size_t last = line.rfind('\t');
    const std::optional<TuningResult> v = last == std::string::npos ? std::nullopt : parse(line.substr(last + 1));
    if (v && out.results.size() < kMostResults)
      out.results[line.substr(0, last)] = *v;
    else
      damaged = true;
  }
  if (damaged) logging::warn_once("[products] " + path + " has lines that are no results of the tuner: they are left out");
  return out;
}

void write(const std::string& path, const TuningResults& results) {
  TextWriter text;
  text << kFirstLine << '\n';
  for (const auto& [key, v] : results)
    text << key << '\t' << v.rung << ' ' << v.candidate << ' ' << v.algorithm << ' ' << v.ms << '\n';
  std::error_code error;
  if (const fs::path folder = fs::path(path).parent_path(); !folder.empty()) fs::create_directories(folder, error);
  // Writes a temporary file first, so that a reader finds the old list or the new.
  const std::string temporary = path + "." + std::to_string(getpid()) + ".tmp";
  errno = 0;
  bool good = false;
  if (std::ofstream file(temporary, std::ios::trunc); file) {
    file << text.str();
    file.close();
    good = bool(file) && std::rename(temporary.c_str(), path.c_str()) == 0;
  }
  if (good) return;
  const std::string reason = std::strerror(errno ? errno : EIO);
  std::remove(temporary.c_str());
  logging::warn_once("[products] the tuner's choices cannot be kept in " + path + ": " + reason);
}

}  // namespace

std::string tuning_file() {
  if (const char* file = std::getenv("HALFSTEP_TUNE_FILE")) return file;
  if (const char* cache = std::getenv("XDG_CACHE_HOME"); cache && *cache) return cache + std::string("/halfstep/products.txt");
  if (const char* home = std::getenv("HOME"); home && *home) return home + std::string("/.cache/halfstep/products.txt");
  return "";
}

std::optional<TuningResult> recall_tuning(const std::string& device, const std::string& product) {
  static TuningResults cached;  // of the file that was read last
  static std::string cached_path;
  const std::string path = tuning_file();
  if (path.empty()) return {};
  if (path != cached_path) {
    cached = read(path).results;
    cached_path = path;
  }
  const auto found = cached.find(device + '\t' + product);
  return found == cached.end() ? std::nullopt : std::optional(found->second);
}

void remember_tuning(const std::string& device, const std::string& product, const TuningResult& result) {
  const std::string path = tuning_file();
  if (path.empty()) return;
  Contents now = read(path);  // other processes write it too
  if (!now.ours) return;
  if (now.results.size() >= kMostResults) now.results.clear();
  now.results[device + '\t' + product] = result;
  write(path, now.results);
}

}  // namespace halfstep::cuda
