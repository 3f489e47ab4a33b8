// SPDX-License-Identifier: Apache-2.0
#include "framework/data/formats/npy.h"

#include <zlib.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <fstream>
#include <limits>
#include <memory>
#include <string_view>
#include <vector>

#include "framework/base/check.h"
#include "framework/data/formats/text_file.h"
#include "framework/io/files/atomic_file.h"
#include "framework/io/files/mapped_file.h"
#include "framework/io/files/other_file.h"
#include "framework/io/files/zip.h"
#include "framework/tensor/storage.h"

namespace halfstep {
namespace {

constexpr const char* kNpy = "npy";

struct NpyHeader {
  std::string dtype;  // "<f4"
  bool fortran = false;
  std::vector<int64_t> shape;
};

// Parses the header: a Python dictionary of a text, a bool and a tuple of integers.
class HeaderParser {
 public:
  HeaderParser(const std::string& where, std::string_view text) : where_(where), text_(text) {}

  NpyHeader parse() {
    NpyHeader out;
    bool has_dtype = false, has_order = false, has_shape = false;
    expect('{');
    while (!take('}')) {
      const std::string key = quoted();
      expect(':');
      if (key == "descr") {
        if (peek() == '[')
          fail<DataError>(kNpy, where_, ": an array of records has no halfstep dtype",
                          Help{"save its columns as arrays of their own"});
        out.dtype = quoted(), has_dtype = true;
      } else if (key == "fortran_order") {
        out.fortran = boolean(), has_order = true;
      } else if (key == "shape") {
        out.shape = tuple(), has_shape = true;
      } else {
        fail_header();
      }
      if (!take(',') && peek() != '}') fail_header();
    }
    if (peek() != 0 || !has_dtype || !has_order || !has_shape) fail_header();
    return out;
  }

 private:
  [[noreturn]] void fail_header() const {
    fail<DataError>(kNpy, where_, ": the header must be a dictionary of descr, fortran_order and shape, got \"",
                    text_.substr(0, 100), '"');
  }
  // Skips blanks and returns the next character; 0 at the end.
  char peek() {
    while (at_ < text_.size() && (text_[at_] == ' ' || text_[at_] == '\n')) ++at_;
    return at_ < text_.size() ? text_[at_] : 0;
  }
  // Moves behind the next character if it is c; else returns false.
  bool take(char c) {
    if (peek() != c) return false;
    ++at_;
    return true;
  }
  void expect(char c) {
    if (!take(c)) fail_header();
  }
  std::string quoted() {
    const char quote = peek();
    if (quote != '\'' && quote != '"') fail_header();
    const size_t end = text_.find(quote, ++at_);
    if (end == std::string_view::npos) fail_header();
    const std::string out(text_.substr(at_, end - at_));
    at_ = end + 1;
    return out;
  }
  bool boolean() {
    for (const bool value : {true, false}) {
      const std::string_view word = value ? "True" : "False";
      peek();
      if (text_.substr(at_, word.size()) != word) continue;
      at_ += word.size();
      return value;
    }
    fail_header();
  }
  std::vector<int64_t> tuple() {
    std::vector<int64_t> out;
    expect('(');
    while (!take(')')) {
      int64_t n = 0;
      size_t digits = 0;
      for (; peek() >= '0' && peek() <= '9' && digits < 18; ++digits, ++at_) n = 10 * n + (text_[at_] - '0');
      if (digits == 0) fail_header();
      out.push_back(n);
      if (!take(',') && peek() != ')') fail_header();
    }
    return out;
  }

  const std::string& where_;
  std::string_view text_;
  size_t at_ = 0;
};

// A dtype of NumPy.
struct NpyType {
  const char* name;
  DType dtype;   // after reading
  size_t bytes;  // of an element in the file
  bool is_unsigned = false;
};
constexpr NpyType kTypes[] = {{"b1", DType::boolean, 1},   {"u1", DType::u8, 1},        {"i1", DType::i8, 1},
                              {"i2", DType::i16, 2},       {"i4", DType::i32, 4},       {"i8", DType::i64, 8},
                              {"u2", DType::i32, 2, true}, {"u4", DType::i64, 4, true}, {"u8", DType::i64, 8, true},
                              {"f2", DType::f16, 2},       {"f4", DType::f32, 4},       {"f8", DType::f64, 8}};

const NpyType& type_of(const std::string& where, const std::string& dtype) {
  for (const NpyType& type : kTypes)
    if (dtype.size() == 3 && dtype.substr(1) == type.name && std::string_view("<>=|").find(dtype[0]) != std::string_view::npos)
      return type;
  const bool has_objects = dtype.find('O') != std::string::npos;
  fail<DataError>(kNpy, where, ": the dtype must be a boolean, integer or float of at most 64 bits, got \"", dtype, '"',
                  Help{has_objects ? "objects would be unpickled, which runs code of the file; save numbers"
                                   : "convert it before saving, e.g. with astype(\"float32\")"});
}

// Converts unsigned integers to the next larger signed type, or to i64.
void widen(const std::string& where, const char* from, const NpyType& type, int64_t n, const Tensor& out) {
  for (int64_t i = 0; i < n; ++i) {
    uint64_t value = 0;
    std::memcpy(&value, from + size_t(i) * type.bytes, type.bytes);
    check<DataError>(value <= uint64_t(std::numeric_limits<int64_t>::max()), kNpy, where, ": element ", i, " is ", value,
                     ", which does not fit int64");
    if (type.dtype == DType::i32)
      out.data_ptr<int32_t>()[i] = int32_t(value);
    else
      out.data_ptr<int64_t>()[i] = int64_t(value);
  }
}

// Returns the elements of an array in Fortran order, in which the last index is the slowest, in C order, in which it is the
// fastest.
std::string in_c_order(const char* from, const std::vector<int64_t>& shape, size_t size, uint64_t bytes) {
  std::string out(bytes, '\0');
  std::vector<int64_t> at(shape.size(), 0);
  const uint64_t n = bytes / size;
  for (uint64_t to = 0; to < n; ++to) {
    uint64_t source = 0, stride = 1;
    for (size_t d = 0; d < shape.size(); ++d) source += uint64_t(at[d]) * stride, stride *= uint64_t(shape[d]);
    std::memcpy(out.data() + to * size, from + source * size, size);
    for (size_t d = shape.size(); d-- > 0;) {
      if (++at[d] < shape[d]) break;
      at[d] = 0;
    }
  }
  return out;
}

// The position and type of the values.
struct NpyLayout {
  NpyHeader header;
  const NpyType* type;
  Shape shape;
  uint64_t offset, bytes;  // of the values
};

// Reads the layout. bytes: the beginning of a file of `size` bytes.
NpyLayout npy_layout_of(const std::string& where, std::string_view bytes, uint64_t size) {
  constexpr std::string_view kMagic = "\x93NUMPY";
  if (!bytes.starts_with(kMagic)) refuse_other_file<DataError>(kNpy, where, bytes);
  check<DataError>(bytes.size() >= 10 && bytes.starts_with(kMagic), kNpy, where,
                   ": the file is not one of NumPy's: it does not begin with \\x93NUMPY");
  const int version = uint8_t(bytes[6]);
  check<DataError>(version >= 1 && version <= 3, kNpy, where, ": the format's version must be 1, 2 or 3, got ", version);
  const size_t digits = version == 1 ? 2 : 4;
  uint64_t length = 0;
  for (size_t i = 0; i < digits && 8 + i < bytes.size(); ++i) length |= uint64_t(uint8_t(bytes[8 + i])) << (8 * i);
  const uint64_t data = 8 + digits + length;
  check<DataError>(data <= size, kNpy, where, ": the header must have ", data, " bytes, the file has ", size);
  check<DataError>(data <= bytes.size(), kNpy, where, ": a header of ", data, " bytes is not one of an array of numbers");
  const NpyHeader header = HeaderParser(where, bytes.substr(8 + digits, length)).parse();
  const NpyType& type = type_of(where, header.dtype);
  check<DataError>(header.shape.size() <= size_t(kMaxDims), kNpy, where, ": an array may have ", kMaxDims, " dimensions, got ",
                   header.shape.size());
  const Shape shape{std::span<const int64_t>(header.shape)};
  uint64_t needed = type.bytes;
  bool overflow = false;
  for (int64_t n : header.shape) overflow |= __builtin_mul_overflow(needed, uint64_t(n), &needed);
  const uint64_t held = size - data;
  check<DataError>(!overflow && needed <= held, kNpy, where, ": an array ", shape, " of ", header.dtype, " does not fit into the ",
                   held, " bytes that follow the header", Help{"the file is cut off"});
  check<DataError>(needed == held, kNpy, where, ": an array ", shape, " of ", header.dtype, " needs ", needed, " bytes, but ", held,
                   " follow the header");
  return {header, &type, shape, data, needed};
}

// Returns the array in the bytes of a .npy file.
Tensor parse_npy(const std::string& where, std::string bytes) {
  const NpyLayout layout = npy_layout_of(where, bytes, bytes.size());
  const NpyHeader& header = layout.header;
  const NpyType& type = *layout.type;
  size_t at = layout.offset;
  if (header.dtype[0] == '>') {
    char* const end = bytes.data() + at + layout.bytes;
    for (char* value = bytes.data() + at; value < end; value += type.bytes) std::reverse(value, value + type.bytes);
  }
  if (header.fortran && header.shape.size() > 1)
    bytes = in_c_order(bytes.data() + at, header.shape, type.bytes, layout.bytes), at = 0;
  const MemoryScope scope(MemoryTag::data);
  if (!type.is_unsigned && layout.bytes > 0 && at % type.bytes == 0) {
    const auto own = std::make_shared<std::string>(std::move(bytes));
    return Tensor::from_blob(own->data() + at, layout.shape, type.dtype, own);
  }
  const Tensor out = Tensor::empty(layout.shape, {.dtype = type.dtype, .device = Device::cpu});
  if (type.is_unsigned)
    widen(where, bytes.data() + at, type, out.numel(), out);
  else if (layout.bytes > 0)
    std::memcpy(out.data_ptr(), bytes.data() + at, layout.bytes);
  return out;
}

}  // namespace

Tensor read_npy(const std::filesystem::path& path) { return parse_npy(path.string(), read_file(path)); }

Tensor map_npy(const std::filesystem::path& path) {
  constexpr uint64_t kHead = 1 << 16;  // far more than the headers of numeric arrays
  check_path(path);
  std::error_code failed;
  const uint64_t size = std::filesystem::file_size(path, failed);
  std::ifstream in(path, std::ios::binary);
  if (failed || !in) return read_npy(path);  // which reports the reason, or reads special files
  std::string head(std::min(size, kHead), '\0');
  in.read(head.data(), std::streamsize(head.size()));
  head.resize(size_t(in.gcount()));
  const NpyLayout layout = npy_layout_of(path.string(), head, size);
  const NpyType& type = *layout.type;
  const bool is_in_order =
      (layout.header.dtype[0] != '>' || type.bytes == 1) && (!layout.header.fortran || layout.shape.size() < 2);
  const bool is_kept = is_in_order && !type.is_unsigned && type.dtype != DType::boolean;
  if (!is_kept || layout.bytes == 0 || layout.offset % type.bytes != 0) return read_npy(path);
  const std::shared_ptr<void> pages = map_file(path, size, kNpy);
  return Tensor::from_blob(static_cast<char*>(pages.get()) + layout.offset, layout.shape, type.dtype, pages);
}

Tensor read_npz(const std::filesystem::path& path, const std::string& name) {
  const FileText file = open_file(path, kNpy);
  if (!file.text.starts_with("PK\3\4")) refuse_other_file<DataError>(kNpy, path, file.text);
  const ZipFile zip(path, file.text);
  const auto& names = zip.names();
  if (std::none_of(names.begin(), names.end(), [](const std::string& n) { return n.ends_with(".npy"); }))
    refuse_other_file<DataError>(kNpy, path, head_of_file(path));
  if (std::find(names.begin(), names.end(), name + ".npy") == names.end()) {
    std::string all;
    for (const std::string& n : names) all += (all.empty() ? "" : ", ") + (n.ends_with(".npy") ? n.substr(0, n.size() - 4) : n);
    fail<DataError>(kNpy, path.string(), " has no array \"", name, "\"; it has ", all.empty() ? "none" : all.substr(0, 500));
  }
  return parse_npy(path.string() + ": " + name, zip.read(name + ".npy"));
}

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

constexpr uint32_t kVersion = 20;  // of the zip format: 2.0

// Returns the common part of an entry's header and its line in the directory.
std::string entry_of(const std::string& name, const std::string& bytes) {
  constexpr uint32_t kNoFlags = 0, kStored = 0, kMidnight = 0, kFirstDay = 0x21;  // 1980-01-01
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
  constexpr size_t kBefore = 10;  // bytes of magic, version and length
  constexpr size_t kAlign = 64;   // of the values, as NumPy aligns them
  header.append(kAlign - (kBefore + header.size() + 1) % kAlign, ' ');
  header += '\n';
  const Tensor host = values.cpu().contiguous();
  std::string out = "\x93NUMPY" + std::string("\x01\x00", 2);
  out += ZipBytes().u16(uint32_t(header.size())).text(header).str();
  return out.append(static_cast<const char*>(host.data_ptr()), size_t(host.nbytes()));
}

void write_npz(const std::filesystem::path& path, const std::vector<std::pair<std::string, Tensor>>& arrays) {
  constexpr uint32_t kHeader = 0x04034b50, kLine = 0x02014b50, kEnd = 0x06054b50;
  // Fields that are 0: comments, disk numbers and attributes.
  std::string archive, directory;
  for (const auto& [name, values] : arrays) {
    const std::string file = name + ".npy", bytes = npy_bytes(values), entry = entry_of(file, bytes);
    check<ValueError>(archive.size() + bytes.size() < std::numeric_limits<uint32_t>::max(), "npz", path.string(),
                      " must hold less than 4 GiB", Help{"write .npy files"});
    const auto at = uint32_t(archive.size());
    archive += ZipBytes().u32(kHeader).text(entry).text(file).text(bytes).str();
    directory += ZipBytes().u32(kLine).u16(kVersion).text(entry).u16(0).u16(0).u16(0).u32(0).u32(at).text(file).str();
  }
  const auto at = uint32_t(archive.size()), count = uint32_t(arrays.size());
  archive +=
      directory + ZipBytes().u32(kEnd).u16(0).u16(0).u16(count).u16(count).u32(uint32_t(directory.size())).u32(at).u16(0).str();
  atomic_write(path, archive);
}

}  // namespace halfstep
