// SPDX-License-Identifier: Apache-2.0
#include "apps/schema/pattern.h"

#include <re2/re2.h>

#include <cstdint>

namespace halfstep::app {
namespace {

constexpr int64_t kMaxBytes = 1 << 20;  // memory of one compiled pattern

RE2::Options options() {
  RE2::Options o(RE2::Quiet);
  o.set_max_mem(kMaxBytes);
  return o;
}

}  // namespace

Pattern::Pattern(const std::string& text) : regex_(std::make_unique<RE2>(text, options())) {}
Pattern::Pattern(Pattern&&) noexcept = default;
Pattern::~Pattern() = default;

std::string Pattern::error() const { return regex_->ok() ? "" : regex_->error(); }
bool Pattern::found_in(const std::string& text) const { return RE2::PartialMatch(text, *regex_); }
std::optional<size_t> Pattern::match_length(const std::string& text) const {
  re2::StringPiece match;
  if (!regex_->Match(text, 0, text.size(), RE2::UNANCHORED, &match, 1)) return {};
  return match.size();
}
std::string Pattern::replaced(std::string text, const std::string& replacement) const {
  RE2::Replace(&text, *regex_, replacement);
  return text;
}

}  // namespace halfstep::app
