// SPDX-License-Identifier: Apache-2.0
// Reads the entries of a zip archive: stored or deflated, with and without 64-bit fields.
// Format: APPNOTE.TXT of PKWARE, https://pkware.cachefly.net/webdocs/casestudies/APPNOTE.TXT
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace halfstep {

class ZipFile {
 public:
  // Reads the directory. Throws IoError if the file cannot be read, and DataError if it is damaged or not a zip archive.
  explicit ZipFile(const std::filesystem::path& path);
  // Reads bytes that are already in memory, such as a mapped file's, and must stay there. Errors name `path`.
  ZipFile(const std::filesystem::path& path, std::string_view bytes);
  ZipFile(const ZipFile&) = delete;

  // Returns each name once.
  const std::vector<std::string>& names() const { return names_; }
  bool has(std::string_view name) const { return places_.find(name) != places_.end(); }
  // Returns the bytes of an entry. Throws DataError for an entry that is missing, encrypted, packed by another method, cut off, or
  // with another checksum than the directory's.
  std::string read(std::string_view name) const;
  // Returns the bytes of an entry that is stored without compression, in place. A checksum of 0 is ignored: PyTorch writes it for
  // "not computed".
  std::string_view stored(std::string_view name) const;

 private:
  struct Entry {
    uint16_t flags, method;
    uint32_t crc;
    uint64_t packed, size, header;  // header: offset of the entry's own header
  };
  void read_directory();
  const Entry& find(std::string_view name) const;
  std::string_view packed_bytes(const Entry& entry, const std::string& where) const;

  std::string path_;
  std::string content_;     // of a file that this object has read
  std::string_view bytes_;  // of the archive
  std::vector<std::string> names_;
  std::vector<Entry> entries_;
  std::map<std::string, size_t, std::less<>> places_;  // last entry of each name
};

}  // namespace halfstep
