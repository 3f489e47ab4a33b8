// SPDX-License-Identifier: Apache-2.0
#include "framework/base/list_text.h"

#include <doctest/doctest.h>

using namespace halfstep;

TEST_CASE("a list in a message names its first parts and counts the others") {
  CHECK(list_text({}) == "");
  CHECK(list_text({"a"}) == "a");
  CHECK(list_text({"a", "b", "c"}, 3) == "a, b, c");
  CHECK(list_text({"a", "b", "c"}, 2) == "a, b and 1 more");
  CHECK(list_text({"a", "b", "c"}, 1, "; ") == "a and 2 more");
  CHECK(list_text({"a b", "c", "d"}, 2, "; ") == "a b; c and 1 more");
}
