// SPDX-License-Identifier: Apache-2.0
// How fast the convolutions of ResNet-18 and of a depthwise network are, in either layout and each direction, beside what making
// their plans takes (cuDNN compiles some of its kernels when they are first used).
//   bench_convolutions [--device cuda] [--batch 64] [--rounds 20] [--shrink 1] [--first-layer]
// --first-layer: the first layer alone, with its 3 channels, with 4 and 8, and by space-to-depth: a 4 x 4 convolution on the 12
// channels of 2 x 2 pixels, padded to 16. In 16 bits and channels_last the first two are computed so on a GPU, with the copies that
// this takes; HALFSTEP_TUNE=1 with the log at level debug prints whether the other way is faster.
// HALFSTEP_CUDA_DNN=plain measures unfold and matrix products. Prints one JSON object; times are medians in milliseconds, each from
// an idle device to an idle device. --shrink divides channels and pixels, to try the program.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "framework/backend/backend.h"
#include "framework/base/check.h"
#include "framework/ops/ops.h"

using namespace halfstep;

namespace {

struct Options {
  Device device = Device::cuda;
  int64_t batch = 64, rounds = 20, shrink = 1;
  bool first_layer = false;
};

bool parse(int argc, char** argv, Options& o) {
  for (int i = 1; i < argc; ++i) {
    const std::string_view name = argv[i];
    if (name == "--device" && ++i < argc) {
      o.device = parse_device(argv[i]);
      continue;
    }
    if (name == "--first-layer") {
      o.first_layer = true;
      continue;
    }
    int64_t* value = name == "--batch" ? &o.batch : name == "--rounds" ? &o.rounds : name == "--shrink" ? &o.shrink : nullptr;
    if (!value || ++i == argc) return false;
    *value = std::strtoll(argv[i], nullptr, 10);
    if (*value < 1) return false;
  }
  return true;
}

struct Layer {
  const char* name;
  int64_t in, out, pixels, size, stride, groups, padding = -1;  // -1: as many pixels out as in, but for the stride
};
constexpr Layer kFirstLayers[] = {{"7x7/2, 3 channels", 3, 64, 224, 7, 2, 1},
                                  {"7x7/2, 4 channels", 4, 64, 224, 7, 2, 1},
                                  {"7x7/2, 8 channels", 8, 64, 224, 7, 2, 1},
                                  {"4x4 of 16", 16, 64, 115, 4, 1, 1, 0}};  // 112 pixels, 2 before and 1 behind
constexpr Layer kLayers[] = {{"7x7/2", 3, 64, 224, 7, 2, 1},          {"3x3 of 64", 64, 64, 56, 3, 1, 1},
                             {"3x3/2 of 64", 64, 128, 56, 3, 2, 1},   {"3x3 of 128", 128, 128, 28, 3, 1, 1},
                             {"1x1/2 of 128", 128, 256, 28, 1, 2, 1}, {"3x3 of 256", 256, 256, 14, 3, 1, 1},
                             {"3x3 of 512", 512, 512, 7, 3, 1, 1},    {"depthwise 3x3 of 128", 128, 128, 28, 3, 1, 128}};

// [N, C, H, W], with the channels innermost where that is asked for.
Tensor numbers(const Shape& s, DType dtype, bool channels_last, Device device) {
  const TensorOptions o{.dtype = dtype, .device = device};
  return channels_last ? randn({s[0], s[2], s[3], s[1]}, o).permute({0, 3, 1, 2}) : randn(s, o);
}

double milliseconds(Backend& backend, const std::function<void()>& f) {
  backend.synchronize();
  const auto start = std::chrono::steady_clock::now();
  f();
  backend.synchronize();
  return std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start).count();
}

void measure(Backend& backend, const Layer& l, DType dtype, bool channels_last, const Options& o, bool& any) {
  const auto less = [&](int64_t n) { return std::max<int64_t>(n / o.shrink, 1); };
  const int64_t groups = l.groups > 1 ? less(l.groups) : 1,
                in = l.groups > 1 ? groups
                     : l.in <= 16 ? l.in
                                  : less(l.in),
                out = l.groups > 1 ? groups : less(l.out), pixels = std::max<int64_t>(less(l.pixels), l.size),
                padding = l.padding < 0 ? l.size / 2 : l.padding,
                after = (pixels + 2 * padding - l.size) / l.stride + 1;
  const Window window{.dims = 2, .size = {l.size, l.size, 1}, .stride = {l.stride, l.stride, 1}, .padding = {padding, padding, 0}};
  const Tensor x = numbers({o.batch, in, pixels, pixels}, dtype, channels_last, o.device),
               w = numbers({out, in / groups, l.size, l.size}, dtype, channels_last, o.device),
               y = numbers({o.batch, out, after, after}, dtype, channels_last, o.device),
               bias = randn({out}, {.dtype = dtype, .device = o.device});
  const std::pair<const char*, std::function<void()>> calls[] = {
      {"forward", [&] { backend.conv(x.view(), w.view(), {}, window, groups, false, y.view()); }},
      {"forward with bias and ReLU", [&] { backend.conv(x.view(), w.view(), bias.view(), window, groups, true, y.view()); }},
      {"data", [&] { backend.conv_backward_data(y.view(), w.view(), {}, window, groups, x.view()); }},
      {"weight", [&] { backend.conv_backward_weight(x.view(), y.view(), window, groups, w.view(), {}); }}};
  for (const auto& [name, call] : calls) {
    const double first = milliseconds(backend, call);
    std::vector<double> times;
    milliseconds(backend, call);
    for (int64_t round = 0; round < o.rounds; ++round) times.push_back(milliseconds(backend, call));
    std::nth_element(times.begin(), times.begin() + long(times.size() / 2), times.end());
    const double gflop = 2e-9 * double(o.batch * out * after * after) * double(in / groups * l.size * l.size);
    const double ms = times[times.size() / 2];
    std::printf(
        "%s{\"layer\":\"%s\",\"dtype\":\"%s\",\"channels_last\":%s,\"direction\":\"%s\",\"first_ms\":%.3f,\"ms\":%.4f,\"gflop\":%."
        "3f,"
        "\"tflop_s\":%.2f}",
        any ? ",\n " : "", l.name, std::string(halfstep::name(dtype)).c_str(), channels_last ? "true" : "false", name, first, ms,
        gflop, gflop / ms);
    any = true;
  }
}

}  // namespace

int main(int argc, char** argv) {
  try {
    Options o;
    if (!parse(argc, argv, o)) {
      std::fputs("usage: bench_convolutions [--device cpu|cuda] [--batch N] [--rounds N] [--shrink N] [--first-layer]\n", stderr);
      return 2;
    }
    Backend& backend = backend_for(o.device);
    manual_seed(0);
    std::printf("{\"device\":\"%s\",\"batch\":%lld,\"rows\":[", backend.describe().c_str(), static_cast<long long>(o.batch));
    bool any = false;
    for (const Layer& l : o.first_layer ? std::span<const Layer>(kFirstLayers) : std::span<const Layer>(kLayers)) {
      for (DType dtype : {DType::f16, DType::bf16, DType::f32}) {
        if (dtype == DType::f16 && o.device == Device::cpu) continue;  // widened to float32
        for (bool channels_last : {false, true}) measure(backend, l, dtype, channels_last, o, any);
      }
    }
    std::printf("]}\n");
  } catch (const Error& e) {
    std::fprintf(stderr, "%s\n", e.what());
    return 1;
  }
  return 0;
}
