// SPDX-License-Identifier: Apache-2.0
// What layers do beyond a formula: random ones, initial values, running statistics, rows of an embedding.
#include <doctest/doctest.h>

#include <cmath>

#include "framework/autograd/grad_mode.h"
#include "layers/layers.h"

using namespace halfstep;

TEST_CASE("convolutions begin with PyTorch's distribution: U(-b, b), b = 1/sqrt(fan in)") {
  Generator g(7);
  Conv2d conv(8, 64, {3, 2}, {.groups = 2}, &g);
  CHECK(conv.weight.shape() == Shape{64, 4, 3, 2});
  ConvTranspose2d back(64, 8, {3, 2}, {.groups = 2}, &g);
  CHECK(back.weight.shape() == Shape{64, 4, 3, 2});
  for (const Tensor& w : {conv.weight, conv.bias, back.weight}) {
    const double bound = 1 / std::sqrt(24.0), largest = w.abs().max().item<float>();
    CHECK(largest <= bound * (1 + 1e-6));
    CHECK(largest > 0.9 * bound);
    CHECK(std::abs(w.mean().item<float>()) < 0.25 * bound);
  }
}

TEST_CASE("the Dropout family drops elements or channels with probability p, and keeps the mean") {
  manual_seed(3);
  const double p = 0.25;
  const auto run = [&](Module&& layer, const Shape& shape) {
    const Tensor x = ones(shape), y = layer(x);
    layer.eval();
    CHECK(layer(x).same(x));
    return y;
  };
  const Tensor single = run(Dropout(p), {100, 100});
  CHECK(std::abs(single.mean().item<float>() - 1) < 0.03);
  CHECK(std::abs((single == 0.0).to(DType::f32).mean().item<float>() - p) < 0.02);

  // Channels: all of one, or none.
  for (int dims : {1, 2, 3}) {
    CAPTURE(dims);
    Shape shape{50, 40};
    for (int d = 0; d < dims; ++d) shape.push_back(2);
    const Tensor y = dims == 1 ? run(Dropout1d(p), shape) : dims == 2 ? run(Dropout2d(p), shape) : run(Dropout3d(p), shape);
    const Tensor flat = y.reshape({50, 40, -1});
    CHECK((flat.amax({2}) == flat.amin({2})).all().item<bool>());
    CHECK(std::abs((flat.amax({2}) == 0.0).to(DType::f32).mean().item<float>() - p) < 0.04);
    CHECK(std::abs(y.mean().item<float>() - 1) < 0.06);
  }
  const Tensor unbatched = Dropout1d(p)(ones({2000, 3}));  // [C, L]
  CHECK((unbatched.amax({1}) == unbatched.amin({1})).all().item<bool>());

  // SELU's: of N(0, 1) it makes mean 0 and variance 1 again.
  const Tensor normal = randn({300, 40, 2}), alpha = AlphaDropout(p)(normal), feature = FeatureAlphaDropout(p)(normal);
  for (const Tensor& y : {alpha, feature}) {
    CHECK(std::abs(y.mean().item<float>()) < 0.04);
    CHECK(std::abs(y.std().item<float>() - 1) < 0.04);
  }
  const Tensor dropped = feature.reshape({300, 40, 2});
  CHECK(std::abs((dropped.select(2, 0) == dropped.select(2, 1)).to(DType::f32).mean().item<float>() - p) < 0.04);

  for (const auto& layer : std::vector<std::shared_ptr<Module>>{std::make_shared<Dropout>(1), std::make_shared<Dropout2d>(1),
                                                                std::make_shared<AlphaDropout>(1)})
    CHECK((*layer)(ones({2, 3, 4})).abs().max().item<float>() == 0);
}

TEST_CASE("RReLU draws slopes between its bounds while training") {
  manual_seed(4);
  RReLU layer({.lower = 0.25, .upper = 0.5});
  const Tensor y = layer(full({1000}, -1.0));
  CHECK(y.min().item<float>() >= -0.5f);
  CHECK(y.max().item<float>() <= -0.25f);
  CHECK(y.max().item<float>() - y.min().item<float>() > 0.24f);
  layer.eval();
  CHECK((layer(full({3}, -1.0)) == -0.375).all().item<bool>());
}

TEST_CASE("BatchNorm: running statistics move in training alone, and reset") {
  BatchNorm1d layer(2);
  const Tensor x = tensor({1, 2, 3, 4, 5, 9}, {3, 2});
  layer(x);
  CHECK(layer.running_mean.to_vector<float>() == std::vector<float>{0.3f, 0.5f});
  CHECK(layer.num_batches_tracked.item<int64_t>() == 1);
  const std::vector<float> var = layer.running_var.to_vector<float>();
  layer.eval();
  layer(x);
  CHECK(layer.running_var.to_vector<float>() == var);
  CHECK(layer.num_batches_tracked.item<int64_t>() == 1);
  layer.reset_running_stats();
  CHECK(layer.running_mean.to_vector<float>() == std::vector<float>{0, 0});
  CHECK(layer.running_var.to_vector<float>() == std::vector<float>{1, 1});
  CHECK(layer.num_batches_tracked.item<int64_t>() == 0);
  layer.train();
  CHECK_THROWS_AS(layer(ones({1, 2})), ValueError);  // one value per channel
  CHECK(!BatchNorm1d(2, {.momentum = std::nullopt}).is_recordable());
}

TEST_CASE("Embedding: padding row, pretrained rows shared and frozen") {
  manual_seed(5);
  Embedding layer(4, 3, {.padding_idx = -1});
  CHECK((layer.weight.select(0, 3) == 0.0).all().item<bool>());
  CHECK(layer.weight.narrow(0, 0, 3).abs().min().item<float>() > 0);
  layer(from_vector(std::vector<int64_t>{3, 0}, {2})).sum().backward();
  CHECK(layer.weight.grad().sum({1}).to_vector<float>() == std::vector<float>{3, 0, 0, 0});

  const Tensor rows = ones({4, 3});
  const auto frozen = Embedding::from_pretrained(rows, true, {.padding_idx = 0});
  CHECK(frozen->weight.shares_memory_with(rows));
  CHECK(!frozen->weight.requires_grad());
  CHECK((frozen->weight == 1.0).all().item<bool>());  // the padding row is as given
  CHECK(Embedding::from_pretrained(ones({4, 3}), false)->weight.requires_grad());
}

TEST_CASE("losses of several inputs are their ops") {
  manual_seed(6);
  const Tensor a = randn({5, 3}), p = randn({5, 3}), n = randn({5, 3}), y = tensor({1.0, -1, 1, 1, -1});
  const auto distance = [](const Tensor& u, const Tensor& v) { return norm(u - v + 1e-6, 2, {1}); };
  for (bool swap : {false, true}) {
    const TripletMarginLoss op{{.margin = 0.5, .swap = swap}};
    const TripletMarginWithDistanceLoss own{distance, 0.5, swap};
    CHECK(std::abs(op(a, p, n).item<float>() - own(a, p, n).item<float>()) < 1e-5f);
  }
  CHECK(TripletMarginWithDistanceLoss{.margin = 0.5}(a, p, n).item<float>() ==
        doctest::Approx(TripletMarginLoss{{.margin = 0.5}}(a, p, n).item<float>()));
  CHECK(TripletMarginWithDistanceLoss{.distance = nullptr, .margin = 0.5}(a, p, n).item<float>() ==
        TripletMarginWithDistanceLoss{.margin = 0.5}(a, p, n).item<float>());
  CHECK_THROWS_AS(TripletMarginWithDistanceLoss{}(a, p, n[0]), ShapeError);
  CHECK_NOTHROW(TripletMarginWithDistanceLoss{}(a, p.slice(0, 0, 1), n));  // as in PyTorch
  // A weight is taken to more bits, and never to fewer.
  const Tensor scores = log_softmax(a, 1), classes = tensor({0, 1, 2, 0, 1});
  for (const DType dtype : {DType::f64, DType::i64, DType::boolean})
    CHECK_THROWS_AS(NLLLoss({.weight = ones({3}, {.dtype = dtype})})(scores, classes), DTypeError);
  CHECK(NLLLoss({.weight = ones({3})})(scores.to(DType::f64), classes).dtype() == DType::f64);
  CHECK((PairwiseDistance{.p = 1, .keepdim = true}(a, p) == pairwise_distance(a, p, 1, 1e-6, true)).all().item<bool>());
  CHECK((CosineSimilarity{.dim = 0}(a, p) == cosine_similarity(a, p, 0)).all().item<bool>());
  CHECK(CosineEmbeddingLoss{.margin = 0.2}(a, p, y).item<float>() == cosine_embedding_loss(a, p, y, 0.2).item<float>());
  CHECK(MarginRankingLoss{.margin = 0.2}(a.select(1, 0), p.select(1, 0), y).item<float>() ==
        margin_ranking_loss(a.select(1, 0), p.select(1, 0), y, 0.2).item<float>());
  CHECK(GaussianNLLLoss{{.full = true}}(a, p, n.abs()).item<float>() ==
        gaussian_nll_loss(a, p, n.abs(), {.full = true}).item<float>());
  const Tensor log_probs = log_softmax(randn({6, 1, 4}), -1), targets = from_vector(std::vector<int64_t>{1, 2}, {1, 2});
  const Tensor six = from_vector(std::vector<int64_t>{6}, {1}), two = from_vector(std::vector<int64_t>{2}, {1});
  CHECK(CTCLoss{}(log_probs, targets, six, two).item<float>() == ctc_loss(log_probs, targets, six, two).item<float>());
}

TEST_CASE("SyncBatchNorm is a batch norm of any rank with sync") {
  SyncBatchNorm norm(3);
  CHECK(norm.syncs());
  CHECK(norm.describe().find("SyncBatchNorm(3, eps=1e-05, momentum=0.1, affine=True") == 0);
  CHECK(norm.describe().find("sync=") == std::string::npos);
  for (const Shape& shape : {Shape{4, 3}, Shape{4, 3, 2}, Shape{4, 3, 2, 2}, Shape{4, 3, 2, 2, 2}}) {
    const Tensor x = randn(shape);
    CHECK((norm(x) == batch_norm(x, {}, {}, {}, {}, true)).all().item<bool>());
  }
  CHECK_THROWS_AS(norm(ones({3})), ShapeError);
  Sequential model(Linear(2, 3), BatchNorm1d(3));
  SyncBatchNorm::convert_sync_batchnorm(model);
  int synced = 0;
  model.apply([&](Module& m) {
    if (const auto* const part = dynamic_cast<BatchNormNd*>(&m)) synced += part->syncs();
  });
  CHECK(synced == 1);
}

TEST_CASE("Repr writes numbers as Python does") {
  for (const auto& [value, text] : std::vector<std::pair<double, std::string>>{{1, "1.0"},
                                                                               {0.1, "0.1"},
                                                                               {1e-5, "1e-05"},
                                                                               {1.5e-7, "1.5e-07"},
                                                                               {0.0001, "0.0001"},
                                                                               {1.0 / 3, "0.3333333333333333"},
                                                                               {1e15, "1000000000000000.0"},
                                                                               {1e16, "1e+16"},
                                                                               {-2.5, "-2.5"},
                                                                               {0, "0.0"},
                                                                               {HUGE_VAL, "inf"}})
    CHECK(Repr::python(value) == text);
  CHECK(Repr::python(Dims{3}) == "(3,)");
  CHECK(Repr::python(Sizes(3)) == "3");
  CHECK(Repr::python(Sizes{3, 2}) == "(3, 2)");
}
