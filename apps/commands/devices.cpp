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
  const Json own = {{"host", host_name()}, {"process", getpid()}, {"threads", num_threads()}};
  for (const std::string& text : group->gather(own.dump())) {
    Json rank = Json::parse(text);
    rank["text"] = joined("rank ", list.size(), "   ", rank["host"].get<std::string>(), ", process ", rank["process"].get<int>(),
                          ", ", rank["threads"].get<int>(), rank["threads"] == 1 ? " thread, " : " threads, ", group->describe());
    list.push_back(rank);
  }
  const std::string library = describe_library(*group, Device::cuda);
  const bool is_first = writes(group.get());
  group->close();
  return is_first ? Json{{"available", true}, {"list", list}, {"gpus", library}} : Json();
}

int list_devices(bool json) {
  Json list = Json::array();
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
    list.push_back(entry);
    if (!json && detect_launch().rank == 0)
      std::cout << name.str() << (name.str().size() < 4 ? "     " : "  ") << entry["description"].get<std::string>() << '\n';
  }
  const Json ranks = ranks_here();
  if (ranks.is_null()) return kDone;  // not the first rank
  if (json) {
    std::cout << Json{{"devices", list}, {"ranks", ranks}}.dump() << '\n';
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
int show_products(const DevicesArguments& arguments) {
  BenchOptions bench{
      .batch = arguments.batch, .width = arguments.width, .layers = 3, .batches = 1, .epochs = 2, .device = Device::cuda};
  bench.graph = GraphMode::off;
  const std::string where = backend_for(Device::cuda).describe();
  if (!arguments.json)
    std::cout << where << "\na step of 3 x Linear(" << arguments.width << ", " << arguments.width << ") with ReLU, batch "
              << arguments.batch << '\n';
  Json list = Json::array();
  for (const Precision precision : {Precision::float32, Precision::tf32, Precision::bfloat16, Precision::float16}) {
    Json row{{"arm", name(precision)}};
    if (!arguments.json) std::cout << '\n' << name(precision) << '\n';
    bench.arms = {precision};
    const BenchArm arm = bench_mlp(bench).front();
    if (arm.refused.empty()) {
      row["products"] = products_json(arm.products);
      row["plain_products"] = plain_products(arm.products);
      if (!arguments.json) print_products(std::cout, arm.products);
    } else {
      row["error"] = arm.refused;
      if (!arguments.json) std::cout << arm.refused << '\n';
    }
    list.push_back(row);
  }
  if (arguments.json)
    std::cout
        << Json{{"device", "cuda"}, {"description", where}, {"batch", arguments.batch}, {"width", arguments.width}, {"arms", list}}
               .dump()
        << '\n';
  return kDone;
}

}  // namespace

void add_devices(CLI::App& program, Action& chosen) {
  auto arguments = std::make_shared<DevicesArguments>();
  CLI::App* command = program.add_subcommand("devices", "List the devices that halfstep can compute on");
  command->add_flag("--json", arguments->json, "one JSON object");
  CLI::Option* products_flag =
      command->add_flag("--products", arguments->products, "how the GPU does the matrix products of a training step");
  const auto size = [&](const char* flag, int64_t& value, const char* doc) {
    command->add_option(flag, value, doc)
        ->check(CLI::Range(int64_t(1), int64_t(1) << 20))
        ->needs(products_flag)
        ->capture_default_str();
  };
  size("--batch", arguments->batch, "samples of that step");
  size("--width", arguments->width, "width of its layers");
  command->callback([arguments, &chosen] {
    chosen = [arguments] { return arguments->products ? show_products(*arguments) : list_devices(arguments->json); };
  });
}

}  // namespace halfstep::app
