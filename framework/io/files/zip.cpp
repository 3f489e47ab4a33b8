// SPDX-License-Identifier: Apache-2.0
#include "framework/io/files/zip.h"

#include <zlib.h>

#include <algorithm>

#include "framework/base/check.h"
#include "framework/io/files/atomic_file.h"
#include "framework/io/files/other_file.h"

namespace halfstep {
namespace {

constexpr const char* kZip = "zip";
// Signatures of the records.
constexpr uint32_t kEntry = 0x02014b50, kLocal = 0x04034b50, kEnd = 0x06054b50, kEnd64 = 0x06064b50, kLocator64 = 0x07064b50;
constexpr uint16_t kStored = 0, kDeflated = 8;  // methods
constexpr uint16_t kEncrypted = 1;              // flag
constexpr uint64_t kPiece = 1 << 20;            // most bytes that one call of zlib writes

// Reads little-endian numbers from a file, with bounds checks.
class Reader {
 public:
  Reader(const std::string& path, std::string_view bytes) : path_(path), bytes_(bytes) {}
  template <class T>
  T at(uint64_t offset) const {
    need(offset, sizeof(T));
    T out = 0;
    for (size_t i = 0; i < sizeof(T); ++i) out = T(out | T(uint8_t(bytes_[offset + i])) << (8 * i));
    return out;
  }
  std::string text(uint64_t offset, uint64_t size) const {
    need(offset, size);
    return std::string(bytes_.substr(offset, size));
  }
  // Throws DataError unless the file has these bytes.
  void need(uint64_t offset, uint64_t size) const {
    check<DataError>(offset <= bytes_.size() && size <= bytes_.size() - offset, kZip, path_,
                     ": the archive is cut off or damaged: it points to byte ", offset, " + ", size, ", but has ", bytes_.size());
  }

 private:
  const std::string& path_;
  std::string_view bytes_;
};

// Returns the position of the end record, which locates the directory.
uint64_t find_end(const std::string& path, std::string_view bytes) {
  constexpr uint64_t kSize = 22, kComment = 65535;  // bytes of the record, and of the longest comment behind it
  const Reader in(path, bytes);
  for (uint64_t back = kSize; back <= std::min<uint64_t>(bytes.size(), kSize + kComment); ++back)
    if (in.at<uint32_t>(bytes.size() - back) == kEnd) return bytes.size() - back;
  fail<DataError>(kZip, path, ": the file is no zip archive, or is cut off: it has no directory at its end");
}

// Returns the `size` bytes that `packed` deflated bytes become.
std::string inflated(const std::string& where, const char* from, uint64_t packed, uint64_t size) {
  constexpr int kRawWindow = -15;  // windows of 2^15 bytes, in the format without a header
  z_stream stream{};
  check<MemoryError>(inflateInit2(&stream, kRawWindow) == Z_OK, kZip, "cannot start to unpack ", where);
  std::string out;
  int code = Z_OK;
  constexpr uint64_t kMostTimes = 1032;  // bytes that one deflated byte can become
  out.reserve(std::min(size / kMostTimes < packed ? size : packed * kMostTimes, size) + 1);
  // Grows with the bytes that were unpacked: a damaged directory may have a larger size.
  while (code == Z_OK && out.size() <= size) {
    const size_t held = out.size();
    out.resize(held + size_t(std::min(kPiece, size - held + 1)));
    stream.next_out = reinterpret_cast<Bytef*>(out.data() + held);
    stream.avail_out = uInt(out.size() - held);
    do {
      if (stream.avail_in == 0 && packed > 0) {
        const uint64_t piece = std::min<uint64_t>(packed, 1u << 30);
        stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(from));
        stream.avail_in = uInt(piece);
        from += piece, packed -= piece;
      }
      code = inflate(&stream, Z_NO_FLUSH);
    } while (code == Z_OK && stream.avail_out > 0);
    out.resize(out.size() - stream.avail_out);
  }
  inflateEnd(&stream);
  check<DataError>(code == Z_STREAM_END && out.size() == size, kZip, where, " cannot be unpacked: it is damaged or cut off");
  return out;
}

uint32_t checksum_of(std::string_view bytes) {
  uint32_t crc = 0;
  for (uint64_t done = 0; done < bytes.size(); done += kPiece)
    crc = uint32_t(
        crc32(crc, reinterpret_cast<const Bytef*>(bytes.data() + done), uInt(std::min<uint64_t>(kPiece, bytes.size() - done))));
  return crc;
}

}  // namespace

ZipFile::ZipFile(const std::filesystem::path& path) : path_(path.string()), content_(read_file(path)), bytes_(content_) {
  if (!bytes_.starts_with("PK\3\4")) refuse_other_file<DataError>(kZip, path, bytes_);
  read_directory();
}

ZipFile::ZipFile(const std::filesystem::path& path, std::string_view bytes) : path_(path.string()), bytes_(bytes) {
  read_directory();
}

// Offsets inside records are those of APPNOTE.TXT: 4.3.12 the directory's entries, 4.3.14 to 4.3.16 the end records.
void ZipFile::read_directory() {
  const Reader in(path_, bytes_);
  const uint64_t end = find_end(path_, bytes_);
  uint64_t count = in.at<uint16_t>(end + 10);
  uint64_t at = in.at<uint32_t>(end + 16);
  if (end >= 20 && in.at<uint32_t>(end - 20) == kLocator64) {
    const uint64_t record = in.at<uint64_t>(end - 20 + 8);
    check<DataError>(in.at<uint32_t>(record) == kEnd64, kZip, path_, ": the archive's 64-bit directory is not where it should be");
    count = in.at<uint64_t>(record + 32), at = in.at<uint64_t>(record + 48);
  }
  for (uint64_t i = 0; i < count; ++i) {
    check<DataError>(in.at<uint32_t>(at) == kEntry, kZip, path_, ": the archive's directory is damaged at byte ", at);
    Entry entry{in.at<uint16_t>(at + 8),  in.at<uint16_t>(at + 10), in.at<uint32_t>(at + 16),
                in.at<uint32_t>(at + 20), in.at<uint32_t>(at + 24), in.at<uint32_t>(at + 42)};
    const uint64_t name = in.at<uint16_t>(at + 28), extra = in.at<uint16_t>(at + 30), comment = in.at<uint16_t>(at + 32);
    const uint64_t extras = at + 46 + name;
    for (uint64_t x = extras; x + 4 <= extras + extra; x += 4 + in.at<uint16_t>(x + 2)) {
      if (in.at<uint16_t>(x) != 1) continue;  // 64-bit sizes, of entries that need them
      uint64_t value = x + 4;
      for (uint64_t* field : {&entry.size, &entry.packed, &entry.header}) {
        if (*field != 0xffffffff) continue;
        *field = in.at<uint64_t>(value);
        value += 8;
      }
    }
    // An archive that was added to may have a name twice: the later entry replaces the earlier one, as in Python and unzip.
    if (const std::string text = in.text(at + 46, name); places_.insert_or_assign(text, entries_.size()).second)
      names_.push_back(text);
    entries_.push_back(entry);
    at = extras + extra + comment;
  }
}

const ZipFile::Entry& ZipFile::find(std::string_view name) const {
  const auto found = places_.find(name);
  if (found == places_.end()) {
    std::string all;
    for (const std::string& n : names_) {
      all += (all.empty() ? "" : ", ") + n;
      if (all.size() > 500) break;
    }
    fail<DataError>(kZip, path_, " has no \"", name, "\"; it has ", all.empty() ? "nothing" : all.substr(0, 500));
  }
  return entries_[found->second];
}

std::string_view ZipFile::packed_bytes(const Entry& entry, const std::string& where) const {
  const Reader in(path_, bytes_);
  check<DataError>((entry.flags & kEncrypted) == 0, kZip, where, " is encrypted");
  check<DataError>(entry.method == kStored || entry.method == kDeflated, kZip, where, " must be stored or deflated, got method ",
                   entry.method);
  check<DataError>(in.at<uint32_t>(entry.header) == kLocal, kZip, where, " is not where the archive's directory says");
  const uint64_t data = entry.header + 30 + in.at<uint16_t>(entry.header + 26) + in.at<uint16_t>(entry.header + 28);  // 4.3.7
  in.need(data, entry.packed);
  check<DataError>(entry.method == kDeflated || entry.packed == entry.size, kZip, where, " is stored, but has ", entry.packed,
                   " bytes for ", entry.size);
  return bytes_.substr(data, entry.packed);
}

std::string ZipFile::read(std::string_view name) const {
  const Entry& entry = find(name);
  const std::string where = joined(path_, ": \"", name, '"');
  const std::string_view packed = packed_bytes(entry, where);
  std::string out = entry.method == kStored ? std::string(packed) : inflated(where, packed.data(), packed.size(), entry.size);
  check<DataError>(checksum_of(out) == entry.crc, kZip, where, " is damaged: its checksum is not the one that the archive has");
  return out;
}

std::string_view ZipFile::stored(std::string_view name) const {
  const Entry& entry = find(name);
  const std::string where = joined(path_, ": \"", name, '"');
  check<DataError>(entry.method == kStored, kZip, where, " must be stored without compression, got method ", entry.method);
  const std::string_view out = packed_bytes(entry, where);
  check<DataError>(entry.crc == 0 || checksum_of(out) == entry.crc, kZip, where,
                   " is damaged: its checksum is not the one that the archive has");
  return out;
}

}  // namespace halfstep
