// SPDX-License-Identifier: Apache-2.0
// The entries of a zip archive: stored or deflated, with and without the 64-bit fields.
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
  // Reads the directory. Throws IoError when the file cannot be read, and DataError for one that is no zip archive or is damaged.
  explicit ZipFile(const std::filesystem::path& path);
  // Of bytes that are in memory already, as a mapped file's, and stay there. Errors name `path`.
  ZipFile(const std::filesystem::path& path, std::string_view bytes);
  ZipFile(const ZipFile&) = delete;

  const std::vector<std::string>& names() const { return names_; }
  bool has(std::string_view name) const { return places_.find(name) != places_.end(); }
  // The bytes of an entry. Throws DataError for one that is not there, encrypted, packed in another way, cut off, or not of the
  // checksum that the directory has.
  std::string read(std::string_view name) const;
  // The same where they lie, of an entry that is not packed. A checksum of 0 is not compared: PyTorch writes it for "not computed".
  std::string_view stored(std::string_view name) const;

 private:
  struct Entry {
    uint16_t flags, method;
    uint32_t crc;
    uint64_t packed, size, header;  // header: where its own header lies
  };
  void read_directory();
  const Entry& find(std::string_view name) const;
  std::string_view packed_bytes(const Entry& entry, const std::string& where) const;

  std::string path_, held_;
  std::string_view bytes_;
  std::vector<std::string> names_;
  std::vector<Entry> entries_;
  std::map<std::string, size_t, std::less<>> places_;  // of each name in the two lists; of a name that is there twice the first
};

}  // namespace halfstep
