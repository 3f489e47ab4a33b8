#include <CLI/CLI.hpp>
#include <iostream>
#include <memory>
#include <sstream>

#include "apps/commands/commands.h"
#include "apps/config/json.h"
#include "apps/exit_codes.h"
#include "framework/backend/backend.h"

namespace halfstep::app {
namespace {

int devices(bool json) {
  Json all = Json::array();
  for (const Device d : {Device::cpu, Device::cuda}) {
    std::ostringstream name;
    name << d;
    Json entry = {{"device", name.str()}};
    try {
      entry["available"] = true;
      entry["description"] = backend_for(d).describe();
      if (d.is_cpu()) entry["threads"] = num_threads();
    } catch (const Error& e) {
      entry["available"] = false;
      entry["description"] = e.what();
    }
    all.push_back(entry);
    if (!json)
      std::cout << name.str() << (name.str().size() < 4 ? "     " : "  ") << entry["description"].get<std::string>() << '\n';
  }
  if (json) std::cout << Json{{"devices", all}}.dump() << '\n';
  return kDone;
}

}  // namespace

void add_devices(CLI::App& program, Action& chosen) {
  auto json = std::make_shared<bool>(false);
  CLI::App* c = program.add_subcommand("devices", "List what halfstep can compute on");
  c->add_flag("--json", *json, "one JSON object");
  c->callback([json, &chosen] { chosen = [json] { return devices(*json); }; });
}

}  // namespace halfstep::app
