// SPDX-License-Identifier: Apache-2.0
#include "framework/data/sets/split.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>
#include <utility>

#include "framework/base/check.h"
#include "framework/data/loading/permutation.h"
#include "framework/data/transforms/statistics.h"

namespace halfstep {
namespace {

constexpr const char* kOp = "split";

// Returns the number of samples in a fraction of n, rounded so that 0.3 of 10 is 3 although 0.3 * 10 may be a little less.
int64_t end_of(double fraction, int64_t n) {
  constexpr double kRounding = 1e-9;
  return std::min(n, int64_t(std::floor(fraction * double(n) + kRounding * double(n))));
}

Option<SplitOptions> fold_option() {
  using O = SplitOptions;
  return {{.name = "fold",
           .doc = "[k, K]: split into K parts by the seed; data.train has all parts but k, data.val and data.test have part k",
           .kind = OptionKind::numbers,
           .count = 2,
           .whole = true,
           .least = 0,
           .most = 1e9},
          [](const O& o) {
            return o.fold ? OptionValue(std::vector{double(o.fold->k), double(o.fold->folds)}) : OptionValue();
          },
          [](O& o, const OptionValue& value) {
            const auto* const pair = std::get_if<std::vector<double>>(&value);
            return pair && pair->size() == 2 && (o.fold = {int64_t((*pair)[0]), int64_t((*pair)[1])}, true);
          }};
}

}  // namespace

HALFSTEP_OPTIONS(SplitOptions, range_of<O>("the part of a seeded split, [from, to)"), fold_option(),
                 option("stratified", &O::stratified, "every part of a split has the same proportions of the classes"))

void check_range(const char* owner, double begin, double end) {
  check<ValueError>(0 <= begin && begin < end && end <= 1, owner, "a part must be [a, b) with 0 <= a < b <= 1, got [", begin, ", ",
                    end, ')');
}

std::string text(const SplitOptions& o) {
  if (!o.fold) return joined("the part [", o.begin, ", ", o.end, ')');
  return joined(o.fold->others ? "all folds but " : "fold ", o.fold->k, " of ", o.fold->folds);
}

std::vector<int64_t> split_order(int64_t n, uint64_t seed) {
  constexpr uint64_t kSplitStream = 0xffffffff;  // not that of an epoch
  return permutation(n, seed, kSplitStream);
}

std::vector<int64_t> stratified_order(std::span<const int64_t> labels, uint64_t seed) {
  std::map<int64_t, std::vector<int64_t>> members;  // of each class, in the seeded order
  for (const int64_t i : split_order(int64_t(labels.size()), seed)) members[labels[size_t(i)]].push_back(i);
  std::vector<std::pair<double, int64_t>> places;  // in [0, 1), over which each class is spread evenly; and the sample
  for (const auto& [label, samples] : members) {
    for (size_t j = 0; j < samples.size(); ++j) places.emplace_back((double(j) + 0.5) / double(samples.size()), samples[j]);
  }
  std::sort(places.begin(), places.end());
  std::vector<int64_t> out;
  for (const auto& [place, i] : places) out.push_back(i);
  return out;
}

std::vector<int64_t> split_indices(int64_t size, const SplitOptions& o, std::span<const int64_t> classes) {
  double begin = o.begin, end = o.end;
  if (o.fold) {
    const auto [k, folds, others] = *o.fold;
    check<ValueError>(0 <= k && k < folds, kOp, "a fold must be k of folds with 0 <= k < folds, got ", k, " of ", folds);
    begin = double(k) / double(folds), end = double(k + 1) / double(folds);
  }
  check<ValueError>(0 <= begin && begin <= end && end <= 1, kOp, "a part must be [a, b) with 0 <= a <= b <= 1, got [", begin, ", ",
                    end, ')');
  check<ValueError>(!o.stratified || int64_t(classes.size()) == size, kOp, "a stratified part needs the class of each of the ",
                    size, " samples, got ", classes.size(), " classes", Help{"leave out stratified for data without classes"});
  const std::vector<int64_t> order = o.stratified ? stratified_order(classes, o.seed) : split_order(size, o.seed);
  const auto from = order.begin() + end_of(begin, size), to = order.begin() + end_of(end, size);
  std::vector<int64_t> out(from, to);
  if (o.fold && o.fold->others) {
    out.assign(order.begin(), from);
    out.insert(out.end(), to, order.end());
  }
  std::sort(out.begin(), out.end());
  return out;
}

std::shared_ptr<Dataset> split_dataset(std::shared_ptr<const Dataset> base, const SplitOptions& options) {
  check<ValueError>(base != nullptr, kOp, "needs a data set");
  std::vector<int64_t> classes;
  if (options.stratified) classes = class_labels(*base);
  auto part = split_indices(base->size(), options, classes);
  return subset(std::move(base), std::move(part));
}

std::shared_ptr<Dataset> first_batches(std::shared_ptr<const Dataset> base, int64_t batches, int64_t batch_size,
                                       std::optional<uint64_t> seed) {
  check<ValueError>(base != nullptr, "first_batches", "needs a data set");
  check<ValueError>(batches > 0 && batch_size > 0, "first_batches", "batches and their size must be positive, got ", batches,
                    " of ", batch_size);
  const int64_t size = base->size();
  std::vector<int64_t> samples(static_cast<size_t>(size));
  std::iota(samples.begin(), samples.end(), 0);
  if (seed) samples = permutation(size, *seed);
  if (batches <= size / batch_size) samples.resize(size_t(batches * batch_size));
  return subset(std::move(base), std::move(samples));
}

}  // namespace halfstep
