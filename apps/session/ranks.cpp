// SPDX-License-Identifier: Apache-2.0
#include "apps/session/ranks.h"

#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <set>
#include <utility>
#include <vector>

#include "framework/backend/backend.h"
#include "framework/comm/device_group.h"
#include "framework/comm/launcher.h"
#include "framework/ops/ops.h"

namespace halfstep::app {
namespace {

// Returns "train.epochs (3, 4 on rank 0)".
std::string difference(const Json& own, const Json& first) {
  std::string out;
  for (const auto& op : nlohmann::json::diff(nlohmann::json(first), nlohmann::json(own))) {
    const nlohmann::json::json_pointer at(op["path"].get<std::string>());
    const auto shown = [&](const Json& all) {
      const nlohmann::json plain(all);
      return plain.contains(at) ? plain[at].dump() : "nothing";
    };
    std::string path = op["path"].get<std::string>().substr(1);
    std::replace(path.begin(), path.end(), '/', '.');
    out += (out.empty() ? "" : ", ") + path + " (" + shown(own) + ", " + shown(first) + " on rank 0)";
  }
  return out;
}

void check_same(ProcessGroup& group, const Json& own) {
  const std::vector<std::string> all = group.gather(own.dump());
  const Json first = Json::parse(all[0]);
  std::string differing;
  for (size_t r = 1; r < all.size(); ++r) {
    if (all[r] != all[0]) differing += joined("\n  rank ", r, ": ", difference(Json::parse(all[r]), first));
  }
  check<ConfigError>(differing.empty(), "distributed", "all ranks must be started with one config and the same options", differing);
}

// Divides a machine's cores among its ranks, unless the number of threads is given: if each took all, they would be slower than
// one.
void share_cores(ProcessGroup& group, const std::optional<int>& threads) {
  const std::vector<std::string> hosts = group.gather(host_name());  // on all ranks, also on those that have `threads`
  if (threads || std::getenv("OMP_NUM_THREADS")) return;
  const auto ranks_here = int(std::count(hosts.begin(), hosts.end(), host_name()));
  set_num_threads(std::max(1, num_threads() / ranks_here));
}

}  // namespace

std::string host_name() {
  char name[256] = "";
  gethostname(name, sizeof name - 1);
  return name;
}

void check_for_ranks(const Config& config) {
  check<ConfigError>(config.data.train["type"] != "Text" || config.json["data"]["loader"]["stateful"] != true,
                     "data.loader.stateful", "trains in one process: each stream continues where its last batch ended",
                     Help{"start it as one process, without a launcher"});
}

std::unique_ptr<ProcessGroup> join_ranks(const Config& config, const std::optional<int>& threads, const std::string& options) {
  if (detect_launch().size == 1) return nullptr;
  check_for_ranks(config);
  const GroupOptions options_of_group{.timeout_s = config.distributed.timeout_s,
                                      .library_sums = config.distributed.sum == "library",
                                      .max_blocks = int(config.distributed.max_blocks)};
  auto group = open_process_group(options_of_group);
  check_same(*group, {{"config", config.json}, {"options", options}});
  share_cores(*group, threads);
  return for_device(std::move(group), config.device, config.distributed.backend, options_of_group);
}

void share_states(Optimizer& optimizer, const Config& config, ProcessGroup& group) {
  if (!config.distributed.shard_optimizer) return;
  check<ConfigError>(!optimizer.needs_closure(), "distributed.shard_optimizer", "ranks cannot share the states of ",
                     optimizer.describe(), Help{"leave the key out, or choose another optimizer"});
  optimizer.shard(group, {.stage_mb = config.distributed.bucket_mb});
}

Json value_of_rank0(ProcessGroup& group, const Json& own) {
  return Json::parse(group.gather(group.rank() == 0 ? own.dump() : std::string("null"))[0]);
}

Tensor gather_rows(ProcessGroup& group, const Tensor& own) {
  Json about;
  if (own.defined()) {
    about = {{"dtype", int(own.dtype())}, {"shape", Json::array()}};
    for (const int64_t size : own.shape()) about["shape"].push_back(size);
  }
  std::vector<Shape> shapes;
  DType dtype = DType::f32;
  int64_t most_numbers = 0;
  for (const std::string& text : group.gather(about.dump())) {
    const Json of_rank = Json::parse(text);
    Shape shape;
    if (!of_rank.is_null()) {
      dtype = DType(of_rank["dtype"].get<int>());
      for (const Json& size : of_rank["shape"]) shape.push_back(size.get<int64_t>());
      most_numbers = std::max(most_numbers, numel(shape));
    }
    shapes.push_back(shape);
  }
  const TensorOptions like{.dtype = dtype, .device = Device::cpu};
  const Tensor from = empty({most_numbers}, like), to = empty({most_numbers * group.size()}, like);
  if (own.defined()) from.narrow(0, 0, own.numel()).copy_(own.detach().to(Device::cpu).reshape({own.numel()}));
  group.wait(group.all_gather(from, to));
  Tensors rows;
  for (size_t r = 0; r < shapes.size(); ++r) {
    if (shapes[r].empty()) continue;
    rows.push_back(to.narrow(0, int64_t(r) * most_numbers, numel(shapes[r])).reshape(shapes[r]));
  }
  return cat(rows, 0);
}

std::string describe_ranks(ProcessGroup& group) {
  const std::vector<std::string> hosts = group.gather(host_name());
  const size_t machines = std::set<std::string>(hosts.begin(), hosts.end()).size();
  return joined(group.size(), " ranks on ", machines, machines == 1 ? " machine (" : " machines (", group.describe(), "), ",
                num_threads(), num_threads() == 1 ? " thread each" : " threads each");
}

}  // namespace halfstep::app
