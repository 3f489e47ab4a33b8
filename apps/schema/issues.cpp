// SPDX-License-Identifier: Apache-2.0
#include "apps/schema/issues.h"

#include <algorithm>
#include <iterator>
#include <tuple>

#include "framework/base/check.h"

namespace halfstep::app {
namespace {

constexpr size_t kShownPathBytes = 200, kShownMessageBytes = 2000;

bool inside(std::string_view path, std::string_view above) {
  return above.empty() || (path.starts_with(above) && (path.size() == above.size() || path[above.size()] == '.'));
}

// Returns the nearest origin: a missing key is reported at its object.
const SourceLocation* find_origin(std::string path, const Origins& origins, bool& exact) {
  exact = true;
  while (true) {
    const auto it = origins.find(path);
    if (it != origins.end()) return &it->second;
    exact = false;
    if (path.empty()) return nullptr;
    const size_t dot = path.rfind('.');
    path = dot == std::string::npos ? "" : path.substr(0, dot);
  }
}

// Returns at most `bytes` bytes and "...", without characters that would move a terminal's cursor.
std::string printable(std::string text, size_t bytes) {
  if (text.size() > bytes) {
    while (bytes > 0 && (text[bytes] & 0xc0) == 0x80) --bytes;  // do not split a character
    text = text.substr(0, bytes) + "...";
  }
  for (char& c : text) {
    if ((static_cast<unsigned char>(c) < 0x20 && c != '\n' && c != '\t') || c == 0x7f) c = '?';
  }
  return text;
}

Mark mark_of(const Issue& issue, const Origins& origins) {
  bool exact = false;
  const SourceLocation* origin = find_origin(issue.path, origins, exact);
  if (!origin) return {};
  return exact && issue.at_key && origin->key.line ? origin->key : origin->value;
}

}  // namespace

bool Issues::touches(std::string_view path) const {
  return errors_ > kListed || std::any_of(list_.begin(), list_.end(), [&](const Issue& i) {
           return !i.warning && (inside(i.path, path) || inside(path, i.path));
         });
}

std::string Issues::line(const Issue& issue, const Origins& origins) {
  bool exact = false;
  const SourceLocation* origin = find_origin(issue.path, origins, exact);
  std::string out;
  if (origin) {
    const Mark mark = mark_of(issue, origins);
    out = origin->file;
    if (mark.line) out += ":" + std::to_string(mark.line) + ":" + std::to_string(mark.column);
    out += ": ";
  }
  if (!issue.path.empty()) out += printable(issue.path, kShownPathBytes) + ": ";
  return out + printable(issue.message, kShownMessageBytes);
}

void Issues::raise(std::string_view file, const Origins& origins) const {
  if (errors() == 0) return;
  std::vector<Issue> errors;
  std::copy_if(list_.begin(), list_.end(), std::back_inserter(errors), [](const Issue& i) { return !i.warning; });
  std::stable_sort(errors.begin(), errors.end(), [&](const Issue& a, const Issue& b) {
    const Mark x = mark_of(a, origins), y = mark_of(b, origins);
    return std::tie(x.line, x.column) < std::tie(y.line, y.column);
  });
  std::string text;
  for (const Issue& issue : errors) text += "\n  " + line(issue, origins);
  if (errors_ > kListed) text += "\n  and " + std::to_string(errors_ - kListed) + " more";
  fail<ConfigError>("config", errors_, errors_ == 1 ? " error in " : " errors in ", file, text);
}

std::string join_path(const std::string& base, const std::string& key) { return base.empty() ? key : base + "." + key; }

}  // namespace halfstep::app
