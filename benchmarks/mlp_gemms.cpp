// SPDX-License-Identifier: Apache-2.0
// The least time of a training step: the 8 matrix products of a 3-layer MLP (3 forward, 3 weight gradients, 2 input gradients)
// and nothing else, in float32, bfloat16 and float16. "backend" goes through Backend::gemm, "bare" through oneDNN's primitives,
// created once.
//   mlp_gemms [--batch 512] [--width 1024] [--rounds 15] [--threads 0]
// Prints one JSON object; times are medians in milliseconds.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <string_view>
#include <vector>

#include "framework/backend/backend.h"
#include "framework/backend/cpu/gemm/gemm.h"
#include "framework/tensor/memory.h"

#ifdef HALFSTEP_WITH_DNNL
#include "framework/backend/cpu/onednn.h"
#include "framework/backend/cpu/team.h"
#endif

using namespace halfstep;

namespace {

struct Options {
  int64_t batch = 512, width = 1024, rounds = 15, threads = 0;
};

bool parse(int argc, char** argv, Options& o) {
  for (int i = 1; i < argc; ++i) {
    const std::string_view name = argv[i];
    int64_t* value = name == "--batch"     ? &o.batch
                     : name == "--width"   ? &o.width
                     : name == "--rounds"  ? &o.rounds
                     : name == "--threads" ? &o.threads
                                           : nullptr;
    if (!value || ++i == argc) return false;
    *value = std::strtoll(argv[i], nullptr, 10);
    if (*value < 0 || (*value == 0 && value != &o.threads)) return false;
  }
  return true;
}

// Memory for one dtype: an activation, a gradient of one, a weight, and an output of every shape.
struct Operands {
  TensorView x, dy, w, y, dx, dw;
  std::vector<void*> blocks;

  Operands(DType t, const Options& o) {
    Backend& cpu = backend_for(Device::cpu);
    const auto make = [&](const Shape& shape, DType dtype) {
      void* p = allocator(Device::cpu).allocate(size_t(numel(shape)) * size_of(dtype), MemoryTag::workspace);
      blocks.push_back(p);
      const TensorView v{p, dtype, shape, contiguous_strides(shape)};
      cpu.random_uniform(v, {blocks.size(), 0}, -1, 1);
      return v;
    };
    x = make({o.batch, o.width}, t);
    dy = make({o.batch, o.width}, t);
    w = make({o.width, o.width}, t);
    y = make({o.batch, o.width}, t);
    dx = make({o.batch, o.width}, t);
    dw = make({o.width, o.width}, t);
  }
  ~Operands() {
    for (void* p : blocks) allocator(Device::cpu).release(p);
  }
  Operands(const Operands&) = delete;
};

TensorView transposed(TensorView v) {
  std::swap(v.shape[0], v.shape[1]);
  std::swap(v.strides[0], v.strides[1]);
  return v;
}

void step_backend(const Operands& o) {
  Backend& cpu = backend_for(Device::cpu);
  for (int layer = 0; layer < 3; ++layer) cpu.gemm({.a = o.x, .b = transposed(o.w), .c = o.y});
  for (int layer = 0; layer < 3; ++layer) cpu.gemm({.a = transposed(o.dy), .b = o.x, .c = o.dw});
  for (int layer = 0; layer < 2; ++layer) cpu.gemm({.a = o.dy, .b = o.w, .c = o.dx});
}

#ifdef HALFSTEP_WITH_DNNL
// One product as a primitive of its own.
class Bare {
 public:
  Bare(const TensorView& a, const TensorView& b, const TensorView& c)
      : a_(memory(a)),
        b_(memory(b)),
        c_(memory(c)),
        primitive_(cpu::describe<dnnl::matmul>({}, a_.get_desc(), b_.get_desc(), c_.get_desc())) {}
  void run(dnnl::stream& stream) { primitive_.execute(stream, {{DNNL_ARG_SRC, a_}, {DNNL_ARG_WEIGHTS, b_}, {DNNL_ARG_DST, c_}}); }

 private:
  static dnnl::memory memory(const TensorView& v) {
    return {{{v.shape[0], v.shape[1]}, cpu::type_of(v.dtype), {v.strides[0], v.strides[1]}}, cpu::engine(), v.data};
  }
  dnnl::memory a_, b_, c_;
  dnnl::matmul primitive_;
};
#endif

// Medians of contestants that take turns, in milliseconds.
std::vector<double> medians(const std::vector<std::function<void()>>& contestants, int64_t rounds) {
  std::vector<std::vector<double>> times(contestants.size());
  for (int64_t round = -2; round < rounds; ++round) {
    for (size_t k = 0; k < contestants.size(); ++k) {
      const auto start = std::chrono::steady_clock::now();
      contestants[k]();
      const std::chrono::duration<double, std::milli> time = std::chrono::steady_clock::now() - start;
      if (round >= 0) times[k].push_back(time.count());
    }
  }
  std::vector<double> result;
  for (auto& t : times) {
    std::nth_element(t.begin(), t.begin() + long(t.size() / 2), t.end());
    result.push_back(t[t.size() / 2]);
  }
  return result;
}

}  // namespace

int main(int argc, char** argv) {
  Options o;
  if (!parse(argc, argv, o)) {
    std::fprintf(stderr, "usage: mlp_gemms [--batch N] [--width N] [--rounds N] [--threads N]\n");
    return 2;
  }
  set_num_threads(int(o.threads));
  std::vector<const char*> names;
  std::vector<std::function<void()>> contestants;
  const Operands single(DType::f32, o), half(DType::bf16, o), half16(DType::f16, o);
  names = {"backend_f32_ms", "backend_bf16_ms", "backend_f16_ms"};
  contestants = {[&] { step_backend(single); }, [&] { step_backend(half); }, [&] { step_backend(half16); }};
#ifdef HALFSTEP_WITH_DNNL
  dnnl::stream stream(cpu::engine());
  std::vector<std::vector<Bare>> steps;
  for (const Operands* p : {&single, &half}) {
    if (p == &half && !cpu::is_native(DType::bf16)) continue;
    std::vector<Bare> step;
    for (int layer = 0; layer < 3; ++layer) step.emplace_back(p->x, transposed(p->w), p->y);
    for (int layer = 0; layer < 3; ++layer) step.emplace_back(transposed(p->dy), p->x, p->dw);
    for (int layer = 0; layer < 2; ++layer) step.emplace_back(p->dy, p->w, p->dx);
    steps.push_back(std::move(step));
  }
  for (size_t k = 0; k < steps.size(); ++k) {
    names.push_back(k == 0 ? "bare_f32_ms" : "bare_bf16_ms");
    contestants.push_back([&, k] {
      for (Bare& product : steps[k]) product.run(stream);
      cpu::openmp_was_used();  // its threads look out for more work, on the cores of the next contestant
    });
  }
#endif
  const std::vector<double> times = medians(contestants, o.rounds);
  const double flop = 8 * 2.0 * double(o.batch) * double(o.width) * double(o.width);
  std::printf("{\"batch\": %lld, \"width\": %lld, \"threads\": %d, \"device\": \"%s\"", static_cast<long long>(o.batch),
              static_cast<long long>(o.width), num_threads(), backend_for(Device::cpu).describe().c_str());
  for (size_t k = 0; k < times.size(); ++k) std::printf(", \"%s\": %.4f", names[k], times[k]);
  std::printf(", \"backend_f32_gflops\": %.1f, \"backend_bf16_gflops\": %.1f}\n", flop / times[0] / 1e6, flop / times[1] / 1e6);
}
