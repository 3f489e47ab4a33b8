// SPDX-License-Identifier: Apache-2.0
// The registry against PyTorch's autocast lists (autocast_lists.json): the same names under the same policies.
#include <doctest/doctest.h>

#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <string>

#include "framework/ops/core/op_policy.h"
#include "tests/support/source_dir.h"

using namespace halfstep;
using Json = nlohmann::json;

namespace {

// name -> policy, of one group of the file.
std::map<std::string, std::string> names(const char* group) {
  std::ifstream file(halfstep_source_dir() + "/tests/ops/autocast_lists.json");
  const Json lists = Json::parse(file).at(group);
  std::map<std::string, std::string> out;
  for (const auto& [policy, list] : lists.items())
    for (const Json& name : list) out[name] = policy;
  return out;
}

}  // namespace

TEST_CASE("what PyTorch's autocast lists name is there, with their policies") {
  std::string missing;
  const auto check_policy = [](const Op& op, const std::string& policy) {
    CHECK_MESSAGE(list_policy(op) == policy, op.name, " is on the list ", policy, ", but registered as ", list_policy(op));
  };
  for (const auto& [name, policy] : names("required")) {
    const Op* op = find_op(name);
    if (!op)
      missing += " " + name;
    else
      check_policy(*op, policy);
  }
  CHECK_MESSAGE(missing.empty(), "not registered:", missing);
  for (const auto& [name, policy] : names("optional"))
    if (const Op* op = find_op(name)) check_policy(*op, policy);
  for (const auto& [name, policy] : names("cpu_only"))
    if (const Op* op = find_op(name); op && op->alias_of.empty() && list_policy(*op) != "keep") check_policy(*op, policy);
}

TEST_CASE("no op has a policy that the lists do not give it") {
  std::map<std::string, std::string> all = names("required");
  for (const char* group : {"optional", "cpu_only", "own"}) all.merge(names(group));
  for (const Op& op : all_ops()) {
    const std::string_view policy = list_policy(op);
    if (policy == "keep" || policy == "builtin_promote" || all.contains(std::string(op.name)) ||
        all.contains(std::string(op.alias_of)))
      continue;
    FAIL_CHECK(op.name, " is ", policy, ", but on no list: a name of our own belongs under \"own\" in autocast_lists.json");
  }
}
