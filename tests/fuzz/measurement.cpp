// SPDX-License-Identifier: Apache-2.0
// What `halfstep bench mlp --json` printed, as reports read it.
#include "apps/report/report.h"
#include "tests/fuzz/fuzz.h"

using namespace halfstep;
using namespace halfstep::app;

HALFSTEP_FUZZ_HARNESS(measurement) {
  const auto file = fuzz::folder() / "b.json";
  fuzz::put(file, fuzz::text_of(data, size));
  fuzz::typed([&] {
    const Measurement one = read_measurement(file);
    if (bench_page({one, one}).find("</html>") == std::string::npos) fuzz::found("a page without an end");
  });
  return 0;
}
