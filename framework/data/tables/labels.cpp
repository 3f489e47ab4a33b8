// SPDX-License-Identifier: Apache-2.0
#include "framework/data/tables/labels.h"

#include <algorithm>
#include <clocale>
#include <cwctype>
#include <numeric>
#include <optional>
#include <utility>

#include "framework/base/check.h"
#include "framework/base/list_text.h"
#include "framework/base/number_text.h"
#include "framework/data/tables/csv_cells.h"
#include "framework/data/tables/label_looks.h"
#include "framework/data/tokens/unicode.h"

namespace halfstep {
namespace {

bool is_plain(char c) { return uint8_t(c) > 0x20 && uint8_t(c) < 0x7f; }

// Returns a number in plain digits without needless characters; empty: it is not one.
std::optional<std::string> plain_number(std::string_view text, char decimal) {
  const bool minus = text.starts_with('-');
  if (minus || text.starts_with('+')) text.remove_prefix(1);
  const size_t point = std::min(text.find(decimal), text.size());
  std::string_view integer_part = text.substr(0, point), part = text.substr(std::min(point + 1, text.size()));
  const auto digits = [](std::string_view s) { return std::all_of(s.begin(), s.end(), is_digit); };
  if (integer_part.empty() || !digits(integer_part) || !digits(part)) return {};
  integer_part.remove_prefix(std::min(integer_part.find_first_not_of('0'), integer_part.size() - 1));
  part = part.substr(0, part.find_last_not_of('0') + 1);
  std::string out(integer_part);
  if (!part.empty()) out += decimal + std::string(part);
  return (minus && out != "0" ? "-" : "") + out;
}

// Converts to lower case, by the C library's Unicode table if it has one.
std::string in_lower_case(std::string_view text) {
  static const locale_t unicode = newlocale(LC_CTYPE_MASK, "C.UTF-8", nullptr);
  std::string out;
  for (size_t at = 0, bytes = 0; at < text.size(); at += bytes) {
    bytes = std::max<size_t>(1, utf8_length(text, at));
    const char32_t point = utf8_at(text, at, bytes);
    if (point < 0x80 || unicode == nullptr)
      append_utf8(out, point >= 'A' && point <= 'Z' ? point - 'A' + 'a' : point);
    else
      append_utf8(out, char32_t(towlower_l(wint_t(point), unicode)));
  }
  return out;
}

std::string counted(std::string_view text, int64_t count) { return joined(spelled(text), " (", count, ')'); }

constexpr size_t kShownLabels = 5;

// Returns the index of the text itself, or else of one with the same key; -1: none.
template <class Key>
int64_t find_by(const std::vector<std::string>& names, std::string_view text, const Key& key_of) {
  auto found = std::find(names.begin(), names.end(), text);
  if (found == names.end()) {
    const std::string key = key_of(text);
    found = std::find_if(names.begin(), names.end(), [&](const std::string& name) { return key_of(name) == key; });
  }
  return found == names.end() ? -1 : found - names.begin();
}

}  // namespace

std::string_view without_blanks(std::string_view text) {
  while (!text.empty() && !is_plain(text.front())) {
    const size_t bytes = utf8_length(text, 0);
    if (bytes == 0 || !is_blank_point(utf8_at(text, 0, bytes))) break;
    text.remove_prefix(bytes);
  }
  while (!text.empty() && !is_plain(text.back())) {
    size_t at = text.size() - 1;
    while (at > 0 && text.size() - at < 4 && (uint8_t(text[at]) & 0xc0) == 0x80) --at;
    const size_t bytes = utf8_length(text, at);
    if (at + bytes != text.size() || !is_blank_point(utf8_at(text, at, bytes))) break;
    text.remove_suffix(bytes);
  }
  return text;
}

std::string text_key(std::string_view text) {
  text = without_blanks(text);
  if (std::all_of(text.begin(), text.end(), is_plain)) return std::string(text);
  std::string out;
  bool after_blank = false;
  for (size_t at = 0, bytes = 0; at < text.size(); at += bytes) {
    bytes = std::max<size_t>(1, utf8_length(text, at));
    const bool is_blank = utf8_length(text, at) > 0 && is_blank_point(utf8_at(text, at, bytes));
    if (is_blank && !after_blank) out += ' ';
    if (!is_blank) out += text.substr(at, bytes);
    after_blank = is_blank;
  }
  return find_not_utf8(out) == out.npos ? normalize_nfc(out) : out;
}

std::string label_key(std::string_view text, char decimal) {
  const auto number = plain_number(without_blanks(text), decimal);
  return number ? *number : text_key(text);
}

int64_t find_name(const std::vector<std::string>& names, std::string_view text) { return find_by(names, text, text_key); }

int64_t find_label(const std::vector<std::string>& names, std::string_view text, char decimal) {
  return find_by(names, text, [&](std::string_view t) { return label_key(t, decimal); });
}

int64_t LabelSet::Label::count() const {
  return std::accumulate(spellings.begin(), spellings.end(), int64_t(0), [](int64_t n, const auto& s) { return n + s.second; });
}

std::string_view LabelSet::Label::most_frequent() const {
  const auto fewer = [&](const auto& a, const auto& b) {
    return std::pair(a.second, a.first == key) < std::pair(b.second, b.first == key);
  };
  return std::max_element(spellings.begin(), spellings.end(), fewer)->first;
}

size_t LabelSet::add(std::string_view text) {
  ++count_;
  auto seen = by_text_.find(text);
  if (seen == by_text_.end()) {
    const auto [at, is_new] = by_key_.try_emplace(label_key(text, decimal_), labels_.size());
    if (is_new) labels_.push_back({at->first, {}});
    seen = by_text_.emplace(text, KnownText{at->second, &labels_[at->second].spellings[text]}).first;
  }
  ++*seen->second.count;
  return seen->second.label;
}

std::vector<std::string> LabelSet::names(std::vector<int64_t>& places, bool by_number) const {
  std::vector<size_t> order(labels_.size());
  std::iota(order.begin(), order.end(), size_t(0));
  std::vector<int64_t> integers(labels_.size());
  bool sort_by_number = by_number, as_integers = true, has_spellings = false;
  for (size_t i = 0; i < labels_.size(); ++i) {
    sort_by_number = sort_by_number && parse_integer(labels_[i].key, integers[i]);
    has_spellings = has_spellings || labels_[i].spellings.size() > 1;
    int64_t ignored;
    for (const auto& [text, n] : labels_[i].spellings) as_integers = as_integers && parse_integer(without_blanks(text), ignored);
  }
  sort_by_number = sort_by_number && (as_integers || has_spellings);
  std::vector<std::string> named;
  for (const Label& label : labels_) {
    const bool number = plain_number(label.key, decimal_).has_value() && label.spellings.size() > 1;
    named.push_back(number || (sort_by_number && as_integers) ? label.key : std::string(without_blanks(label.most_frequent())));
  }
  std::sort(order.begin(), order.end(),
            [&](size_t a, size_t b) { return sort_by_number ? integers[a] < integers[b] : named[a] < named[b]; });
  std::vector<std::string> out;
  places.assign(labels_.size(), 0);
  for (const size_t i : order) {
    places[i] = int64_t(out.size());
    out.push_back(named[i]);
  }
  return out;
}

std::string LabelSet::joined_spellings() const {
  std::string out;
  size_t shown = 0, more = 0;
  for (const Label& label : labels_) {
    if (label.spellings.size() < 2) continue;
    if (shown++ >= kShownLabels) {
      ++more;
      continue;
    }
    out += out.empty() ? "" : "; ";
    size_t k = 0;
    for (const auto& [text, n] : label.spellings) {
      if (++k > kShownLabels) continue;
      out += (k == 1 ? "" : k == label.spellings.size() ? " and " : ", ") + counted(text, n);
    }
    if (k > kShownLabels) out += joined(" and ", k - kShownLabels, " more");
    out += " are one";
  }
  return more > 0 ? joined(out, "; and so are ", more, " more") : out;
}

std::string LabelSet::listed(const Groups& groups, bool apart) {
  std::string out;
  size_t shown = 0;
  for (const auto& [key, group] : groups) {
    if (group.size() < 2 || ++shown > kShownLabels) continue;
    out += out.empty() ? "" : "; ";
    for (size_t i = 0; i < group.size() && i < kShownLabels; ++i) {
      const std::string_view text = group[i]->most_frequent();
      out += (i == 0                  ? ""
              : i + 1 == group.size() ? " and "
                                      : ", ") +
             (apart ? joined(spelled_apart(text), " (", group[i]->count(), ')') : counted(text, group[i]->count()));
    }
  }
  return shown > kShownLabels ? joined(out, "; and ", shown - kShownLabels, " more such pairs") : out;
}

std::string LabelSet::look_alike(const char* what) const {
  Groups by_case, by_look;
  for (const Label& label : labels_) by_case[in_lower_case(label.key)].push_back(&label);
  for (const auto& [key, group] : by_case) by_look[look_of(key, decimal_)].push_back(group.front());
  constexpr const char* kEnd = ", and count as different; spell them alike if they are one";
  std::string out = listed(by_case, false);
  if (!out.empty()) out = joined(out, ": these ", what, " differ in nothing but case", kEnd);
  const std::string looks = listed(by_look, true);
  if (looks.empty()) return out;
  return joined(out, out.empty() ? "" : "; ", looks, ": these ", what, " mean or look the same", kEnd);
}

std::string some_labels(const std::vector<std::string>& names) {
  std::vector<std::string> out;
  for (const std::string& name : names) out.push_back(spelled(name));
  constexpr size_t kListed = 10;
  return list_text(out, kListed);
}

std::vector<int64_t> classes_of_folders(const char* where, const std::filesystem::path& root,
                                        const std::vector<std::string>& folders, std::vector<std::string>& classes,
                                        DataNotes& notes) {
  LabelSet labels;
  std::vector<size_t> label_of;
  for (const std::string& folder : folders) {
    const std::string shown = spelled(folder);
    check<DataError>(find_not_utf8(folder) == folder.npos, where, root.string(),
                     ": the name of a class must be UTF-8, got the folder ", shown,
                     Help{joined("rename it; in bash: mv $'", shown.substr(1, shown.size() - 2), "' NEW_NAME")});
    label_of.push_back(labels.add(folder));
  }
  std::vector<int64_t> out, places;
  if (classes.empty()) {
    classes = labels.names(places, /*by_number=*/false);
    const std::string alike = labels.joined_spellings(), cases = labels.look_alike("classes");
    if (!alike.empty()) notes.summary += joined(notes.summary.empty() ? "" : "; ", "folders of classes: ", alike);
    if (!cases.empty()) notes.warnings.push_back(cases);
    for (const size_t label : label_of) out.push_back(places[label]);
    return out;
  }
  for (const std::string& folder : folders) out.push_back(find_label(classes, folder));
  const bool some = std::any_of(out.begin(), out.end(), [](int64_t c) { return c >= 0; });
  check<DataError>(some, where, root.string(), " must have a folder of a class that the training data has, but has ",
                   some_labels(folders), Help{"the classes are " + some_labels(classes) + "; halfstep predict answers for others"});
  return out;
}

}  // namespace halfstep
