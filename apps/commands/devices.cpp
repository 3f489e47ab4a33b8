// SPDX-License-Identifier: Apache-2.0
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <iostream>
#include <memory>

#include "apps/commands/commands.h"
#include "apps/commands/products.h"
#include "apps/examine/bench_mlp.h"
#include "apps/exit_codes.h"
#include "apps/schema/json.h"
#include "apps/session/ranks.h"
#include "framework/backend/backend.h"
#include "framework/base/text_stream.h"
#include "framework/comm/device_group.h"
#include "framework/comm/plugin.h"

namespace halfstep::app {
namespace {

// Describes the ranks that there are, or could be. Null on all ranks except the first.
Json ranks_here() {
  const auto group = open_process_group({.timeout_s = 60});
  if (!group) {
    const std::optional<std::string> mpi = plugin_fault(TransportKind::mpi), gloo = plugin_fault(TransportKind::gloo);
    if (mpi && gloo)
      return {
          {"available", false},
          {"description", "none: no MPI (" + *mpi + ") and no Gloo (" + *gloo + "); scripts/setup.sh --with mpi or --with gloo"}};
    return {{"available", true},
            {"description", joined("this process is alone; ", mpi ? "torchrun --no-python --nproc-per-node" : "mpirun -np",
                                   " N halfstep train CONFIG starts N")}};
  }
  Json list = Json::array();
  const Json mine = {{"host", host_name()}, {"process", getpid()}, {"threads", num_threads()}};
  for (const std::string& text : group->gather(mine.dump())) {
    Json rank = Json::parse(text);
    rank["text"] = joined("rank ", list.size(), "   ", rank["host"].get<std::string>(), ", process ", rank["process"].get<int>(),
                          ", ", rank["threads"].get<int>(), rank["threads"] == 1 ? " thread, " : " threads, ", group->describe());
    list.push_back(rank);
  }
  const std::string library = describe_library(*group, Device::cuda);
  const bool first = writes(group.get());
  group->close();
  return first ? Json{{"available", true}, {"list", list}, {"gpus", library}} : Json();
}

int devices(bool json) {
  Json all = Json::array();
  for (const Device d : {Device::cpu, Device::cuda}) {
    TextWriter name;
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
    if (!json && detect_launch().rank == 0)
      std::cout << name.str() << (name.str().size() < 4 ? "     " : "  ") << entry["description"].get<std::string>() << '\n';
  }
  const Json ranks = ranks_here();
  if (ranks.is_null()) return kDone;  // not the first rank
  if (json) {
    std::cout << Json{{"devices", all}, {"ranks", ranks}}.dump() << '\n';
    return kDone;
  }
  if (ranks.contains("list")) {
    for (const Json& rank : ranks["list"]) std::cout << rank["text"].get<std::string>() << '\n';
    std::cout << "between GPUs  " << ranks["gpus"].get<std::string>() << '\n';
  } else {
    std::cout << "ranks    " << ranks["description"].get<std::string>() << '\n';
  }
  return kDone;
}

struct DevicesArguments {
  bool json = false, products = false;
  int64_t batch = 4096, width = 4096;
};

// Shows how the GPU computes the products of a training step in each precision, by a few steps of `bench mlp`.
int products(const DevicesArguments& o) {
  BenchOptions bench{.batch = o.batch, .width = o.width, .layers = 3, .batches = 1, .epochs = 2, .device = Device::cuda};
  bench.graph = GraphMode::off;
  const std::string where = backend_for(Device::cuda).describe();
  if (!o.json)
    std::cout << where << "\na step of 3 x Linear(" << o.width << ", " << o.width << ") with ReLU, batch " << o.batch << '\n';
  Json list = Json::array();
  for (const Precision precision : {Precision::float32, Precision::tf32, Precision::bfloat16, Precision::float16}) {
    Json row{{"arm", name(precision)}};
    if (!o.json) std::cout << '\n' << name(precision) << '\n';
    bench.arms = {precision};
    const BenchArm arm = bench_mlp(bench).front();
    if (arm.refused.empty()) {
      row["products"] = products_json(arm.products);
      row["plain_products"] = plain_products(arm.products);
      if (!o.json) print_products(std::cout, arm.products);
    } else {
      row["error"] = arm.refused;
      if (!o.json) std::cout << arm.refused << '\n';
    }
    list.push_back(row);
  }
  if (o.json)
    std::cout << Json{{"device", "cuda"}, {"description", where}, {"batch", o.batch}, {"width", o.width}, {"arms", list}}.dump()
              << '\n';
  return kDone;
}

}  // namespace

void add_devices(CLI::App& program, Action& chosen) {
  auto o = std::make_shared<DevicesArguments>();
  CLI::App* c = program.add_subcommand("devices", "List the devices that halfstep can compute on");
  c->add_flag("--json", o->json, "one JSON object");
  CLI::Option* products_flag = c->add_flag("--products", o->products, "how the GPU does the matrix products of a training step");
  const auto size = [&](const char* flag, int64_t& value, const char* doc) {
    c->add_option(flag, value, doc)->check(CLI::Range(int64_t(1), int64_t(1) << 20))->needs(products_flag)->capture_default_str();
  };
  size("--batch", o->batch, "samples of that step");
  size("--width", o->width, "width of its layers");
  c->callback([o, &chosen] { chosen = [o] { return o->products ? products(*o) : devices(o->json); }; });
}

}  // namespace halfstep::app
