// Convolutions and attention on the device where a way to a library goes wrong easily: one plan for two kinds of work, operands
// that are rounded more than allowed, a gradient that forgets what was dropped (dnn_mutants.json).
#include <doctest/doctest.h>

#include <cmath>

#include "halfstep.h"

using namespace halfstep;

namespace {

Tensor on_cuda(const Tensor& t, DType dtype = DType::f32) { return t.to(dtype).to(Device::cuda); }
double largest_difference(const Tensor& a, const Tensor& b) {
  const auto x = a.contiguous().to_vector<double>(), y = b.contiguous().to_vector<double>();
  REQUIRE(x.size() == y.size());
  double worst = 0;
  for (size_t i = 0; i < x.size(); ++i) {
    if (const double d = std::fabs(x[i] - y[i]); !(d <= worst)) worst = d;
  }
  return worst;
}

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
  const Tensor x = full({1, 11, 4, 4}, 1 + 0x1p-12), w = full({2, 11, 1, 1}, 1);
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
  for (int64_t i = 0; i < 32 * 8; ++i) v.data<float>()[i * 8 + i % 8] = 1;
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
