// SPDX-License-Identifier: Apache-2.0
#include "framework/autograd/leaf_listener.h"

#include <doctest/doctest.h>

#include <string>

#include "amp/autocast/autocast.h"
#include "framework/autograd/autograd.h"
#include "framework/autograd/grad_mode.h"
#include "framework/autograd/recompute.h"
#include "framework/ops/ops.h"

using namespace halfstep;

namespace {

// The labels of leaves in the order of their reports, and "|" for the end of a backward.
struct Notes : LeafListener {
  std::string text;
  std::vector<DType> dtypes;
  void accumulated(const Tensor& leaf, const Tensor& gradient) override {
    text += leaf.label() + " ";
    dtypes.push_back(gradient.dtype());
    CHECK(gradient.data_ptr() == leaf.raw_grad().data_ptr());
  }
  void backward_done() override { text += "|"; }
};

Tensor leaf(const std::string& name, const Shape& shape) { return randn(shape, {.requires_grad = true}).set_label(name); }

}  // namespace

TEST_CASE("leaf listener: gradients are reported when they are complete, the last layer's first, once each") {
  manual_seed(1);
  const Tensor a = leaf("a", {4, 4}), b = leaf("b", {4, 4}), c = leaf("c", {4, 4}), x = randn({2, 4});
  Notes notes;
  const ListenToLeaves listen(notes, {a, b, c});
  mm(tanh(mm(tanh(mm(x, a)), b)), c).sum().backward();
  CHECK(notes.text == "c b a |");
  notes.text.clear();
  // One that is used twice is reported after its second use, with the whole sum.
  const Tensor h = tanh(mm(x, a));
  (mm(tanh(mm(h, b)), c).sum() + mm(h, b).sum()).backward();
  CHECK(notes.text == "c b a |");
  notes.text.clear();
  grad({mm(x, a).sum()}, {a});
  CHECK(notes.text.empty());
  a.zero_grad();
  backward_unheard({mm(x, a)}, {ones({2, 4})});
  CHECK(notes.text.empty());
  CHECK(a.grad().shape() == Shape{4, 4});
  mm(x, a).sum().backward();
  CHECK(notes.text == "a |");
}

TEST_CASE("leaf listener: gradients stay in a 16-bit dtype where they may, unlike with a hook") {
  const Tensor w = leaf("w", {8, 8}), x = randn({4, 8});
  const auto run = [&] {
    w.zero_grad();
    Tensor loss;
    {
      const Autocast region(Device::cpu, DType::bf16);
      loss = mm(x, w).sum();
    }
    const LowGradients low(true);
    loss.backward();
  };
  Notes notes;
  {
    const ListenToLeaves listen(notes, {w});
    run();
  }
  CHECK(notes.dtypes == std::vector<DType>{DType::bf16});
  CHECK(w.raw_grad().dtype() == DType::bf16);
  w.register_hook([](const Tensor&) { return Tensor(); });
  run();
  CHECK(w.raw_grad().dtype() == DType::f32);
  CHECK(notes.dtypes.size() == 1);  // it listens no more
}

TEST_CASE("leaf listener: parameters of a recomputed segment are reported like others") {
  const Tensor a = leaf("a", {4, 4}), b = leaf("b", {4, 4}), x = randn({2, 4});
  Notes notes;
  const ListenToLeaves listen(notes, {a, b});
  const Tensor h = checkpoint([&](const Tensor& t) { return tanh(mm(t, a)); }, x, {a});
  mm(h, b).sum().backward();
  CHECK(notes.text == "b a |");
}

TEST_CASE("leaf listener: backwards that do not reach its leaves are not reported") {
  const Tensor a = leaf("a", {4, 4}), b = leaf("b", {4, 4});
  Notes notes;
  const ListenToLeaves listen(notes, {a});
  b.sum().backward();
  CHECK(notes.text.empty());
  a.sum().backward();
  CHECK(notes.text == "a |");
  const Tensor twice = a * 2;
  twice.register_hook([&](const Tensor& g) {
    const EnableGrad on;
    b.sum().backward();  // within the other
    return g;
  });
  twice.sum().backward();
  CHECK(notes.text == "a |a |");
}
