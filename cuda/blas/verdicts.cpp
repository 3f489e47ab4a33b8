// SPDX-License-Identifier: Apache-2.0
#include "cuda/blas/verdicts.h"

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
constexpr size_t kMostVerdicts = 4096;      // a file that would have more starts anew
constexpr uintmax_t kMostBytes = 4u << 20;  // a longer file is not ours

using Verdicts = std::map<std::string, Verdict>;  // by device TAB product

struct Contents {
  Verdicts verdicts;
  bool ours = true;  // or there is no file: it may be written
};

std::optional<Verdict> parse(const std::string& text) {
  TextReader in(text);
  Verdict v;
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
  if (file.is_open() && file.peek() == std::ifstream::traits_type::eof()) {  // an empty file is as good as none
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
    const std::optional<Verdict> v = last == std::string::npos ? std::nullopt : parse(line.substr(last + 1));
    if (v && out.verdicts.size() < kMostVerdicts)
      out.verdicts[line.substr(0, last)] = *v;
    else
      damaged = true;
  }
  if (damaged) logging::warn_once("[products] " + path + " has lines that are no verdicts of the tuner: they are left out");
  return out;
}

void write(const std::string& path, const Verdicts& verdicts) {
  TextWriter text;
  text << kFirstLine << '\n';
  for (const auto& [key, v] : verdicts)
    text << key << '\t' << v.rung << ' ' << v.candidate << ' ' << v.algorithm << ' ' << v.ms << '\n';
  std::error_code error;
  if (const fs::path folder = fs::path(path).parent_path(); !folder.empty()) fs::create_directories(folder, error);
  // Beside its name first: a reader at any time finds the old list or the new.
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

std::string verdict_file() {
  if (const char* file = std::getenv("HALFSTEP_TUNE_FILE")) return file;
  if (const char* cache = std::getenv("XDG_CACHE_HOME"); cache && *cache) return cache + std::string("/halfstep/products.txt");
  if (const char* home = std::getenv("HOME"); home && *home) return home + std::string("/.cache/halfstep/products.txt");
  return "";
}

std::optional<Verdict> recall_verdict(const std::string& device, const std::string& product) {
  static Verdicts known;  // of the file that was last looked at
  static std::string known_from;
  const std::string path = verdict_file();
  if (path.empty()) return {};
  if (path != known_from) {
    known = read(path).verdicts;
    known_from = path;
  }
  const auto found = known.find(device + '\t' + product);
  return found == known.end() ? std::nullopt : std::optional(found->second);
}

void remember_verdict(const std::string& device, const std::string& product, const Verdict& verdict) {
  const std::string path = verdict_file();
  if (path.empty()) return;
  Contents now = read(path);  // other processes write it too
  if (!now.ours) return;
  if (now.verdicts.size() >= kMostVerdicts) now.verdicts.clear();
  now.verdicts[device + '\t' + product] = verdict;
  write(path, now.verdicts);
}

}  // namespace halfstep::cuda
