// SPDX-License-Identifier: Apache-2.0
// The requirements on a data set, and how its samples become batches.
//
//   struct Pairs {
//     Tensor left, right, same;                                            // [N, ...], [N, ...], [N]
//     int64_t size() const { return left.size(0); }
//     auto get(int64_t i) const { return std::tuple{left.select(0, i), right.select(0, i), same.select(0, i)}; }
//   };
//   DataLoader loader(Pairs{...}, {.batch_size = 32, .shuffle = true});
//   for (auto [left, right, same] : loader) ...                            // [32, ...], [32, ...], [32]
//
// A data set is any type with `int64_t size() const` and `get(int64_t i) const`, also a std::vector of samples. With workers,
// several threads call get() at once. A set that draws random numbers has `get(int64_t i, Generator& random) const` instead: the
// generator's numbers are a function of the loader's seed, the epoch, i and how often i was drawn before in the epoch, so batches
// do not depend on the number of workers. A set that can fetch many samples faster than one by one also has
// `get_batch(std::span<const int64_t>) const`, which returns the whole batch.
//
// A stream has no size. It has `std::optional<Sample> next()`, or `next(Generator& random)`, which returns nothing at its end.
// Each epoch reads a fresh copy of the loader's stream; `void set_epoch(int64_t epoch)`, if it exists, is called first. One thread
// reads the stream: the loop's or, with workers, one that reads ahead.
//
// A sample is a Tensor, a number, a std::string, or a std::pair or std::tuple of those, also nested. A batch has the same
// structure:
//   Tensor [...]      Tensor [B, ...]                  of the same dtype and device; samples must agree in shape, dtype and device
//   int64_t, int ...  Tensor [B] i64
//   float             Tensor [B] f32
//   double            Tensor [B] f64
//   bool              Tensor [B] bool
//   std::string       std::vector<std::string>
//   pair, tuple       pair, tuple of batches
// Samples of any other type, or another kind of batch, need a `collate` (loader.h).
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include "framework/base/generator.h"
#include "framework/data/sets/dataset.h"

namespace halfstep {
namespace samples {

template <class Set>
concept GetDrawsNumbers = requires(const Set& s, Generator& g) {
  s.get(int64_t{}, g);
};
template <class Set>
concept HasGet = requires(const Set& s) {
  s.get(int64_t{});
};
template <class Set>
concept HasIndex = requires(const Set& s) {
  s[size_t{}];
};
template <class Set>
concept HasGetBatch = requires(const Set& s, std::span<const int64_t> indices) {
  s.get_batch(indices);
};
template <class Set>
concept Sized = requires(const Set& s) {
  int64_t(s.size());
};
template <class Set>
concept NextDrawsNumbers = requires(Set& s, Generator& g) {
  typename decltype(s.next(g))::value_type;
};
template <class Set>
concept HasNext = requires(Set& s) {
  typename decltype(s.next())::value_type;
};
template <class Set>
concept IsDataset = std::is_base_of_v<Dataset, Set>;

template <class Set>
inline constexpr bool kIsMap = IsDataset<Set> || (Sized<Set> && (GetDrawsNumbers<Set> || HasGet<Set> || HasIndex<Set>));
template <class Set>
inline constexpr bool kIsStream = !kIsMap<Set> && (NextDrawsNumbers<Set> || HasNext<Set>);

// Return sample i of a set, and the next one of a stream. before: how often it was drawn before in the epoch.
template <class Set>
decltype(auto) get(const Set& set, int64_t i, [[maybe_unused]] int64_t epoch, [[maybe_unused]] Generator& random,
                   [[maybe_unused]] const int64_t& before = 0) {
  if constexpr (IsDataset<Set>) {
    const Dataset& data = set;
    const Batch batch = data.batch(std::span<const int64_t>(&i, 1), epoch, std::span<const int64_t>(&before, 1));
    return std::pair<Tensor, Tensor>(batch.input.select(0, 0), batch.target.select(0, 0));
  } else if constexpr (GetDrawsNumbers<Set>) {
    return set.get(i, random);
  } else if constexpr (HasGet<Set>) {
    return set.get(i);
  } else {
    return set[size_t(i)];
  }
}
template <class Set>
auto next(Set& set, [[maybe_unused]] Generator& random) {
  if constexpr (NextDrawsNumbers<Set>) {
    return set.next(random);
  } else {
    return set.next();
  }
}

struct NoType {};  // the absence of a type
template <class Set>
auto sample_type() {
  if constexpr (kIsMap<Set>) {
    return std::type_identity<std::decay_t<decltype(get(std::declval<const Set&>(), 0, 0, std::declval<Generator&>()))>>{};
  } else if constexpr (kIsStream<Set>) {
    return std::type_identity<typename decltype(next(std::declval<Set&>(), std::declval<Generator&>()))::value_type>{};
  } else {
    return std::type_identity<NoType>{};
  }
}

template <class S>
struct Collated {
  using type = std::conditional_t<std::is_arithmetic_v<S>, Tensor, NoType>;
};
template <>
struct Collated<Tensor> {
  using type = Tensor;
};
template <>
struct Collated<std::string> {
  using type = std::vector<std::string>;
};
template <template <class...> class Row, class... S>
inline constexpr auto row_type() {
  if constexpr (sizeof...(S) > 0 && (!std::is_same_v<typename Collated<S>::type, NoType> && ...)) {
    return std::type_identity<Row<typename Collated<S>::type...>>{};
  } else {
    return std::type_identity<NoType>{};
  }
}
template <class... S>
struct Collated<std::tuple<S...>> : decltype(row_type<std::tuple, std::decay_t<S>...>()) {};
template <class A, class B>
struct Collated<std::pair<A, B>> : decltype(row_type<std::pair, std::decay_t<A>, std::decay_t<B>>()) {};

// The samples of a batch, and the part of them that is being assembled, for errors.
struct CollateContext {
  std::span<const int64_t> indices;
  const CollateContext* outer = nullptr;
  size_t element = 0;
};

// Return the batch of tensors, or of numbers. Throw like default_collate.
Tensor stack_rows(const Tensors& rows, const CollateContext& context);
Tensor column(const std::vector<int64_t>& values);
Tensor column(const std::vector<float>& values);
Tensor column(const std::vector<double>& values);
Tensor column_of_bools(const std::vector<int64_t>& values);

template <class S>
typename Collated<S>::type collate(std::vector<S>&& rows, const CollateContext& context);

template <class S, size_t... k>
typename Collated<S>::type collate_rows(std::vector<S>& rows, const CollateContext& context, std::index_sequence<k...>) {
  const auto element = [&]<size_t n>(std::integral_constant<size_t, n>) {
    std::vector<std::decay_t<std::tuple_element_t<n, S>>> elements;
    elements.reserve(rows.size());
    for (S& row : rows) elements.push_back(std::move(std::get<n>(row)));
    return collate(std::move(elements), {context.indices, &context, n});
  };
  return typename Collated<S>::type(element(std::integral_constant<size_t, k>{})...);
}

template <class S>
typename Collated<S>::type collate(std::vector<S>&& rows, const CollateContext& context) {
  if constexpr (std::is_same_v<S, Tensor>) {
    return stack_rows(rows, context);
  } else if constexpr (std::is_same_v<S, std::string>) {
    return std::move(rows);
  } else if constexpr (std::is_same_v<S, float> || std::is_same_v<S, double>) {
    return column(rows);
  } else if constexpr (std::is_same_v<S, bool>) {
    return column_of_bools({rows.begin(), rows.end()});
  } else if constexpr (std::is_arithmetic_v<S>) {
    return column(std::vector<int64_t>(rows.begin(), rows.end()));
  } else {
    return collate_rows(rows, context, std::make_index_sequence<std::tuple_size_v<S>>());
  }
}

// Whether visit() finds the tensors of a batch of this type.
template <class B>
struct CanVisit : std::bool_constant<std::is_same_v<B, Tensor> || std::is_same_v<B, Tensors> || std::is_same_v<B, Batch> ||
                                     std::is_same_v<B, std::vector<std::string>>> {};
template <class... B>
struct CanVisit<std::tuple<B...>> : std::bool_constant<(CanVisit<B>::value && ...)> {};
template <class A, class B>
struct CanVisit<std::pair<A, B>> : std::bool_constant<CanVisit<A>::value && CanVisit<B>::value> {};

// Calls f with each tensor of a batch.
template <class B, class F>
void visit(B& batch, const F& f) {
  if constexpr (std::is_same_v<B, Tensor>) {
    f(batch);
  } else if constexpr (std::is_same_v<B, Batch>) {
    f(batch.input), f(batch.target);
  } else if constexpr (std::is_same_v<B, Tensors>) {
    for (Tensor& t : batch) f(t);
  } else if constexpr (CanVisit<B>::value && !std::is_same_v<B, std::vector<std::string>>) {
    std::apply([&](auto&... part) { (visit(part, f), ...); }, batch);
  }
}

}  // namespace samples

// The result of get(), or of a stream's next(), as a value; std::pair<Tensor, Tensor> for a class derived from Dataset.
template <class Set>
using SampleOf = typename decltype(samples::sample_type<Set>())::type;

// Makes a batch of samples if a DataLoader has no collate: torch.utils.data.default_collate. Throws ShapeError, DTypeError or
// DeviceError for tensors that differ, with the indices of both in `rows`, and ValueError for an undefined one and for no rows.
template <class S>
typename samples::Collated<S>::type default_collate(std::vector<S> rows) {
  static_assert(!std::is_same_v<typename samples::Collated<S>::type, samples::NoType>,
                "default_collate takes tensors, numbers, strings, and pairs and tuples of those");
  return samples::collate(std::move(rows), {});
}

}  // namespace halfstep
