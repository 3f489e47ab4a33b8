// SPDX-License-Identifier: Apache-2.0
#include "apps/schema/pattern.h"

#include <re2/re2.h>

namespace halfstep::app {
namespace {

RE2::Options options() {
  RE2::Options o(RE2::Quiet);
  o.set_max_mem(1 << 20);
  return o;
}

}  // namespace

Pattern::Pattern(const std::string& text) : re_(std::make_unique<RE2>(text, options())) {}
Pattern::Pattern(Pattern&&) noexcept = default;
Pattern::~Pattern() = default;

std::string Pattern::error() const { return re_->ok() ? "" : re_->error(); }
bool Pattern::found_in(const std::string& text) const { return RE2::PartialMatch(text, *re_); }
std::optional<size_t> Pattern::match_length(const std::string& text) const {
  re2::StringPiece match;
  if (!re_->Match(text, 0, text.size(), RE2::UNANCHORED, &match, 1)) return {};
  return match.size();
}
std::string Pattern::replaced(std::string text, const std::string& by) const {
  RE2::Replace(&text, *re_, by);
  return text;
}

}  // namespace halfstep::app
