// SPDX-License-Identifier: Apache-2.0
#include <CLI/CLI.hpp>
#include <algorithm>
#include <iomanip>
#include <iostream>
#include <memory>

#include "apps/commands/commands.h"
#include "apps/exit_codes.h"
#include "apps/schema/json.h"
#include "framework/ops/core/op_policy.h"

namespace halfstep::app {
namespace {

Json op_json(const Op& op) {
  Json dtypes = Json::array();
  for (const DType t : dtypes_of(op)) dtypes.push_back(name(t));
  Json out = {
      {"name", op.name}, {"policy", list_policy(op)}, {"dtypes", dtypes}, {"differentiable", op.differentiable}, {"doc", op.doc}};
  if (!op.alias_of.empty()) out["alias_of"] = op.alias_of;
  return out;
}

const char* dtypes_text(DTypeSet dtypes) {
  constexpr const char* texts[] = {"floating", "numbers", "any", "bits"};
  return texts[size_t(dtypes)];
}

int list_ops(bool json) {
  Json list = Json::array();
  size_t width = 0;
  for (const Op& op : all_ops()) {
    list.push_back(op_json(op));
    width = std::max(width, op.name.size());
  }
  if (json) {
    std::cout << Json{{"ops", list}}.dump() << '\n';
    return kDone;
  }
  std::cout << std::left << std::setw(int(width)) << "op"
            << "  policy           dtypes    gradient  doc\n";
  for (const Op& op : all_ops()) {
    std::cout << std::setw(int(width)) << op.name << "  " << std::setw(15) << list_policy(op) << "  " << std::setw(8)
              << dtypes_text(op.dtypes) << "  " << std::setw(8) << (op.differentiable ? "yes" : "no") << "  " << op.doc;
    if (!op.alias_of.empty()) std::cout << " (alias of " << op.alias_of << ')';
    std::cout << '\n';
  }
  return kDone;
}

}  // namespace

void add_ops(CLI::App& program, Action& chosen) {
  auto json = std::make_shared<bool>(false);
  CLI::App* command = program.add_subcommand("ops", "List all ops with autocast policy, dtypes and gradient");
  command->add_flag("--json", *json, "one JSON object");
  command->callback([json, &chosen] { chosen = [json] { return list_ops(*json); }; });
}

}  // namespace halfstep::app
