// SPDX-License-Identifier: Apache-2.0
#include <zlib.h>

#include <algorithm>
#include <cstdint>
#include <limits>

#include "framework/base/check.h"
#include "framework/data/formats/npy.h"
#include "framework/io/files/atomic_file.h"

namespace halfstep {
namespace {

// Returns NumPy's name of a dtype; "" if it has none.
std::string name_in_numpy(DType dtype) {
  switch (dtype) {
    case DType::boolean: return "|b1";
    case DType::u8: return "|u1";
    case DType::i8: return "|i1";
    case DType::i16: return "<i2";
    case DType::i32: return "<i4";
    case DType::i64: return "<i8";
    case DType::f16: return "<f2";
    case DType::f32: return "<f4";
    case DType::f64: return "<f8";
    default: return "";
  }
}

// Writes little-endian numbers of a zip archive.
class ZipBytes {
 public:
  ZipBytes& u16(uint32_t v) { return put(v, 2); }
  ZipBytes& u32(uint32_t v) { return put(v, 4); }
  ZipBytes& text(const std::string& t) {
    out_ += t;
    return *this;
  }
  const std::string& str() const { return out_; }

 private:
  ZipBytes& put(uint32_t v, int bytes) {
    for (int i = 0; i < bytes; ++i) out_ += char(v >> (8 * i) & 255);
    return *this;
  }
  std::string out_;
};

uint32_t checksum_of(const std::string& bytes) {
  constexpr size_t kPiece = size_t(1) << 30;
  uLong crc = 0;
  for (size_t at = 0; at < bytes.size(); at += kPiece)
    crc = ::crc32(crc, reinterpret_cast<const Bytef*>(bytes.data() + at), uInt(std::min(kPiece, bytes.size() - at)));
  return uint32_t(crc);
}

// Returns the common part of an entry's header and its line in the directory.
std::string entry_of(const std::string& name, const std::string& bytes) {
  constexpr uint32_t kVersion = 20, kNoFlags = 0, kStored = 0, kMidnight = 0, kFirstDay = 0x21;
  return ZipBytes()
      .u16(kVersion)
      .u16(kNoFlags)
      .u16(kStored)
      .u16(kMidnight)
      .u16(kFirstDay)
      .u32(checksum_of(bytes))
      .u32(uint32_t(bytes.size()))
      .u32(uint32_t(bytes.size()))
      .u16(uint32_t(name.size()))
      .u16(0)
      .str();
}

}  // namespace

std::string npy_bytes(const Tensor& values) {
  const std::string dtype = name_in_numpy(values.dtype());
  check<DTypeError>(!dtype.empty(), "npy", "NumPy must have the dtype, got ", values.dtype(), Help{"convert with to(DType::f32)"});
  std::string shape;
  for (const int64_t n : values.shape()) shape += std::to_string(n) + ", ";
  if (values.dim() > 1) shape.resize(shape.size() - 2);
  std::string header = "{'descr': '" + dtype + "', 'fortran_order': False, 'shape': (" + shape + "), }";
  constexpr size_t kBefore = 10, kAlign = 64;  // kBefore: magic, version and length
  header.append(kAlign - (kBefore + header.size() + 1) % kAlign, ' ');
  header += '\n';
  const Tensor held = values.cpu().contiguous();
  std::string out = "\x93NUMPY" + std::string("\x01\x00", 2);
  out += ZipBytes().u16(uint32_t(header.size())).text(header).str();
  return out.append(static_cast<const char*>(held.data_ptr()), size_t(held.nbytes()));
}

void write_npz(const std::filesystem::path& path, const std::vector<std::pair<std::string, Tensor>>& arrays) {
  constexpr uint32_t kHeader = 0x04034b50, kLine = 0x02014b50, kEnd = 0x06054b50;
  std::string all, directory;
  for (const auto& [name, values] : arrays) {
    const std::string file = name + ".npy", bytes = npy_bytes(values), entry = entry_of(file, bytes);
    check<ValueError>(all.size() + bytes.size() < std::numeric_limits<uint32_t>::max(), "npz", path.string(),
                      " must hold less than 4 GiB", Help{"write .npy files"});
    const auto at = uint32_t(all.size());
    all += ZipBytes().u32(kHeader).text(entry).text(file).text(bytes).str();
    directory += ZipBytes().u32(kLine).u16(20).text(entry).u16(0).u16(0).u16(0).u32(0).u32(at).text(file).str();
  }
  const auto at = uint32_t(all.size()), n = uint32_t(arrays.size());
  all += directory + ZipBytes().u32(kEnd).u16(0).u16(0).u16(n).u16(n).u32(uint32_t(directory.size())).u32(at).u16(0).str();
  atomic_write(path, all);
}

}  // namespace halfstep
