// SPDX-License-Identifier: Apache-2.0
// Formats numbers for people: seconds, bytes, counts and values.
#pragma once

#include <string>

namespace halfstep::app {

std::string duration_text(double seconds);               // "4.2 s", "42 s", "3:07", "1:02:30"; "?": unknown, as for infinity
std::string bytes_text(double bytes, int decimals = 1);  // "12.3 MB", in powers of 1000
std::string count_text(double count);                    // "123", "12.3k", "1.23M"
std::string number_text(double value, int digits);       // with this many significant digits; "nan"

}  // namespace halfstep::app
