// SPDX-License-Identifier: Apache-2.0
// Parts of a data set for training and validation, as the keys "range", "fold", "stratified" and train.overfit_batches of a config
// cut them. A part is a pure function of its arguments: a program and a config with one seed get the same samples.
//   auto train = split_dataset(all, {.end = 0.8, .stratified = true, .seed = 1});
//   auto val = split_dataset(all, {.begin = 0.8, .stratified = true, .seed = 1});
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "framework/base/options.h"
#include "framework/data/sets/dataset.h"

namespace halfstep {

// Fold k of `folds` folds, which differ in size by at most one sample; others: all folds but k, for training.
struct DataFold {
  int64_t k = 0, folds = 2;
  bool others = false;
};

// Returns the part [begin, end) of a struct as one option.
template <class O>
Option<O> range_of(std::string doc) {
  return {
      {.name = "range", .doc = std::move(doc), .kind = OptionKind::numbers, .count = 2, .least = 0, .most = 1, .item = "fraction"},
      [](const O& o) {
        return std::vector{o.begin, o.end};
      },
      [](O& o, const OptionValue& value) {
        const auto* const pair = std::get_if<std::vector<double>>(&value);
        return pair && pair->size() == 2 && (o.begin = (*pair)[0], o.end = (*pair)[1], true);
      }};
}
// Returns the same for a part of a file, in its order.
template <class O>
Option<O> range_of_file() {
  return range_of<O>("the part of the file, [from, to), in its order");
}
// Throws ValueError, naming `owner`, unless 0 <= begin < end <= 1.
void check_range(const char* owner, double begin, double end);

struct SplitOptions {
  double begin = 0, end = 1;       // the part [begin, end) of the samples in a seeded order
  std::optional<DataFold> fold{};  // used instead of begin and end
  bool stratified = false;         // each part has each class in its share
  uint64_t seed = 0;               // of the order
  bool is_whole() const { return !fold && begin == 0 && end == 1; }
  static const OptionList<SplitOptions>& list();
};
// Returns "the part [0, 0.8)" or "fold 2 of 5".
std::string text(const SplitOptions& options);

// Returns the samples of a part of `size` samples, ascending. Parts that share no fraction share no sample. `classes`: the class
// of each sample, for a stratified part. Throws ValueError unless 0 <= begin <= end <= 1 and 0 <= k < folds, and for a stratified
// part without classes.
std::vector<int64_t> split_indices(int64_t size, const SplitOptions& options, std::span<const int64_t> classes = {});
// Returns the same samples of a data set; stratified by its class_labels.
std::shared_ptr<Dataset> split_dataset(std::shared_ptr<const Dataset> base, const SplitOptions& options = {});

// Returns the samples of the first batches, for a model to overfit: in the data's order or, with a seed, in that of
// permutation(size, seed).
std::shared_ptr<Dataset> first_batches(std::shared_ptr<const Dataset> base, int64_t batches, int64_t batch_size,
                                       std::optional<uint64_t> seed = {});

// Returns the seeded order that is cut into parts.
std::vector<int64_t> split_order(int64_t n, uint64_t seed);
// Returns a seeded order of samples with these classes in which every stretch has its share of each class: of a class with m of n
// samples, a stretch of s has s m / n, off by at most 1.
std::vector<int64_t> stratified_order(std::span<const int64_t> labels, uint64_t seed);

}  // namespace halfstep
