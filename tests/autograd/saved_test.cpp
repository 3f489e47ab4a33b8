// SPDX-License-Identifier: Apache-2.0
// Tensors saved by nodes: as few as backward needs, and never silently stale.
#include <doctest/doctest.h>

#include "framework/autograd/autograd.h"
#include "framework/autograd/node.h"
#include "framework/ops/ops.h"
#include "framework/tensor/memory.h"

using namespace halfstep;

namespace {

constexpr size_t kBytes = 64 * 64 * 4;
size_t live() { return allocator(Device::cpu).stats().live; }

// Bytes that stay when f's result is recorded and the result itself is subtracted.
template <class F>
size_t kept(F f) {
  const size_t before = live();
  const Tensor y = f();
  return live() - before - y.nbytes();
}

}  // namespace

TEST_CASE("ops save inputs by reference, and linear ones save nothing") {
  const Tensor x = rand({64, 64}, {.requires_grad = true});
  CHECK(kept([&] { return x * x; }) == 0);
  CHECK(kept([&] { return exp(x); }) == 0);             // its own output
  CHECK(kept([&] { return exp(x) + 1.0; }) == kBytes);  // ... which it keeps alive
  CHECK(kept([&] { return (x + 1.0) + 2.0; }) <= 128);  // numbers
  CHECK(kept([&] { return neg(neg(x)); }) == 0);
  CHECK(kept([&] { return relu(x); }) == 0);
  CHECK(kept([&] { return relu(x + 1.0) * 2.0; }) <= kBytes + 128);
  const NoGrad off;
  CHECK(kept([&] { return exp(exp(x)); }) == 0);
}

TEST_CASE("a product saves only what a wanted gradient reads") {
  const Tensor x = rand({64, 64}), w = rand({64, 64}, {.requires_grad = true});
  const Tensor y = (x * 2.0) * w;  // d/dw reads the left side
  const size_t with_left = live();
  const Tensor z = w * 1.0;
  CHECK(with_left > 0);
  const size_t before = live();
  {
    const Tensor q = z * (w.detach() * 1.0);  // the left side is not read by d/dz
    CHECK(live() - before == 2 * kBytes);
  }
  CHECK(live() == before);
}

TEST_CASE("a matrix product saves a factor only for the other's gradient") {
  const Tensor x = rand({64, 64}, {.requires_grad = true}), frozen = rand({64, 64});
  CHECK(kept([&] { return linear(x * 2.0, frozen); }) <= 128);
  CHECK(kept([&] { return mm(x * 2.0, frozen); }) <= 128);
  CHECK(kept([&] { return mm(x * 2.0, x); }) >= kBytes);
}

TEST_CASE("a norm that is not differentiated is freed") {
  const Tensor x = rand({64, 64}, {.requires_grad = true});
  const size_t before = live();
  x.norm(2, {1}, true);  // the output is saved, too
  CHECK(live() == before);
}

TEST_CASE("a maximum keeps its place in as few bytes as hold it, and its gradient gets there") {
  struct Kept {
    int64_t windows;  // of three elements
    size_t bytes;     // for each
  };
  for (const auto& [windows, bytes] : {Kept{10922, 2}, Kept{10923, 4}}) {  // the last place is 32765 or 32768
    const Tensor x = arange(0, double(3 * windows), 1).reshape({1, 1, 3 * windows}).detach().set_requires_grad();
    const size_t most = size_t(windows) * bytes;
    const size_t found = kept([&] { return max_pool1d(x, 3); });
    CHECK(found >= most);
    CHECK(found <= most + most / 4);  // blocks of memory are rounded up
    CHECK(max_pool1d_with_indices(x, 3).second.dtype() == DType::i64);
    const Tensor want = ones({windows, 1}) * from_vector<float>({0, 0, 1}, {3});
    const Tensor first = grad({max_pool1d(x, 3).sum()}, {x})[0];
    CHECK(equal(first.reshape({windows, 3}), want));
    const Tensor recorded = grad({square(max_pool1d(x, 3)).sum()}, {x}, {}, {.create_graph = true})[0];
    CHECK(equal(grad({recorded.sum()}, {x})[0].reshape({windows, 3}), want * 2.0));
  }
}

TEST_CASE("a saved tensor knows its version") {
  const Tensor x = ones({2}, {.requires_grad = true});
  const Tensor y = exp(x);
  const auto node = y.node();
  const SavedTensor saved(x);
  CHECK(saved.unpack(*node).same(x));
  {
    const NoGrad off;
    x.add_(1.0);
  }
  CHECK_THROWS_WITH_AS(saved.unpack(*node),
                       "[exp] a tensor of shape [2] was modified in place after exp saved it: version 1, saved at 0\n"
                       "help: use the out-of-place form, or clone() before the in-place change",
                       AutogradError);
  SavedTensor freed(y, 0);
  CHECK(freed.unpack(*node).requires_grad());
  freed.release();
  CHECK_THROWS_WITH_AS(freed.unpack(*node),
                       "[exp] the graph was freed by an earlier backward\nhelp: pass retain_graph = true to the first backward",
                       AutogradError);
  CHECK(!SavedTensor().unpack(*node).defined());
}

TEST_CASE("a saved output has its history again when backward is recorded, and none otherwise") {
  const Tensor x = rand({2}, {.requires_grad = true});
  const Tensor y = exp(x);
  const SavedTensor saved(y, 0);
  CHECK(saved.unpack(*y.node()).node() == y.node());
  const NoGrad off;
  CHECK(!saved.unpack(*y.node()).requires_grad());
}

TEST_CASE("nodes know their op, order and outputs") {
  const Tensor x = rand({2, 3}, {.requires_grad = true});
  const Tensor a = exp(x), b = mm(a, a.t());
  CHECK(a.node()->name() == "exp");
  CHECK(b.node()->name() == "mm");
  CHECK(b.node()->sequence > a.node()->sequence);
  REQUIRE(b.node()->outputs.size() == 1);
  CHECK(b.node()->outputs[0].shape == Shape{2, 2});
  REQUIRE(b.node()->edges.size() == 2);
  CHECK(b.node()->edges[0].node == a.node());
  CHECK(edge_of(x).node == edge_of(x).node);  // one accumulator a leaf
  CHECK(edge_of(x).node == a.node()->edges[0].node);
  CHECK(!edge_of(x.detach()));
  CHECK(!edge_of(Tensor()));
}

TEST_CASE("parameters changed between forward and backward are noticed") {
  const Tensor x = rand({4, 8}, {.requires_grad = true}), w = rand({3, 8}, {.requires_grad = true});
  w.set_label("fc.weight");
  const Tensor loss = sum(linear(x, w));
  {
    const NoGrad off;
    w.mul_(0.5);
  }
  CHECK_THROWS_WITH_AS(loss.backward(),
                       doctest::Contains("[linear] fc.weight of shape [3, 8] was modified in place after linear saved it"),
                       AutogradError);
}
