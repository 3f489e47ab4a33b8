// SPDX-License-Identifier: Apache-2.0
#include "framework/data/loading/fingerprint.h"

#include <algorithm>
#include <cstdint>
#include <fstream>
#include <optional>
#include <utility>
#include <vector>

#include "framework/base/check.h"
#include "framework/data/formats/image_file.h"
#include "framework/io/files/checksum.h"

namespace halfstep {
namespace {

namespace fs = std::filesystem;

constexpr int64_t kMostBytes = int64_t(8) << 20;  // that are compared
constexpr int64_t kBatch = 256;                   // samples
constexpr int kDeepest = 16;                      // folders below a folder: links may lead in a circle

// Adds samples: as stored bytes, if the data set has them, else as it returns them. input_bytes: of one stored input.
void add_samples(Sha256& hash, const Dataset& data, std::span<const int64_t> indices, int64_t input_bytes) {
  const std::optional<ByteRows> stored = data.byte_rows(indices);
  if (!stored) {
    const Batch batch = data.batch(indices, 0);
    hash.update(sha256(batch.input));
    hash.update(sha256(batch.target));
    return;
  }
  for (const uint8_t* const row : stored->rows) hash.update(row, size_t(input_bytes));
  hash.update(sha256(stored->target));
}

// Returns the part of a file that is compared: (first byte, bytes) of blocks; a small file as a whole.
std::vector<std::pair<uint64_t, uint64_t>> compared_blocks(uint64_t size) {
  constexpr uint64_t kBlocks = 8, kBlock = uint64_t(kMostBytes) / kBlocks;
  std::vector<std::pair<uint64_t, uint64_t>> out;
  for (uint64_t i = 0; i < kBlocks; ++i) {
    const uint64_t at = size <= kBlock * kBlocks ? i * kBlock : (size - kBlock) * i / (kBlocks - 1);
    if (at < size) out.emplace_back(at, std::min(kBlock, size - at));
  }
  return out;
}

bool read_block(std::ifstream& in, std::pair<uint64_t, uint64_t> block, std::string& out) {
  out.resize(block.second);
  return bool(in.seekg(std::streamoff(block.first)).read(out.data(), std::streamsize(block.second)));
}

std::string fingerprint_of_file(const fs::path& file) {
  std::ifstream in(file, std::ios::binary);
  std::error_code failed;
  const uint64_t size = fs::file_size(file, failed);
  if (!in || failed) return "";
  Sha256 hash;
  hash.update(joined(size, '\n'));
  std::string bytes;
  for (const auto& block : compared_blocks(size)) {
    if (!read_block(in, block, bytes)) return "";
    hash.update(bytes);
  }
  return hash.hex();
}

std::string fingerprint_of_folder(const fs::path& folder) {
  std::vector<std::string> lines;
  std::error_code failed;
  constexpr auto kOptions = fs::directory_options::follow_directory_symlink | fs::directory_options::skip_permission_denied;
  fs::recursive_directory_iterator at(folder, kOptions, failed);
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

bool have_same_bytes(const fs::path& a, const fs::path& b) {
  std::error_code failed, also;
  const uint64_t size = fs::file_size(a, failed);
  if (size == 0 || size != fs::file_size(b, also) || failed || also) return false;
  std::ifstream first(a, std::ios::binary), second(b, std::ios::binary);
  std::string bytes, others;
  for (const auto& block : compared_blocks(size))
    if (!read_block(first, block, bytes) || !read_block(second, block, others) || bytes != others) return false;
  return true;
}

// The pictures in a folder, with their sizes, and the folders below.
struct Listing {
  std::vector<std::pair<std::string, uint64_t>> pictures;
  std::vector<std::string> folders;
  bool operator==(const Listing&) const = default;
};
Listing listing_of(const fs::path& folder) {
  Listing out;
  std::error_code failed;
  fs::directory_iterator at(folder, fs::directory_options::skip_permission_denied, failed);
  for (; !failed && at != fs::directory_iterator(); at.increment(failed)) {
    std::error_code none;
    const std::string name = at->path().filename().string();
    if (at->is_directory(none)) out.folders.push_back(name);
    if (is_picture_name(at->path()) && at->is_regular_file(none)) out.pictures.emplace_back(name, at->file_size(none));
  }
  std::sort(out.pictures.begin(), out.pictures.end()), std::sort(out.folders.begin(), out.folders.end());
  return out;
}

// Compares the pictures of two folders. Returns their number; nothing for different ones.
std::optional<size_t> same_pictures(const fs::path& a, const fs::path& b, int depth = 0) {
  const Listing mine = listing_of(a);
  if (mine != listing_of(b)) return {};
  size_t count = mine.pictures.size();
  if (count > 0)
    for (const std::string& name : {mine.pictures.front().first, mine.pictures.back().first})
      if (!have_same_bytes(a / name, b / name)) return {};
  for (const std::string& name : depth < kDeepest ? mine.folders : std::vector<std::string>()) {
    const std::optional<size_t> below = same_pictures(a / name, b / name, depth + 1);
    if (!below) return {};
    count += *below;
  }
  return count;
}

}  // namespace

std::string fingerprint(const fs::path& path) {
  std::error_code none;
  return fs::is_regular_file(path, none) ? fingerprint_of_file(path)
         : fs::is_directory(path, none)  ? fingerprint_of_folder(path)
                                         : "";
}

bool have_same_content(const fs::path& a, const fs::path& b) {
  std::error_code none;
  if (fs::is_regular_file(a, none) && fs::is_regular_file(b, none)) return have_same_bytes(a, b);
  return fs::is_directory(a, none) && fs::is_directory(b, none) && same_pictures(a, b).value_or(0) > 0;
}

std::string fingerprint(const Dataset& given) {
  const Dataset& data = given.untransformed();
  const int64_t size = data.size();
  Sha256 hash;
  hash.update(joined(size, ' ', data.input_shape(), ' ', data.input_dtype(), ' ', data.target_shape(), ' ', data.classes()));
  const std::vector<int64_t> labels = data.labels();
  hash.update(labels.data(), labels.size() * sizeof(int64_t));
  if (size == 0) return hash.hex();
  const int64_t first_index = 0;
  const std::span<const int64_t> first(&first_index, 1);
  const bool has_byte_rows = data.byte_rows(first).has_value();
  const Batch sample = data.batch(first, 0);
  const int64_t input_bytes = has_byte_rows ? sample.input.numel() : int64_t(sample.input.nbytes());
  const int64_t count =
      std::clamp<int64_t>(kMostBytes / std::max<int64_t>(1, input_bytes + int64_t(sample.target.nbytes())), 1, size);
  std::vector<int64_t> indices;
  for (int64_t i = 0; i < count; ++i) {
    indices.push_back(i * size / count);
    if (std::ssize(indices) < kBatch && i + 1 < count) continue;
    add_samples(hash, data, indices, input_bytes);
    indices.clear();
  }
  return hash.hex();
}

}  // namespace halfstep
