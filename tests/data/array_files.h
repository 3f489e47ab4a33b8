// SPDX-License-Identifier: Apache-2.0
// Writes files of NumPy's formats, byte by byte.
#pragma once

#include <zlib.h>

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "framework/ops/ops.h"
#include "tests/io/files.h"

namespace halfstep::testing {

inline std::string little(uint64_t value, int bytes) {
  std::string out;
  for (int i = 0; i < bytes; ++i) out += char(value >> (8 * i));
  return out;
}

inline std::string npy_of(const std::string& header, const std::string& data) {
  return "\x93NUMPY" + std::string("\1\0", 2) + little(header.size(), 2) + header + data;
}
inline std::string npy(const std::string& dtype, const std::string& shape, const std::string& data, bool fortran = false) {
  return npy_of("{'descr': '" + dtype + "', 'fortran_order': " + (fortran ? "True" : "False") + ", 'shape': " + shape + ", }\n",
                data);
}

// Formats a float32 matrix.
inline std::string npy(const Tensor& t) {
  const Tensor dense = t.contiguous();
  return npy("<f4", "(" + std::to_string(t.size(0)) + ", " + std::to_string(t.size(1)) + ")",
             {static_cast<const char*>(dense.const_data_ptr()), dense.nbytes()});
}

// Compresses bytes as gzip does.
inline std::string gzipped(const std::string& bytes) {
  z_stream z{};
  deflateInit2(&z, 6, Z_DEFLATED, 15 + 16, 8, Z_DEFAULT_STRATEGY);
  std::string out(deflateBound(&z, bytes.size()) + 32, '\0');
  z.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(bytes.data())), z.avail_in = uInt(bytes.size());
  z.next_out = reinterpret_cast<Bytef*>(out.data()), z.avail_out = uInt(out.size());
  deflate(&z, Z_FINISH);
  out.resize(z.total_out);
  deflateEnd(&z);
  return out;
}

// Formats an archive like numpy.savez or savez_compressed.
inline std::string zip(const std::vector<std::pair<std::string, std::string>>& entries, bool deflated) {
  std::string out, directory;
  for (const auto& [name, bytes] : entries) {
    std::string packed = bytes;
    if (deflated) {
      z_stream z{};
      deflateInit2(&z, 6, Z_DEFLATED, -15, 8, Z_DEFAULT_STRATEGY);
      packed.resize(deflateBound(&z, bytes.size()));
      z.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(bytes.data())), z.avail_in = uInt(bytes.size());
      z.next_out = reinterpret_cast<Bytef*>(packed.data()), z.avail_out = uInt(packed.size());
      deflate(&z, Z_FINISH);
      packed.resize(z.total_out);
      deflateEnd(&z);
    }
    const uint32_t crc = uint32_t(crc32(0, reinterpret_cast<const Bytef*>(bytes.data()), uInt(bytes.size())));
    const std::string common = little(20, 2) + little(0, 2) + little(deflated ? 8 : 0, 2) + little(0, 4) + little(crc, 4) +
                               little(packed.size(), 4) + little(bytes.size(), 4) + little(name.size(), 2);
    directory +=
        little(0x02014b50, 4) + little(20, 2) + common + little(0, 2) + little(0, 2) + little(0, 8) + little(out.size(), 4) + name;
    out += little(0x04034b50, 4) + common + little(0, 2) + name + packed;
  }
  const std::string count = little(entries.size(), 2);
  return out + directory + little(0x06054b50, 4) + little(0, 4) + count + count + little(directory.size(), 4) +
         little(out.size(), 4) + little(0, 2);
}

}  // namespace halfstep::testing
