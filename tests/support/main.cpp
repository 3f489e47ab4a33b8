// SPDX-License-Identifier: Apache-2.0
#define DOCTEST_CONFIG_IMPLEMENT_WITH_MAIN
#include <doctest/doctest.h>

#include <clocale>
#include <cstdlib>
#include <locale>

// What programs remember of pictures stays out of the user's cache.
[[maybe_unused]] static const int no_cache = setenv("XDG_CACHE_HOME", "/dev/null", 1);

// As a program with a graphical interface has it: the test "locale" sets the name.
[[maybe_unused]] static const bool in_locale = [] {
  const char* const name = std::getenv("HALFSTEP_TEST_LOCALE");
  if (!name) return false;
  if (!std::setlocale(LC_ALL, name)) std::abort();
  std::locale::global(std::locale(name));
  return true;
}();
