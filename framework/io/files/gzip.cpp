// SPDX-License-Identifier: Apache-2.0
#include "framework/io/files/gzip.h"

#include <zlib.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "framework/base/check.h"
#include "framework/io/files/free_memory.h"

namespace halfstep {

bool is_gzip(std::string_view head) { return head.starts_with("\x1f\x8b\x08"); }

std::string unpack_gzip(std::string_view packed, std::string_view where, const std::string& name) {
  constexpr size_t kLeast = 1 << 16, kMost = 1 << 30;
  z_stream stream{};
  check<MemoryError>(inflateInit2(&stream, 15 + 16) == Z_OK, where, "cannot start to unpack ", name);
  const struct Ended {
    z_stream& stream;
    ~Ended() { inflateEnd(&stream); }
  } ended{stream};
  const auto refuse = [&](const char* why) { fail<DataError>(where, name, ": the file is packed by gzip, but ", why); };
  std::string out;
  size_t held = 0;
  for (int code = Z_OK;;) {
    if (stream.avail_in == 0) {
      const size_t piece = std::min(packed.size(), kMost);
      stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(packed.data()));
      stream.avail_in = uInt(piece);
      packed.remove_prefix(piece);
    }
    if (code == Z_STREAM_END) {  // next is another member, zero padding, or the end
      const std::string_view rest(reinterpret_cast<const char*>(stream.next_in), stream.avail_in);
      const auto zero = [](char c) { return c == '\0'; };
      if (std::all_of(rest.begin(), rest.end(), zero) && std::all_of(packed.begin(), packed.end(), zero)) break;
      if (rest[0] != '\x1f') refuse("something else follows the packed data");
      inflateReset(&stream);
    }
    if (held == out.size()) {
      check_room(where, name, 2 * double(held), joined("an unpacked file of more than ", held, " bytes"),
                 "unpack it with gunzip: a plain file is read in less memory");
      out.resize(std::max(kLeast, 2 * held));
    }
    const size_t room = std::min(out.size() - held, kMost);
    stream.next_out = reinterpret_cast<Bytef*>(out.data() + held);
    stream.avail_out = uInt(room);
    code = inflate(&stream, Z_NO_FLUSH);
    held += room - stream.avail_out;
    if (code == Z_BUF_ERROR && stream.avail_in == 0 && packed.empty()) refuse("is cut off");
    if (code != Z_OK && code != Z_STREAM_END && code != Z_BUF_ERROR) refuse("is damaged");
  }
  out.resize(held);
  return out;
}

}  // namespace halfstep
