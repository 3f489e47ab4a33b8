// SPDX-License-Identifier: Apache-2.0
// Kernels that write a gradient also add up its columns, for the bias before: the derivative of an activation, and the gradient of
// a residual sum and its norm. All gradients are those of sums that are passes of their own.
#include <algorithm>
#include <functional>

#include "tests/cuda/support.h"

using namespace halfstep;
using namespace halfstep::testing;

namespace {

constexpr int64_t kSets = 3, kTimes = 25, kOuter = 40, kInside = 72;

enum class Apart { no, copies, in_place };

// A part of a transformer's block: the projection behind an attention, and a net, each followed by a residual sum and a norm.
struct Branches {
  std::function<Tensor(const Tensor&)> activation;  // none: linear's own ReLU
  bool as_addmm = false, rms = false;

  Tensor layer(const Tensor& x, const Tensor& w, const Tensor& b, bool relu = false) const {
    if (!as_addmm) return linear(x, w, b, relu);
    const Tensor y = addmm(b, x.flatten(0, 1), w.t()).reshape({x.size(0), x.size(1), w.size(0)});
    return relu ? halfstep::relu(y) : y;
  }
  Tensors norm(const Tensor& x, const Tensor& branch, const Tensor& w, const Tensor& b, DType low) const {
    return rms ? add_rms_norm(x, branch, {kOuter}, w, {}, low) : add_layer_norm(x, branch, {kOuter}, w, b, 1e-5, low);
  }

  // The gradients of x and of weights and biases: of the projection, the norm, the net's two layers and the second norm. Apart: a
  // hook on each layer's result replaces its gradient, or doubles it in place and halves that of the layer's input again.
  Tensors gradients(Device device, DType low, Apart apart = Apart::no) const {
    manual_seed(4);
    Tensors p;
    const auto leaf = [&](const Shape& shape, double scale, double mean = 0) {
      p.push_back((randn(shape) * scale + mean).to(device).detach().set_requires_grad());
      return p.back();
    };
    const Tensor x = leaf({kSets, kTimes, kOuter}, 1), wp = leaf({kOuter, kOuter}, 0.2), bp = leaf({kOuter}, 0.1);
    const Tensor nw = leaf({kOuter}, 0.1, 1), nb = leaf({kOuter}, 0.1), w1 = leaf({kInside, kOuter}, 0.2);
    const Tensor b1 = leaf({kInside}, 0.1), w2 = leaf({kOuter, kInside}, 0.2), b2 = leaf({kOuter}, 0.1);
    const Tensor mw = leaf({kOuter}, 0.1, 1), mb = leaf({kOuter}, 0.1);
    const auto hooked = [&](const Tensor& y) {
      if (apart == Apart::copies) y.register_hook([](const Tensor& g) { return g.clone(); });
      if (apart == Apart::in_place)
        y.register_hook([](const Tensor& g) {
          g.mul_(2.0);
          return Tensor();
        });
      return y;
    };
    const Autocast region(device, low);
    const Tensors first = norm(x, hooked(layer(x, wp, bp)), nw, nb, low);
    const Tensor inner = hooked(layer(first[0], w1, b1, !activation));
    const Tensors second = norm(first[1], hooked(layer(activation ? activation(inner) : inner, w2, b2)), mw, mb, low);
    (square(second[0].to(DType::f32)).mean({2}).sum() + (second[1] * 0.5).sum()).backward();
    Tensors out;
    for (const Tensor& t : p)
      if (!rms || (!t.same(nb) && !t.same(mb))) out.push_back(t.grad().clone());
    return out;
  }
};

const Branches kBlocks[] = {{[](const Tensor& x) { return gelu(x); }},
                       {[](const Tensor& x) { return gelu_tanh(x); }, /*as_addmm=*/true},
                       {[](const Tensor& x) { return relu(x); }, false, /*rms=*/true},
                       {{}, false, true}};

double largest_of(const Tensor& t) { return largest_difference(t, zeros_like(t)); }

}  // namespace

TEST_CASE("gradients with sums of columns by the kernels before are those of sums by themselves, and of the CPU") {
  for (const Branches& block : kBlocks) {
    CAPTURE(&block - kBlocks);
    for (DType low : {DType::f16, DType::bf16}) {
      CAPTURE(name(low));
      const Tensors got = block.gradients(Device::cuda, low), again = block.gradients(Device::cuda, low),
                    apart = block.gradients(Device::cuda, low, Apart::copies), on_cpu = block.gradients(Device::cpu, low);
      REQUIRE(got.size() == apart.size());
      for (size_t i = 0; i < got.size(); ++i) {
        CAPTURE(i);
        CHECK(bytes(got[i]) == bytes(again[i]));
        CHECK(largest_difference(got[i], apart[i]) <= 1e-4 * largest_of(apart[i]));
        if (got[i].dim() == 3) CHECK(bytes(got[i]) == bytes(apart[i]));  // of x, which no sum goes into
        CHECK(largest_difference(got[i].cpu(), on_cpu[i]) <= (low == DType::f16 ? 0.01 : 0.06) * largest_of(on_cpu[i]));
      }
    }
  }
}

TEST_CASE("a hook that writes to a gradient changes the bias's, too") {
  const Tensors plain = kBlocks[0].gradients(Device::cuda, DType::bf16),
                doubled = kBlocks[0].gradients(Device::cuda, DType::bf16, Apart::in_place);
  const size_t last_bias = 8;  // of the net's second layer, whose gradient only one hook doubles
  CHECK(largest_difference(doubled[last_bias], plain[last_bias] * 2.0) <= 1e-4 * largest_of(plain[last_bias]));
}

TEST_CASE("gradients that only some parameters want, and those of a recorded backward, need no sums") {
  manual_seed(4);
  const Tensor x = randn({6, 8}).cuda(), w = randn({8, 8}).cuda().set_requires_grad(), b = randn({8}).cuda().set_requires_grad();
  const Autocast region(Device::cuda, DType::bf16);
  const auto loss = [&] { return gelu(linear(x, w, b)).to(DType::f32).sum(); };
  const Tensors both = grad({loss()}, {w, b});
  CHECK(bytes(grad({loss()}, {w})[0]) == bytes(both[0]));
  CHECK(bytes(grad({loss()}, {b})[0]) == bytes(both[1]));
  const Tensors recorded = grad({loss()}, {w, b}, {}, {.create_graph = true});
  for (size_t i = 0; i < 2; ++i) CHECK(largest_difference(recorded[i], both[i]) <= 0.02 * largest_of(both[i]));
}
