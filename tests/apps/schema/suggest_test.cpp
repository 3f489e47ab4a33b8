// SPDX-License-Identifier: Apache-2.0
#include "apps/schema/suggest.h"

#include <doctest/doctest.h>

#include "framework/base/list_text.h"

using namespace halfstep;
using namespace halfstep::app;

TEST_CASE("suggestions are near names and other programs' words") {
  CHECK(edit_distance("momentum", "momnetum") == 1);
  CHECK(suggest("num_epochs", {"epochs", "max_steps"}) == "epochs");
  CHECK(suggest("Dense", {"Linear", "MLP"}) == "Linear");
  CHECK(suggest("zzz", {"lr", "momentum"}) == "");
}
