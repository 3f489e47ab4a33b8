// SPDX-License-Identifier: Apache-2.0
// How fast batches get to a GPU: Backend::copy_from_host, an upload lane filled by 1, 2, 4 and 8 threads (as the workers of a
// DataLoader do), and how much the lane's copies slow down products that run at the same time.
//   bench_uploads [--mib 64] [--rounds 20] [--width 4096]
// Prints one JSON object; rates are medians in GB/s, times in milliseconds.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <string_view>
#include <thread>
#include <vector>

#include "framework/backend/backend.h"
#include "framework/base/check.h"
#include "framework/ops/ops.h"

using namespace halfstep;

namespace {

struct Options {
  int64_t mib = 64, rounds = 20, width = 4096;
};

bool parse(int argc, char** argv, Options& o) {
  for (int i = 1; i < argc; ++i) {
    const std::string_view name = argv[i];
    int64_t* value = name == "--mib" ? &o.mib : name == "--rounds" ? &o.rounds : name == "--width" ? &o.width : nullptr;
    if (!value || ++i == argc) return false;
    *value = std::strtoll(argv[i], nullptr, 10);
    if (*value < 1) return false;
  }
  return true;
}

// Seconds that f takes from an idle device to an idle device: the median.
double seconds(Backend& gpu, int64_t rounds, const std::function<void()>& f) {
  std::vector<double> times;
  for (int64_t round = -2; round < rounds; ++round) {
    gpu.synchronize();
    const auto start = std::chrono::steady_clock::now();
    f();
    gpu.synchronize();
    if (round >= 0) times.push_back(std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count());
  }
  std::nth_element(times.begin(), times.begin() + long(times.size() / 2), times.end());
  return times[times.size() / 2];
}

void measure(const Options& o) {
  Backend& gpu = backend_for(Device::cuda);
  const size_t bytes = size_t(o.mib) << 20;
  std::vector<char> host(bytes, 1), other(bytes);
  const Tensor there = Tensor::empty({int64_t(bytes)}, {.dtype = DType::u8, .device = Device::cuda});
  const auto rate = [&](double s) { return double(bytes) / s / 1e9; };
  std::printf("{\"device\": \"%s\", \"mib\": %lld", gpu.describe().c_str(), static_cast<long long>(o.mib));
  std::printf(", \"memcpy_gb_s\": %.2f", rate(seconds(gpu, o.rounds, [&] { std::memcpy(other.data(), host.data(), bytes); })));
  std::printf(", \"copy_from_host_gb_s\": %.2f",
              rate(seconds(gpu, o.rounds, [&] { gpu.copy_from_host(host.data(), there.data_ptr(), bytes); })));

  const std::unique_ptr<UploadLane> lane = gpu.open_upload_lane();
  check<DeviceError>(lane != nullptr, "bench_uploads", gpu.describe(), " has no upload lane");
  const auto upload = [&](size_t threads) {
    std::vector<uint64_t> copies(threads);
    std::vector<std::thread> team;
    for (size_t t = 0; t < threads; ++t) {
      team.emplace_back([&, t] {
        const size_t begin = bytes * t / threads, end = bytes * (t + 1) / threads;
        copies[t] = lane->send(host.data() + begin, static_cast<char*>(there.data_ptr()) + begin, end - begin);
      });
    }
    for (std::thread& t : team) t.join();
    for (const uint64_t copy : copies) lane->receive(copy);
  };
  for (const size_t threads : {1, 2, 4, 8})
    std::printf(", \"lane_%zu_threads_gb_s\": %.2f", threads, rate(seconds(gpu, o.rounds, [&] { upload(threads); })));

  // As many products as take about as long as the copies, alone and beside them.
  const Tensor a = randn({o.width, o.width}, {.dtype = DType::f16, .device = Device::cuda});
  const Tensor c = Tensor::empty({o.width, o.width}, {.dtype = DType::f16, .device = Device::cuda});
  const double copies = seconds(gpu, o.rounds, [&] { upload(4); });
  const double one = seconds(gpu, o.rounds, [&] { gpu.gemm({.a = a.view(), .b = a.view(), .c = c.view()}); });
  const int64_t count = std::max<int64_t>(1, int64_t(copies / one));
  const auto products = [&] {
    for (int64_t i = 0; i < count; ++i) gpu.gemm({.a = a.view(), .b = a.view(), .c = c.view()});
  };
  const double alone = seconds(gpu, o.rounds, products);
  const double beside = seconds(gpu, o.rounds, [&] {
    std::thread loader([&] { upload(4); });
    products();
    loader.join();
  });
  std::printf(", \"copies_ms\": %.3f, \"products_ms\": %.3f, \"both_ms\": %.3f}\n", 1e3 * copies, 1e3 * alone, 1e3 * beside);
}

}  // namespace

int main(int argc, char** argv) {
  Options o;
  if (!parse(argc, argv, o)) {
    std::fprintf(stderr, "usage: bench_uploads [--mib N] [--rounds N] [--width N]\n");
    return 2;
  }
  try {
    measure(o);
  } catch (const Error& e) {
    std::fprintf(stderr, "error: %s\n", e.what());
    return 1;
  }
  return 0;
}
