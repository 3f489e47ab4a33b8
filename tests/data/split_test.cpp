// SPDX-License-Identifier: Apache-2.0
#include "framework/data/sets/split.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <cstdint>
#include <cmath>
#include <memory>
#include <numeric>
#include <optional>
#include <utility>
#include <vector>

#include "framework/data/loading/permutation.h"
#include "framework/data/sets/digits.h"
#include "framework/data/sets/picture_statistics.h"
#include "framework/data/sets/tensor_dataset.h"
#include "framework/data/transforms/statistics.h"
#include "framework/ops/ops.h"
#include "tests/io/files.h"

using namespace halfstep;
using namespace halfstep::testing;

namespace {

using Indices = std::vector<int64_t>;

Indices first_numbers(int64_t n) {
  Indices out(static_cast<size_t>(n));
  std::iota(out.begin(), out.end(), 0);
  return out;
}

// Samples whose input is their number, in classes 0, 1, 0, 1, 1.
std::shared_ptr<TensorDataset<>> numbered(int64_t n) {
  Tensor classes = empty({n}, {.dtype = DType::i64});
  for (int64_t i = 0; i < n; ++i) classes.data_ptr<int64_t>()[i] = i % 5 == 0 || i % 5 == 2 ? 0 : 1;
  return std::make_shared<TensorDataset<>>(arange(n).to(DType::f32).view({n, 1}), classes);
}

Indices inputs_of(const Dataset& data) {
  Indices out;
  for (int64_t i = 0; i < data.size(); ++i) out.push_back(int64_t(data.get(i).first.item<float>()));
  return out;
}

}  // namespace

TEST_CASE("split_indices: parts are disjoint, ascending and complete") {
  const Indices a = split_indices(10, {.end = 0.3, .seed = 1}), b = split_indices(10, {.begin = 0.3, .end = 0.8, .seed = 1}),
                c = split_indices(10, {.begin = 0.8, .seed = 1});
  CHECK(a.size() == 3);
  CHECK(b.size() == 5);
  CHECK(c.size() == 2);
  Indices all;
  for (const Indices* part : {&a, &b, &c}) {
    CHECK(std::is_sorted(part->begin(), part->end()));
    all.insert(all.end(), part->begin(), part->end());
  }
  std::sort(all.begin(), all.end());
  CHECK(all == split_indices(10, {.seed = 99}));
  CHECK(split_indices(10, {.end = 0.3, .seed = 2}) != a);
  Indices order = split_order(10, 1);
  order.resize(3);
  std::sort(order.begin(), order.end());
  CHECK(order == a);
  CHECK(contains(message_of<ValueError>([] { split_indices(10, {.begin = 0.5, .end = 0.2}); }), "got [0.5, 0.2)"));
}

TEST_CASE("split_indices: folds hold out each sample once, and the others are all but those") {
  for (const bool stratified : {false, true}) {
    const Indices classes = numbered(23)->labels();
    Indices held_out;
    for (int64_t k = 0; k < 4; ++k) {
      SplitOptions options{.fold = DataFold{.k = k, .folds = 4}, .stratified = stratified, .seed = 3};
      const Indices fold = split_indices(23, options, classes);
      CHECK((fold.size() == 5 || fold.size() == 6));
      held_out.insert(held_out.end(), fold.begin(), fold.end());
      options.fold->others = true;
      Indices both = split_indices(23, options, classes);
      CHECK(std::is_sorted(both.begin(), both.end()));
      both.insert(both.end(), fold.begin(), fold.end());
      std::sort(both.begin(), both.end());
      CHECK(both == first_numbers(23));
    }
    std::sort(held_out.begin(), held_out.end());
    CHECK(held_out == first_numbers(23));
  }
  CHECK(text({.fold = DataFold{.k = 2, .folds = 5}}) == "fold 2 of 5");
  CHECK(text({.fold = DataFold{.k = 2, .folds = 5, .others = true}}) == "all folds but 2 of 5");
  CHECK(text({.end = 0.8}) == "the part [0, 0.8)");
  CHECK(contains(message_of<ValueError>([] { split_indices(9, {.fold = DataFold{.k = 3, .folds = 3}}); }), "got 3 of 3"));
}

TEST_CASE("stratified_order: every stretch has the classes in their shares") {
  std::vector<int64_t> labels;
  for (int64_t i = 0; i < 600; ++i) labels.push_back(i < 400 ? 2 : i < 570 ? 0 : 5);  // 400, 170, 30
  const std::vector<int64_t> order = stratified_order(labels, 4);
  CHECK(order != stratified_order(labels, 5));
  for (size_t from = 0; from < 600; from += 45) {
    for (const auto& share : {std::pair{2, 400}, {0, 170}, {5, 30}}) {
      const int label = share.first, all = share.second;
      const size_t to = std::min<size_t>(from + 101, 600);
      const auto n = std::count_if(order.begin() + int64_t(from), order.begin() + int64_t(to),
                                   [&](int64_t i) { return labels[size_t(i)] == label; });
      CHECK(std::abs(double(n) - double(all) * double(to - from) / 600) <= 1.5);
    }
  }
}

TEST_CASE("split_dataset: stratified parts have the classes of the data in their shares") {
  const auto all = numbered(50);
  const auto part = split_dataset(all, {.begin = 0.2, .end = 0.6, .stratified = true, .seed = 7});
  CHECK(part->size() == 20);
  CHECK(class_counts(*part) == Indices{8, 12});
  CHECK(inputs_of(*part) == split_indices(50, {.begin = 0.2, .end = 0.6, .stratified = true, .seed = 7}, all->labels()));
  const auto regression = std::make_shared<TensorDataset<>>(arange(4.0).view({4, 1}), arange(4.0).view({4, 1}));
  CHECK(split_dataset(regression, {.end = 0.5})->size() == 2);
  CHECK(contains(message_of<ValueError>([&] { split_dataset(regression, {.end = 0.5, .stratified = true}); }), "[class_labels]"));
  CHECK(contains(message_of<ValueError>([] { split_indices(4, {.end = 0.5, .stratified = true}); }),
                 "needs the class of each of the 4 samples, got 0 classes"));
}

TEST_CASE("first_batches: of the data's order, or of a seeded one") {
  const auto all = numbered(50);
  CHECK(inputs_of(*first_batches(all, 2, 8)) == first_numbers(16));
  Indices order = permutation(50, 5);
  order.resize(16);
  CHECK(inputs_of(*first_batches(all, 2, 8, 5)) == order);
  CHECK(inputs_of(*first_batches(all, 7, 8)) == first_numbers(50));
  CHECK(first_batches(all, INT64_MAX, 8)->size() == 50);
  CHECK(contains(message_of<ValueError>([&] { first_batches(all, 0, 8); }), "must be positive, got 0 of 8"));
}

TEST_CASE("normalize_from: the training data gets a mean of 0 and a deviation of 1, and constant channels only the mean") {
  const auto digits = std::make_shared<DigitsDataset>(DigitsOptions{.size = 60});
  const auto scaled = transformed(digits, {std::make_shared<NormalizeTransform>(normalize_from(*digits))});
  const ChannelStatistics after = channel_statistics(*scaled)[0];
  CHECK(std::abs(after.mean) < 1e-5);
  CHECK(std::abs(after.std - 1) < 1e-5);
  const auto constant = std::make_shared<TensorDataset<>>(full({5, 2}, 3.0), zeros({5}, {.dtype = DType::i64}));
  const std::optional<Normalize> same = normalize_from(*constant).as_normalize();
  CHECK(!same);  // one for each channel
  for (const float v : normalize_from(*constant)(full({5, 2}, 4.0)).to_vector<float>()) CHECK(v == 1);
}
