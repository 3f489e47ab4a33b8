// SPDX-License-Identifier: Apache-2.0
#include "apps/sweep/search_space.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <map>

using namespace halfstep::app;

namespace {

std::vector<Json> grid(const char* given) {
  Issues issues;
  const std::vector<Json> out = grid_values(Json::parse(given), "k", issues);
  CAPTURE(given);
  for (const Issue& issue : issues.list()) FAIL_CHECK(issue.message);
  return out;
}

// The first error, with its place.
std::string fault(const char* given, bool drawn) {
  Issues issues;
  if (drawn)
    check_drawable(Json::parse(given), "k", issues);
  else
    CHECK(grid_values(Json::parse(given), "k", issues).empty());
  return issues.list().empty() ? "" : issues.list()[0].path + ": " + issues.list()[0].message;
}

std::vector<Json> draws(const char* given, int count, uint64_t seed = 0, const char* key = "k") {
  Issues issues;
  const Json values = Json::parse(given);
  check_drawable(values, "k", issues);
  CHECK(issues.errors() == 0);
  std::vector<Json> out;
  for (int i = 0; i < count; ++i) out.push_back(drawn_value(values, key, seed, i));
  return out;
}

std::string text(const std::vector<Json>& values) { return Json(values).dump(); }

}  // namespace

TEST_CASE("sweep: the values of lists and ranges in a grid") {
  CHECK(text(grid(R"([0.1, "SGD", null, {"type": "Adam"}])")) == R"([0.1,"SGD",null,{"type":"Adam"}])");
  CHECK(text(grid(R"({"from": 0.1, "to": 0.4, "step": 0.1})")) == "[0.1,0.2,0.3,0.4]");
  CHECK(text(grid(R"({"from": 0.1, "to": 0.39, "step": 0.1})")) == "[0.1,0.2,0.3]");
  CHECK(text(grid(R"({"from": 1e-4, "to": 0.1, "scale": "log", "count": 4})")) == "[0.0001,0.001,0.01,0.1]");
  CHECK(text(grid(R"({"from": 0.0, "to": 1, "count": 5})")) == "[0.0,0.25,0.5,0.75,1.0]");
  // Whole numbers, as both ends are.
  CHECK(text(grid(R"({"from": 1, "to": 4})")) == "[1,2,3,4]");
  CHECK(text(grid(R"({"from": 16, "to": 70, "step": 16})")) == "[16,32,48,64]");
  CHECK(text(grid(R"({"from": 16, "to": 256, "scale": "log", "count": 5})")) == "[16,32,64,128,256]");
  CHECK(text(grid(R"({"from": 1, "to": 3, "count": 9})")) == "[1,2,3]");  // each once
}

TEST_CASE("sweep: what is wrong with the values of a key") {
  const char* const list =
      "k: must be a list of values, or a range such as {\"from\": 1e-4, \"to\": 0.1, \"scale\": \"log\"}, got ";
  CHECK(fault("0.1", false) == std::string(list) + "0.1");
  CHECK(fault(R"({"lr": [0.1]})", true).starts_with(std::string(list) + "an object without \"from\""));
  CHECK(fault("[]", true) == "k: must have at least one value");
  CHECK(fault(R"({"from": 1})", true) == "k.to: is missing: the largest value");
  CHECK(fault(R"({"from": 1, "to": 1})", true) == "k.to: must be larger than \"from\"");
  CHECK(fault(R"({"from": 0, "to": 1, "scale": "log", "count": 3})", false) == "k.from: must be > 0 with \"scale\": \"log\"");
  CHECK(fault(R"({"from": 1, "to": 9, "scale": "log", "step": 2})", false).starts_with("k.step: is for linear ranges"));
  CHECK(fault(R"({"from": 1, "to": 9, "stp": 2})", false) == "k.stp: unknown key of range; did you mean \"step\"?");
  CHECK(fault(R"({"from": 0.1, "to": 9})", false) == "k: a range of a grid needs either \"step\" or \"count\"");
  CHECK(fault(R"({"from": 0.1, "to": 9, "step": 1, "count": 3})", false) ==
        "k: a range of a grid needs either \"step\" or \"count\"");
  CHECK(fault(R"({"from": 0.1, "to": 9, "scale": "log"})", false) == "k: a range of a grid needs \"count\"");
  CHECK(fault(R"({"from": 0.1, "to": 9, "step": 1e-6})", false) == "k.step: makes more than 9999 values");
  CHECK(fault(R"({"from": 0.1, "to": 9, "step": 1e-300})", true) == "k.step: is too small for this range");
  CHECK(fault(R"({"from": 0, "to": 9007199254740994})", true) == "k: whole numbers of a range must be at most 2^53");
  CHECK(fault(R"({"from": 0.1, "to": 9, "count": 3})", true) == "k.count: is for grids; \"draws\" is the number of draws");
}

TEST_CASE("sweep: draws depend on seed, key and number only, stay in their range, and reach all of it evenly") {
  const char* const log = R"({"from": 1e-4, "to": 0.1, "scale": "log"})";
  const std::vector<Json> some = draws(log, 2000);
  CHECK(text(draws(log, 3)) == "[0.0750548,0.00752848,0.000309145]");  // on every machine
  CHECK(text(draws(log, 2)) == text({some[0], some[1]}));
  CHECK(draws(log, 5, 1) != draws(log, 5));
  CHECK(draws(log, 5, 0, "other") != draws(log, 5));
  int small = 0;
  for (const Json& v : some) {
    CHECK(v.get<double>() >= 1e-4);
    CHECK(v.get<double>() <= 0.1);
    small += v.get<double>() < std::sqrt(1e-4 * 0.1);
  }
  CHECK(small > 900);
  CHECK(small < 1100);

  const auto counts = [](const std::vector<Json>& values) {
    std::map<std::string, int> out;
    for (const Json& v : values) ++out[v.dump()];
    return out;
  };
  for (const char* given : {R"(["a", "b", "c", "d"])", R"({"from": 1, "to": 4})", R"({"from": 0.1, "to": 0.4, "step": 0.1})"}) {
    CAPTURE(given);
    const auto found = counts(draws(given, 4000));
    CHECK(found.size() == 4);
    for (const auto& each : found) {
      CAPTURE(each.first);
      CHECK(each.second > 850);
      CHECK(each.second < 1150);
    }
  }
  CHECK(counts(draws(R"({"from": 1, "to": 8, "scale": "log"})", 4000)).size() == 8);
}
