// SPDX-License-Identifier: Apache-2.0
#include "apps/schema/byte_count.h"

#include <cmath>
#include <iterator>
#include <string>

#include "framework/base/text_stream.h"

namespace halfstep::app {

std::optional<ByteCount> parse_byte_count(const Json& value) {
  double count = 0;
  if (value.is_number()) {
    count = value.get<double>();
  } else if (value.is_string()) {
    const std::string text = value.get<std::string>();
    const size_t end = text.find_first_not_of("0123456789.");  // not as a number: the E of EiB would be an exponent
    TextReader number(text.substr(0, end)), unit(end == std::string::npos ? "bytes" : text.substr(end));
    std::string word, rest;
    if (!(number >> count) || (number >> rest) || !(unit >> word) || (unit >> rest)) return {};
    constexpr const char* kUnits[] = {"bytes", "kB", "MB", "GB", "TB", "B", "KiB", "MiB", "GiB", "TiB"};
    constexpr size_t kDecimalUnits = 5;  // powers of 1000; the others are of 1024
    size_t u = 0;
    while (u < std::size(kUnits) && word != kUnits[u]) ++u;
    if (u == std::size(kUnits)) return {};
    count *= u < kDecimalUnits ? std::pow(1000.0, double(u)) : std::pow(1024.0, double(u - kDecimalUnits));
  } else {
    return {};
  }
  if (!(count >= 1 && count <= 0x1p53)) return {};
  return ByteCount{int64_t(count)};
}

}  // namespace halfstep::app
