// SPDX-License-Identifier: Apache-2.0
// The words in a stored form of data, shared by writer and reader.
#pragma once

#include <array>
#include <cstdint>

namespace halfstep::form_words {

inline constexpr int64_t kFormVersion = 1;

// The words of enumerations without OptionNames, in the order of their values.
inline constexpr std::array<const char*, 5> kSources = {"tensor", "image", "table", "series", "text"};
inline constexpr std::array<const char*, 4> kStepUnits = {"number", "day", "business_day", "month"};
inline constexpr std::array<const char*, 3> kByteMeanings = {"none", "pixels", "numbers"};
inline constexpr std::array<const char*, 3> kHeaders = {"auto", "yes", "no"};
inline constexpr const char* kBlanks = "blanks";  // the delimiter

}  // namespace halfstep::form_words
