// SPDX-License-Identifier: Apache-2.0
// Regular expressions of configs, which come from untrusted files: RE2 searches in time linear in the text for any pattern, with
// bounded memory; a backtracking matcher could run for years.
#pragma once

#include <cstddef>
#include <memory>
#include <optional>
#include <string>

namespace re2 {
class RE2;
}

namespace halfstep::app {

class Pattern {
 public:
  explicit Pattern(const std::string& text);
  Pattern(Pattern&&) noexcept;
  ~Pattern();
  std::string error() const;  // empty: it is a valid regular expression
  bool found_in(const std::string& text) const;
  std::optional<size_t> match_length(const std::string& text) const;  // of the first match; unset: no match
  // Returns `text` with the first match replaced; \1 to \9 in the replacement are the match's groups.
  std::string replaced(std::string text, const std::string& replacement) const;

 private:
  std::unique_ptr<re2::RE2> regex_;
};

}  // namespace halfstep::app
