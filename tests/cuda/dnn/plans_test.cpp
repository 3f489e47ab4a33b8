// SPDX-License-Identifier: Apache-2.0
// The adapter's convolutions before the real library, for devices of three generations that are not here.
#include "tests/cuda/dnn/plans.h"

#include <cstdio>

#include "cuda/dnn/cache.h"
#include "cuda/dnn/conv.h"

using namespace halfstep;
using namespace halfstep::testing;
using namespace halfstep::cuda::dnn;

namespace {

constexpr auto kFp16 = CUDNN_DATA_HALF, kBrain = CUDNN_DATA_BFLOAT16, kFp32 = CUDNN_DATA_FLOAT;
constexpr Direction kDirections[] = {Direction::forward, Direction::data, Direction::weight};

struct Shapes {
  const char* name;
  Numbers x, w, y;
  ConvWindow window;
  int64_t most = 0;  // MiB of workspace in float16 with the channels last, on any of the devices
};
const Shapes kImage{"image", {64, 64, 56, 56}, {64, 64, 3, 3}, {64, 64, 56, 56}, {{1, 1}, {1, 1}, {1, 1}, {1, 1}}, 3},
    kSequence{"sequence", {64, 64, 1, 1024}, {128, 64, 1, 3}, {64, 128, 1, 1024}, {{0, 1}, {0, 1}, {1, 1}, {1, 1}}, 5},
    kVolume{"volume", {4, 16, 16, 32, 32}, {32, 16, 3, 3, 3}, {4, 32, 16, 32, 32}, {{1, 1, 1}, {1, 1, 1}, {1, 1, 1}, {1, 1, 1}}, 4},
    kGrouped{"grouped", {64, 64, 56, 56}, {64, 16, 3, 3}, {64, 64, 56, 56}, {{1, 1}, {1, 1}, {1, 1}, {1, 1}}, 50},
    kDepthwise{"depthwise", {64, 64, 56, 56}, {64, 1, 3, 3}, {64, 64, 56, 56}, {{1, 1}, {1, 1}, {1, 1}, {1, 1}}, 2},
    kStrided{"strided", {16, 64, 64, 64}, {128, 64, 4, 4}, {16, 128, 32, 32}, {{1, 1}, {1, 1}, {2, 2}, {1, 1}}, 2},
    kDilated{"dilated", {8, 32, 28, 28}, {32, 32, 3, 3}, {8, 32, 28, 28}, {{2, 2}, {2, 2}, {1, 1}, {2, 2}}, 2},
    kFirst{"first of a network", {64, 3, 224, 224}, {64, 3, 7, 7}, {64, 64, 112, 112}, {{3, 3}, {3, 3}, {2, 2}, {1, 1}}, 125},
    kOdd{"odd channels", {8, 63, 28, 28}, {65, 63, 3, 3}, {8, 65, 28, 28}, {{1, 1}, {1, 1}, {1, 1}, {1, 1}}, 3};

ConvProblem problem(const Shapes& s, Direction direction, cudnnDataType_t type, bool channels_last) {
  return {.direction = direction,
          .type = type,
          .x = s.x,
          .w = s.w,
          .y = s.y,
          .x_strides = dense_strides(s.x, channels_last),
          .w_strides = dense_strides(s.w, channels_last),
          .y_strides = dense_strides(s.y, channels_last),
          .window = s.window};
}

Answer ask(int capability, const ConvProblem& p) {
  return testing::ask(capability, [&] { return conv_graph(p); },
                      {.tensor_cores = p.tensor_cores, .tensor_cores_first = p.prefers_tensor_cores()});
}

std::string title(int capability, const std::string& name, const ConvProblem& p) {
  static constexpr const char* kNames[] = {"forward", "data", "weight"};
  const char* type = p.type == kFp16 ? "f16" : p.type == kBrain ? "bf16" : p.tensor_cores ? "tf32" : "f32";
  return "sm_" + std::to_string(capability) + " " + name + " " + type + (p.x_strides[1] == 1 ? " channels last " : " rows ") +
         kNames[int(p.direction)] + (p.bias ? " + bias" : "") + (p.relu ? " + relu" : "");
}

// There is a plan, and it takes at most so many MiB of workspace.
void accepts(int capability, const std::string& name, const ConvProblem& p, int64_t most) {
  const Answer a = ask(capability, p);
  show(title(capability, name, p), a);
  CAPTURE(title(capability, name, p));
  CAPTURE(a.problem);
  REQUIRE_MESSAGE(a.workspace, "declined");
  CHECK(*a.workspace <= most << 20);
  CHECK(a.keeps_rules);
  if (!p.tensor_cores) CHECK_FALSE(a.tensor_cores);
}

}  // namespace

TEST_CASE("images in float16 and bfloat16: plans in every direction, and none of bfloat16 before Ampere") {
  if (!cudnn_is_here()) return;
  for (int capability : {75, 80, 90}) {
    for (cudnnDataType_t type : {kFp16, kBrain}) {
      for (bool channels_last : {true, false}) {
        for (Direction d : kDirections) {
          const ConvProblem p = problem(kImage, d, type, channels_last);
          if (type == kBrain && capability < 80)
            CHECK_FALSE(ask(capability, p).workspace);
          else
            accepts(capability, "image", p, channels_last ? kImage.most : 55);
        }
      }
    }
  }
}

TEST_CASE("images in float32: strictly without tensor cores, and with TF32") {
  if (!cudnn_is_here()) return;
  for (int capability : {75, 80, 90}) {
    for (bool tensor_cores : {false, true}) {
      for (bool channels_last : {true, false}) {
        for (Direction d : kDirections) {
          ConvProblem p = problem(kImage, d, kFp32, channels_last);
          p.tensor_cores = tensor_cores;
          accepts(capability, "image", p, 110);
        }
      }
    }
  }
}

TEST_CASE("one to three dimensions, groups, strides, dilation and odd channels") {
  if (!cudnn_is_here()) return;
  for (int capability : {75, 80, 90}) {
    for (const Shapes* s : {&kSequence, &kVolume, &kGrouped, &kStrided, &kDilated, &kFirst, &kOdd}) {
      for (Direction d : kDirections) accepts(capability, s->name, problem(*s, d, kFp16, true), s->most);
    }
  }
}

TEST_CASE("a bias, and ReLU after it, come with a convolution; a bias with a transposed one where the channels are last") {
  if (!cudnn_is_here()) return;
  for (int capability : {75, 80, 90}) {
    for (cudnnDataType_t type : {kFp16, kFp32}) {
      for (bool channels_last : {true, false}) {
        ConvProblem forward = problem(kImage, Direction::forward, type, channels_last),
                    data = problem(kStrided, Direction::data, type, channels_last);
        forward.bias = data.bias = type;
        accepts(capability, "image", forward, 110);
        forward.relu = true;
        accepts(capability, "image", forward, 110);
        if (channels_last && type == kFp16) accepts(capability, "strided", data, 110);
      }
    }
  }
}

TEST_CASE("depthwise" * doctest::test_suite("slow")) {
  if (!cudnn_is_here()) return;
  for (int capability : {75, 80, 90}) {
    for (Direction d : kDirections) accepts(capability, "depthwise", problem(kDepthwise, d, kFp16, true), kDepthwise.most);
  }
}

TEST_CASE("ResNet-18 in 16 bits with the channels last: tensor cores in every direction of every layer but the first") {
  if (!cudnn_is_here()) return;
  const auto layer = [](int64_t in, int64_t out, int64_t size, int64_t kernel, int64_t stride) {
    const std::vector<int64_t> before(2, kernel / 2), strides(2, stride);
    return Shapes{"ResNet-18",
                  {64, in, size, size},
                  {out, in, kernel, kernel},
                  {64, out, size / stride, size / stride},
                  {before, before, strides, {1, 1}}};
  };
  std::vector<Shapes> layers{layer(64, 64, 56, 3, 1)};
  for (int64_t in = 64, size = 56; in < 512; in *= 2, size /= 2) {
    layers.push_back(layer(in, 2 * in, size, 3, 2));
    layers.push_back(layer(in, 2 * in, size, 1, 2));
    layers.push_back(layer(2 * in, 2 * in, size / 2, 3, 1));
  }
  for (int capability : {75, 80, 90, 100}) {
    for (cudnnDataType_t type : {kFp16, kBrain}) {
      if (type == kBrain && capability < 80) continue;
      for (const Shapes& s : layers) {
        for (Direction d : kDirections) {
          const ConvProblem p = problem(s, d, type, true);
          const Answer a = ask(capability, p);
          show(title(capability, s.name, p), a);
          CAPTURE(title(capability, s.name, p));
          CAPTURE(s.w[0]);
          CAPTURE(s.w[2]);
          REQUIRE(a.workspace);
          CHECK(a.tensor_cores);
        }
      }
    }
  }
}

TEST_CASE("the first layers of networks in the form of blocks: tensor cores in every direction, and next to no workspace") {
  const auto shape = [](const Numbers& n) { return Shape(std::span(n)); };
  const auto first = [](int64_t batch, int64_t size, int64_t channels, int64_t pixels, int64_t filters) {
    return Shapes{"blocks",
                  {batch, channels, pixels, pixels},
                  {filters, channels, size, size},
                  {batch, filters, pixels / 2, pixels / 2},
                  {{size / 2, size / 2}, {size / 2, size / 2}, {2, 2}, {1, 1}}};
  };
  const auto in_blocks = [&](const Shapes& s) {
    const int64_t size = s.w[2];
    const auto form = block_form(shape(s.x), shape(s.w), shape(s.y),
                                 {.dims = 2, .size = {size, size, 1}, .stride = {2, 2, 1}, .padding = {size / 2, size / 2, 0}});
    REQUIRE(form);
    Shapes out{s.name,
               {s.x[0], BlockForm::kChannels, form->image[0], form->image[1]},
               {s.w[0], BlockForm::kChannels, form->weight[0], form->weight[1]},
               s.y,
               {{}, {}, {1, 1}, {1, 1}}};
    for (int d = 0; d < 2; ++d) {
      const int64_t before = form->window.padding[size_t(d)];
      out.window.before.push_back(before);
      out.window.after.push_back(s.y[size_t(d) + 2] - 1 + form->weight[d] - form->image[d] - before);
    }
    return out;
  };
  const Shapes resnet = in_blocks(first(256, 7, 3, 224, 64));
  CHECK(resnet.x == Numbers{256, 16, 112, 112});
  CHECK(resnet.w == Numbers{64, 16, 4, 4});
  CHECK(resnet.window.before == Numbers{2, 2});
  CHECK(resnet.window.after == Numbers{1, 1});
  if (!cudnn_is_here()) return;
  const Shapes layers[] = {first(256, 7, 3, 224, 64), first(64, 7, 4, 224, 64), first(128, 3, 3, 224, 32),
                           first(32, 5, 3, 160, 48)};
  int64_t saved = 0;
  for (int capability : {75, 80, 90, 100}) {
    for (cudnnDataType_t type : {kFp16, kBrain}) {
      if (type == kBrain && capability < 80) continue;
      for (const Shapes& s : layers) {
        const Shapes blocks = in_blocks(s);
        for (Direction d : kDirections) {
          const ConvProblem p = problem(blocks, d, type, true);
          const Answer a = ask(capability, p), plain = ask(capability, problem(s, d, type, true));
          show(title(capability, "blocks", p), a);
          CAPTURE(title(capability, "blocks", p));
          CAPTURE(s.w[2]);
          CAPTURE(a.problem);
          REQUIRE(a.workspace);
          CHECK(*a.workspace <= (d == Direction::weight ? int64_t(5) << 20 : 1024));
          CHECK(a.tensor_cores);
          CHECK(a.keeps_rules);
          saved += plain.workspace.value_or(0) - *a.workspace;
        }
      }
    }
  }
  CHECK(saved > int64_t(1) << 30);
}

TEST_CASE("tensor cores are preferred for 16-bit groups of eight channels and more") {
  CHECK(problem(kImage, Direction::forward, kFp16, true).prefers_tensor_cores());
  CHECK(problem(kGrouped, Direction::data, kBrain, true).prefers_tensor_cores());
  for (const Shapes* s : {&kDepthwise, &kFirst, &kOdd})
    CHECK_FALSE(problem(*s, Direction::forward, kFp16, true).prefers_tensor_cores());
  CHECK_FALSE(problem(kImage, Direction::forward, kFp32, true).prefers_tensor_cores());
}

TEST_CASE("engines that would break a promise are passed over, and there are such") {
  if (!cudnn_is_here()) return;
  const auto graph = conv_graph(problem(kImage, Direction::weight, kFp32, true));
  int nondeterministic = 0, of_tensor_cores = 0, strict = 0;
  for (const Engine& e : engines(*graph, target(90), CUDNN_HEUR_MODE_A)) {
    if (e.has(CUDNN_NUMERICAL_NOTE_NONDETERMINISTIC)) {
      ++nondeterministic;
      CHECK_FALSE(e.is_allowed({.tensor_cores = true}));
    }
    if (e.has(CUDNN_NUMERICAL_NOTE_TENSOR_CORE)) {
      ++of_tensor_cores;
      CHECK_FALSE(e.is_allowed({.tensor_cores = false}));
    }
    strict += e.is_allowed({.tensor_cores = false});
  }
  CHECK(nondeterministic > 0);
  CHECK(of_tensor_cores > 0);
  CHECK(strict > 0);
  Engine e{.config = Descriptor(CUDNN_BACKEND_ENGINECFG_DESCRIPTOR), .numerics = {}, .behaviour = {}};
  CHECK(e.is_allowed({.tensor_cores = false}));
  for (cudnnBackendNumericalNote_t note : {CUDNN_NUMERICAL_NOTE_NONDETERMINISTIC, CUDNN_NUMERICAL_NOTE_DOWN_CONVERT_INPUTS,
                                           CUDNN_NUMERICAL_NOTE_REDUCED_PRECISION_REDUCTION}) {
    e.numerics = {note};
    CHECK_FALSE(e.is_allowed({.tensor_cores = true}));
  }
  e.numerics = {};
  e.number = 39;  // its ReLU hides NaN
  CHECK(e.is_allowed({}));
  CHECK_FALSE(e.is_allowed({.relu = true}));
}

TEST_CASE("a plan keeps within the workspace that there is") {
  if (!cudnn_is_here()) return;
  const ConvProblem p = problem(kImage, Direction::forward, kFp16, false);
  const Answer wide = ask(90, p), narrow = testing::ask(90, [&] { return conv_graph(p); }, {.workspace = 1 << 20});
  REQUIRE(wide.workspace);
  CHECK(*wide.workspace > 1 << 20);
  if (narrow.workspace) CHECK(*narrow.workspace <= 1 << 20);
}

TEST_CASE("what plans depend on is in their key") {
  const ConvProblem base = problem(kImage, Direction::forward, kFp16, true);
  const auto differs = [&](const auto& change) {
    ConvProblem other = base;
    change(other);
    return other.key() != base.key();
  };
  CHECK(base.key() == problem(kImage, Direction::forward, kFp16, true).key());
  CHECK(differs([](ConvProblem& p) { p.direction = Direction::data; }));
  CHECK(differs([](ConvProblem& p) { p.type = kBrain; }));
  CHECK(differs([](ConvProblem& p) { p.bias = kFp16; }));
  CHECK(differs([](ConvProblem& p) { p.relu = true; }));
  CHECK(differs([](ConvProblem& p) { p.tensor_cores = false; }));
  CHECK(differs([](ConvProblem& p) { p.alignment = 8; }));
  CHECK(differs([](ConvProblem& p) { p.window.dilation[0] = 2; }));
  CHECK(differs([](ConvProblem& p) { p.window.after[0] = 2; }));
  for (Numbers ConvProblem::*part : {&ConvProblem::x, &ConvProblem::w, &ConvProblem::y, &ConvProblem::x_strides,
                                     &ConvProblem::w_strides, &ConvProblem::y_strides})
    CHECK(differs([&](ConvProblem& p) { ++(p.*part)[1]; }));
}

TEST_CASE("of a full cache the least recently used goes") {
  Cache<int> cache(2);
  cache.put({1}, 10);
  cache.put({2}, 20);
  REQUIRE(cache.find({1}));
  CHECK(*cache.find({1}) == 10);
  CHECK(cache.put({3}, 30) == 30);
  CHECK(cache.size() == 2);
  CHECK(cache.find({1}));
  CHECK_FALSE(cache.find({2}));
  CHECK(*cache.find({3}) == 30);
  CHECK(cache.put({3}, 31) == 31);
  CHECK(cache.size() == 2);
  CHECK_FALSE(cache.find({1, 0}));
}
