// SPDX-License-Identifier: Apache-2.0
#include "framework/parallel/gradient_reducer.h"

#include <doctest/doctest.h>

#include <atomic>
#include <cmath>

#include "amp/autocast/autocast.h"
#include "framework/autograd/autograd.h"
#include "framework/autograd/grad_mode.h"
#include "framework/ops/ops.h"
#include "framework/parallel/sum_over_ranks.h"
#include "tests/comm/local_ranks.h"

using namespace halfstep;
using halfstep::testing::on_ranks;

namespace {

std::vector<double> numbers(const Tensor& t) { return t.to_vector<double>(); }

}  // namespace

TEST_CASE("gradient reducer: buckets are filled from the last parameter on, the first one small") {
  on_ranks(2, [](ProcessGroup& group) {
    std::vector<Tensor> p;
    for (int i = 0; i < 5; ++i) p.push_back(zeros({1000}, {.requires_grad = true}));
    p.push_back(zeros({10}));  // is not trained
    const GradientReducer reducer(p, group, {.first_bucket_mb = 4.5 / 1024, .bucket_mb = 9.0 / 1024});
    // One parameter of 4000 bytes, then two at a time; each with a cache line's rest, and a flag a parameter. Then the two ranks
    // have equal parts of whole lines.
    CHECK(reducer.bucket_bytes() == std::vector<int64_t>{1024 * 4, 2048 * 4, 2048 * 4});
    CHECK_THROWS_WITH_AS(GradientReducer(p, group, {.bucket_mb = 0}), doctest::Contains("more than 0 MB"), ValueError);
  });
}

TEST_CASE("gradient reducer: a gradient larger than a bucket is sent in pieces, with the bits of one") {
  std::atomic<int> wrong{0};
  on_ranks(3, [&](ProcessGroup& group) {
    const double me = group.rank() + 1;
    Tensor whole;
    for (const double bucket_mb : {25.0, 0.01, 0.003}) {
      // The first parameter is the last to come: 40,000 bytes.
      const Tensor large = zeros({100, 100}, {.requires_grad = true}), small = zeros({10}, {.requires_grad = true}),
                   unused = zeros({3}, {.requires_grad = true});
      const Tensor x = arange(10000).view({100, 100}) * (1.0 / 3) + me;
      GradientReducer reducer({large, unused, small}, group, {.first_bucket_mb = 0.001, .bucket_mb = bucket_mb});
      const std::vector<int64_t> sizes = reducer.bucket_bytes();
      const size_t pieces = bucket_mb == 25 ? 1 : bucket_mb == 0.01 ? 4 : 13;
      wrong += sizes.size() != 1 + pieces;
      for (size_t i = 1; i < sizes.size(); ++i)
        wrong += sizes[i] % (16 * 3 * 4) != 0 || double(sizes[i]) > 40000.0 / double(pieces) + 16 * 3 * 4 + 4;
      for (int step = 0; step < 2; ++step) {
        for (const Tensor* t : {&large, &unused, &small}) t->zero_grad();
        reducer.arm();
        ((large * x).sum() + (small * me).sum()).backward();
        reducer.send_rest();
        reducer.take();
        if (!whole.defined()) whole = large.grad().clone();
        wrong += numbers(large.grad()) != numbers(whole) || numbers(small.grad()) != std::vector<double>(10, 6) ||
                 unused.grad().defined();
      }
    }
  });
  CHECK(wrong == 0);
}

TEST_CASE("gradient reducer: the buckets of GPT-2 small") {
  on_ranks(2, [](ProcessGroup& group) {
    std::vector<Tensor> p;
    const auto add = [&](const Shape& s) { p.push_back(empty(s, {.device = Device::meta, .requires_grad = true})); };
    add({50257, 768});
    add({1024, 768});
    for (int block = 0; block < 12; ++block)
      for (const Shape& s : {Shape{768}, Shape{768}, Shape{2304, 768}, Shape{2304}, Shape{768, 768}, Shape{768}, Shape{768},
                             Shape{768}, Shape{3072, 768}, Shape{3072}, Shape{768, 3072}, Shape{768}})
        add(s);
    add({768});
    add({768});
    const std::vector<int64_t> sizes = GradientReducer(p, group).bucket_bytes();
    int64_t all = 0;
    for (const int64_t bytes : sizes) {
      CHECK(bytes <= (25 << 20) + 4096);  // with flags
      all += bytes;
    }
    CHECK(double(all) == doctest::Approx(4.0 * 124439808).epsilon(1e-3));
    CHECK(sizes.back() > 20 << 20);  // of the embedding, whose 154 MB are six operations
  });
}

TEST_CASE(
    "gradient reducer: gradients are summed; zeros replace the gradient of a parameter that a rank did not use, and nothing where "
    "none did") {
  std::atomic<int> wrong{0};
  on_ranks(3, [&](ProcessGroup& group) {
    const int me = group.rank();
    const Tensor a = ones({3}, {.requires_grad = true}), b = ones({2, 2}, {.requires_grad = true}),
                 unused = ones({5}, {.requires_grad = true});
    GradientReducer reducer({a, b, unused}, group);
    for (int step = 0; step < 3; ++step) {
      for (const Tensor* t : {&a, &b, &unused}) t->zero_grad();
      reducer.arm();
      Tensor loss = (a * double(me + 1)).sum();
      if (me == 1) loss = loss + (b * -0.0).sum();
      loss.backward();
      reducer.send_rest();
      reducer.take();
      wrong += numbers(a.grad()) != std::vector<double>(3, 6) || unused.grad().defined();
      wrong += !b.grad().defined() || !std::signbit(b.grad().data_ptr<float>()[0]);  // -0 is what one process would have
    }
    // Without arming, a backward is this rank's own. Gradients may be summed up first, and sent with the last.
    for (const Tensor* t : {&a, &b, &unused}) t->zero_grad();
    (a * 1.0).sum().backward();
    if (me == 0) (b * 5.0).sum().backward();
    reducer.arm();
    (a * 2.0).sum().backward();
    reducer.send_rest();
    reducer.take();
    wrong += numbers(a.grad()) != std::vector<double>(3, 9) || numbers(b.grad()) != std::vector<double>(4, 5);
  });
  CHECK(wrong == 0);
}

TEST_CASE("gradient reducer: a second gradient after the first was sent is an error") {
  on_ranks(2, [](ProcessGroup& group) {
    const Tensor a = ones({3}, {.requires_grad = true});
    GradientReducer reducer({a}, group);
    reducer.arm();
    a.sum().backward();
    CHECK_THROWS_WITH_AS(a.sum().backward(), doctest::Contains("a second gradient after its first was sent"), AutogradError);
    reducer.send_rest();
    reducer.take();
    CHECK(numbers(a.grad()) == std::vector<double>(3, 2));  // of the first
  });
}

TEST_CASE("gradient reducer: two that share a parameter sum the same gradient; one that is not used changes nothing") {
  std::atomic<int> wrong{0};
  on_ranks(2, [&](ProcessGroup& group) {
    const Tensor a = ones({3}, {.requires_grad = true}), b = ones({3}, {.requires_grad = true});
    GradientReducer first({a, b}, group, {.scale = 0.5}), second({a}, group, {.scale = 0.5}), idle({a, b}, group);
    for (int step = 0; step < 2; ++step) {
      for (const Tensor* t : {&a, &b}) t->zero_grad();
      for (GradientReducer* r : {&first, &second}) r->arm();
      ((a * 2.0).sum() + b.sum()).backward();
      for (GradientReducer* r : {&first, &second}) r->send_rest();
      for (GradientReducer* r : {&first, &second}) r->take();
      wrong += numbers(a.grad()) != std::vector<double>(3, 2) || numbers(b.grad()) != std::vector<double>(3, 1);
    }
    // Of several backwards in an open reducer, each adds to what lies in the bucket.
    for (const Tensor* t : {&a, &b}) t->zero_grad();
    idle.open();
    (a * 3.0).sum().backward();
    (a * 4.0).sum().backward();
    wrong += numbers(a.grad()) != std::vector<double>(3, 7);
    idle.arm();
    (a + b).sum().backward();
    idle.send_rest();
    idle.take();
    wrong += numbers(a.grad()) != std::vector<double>(3, 16) || numbers(b.grad()) != std::vector<double>(3, 2);
  });
  CHECK(wrong == 0);
}

TEST_CASE("gradient reducer: a gradient in 16 bits is summed in float32") {
  std::atomic<int> wrong{0};
  on_ranks(2, [&](ProcessGroup& group) {
    const Tensor w = ones({8, 8}, {.requires_grad = true}), x = ones({4, 8});
    GradientReducer reducer({w}, group);
    reducer.arm();
    Tensor loss;
    {
      const Autocast region(Device::cpu, DType::bf16);
      loss = mm(x, w).sum();
    }
    const LowGradients low(true);
    loss.backward();
    reducer.send_rest();
    reducer.take();
    wrong += w.raw_grad().dtype() != DType::f32 || numbers(w.grad()) != std::vector<double>(64, 8);
  });
  CHECK(wrong == 0);
}

TEST_CASE("sum over ranks: forward and gradient, once and twice") {
  std::atomic<int> wrong{0};
  on_ranks(3, [&](ProcessGroup& group) {
    const double me = group.rank() + 1;
    const Tensor x = full({2}, double(me), {.requires_grad = true});
    const Tensor sum = sum_over_ranks(x * x, group);  // 1 + 4 + 9
    wrong += numbers(sum) != std::vector<double>(2, 14);
    const Tensor loss = (sum * sum).sum() * me;  // of rank r: r s^2 a position; all of them: 6 s^2
    const Tensor g = grad({loss}, {x}, {}, {.create_graph = true})[0];
    wrong += numbers(g) != std::vector<double>(2, 6 * 2 * 14 * 2 * me);
    const Tensor second = grad({g.sum()}, {x})[0];
    wrong += !second.defined();
  });
  CHECK(wrong == 0);
}

TEST_CASE("gradient reducer: a gradient lies as its parameter does") {
  std::atomic<int> wrong{0};
  on_ranks(2, [&](ProcessGroup& group) {
    const Tensor values = arange(2 * 3 * 2 * 2, {.dtype = DType::f32}).reshape({2, 3, 2, 2});
    const Tensor w = ones({2, 3, 2, 2}, {.format = MemoryFormat::channels_last}).set_requires_grad();
    GradientReducer reducer({w}, group);
    reducer.arm();
    (w * values).sum().backward();
    reducer.send_rest();
    reducer.take();
    wrong += w.grad().format() != MemoryFormat::channels_last || numbers(w.grad()) != numbers(values * 2.0);
  });
  CHECK(wrong == 0);
}
