// SPDX-License-Identifier: Apache-2.0
// NoGrad, EnableGrad, InferenceMode: nesting, threads, exceptions.
#include "framework/autograd/grad_mode.h"

#include <doctest/doctest.h>

#include <optional>
#include <stdexcept>
#include <thread>
#include <type_traits>
#include <utility>

#include "framework/autograd/autograd.h"
#include "framework/autograd/leaf_listener.h"
#include "framework/autograd/recompute.h"
#include "framework/autograd/scaled_backward.h"
#include "framework/ops/ops.h"

using namespace halfstep;

namespace {
Tensor leaf() { return ones({2}, {.requires_grad = true}); }
}  // namespace

TEST_CASE("modes nest and restore") {
  CHECK(grad_enabled());
  {
    const NoGrad off;
    CHECK(!grad_enabled());
    {
      const EnableGrad on;
      CHECK(grad_enabled());
      const GradMode none(false);
      CHECK(!grad_enabled());
    }
    CHECK(!grad_enabled());
  }
  CHECK(grad_enabled());
}

TEST_CASE("an exception restores the mode") {
  try {
    const NoGrad off;
    throw std::runtime_error("");
  } catch (const std::runtime_error&) {}
  try {
    const InferenceMode inference;
    throw std::runtime_error("");
  } catch (const std::runtime_error&) {}
  CHECK(grad_enabled());
  CHECK(!inference_enabled());
}

TEST_CASE("nothing is recorded under NoGrad, views included") {
  const Tensor x = leaf();
  const NoGrad off;
  for (const Tensor& y : {x * 2.0, exp(x), x[0], x.reshape({2, 1}), sum(x), x.to(DType::f16), cat({x, x})}) {
    CHECK(!y.requires_grad());
    CHECK(y.is_leaf());
  }
  CHECK(x.requires_grad());
  CHECK(ones({1}, {.requires_grad = true}).requires_grad());  // leaves may be made
}

TEST_CASE("EnableGrad inside NoGrad records, inside InferenceMode it does not") {
  const Tensor x = leaf();
  const NoGrad off;
  {
    const EnableGrad on;
    CHECK((x * 2.0).requires_grad());
  }
  const InferenceMode inference;
  CHECK(inference_enabled());
  const EnableGrad on;
  CHECK(!grad_enabled());
  CHECK(!(x * 2.0).requires_grad());
}

TEST_CASE("a graph from before can be differentiated inside NoGrad") {
  const Tensor x = leaf();
  const Tensor y = sum(x * x);
  const NoGrad off;
  y.backward();
  CHECK(x.grad()[0].item<float>() == 2);
  CHECK(!grad_enabled());
}

TEST_CASE("backward leaves the mode as it was and runs unrecorded") {
  const Tensor x = leaf();
  const Tensor y = x * 1.0;
  bool inside = true;
  y.register_hook([&](const Tensor&) { return inside = grad_enabled(), Tensor(); });
  sum(y).backward();
  CHECK(!inside);
  CHECK(grad_enabled());
}

TEST_CASE("the mode belongs to a thread") {
  const NoGrad off;
  bool there = false, inference_there = true, recorded = false;
  const InferenceMode inference;
  std::thread([&] {
    there = grad_enabled();
    inference_there = inference_enabled();
    recorded = (leaf() * 2.0).requires_grad();
    const NoGrad own;
  }).join();
  CHECK(there);
  CHECK(!inference_there);
  CHECK(recorded);
  CHECK(!grad_enabled());
}

namespace {

template <class T>
constexpr bool is_local = !std::is_copy_constructible_v<T> && !std::is_copy_assignable_v<T> && !requires {
  T::operator new(size_t());
};
static_assert(is_local<NoGrad> && is_local<EnableGrad> && is_local<InferenceMode> && is_local<LowGradients>);
static_assert(is_local<MemoryScope> && is_local<ScaledBackward> && is_local<ListenToLeaves> && is_local<TakenStates::Scope>);

}  // namespace

TEST_CASE("modes that end in another order than the reverse leave the state of what is left") {
  std::optional<NoGrad> off(std::in_place);
  std::optional<EnableGrad> on(std::in_place);
  off.reset();
  CHECK(grad_enabled());
  on.reset();
  CHECK(grad_enabled());
  off.emplace();
  std::optional<NoGrad> off_too(std::in_place);
  off.reset();
  CHECK(!grad_enabled());
  off_too.reset();
  CHECK(grad_enabled());
  std::optional<InferenceMode> first(std::in_place), second(std::in_place);
  first.reset();
  CHECK(inference_enabled());
  second.reset();
  CHECK(!inference_enabled());
}
