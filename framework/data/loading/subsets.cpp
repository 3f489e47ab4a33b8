// SPDX-License-Identifier: Apache-2.0
#include "framework/data/loading/subsets.h"

#include <cmath>
#include <unordered_map>

#include "framework/base/check.h"
#include "framework/data/loading/permutation.h"
#include "framework/data/sets/split.h"
#include "framework/data/transforms/data_form.h"

namespace halfstep {
namespace samples {
namespace {

constexpr const char* kSplit = "random_split";

// Cuts a seeded order of `size` samples into parts of these lengths.
std::vector<std::vector<int64_t>> cut_order(int64_t size, const std::vector<int64_t>& lengths, Generator* generator) {
  Generator& source = generator ? *generator : default_generator();
  std::vector<int64_t> order;
  if (source.kind() == GeneratorKind::mt19937)
    source.with_twister([&](Twister& t) { order = t.permutation(size); });  // as torch.utils.data.random_split
  else
    order = split_order(size, drawn_seed(source));
  std::vector<std::vector<int64_t>> out;
  auto at = order.begin();
  for (const int64_t n : lengths) {
    out.emplace_back(at, at + n);
    at += n;
  }
  return out;
}

}  // namespace

void check_index(const char* where, int64_t i, int64_t size) {
  check<IndexError>(i >= 0 && i < size, where, "a sample index must be in [0, ", size, "), got ", i);
}

std::vector<int64_t> checked_indices(std::vector<int64_t> indices, int64_t size) {
  for (const int64_t i : indices) {
    check<IndexError>(i >= 0 && i < size, "subset", "indices must be in [0, ", size, "), got ", i);
  }
  return indices;
}

std::vector<int64_t> at_indices(const std::vector<int64_t>& list, std::span<const int64_t> indices) {
  std::vector<int64_t> out;
  out.reserve(indices.size());
  for (const int64_t i : indices) {
    check_index("Dataset", i, int64_t(list.size()));
    out.push_back(list[size_t(i)]);
  }
  return out;
}

std::vector<std::vector<int64_t>> split(int64_t size, std::vector<int64_t> lengths, Generator* generator) {
  int64_t sum = 0;
  for (const int64_t n : lengths) {
    check<ValueError>(n >= 0 && n <= size, kSplit, "lengths must be in [0, ", size, "], got ", n);
    sum += n;
  }
  check<ValueError>(sum == size, kSplit, "lengths must sum to the data set's ", size, " samples, got ", sum,
                    Help{"fractions are floating-point numbers, {0.8, 0.2}"});
  return cut_order(size, lengths, generator);
}

std::vector<std::vector<int64_t>> split(int64_t size, std::vector<double> fractions, Generator* generator) {
  double sum = 0;
  for (const double f : fractions) {
    check<ValueError>(f >= 0 && f <= 1, kSplit, "fractions must be in [0, 1], got ", f, Help{"lengths are integers, {800, 200}"});
    sum += f;
  }
  constexpr double kRounding = 1e-9;  // of a sum of fractions such as 0.7 + 0.2 + 0.1
  check<ValueError>(std::abs(sum - 1) <= kRounding, kSplit, "fractions must sum to 1, got ", sum);
  std::vector<int64_t> lengths;
  int64_t left = size;
  for (const double f : fractions) {
    lengths.push_back(int64_t(std::floor(double(size) * f)));
    left -= lengths.back();
  }
  for (size_t k = 0; left > 0; k = (k + 1) % lengths.size(), --left) ++lengths[k];
  return cut_order(size, lengths, generator);
}

}  // namespace samples

Subset<Dataset>::Subset(std::shared_ptr<const Dataset> base, std::vector<int64_t> indices) : base_(std::move(base)) {
  check<ValueError>(base_ != nullptr, "subset", "needs a data set");
  indices_ = samples::checked_indices(std::move(indices), base_->size());
  std::unordered_map<int64_t, int64_t> counts;
  for (const int64_t i : indices_) earlier_.push_back(counts[i]++);
  if (counts.size() == indices_.size()) earlier_.clear();
  for (size_t k = 0; k < earlier_.size(); ++k) occurrences_.push_back(counts[indices_[k]]);
}

DataForm Subset<Dataset>::form() const { return base_->form(); }

Batch Subset<Dataset>::batch(std::span<const int64_t> indices) const { return batch(indices, 0, {}); }
Batch Subset<Dataset>::batch(std::span<const int64_t> indices, int64_t epoch) const { return batch(indices, epoch, {}); }
Batch Subset<Dataset>::batch(std::span<const int64_t> indices, int64_t epoch, std::span<const int64_t> repeats) const {
  const std::vector<int64_t> base_indices = samples::at_indices(indices_, indices);
  if (earlier_.empty()) return base_->batch(base_indices, epoch, repeats);
  std::vector<int64_t> base_repeats;
  for (size_t k = 0; k < indices.size(); ++k) {
    const size_t place = size_t(indices[k]);
    base_repeats.push_back((repeats.empty() ? 0 : repeats[k]) * occurrences_[place] + earlier_[place]);
  }
  return base_->batch(base_indices, epoch, base_repeats);
}
std::optional<ByteRows> Subset<Dataset>::byte_rows(std::span<const int64_t> indices) const {
  return base_->byte_rows(samples::at_indices(indices_, indices));
}

std::vector<int64_t> Subset<Dataset>::in_subset(const std::vector<int64_t>& all) const {
  std::vector<int64_t> out;
  for (const int64_t i : indices_) {
    if (!all.empty()) out.push_back(all[size_t(i)]);
  }
  return out;
}

std::string Subset<Dataset>::describe() const { return joined(size(), " samples of: ", base_->describe()); }

std::shared_ptr<Dataset> subset(std::shared_ptr<const Dataset> base, std::vector<int64_t> indices) {
  return std::make_shared<Subset<Dataset>>(std::move(base), std::move(indices));
}

}  // namespace halfstep
