// SPDX-License-Identifier: Apache-2.0
#include "framework/io/files/gzip.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>
#include <zlib.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <utility>

#include "framework/base/check.h"
#include "framework/io/files/free_memory.h"
#include "framework/io/files/mapped_file.h"

namespace halfstep {
namespace {

constexpr const char* kNote = "unpacked by gzip";

// A file without a name, which ends with the program.
class ScratchFile {
 public:
  [[nodiscard]] ScratchFile(std::string_view where, const std::string& name) : where_(where), name_(name) {}
  ~ScratchFile() {
    if (descriptor_ >= 0) ::close(descriptor_);
  }
  ScratchFile(const ScratchFile&) = delete;
  bool is_open() const { return descriptor_ >= 0; }

  // Opens the file; it stays closed where none can be made.
  void open() {
    const char* const given = std::getenv("TMPDIR");
    folder_ = given && *given ? given : "/var/tmp";
    std::string path = folder_ + "/halfstep-XXXXXX";
    descriptor_ = ::mkostemp(path.data(), O_CLOEXEC);
    if (is_open()) ::unlink(path.c_str());
  }
  void write(std::string_view bytes) {
    while (!bytes.empty()) {
      const ssize_t n = ::write(descriptor_, bytes.data(), bytes.size());
      if (n < 0 && errno == EINTR) continue;
      check<IoError>(n >= 0, where_, name_, ": what gzip packed has no room in ", folder_, ": ", std::strerror(errno), " after ",
                     bytes_, " bytes", Help{"the variable TMPDIR names another folder; or unpack the file with gunzip"});
      bytes.remove_prefix(size_t(n)), bytes_ += uint64_t(n);
    }
  }
  // Returns the bytes of the file, mapped into memory.
  Unpacked map() const {
    const size_t bytes = size_t(bytes_);
    if (bytes == 0) return {{}, {}, false, kNote};
    void* const pages = ::mmap(nullptr, bytes, PROT_READ, MAP_PRIVATE, descriptor_, 0);
    check<IoError>(pages != MAP_FAILED, where_, name_, ": what gzip packed cannot be mapped into memory");
    std::shared_ptr<const void> owner(pages, [bytes](void* p) { ::munmap(p, bytes); });
    return {{static_cast<const char*>(pages), bytes},
            std::move(owner),
            true,
            joined(kNote, " into a temporary file of ", bytes / 1'000'000, " MB in ", folder_)};
  }

 private:
  std::string_view where_;
  const std::string& name_;
  std::string folder_;
  int descriptor_ = -1;
  uint64_t bytes_ = 0;
};

}  // namespace

bool is_gzip(std::string_view head) { return head.starts_with("\x1f\x8b\x08"); }

Unpacked unpack_gzip(std::string_view packed, bool mapped, std::string_view where, const std::string& name, size_t most_in_memory) {
  constexpr size_t kFirstRoom = 1 << 16;  // bytes of the first output
  constexpr size_t kPiece = 1 << 20;      // bytes of one input, and of one write into the temporary file
  constexpr size_t kMostRoom = 1 << 30;   // bytes of one output, whose number is a uInt
  constexpr int kGzipWindow = 15 + 16;    // windows of 2^15 bytes, in the gzip format
  z_stream stream{};
  check<MemoryError>(inflateInit2(&stream, kGzipWindow) == Z_OK, where, "cannot start to unpack ", name);
  const struct Ender {
    z_stream& stream;
    ~Ender() { inflateEnd(&stream); }
  } ender{stream};
  const auto refuse = [&](const char* why) { fail<DataError>(where, name, ": the file is packed by gzip, but ", why); };
  PageWindow window(packed, mapped);
  ScratchFile scratch(where, name);
  std::string out;
  size_t filled = 0;  // bytes of `out`
  for (int code = Z_OK;;) {
    if (stream.avail_in == 0) {
      const size_t piece = std::min(packed.size(), kPiece);
      window.move_to(packed.data());
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
    if (filled == out.size()) {
      if (!scratch.is_open() && filled >= most_in_memory) scratch.open();
      if (scratch.is_open()) {
        scratch.write(out);
        out = std::string(kPiece, '\0'), filled = 0;
      } else {
        check_room(where, name, 2 * double(filled), joined("an unpacked file of more than ", filled, " bytes"),
                   "unpack it with gunzip: a plain file is read in less memory");
        out.resize(std::max(kFirstRoom, 2 * filled));
      }
    }
    const size_t room = std::min(out.size() - filled, kMostRoom);
    stream.next_out = reinterpret_cast<Bytef*>(out.data() + filled);
    stream.avail_out = uInt(room);
    code = inflate(&stream, Z_NO_FLUSH);
    filled += room - stream.avail_out;
    if (code == Z_BUF_ERROR && stream.avail_in == 0 && packed.empty()) refuse("is cut off");
    if (code != Z_OK && code != Z_STREAM_END && code != Z_BUF_ERROR) refuse("is damaged");
  }
  out.resize(filled);
  if (scratch.is_open()) {
    scratch.write(out);
    return scratch.map();
  }
  const auto own = std::make_shared<const std::string>(std::move(out));
  return {*own, own, false, kNote};
}

}  // namespace halfstep
