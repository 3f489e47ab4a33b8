// SPDX-License-Identifier: Apache-2.0
// A run's folder as reports read it: config, run.json, metrics.jsonl and observed.jsonl, parted by lines of "====".
#include <algorithm>

#include "apps/report/report.h"
#include "tests/fuzz/fuzz.h"

using namespace halfstep;
using namespace halfstep::app;

HALFSTEP_FUZZ_HARNESS(run_page) {
  const std::string_view text = fuzz::text_of(data, size);
  size_t at = 0;
  for (const char* name : {"config.resolved.json", "run.json", "metrics.jsonl", "observed.jsonl"}) {
    const size_t end = std::min(text.find("====\n", at), text.size());
    fuzz::put(fuzz::folder() / name, text.substr(at, end - at));
    at = std::min(end + 5, text.size());
  }
  fuzz::typed([&] {
    const RecordedRun run = read_run(fuzz::folder(), /*with_checkpoints=*/false);
    if (report_page({run}, {}).find("</html>") == std::string::npos) fuzz::found("a page without an end");
  });
  return 0;
}
