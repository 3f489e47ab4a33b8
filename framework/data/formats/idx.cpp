// SPDX-License-Identifier: Apache-2.0
#include "framework/data/formats/idx.h"

#include <zlib.h>

#include <algorithm>
#include <cstdint>
#include <string>

#include "framework/base/check.h"
#include "framework/io/files/atomic_file.h"
#include "framework/io/files/gzip.h"
#include "framework/io/files/other_file.h"
#include "framework/io/files/free_memory.h"
#include "framework/tensor/storage.h"

namespace halfstep {
namespace {

constexpr const char* kIdx = "idx";

// Reads plain and compressed files: zlib passes other data through.
class Input {
 public:
  [[nodiscard]] explicit Input(const std::filesystem::path& path) : path_(path.string()) {
    check_path(path);
    std::error_code none;
    check<IoError>(std::filesystem::is_regular_file(path, none), kIdx, "cannot read ", path_, ": it is not a file");
    file_ = gzopen(path.c_str(), "rb");
    check<IoError>(file_ != nullptr, kIdx, "cannot read ", path_);
    gzbuffer(file_, 1 << 17);
  }
  ~Input() { gzclose(file_); }
  Input(const Input&) = delete;

  // Reads up to `bytes` bytes, fewer at the end of the file.
  uint64_t read(void* to, uint64_t bytes) {
    uint64_t got = 0;
    while (got < bytes) {
      const unsigned want = unsigned(std::min<uint64_t>(bytes - got, 1u << 30));
      const int n = gzread(file_, static_cast<char*>(to) + got, want);
      int code = Z_OK;
      const char* message = gzerror(file_, &code);
      if (n < 0 || (code != Z_OK && code != Z_STREAM_END && code != Z_BUF_ERROR)) {
        fail<DataError>(kIdx, path_, ": the file cannot be unpacked (", message, "); it is damaged or cut off");
      }
      cut_off_ |= code == Z_BUF_ERROR;
      if (n == 0) break;
      got += uint64_t(n);
    }
    return got;
  }
  // Returns how many bytes the file still holds, or a number above `most`. Leaves the place as it was.
  uint64_t count(uint64_t most) {
    std::string piece(1 << 18, '\0');
    uint64_t out = 0;
    const z_off_t place = gztell(file_);
    for (uint64_t n = 1; n > 0 && out <= most; out += n) n = read(piece.data(), piece.size());
    gzseek(file_, place, SEEK_SET);
    return out;
  }
  // Returns whether the file can hold so many bytes. Packed ones become at most 1032 times as many.
  bool may_hold(uint64_t bytes) const {
    std::error_code none;
    const uint64_t size = std::filesystem::file_size(path_, none);
    return none || bytes / (is_gzip(head_of_file(path_)) ? 1032 : 1) <= size;
  }
  bool cut_off() const { return cut_off_; }  // whether the compressed stream ended before its end mark
  const std::string& path() const { return path_; }

 private:
  std::string path_;
  gzFile file_ = nullptr;
  bool cut_off_ = false;
};

uint32_t big_endian(const uint8_t* p) { return uint32_t(p[0]) << 24 | uint32_t(p[1]) << 16 | uint32_t(p[2]) << 8 | p[3]; }

}  // namespace

Tensor read_idx(const std::filesystem::path& path, int rank) {
  Input in(path);
  uint8_t head[4 + 4 * kMaxDims];
  const uint64_t head_bytes = 4 + 4 * uint64_t(rank);
  check<ValueError>(rank >= 1 && rank <= kMaxDims, kIdx, "rank must be in 1..", kMaxDims, ", got ", rank);
  const uint64_t got_head = in.read(head, head_bytes);
  check<DataError>(got_head >= 4, kIdx, in.path(), ": the header must have ", head_bytes, " bytes, the file has ", got_head);
  const uint32_t magic = big_endian(head), expected = 0x0800u + uint32_t(rank);
  if (magic != expected) refuse_other_file<DataError>(kIdx, path, head_of_file(path));
  check<DataError>(magic == expected, kIdx, in.path(), ": the magic number must be ", expected, " (unsigned bytes, rank ", rank,
                   "), got ", magic);
  check<DataError>(got_head == head_bytes, kIdx, in.path(), ": the header must have ", head_bytes, " bytes, the file has ",
                   got_head);

  Shape shape;
  uint64_t bytes = 1;
  bool overflow = false;
  for (int d = 0; d < rank; ++d) {
    shape.push_back(big_endian(head + 4 + 4 * d));
    overflow |= __builtin_mul_overflow(bytes, uint64_t(shape.back()), &bytes);
  }
  check<DataError>(!overflow && bytes < (uint64_t(1) << 48), kIdx, in.path(), ": the sizes ", shape,
                   " in the header are not plausible");

  const auto short_of = [&](uint64_t held) {
    fail<DataError>(kIdx, in.path(), ": ", shape, " needs ", bytes + head_bytes, " bytes, the file has ", held + head_bytes,
                    " (unpacked)");
  };
  const double free = free_memory();
  if (!in.may_hold(bytes) || (free > 0 && double(bytes) > free)) {  // a header may promise more than the file holds
    if (const uint64_t held = in.count(bytes); held < bytes) short_of(held);
    check_room(kIdx, path, double(bytes), joined("an array ", shape), "an array (.npy) is mapped, not read");
  }
  const MemoryScope scope(MemoryTag::data);
  const Tensor out = Tensor::empty(shape, {.dtype = DType::u8, .device = Device::cpu});
  if (const uint64_t held = in.read(out.data_ptr(), bytes); held < bytes) short_of(held);
  char more = 0;
  check<DataError>(in.read(&more, 1) == 0, kIdx, in.path(), ": ", shape, " needs ", bytes + head_bytes, " bytes, more follow");
  check<DataError>(!in.cut_off(), kIdx, in.path(), ": the compressed file is cut off");
  return out;
}

}  // namespace halfstep
