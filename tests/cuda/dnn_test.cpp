// SPDX-License-Identifier: Apache-2.0
// Convolutions and attention by the device's library: against the CPU in float64, in every layout, recorded, and timed.
#include "framework/backend/dnn.h"

#include <doctest/doctest.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <sstream>

#include "tests/cuda/support.h"
#include "tests/ops/op_cases.h"

using namespace halfstep;
using namespace halfstep::testing;

namespace {

void check_within(const Tensor& got, const Tensor& want, double tolerance) {
  REQUIRE(got.shape() == want.shape());
  const auto a = got.to_vector<double>(), b = want.to_vector<double>();
  double worst = 0, most = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    worst = std::isfinite(a[i]) ? std::max(worst, std::fabs(a[i] - b[i])) : INFINITY;
    most = std::max(most, std::fabs(b[i]));
  }
  CHECK(worst <= tolerance * most);
}

struct ConvCase {
  Shape x, w, y;
  Window window;
  int64_t groups;
};
const ConvCase kConvs[] = {
    {{3, 4, 9}, {6, 4, 3}, {3, 6, 5}, {.dims = 1, .size = {3, 1, 1}, .stride = {2, 1, 1}, .padding = {1, 0, 0}}, 1},
    {{2, 8, 7, 6}, {8, 8, 3, 3}, {2, 8, 7, 6}, {.dims = 2, .size = {3, 3, 1}, .padding = {1, 1, 0}}, 1},
    {{2, 8, 7, 6}, {4, 8, 1, 1}, {2, 4, 7, 6}, {.dims = 2, .size = {1, 1, 1}}, 1},
    {{2, 8, 9, 9}, {8, 2, 3, 3}, {2, 8, 4, 4}, {.dims = 2, .size = {3, 3, 1}, .stride = {2, 2, 1}}, 4},
    {{2, 8, 6, 6}, {8, 1, 3, 3}, {2, 8, 4, 4}, {.dims = 2, .size = {3, 3, 1}, .padding = {1, 1, 0}, .dilation = {2, 2, 1}}, 8},
    {{1, 3, 4, 5, 6}, {2, 3, 2, 2, 2}, {1, 2, 3, 4, 5}, {.dims = 3, .size = {2, 2, 2}}, 1},
};

// All three directions by a backend, with tensors as `at` places them: the results in the order y, dx, dw, db, and relu of y with
// and without the bias.
using Place = std::function<Tensor(const Tensor&, int)>;
Tensors convolved(Backend& b, const ConvCase& c, const Place& place, DType results) {
  manual_seed(5);
  const Tensor x = place(randn(c.x), 0), w = place(randn(c.w), 1), g = place(randn(c.y), 2), bias = place(randn({c.w[0]}), 3),
               bias_in = place(randn({c.x[1]}), 3);
  Tensors out;
  for (const auto& [shape, which] : {std::pair{c.y, 2}, {c.x, 0}, {c.w, 1}, {Shape{c.y[1]}, 3}, {c.y, 2}, {c.y, 2}})
    out.push_back(place(full(shape, NAN), which).to(which == 1 ? results : x.dtype()));
  b.conv(x.view(), w.view(), bias.view(), c.window, c.groups, false, out[0].view());
  b.conv_backward_data(g.view(), w.view(), bias_in.view(), c.window, c.groups, out[1].view());
  b.conv_backward_weight(x.view(), g.view(), c.window, c.groups, out[2].view(), out[3].view());
  b.conv(x.view(), w.view(), bias.view(), c.window, c.groups, true, out[4].view());
  b.conv(x.view(), w.view(), {}, c.window, c.groups, true, out[5].view());
  return out;
}

Tensor heads(const Shape& shape, DType dtype, Device device) {  // [B, H, L, E], stored [B, L, H, E]
  const Tensor t = (randn({shape[0], shape[2], shape[1], shape[3]}) * 0.5).to(dtype).to(device);
  return t.permute({0, 2, 1, 3});
}

struct AttentionRun {
  Tensor out, dq, dk, dv, grad, v;
};
AttentionRun attend(Device device, DType dtype, const AttentionOptions& o, const Shape& qs, const Shape& ks) {
  manual_seed(21);
  Tensor in[3];
  for (int i = 0; i < 3; ++i)
    in[i] = heads(i == 0 ? qs : ks, DType::f16, Device::cpu).to(dtype).to(device).detach().set_requires_grad();
  const Tensor grad = heads(qs, DType::f16, Device::cpu).to(dtype).to(device);
  manual_seed(77);
  const Tensor out = scaled_dot_product_attention(in[0], in[1], in[2], o);
  const Tensors d = halfstep::grad({out}, {in[0], in[1], in[2]}, {grad});
  return {out.detach(), d[0], d[1], d[2], grad, in[2].detach()};
}

double product_of(const Tensor& a, const Tensor& b) {
  const auto x = a.contiguous().to_vector<double>(), y = b.contiguous().to_vector<double>();
  double sum = 0;
  for (size_t i = 0; i < x.size(); ++i) sum += x[i] * y[i];
  return sum;
}

}  // namespace

TEST_CASE("convolutions of every kind and layout are the CPU's") {
  if (!has_library()) return;
  const Listening log;
  for (const ConvCase& c : kConvs) {
    const Tensors want = convolved(
        backend_for(Device::cpu), c, [](const Tensor& t, int) { return t.to(DType::f16).to(DType::f64); }, DType::f64);
    for (DType dtype : {DType::f16, DType::f32}) {
      for (const bool last : {false, true}) {
        CAPTURE(c.x);
        CAPTURE(c.w);
        CAPTURE(name(dtype));
        CAPTURE(last);
        const Place place = [&](const Tensor& t, int) {
          const Tensor y = t.to(DType::f16).to(dtype).to(Device::cuda);
          return last ? channels_last(y) : y;
        };
        for (DType results : {dtype, DType::f32}) {
          const Tensors got = convolved(backend_for(Device::cuda), c, place, results),
                        again = convolved(backend_for(Device::cuda), c, place, results);
          for (size_t i = 0; i < want.size(); ++i) {
            CAPTURE(i);
            check_within(got[i], want[i], dtype == DType::f16 ? 4e-3 : 1e-5);
            CHECK(bytes(got[i]) == bytes(again[i]));
          }
        }
      }
    }
  }
  CHECK(log.count(": engine ") >= 2 * 3 * 6);  // in either dtype, in three directions
}

TEST_CASE("a ReLU in a convolution's pass leaves NaN what it is") {
  if (!has_library()) return;
  for (DType dtype : {DType::f16, DType::f32}) {
    for (const bool last : {false, true}) {
      manual_seed(8);
      Tensor x = randn({2, 8, 5, 5});
      x.select(0, 1).select(0, 0).select(0, 0).narrow(0, 0, 1).fill_(NAN);
      x = x.to(dtype).to(Device::cuda);
      const Tensor w = randn({8, 8, 3, 3}).to(dtype).to(Device::cuda), b = randn({8}).to(dtype).to(Device::cuda);
      for (const Tensor& bias : {b, Tensor()}) {
        const Tensor in = last ? x.to(MemoryFormat::channels_last) : x, y = conv2d(in, w, bias, {}, true),
                     want = relu(conv2d(in, w, bias));
        CHECK(sum(isnan(y)).item<double>() == 8);  // one place of each channel sees it
        check_within(where(isnan(y), 0.0, y), where(isnan(want), 0.0, want), dtype == DType::f16 ? 4e-3 : 1e-5);
      }
    }
  }
}

TEST_CASE("a convolution of float64, and one that begins off its elements' size, needs no library") {
  if (!has_library()) return;
  const Listening log;
  ConvCase c = kConvs[1];
  c.x[0] = c.y[0] = 5;
  convolved(
      backend_for(Device::cuda), c, [](const Tensor& t, int) { return t.to(DType::f64).to(Device::cuda); }, DType::f64);
  CHECK(log.count("[cudnn]") == 0);
}

TEST_CASE("a kind of convolution that is new cannot be recorded, and after an eager one it can") {
  if (!has_library()) return;
  Backend& backend = backend_for(Device::cuda);
  manual_seed(6);
  const Tensor x = randn({2, 4, 11, 13}).to(DType::f16).to(Device::cuda), w = randn({4, 4, 3, 3}).to(DType::f16).to(Device::cuda);
  const auto run = [&](const Tensor& out) {
    backend.conv(x.view(), w.view(), {}, {.dims = 2, .size = {3, 3, 1}}, 1, false, out.view());
  };
  const auto made = [&] { return full({2, 4, 9, 11}, NAN, {.dtype = DType::f16, .device = Device::cuda}); };
  const Tensor eager = made(), replayed = made();
  backend.begin_recording(default_generator());
  CHECK_THROWS_AS(run(replayed), NotPrepared);
  backend.abandon_recording();
  run(eager);
  backend.begin_recording(default_generator());
  CHECK_NOTHROW(run(replayed));
  const std::unique_ptr<Recording> recording = backend.end_recording();
  recording->replay();
  CHECK(bytes(replayed) == bytes(eager));
  replayed.fill_(0);
  recording->replay();
  CHECK(bytes(replayed) == bytes(eager));
}

TEST_CASE("a step whose recording meets something new runs eagerly, and is recorded later") {
  if (!has_library()) return;
  struct Changing : Module {  // another padding at the call that is recorded first
    Part<Conv2d> a{this, "a", 1, 4, 3};
    Part<Linear> head{this, "head", 4, 5};
    Tensor forward(const Tensor& x) override {
      const bool wide = ++calls > StepRecorder::kWarmup;
      const Tensor y = conv2d(x.reshape({-1, 1, 3, 4}), a->parameters()[0], a->parameters()[1], {.padding = {wide ? 2 : 1}});
      return head(mean(y, {2, 3}));
    }
    int calls = 0;
  };
  const Batches batches(Device::cuda, 1);
  std::string want;
  for (const GraphMode mode : {GraphMode::off, GraphMode::on}) {
    manual_seed(4);
    Changing net;
    net.to(Device::cuda);
    SGD opt(net.parameters(), {.lr = 0.1});
    const CrossEntropyLoss loss;
    GradScaler scaler({.init_scale = 256});
    TrainStep step(net, loss, opt, scaler, nullptr, {.device = Device::cuda, .amp = DType::f16, .graph = mode});
    for (int i = 0; i < 12; ++i) step(batches.inputs[0], batches.targets[0]);
    CHECK(step.is_recorded() == (mode == GraphMode::on));
    const std::string got = bytes(net) + bytes(opt);
    if (mode == GraphMode::off) want = got;
    CHECK(got == want);
  }
}

TEST_CASE("with cudnn_benchmark the fastest way is kept, also for later runs") {
  if (!has_library()) return;
  const std::string folder = (std::filesystem::temp_directory_path() / ("halfstep_dnn_" + std::to_string(getpid()))).string();
  std::filesystem::create_directories(folder);
  const char* const before = std::getenv("HALFSTEP_TUNE_FILE");
  const std::string kept = before ? before : "", first = folder + "/first.txt", second = folder + "/second.txt";
  const ConvCase c{{2, 4, 10, 10}, {4, 4, 3, 3}, {2, 4, 8, 8}, {.dims = 2, .size = {3, 3, 1}}, 1};
  const Place place = [](const Tensor& t, int) { return t.to(DType::f16).to(Device::cuda); };
  const auto run = [&](const std::string& file, int64_t workspace) {
    setenv("HALFSTEP_TUNE_FILE", file.c_str(), 1);
    set_dnn_options({.benchmark = true, .workspace = workspace});
    const Tensors got = convolved(backend_for(Device::cuda), c, place, DType::f16);
    set_dnn_options({});
    return got;
  };
  const Tensors plain = convolved(backend_for(Device::cuda), c, place, DType::f16);
  std::string lines;
  {
    const Listening log;
    const Tensors timed = run(first, 1000000);
    for (size_t i = 0; i < 4; ++i) check_within(timed[i], plain[i], 4e-3);
    CHECK(log.count("is fastest") >= 3);
    std::ifstream file(first);
    std::stringstream all;
    all << file.rdbuf();
    lines = all.str();
    CHECK(lines.find("a convolution's weight gradient ") != std::string::npos);
  }
  // A later run, which finds a verdict for the other way: the same lines for another cap of the workspace.
  std::ofstream out(second);
  std::istringstream in(lines);
  for (std::string line; std::getline(in, line);) {
    const size_t cap = line.find(" 1000000\t");
    out << (cap == std::string::npos ? line : line.substr(0, cap) + " 1000001\tunfold 0 -1 0.5") << '\n';
  }
  out.close();
  {
    const Listening log;
    const Tensors unfolded = run(second, 1000001);
    for (size_t i = 0; i < 4; ++i) check_within(unfolded[i], plain[i], 4e-3);
    CHECK(log.count("is fastest") == 0);
  }
  if (before)
    setenv("HALFSTEP_TUNE_FILE", kept.c_str(), 1);
  else
    unsetenv("HALFSTEP_TUNE_FILE");
  std::filesystem::remove_all(folder);
}

TEST_CASE("attention and its gradients are the CPU's, also where queries share keys") {
  if (!has_attention()) return;
  const Listening log;
  for (int64_t key_heads : {4, 2, 1}) {
    for (bool causal : {false, true}) {
      CAPTURE(key_heads);
      CAPTURE(causal);
      const Shape q{2, 4, 12, 16}, k{2, key_heads, 20, 16};
      const AttentionOptions o{.is_causal = causal, .scale = 0.3, .enable_gqa = true};
      const AttentionRun want = attend(Device::cpu, DType::f64, o, q, k), got = attend(Device::cuda, DType::f16, o, q, k),
                         again = attend(Device::cuda, DType::f16, o, q, k);
      check_within(got.out, want.out, 4e-3);
      check_within(got.dq, want.dq, 6e-3);
      check_within(got.dk, want.dk, 6e-3);
      check_within(got.dv, want.dv, 6e-3);
      CHECK(bytes(got.dq) + bytes(got.dk) + bytes(got.dv) == bytes(again.dq) + bytes(again.dk) + bytes(again.dv));
    }
  }
  CHECK(log.count("attention") == 2 * 6);
  CHECK(log.count("declined") == 0);
  // In a region the gradients are wanted in float32, which the library does not write.
  const Shape q{2, 4, 12, 16}, k{2, 2, 20, 16};
  const AttentionOptions o{.enable_gqa = true};
  const AttentionRun want = attend(Device::cpu, DType::f64, o, q, k);
  const Autocast region(Device::cuda, DType::f16);
  const AttentionRun got = attend(Device::cuda, DType::f32, o, q, k);
  CHECK(got.out.dtype() == DType::f16);
  for (const auto& [g, w] : {std::pair{got.dq, want.dq}, {got.dk, want.dk}, {got.dv, want.dv}}) {
    CHECK(g.dtype() == DType::f32);
    check_within(g, w, 6e-3);
  }
}

TEST_CASE("attention's gradients at lengths that no tile of the library divides") {
  if (!has_attention()) return;
  for (int64_t length : {64, 100, 192, 197, 1000}) {
    CAPTURE(length);
    const Shape shape{1, 2, length, 16};
    const AttentionOptions o{.is_causal = length == 1000};
    const AttentionRun want = attend(Device::cpu, DType::f64, o, shape, shape),
                       got = attend(Device::cuda, DType::f16, o, shape, shape);
    check_within(got.out, want.out, 4e-3);
    check_within(got.dq, want.dq, 6e-3);
    check_within(got.dk, want.dk, 6e-3);
    check_within(got.dv, want.dv, 6e-3);
  }
}

TEST_CASE("attention's dropout: forward and backward agree, a share of the probabilities is left out, and the seed says which") {
  if (!has_attention()) return;
  const Listening log;
  const Shape q{1, 2, 48, 16}, k{1, 2, 80, 16};
  const AttentionOptions o{.dropout_p = 0.25};
  const AttentionRun a = attend(Device::cuda, DType::f16, o, q, k), b = attend(Device::cuda, DType::f16, o, q, k);
  CHECK(bytes(a.out) == bytes(b.out));
  // The result is linear in v by the same numbers as the gradient is in the result's.
  CHECK(log.count(": engine ") == 2);
  const double there = product_of(a.out, a.grad), back = product_of(a.v, a.dv);
  CHECK(std::fabs(there - back) <= 2e-2 * std::fabs(there) + 0.05);
  // With v = 1 a row's result is the share of its probabilities that is kept, raised.
  const auto shares = [&](uint64_t seed) {
    manual_seed(seed);
    const TensorOptions like{.dtype = DType::f16, .device = Device::cuda};
    return scaled_dot_product_attention(zeros(q, like), zeros(k, like), ones(k, like), o);
  };
  const Tensor one = shares(1), other = shares(2);
  CHECK(bytes(one) != bytes(other));
  const double mean_share = mean(one.to(DType::f32), {0, 1, 2, 3}).item<float>();
  CHECK(mean_share == doctest::Approx(1).epsilon(0.05));
  double most = 0;
  for (double s : one.to_vector<double>()) most = std::max(most, std::fabs(s - 1));
  CHECK(most > 0.05);  // it is not the same for every row
  // Only the library knows which elements were dropped.
  manual_seed(3);
  const Tensor v = heads(k, DType::f16, Device::cuda).detach().set_requires_grad();
  const Tensor y = scaled_dot_product_attention(v, v, v, o);
  CHECK_THROWS_AS(grad({y}, {v}, {ones_like(y)}, {.create_graph = true}), AutogradError);
}

TEST_CASE("recorded attention draws the numbers that the generator would give now") {
  if (!has_attention()) return;
  for (double dropout : {0.0, 0.5}) {
    manual_seed(8);
    check_recorded_attention(heads({1, 2, 16, 8}, DType::f16, Device::cuda), dropout);
  }
}

TEST_CASE("every case of the op table that the library takes gives the same bits when it is recorded") {
  if (!has_library()) return;
  const NoGrad off;
  Backend& backend = backend_for(Device::cuda);
  int recorded = 0;
  for (const OpCase& c : op_cases(Device::cuda)) {
    if (!c.op.starts_with("conv") && !c.op.starts_with("scaled_dot")) continue;
    for (DType dtype : {DType::f16, DType::f32}) {
      CAPTURE(title(c));
      CAPTURE(name(dtype));
      Tensors in;
      for (const Tensor& t : in_dtype(c.inputs, dtype)) in.push_back(t.defined() ? t.detach() : t);
      manual_seed(1);
      const Tensors eager = c.run(in);
      if (c.op.starts_with("scaled_dot") && c.variant == "dropout") continue;  // it seeds the generator itself
      manual_seed(1);
      backend.begin_recording(default_generator());
      Tensors replayed;
      try {
        replayed = c.run(in);
      } catch (...) {
        backend.abandon_recording();
        throw;
      }
      const std::unique_ptr<Recording> recording = backend.end_recording();
      recording->replay();
      for (size_t i = 0; i < eager.size(); ++i) CHECK(bytes(replayed[i]) == bytes(eager[i]));
      ++recorded;
    }
  }
  CHECK(recorded > 40);
}
