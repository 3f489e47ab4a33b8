// SPDX-License-Identifier: Apache-2.0
// The thin typed layer between data sets (samples.h) and the engine of DataLoader (batch_source.h).
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <type_traits>
#include <utility>
#include <vector>

#include "framework/data/loading/batch_source.h"
#include "framework/data/loading/samples.h"

namespace halfstep::samples {

// The absence of a user's collate.
struct DefaultCollate {};

// Returns the seed for the numbers that get(i, random) draws; a stream's with i = -1. before: how often i was drawn before in the
// epoch.
uint64_t seed_of(uint64_t seed, int64_t epoch, int64_t i, int64_t before = 0);
// Draws a seed from a generator: equal states give equal seeds.
uint64_t drawn_seed(Generator& generator);
// Rethrows, within catch (...), the exception of `call` for sample i, as loader.h describes.
[[noreturn]] void sample_failed(const char* call, int64_t i, int64_t epoch);

template <class S>
using CollatedAs = typename Collated<S>::type;

// The batches of a DataLoader without a collate; NoType if there are none.
template <class Set>
constexpr auto batch_type() {
  if constexpr (IsDataset<Set>) {
    return std::type_identity<Batch>{};
  } else if constexpr (kIsMap<Set> && HasGetBatch<Set>) {
    using B = decltype(std::declval<const Set&>().get_batch(std::span<const int64_t>()));
    return std::type_identity<std::decay_t<B>>{};
  } else {
    return std::type_identity<CollatedAs<SampleOf<Set>>>{};
  }
}
template <class Set>
using BatchOf = typename decltype(batch_type<Set>())::type;

// The Set of a DataLoader for an argument of type D.
template <class D>
using Erased = std::conditional_t<std::is_base_of_v<Dataset, D>, Dataset, std::remove_const_t<D>>;

// The result type of a collate; NoType if it cannot be called.
template <class Set, class F>
auto collate_type() {
  if constexpr (std::is_invocable_v<const F&, std::vector<SampleOf<Set>>>) {
    return std::type_identity<std::decay_t<std::invoke_result_t<const F&, std::vector<SampleOf<Set>>>>>{};
  } else {
    return std::type_identity<NoType>{};
  }
}
template <class Set, class F>
using CollateResult = typename decltype(collate_type<Set, F>())::type;

struct LooseTensors {};  // the type of DataLoader(x, y, ...)

// Returns true; for a set that cannot be read, the compiler prints one line that says why.
template <class Set, class B>
constexpr bool is_readable() {
  static_assert(!std::is_same_v<Set, LooseTensors>,
                "DataLoader: tensors are not a data set, and the batch size is an option: write DataLoader(TensorDataset(x, y), "
                "{.batch_size = 32, .shuffle = true})");
  constexpr bool kIsSet = kIsMap<Set> || kIsStream<Set>;
  constexpr bool kHasBatchType = !std::is_same_v<B, NoType>;
  if constexpr (!kIsSet && !std::is_same_v<Set, LooseTensors>) {
    static_assert(
        Sized<Set> || requires(Set & s) { s.next(); }, "DataLoader: a data set needs `int64_t size() const`");
    static_assert(
        !Sized<Set> || requires(Set & s) { s.get(int64_t{}); }, "DataLoader: a data set needs `Sample get(int64_t i) const`");
    static_assert(
        !Sized<Set> || !requires(Set & s) { s.get(int64_t{}); },
        "DataLoader: get(int64_t i) must be const and public, and must return a sample");
    static_assert(
        Sized<Set> || !requires(Set & s) { s.next(); }, "DataLoader: a stream's next() must return a std::optional");
  } else {
    static_assert(kHasBatchType,
                  "DataLoader: samples must be tensors, numbers, strings, or pairs or tuples of those; others need a third "
                  "argument, a callable `B collate(std::vector<Sample>) const`");
    static_assert(!kIsStream<Set> || std::is_copy_constructible_v<Set>,
                  "DataLoader: a stream must be copyable, since each epoch reads a copy");
  }
  return true;
}

template <class B>
class TypedSource : public BatchSource {
 public:
  std::shared_ptr<void> empty() const override {
    if constexpr (std::is_default_constructible_v<B>) {
      return std::make_shared<B>();
    } else {
      fail<ValueError>("DataLoader", "an empty part of a batch needs a batch type with a default");
    }
  }
  void visit(void* batch, const std::function<void(Tensor&)>& f) const override { samples::visit(*static_cast<B*>(batch), f); }
  bool can_visit() const override { return CanVisit<B>::value; }
};

template <class B, class Collate, class S>
std::shared_ptr<void> make_batch(const Collate& collate, std::vector<S>&& rows, std::span<const int64_t> indices) {
  if constexpr (std::is_same_v<Collate, DefaultCollate>) {
    return std::make_shared<B>(samples::collate(std::move(rows), {indices}));
  } else {
    return std::make_shared<B>(collate(std::move(rows)));
  }
}

template <class Set, class B, class Collate>
class MapSource : public TypedSource<B> {
 public:
  MapSource(std::shared_ptr<const Set> set, Collate collate) : set_(std::move(set)), collate_(std::move(collate)) {}
  int64_t size() const override { return int64_t(set_->size()); }
  bool draws_numbers() const override { return !kFetchesBatches && GetDrawsNumbers<Set>; }
  bool may_give_views() const override { return kFetchesBatches; }
  std::shared_ptr<void> make(std::span<const int64_t> indices, const BatchSource::Draw& draw) const override {
    if constexpr (kFetchesBatches) {
      return std::make_shared<B>(set_->get_batch(indices));
    } else {
      std::vector<SampleOf<Set>> rows;
      rows.reserve(indices.size());
      for (size_t row = 0; row < indices.size(); ++row) {
        const int64_t i = indices[row];
        try {
          Generator random(seed_of(draw.seed, draw.epoch, i, draw.before(row)));
          rows.push_back(get(*set_, i, draw.epoch, random, draw.before(row)));
        } catch (...) { sample_failed("get", i, draw.epoch); }
      }
      return make_batch<B>(collate_, std::move(rows), indices);
    }
  }

 private:
  static constexpr bool kFetchesBatches = HasGetBatch<Set> && std::is_same_v<Collate, DefaultCollate>;

  std::shared_ptr<const Set> set_;
  Collate collate_;
};

template <class Set, class B, class Collate>
class StreamSource : public TypedSource<B> {
 public:
  StreamSource(std::shared_ptr<const Set> set, Collate collate) : set_(std::move(set)), collate_(std::move(collate)) {}
  int64_t size() const override { return 0; }
  bool is_stream() const override { return true; }
  bool draws_numbers() const override { return NextDrawsNumbers<Set>; }
  std::shared_ptr<void> make(std::span<const int64_t>, const BatchSource::Draw&) const override { return nullptr; }
  std::unique_ptr<BatchStream> open(uint64_t seed, int64_t epoch) const override {
    return std::make_unique<Pass>(*set_, collate_, seed, epoch);
  }

 private:
  // One epoch of the stream, on a copy of it.
  class Pass : public BatchStream {
   public:
    Pass(const Set& set, const Collate& collate, uint64_t seed, int64_t epoch)
        : set_(set), collate_(collate), random_(seed_of(seed, epoch, -1)), epoch_(epoch) {
      if constexpr (requires { set_.set_epoch(epoch); }) set_.set_epoch(epoch);
    }
    StreamBatch next(int64_t samples, bool full_only) override {
      std::vector<SampleOf<Set>> rows;
      std::vector<int64_t> indices;
      while (int64_t(rows.size()) < samples) {
        auto sample = take();
        if (!sample) break;
        rows.push_back(std::move(*sample));
        indices.push_back(at_ - 1);
      }
      const int64_t n = int64_t(rows.size());
      if (n == 0 || (full_only && n < samples)) return {};
      return {make_batch<B>(collate_, std::move(rows), indices), n};
    }
    void skip(int64_t samples) override {
      while (samples-- > 0 && take()) {}
    }

   private:
    std::optional<SampleOf<Set>> take() {
      if (ended_) return {};
      try {
        std::optional<SampleOf<Set>> sample = samples::next(set_, random_);
        ended_ = !sample;
        ++at_;
        return sample;
      } catch (...) { sample_failed("next", at_, epoch_); }
    }

    Set set_;
    const Collate& collate_;
    Generator random_;
    int64_t epoch_, at_ = 0;
    bool ended_ = false;
  };

  std::shared_ptr<const Set> set_;
  Collate collate_;
};

std::shared_ptr<const BatchSource> source_of_dataset(std::shared_ptr<const Dataset> set);  // throws ValueError for null
void check_set(bool is_given);                                                             // throws ValueError

// Makes the source. Throws ValueError if `set` is null.
template <class B, class Set, class Collate = DefaultCollate>
std::shared_ptr<const BatchSource> source_of(std::shared_ptr<const Set> set, Collate collate = {}) {
  if constexpr (IsDataset<Set> && std::is_same_v<Collate, DefaultCollate>) {
    return source_of_dataset(std::move(set));
  } else if constexpr (std::is_same_v<B, NoType>) {
    return nullptr;  // is_readable() has refused it
  } else {
    check_set(set != nullptr);
    if constexpr (kIsStream<Set>) {
      return std::make_shared<StreamSource<Set, B, Collate>>(std::move(set), std::move(collate));
    } else {
      return std::make_shared<MapSource<Set, B, Collate>>(std::move(set), std::move(collate));
    }
  }
}

}  // namespace halfstep::samples
