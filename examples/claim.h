// SPDX-License-Identifier: Apache-2.0
// Examples state claims; a claim that does not hold is printed and makes the program fail.
#pragma once

#include <iostream>
#include <string_view>

inline int failed_claims = 0;

inline void claim(bool holds, std::string_view what) {
  std::cout << (holds ? "  ok: " : "  WRONG: ") << what << '\n';
  failed_claims += !holds;
}
