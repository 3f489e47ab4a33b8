// SPDX-License-Identifier: Apache-2.0
#include "framework/data/tokens/unicode.h"

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstring>
#include <tuple>
#include <unordered_map>
#include <utility>
#include <vector>

namespace halfstep {
namespace {

// Hangul syllables consist of two or three letters, by arithmetic (Unicode, section 3.12).
constexpr uint32_t kSyllables = 0xac00, kLeads = 0x1100, kVowels = 0x1161, kTails = 0x11a7;
constexpr uint32_t kLeadCount = 19, kVowelCount = 21, kTailCount = 28, kSyllableCount = kLeadCount * kVowelCount * kTailCount;

// A code point with its combining class.
struct OrderedPoint {
  uint32_t value, order;
};

// Returns the range that contains `point`, or null.
template <class Range>
const Range* range_of(std::span<const Range> ranges, uint32_t point) {
  const auto at = std::upper_bound(ranges.begin(), ranges.end(), point, [](uint32_t p, const Range& r) { return p < r.first; });
  return at != ranges.begin() && point <= (at - 1)->last ? &*(at - 1) : nullptr;
}

PointClass class_by_tables(uint32_t point) {
  const bool space = (point >= 0x9 && point <= 0xd) || point == 0x20 || point == 0x85 || point == 0xa0 || point == 0x1680 ||
                     (point >= 0x2000 && point <= 0x200a) || point == 0x2028 || point == 0x2029 || point == 0x202f ||
                     point == 0x205f || point == 0x3000;
  if (space) return PointClass::space;
  if (range_of(letter_ranges(), point)) return PointClass::letter;
  return range_of(number_ranges(), point) ? PointClass::number : PointClass::other;
}

// Returns the combining class of a point; 0: a starter.
uint32_t order_of(uint32_t point) {
  const CombiningRange* const range = point < 0x300 ? nullptr : range_of(combining_ranges(), point);
  return range ? range->order : 0;
}

// Appends the full decomposition of a point.
void decompose(uint32_t point, std::vector<OrderedPoint>& out) {
  if (point >= kSyllables && point < kSyllables + kSyllableCount) {
    const uint32_t i = point - kSyllables;
    out.push_back({kLeads + i / (kVowelCount * kTailCount), 0});
    out.push_back({kVowels + i / kTailCount % kVowelCount, 0});
    if (i % kTailCount != 0) out.push_back({kTails + i % kTailCount, 0});
    return;
  }
  const auto all = decompositions();
  const auto at = std::lower_bound(all.begin(), all.end(), point, [](const Decomposition& d, uint32_t p) { return d.whole < p; });
  if (at == all.end() || at->whole != point) return out.push_back({point, order_of(point)});
  decompose(at->first, out);
  if (at->second != 0) decompose(at->second, out);
}

// Returns the code point that combines `a` and `b`; 0: none.
uint32_t compose(uint32_t a, uint32_t b) {
  static const auto& wholes = *new std::unordered_map<uint64_t, uint32_t>([] {
    std::unordered_map<uint64_t, uint32_t> out;
    for (const Decomposition& d : decompositions()) {
      if (d.second != 0 && !range_of(composition_exclusions(), d.whole)) out.emplace(uint64_t(d.first) << 32 | d.second, d.whole);
    }
    return out;
  }());
  if (a - kLeads < kLeadCount && b - kVowels < kVowelCount)
    return kSyllables + ((a - kLeads) * kVowelCount + (b - kVowels)) * kTailCount;
  if (a - kSyllables < kSyllableCount && (a - kSyllables) % kTailCount == 0 && b > kTails && b < kTails + kTailCount)
    return a + (b - kTails);
  const auto found = wholes.find(uint64_t(a) << 32 | b);
  return found == wholes.end() ? 0 : found->second;
}

// Joins each mark with the last starter before it, unless a mark between them has the same or a greater class.
void compose_points(std::vector<OrderedPoint>& points) {
  size_t starter = points.size(), kept = 0;  // points.size(): none yet
  for (const OrderedPoint p : points) {
    if (starter < kept) {
      const bool adjacent = starter + 1 == kept;
      const uint32_t whole = adjacent || points[kept - 1].order < p.order ? compose(points[starter].value, p.value) : 0;
      if (whole != 0) {
        points[starter].value = whole;
        continue;
      }
    }
    if (p.order == 0) starter = kept;
    points[kept++] = p;
  }
  points.resize(kept);
}

// Returns whether a point joins the letter before it: combining marks, and Hangul letters that complete a syllable.
bool is_joining(char32_t point) { return (point >= 0x300 && point < 0x370) || (point >= 0x1161 && point < 0x1200); }

}  // namespace

size_t utf8_length(std::string_view text, size_t at) {
  const auto byte = [&](size_t i) { return i < text.size() ? uint8_t(text[i]) : uint8_t(0); };
  const uint8_t first = byte(at);
  if (first < 0x80) return at < text.size() ? 1 : 0;
  const size_t bytes = first >= 0xf0 ? 4 : first >= 0xe0 ? 3 : 2;
  if (first < 0xc2 || first > 0xf4) return 0;
  for (size_t i = 1; i < bytes; ++i)
    if ((byte(at + i) & 0xc0) != 0x80) return 0;
  const uint8_t second = byte(at + 1);
  const bool wrong = (first == 0xe0 && second < 0xa0) || (first == 0xed && second > 0x9f) || (first == 0xf0 && second < 0x90) ||
                     (first == 0xf4 && second > 0x8f);  // overlong, a surrogate, or beyond U+10FFFF
  return wrong ? 0 : bytes;
}

char32_t utf8_at(std::string_view text, size_t at, size_t bytes) {
  const auto byte = [&](size_t i) { return char32_t(uint8_t(text[at + i])); };
  if (bytes == 1) return byte(0);
  char32_t point = byte(0) & (0x7f >> bytes);
  for (size_t i = 1; i < bytes; ++i) point = point << 6 | (byte(i) & 0x3f);
  return point;
}

void append_utf8(std::string& out, char32_t point) {
  const int more = point < 0x80 ? 0 : point < 0x800 ? 1 : point < 0x10000 ? 2 : 3;
  constexpr std::array<uint8_t, 4> kFirst = {0, 0xc0, 0xe0, 0xf0};
  out += char(kFirst[size_t(more)] | (point >> 6 * more));
  for (int i = more - 1; i >= 0; --i) out += char(0x80 | (point >> 6 * i & 0x3f));
}

size_t find_not_utf8(std::string_view text) {
  constexpr uint64_t kHighBits = 0x8080808080808080;
  for (size_t at = 0, bytes = 0; at < text.size(); at += bytes) {
    for (uint64_t eight = 0; at + 8 <= text.size(); at += 8) {
      std::memcpy(&eight, text.data() + at, 8);
      if ((eight & kHighBits) != 0) break;
    }
    if (at == text.size()) break;
    bytes = uint8_t(text[at]) < 0x80 ? 1 : utf8_length(text, at);
    if (bytes == 0) return at;
  }
  return std::string_view::npos;
}

std::string replace_not_utf8(std::string text) {
  size_t at = find_not_utf8(text);
  if (at == std::string::npos) return text;
  std::string out = text.substr(0, at);
  while (at < text.size()) {
    if (const size_t bytes = utf8_length(text, at); bytes > 0) {
      out.append(text, at, bytes);
      at += bytes;
      continue;
    }
    // Two or three bytes begin a code point if some next byte would make it valid; trying 0x80 to 0xbf covers all of them.
    size_t begun = 1;
    const uint8_t first = uint8_t(text[at]);
    for (const size_t most = first >= 0xf0 ? 3 : first >= 0xe0 ? 2 : 1; begun < most && at + begun < text.size(); ++begun) {
      std::string completed = text.substr(at, begun + 1);
      completed.resize(most + 1, char(0x80));
      if (utf8_length(completed, 0) == 0) break;
    }
    out += "\xef\xbf\xbd";
    at += begun;
  }
  return out;
}

PointClass class_of(char32_t point) {
  static const std::array<PointClass, 0x400> small = [] {  // most texts need no others
    std::array<PointClass, 0x400> out{};
    for (uint32_t i = 0; i < out.size(); ++i) out[i] = class_by_tables(i);
    return out;
  }();
  return point < small.size() ? small[point] : class_by_tables(uint32_t(point));
}

bool is_blank_point(char32_t point) {
  return class_of(point) == PointClass::space || point == 0x200b || point == 0x2060 || point == 0xfeff;
}

bool is_word_point(char32_t point) {
  const PointClass point_class = class_of(point);
  if (point_class == PointClass::letter || point_class == PointClass::number) return true;
  return point >= 0x300 && range_of(mark_ranges(), uint32_t(point));
}

bool is_ideograph(char32_t point) {
  static constexpr PointRange kRanges[] = {{0x3400, 0x4dbf}, {0x4e00, 0x9fff}, {0xf900, 0xfaff}, {0x20000, 0x323af}};
  return point >= kRanges[0].first && range_of(std::span<const PointRange>(kRanges), uint32_t(point));
}

void append_lower_case(std::string& out, char32_t point) {
  if (point == 0x130) return append_utf8(out, 'i'), append_utf8(out, 0x307);  // the only one that becomes two
  if (point < 0x80) return out += char(point >= 0x41 && point <= 0x5a ? point + 0x20 : point), void();
  const SmallLetters* const row = range_of(small_letters(), uint32_t(point));
  const bool has_lower_case = row && (uint32_t(point) - row->first) % row->step == 0;
  append_utf8(out, has_lower_case ? char32_t(int32_t(point) + row->distance) : point);
}

std::string spelled(std::string_view text) {
  std::string out = "\"";
  for (size_t at = 0, bytes = 0; at < text.size(); at += bytes) {
    bytes = utf8_length(text, at);
    char escape[16] = {};
    if (bytes == 0) {
      bytes = 1;
      std::snprintf(escape, sizeof escape, "\\x%02x", unsigned(uint8_t(text[at])));
    } else if (const char32_t point = utf8_at(text, at, bytes);
               point < 0x20 || point == 0x7f || is_joining(point) || (is_blank_point(point) && point != ' ')) {
      std::snprintf(escape, sizeof escape, point > 0xffff ? "\\U%08x" : "\\u%04x", unsigned(point));
    }
    out += escape[0] ? std::string(escape) : std::string(text.substr(at, bytes));
  }
  return out + '"';
}

namespace {

// Returns the full decomposition of a text, with the marks of each letter in order.
std::vector<OrderedPoint> decomposed(std::string_view text) {
  std::vector<OrderedPoint> points;
  for (size_t at = 0, bytes = 0; at < text.size(); at += bytes) {
    bytes = utf8_length(text, at);
    decompose(uint32_t(utf8_at(text, at, bytes)), points);
  }
  for (auto at = points.begin(); at != points.end();) {  // sorts each run of marks
    at = std::find_if(at, points.end(), [](const OrderedPoint& p) { return p.order != 0; });
    const auto end = std::find_if(at, points.end(), [](const OrderedPoint& p) { return p.order == 0; });
    std::stable_sort(at, end, [](const OrderedPoint& a, const OrderedPoint& b) { return a.order < b.order; });
    at = end;
  }
  return points;
}

std::string text_of(const std::vector<OrderedPoint>& points) {
  std::string out;
  for (const OrderedPoint& p : points) append_utf8(out, p.value);
  return out;
}

}  // namespace

std::string normalize_nfc(std::string_view text) {
  const auto is_unchanged = [](char c) { return uint8_t(c) < 0xcc; };  // nothing below U+0300 combines or changes
  if (std::all_of(text.begin(), text.end(), is_unchanged)) return std::string(text);
  std::vector<OrderedPoint> points = decomposed(text);
  compose_points(points);
  return text_of(points);
}

std::string normalize_nfd(std::string_view text) {
  const auto is_ascii = [](char c) { return uint8_t(c) < 0x80; };
  if (std::all_of(text.begin(), text.end(), is_ascii)) return std::string(text);
  return text_of(decomposed(text));
}

}  // namespace halfstep
