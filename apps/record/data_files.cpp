// SPDX-License-Identifier: Apache-2.0
#include "apps/record/data_files.h"

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "framework/base/check.h"
#include "framework/data/formats/image_file.h"
#include "framework/io/files/checksum.h"

namespace halfstep::app {
namespace {

namespace fs = std::filesystem;

// Returns "" if the file cannot be read.
std::string sha256_of_file(const fs::path& file) {
  constexpr uint64_t kBlock = uint64_t(1) << 20, kBlocks = 8;
  std::ifstream in(file, std::ios::binary);
  std::error_code failed;
  const uint64_t size = fs::file_size(file, failed);
  if (!in || failed) return "";
  Sha256 hash;
  hash.update(joined(size, '\n'));
  std::string block;
  for (uint64_t i = 0; i < kBlocks; ++i) {  // a small file is read as a whole
    const uint64_t at = size <= kBlock * kBlocks ? i * kBlock : (size - kBlock) / (kBlocks - 1) * i;
    if (at >= size) break;
    block.resize(std::min(kBlock, size - at));
    if (!in.seekg(std::streamoff(at)).read(block.data(), std::streamsize(block.size()))) return "";
    hash.update(block);
  }
  return hash.hex();
}

// Returns "" for a folder without pictures.
std::string sha256_of_folder(const fs::path& folder) {
  std::vector<std::string> lines;
  std::error_code failed;
  constexpr auto kOptions = fs::directory_options::follow_directory_symlink | fs::directory_options::skip_permission_denied;
  fs::recursive_directory_iterator at(folder, kOptions, failed);
  constexpr int kDeepest = 16;  // links may lead in a circle
  for (; !failed && at != fs::recursive_directory_iterator(); at.increment(failed)) {
    if (at.depth() >= kDeepest) at.disable_recursion_pending();
    std::error_code none;
    if (is_picture_name(at->path()) && at->is_regular_file(none))
      lines.push_back(joined(at->path().lexically_relative(folder).string(), ' ', at->file_size(none), '\n'));
  }
  if (lines.empty()) return "";
  std::sort(lines.begin(), lines.end());
  Sha256 hash;
  for (const std::string& line : lines) hash.update(line);
  return hash.hex();
}

void add_files(const Json& value, const fs::path& root, Json& out) {
  if (value.is_structured()) {
    for (const auto& [key, inner] : value.items())
      if (key != "transforms") add_files(inner, root, out);
    return;
  }
  if (!value.is_string() || value.get<std::string>().empty()) return;
  const fs::path path = (root / value.get<std::string>()).lexically_normal();
  if (out.contains(path.string())) return;
  std::error_code none;
  const std::string hash = fs::is_regular_file(path, none) ? sha256_of_file(path)
                           : fs::is_directory(path, none)  ? sha256_of_folder(path)
                                                           : "";
  if (!hash.empty()) out[path.string()] = hash;
}

}  // namespace

Json data_files_sha256(const Json& config) {
  Json out = Json::object();
  const Json data = config.value("data", Json::object());
  const Json root = data.value("root", Json());
  for (const char* split : {"train", "val", "test"})
    if (data.contains(split)) add_files(data[split], root.is_string() ? root.get<std::string>() : "", out);
  return out;
}

}  // namespace halfstep::app
