// SPDX-License-Identifier: Apache-2.0
#include "framework/data/loading/sampler.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <set>

#include "framework/backend/backend.h"
#include "framework/base/check.h"
#include "framework/data/loading/loader.h"
#include "framework/data/loading/subsets.h"
#include "framework/data/sets/tensor_dataset.h"
#include "framework/data/transforms/statistics.h"
#include "framework/ops/ops.h"
#include "tests/io/files.h"

using namespace halfstep;
using namespace halfstep::testing;

TEST_CASE("WeightedSampler: draws by weight, as a function of seed and epoch") {
  constexpr int64_t kDraws = 60000;
  const std::vector<double> weights = {0, 1, 2, 0, 3, 0};
  const WeightedSampler sampler(weights, kDraws);
  CHECK(sampler.size() == kDraws);
  CHECK(sampler.data_size() == 6);
  const std::vector<int64_t> order = sampler.order(3, 5);
  CHECK(order == sampler.order(3, 5));
  CHECK(order != sampler.order(3, 6));
  CHECK(order != sampler.order(4, 5));
  std::vector<int64_t> count(6);
  for (const int64_t i : order) ++count.at(size_t(i));
  for (size_t i = 0; i < 6; ++i) {
    const double p = weights[i] / 6;
    CHECK(std::abs(double(count[i]) - p * kDraws) <= 4.5 * std::sqrt(kDraws * p * (1 - p)));
  }
  CHECK(balanced_weights(std::vector<int64_t>{7, 7, 7, 1}) == std::vector<double>{1 / 3.0, 1 / 3.0, 1 / 3.0, 1});
  CHECK(contains(message_of<ValueError>([] { WeightedSampler({1, -1}); }), "weights must be numbers >= 0, got -1"));
  CHECK(contains(message_of<ValueError>([] { WeightedSampler({0, 0}); }), "must have a positive sum, got 0"));
  CHECK(contains(message_of<ValueError>([] {
                   WeightedSampler({1, 0, 1}, 3, false);
                 }),
                 "without replacement 3 draws need as many positive weights, got 2"));
}

TEST_CASE("balanced_weights: labels that losses ignore are not drawn") {
  CHECK(balanced_weights(std::vector<int64_t>{1, -100, 0, 1}) == std::vector<double>{0.5, 0, 1, 0.5});
  CHECK(balanced_weights(std::vector<int64_t>{1, 7, 7, 1}, 7) == std::vector<double>{0.5, 0, 0, 0.5});
}

TEST_CASE("WeightedSampler without replacement: each sample once, the first by weight") {
  const WeightedSampler sampler({1, 2, 3, 0}, 3, false);
  constexpr int64_t kEpochs = 6000;
  std::vector<int64_t> first(4);
  for (int64_t epoch = 0; epoch < kEpochs; ++epoch) {
    const std::vector<int64_t> order = sampler.order(1, epoch);
    CHECK(std::set<int64_t>(order.begin(), order.end()) == std::set<int64_t>{0, 1, 2});
    ++first.at(size_t(order[0]));
  }
  for (size_t i = 0; i < 3; ++i) {
    const double p = double(i + 1) / 6;
    CHECK(std::abs(double(first[i]) - p * kEpochs) <= 4.5 * std::sqrt(kEpochs * p * (1 - p)));
  }
}

TEST_CASE("BucketSampler: batches of nearly one length, in a random order") {
  std::vector<int64_t> lengths;
  for (int64_t i = 0; i < 1003; ++i) lengths.push_back(i * 7919 % 200);
  const BucketSampler sampler(lengths, 10, 50);
  const std::vector<int64_t> order = sampler.order(2, 0);
  CHECK(order == sampler.order(2, 0));
  CHECK(order != sampler.order(2, 1));
  std::vector<int64_t> sorted = order;
  std::sort(sorted.begin(), sorted.end());
  for (int64_t i = 0; i < 1003; ++i) CHECK(sorted[size_t(i)] == i);
  int64_t spread = 0;
  std::vector<int64_t> firsts;
  for (size_t from = 0; from + 10 <= order.size(); from += 10) {
    const auto [low, high] = std::minmax_element(order.begin() + int64_t(from), order.begin() + int64_t(from) + 10,
                                                 [&](int64_t a, int64_t b) { return lengths[size_t(a)] < lengths[size_t(b)]; });
    spread = std::max(spread, lengths[size_t(*high)] - lengths[size_t(*low)]);
    firsts.push_back(lengths[size_t(*low)]);
  }
  CHECK(spread <= 12);  // of 200
  CHECK(!std::is_sorted(firsts.begin(), firsts.end()));
  CHECK(contains(message_of<ValueError>([] { BucketSampler({1}, 0); }), "at least 1, got 0 and 100"));
  CHECK(BucketSampler({}, 4).order(0, 0).empty());
}

TEST_CASE("BucketSampler: the incomplete batch has neighbours in length, and other ones in each epoch") {
  using Ints = std::vector<int64_t>;
  constexpr int64_t kEpochs = 400;
  for (const int64_t window : {1, 100}) {
    Ints lengths;
    for (int64_t i = 0; i < 11; ++i) lengths.push_back(i * 7 % 11);  // 0 to 10, mixed
    const BucketSampler sampler(lengths, 4, window);
    DataLoader loader(std::make_shared<TensorDataset<>>(zeros({11, 1}), arange(11)),
                      {.batch_size = 4, .sampler = sampler, .drop_last = true, .seed = 3});
    Ints trained(11);  // by length
    for (int64_t epoch = 0; epoch < kEpochs; ++epoch) {
      while (const auto batch = loader.next())
        for (const int64_t i : batch->target.to_vector<int64_t>()) ++trained[size_t(lengths[size_t(i)])];
      const Ints order = sampler.order(3, epoch);
      Ints last;
      for (size_t i = 8; i < 11; ++i) last.push_back(lengths[size_t(order[i])]);
      if (window == 100) CHECK(last[2] - last[0] == 2);  // sorted, without one between them
    }
    for (const int64_t count : trained) {
      CHECK(count > kEpochs / 2);  // 8 of 11 by chance; at least 6 of 9
      CHECK(count < kEpochs);
    }
  }
}

TEST_CASE("DataLoader: a sampler decides on the samples, and resumes") {
  const Tensor x = arange(0, 40).reshape({40, 1}).to(DType::f32), y = arange(0, 40).to(DType::i64);
  const auto data = std::make_shared<TensorDataset<>>(x, y, 40);
  const auto sampler = std::make_shared<WeightedSampler>(std::vector<double>(40, 1.0), 90);
  const LoaderOptions options{.batch_size = 20, .shuffle = true, .sampler = sampler, .seed = 9, .num_workers = 2};
  DataLoader loader(data, options);
  CHECK(loader.size() == 5);
  std::vector<int64_t> seen;
  for (int64_t epoch = 0; epoch < 2; ++epoch) {
    while (const auto batch = loader.next())
      for (const int64_t i : batch->target.to_vector<int64_t>()) seen.push_back(i);
  }
  std::vector<int64_t> expected = sampler->order(9, 0), second = sampler->order(9, 1);
  expected.insert(expected.end(), second.begin(), second.end());
  CHECK(seen == expected);
  DataLoader resumed(data, options);
  resumed.set_state({1, 2});
  CHECK(resumed.next()->target.to_vector<int64_t>() == std::vector<int64_t>(second.begin() + 40, second.begin() + 60));
  const auto small = std::make_shared<WeightedSampler>(std::vector<double>{1.0});
  CHECK(contains(message_of<ValueError>([&] { DataLoader bad(data, {.sampler = small}); }),
                 "made for the data set's 40 samples, got one for 1"));
}

namespace {

// Adds a random number to each sample, whose input is its index.
struct Noise : Transform {
  Batch apply(const Batch& batch, const Draws& draws) const override {
    Batch out{batch.input.clone(), batch.target};
    if (batch.input.device().is_meta()) return out;
    for (size_t i = 0; i < draws.indices.size(); ++i)
      out.input.data_ptr<float>()[i] += float(SampleRandom(draws, i).uniform());
    return out;
  }
  bool is_random() const override { return true; }
};

struct DrawsOwn {
  int64_t size() const { return 12; }
  double get(int64_t i, Generator& random) const { return double(i) + rand({1}, {}, &random).item<double>() / 2; }
};

// The inputs of an epoch, in order.
template <class Loader, class F>
std::vector<double> epoch_of(Loader& loader, const F& values) {
  std::vector<double> out;
  while (const auto batch = loader.next())
    for (const double v : values(*batch)) out.push_back(v);
  return out;
}

}  // namespace

TEST_CASE("DataLoader: a sample that is drawn again has other random numbers, on any number of workers and ranks") {
  const Tensor x = arange(0, 12).reshape({12, 1}).to(DType::f32), y = arange(0, 12).to(DType::i64);
  const auto data = transformed(std::make_shared<TensorDataset<>>(x, y, 12), {std::make_shared<Noise>()}, 7);
  const auto sampler = std::make_shared<WeightedSampler>(std::vector<double>(12, 1.0), 60);
  const auto inputs = [](const Batch& b) { return b.input.to_vector<double>(); };
  const auto numbers = [](const Tensor& b) { return b.to_vector<double>(); };
  std::vector<double> first, own;
  for (const int workers : {0, 3}) {
    DataLoader loader(data, {.batch_size = 7, .sampler = sampler, .seed = 4, .num_workers = workers});
    DataLoader drawing(DrawsOwn(), {.batch_size = 7, .sampler = sampler, .seed = 4, .num_workers = workers});
    const std::vector<double> all = epoch_of(loader, inputs), drawn = epoch_of(drawing, numbers);
    CHECK(std::set<double>(all.begin(), all.end()).size() == 60);
    CHECK(std::set<double>(drawn.begin(), drawn.end()).size() == 60);
    if (workers == 0) first = all, own = drawn;
    CHECK(all == first);
    CHECK(drawn == own);
    DataLoader other(data, {.batch_size = 20, .sampler = sampler, .seed = 4, .num_workers = workers});
    CHECK(epoch_of(other, inputs) == first);
  }
  // Each rank's part of the first batch, through a subset of all.
  std::vector<int64_t> every(12);
  std::iota(every.begin(), every.end(), 0);
  std::vector<double> parts;
  for (const int rank : {0, 1}) {
    DataLoader part(subset(data, every), {.batch_size = 8, .sampler = sampler, .seed = 4, .rank = rank, .ranks = 2});
    for (const double v : inputs(*part.next())) parts.push_back(v);
  }
  CHECK(parts == std::vector<double>(first.begin(), first.begin() + 8));
  // The first draw of each has the numbers that it has without a sampler.
  const std::vector<int64_t> order = sampler->order(4, 0);
  const Batch plain = data->batch(order, 0);
  std::set<int64_t> seen;
  for (size_t i = 0; i < order.size(); ++i)
    CHECK((double(plain.input.data_ptr<float>()[i]) == first[i]) == seen.insert(order[i]).second);
  const auto once = std::make_shared<WeightedSampler>(std::vector<double>(12, 1.0), 12, false);
  DataLoader without(data, {.batch_size = 5, .sampler = once, .seed = 4});
  CHECK(epoch_of(without, inputs) == data->batch(once->order(4, 0), 0).input.to_vector<double>());
}

TEST_CASE("Subset: a sample that is listed several times has random numbers of its own at each place") {
  const Tensor x = arange(0, 4).reshape({4, 1}).to(DType::f32), y = arange(0, 4).to(DType::i64);
  const auto data = transformed(std::make_shared<TensorDataset<>>(x, y, 4), {std::make_shared<Noise>()}, 7);
  const auto inputs = [](const Batch& b) { return b.input.to_vector<double>(); };
  const Subset<Dataset> part(data, {2, 0, 2, 2, 1, 0});
  DataLoader loader(part, {.batch_size = 4, .num_workers = 2});
  const std::vector<double> first = epoch_of(loader, inputs), second = epoch_of(loader, inputs);
  CHECK(std::set<double>(first.begin(), first.end()).size() == 6);
  CHECK(first != second);
  CHECK(first == inputs(part.batch(std::vector<int64_t>{0, 1, 2, 3, 4, 5})));
  // The first of each has the numbers that it has alone; a part of a part, and draws of a sampler, have others again.
  CHECK(inputs(part.batch(std::vector<int64_t>{1, 4})) == inputs(data->batch(std::vector<int64_t>{0, 1}, 0)));
  const Subset<Dataset> twice(part, {0, 2, 2, 0, 1});
  const std::vector<double> of_part = inputs(twice.batch(std::vector<int64_t>{0, 1, 2, 3, 4}, 1));
  CHECK(std::set<double>(of_part.begin(), of_part.end()).size() == 5);
  DataLoader drawn(part, {.batch_size = 5, .sampler = WeightedSampler(std::vector<double>(6, 1.0), 30), .seed = 1});
  const std::vector<double> all = epoch_of(drawn, inputs);
  CHECK(std::set<double>(all.begin(), all.end()).size() == 30);
}

TEST_CASE("ConcatDataset: transforms of its parts have random numbers of their own for each sample and epoch") {
  const Tensor x = zeros({3, 1}), y = arange(0, 3).to(DType::i64);
  const std::shared_ptr<const Dataset> data =
      transformed(std::make_shared<TensorDataset<>>(x, y, 3), {std::make_shared<Noise>()}, 7);
  std::vector<double> before;
  for (const int workers : {0, 2}) {
    DataLoader loader(ConcatDataset(data, data), {.batch_size = 4, .seed = 3, .num_workers = workers});
    std::vector<double> all;
    for (int epoch = 0; epoch < 2; ++epoch)
      for (const double v : epoch_of(loader, [](const auto& b) { return b.first.template to_vector<double>(); })) all.push_back(v);
    CHECK(std::set<double>(all.begin(), all.end()).size() == 12);
    if (workers > 0) CHECK(all == before);
    before = all;
  }
  CHECK(ConcatDataset(data).get(2).first.to_vector<double>() == data->get(2).first.to_vector<double>());
}

TEST_CASE("channel_statistics: against the formulas, with what is not finite set apart") {
  const Tensor x = Tensor::empty({700, 2, 3}), y = zeros({700, 1});
  std::vector<double> second;
  for (int64_t i = 0; i < x.numel(); ++i) {
    const bool first = i / 3 % 2 == 0;
    const double v = first ? 1e4 + double(i % 7) : double(i * i % 101) - 50;
    x.data_ptr<float>()[i] = float(v);
    if (!first) second.push_back(v);
  }
  x.data_ptr<float>()[0] = NAN;
  x.data_ptr<float>()[1] = -INFINITY;
  x.data_ptr<float>()[6 * 699] = INFINITY;
  const TensorDataset data(x, y);
  const auto found = channel_statistics(data);
  REQUIRE(found.size() == 2);
  CHECK((found[0].nan == 1 && found[0].inf == 2 && found[0].count == 2097 && found[1].count == 2100 && found[1].nan == 0));
  CHECK(found[0].low == 1e4);
  CHECK(found[0].high == 1e4 + 6);
  CHECK(found[0].std == doctest::Approx(2).epsilon(0.01));
  double mean = 0, squares = 0;
  for (const double v : second) mean += v / 2100;
  for (const double v : second) squares += (v - mean) * (v - mean) / 2100;
  CHECK(found[1].mean == doctest::Approx(mean).epsilon(1e-12));
  CHECK(found[1].std == doctest::Approx(std::sqrt(squares)).epsilon(1e-12));
  CHECK(contains(message_of<ValueError>([&] { class_labels(data); }), "needs data with one class a sample"));
}

TEST_CASE("channel_statistics: of some samples, and the same bits on any number of threads") {
  const Tensor x = Tensor::empty({300, 3, 70, 70}), y = zeros({300, 1});
  for (int64_t i = 0; i < x.numel(); ++i) x.data_ptr<float>()[i] = float(i * 7919 % 1013) / 1013;
  const TensorDataset data(x, y);
  const int before = num_threads();
  std::vector<ChannelStatistics> found[2];
  std::vector<int64_t> done;
  for (const int threads : {1, 3}) {
    set_num_threads(threads);
    found[threads / 3] = channel_statistics(data, {}, [&](int64_t n) { done.push_back(n); });
  }
  set_num_threads(before);
  for (size_t c = 0; c < 3; ++c) CHECK((found[0][c].mean == found[1][c].mean && found[0][c].std == found[1][c].std));
  CHECK(done.back() == 300);
  CHECK(found[0][0].count == 300 * 4900);
  CHECK(found[0][0].mean == doctest::Approx(0.5).epsilon(0.01));
  const std::vector<int64_t> some{5, 299};
  const auto part = channel_statistics(data, some);
  double sum = 0;
  for (const int64_t i : some)
    for (int64_t k = 0; k < 4900; ++k) sum += double(x.data_ptr<float>()[(i * 3 + 2) * 4900 + k]);
  CHECK(part[2].count == 9800);
  CHECK(part[2].mean == doctest::Approx(sum / 9800).epsilon(1e-12));
}
