// SPDX-License-Identifier: Apache-2.0
// Convolutions, attention and recurrent networks on the device where a way to a library goes wrong easily: one plan for two kinds
// of work, operands that are rounded more than allowed, a gradient that forgets what was dropped (dnn_mutants.json), and memory
// that is short.
#include <doctest/doctest.h>

#include <cmath>
#include <cstdlib>
#include <functional>
#include <memory>

#include "framework/backend/dnn.h"
#include "framework/tensor/memory.h"
#include "tests/cuda/recurrent_support.h"
#include "tests/emulators/source/behaviour.h"

using namespace halfstep;
using namespace halfstep::testing;

namespace {

Tensor on_cuda(const Tensor& t, DType dtype = DType::f32) { return t.to(dtype).to(Device::cuda); }
struct Tf32 {
  explicit Tf32(bool on) : before(allow_tf32()) { set_allow_tf32(on); }
  ~Tf32() { set_allow_tf32(before); }
  bool before;
};

// Of sizes that no other test has, since plans are kept.
struct Problem {
  explicit Problem(int64_t channels) {
    manual_seed(31);
    x = randn({2, channels, 9, 9});
    w = randn({3, channels, 2, 2});
  }
  void check(const ConvOptions& options) const {
    CHECK(largest_difference(conv2d(on_cuda(x), on_cuda(w), {}, options), conv2d(x, w, {}, options)) < 1e-4);
  }
  Tensor x, w;
};

}  // namespace

TEST_CASE("dnn: convolutions that differ in one option each") {
  const Problem p(5);
  const Dims one{1}, two{2};
  p.check({.stride = two, .dilation = one});
  p.check({.stride = two, .dilation = two});  // to a result of the same size
  p.check({.stride = one, .padding = 1, .dilation = two});
  p.check({.stride = one, .padding = 0, .dilation = one});
  p.check({.padding = "same"});  // one row more behind
  const Tensor w = p.w.transpose(0, 1).contiguous().transpose(0, 1);
  CHECK(largest_difference(conv2d(on_cuda(p.x), on_cuda(w)), conv2d(p.x, p.w)) < 1e-4);
}

TEST_CASE("dnn: convolutions of one kind at addresses of different alignment") {
  manual_seed(32);
  const Tensor x = randn({2, 7, 6, 6}), w = randn({3, 7, 3, 3}), all = randn({x.numel() + 8});
  const Tensor on = on_cuda(all), dw = on_cuda(w);
  for (int64_t shift : {0, 1, 2, 4, 8, 1}) {
    const Tensor here = all.slice(0, shift, shift + x.numel()).reshape(x.shape()),
                 there = on.slice(0, shift, shift + x.numel()).view(x.shape());
    CHECK(largest_difference(conv2d(there, dw), conv2d(here, w)) < 1e-4);
  }
}

TEST_CASE("dnn: float32 is rounded to TF32 where that is allowed, and no further") {
  const Tensor x = full({1, 11, 4, 4}, 1 + 0x1p-12), w = full({2, 11, 1, 1}, 1.0);
  const auto sum = [&] { return conv2d(on_cuda(x), on_cuda(w)).to(Device::cpu); };
  const double exact = 11 * (1 + 0x1p-12);
  const Tensor want = full({1, 2, 4, 4}, exact);
  {
    const Tf32 on(true);
    CHECK(largest_difference(sum(), want) < 11 * 0x1p-10);
    const Tensor large = full({1, 11, 4, 4}, 1e5);  // beyond float16
    CHECK(largest_difference(conv2d(on_cuda(large), on_cuda(w)), full({1, 2, 4, 4}, 11e5)) < 11e5 * 0x1p-9);
  }
  const Tf32 off(false);
  CHECK(largest_difference(sum(), want) < 1e-5);
}

TEST_CASE("dnn: attention of two shares of dropout") {
  // With keys that are alike each probability is 1/8; with the unit matrix as values the output shows which are kept.
  Tensor q = zeros({4, 8, 8, 8}), k = zeros({4, 8, 8, 8}), v = zeros({4, 8, 8, 8});
  for (int64_t i = 0; i < 32 * 8; ++i) v.data_ptr<float>()[i * 8 + i % 8] = 1;
  q = on_cuda(q, DType::f16), k = on_cuda(k, DType::f16), v = on_cuda(v, DType::f16);
  for (double p : {0.25, 0.75}) {
    const auto shown = scaled_dot_product_attention(q, k, v, {.dropout_p = p}).contiguous().to_vector<double>();
    double dropped = 0;
    for (double x : shown) {
      dropped += x == 0;
      CHECK((x == 0 || std::fabs(x - 0.125 / (1 - p)) < 1e-3));
    }
    CHECK(std::fabs(dropped / double(shown.size()) - p) < 0.06);
  }
}

TEST_CASE("dnn: with keys that are alike the gradient of queries vanishes, whatever is dropped") {
  manual_seed(33);
  const Tensor q = on_cuda(randn({2, 4, 16, 8}), DType::f16).detach().set_requires_grad();
  const Tensor k = on_cuda(randn({2, 4, 1, 8}).expand({2, 4, 16, 8}).contiguous(), DType::f16);
  const Tensor v = on_cuda(randn({2, 4, 16, 8}), DType::f16), g = on_cuda(randn({2, 4, 16, 8}), DType::f16);
  const Tensor out =
      scaled_dot_product_attention(q, k.detach().set_requires_grad(), v.detach().set_requires_grad(), {.dropout_p = 0.5});
  out.backward(g);
  CHECK(largest_difference(q.grad(), zeros({2, 4, 16, 8})) < 5e-3);
}

TEST_CASE("dnn: attention of queries in two layouts") {
  manual_seed(34);
  const Tensor q = randn({2, 3, 24, 16}), k = randn({2, 3, 24, 16}), v = randn({2, 3, 24, 16});
  const Tensor want = scaled_dot_product_attention(q, k, v);
  const auto heads_inside = [](const Tensor& t) { return t.transpose(1, 2).contiguous().transpose(1, 2); };
  const Tensor dk = on_cuda(k, DType::f16), dv = on_cuda(v, DType::f16);
  for (const Tensor& laid : {on_cuda(q, DType::f16), heads_inside(on_cuda(q, DType::f16))})
    CHECK(largest_difference(scaled_dot_product_attention(laid, dk, dv), want) < 1e-2);
}

namespace {

// A limit of the workspace above that of all engines of the fake, and above the memory of the emulated device.
struct NoCap {
  NoCap() { set_dnn_options({.workspace = int64_t(64) << 30}); }
  ~NoCap() { set_dnn_options({}); }
};
constexpr const char* kTooMuch = "8589934592";  // bytes

struct Results {
  Tensor y, dx, dw;
};
Results convolved(const Tensor& x, const Tensor& w, Device device, DType dtype) {
  const Tensor a = x.to(dtype).to(device).detach().set_requires_grad(), b = w.to(dtype).to(device).detach().set_requires_grad();
  const Tensor y = conv2d(a, b);
  const Tensors d = grad({y}, {a, b}, {ones_like(y)});
  return {y.detach(), d[0], d[1]};
}
void check_convolution(int64_t channels) {
  manual_seed(41);
  const Tensor x = randn({2, channels, 9, 9}), w = randn({3, channels, 2, 2});
  const Results want = convolved(x, w, Device::cpu, DType::f64);
  for (DType dtype : {DType::f32, DType::f16}) {
    const Results got = convolved(x, w, Device::cuda, dtype);
    const double tolerance = dtype == DType::f32 ? 1e-4 : 0.06;
    CHECK(largest_difference(got.y, want.y) < tolerance);
    CHECK(largest_difference(got.dx, want.dx) < tolerance);
    CHECK(largest_difference(got.dw, want.dw) < tolerance);
  }
}

struct Attended {
  Tensor in[3], out;
  Attended(Device device, DType dtype, int64_t keys, double dropout = 0) {
    manual_seed(42);
    for (int i = 0; i < 3; ++i)
      in[i] = randn({2, 2, i == 0 ? 10 : keys, 16}).to(DType::f16).to(dtype).to(device).detach().set_requires_grad();
    out = scaled_dot_product_attention(in[0], in[1], in[2], {.dropout_p = dropout});
  }
  Tensors gradients() const { return grad({out}, {in[0], in[1], in[2]}, {ones_like(out)}); }
};
void check_attention(int64_t keys) {
  const Attended got(Device::cuda, DType::f16, keys), want(Device::cpu, DType::f64, keys);
  CHECK(largest_difference(got.out, want.out) < 1e-2);
  const Tensors d = got.gradients(), wanted = want.gradients();
  for (size_t i = 0; i < 3; ++i) CHECK(largest_difference(d[i], wanted[i]) < 2e-2);
}

// All of the device's memory but pieces of less than 2 MiB.
Tensors ballast() {
  Tensors held;
  for (int64_t bytes = int64_t(1) << 30; bytes >= int64_t(2) << 20;) {
    try {
      held.push_back(empty({bytes}, {.dtype = DType::u8, .device = Device::cuda}));
    } catch (const MemoryError&) { bytes /= 2; }
  }
  return held;
}

Tensor network(Device device, DType dtype) {
  manual_seed(43);
  GRU gru(5, 11, GRUOptions{});
  gru.to(dtype);
  gru.to(device);
  return gru(randn({3, 2, 5}).to(dtype).to(device)).output;
}

}  // namespace

TEST_CASE("dnn: a plan for whose workspace there is no memory gives way to one that takes less") {
  if (!has_library()) return;
  const NoCap options;
  for (const bool again : {false, true}) {
    const Listening log;
    check_convolution(13);
    const int most = log.count(kTooMuch), instead = log.count("bytes, but perhaps for");
    CHECK(instead == (again ? 0 : 3));   // of float16: strict float32 may not take that engine
    CHECK(most == (again ? 0 : 2 * 3));  // named when it is chosen, and when it is left
    CHECK(log.count("declined") == 0);
  }
  if (!has_attention()) return;
  const Listening log;
  check_attention(24);
  CHECK(log.count("bytes, but perhaps for") == 2);
}

TEST_CASE("dnn: where no plan's workspace can be had all goes another way") {
  if (!has_library()) return;
  const NoCap options;
  const Behaviour large("HALFSTEP_FAKE_DNN_WORKSPACE", kTooMuch);
  for (const bool again : {false, true}) {
    const Listening log;
    check_convolution(17);
    check_attention(26);
    const uint64_t calls = recurrent_calls();
    CHECK(largest_difference(network(Device::cuda, DType::f32), network(Device::cpu, DType::f64)) < 1e-5);
    CHECK(recurrent_calls() == calls);
    CHECK((log.count("bytes, declined") > 0) == !again);
  }
}

TEST_CASE(
    "dnn: a lack of memory is an error where the library alone knows what dropout left out, and the next time it is not asked") {
  if (!has_attention()) return;
  const NoCap options;
  const Attended first(Device::cuda, DType::f16, 28, 0.5);
  {
    const Behaviour large("HALFSTEP_FAKE_DNN_WORKSPACE", kTooMuch);
    CHECK_THROWS_AS(first.gradients(), MemoryError);
  }
  const Attended next(Device::cuda, DType::f16, 28, 0.5);
  for (const Tensor& g : next.gradients()) CHECK(isfinite(g).all().item<bool>());
}

TEST_CASE("dnn: a lack of memory is an error where the library alone knows what a recurrent network's forward left") {
  if (!has_recurrent_library()) return;
  manual_seed(46);
  GRU gru(5, 13, GRUOptions{});
  gru.to(Device::cuda);
  const Behaviour large("HALFSTEP_FAKE_DNN_WORKSPACE", std::to_string(4 << 20));
  const auto output = [&] { return gru(randn({3, 2, 5}, {.device = Device::cuda})).output; };
  const auto backward = [&](const Tensor& y) { (void)grad({y}, gru.parameters(), {ones_like(y)}); };
  const Tensor first = output();
  backward(output());
  {
    const Tensors held = ballast();
    CHECK_THROWS_AS(backward(first), MemoryError);
  }
  backward(output());
}

// The tests of recurrent networks say so and pass where the library takes none: the fake does, unless a test turns that off.
TEST_CASE("dnn: the library takes recurrent networks") {
  const char* const refused = std::getenv("HALFSTEP_FAKE_DNN_REFUSE");
  if (!has_library() || (refused && std::strtoul(refused, nullptr, 0) & 0x40)) return;
  CHECK(has_recurrent_library());
}

TEST_CASE("dnn: recurrent networks that differ in their sequences alone") {
  const auto output = [](Device device, int64_t steps, const std::vector<int64_t>& lengths) {
    manual_seed(47);
    GRU gru(3, 6, GRUOptions{.batch_first = true});
    gru.to(device);
    return gru(randn({2, steps, 3}).to(device), {}, lengths).output;
  };
  using Lengths = std::vector<int64_t>;
  for (const auto& [steps, lengths] : {std::pair{4, Lengths()}, {5, Lengths()}, {5, Lengths{5, 2}}, {5, Lengths{5, 4}}})
    CHECK(largest_difference(output(Device::cuda, steps, lengths), output(Device::cpu, steps, lengths)) < 1e-5);
}

TEST_CASE("dnn: recurrent networks of float32 are rounded to TF32 where that is allowed, and no further") {
  if (!has_recurrent_library() || !has_attention()) return;  // from Ampere on
  const auto error = [](bool allowed) {
    const Tf32 on(allowed);
    return largest_difference(network(Device::cuda, DType::f32), network(Device::cpu, DType::f64));
  };
  const double loose = error(true);
  CHECK(loose > 1e-6);
  CHECK(loose < 1e-2);
  CHECK(error(false) < 1e-6);
}

TEST_CASE("dnn: with cudnn_benchmark a way for which there is no memory is passed over") {
  if (!has_library()) return;
  const NoCap wide;
  DnnOptions options = dnn_options();
  options.benchmark = true;
  set_dnn_options(options);
  check_convolution(19);
}

TEST_CASE("dnn: unfolding takes fewer images at once where memory is short") {
  manual_seed(44);
  const Tensor x = randn({32, 4, 24, 24}, {.dtype = DType::f64}), w = randn({2, 4, 3, 3}, {.dtype = DType::f64});
  const Results want = convolved(x, w, Device::cpu, DType::f64);
  const Tensor dx = x.to(Device::cuda), dw = w.to(Device::cuda);
  const std::string before = bytes(conv2d(dx, dw));
  Tensor spare = empty({2 << 20}, {.dtype = DType::u8, .device = Device::cuda});
  Tensors held = ballast();
  spare = Tensor();
  const int64_t columns = 32 * (4 * 3 * 3) * (22 * 22) * 8;  // bytes
  CHECK_THROWS_AS(empty({columns}, {.dtype = DType::u8, .device = Device::cuda}), MemoryError);
  const Tensor after = conv2d(dx, dw);
  held.clear();
  CHECK(bytes(after) == before);
  CHECK(largest_difference(after, want.y) < 1e-12);
}

TEST_CASE("dnn: gradients of attention go to memory of any layout, and come from memory that begins anywhere") {
  if (!has_attention()) return;
  auto& library = dynamic_cast<AttentionLibrary&>(backend_for(Device::cuda));
  manual_seed(45);
  const Shape shape{2, 3, 16, 8};
  Tensor in[3];
  for (Tensor& t : in) t = on_cuda(randn(shape), DType::f16);
  const AttentionArgs args{.q = in[0].view(), .k = in[1].view(), .v = in[2].view(), .scale = 0.3};
  const TensorOptions half{.dtype = DType::f16, .device = Device::cuda}, single{.device = Device::cuda};
  const Tensor out = empty(shape, half), stats = empty({2, 3, 16}, single);
  REQUIRE(library.attention(args, {}, out.view(), stats.view(), true));
  const Tensor all = on_cuda(randn({numel(shape) + 8}), DType::f16);
  std::string want;
  for (const int64_t shift : {0, 1, 4}) {
    all.narrow(0, shift, numel(shape)).copy_(on_cuda(arange(0.0, double(numel(shape)), 1, {}).sin(), DType::f16));
    const Tensor grad = all.narrow(0, shift, numel(shape)).view(shape);
    for (const bool inside : {false, true}) {  // [B, L, H, E] in memory
      Tensors d;
      for (int i = 0; i < 3; ++i) d.push_back(inside ? full({2, 16, 3, 8}, NAN, half).transpose(1, 2) : full(shape, NAN, half));
      REQUIRE(library.attention_backward(args, {},
                                         {.out = out.view(),
                                          .stats = stats.view(),
                                          .grad = grad.view(),
                                          .dq = d[0].view(),
                                          .dk = d[1].view(),
                                          .dv = d[2].view()}));
      const std::string got = bytes(d[0]) + bytes(d[1]) + bytes(d[2]);
      if (want.empty()) want = got;
      CHECK(got == want);
    }
  }
}

namespace {

// Records f, lets the library lose what it keeps of that work, and replays.
void check_kept(const std::function<Tensor()>& f, const std::function<void()>& lose) {
  const NoGrad off;
  const std::string want = bytes(f());
  backend_for(Device::cuda).begin_recording(default_generator());
  const Tensor out = f();
  const std::unique_ptr<Recording> recording = backend_for(Device::cuda).end_recording();
  lose();
  recording->replay();
  CHECK(bytes(out) == want);
}

}  // namespace

TEST_CASE("dnn: a recording keeps the plan of attention, whose place in the cache later convolutions take") {
  if (!has_attention()) return;
  const Tensor q = on_cuda(randn({2, 3, 40, 16}), DType::f16), w = on_cuda(ones({1, 1, 1, 1}));
  check_kept([&] { return scaled_dot_product_attention(q, q, q); },
             [&] {
               for (int64_t n = 1; n <= 1100; ++n) conv2d(ones({1, 1, 1, n}, {.device = Device::cuda}), w);
             });
}

TEST_CASE("dnn: a recording keeps the recurrent network that the library gives up for lack of memory") {
  if (!has_recurrent_library()) return;
  const Behaviour large("HALFSTEP_FAKE_DNN_WORKSPACE", std::to_string(4 << 20));
  manual_seed(48);
  GRU gru(4, 15, GRUOptions{});
  gru.to(Device::cuda);
  const Tensor x = randn({3, 2, 4}, {.device = Device::cuda});
  const auto output = [&] { return gru(x).output; };
  check_kept(output, [&] {
    const Tensors held = ballast();
    const uint64_t calls = recurrent_calls();
    output();
    CHECK(recurrent_calls() == calls);
  });
}
