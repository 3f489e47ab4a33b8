// SPDX-License-Identifier: Apache-2.0
// Batches of a data set, epoch after epoch, in a seeded order that can be saved and taken up again at any batch.
#pragma once

#include <concepts>
#include <cstdint>
#include <iterator>
#include <memory>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "framework/base/draws.h"
#include "framework/data/batch_source.h"
#include "framework/data/dataset.h"
#include "framework/data/sample_source.h"
#include "framework/data/sampler.h"
#include "framework/data/samples.h"

namespace halfstep {

class UploadLane;  // framework/backend/backend.h

// A sampler by value, or a shared one.
struct AnySampler : std::shared_ptr<const Sampler> {
  using std::shared_ptr<const Sampler>::shared_ptr;
  AnySampler(std::shared_ptr<const Sampler> sampler) : std::shared_ptr<const Sampler>(std::move(sampler)) {}
  template <class S>
    requires std::is_base_of_v<Sampler, S>
  AnySampler(S sampler) : std::shared_ptr<const Sampler>(std::make_shared<const S>(std::move(sampler))) {}
};

struct LoaderOptions {
  int64_t batch_size = 1;
  bool shuffle = false;
  AnySampler sampler = {};  // decides on the order in place of shuffle
  bool drop_last = false;   // leave out a last batch that is not full
  // Seeds the order, and the numbers that get(i, random) draws. Where it is left out, it is drawn once from `generator`, if there
  // is one. Without a generator it is the seed of manual_seed at the time the loader is made, or 0 with several ranks, which must
  // agree.
  std::optional<uint64_t> seed = {};
  int num_workers = 0;      // background threads that make batches; 0: made when asked for
  int prefetch = 2;         // batches made ahead at most, when there are workers
  int rank = 0, ranks = 1;  // of several processes that read the same batches: this one gets its part of each
  Device device = Device::cpu;  // where batches are handed out. Workers bring them there themselves, beside the device's work
  Generator* generator = nullptr;  // read by the constructor only
};

// The position: batches [0, next_batch) of `epoch` were handed out, which began with sample `begin` of its order: 0 unless the
// batch size has changed on the way.
struct LoaderState {
  int64_t epoch = 0;
  int64_t next_batch = 0;
  int64_t begin = 0;
  bool operator==(const LoaderState&) const = default;
};

// The position in samples, for a run that continues with another batch size: what a run keeps of its loader.
struct LoaderPlace {
  int64_t epoch = 0, sample = 0;  // samples of the epoch's order that were handed out
  int64_t batch_size = 1;
  uint64_t seed = 0;
  uint64_t order = 0;  // a hash of those samples; 0: not known, as of a stream
  bool operator==(const LoaderPlace&) const = default;
};

// DataLoader without the types of its data set and batches: order, position, threads.
class LoaderEngine {
 public:
  LoaderEngine(std::shared_ptr<const BatchSource> source, const LoaderOptions& options);
  ~LoaderEngine();
  LoaderEngine(LoaderEngine&&) noexcept;
  LoaderEngine& operator=(LoaderEngine&&) noexcept;

  int64_t size() const;
  const LoaderOptions& options() const { return options_; }
  std::shared_ptr<void> next();  // null: the epoch is over
  void begin();
  const BatchRows& part() const { return part_; }
  std::vector<int64_t> samples_of_part() const;
  LoaderState state() const { return state_; }
  void set_state(LoaderState state);
  LoaderPlace place();
  void set_place(const LoaderPlace& place);
  int64_t left() const { return batches_from(state_.begin) - state_.next_batch; }
  double wait_seconds() const { return wait_seconds_; }

 private:
  class Prefetcher;
  int64_t batches_from(int64_t begin) const;
  uint64_t hash_of_order(int64_t samples);
  int64_t samples() const { return options_.sampler ? options_.sampler->size() : source_->size(); }  // an epoch
  void prepare_order();
  void end_epoch();
  void forget();  // what was made ahead

  std::shared_ptr<const BatchSource> source_;
  LoaderOptions options_;
  LoaderState state_;
  bool resumed_ = true;                                // the state was set from outside since the last batch
  std::shared_ptr<const std::vector<int64_t>> order_, repeats_;  // of epoch order_epoch_
  int64_t order_epoch_ = -1;
  std::shared_ptr<BatchStream> stream_;  // of the current epoch, where the source is one
  std::shared_ptr<UploadLane> lane_;     // of the workers, where the device has one
  std::unique_ptr<Prefetcher> prefetcher_;
  BatchRows part_;
  double wait_seconds_ = 0;
};

// What all DataLoaders are: RunParts::loader (amp/step/run_state.h).
class LoaderBase {
 public:
  LoaderBase(std::shared_ptr<const BatchSource> source, const LoaderOptions& options) : engine_(std::move(source), options) {}
  // Counts batches handed out, not those made ahead. After the last batch of an epoch: {epoch, size()}, until the end is seen.
  LoaderState state() const { return engine_.state(); }
  // Throws ValueError unless 0 <= next_batch <= size() and begin is below the batch size. A stream reads and drops the samples of
  // the batches before.
  void set_state(LoaderState state) { engine_.set_state(state); }
  int64_t left() const { return engine_.left(); }  // batches of the epoch that are to come; not of a stream
  LoaderPlace place() { return engine_.place(); }
  // Continues behind the same samples, with the loader's own batch size and the place's seed. Warns where the samples that were
  // handed out are others in this loader's order, so that some will come twice or not at all. Throws ValueError for a place beyond
  // the end, and for another batch size in mid-epoch of a set of parallel streams.
  void set_place(const LoaderPlace& place) { engine_.set_place(place); }

 protected:
  LoaderEngine engine_;
};

// One pass of a range-for is one epoch:
//   for (auto& [x, target] : loader) ...
// The order of an epoch is permutation(size, seed, epoch), or the sampler's, whatever the workers. A pass begins where set_state
// put the loader; otherwise at the start of an epoch, the next one when the last pass was left early. Not thread-safe itself.
//
// `Set` is deduced: DataLoader(MySet{...}) is a DataLoader<MySet>, of any data set or stream that samples.h describes, and
// DataLoader<> reads a class derived from Dataset, whose batches are a Batch. A set is given by value or by std::shared_ptr.
// A third argument, a const callable `B collate(std::vector<SampleOf<Set>>)`, makes the batches in place of default_collate; with
// workers, several threads call it at once. Batches carry no graph, and get() does not see the autocast region of the loop.
//
// An exception of the data set leaves next() below, or the loop that takes the batch, with a line that names the sample: an Error
// of halfstep keeps its type, any other std::exception is nested in a DataError.
//
// With `ranks`, batch_size is that of the whole batch, and rank r hands out rows part_of(rows of the batch, r, ranks): all ranks
// together read the batches of one process. A part may be empty; then the batch has undefined tensors. Positions are those of whole
// batches, so that a saved one fits any number of ranks.
template <class Set = Dataset, class B = samples::BatchOf<Set>>
class DataLoader : public LoaderBase {
  static_assert(samples::explains<Set, B>());

 public:
  // Throws ValueError for options out of range, for a data set without a batch, and for a stream with shuffle, a sampler or ranks.
  explicit DataLoader(std::type_identity_t<std::shared_ptr<const Set>> set, const LoaderOptions& options = {})
      : LoaderBase(samples::source_of<B>(set), options), set_(std::move(set)) {}
  template <class D>
    requires(std::is_same_v<D, Set> || std::is_base_of_v<Set, D>)
  explicit DataLoader(D set, const LoaderOptions& options = {})
      : DataLoader(std::shared_ptr<const Set>(std::make_shared<const D>(std::move(set))), options) {}
  template <class F>
  DataLoader(std::type_identity_t<std::shared_ptr<const Set>> set, const LoaderOptions& options, F collate)
      : LoaderBase(samples::source_of<B>(set, std::move(collate)), options), set_(std::move(set)) {}
  template <class D, class F>
    requires(std::is_same_v<D, Set> || std::is_base_of_v<Set, D>)
  DataLoader(D set, const LoaderOptions& options, F collate)
      : DataLoader(std::shared_ptr<const Set>(std::make_shared<const D>(std::move(set))), options, std::move(collate)) {}

  // As in Python: DataLoader(set, 32, true).
  template <class D, SizeNumber Size>
    requires(std::is_same_v<D, Set> || std::is_base_of_v<Set, D>)
  DataLoader(D set, Size batch_size, bool shuffle = false)
      : DataLoader(std::move(set), LoaderOptions{.batch_size = int64_t(batch_size), .shuffle = shuffle}) {}

  int64_t size() const { return engine_.size(); }  // batches an epoch; throws ValueError for a stream
  const Set& dataset() const { return *set_; }
  const LoaderOptions& options() const { return engine_.options(); }

  // The next batch of the epoch, or nothing when it is over: then the state is {epoch + 1, 0}. Rethrows an exception of the data
  // set for this batch; the next call tries the same batch again.
  std::optional<B> next() {
    std::optional<B> out;
    if (const std::shared_ptr<void> batch = engine_.next()) out.emplace(std::move(*static_cast<B*>(batch.get())));
    return out;
  }

  // Which rows of the whole batch the last one is.
  const BatchRows& part() const { return engine_.part(); }
  // The numbers in the data set of its samples, a row each; empty for a stream.
  std::vector<int64_t> samples_of_part() const { return engine_.samples_of_part(); }

  double wait_seconds() const { return engine_.wait_seconds(); }  // time spent waiting for batches so far

  struct Sentinel {};
  class Iterator {
   public:
    using value_type = B;
    using difference_type = std::ptrdiff_t;
    using iterator_category = std::input_iterator_tag;
    explicit Iterator(DataLoader* loader) : loader_(loader) { ++*this; }
    B& operator*() { return *current_; }
    B* operator->() { return &*current_; }
    Iterator& operator++() {
      current_.reset();  // gives its memory back before the next batch takes some
      current_ = loader_->next();
      return *this;
    }
    bool operator==(Sentinel) const { return !current_; }

   private:
    DataLoader* loader_;
    std::optional<B> current_;
  };
  Iterator begin() {
    engine_.begin();
    return Iterator(this);
  }
  Sentinel end() { return {}; }

 private:
  std::shared_ptr<const Set> set_;
};

// DataLoader d(x, y, 32): tensors in place of a set, which explains() answers.
DataLoader(Tensor, Tensor, LoaderOptions = {})->DataLoader<samples::LooseTensors>;
template <std::integral Size>
DataLoader(Tensor, Size) -> DataLoader<samples::LooseTensors>;
template <std::integral Size>
DataLoader(Tensor, Tensor, Size) -> DataLoader<samples::LooseTensors>;
template <class D>
DataLoader(std::shared_ptr<D>, LoaderOptions = {}) -> DataLoader<samples::Erased<D>>;
template <class D, class F>
DataLoader(std::shared_ptr<D>, LoaderOptions, F) -> DataLoader<samples::Erased<D>, samples::Made<samples::Erased<D>, F>>;
template <class D>
  requires(!std::is_convertible_v<D, std::shared_ptr<const Dataset>>)
DataLoader(D, LoaderOptions = {}) -> DataLoader<samples::Erased<D>>;
template <class D, class F>
  requires(!std::is_convertible_v<D, std::shared_ptr<const Dataset>>)
DataLoader(D, LoaderOptions, F) -> DataLoader<samples::Erased<D>, samples::Made<samples::Erased<D>, F>>;

template <class D, SizeNumber Size>
  requires(!std::is_convertible_v<D, std::shared_ptr<const Dataset>> && !std::is_same_v<D, Tensor>)
DataLoader(D, Size, bool = false) -> DataLoader<samples::Erased<D>>;

// Nearly equal parts of `total` rows, the larger ones first.
BatchRows part_of(int64_t total, int rank, int ranks);

}  // namespace halfstep
