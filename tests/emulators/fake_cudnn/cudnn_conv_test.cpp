// SPDX-License-Identifier: Apache-2.0
// Convolutions of the fake cuDNN, against those of the CPU backend.
#include "tests/emulators/fake_cudnn/cudnn_builder.h"
#include "tests/emulators/source/behaviour.h"

using namespace halfstep;
using namespace halfstep::testing;

namespace {

struct Case {
  const char* name;
  Shape x, w;  // w: [K, C / groups, window]
  Numbers stride, padding, dilation;
};
const Case kCases[] = {
    {"1d", {2, 3, 9}, {4, 3, 3}, {2}, {1}, {1}},
    {"2d", {2, 3, 6, 5}, {4, 3, 3, 2}, {1, 2}, {1, 0}, {1, 1}},
    {"2d, dilated", {1, 2, 9, 8}, {3, 2, 3, 3}, {1, 2}, {2, 1}, {2, 3}},
    {"2d, of three groups", {2, 6, 5, 5}, {9, 2, 3, 3}, {1, 1}, {1, 1}, {1, 1}},
    {"2d, of each channel", {2, 4, 5, 4}, {8, 1, 3, 3}, {2, 1}, {1, 1}, {1, 1}},
    {"3d", {1, 2, 4, 5, 3}, {3, 2, 2, 3, 2}, {1, 2, 1}, {1, 1, 0}, {1, 1, 1}},
    {"1 x 1", {3, 5, 4, 4}, {2, 5, 1, 1}, {1, 1}, {0, 0}, {1, 1}},
};

Window window_of(const Case& c) {
  Window w{.dims = int(c.stride.size())};
  for (size_t i = 0; i < c.stride.size(); ++i) {
    w.size[i] = c.w[int(i) + 2];
    w.stride[i] = c.stride[i];
    w.padding[i] = c.padding[i];
    w.dilation[i] = c.dilation[i];
  }
  return w;
}
Shape result_of(const Case& c) {
  Shape y = c.x;
  y[1] = c.w[0];
  for (size_t i = 0; i < c.stride.size(); ++i) {
    const int d = int(i) + 2;
    y[d] = (c.x[d] + 2 * c.padding[i] - c.dilation[i] * (c.w[d] - 1) - 1) / c.stride[i] + 1;
  }
  return y;
}

// The same values with channels innermost.
Buffer channels_last(const Buffer& b) {
  Buffer to = make(b.view.dtype, b.view.shape);
  int64_t step = 1;
  const int r = b.view.shape.size();
  const auto place = [&](int d) {
    to.view.strides[d] = step;
    step *= b.view.shape[d];
  };
  place(1);
  for (int d = r - 1; d >= 2; --d) place(d);
  place(0);
  for (int64_t i = 0; i < b.numel(); ++i) set(to.view, i, b[i]);
  return to;
}

void compare(const Case& c, int direction, DType t, bool last, int64_t engine, double ulps) {
  const Buffer x = uniform(t, c.x, 1), w = uniform(t, c.w, 2), y = uniform(t, result_of(c), 3);
  const Buffer& like = direction == 0 ? y : direction == 1 ? x : w;
  const Buffer want = make(t, like.view.shape);
  const Window window = window_of(c);
  const int64_t groups = c.x[1] / c.w[1];
  if (direction == 0) cpu().conv(x, w, {}, window, groups, false, want);
  if (direction == 1) cpu().conv_backward_data(y, w, {}, window, groups, want);
  if (direction == 2) cpu().conv_backward_weight(x, y, window, groups, want, {});
  const auto laid = [&](const Buffer& b, bool is_result) {
    Buffer in = is_result ? poisoned(t, b.view.shape) : b;
    return last ? channels_last(in) : in;
  };
  const Buffer hx = laid(x, direction == 1), hw = laid(w, direction == 2), hy = laid(y, direction == 0);
  const OnDevice dx(hx), dw(hw), dy(hy);
  DnnGraph g;
  g.conv(direction, g.tensor(dx), g.tensor(dw), g.tensor(dy), c.padding, c.stride, c.dilation);
  g.run(engine);
  const OnDevice& result = direction == 0 ? dy : direction == 1 ? dx : dw;
  result.fetch();
  check_close(direction == 0   ? hy
              : direction == 1 ? hx
                               : hw,
              want, ulps, 32 * epsilon(DType::f32),
              std::string(c.name) + (last ? ", channels last" : "") + ", direction " + std::to_string(direction));
}

}  // namespace

TEST_CASE("cudnn: convolutions and their gradients, in both formats") {
  for (const Case& c : kCases) {
    for (int direction : {0, 1, 2}) {
      for (bool last : {false, true}) {
        for (DType t : {DType::f32, DType::f16, DType::bf16}) compare(c, direction, t, last, -1, 3);
      }
    }
  }
}

TEST_CASE("cudnn: every engine computes what its notes allow") {
  const Case& c = kCases[1];
  for (DType t : {DType::f32, DType::f16}) {
    DnnGraph g;
    const OnDevice x(uniform(t, c.x, 1)), w(uniform(t, c.w, 2)), y(poisoned(t, result_of(c)));
    g.conv(0, g.tensor(x), g.tensor(w), g.tensor(y), c.padding, c.stride, c.dilation);
    int exact = 0, broken = 0, huge = 0;
    for (const DnnEngine& e : g.engines()) {
      const DnnPlan plan(e.config, e.index);
      if (plan.status != CUDNN_STATUS_SUCCESS) {
        CHECK(CUDNN_STATUS_CATEGORY(plan.status) == CUDNN_STATUS_NOT_SUPPORTED);
        ++broken;
        continue;
      }
      if (plan.workspace() > int64_t(1) << 32) {
        ++huge;
        continue;
      }
      const bool inexact = e.is_noted(CUDNN_NUMERICAL_NOTE_NONDETERMINISTIC) ||
                           e.is_noted(CUDNN_NUMERICAL_NOTE_DOWN_CONVERT_INPUTS) ||
                           e.is_noted(CUDNN_NUMERICAL_NOTE_REDUCED_PRECISION_REDUCTION) ||
                           (t == DType::f32 && e.is_noted(CUDNN_NUMERICAL_NOTE_TENSOR_CORE));
      if (!inexact) {
        compare(c, 0, t, false, e.index, 3);
        ++exact;
      }
    }
    CHECK(exact == 2);
    CHECK(broken == 1);
    CHECK(huge == 1);
    CHECK(g.engines(CUDNN_HEUR_MODE_FALLBACK).size() == 1);
  }
}

TEST_CASE("cudnn: two runs of the engine that says so differ, of others they do not") {
  const Case& c = kCases[1];
  const Buffer result = poisoned(DType::f16, result_of(c));
  const OnDevice x(uniform(DType::f16, c.x, 1)), w(uniform(DType::f16, c.w, 2)), y(result);
  DnnGraph g;
  g.conv(0, g.tensor(x), g.tensor(w), g.tensor(y), c.padding, c.stride, c.dilation);
  for (const DnnEngine& e : g.engines()) {
    if (e.index == 0 || e.index == 2) continue;
    g.run(e.index);
    y.fetch();
    const std::string first = result.raw();
    g.run(e.index);
    y.fetch();
    CHECK((result.raw() == first) == !e.is_noted(CUDNN_NUMERICAL_NOTE_NONDETERMINISTIC));
  }
}

TEST_CASE("cudnn: alpha, beta and padding of one side") {
  const Case c{"", {1, 1, 1, 4}, {1, 1, 1, 2}, {1, 1}, {0, 0}, {1, 1}};
  const Buffer x = make(DType::f32, c.x, {1, 2, 3, 4}), w = make(DType::f32, c.w, {1, 10}),
               y = make(DType::f32, {1, 1, 1, 4}, {1, 1, 1, 1});
  const OnDevice dx(x), dw(w), dy(y);
  DnnGraph g;
  g.conv(0, g.tensor(dx), g.tensor(dw), g.tensor(dy), {0, 0}, {1, 1}, {1, 1}, 2, 3, {0, 1});
  g.run();
  dy.fetch();
  CHECK(y.values() == std::vector<double>{45, 67, 89, 11});
}

TEST_CASE("cudnn: bias and ReLU in one graph with a convolution") {
  for (DType t : {DType::f32, DType::f16}) {
    const Case& c = kCases[1];
    const Buffer x = uniform(t, c.x, 1), w = uniform(t, c.w, 2), bias = uniform(t, {c.w[0]}, 3), want = make(t, result_of(c));
    cpu().conv(x, w, bias, window_of(c), 1, false, want);
    const Buffer result = poisoned(t, result_of(c));
    const OnDevice dx(x), dw(w), db(bias), dy(result);
    DnnGraph g;
    TensorView b = db;
    b.shape = {1, c.w[0], 1, 1};
    b.strides = {c.w[0], 1, 1, 1};
    const auto y = g.tensor(dy), sum = g.middle(y.dims), biased = g.middle(y.dims), bias_tensor = g.tensor(b);
    g.conv(0, g.tensor(dx), g.tensor(dw), sum, c.padding, c.stride, c.dilation);
    g.pointwise_to(CUDNN_POINTWISE_ADD, sum, biased, &bias_tensor);
    g.pointwise_to(CUDNN_POINTWISE_RELU_FWD, biased, y);
    g.run();
    dy.fetch();
    for (int64_t i = 0; i < want.numel(); ++i) set(want.view, i, std::max(0.0, want[i]));
    check_close(result, want, 3, 32 * epsilon(DType::f32), "convolution, bias, ReLU");
  }
}

TEST_CASE("cudnn: refusals") {
  const Case& c = kCases[1];
  const auto engines = [&](DType from, DType to) {
    DnnGraph g;
    const OnDevice x(uniform(from, c.x, 1)), w(uniform(from, c.w, 2)), y(poisoned(to, result_of(c)));
    g.conv(0, g.tensor(x), g.tensor(w), g.tensor(y), c.padding, c.stride, c.dilation);
    return g.engines().size();
  };
  CHECK(engines(DType::f16, DType::f16) > 0);
  CHECK(engines(DType::f16, DType::f32) == 0);
  const char* const capability = std::getenv("HALFSTEP_EMU_CAPABILITY");
  CHECK((engines(DType::bf16, DType::bf16) == 0) == (capability && std::atoi(capability) < 80));
  const Behaviour refuses("HALFSTEP_FAKE_DNN_REFUSE", "1");
  CHECK(engines(DType::f16, DType::f16) == 0);
}

TEST_CASE("cudnn: a second plan of a configuration that is compiled at run time is refused") {
  const Case& c = kCases[1];
  DnnGraph g;
  const OnDevice x(uniform(DType::f16, c.x, 1)), w(uniform(DType::f16, c.w, 2)), y(poisoned(DType::f16, result_of(c)));
  g.conv(0, g.tensor(x), g.tensor(w), g.tensor(y), c.padding, c.stride, c.dilation);
  int refused = 0;
  for (const DnnEngine& e : g.engines()) {
    if (DnnPlan(e.config, e.index).status != CUDNN_STATUS_SUCCESS) continue;
    refused += DnnPlan(e.config, e.index).status == CUDNN_STATUS_INTERNAL_ERROR_COMPILATION_FAILED;
  }
  CHECK(refused == 1);
}
