// SPDX-License-Identifier: Apache-2.0
// Parts and concatenations of data sets. All take any data set with a size (samples.h), by value or by std::shared_ptr, and share
// it without a copy.
//   auto [train, val] = random_split(MySet{...}, {0.8, 0.2});
//   DataLoader loader(train, {.batch_size = 32, .shuffle = true});
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <type_traits>
#include <utility>
#include <vector>

#include "framework/data/loading/sample_source.h"
#include "framework/data/loading/samples.h"
#include "framework/data/sets/dataset.h"

namespace halfstep {
namespace samples {

void check_index(const char* where, int64_t i, int64_t size);  // throws IndexError
// Returns the indices. Throws IndexError for one outside [0, size).
std::vector<int64_t> checked_indices(std::vector<int64_t> indices, int64_t size);
// Returns the elements of `list` at the indices. Throws IndexError.
std::vector<int64_t> at_indices(const std::vector<int64_t>& list, std::span<const int64_t> indices);
// Returns the indices of each part, by the rules of random_split.
std::vector<std::vector<int64_t>> split(int64_t size, std::vector<double> fractions, Generator* generator);
std::vector<std::vector<int64_t>> split(int64_t size, std::vector<int64_t> lengths, Generator* generator);

template <class D>
struct SetOf {
  using type = Erased<D>;
};
template <class D>
struct SetOf<std::shared_ptr<D>> {
  using type = Erased<D>;
};
template <class D>
using SetIn = typename SetOf<D>::type;
// Returns a data set that is given by value or by std::shared_ptr as the latter.
template <class D>
std::shared_ptr<const SetIn<D>> shared(D set) {
  if constexpr (std::is_convertible_v<D, std::shared_ptr<const SetIn<D>>>) {
    check_set(set != nullptr);
    return set;
  } else {
    return std::make_shared<const D>(std::move(set));
  }
}

}  // namespace samples

// The samples `indices` of a data set, in that order.
template <class Set>
class Subset {
  static_assert(samples::kIsMap<Set>, "Subset: a data set needs `int64_t size() const` and `Sample get(int64_t i) const`");

 public:
  // Throws IndexError for an index outside [0, size()).
  Subset(std::shared_ptr<const Set> set, std::vector<int64_t> indices)
      : set_(std::move(set)), indices_(samples::checked_indices(std::move(indices), int64_t(set_->size()))) {}
  template <class D>
  requires std::is_same_v<samples::SetIn<D>, Set> Subset(D set, std::vector<int64_t> indices)
      : Subset(samples::shared(std::move(set)), std::move(indices)) {}

  int64_t size() const { return int64_t(indices_.size()); }
  // Throw IndexError for i outside [0, size()).
  SampleOf<Set> get(int64_t i) const requires(!samples::GetDrawsNumbers<Set>) {
    Generator unused;
    return samples::get(*set_, index(i), 0, unused);
  }
  SampleOf<Set> get(int64_t i, Generator& random) const requires samples::GetDrawsNumbers<Set> {
    return set_->get(index(i), random);
  }
  auto get_batch(std::span<const int64_t> indices) const requires samples::HasGetBatch<Set> {
    return set_->get_batch(samples::at_indices(indices_, indices));
  }
  const Set& dataset() const { return *set_; }
  const std::vector<int64_t>& indices() const { return indices_; }

 private:
  int64_t index(int64_t i) const {
    samples::check_index("Subset", i, size());
    return indices_[size_t(i)];
  }

  std::shared_ptr<const Set> set_;
  std::vector<int64_t> indices_;
};

// For a class derived from Dataset: again a Dataset. A sample that is listed several times has random numbers of its own at each
// place, as one that a sampler draws again.
template <>
class Subset<Dataset> : public Dataset {
 public:
  Subset(std::shared_ptr<const Dataset> base, std::vector<int64_t> indices);  // throws ValueError for null, and as above
  template <class D>
  requires std::is_base_of_v<Dataset, D> Subset(D set, std::vector<int64_t> indices)
      : Subset(std::shared_ptr<const Dataset>(std::make_shared<const D>(std::move(set))), std::move(indices)) {}
  int64_t size() const override { return int64_t(indices_.size()); }
  Shape input_shape() const override { return base_->input_shape(); }
  Shape target_shape() const override { return base_->target_shape(); }
  int64_t classes() const override { return base_->classes(); }
  DType input_dtype() const override { return base_->input_dtype(); }
  int64_t vocabulary() const override { return base_->vocabulary(); }
  bool label_sequences() const override { return base_->label_sequences(); }
  ColumnScale target_scale() const override { return base_->target_scale(); }
  DataForm form() const override;
  Batch batch(std::span<const int64_t> indices) const override;
  Batch batch(std::span<const int64_t> indices, int64_t epoch) const override;
  Batch batch(std::span<const int64_t> indices, int64_t epoch, std::span<const int64_t> repeats) const override;
  std::optional<ByteRows> byte_rows(std::span<const int64_t> indices) const override;
  std::vector<int64_t> lengths() const override { return in_subset(base_->lengths()); }
  std::vector<int64_t> labels() const override { return in_subset(base_->labels()); }
  DataNotes notes() const override { return base_->notes(); }
  std::string describe() const override;
  const Dataset& dataset() const { return *base_; }
  const std::vector<int64_t>& indices() const { return indices_; }

 private:
  std::vector<int64_t> in_subset(const std::vector<int64_t>& all) const;

  std::shared_ptr<const Dataset> base_;
  std::vector<int64_t> indices_;
  // By position in indices_: how often its sample is listed before, and in all; empty if none is listed twice.
  std::vector<int64_t> earlier_, occurrences_;
};
template <class D>
Subset(D, std::vector<int64_t>) -> Subset<samples::SetIn<D>>;

// Splits a data set at random into disjoint parts: of these lengths, which must sum to its size, or, if they are floating-point
// numbers, of these fractions, which must sum to 1. A part has floor(size fraction) samples; the rest is given one each to the
// first parts. `generator`: for the order, null for default_generator(). Throws ValueError.
template <class D, class T, size_t n>
std::array<Subset<samples::SetIn<D>>, n> random_split(D set, const T (&parts)[n], Generator* generator = nullptr) {
  using Number = std::conditional_t<std::is_floating_point_v<T>, double, int64_t>;
  const auto shared = samples::shared(std::move(set));
  auto indices = samples::split(int64_t(shared->size()), std::vector<Number>(parts, parts + n), generator);
  return [&]<size_t... k>(std::index_sequence<k...>) {
    return std::array<Subset<samples::SetIn<D>>, n>{Subset<samples::SetIn<D>>(shared, std::move(indices[k]))...};
  }
  (std::make_index_sequence<n>());
}
// Does the same for any number of parts.
template <class D, class T>
std::vector<Subset<samples::SetIn<D>>> random_split(D set, const std::vector<T>& parts, Generator* generator = nullptr) {
  using Number = std::conditional_t<std::is_floating_point_v<T>, double, int64_t>;
  const auto shared = samples::shared(std::move(set));
  std::vector<Subset<samples::SetIn<D>>> out;
  for (auto& indices : samples::split(int64_t(shared->size()), std::vector<Number>(parts.begin(), parts.end()), generator))
    out.emplace_back(shared, std::move(indices));
  return out;
}

// Concatenates data sets with samples of one type. The samples of a class derived from Dataset are pairs of input and target, and
// `random` decides on the numbers of its transforms.
template <class Sample>
class ConcatDataset {
 public:
  template <class... D>
  requires(sizeof...(D) > 0 && (samples::kIsMap<samples::SetIn<D>> && ...)) explicit ConcatDataset(D... sets) {
    (add(samples::shared(std::move(sets))), ...);
  }
  template <class D>
  requires samples::kIsMap<samples::SetIn<D>>
  explicit ConcatDataset(std::vector<D> sets) {
    for (D& set : sets) add(samples::shared(std::move(set)));
  }

  int64_t size() const { return ends_.empty() ? 0 : ends_.back(); }
  // Throw IndexError for i outside [0, size()). Without `random`, a set that draws numbers gets those of a Generator(i), and
  // transforms have those of epoch 0.
  Sample get(int64_t i) const {
    Generator random{uint64_t(i)};
    return sample(i, random, false);
  }
  Sample get(int64_t i, Generator& random) const { return sample(i, random, true); }

 private:
  // draws: whether `random` decides on transforms.
  Sample sample(int64_t i, Generator& random, bool draws) const {
    samples::check_index("ConcatDataset", i, size());
    size_t set = 0;
    while (i >= ends_[set]) ++set;
    return getters_[set](set == 0 ? i : i - ends_[set - 1], random, draws);
  }
  template <class Set>
  void add(std::shared_ptr<const Set> set) {
    static_assert(std::is_same_v<SampleOf<Set>, Sample>, "ConcatDataset: the data sets must have samples of one type");
    ends_.push_back(size() + int64_t(set->size()));
    getters_.push_back([set](int64_t i, Generator& random, bool draws) -> Sample {
      const bool drawn = samples::IsDataset<Set> && draws;
      return samples::get(*set, i, 0, random, drawn ? int64_t(samples::drawn_seed(random) >> 1) : 0);
    });
  }

  std::vector<std::function<Sample(int64_t, Generator&, bool)>> getters_;  // by set
  std::vector<int64_t> ends_;                                              // by set: samples up to its last one
};
template <class D, class... Rest>
ConcatDataset(D, Rest...) -> ConcatDataset<SampleOf<samples::SetIn<D>>>;
template <class D>
requires samples::kIsMap<samples::SetIn<D>> ConcatDataset(std::vector<D>)
->ConcatDataset<SampleOf<samples::SetIn<D>>>;

}  // namespace halfstep
