// SPDX-License-Identifier: Apache-2.0
#define DOCTEST_CONFIG_IMPLEMENT_WITH_MAIN
#include <doctest/doctest.h>

#include <cstdlib>

// What programs remember of pictures stays out of the user's cache.
[[maybe_unused]] static const int no_cache = setenv("XDG_CACHE_HOME", "/dev/null", 1);
