// SPDX-License-Identifier: Apache-2.0
// The entries of a zip archive: stored or deflated, with and without the 64-bit fields.
// Format: APPNOTE.TXT of PKWARE, https://pkware.cachefly.net/webdocs/casestudies/APPNOTE.TXT
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

namespace halfstep {

class ZipFile {
 public:
  // Reads the directory. Throws IoError when the file cannot be read, and DataError for one that is no zip archive or is damaged.
  explicit ZipFile(const std::filesystem::path& path);

  const std::vector<std::string>& names() const { return names_; }
  // The bytes of an entry. Throws DataError for one that is not there, encrypted, packed in another way, cut off, or not of the
  // checksum that the directory has.
  std::string read(const std::string& name) const;

 private:
  struct Entry {
    uint16_t flags, method;
    uint32_t crc;
    uint64_t packed, size, header;  // header: where its own header lies
  };
  std::string path_, bytes_;
  std::vector<std::string> names_;
  std::vector<Entry> entries_;
};

}  // namespace halfstep
