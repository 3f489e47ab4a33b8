// SPDX-License-Identifier: Apache-2.0
#include "framework/data/formats/idx.h"

#include <zlib.h>

#include <algorithm>
#include <cstdint>
#include <string>

#include "framework/base/check.h"
#include "framework/io/files/atomic_file.h"
#include "framework/io/files/free_memory.h"
#include "framework/io/files/gzip.h"
#include "framework/io/files/other_file.h"
#include "framework/tensor/storage.h"

namespace halfstep {
namespace {

constexpr const char* kIdx = "idx";
constexpr uint64_t kMostInflation = 1032;              // bytes that one byte packed by gzip can become
constexpr uint64_t kMostIdxBytes = uint64_t(1) << 48;  // more than any file holds

// Reads plain and compressed files: zlib passes other data through.
class IdxInput {
 public:
  [[nodiscard]] explicit IdxInput(const std::filesystem::path& path) : path_(path.string()) {
    check_path(path);
    std::error_code error;
    check<IoError>(std::filesystem::is_regular_file(path, error), kIdx, "cannot read ", path_, ": it is not a file");
    constexpr unsigned kBufferBytes = 1 << 17;
    file_ = gzopen(path.c_str(), "rb");
    check<IoError>(file_ != nullptr, kIdx, "cannot read ", path_);
    gzbuffer(file_, kBufferBytes);
  }
  ~IdxInput() { gzclose(file_); }
  IdxInput(const IdxInput&) = delete;

  // Reads up to `bytes` bytes, fewer at the end of the file.
  uint64_t read(void* to, uint64_t bytes) {
    constexpr uint64_t kMostAtOnce = 1u << 30;  // gzread takes an unsigned and returns an int
    uint64_t done = 0;
    while (done < bytes) {
      const unsigned piece = unsigned(std::min(bytes - done, kMostAtOnce));
      const int n = gzread(file_, static_cast<char*>(to) + done, piece);
      int code = Z_OK;
      const char* message = gzerror(file_, &code);
      if (n < 0 || (code != Z_OK && code != Z_STREAM_END && code != Z_BUF_ERROR)) {
        fail<DataError>(kIdx, path_, ": the file cannot be unpacked (", message, "); it is damaged or cut off");
      }
      cut_off_ |= code == Z_BUF_ERROR;
      if (n == 0) break;
      done += uint64_t(n);
    }
    return done;
  }
  // Returns how many bytes follow, or a number above `most`; then goes back to the present position.
  uint64_t count(uint64_t most) {
    std::string piece(1 << 18, '\0');
    uint64_t out = 0;
    const z_off_t start = gztell(file_);
    for (uint64_t n = 1; n > 0 && out <= most; out += n) n = read(piece.data(), piece.size());
    gzseek(file_, start, SEEK_SET);
    return out;
  }
  // Returns whether the file is long enough to hold this number of bytes, packed or not.
  bool may_hold(uint64_t bytes) const {
    std::error_code error;
    const uint64_t size = std::filesystem::file_size(path_, error);
    return error || bytes / (is_gzip(head_of_file(path_)) ? kMostInflation : 1) <= size;
  }
  bool cut_off() const { return cut_off_; }  // whether the compressed stream ended before its end mark
  const std::string& path() const { return path_; }

 private:
  std::string path_;
  gzFile file_ = nullptr;
  bool cut_off_ = false;
};

uint32_t big_endian(const uint8_t* bytes) {
  return uint32_t(bytes[0]) << 24 | uint32_t(bytes[1]) << 16 | uint32_t(bytes[2]) << 8 | bytes[3];
}

}  // namespace

Tensor read_idx(const std::filesystem::path& path, int rank) {
  IdxInput in(path);
  uint8_t head[4 + 4 * kMaxDims];
  const uint64_t head_bytes = 4 + 4 * uint64_t(rank);
  check<ValueError>(rank >= 1 && rank <= kMaxDims, kIdx, "rank must be in 1..", kMaxDims, ", got ", rank);
  const uint64_t head_read = in.read(head, head_bytes);
  check<DataError>(head_read >= 4, kIdx, in.path(), ": the header must have ", head_bytes, " bytes, the file has ", head_read);
  constexpr uint32_t kUnsignedBytes = 0x0800;
  const uint32_t magic = big_endian(head), expected = kUnsignedBytes + uint32_t(rank);
  if (magic != expected) refuse_other_file<DataError>(kIdx, path, head_of_file(path));
  check<DataError>(magic == expected, kIdx, in.path(), ": the magic number must be ", expected, " (unsigned bytes, rank ", rank,
                   "), got ", magic);
  check<DataError>(head_read == head_bytes, kIdx, in.path(), ": the header must have ", head_bytes, " bytes, the file has ",
                   head_read);

  Shape shape;
  uint64_t bytes = 1;
  bool overflow = false;
  for (int d = 0; d < rank; ++d) {
    shape.push_back(big_endian(head + 4 + 4 * d));
    overflow |= __builtin_mul_overflow(bytes, uint64_t(shape.back()), &bytes);
  }
  check<DataError>(!overflow && bytes < kMostIdxBytes, kIdx, in.path(), ": the sizes ", shape, " in the header are not plausible");

  const auto fail_short = [&](uint64_t held) {
    fail<DataError>(kIdx, in.path(), ": ", shape, " needs ", bytes + head_bytes, " bytes, the file has ", held + head_bytes,
                    " (unpacked)");
  };
  const double free = free_memory();
  if (!in.may_hold(bytes) || (free > 0 && double(bytes) > free)) {  // a header may promise more than the file holds
    if (const uint64_t held = in.count(bytes); held < bytes) fail_short(held);
    check_room(kIdx, path, double(bytes), joined("an array ", shape), "an array (.npy) is mapped, not read");
  }
  const MemoryScope scope(MemoryTag::data);
  const Tensor out = Tensor::empty(shape, {.dtype = DType::u8, .device = Device::cpu});
  if (const uint64_t held = in.read(out.data_ptr(), bytes); held < bytes) fail_short(held);
  char more = 0;
  check<DataError>(in.read(&more, 1) == 0, kIdx, in.path(), ": ", shape, " needs ", bytes + head_bytes, " bytes, more follow");
  check<DataError>(!in.cut_off(), kIdx, in.path(), ": the compressed file is cut off");
  return out;
}

}  // namespace halfstep
