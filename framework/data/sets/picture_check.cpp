// SPDX-License-Identifier: Apache-2.0
#include "framework/data/sets/picture_check.h"

#include <sys/stat.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <fstream>
#include <iterator>
#include <mutex>
#include <unordered_set>

#include "framework/backend/backend.h"
#include "framework/backend/cpu/team.h"
#include "framework/base/check.h"
#include "framework/base/fork_mutex.h"
#include "framework/data/formats/image_file.h"
#include "framework/io/files/atomic_file.h"
#include "framework/io/files/checksum.h"

namespace halfstep {
namespace {

namespace fs = std::filesystem;
constexpr char kTitle[] = "halfstep pictures, 2\n\n\n\n";  // change the number with what is remembered of a picture
constexpr size_t kTitleBytes = sizeof kTitle - 1, kNumber = sizeof(uint64_t);
constexpr size_t kMostBytes = size_t(1) << 26;  // 8 million pictures
constexpr size_t kRememberAt = 2048;            // pictures between two writes, so that an interrupted check is not lost
static_assert(kTitleBytes % kNumber == 0);

fs::path cache_file() {
  const fs::path folder = picture_cache();
  return folder.empty() ? folder : folder / "pictures";
}

// The pictures that were found to be good, by picture_number(). If another process appends to the file at the same time, some
// numbers may be lost or mixed up: those pictures are decoded again.
class GoodPictures {
 public:
  bool has(uint64_t number) const { return number != 0 && numbers_.contains(number); }
  // Reads the file, unless it was read before.
  void read() {
    const fs::path file = cache_file();
    if (file.empty() || file == read_file_) return;
    read_file_ = file;
    try {
      const std::string bytes = read_file(file, kMostBytes);
      if (!bytes.starts_with(kTitle)) return;
      for (size_t at = kTitleBytes; at + kNumber <= bytes.size(); at += kNumber) {
        uint64_t number = 0;
        std::memcpy(&number, bytes.data() + at, kNumber);
        numbers_.insert(number);
      }
    } catch (const Error&) {}  // the file is missing, or too large
  }
  // Adds numbers here and to the file.
  void add(const std::vector<uint64_t>& more) {
    std::string bytes;
    for (const uint64_t number : more)
      if (number != 0 && numbers_.insert(number).second) bytes.append(reinterpret_cast<const char*>(&number), kNumber);
    const fs::path file = cache_file();
    if (file.empty() || bytes.empty()) return;
    std::error_code failed;
    fs::create_directories(file.parent_path(), failed);
    std::string title(kTitleBytes, '\0');
    std::ifstream(file, std::ios::binary).read(title.data(), std::streamsize(title.size()));
    const auto size = fs::file_size(file, failed);
    const bool starts_anew = failed || title != kTitle || size + bytes.size() > kMostBytes;
    std::ofstream out(file, std::ios::binary | (starts_anew ? std::ios::trunc : std::ios::app));
    out << (starts_anew ? kTitle : "") << bytes << std::flush;  // fails silently on a full disk
  }

 private:
  std::unordered_set<uint64_t> numbers_;
  fs::path read_file_;
};

// The mark of a flawed picture.
constexpr const char* kFlawed = "its end is missing, or bytes lie between its parts";

// The marks of pictures that lose their content on the way to a model: by where their transparency shows, and if they are dark.
constexpr const char* kMarks[] = {"", "on black", "on white", "on both", "dark"};
constexpr size_t kOnBlack = 1, kOnWhite = 2, kIsDark = 4;

bool has_one_color(const Picture& p) {
  const auto all_same = [](const auto& pixels) { return std::equal(pixels.begin() + 3, pixels.end(), pixels.begin()); };
  return p.fine.empty() ? all_same(p.pixels) : all_same(p.fine);
}

// Returns the index of the mark of a picture that was read with its own colors.
size_t mark_of(const fs::path& path, const Picture& picture) {
  constexpr uint16_t kDark = 1 << 12;
  if (!has_one_color(picture)) {
    const auto& fine = picture.fine;
    return !fine.empty() && *std::max_element(fine.begin(), fine.end()) < kDark ? kIsDark : 0;
  }
  size_t out = 0;
  if (!has_one_color(read_picture(path, 3, Background::black, false))) out |= kOnBlack;
  if (!has_one_color(read_picture(path, 3, Background::white, false))) out |= kOnWhite;
  return out;
}

// Adds what the mark says of a picture.
void add_mark(PictureCheck& out, size_t index, size_t mark) {
  if (mark == kIsDark)
    out.dark.push_back(index);
  else if (mark != 0)
    out.hidden.push_back({index, (mark & kOnBlack) != 0, (mark & kOnWhite) != 0});
}

struct Verdict {
  size_t mark = 0;
  std::string fault, flaw;
  std::exception_ptr failed;  // out of memory, which does not concern the picture
};

// Decodes a picture and notes the result.
void examine(const fs::path& picture, Verdict& out) noexcept {
  try {
    try {
      out.mark = mark_of(picture, read_picture(picture, 3, Background::none, false, &out.flaw));
    } catch (const DataError& e) { out.fault = e.what(); } catch (const IoError& e) {
      out.fault = e.what();
    }
  } catch (...) { out.failed = std::current_exception(); }
}

}  // namespace

fs::path picture_cache() {
  const char* const cache = std::getenv("XDG_CACHE_HOME");
  const char* const home = std::getenv("HOME");
  if (cache && *cache == '/') return fs::path(cache) / "halfstep";
  return home && *home == '/' ? fs::path(home) / ".cache" / "halfstep" : fs::path();
}

uint64_t picture_number(const fs::path& picture, const std::string& remark) {
  struct stat status {};
  if (::stat(picture.c_str(), &status) != 0) return 0;
  std::error_code failed;
  const fs::path full_path = picture.is_absolute() ? picture : fs::absolute(picture, failed);
  const std::string text = joined(full_path.lexically_normal().string(), '\n', status.st_size, ' ', status.st_mtim.tv_sec, '.',
                                  status.st_mtim.tv_nsec, '\n', remark);
  return std::strtoull(sha256(text).substr(0, 2 * kNumber).c_str(), nullptr, 16);
}

PictureCheck check_pictures(const std::vector<fs::path>& pictures, const PictureCheckOptions& options) {
  using Clock = std::chrono::steady_clock;
  static constinit ForkMutex mutex;
  const std::lock_guard lock(mutex);
  static GoodPictures good_pictures;
  good_pictures.read();
  PictureCheck out;
  std::vector<size_t> unchecked;  // indices
  for (size_t i = 0; i < pictures.size(); ++i) {
    if (good_pictures.has(picture_number(pictures[i], ""))) continue;
    const auto has_mark = [&](const char* mark) { return good_pictures.has(picture_number(pictures[i], mark)); };
    if (has_mark(kFlawed))
      out.flaws.push_back({i, kFlawed});
    else if (const auto* const mark = std::find_if(std::begin(kMarks) + 1, std::end(kMarks), has_mark); mark != std::end(kMarks))
      add_mark(out, i, size_t(mark - std::begin(kMarks)));
    else
      unchecked.push_back(i);
  }
  const auto start = Clock::now();
  const int threads = num_threads();
  constexpr size_t kPicturesPerThread = 8;  // between two checks of the time
  const size_t at_once = size_t(threads) * kPicturesPerThread;
  out.checked = int64_t(pictures.size() - unchecked.size());
  std::vector<uint64_t> good;
  for (size_t first = 0; first < unchecked.size(); first += at_once) {
    if (std::chrono::duration<double>(Clock::now() - start).count() > options.seconds) break;
    if (options.progress && !options.progress(out.checked, int64_t(pictures.size()))) break;
    std::vector<Verdict> verdicts(std::min(at_once, unchecked.size() - first));
    const auto examine_one = [&](size_t i) { examine(pictures[unchecked[first + i]], verdicts[i]); };
    cpu::run_team(
        int64_t(verdicts.size()), threads, [](void* f, int64_t i) { (*static_cast<decltype(examine_one)*>(f))(size_t(i)); },
        const_cast<void*>(static_cast<const void*>(&examine_one)));
    for (size_t i = 0; i < verdicts.size(); ++i) {
      const size_t place = unchecked[first + i];
      if (verdicts[i].failed) examine(pictures[place], verdicts[i] = {});  // alone, with all the memory
      const Verdict& verdict = verdicts[i];
      if (verdict.failed) std::rethrow_exception(verdict.failed);
      if (!verdict.fault.empty()) {
        out.faults.push_back({place, verdict.fault});
        continue;
      }
      if (!verdict.flaw.empty()) out.flaws.push_back({place, kFlawed});
      if (verdict.flaw.empty()) add_mark(out, place, verdict.mark);
      good.push_back(picture_number(pictures[place], verdict.flaw.empty() ? kMarks[verdict.mark] : kFlawed));
    }
    out.checked += int64_t(verdicts.size());
    if (good.size() < kRememberAt) continue;
    good_pictures.add(good);
    good.clear();
  }
  good_pictures.add(good);
  const auto by_index = [](const PictureCheck::Remark& a, const PictureCheck::Remark& b) { return a.index < b.index; };
  std::sort(out.flaws.begin(), out.flaws.end(), by_index);
  std::sort(out.hidden.begin(), out.hidden.end(), [](const auto& a, const auto& b) { return a.index < b.index; });
  std::sort(out.dark.begin(), out.dark.end());
  return out;
}

}  // namespace halfstep
