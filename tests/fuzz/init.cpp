// SPDX-License-Identifier: Apache-2.0
// Data that `halfstep init` looks at; the first byte chooses its kind and what is wished. A config that it makes is valid.
#include <optional>

#include "apps/config/config.h"
#include "apps/start/init_config.h"
#include "framework/io/files/json.h"
#include "tests/fuzz/fuzz.h"

using namespace halfstep;
using namespace halfstep::app;

HALFSTEP_FUZZ_HARNESS(init) {
  if (size < 1) return 0;
  const char* const names[] = {"t.csv", "t.csv", "t.npz", "t.txt"};
  const auto file = fuzz::folder() / names[data[0] % 4];
  fuzz::put(file, fuzz::text_of(data + 1, size - 1));
  InitWishes wishes;
  if (data[0] & 4) wishes.target = "0";
  if (data[0] & 8) wishes.task = data[0] & 16 ? "classification" : "regression";
  std::optional<InitConfig> made;
  fuzz::typed([&] { made = init_config(file, wishes); });
  if (!made) return 0;
  const Config config = resolve_config(read_json<Json>(made->text, /*comments=*/true), "init");
  if (!config.data_fault.empty() || !config.facts) fuzz::found("a config whose data cannot be read", made->text);
  return 0;
}
