// SPDX-License-Identifier: Apache-2.0
// Checks the type and the whole text of errors.
#pragma once

#include <doctest/doctest.h>

#include <string>

#include "framework/base/check.h"

namespace halfstep::testing {

template <class E, class F>
void refuses(const std::string& message, F make) {
  CAPTURE(message);
  try {
    make();
    FAIL_CHECK("accepted");
  } catch (const E& e) { CHECK(std::string(e.what()) == message); } catch (const Error& e) {
    FAIL_CHECK("another type: " << e.what());
  }
}

// Returns the text of the error that f throws; "" if it throws none.
template <class F>
std::string error_of(F f) {
  try {
    f();
  } catch (const Error& e) { return e.what(); }
  return "";
}

}  // namespace halfstep::testing
