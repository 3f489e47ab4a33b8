// SPDX-License-Identifier: Apache-2.0
// A compressed IDX file, which may also be that of a text. An even first byte: the rest is the file. An odd one: the rest is
// compressed, in as many members as the second byte says, then cut at and damaged where the next bytes say, which reaches beyond
// the checksum.
#include <zlib.h>

#include <algorithm>

#include "framework/data/formats/idx.h"
#include "framework/io/files/gzip.h"
#include "tests/fuzz/fuzz.h"

namespace {

std::string gzip(std::string_view bytes, int level) {
  z_stream z{};
  if (deflateInit2(&z, level, Z_DEFLATED, 15 + 16, 8, Z_DEFAULT_STRATEGY) != Z_OK) std::abort();
  std::string out(deflateBound(&z, bytes.size()) + 32, '\0');
  z.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(bytes.data()));
  z.avail_in = uInt(bytes.size());
  z.next_out = reinterpret_cast<Bytef*>(out.data());
  z.avail_out = uInt(out.size());
  if (deflate(&z, Z_FINISH) != Z_STREAM_END) std::abort();
  out.resize(z.total_out);
  deflateEnd(&z);
  return out;
}

}  // namespace

HALFSTEP_FUZZ_HARNESS(gz) {
  using namespace halfstep;
  if (size < 8) return 0;
  std::string bytes(fuzz::text_of(data + 7, size - 7));
  if (data[0] & 1) {
    const size_t cut = std::min<size_t>(data[1], bytes.size());
    std::string packed;
    if (data[0] & 2) packed = gzip(std::string_view(bytes).substr(0, cut), data[0] >> 4 & 7);
    packed += gzip(std::string_view(bytes).substr(data[0] & 2 ? cut : 0), 6);
    const size_t at = size_t(data[2]) << 8 | data[3];
    if (at < packed.size()) packed[at] = char(packed[at] ^ data[4]);
    if (const size_t end = size_t(data[5]) << 8 | data[6]; end < packed.size()) packed.resize(end);
    bytes = std::move(packed);
  }
  const fuzz::MemoryFile file(bytes);
  fuzz::typed([&] { read_idx(file.path(), 1 + (data[0] >> 2 & 3)); });
  fuzz::typed([&] {  // through a temporary file, and in memory
    if (is_gzip(bytes) && unpack_gzip(bytes, false, "gz", "f", 0).bytes != unpack_gzip(bytes, false, "gz", "f").bytes)
      fuzz::found("other bytes from a temporary file");
  });
  return 0;
}
