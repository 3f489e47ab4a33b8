// SPDX-License-Identifier: Apache-2.0
// The configs of docs/your_data.md: each is valid for such data, trains, and its model answers for new files.
#include "tests/apps/your_data.h"

#include <doctest/doctest.h>

#include <map>

#include "tests/apps/support.h"
#include "tests/support/source_dir.h"

using namespace halfstep::app;
using namespace halfstep::app::testing;

namespace {

// The blocks of JSON, by the name in each.
std::map<std::string, std::string> configs_of(const std::string& page) {
  std::map<std::string, std::string> out;
  const std::string begin = "```json\n", name = "\"name\": \"";
  for (size_t at = page.find(begin); at != std::string::npos; at = page.find(begin, at)) {
    at += begin.size();
    const std::string block = page.substr(at, page.find("```", at) - at);
    const size_t from = block.find(name) + name.size();
    out[block.substr(from, block.find('"', from) - from)] = block;
  }
  return out;
}

}  // namespace

TEST_CASE("docs/your_data.md: every config trains, and its model is used") {
  const TempDir dir;
  write_data(dir);
  const auto configs = configs_of(read(fs::path(halfstep_source_dir()) / "docs/your_data.md"));
  const std::map<std::string, std::string> inputs = {{"houses", "data/houses.csv"}, {"reviews", "data/reviews.csv"},
                                                     {"pets", "data/pets/val"},     {"novel", ""},
                                                     {"demand", "data/sales.csv"},  {"signals", "data/val_x.npy"}};
  CHECK(configs.size() == inputs.size());
  for (const auto& row : inputs) {
    const std::string &name = row.first, &input = row.second;
    CAPTURE(name);
    REQUIRE(configs.contains(name));
    write(dir / (name + ".json"), configs.at(name));
    const Ran valid = run(dir, "validate " + name + ".json");
    CHECK_MESSAGE(valid.code == 0, valid.err);
    CHECK_MESSAGE(valid.err.find("warning") == std::string::npos, valid.err);
    const Ran trained = run(dir, "train " + name + ".json --quiet --set train.epochs=1");
    REQUIRE_MESSAGE(trained.code == 0, trained.err);
    if (input.empty()) continue;
    const Ran answered = run(dir, "predict runs/" + name + ' ' + input);
    CHECK_MESSAGE(answered.code == 0, answered.err);
    CHECK(!answered.out.empty());
  }
}
