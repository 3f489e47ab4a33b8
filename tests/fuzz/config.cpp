// SPDX-License-Identifier: Apache-2.0
// A config: the parts of the input are the file, a base.json that it may extend, and lines of --set options. What is valid must
// resolve to itself, and the model and optimizer that it describes are made where they are small.
#include "apps/config/config.h"

#include <sstream>

#include "apps/catalog/losses.h"
#include "apps/catalog/optimizers.h"
#include "apps/train/plan.h"
#include "tests/fuzz/fuzz.h"

using namespace halfstep;
using namespace halfstep::app;

HALFSTEP_FUZZ_HARNESS(config) {
  static const bool table = [] {
    fuzz::put(fuzz::folder() / "table.csv", "a,b,c\n1,2,x\n2,3,y\n4,4,x\n");
    return true;
  }();
  (void)table;
  const auto part = fuzz::parts(fuzz::text_of(data, size), 3);
  const auto file = fuzz::folder() / "c.json";
  fuzz::put(file, part[0]);
  fuzz::put(fuzz::folder() / "base.json", part[1]);
  ConfigOptions options;
  std::istringstream lines{std::string(part[2])};
  for (std::string line; std::getline(lines, line);) options.sets.push_back(line);

  std::optional<Config> config;
  fuzz::typed([&] { config = load_config(file, options); });
  if (!config) return 0;
  const Config again = resolve_config(config->json, "again");
  if (again.json != config->json) fuzz::found("a resolved config resolves to another", again.json.dump());
  int64_t parameters = 0;
  for (const LayerRow& row : config->layers) {
    if (row.parameters > 100'000) return 0;
    parameters += row.parameters;
  }
  if (!config->facts || config->layers.empty() || parameters > 100'000) return 0;
  fuzz::typed([&] { plan_step(*config, 4); });
  fuzz::typed([&] {
    const auto model = build_model(config->json["model"]);
    build_optimizer(config->json["optimizer"], *model);
    build_loss(config->json["loss"]);
  });
  return 0;
}
