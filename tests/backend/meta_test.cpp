// SPDX-License-Identifier: Apache-2.0
// Training on the device that computes nothing: the same tensors as on the CPU, byte for byte, and no values.
#include <doctest/doctest.h>

#include <array>

#include "framework/backend/backend.h"
#include "framework/backend/dnn.h"
#include "framework/backend/op_log.h"
#include "framework/tensor/memory.h"
#include "halfstep.h"
#include "tests/backend/buffers.h"

using namespace halfstep;

namespace {

struct Arm {
  std::optional<DType> amp;
  bool scaled;
};

// Memory statistics of a device after some steps, relative to the time before the model was made.
MemoryStats train(Device device, const Arm& arm, bool adam, const TrainStepOptions& extra, int steps) {
  Allocator& memory = allocator(device);
  const MemoryStats before = memory.stats();
  memory.reset_peak();
  manual_seed(1);
  Sequential net(std::make_shared<Linear>(40, 96), std::make_shared<GELU>(), std::make_shared<Linear>(96, 64),
                 std::make_shared<ReLU>(), std::make_shared<Dropout>(0.1), std::make_shared<Linear>(64, 10));
  net.to(device);
  CrossEntropyLoss loss;
  std::unique_ptr<Optimizer> opt;
  if (adam)
    opt = std::make_unique<AdamW>(net.parameters(), AdamWOptions{.lr = 1e-3});
  else
    opt = std::make_unique<SGD>(net.parameters(), SGDOptions{.lr = 0.1, .momentum = 0.9});
  GradScaler scaler({.enabled = arm.scaled});
  CosineAnnealingLR schedule(*opt, 100);
  TrainStepOptions options = extra;
  options.device = device;
  options.amp = arm.amp;
  TrainStep step(net, loss, *opt, scaler, &schedule, options);
  const Tensor x = zeros({32, 40}, {.device = device}), y = zeros({32}, {.dtype = DType::i64, .device = device});
  for (int i = 0; i < steps; ++i) {
    const StepResult r = step(x, y);
    CHECK((!r.stepped || r.outcome.applied()));
    CHECK(r.loss.shape() == Shape{});
    CHECK(r.loss.device() == device);
    CHECK(r.output.shape() == Shape{32, 10});
    CHECK(r.output.dtype() == arm.amp.value_or(DType::f32));
  }
  MemoryStats after = memory.stats();
  after.live -= before.live;
  after.peak -= before.live;
  for (size_t t = 0; t < size_t(kMemoryTagCount); ++t) {
    after.live_by_tag[t] -= before.live_by_tag[t];
    after.peak_by_tag[t] -= before.live_by_tag[t];
  }
  return after;
}

struct ConvCase {
  int64_t images, channels, filters, pixels, window, stride;
};
std::ostream& operator<<(std::ostream& out, const ConvCase& c) {
  return out << c.images << "x" << c.channels << "x" << c.pixels << "x" << c.pixels << ", " << c.filters << " filters of "
             << c.window << "x" << c.window << " every " << c.stride;
}

// The memory that each pass of a convolution takes for itself: forward, and the gradients of the images and of the weight.
std::array<size_t, 3> workspace(Device device, const ConvCase& c, DType dtype, MemoryFormat format) {
  const int64_t out = (c.pixels + 2 * (c.window / 2) - c.window) / c.stride + 1;
  const auto make = [&](const Shape& shape) { return zeros(shape, {.dtype = dtype, .device = device}).to(format).detach(); };
  const Tensor x = make({c.images, c.channels, c.pixels, c.pixels}), y = make({c.images, c.filters, out, out});
  const Tensor w = make({c.filters, c.channels, c.window, c.window});
  const Window window{2, {1, c.window, c.window}, {1, c.stride, c.stride}, {0, c.window / 2, c.window / 2}, {1, 1, 1}};
  Backend& backend = backend_for(device);
  Allocator& memory = allocator(device);
  std::array<size_t, 3> taken;
  for (int pass = 0; pass < 3; ++pass) {
    memory.reset_peak();
    const size_t before = memory.stats().live;
    if (pass == 0) backend.conv(x.view(), w.view(), {}, window, 1, false, y.view());
    if (pass == 1) backend.conv_backward_data(y.view(), w.view(), {}, window, 1, x.view());
    if (pass == 2) backend.conv_backward_weight(x.view(), y.view(), window, 1, w.view(), {});
    taken[size_t(pass)] = memory.stats().peak - before;
  }
  return taken;
}

}  // namespace

TEST_CASE("convolutions on meta count the memory that those on the CPU take for themselves") {
  for (const ConvCase& c : {ConvCase{128, 32, 64, 2, 1, 2},
                            {128, 256, 512, 2, 1, 2},
                            {64, 64, 64, 4, 1, 1},
                            {3, 16, 8, 16, 3, 2},
                            {32, 3, 16, 32, 5, 1},
                            {16, 64, 64, 8, 3, 1}}) {
    for (const DType dtype : {DType::f32, DType::bf16, DType::f16}) {
      for (const MemoryFormat format : {MemoryFormat::contiguous, MemoryFormat::channels_last}) {
        CAPTURE(c);
        CAPTURE(dtype);
        CAPTURE(format);
        for (const bool by_shape : {true, false}) {
          const testing::ByShape cut(by_shape);
          set_num_threads(1);
          CHECK(workspace(Device::meta, c, dtype, format) == workspace(Device::cpu, c, dtype, format));
        }
        set_num_threads(1);
        const auto one = workspace(Device::meta, c, dtype, format);
        set_num_threads(2);
        const auto two = workspace(Device::meta, c, dtype, format), real = workspace(Device::cpu, c, dtype, format);
        set_num_threads(0);
        for (size_t pass = 0; pass < 3; ++pass) {
          CAPTURE(pass);
          CHECK(real[pass] <= two[pass]);                   // a thread may be done before the other one begins
          if (pass < 2) CHECK(two[pass] <= 4 * one[pass]);  // the weight's gradient of each thread is kept for their sum
        }
      }
    }
  }
}

#if defined(__x86_64__)  // elsewhere the library has convolutions of its own for some CPUs alone, as on CPUs before AVX
TEST_CASE("a convolution widens few of its images in float16 at a time") {
  if (!__builtin_cpu_supports("avx")) return;
  if (backend_for(Device::cpu).describe().find("products: oneDNN") == std::string::npos) return;
  const ConvCase c{32, 16, 16, 64, 3, 1};
  const size_t widened = size_t(c.images * (c.channels + c.filters) * c.pixels * c.pixels) * sizeof(float);
  set_num_threads(2);
  for (const MemoryFormat format : {MemoryFormat::contiguous, MemoryFormat::channels_last})
    for (const size_t taken : workspace(Device::cpu, c, DType::f16, format)) CHECK(4 * taken < widened);
  set_num_threads(0);
}
#endif

TEST_CASE("a training step on meta counts memory as the CPU does") {
  for (const Arm& arm : {Arm{{}, false}, Arm{DType::bf16, false}, Arm{DType::f16, true}}) {
    for (const bool adam : {false, true}) {
      for (const TrainStepOptions& extra :
           {TrainStepOptions{}, TrainStepOptions{.clip_grad_norm = 1}, TrainStepOptions{.accumulate_steps = 3}}) {
        for (const int steps : {1, 4}) {
          CAPTURE(arm.amp.value_or(DType::f32));
          CAPTURE(adam);
          CAPTURE(extra.clip_grad_norm);
          CAPTURE(extra.accumulate_steps);
          const MemoryStats cpu = train(Device::cpu, arm, adam, extra, steps), meta = train(Device::meta, arm, adam, extra, steps);
          for (int t = 0; t < kMemoryTagCount; ++t) {
            if (MemoryTag(t) == MemoryTag::workspace) continue;  // of kernels
            CAPTURE(std::string(name(MemoryTag(t))));
            CHECK(meta.live_by_tag[size_t(t)] == cpu.live_by_tag[size_t(t)]);
            if (arm.amp == DType::f16) continue;  // its products' workspace moves the moment of the peak
            CHECK(meta.peak_by_tag[size_t(t)] == cpu.peak_by_tag[size_t(t)]);
          }
        }
      }
    }
  }
}

TEST_CASE("values cannot be read on meta, and the error says so") {
  const Tensor x = ones({2, 3}, {.device = Device::meta});
  CHECK(x.str() == "tensor(..., device='meta', size=(2, 3))");
  CHECK(x.data_ptr() != nullptr);
  CHECK_THROWS_WITH_AS(x.sum().item<float>(), doctest::Contains("[meta] a tensor on the device meta has no values to read"),
                       MetaError);
  CHECK_THROWS_AS(x.to_vector<float>(), MetaError);
  CHECK_THROWS_AS(x.to(Device::cpu), MetaError);
  CHECK_THROWS_WITH_AS(nonzero(x), doctest::Contains("[nonzero] needs the values of its inputs"), MetaError);
  CHECK(randn({4, 5}).to(Device::meta).matmul(empty({5, 2}, {.device = Device::meta})).shape() == Shape{4, 2});
  CHECK_THROWS_AS(randn({4, 5}).matmul(empty({5, 2}, {.device = Device::meta})), DeviceError);
  CHECK(parse_device("meta") == Device::meta);
}

TEST_CASE("what would not fit into any memory can be counted on meta") {
  Allocator& memory = allocator(Device::meta);
  const size_t before = memory.stats().live;
  {
    const Tensor x = empty({int64_t(1) << 40}, {.device = Device::meta});
    CHECK(memory.stats().live == before + (size_t(1) << 42));
    CHECK(x.mul(2.0).add(x).shape() == x.shape());
  }
  CHECK(memory.stats().live == before);
  CHECK_THROWS_AS(empty({int64_t(1) << 60}, {.device = Device::meta}), Error);
}

namespace {

struct AttentionPlan {
  std::vector<LoggedCall> calls;  // forward, backward
  MemoryStats peak;
};

// What a plan for the device counts of attention and its gradient.
AttentionPlan attention_plan(Device::Type type, DType dtype, const Shape& q, const Shape& k, const AttentionOptions& o) {
  const PlanFor target(type);
  Allocator& memory = allocator(Device::meta);
  const size_t before = memory.stats().live;
  memory.reset_peak();
  AttentionPlan plan;
  const OpLogScope log;
  const auto leaf = [&](const Shape& s) { return zeros(s, {.dtype = dtype, .device = Device::meta}).requires_grad_(); };
  scaled_dot_product_attention(leaf(q), leaf(k), leaf(k), o).sum().backward();
  for (const LoggedCall& c : log.calls())
    if (c.op == "scaled_dot_product_attention") plan.calls.push_back(c);
  plan.peak = memory.stats();
  plan.peak.peak -= before;
  return plan;
}

bool by_library(const LoggedCall& c) { return c.products.size() == 1 && c.products[0].fused; }

}  // namespace

TEST_CASE("a plan for a GPU has the attention of its library") {
  const Shape shape{2, 4, 256, 64};
  const AttentionPlan gpu = attention_plan(Device::Type::cuda, DType::bf16, shape, shape, {}),
                      cpu = attention_plan(Device::Type::cpu, DType::bf16, shape, shape, {});
  REQUIRE(gpu.calls.size() == 2);
  REQUIRE(cpu.calls.size() == 2);
  const double one = 2.0 * 2 * 4 * 256 * 256 * 64;  // operations of a product of scores
  CHECK(gpu.calls[0].flops() == 2 * one);
  CHECK(gpu.calls[1].flops() == 5 * one);
  CHECK(cpu.calls[0].flops() == 2 * one);
  CHECK(cpu.calls[1].flops() == 5 * one);
  const double tensor = 2 * 4 * 256 * 64 * 2, rows = 2 * 4 * 256 * 4;  // bytes
  CHECK(gpu.calls[0].bytes_read + gpu.calls[0].bytes_written == 4 * tensor + rows);
  CHECK(gpu.calls[1].bytes_read + gpu.calls[1].bytes_written >= 7 * tensor + rows);
  CHECK(cpu.calls[0].bytes_read + cpu.calls[0].bytes_written > 2 * (4 * tensor + rows));  // and the scores
  for (const LoggedCall& c : gpu.calls) CHECK(by_library(c));
  for (const LoggedCall& c : cpu.calls) CHECK_FALSE(by_library(c));
  // A row sees half of the keys.
  const AttentionPlan causal = attention_plan(Device::Type::cuda, DType::bf16, shape, shape, {.is_causal = true});
  CHECK(causal.calls[0].flops() == doctest::Approx(one).epsilon(0.01));
  // The scores of all heads at once, or of as many as the workspace has room for.
  const size_t scores = 2 * 4 * 256 * (256 * 2 + 4);
  CHECK(gpu.peak.peak_by_tag[size_t(MemoryTag::workspace)] >= scores);
  CHECK(gpu.peak.peak_by_tag[size_t(MemoryTag::workspace)] < scores + (size_t(1) << 16));
  const DnnOptions usual = dnn_options();
  set_dnn_options({.workspace = int64_t(scores) / 2});
  const AttentionPlan divided = attention_plan(Device::Type::cuda, DType::bf16, shape, shape, {});
  CHECK(divided.peak.peak_by_tag[size_t(MemoryTag::workspace)] < scores / 2);
  CHECK(by_library(divided.calls[1]));
  set_dnn_options({.workspace = 1 << 16});  // less than one head needs: the gradient goes by chunks
  const AttentionPlan small = attention_plan(Device::Type::cuda, DType::bf16, shape, shape, {});
  CHECK(by_library(small.calls[0]));
  CHECK_FALSE(by_library(small.calls[1]));
  set_dnn_options(usual);
}

TEST_CASE("a plan for a GPU goes by chunks where the library does not take the call") {
  const Shape shape{1, 2, 48, 16};
  const auto library = [](DType dtype, const Shape& q, const Shape& k, const AttentionOptions& o = {}) {
    return by_library(attention_plan(Device::Type::cuda, dtype, q, k, o).calls.at(0));
  };
  CHECK(library(DType::f16, shape, shape));
  CHECK(library(DType::f16, {1, 4, 48, 16}, shape, {.enable_gqa = true}));
  CHECK_FALSE(library(DType::f32, shape, shape));
  CHECK_FALSE(library(DType::f16, {1, 2, 48, 12}, {1, 2, 48, 12}));
  CHECK_FALSE(library(DType::f16, {1, 2, 48, 264}, {1, 2, 48, 264}));
  CHECK_FALSE(library(DType::f16, {1, 2, 1, 16}, shape));
  const Tensor mask = zeros({48, 48}, {.dtype = DType::f16, .device = Device::meta});
  CHECK_FALSE(library(DType::f16, shape, shape, {.attn_mask = mask}));
  setenv("HALFSTEP_CUDA_DNN", "plain", 1);
  CHECK_FALSE(library(DType::f16, shape, shape));
  unsetenv("HALFSTEP_CUDA_DNN");
}
