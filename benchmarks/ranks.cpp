// SPDX-License-Identifier: Apache-2.0
// Times training steps of several ranks, for compare_torch_ddp.py and scaling_model.py; also of one process:
//   mpirun -np 2 ranks mlp 512 1 3            net, samples of a rank, threads of a rank, seconds
//   {"ms": 12.3, "wait_ms": 0.5, "bucket_bytes": [...], "ranks": 2}
// Nets: mlp, the one of `halfstep bench mlp` (3 x Linear(1024, 1024)), and lenet. float32, SGD, mean of the squared outputs. ms:
// the median step of rank 0, wait_ms: the part of it spent waiting for others. With "none" for the net it times sums of the sizes
// that follow:
//   mpirun -np 2 ranks none 4096 1048576      {"4096": 0.02, ...}   bytes, milliseconds
#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <iostream>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "halfstep.h"

using namespace halfstep;

namespace {

using Clock = std::chrono::steady_clock;
double ms_since(Clock::time_point t) { return std::chrono::duration<double, std::milli>(Clock::now() - t).count(); }

double median(std::vector<double> v) {
  std::nth_element(v.begin(), v.begin() + std::ptrdiff_t(v.size() / 2), v.end());
  return v[v.size() / 2];
}

std::shared_ptr<Sequential> make_net(const std::string& name) {
  const auto linear = [](int64_t in, int64_t out) { return std::make_shared<Linear>(in, out); };
  if (name == "mlp") {
    return std::make_shared<Sequential>(linear(1024, 1024), std::make_shared<ReLU>(), linear(1024, 1024), std::make_shared<ReLU>(),
                                        linear(1024, 1024));
  }
  check<ValueError>(name == "lenet", "ranks", "the nets are mlp and lenet, got ", name);
  return std::make_shared<Sequential>(std::make_shared<Conv2d>(1, 6, 5, ConvLayerOptions{.padding = 2}), std::make_shared<ReLU>(),
                                      std::make_shared<MaxPool2d>(2), std::make_shared<Conv2d>(6, 16, 5), std::make_shared<ReLU>(),
                                      std::make_shared<MaxPool2d>(2), std::make_shared<Flatten>(), linear(400, 120),
                                      std::make_shared<ReLU>(), linear(120, 84), std::make_shared<ReLU>(), linear(84, 10));
}

nlohmann::json time_steps(ProcessGroup* group, const std::string& name, int64_t batch, double seconds) {
  manual_seed(0);
  const auto net = make_net(name);
  MSELoss loss;
  SGD optimizer(net->parameters(), {.lr = 1e-3});
  GradScaler scaler({.enabled = false});
  TrainStep step(*net, loss, optimizer, scaler, nullptr, {.group = group});
  Shape shape = name == "mlp" ? Shape{batch, 1024} : Shape{batch, 1, 28, 28};
  const Tensor x = randn(shape), y = zeros({batch, name == "mlp" ? 1024 : 10});
  for (int i = 0; i < 5; ++i) step(x, y);
  std::vector<double> times, waits;
  const auto begin = Clock::now();
  for (bool on = true; on;) {
    if (times.size() % 16 == 0) {  // all ranks end together
      on = ms_since(begin) < 1000 * seconds;
      if (group) on = group->gather(std::vector<double>{double(on)})[0][0] != 0;
    }
    const double waited = group ? group->wait_seconds() : 0;
    const auto start = Clock::now();
    step(x, y);
    times.push_back(ms_since(start));
    waits.push_back(1000 * ((group ? group->wait_seconds() : 0) - waited));
  }
  nlohmann::json out = {
      {"ms", median(times)}, {"wait_ms", median(waits)}, {"steps", times.size()}, {"ranks", group ? group->size() : 1}};
  if (group) out["bucket_bytes"] = GradientReducer(net->parameters(), *group).bucket_bytes();
  return out;
}

nlohmann::json time_sums(ProcessGroup& group, const std::vector<int64_t>& sizes) {
  nlohmann::json out;
  for (const int64_t bytes : sizes) {
    const Tensor t = zeros({bytes / 4});
    std::vector<double> times;
    for (int i = 0; i < (bytes > 1 << 18 ? 15 : 200); ++i) {
      group.wait(group.barrier());
      const auto start = Clock::now();
      group.wait(group.all_reduce({t}));
      times.push_back(ms_since(start));
    }
    out[std::to_string(bytes)] = median(times);
  }
  return out;
}

}  // namespace

int main(int argc, char** argv) {
  const std::vector<std::string> a(argv + 1, argv + argc);
  check<ValueError>(a.size() >= 2 && (a[0] == "none" || a.size() == 4), "ranks",
                    "takes: net batch threads seconds, or: none bytes...");
  const auto group = open_process_group();
  nlohmann::json out;
  if (a[0] == "none") {
    check<ValueError>(group != nullptr, "ranks", "sums are timed on ranks: start it with mpirun, or with RANK and WORLD_SIZE");
    std::vector<int64_t> sizes;
    for (size_t i = 1; i < a.size(); ++i) sizes.push_back(std::stoll(a[i]));
    out = time_sums(*group, sizes);
  } else {
    set_num_threads(std::stoi(a[2]));
    out = time_steps(group.get(), a[0], std::stoll(a[1]), std::stod(a[3]));
  }
  if (!group || group->rank() == 0) std::cout << out << std::endl;
  if (group) group->close();
  return 0;
}
