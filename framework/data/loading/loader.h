// SPDX-License-Identifier: Apache-2.0
// Batches of a data set, epoch after epoch, in a seeded order that can be saved and resumed at any batch.
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
#include "framework/data/loading/batch_source.h"
#include "framework/data/loading/sample_source.h"
#include "framework/data/loading/sampler.h"
#include "framework/data/loading/samples.h"
#include "framework/data/sets/dataset.h"

namespace halfstep {

class UploadLane;  // framework/backend/backend.h

// A sampler by value, or a shared one.
struct AnySampler : std::shared_ptr<const Sampler> {
  using std::shared_ptr<const Sampler>::shared_ptr;
  AnySampler(std::shared_ptr<const Sampler> sampler) : std::shared_ptr<const Sampler>(std::move(sampler)) {}
  template <class S>
  requires std::is_base_of_v<Sampler, S> AnySampler(S sampler)
      : std::shared_ptr<const Sampler>(std::make_shared<const S>(std::move(sampler))) {}
};

struct LoaderOptions {
  int64_t batch_size = 1;
  bool shuffle = false;
  AnySampler sampler = {};  // sets the order instead of shuffle
  bool drop_last = false;   // whether to skip an incomplete last batch
  // Seeds the order, and the numbers that get(i, random) draws. If omitted, it is drawn once: from `generator` when the loader is
  // made, or else from the default generator at the first batch. A default generator of kind mt19937 gives a new one at each pass,
  // as PyTorch's. With several ranks, which must agree, it is a function of how many such loaders of this rank were made before,
  // so all ranks must make theirs in one order.
  std::optional<uint64_t> seed = {};
  int num_workers = 0;             // background threads that make batches; 0: batches are made on demand
  int prefetch = 2;                // most batches made ahead, with workers
  int rank = 0, ranks = 1;         // of processes that read the same batches; each gets its part
  Device device = Device::cpu;     // device of the batches. Workers copy them there while the device computes
  Generator* generator = nullptr;  // only used by the constructor
  // Kind of numbers that shuffle takes. mt19937: the order of PyTorch's DataLoader with generator=torch.Generator() of this seed.
  // If omitted, the kind of `generator`, or of the default generator.
  std::optional<GeneratorKind> order = {};
  bool views = false;  // whether batches may be views of the data set: they save a copy, and the loop must not write into them
};

// The position: batches [0, next_batch) of `epoch` were returned, starting with sample `begin` of its order, which is 0 unless the
// batch size has changed meanwhile.
struct LoaderState {
  int64_t epoch = 0;
  int64_t next_batch = 0;
  int64_t begin = 0;
  std::optional<uint64_t> seed = {};  // of the order; nothing where there is no order, or none was drawn yet
  // Compares positions, whatever their seeds.
  bool operator==(const LoaderState& o) const { return epoch == o.epoch && next_batch == o.next_batch && begin == o.begin; }
};

// The position in samples, for a run that continues with another batch size: what a run saves of its loader.
struct LoaderPosition {
  int64_t epoch = 0, sample = 0;  // number of samples of the epoch's order that were returned
  int64_t batch_size = 1;
  uint64_t seed = 0;
  uint64_t order = 0;  // a hash of those samples; 0: unknown, as for a stream
  bool operator==(const LoaderPosition&) const = default;
};

// Counts the passes over a loader. The loop of the last begin() takes the batches.
class LoaderPasses {
 public:
  int64_t begin();
  void end() { ended_ = true; }  // next() saw the end of the epoch
  void position_was_set() { ended_ = false, set_ = true; }
  // Returns whether the loop of a pass takes another batch: not after the end. Throws ValueError after another begin(), unless the
  // position was set since; then the loop continues there.
  bool continues(int64_t& pass);

 private:
  int64_t last_ = 0;
  bool ended_ = false, set_ = false;  // since the last begin()
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
  // Returns the next batch; null at the end of the epoch.
  std::shared_ptr<void> next();
  // Begins a pass at the position: if the last pass was left early, at the next epoch. Returns the number of the pass.
  int64_t begin();
  bool continues(int64_t& pass) { return passes_.continues(pass); }
  const BatchRows& part() const { return part_; }
  std::vector<int64_t> samples_of_part() const;
  LoaderState state() const;
  void set_state(LoaderState state);
  LoaderPosition position();
  void set_position(const LoaderPosition& position);
  int64_t left() const { return batches_from(state_.begin) - state_.next_batch; }
  double wait_seconds() const { return wait_seconds_; }

 private:
  class Prefetcher;
  int64_t batches_from(int64_t begin) const;  // in an epoch whose first batch begins with sample `begin`
  uint64_t hash_of_order(int64_t samples);
  int64_t samples() const { return options_.sampler ? options_.sampler->size() : source_->size(); }  // in an epoch
  bool needs_seed() const { return options_.shuffle || options_.sampler || source_->draws_numbers(); }
  void choose_seed(const LoaderOptions& given);  // when the loader is made
  bool has_seed(int64_t epoch) const { return draws_each_pass_ ? drawn_epoch_ == epoch : options_.seed.has_value(); }
  void draw_seed();                              // before a batch: unless there is one
  void take_seed(uint64_t seed, int64_t epoch);  // of a saved position
  void prepare_order();                          // unless it is that of the current epoch
  void end_epoch();
  void discard_prefetched();  // and closes the stream

  std::shared_ptr<const BatchSource> source_;
  LoaderOptions options_;
  LoaderState state_;        // without the seed
  bool is_at_start_ = true;  // whether no batch was returned since the state was set or an epoch ended
  LoaderPasses passes_;
  bool draws_each_pass_ = false;                                 // whether each pass has a seed of its own
  int64_t drawn_epoch_ = -1;                                     // the epoch of such a seed
  std::shared_ptr<const std::vector<int64_t>> order_, repeats_;  // of epoch order_epoch_
  int64_t order_epoch_ = -1;
  std::shared_ptr<BatchStream> stream_;  // of the current epoch, if the source is a stream
  std::shared_ptr<UploadLane> lane_;     // for the workers, if the device has one
  std::unique_ptr<Prefetcher> prefetcher_;
  BatchRows part_;
  double wait_seconds_ = 0;
};

// Base class of all DataLoaders: RunParts::loader (amp/step/run_state.h).
class LoaderBase {
 public:
  LoaderBase(std::shared_ptr<const BatchSource> source, const LoaderOptions& options) : engine_(std::move(source), options) {}
  // Returns the position by batches returned, not batches made ahead. After the last batch of an epoch it is {epoch, size()},
  // until the end is seen. It has the order's seed: a loader that was given none would draw another one in the next process.
  LoaderState state() const { return engine_.state(); }
  // Sets the position, and takes the state's seed for this epoch and, but for mt19937, those after it. Without one, a position
  // within an epoch for which the loader has not drawn its own seed yet is warned of: its order is another one. Throws ValueError
  // unless 0 <= next_batch <= size() and begin is below the batch size. A stream reads and drops the samples of earlier batches.
  void set_state(LoaderState state) { engine_.set_state(state); }
  int64_t left() const { return engine_.left(); }  // batches left in the epoch; not for a stream
  LoaderPosition position() { return engine_.position(); }
  // Continues after the same samples, with the loader's own batch size and the position's seed. Warns if the returned samples are
  // others in this loader's order, so that some will repeat or be missed. Throws ValueError for a position beyond the end, and for
  // another batch size in mid-epoch of a set of parallel streams.
  void set_position(const LoaderPosition& position) { engine_.set_position(position); }

 protected:
  LoaderEngine engine_;
};

// One pass of a range-for is one epoch:
//   for (auto& [x, target] : loader) ...
// The order of an epoch is permutation(size, seed, epoch), PyTorch's for the kind mt19937, or the sampler's, for any number of
// workers. A pass begins at the position of set_state; otherwise at the start of an epoch, the next one if the last pass was left
// early. The loader itself is not thread-safe, and has one position: where a pass begins, the loop of another one ends with a
// ValueError at its next batch. Make a second loader for a loop within a loop.
//
// Batches have memory of their own, unless LoaderOptions::views is set or a collate makes them. That holds for a Batch, tensors,
// and vectors, pairs and tuples of them; if get_batch returns another type, it copies what the loop may write to.
//
// `Set` is deduced: DataLoader(MySet{...}) is a DataLoader<MySet>, for any data set or stream that samples.h describes;
// DataLoader<> reads a class derived from Dataset, whose batches are a Batch. A set is given by value or by std::shared_ptr. A
// third argument, a const callable `B collate(std::vector<SampleOf<Set>>)`, makes the batches instead of default_collate; with
// workers, several threads call it at once. Batches carry no graph, and get() does not see the autocast region of the loop.
//
// An exception of the data set leaves next() below, or the loop that takes the batch, with a line that names the sample: a
// halfstep Error keeps its type, any other std::exception is nested in a DataError.
//
// With `ranks`, batch_size is that of the whole batch, and rank r returns rows part_of(rows of the batch, r, ranks): all ranks
// together read the batches of one process. A part may be empty; then the batch has undefined tensors. Positions count whole
// batches, so that a saved one fits any number of ranks.
template <class Set = Dataset, class B = samples::BatchOf<Set>>
class DataLoader : public LoaderBase {
  static_assert(samples::is_readable<Set, B>());

 public:
  // Throws ValueError for options out of range, for a data set without a batch, and for a stream with shuffle, a sampler or ranks.
  explicit DataLoader(std::type_identity_t<std::shared_ptr<const Set>> set, const LoaderOptions& options = {})
      : LoaderBase(samples::source_of<B>(set), options), set_(std::move(set)) {}
  template <class D>
  requires(std::is_same_v<D, Set> || std::is_base_of_v<Set, D>) explicit DataLoader(D set, const LoaderOptions& options = {})
      : DataLoader(std::shared_ptr<const Set>(std::make_shared<const D>(std::move(set))), options) {}
  template <class F>
  DataLoader(std::type_identity_t<std::shared_ptr<const Set>> set, const LoaderOptions& options, F collate)
      : LoaderBase(samples::source_of<B>(set, std::move(collate)), options), set_(std::move(set)) {}
  template <class D, class F>
  requires(std::is_same_v<D, Set> || std::is_base_of_v<Set, D>) DataLoader(D set, const LoaderOptions& options, F collate)
      : DataLoader(std::shared_ptr<const Set>(std::make_shared<const D>(std::move(set))), options, std::move(collate)) {}

  // Constructs it like in Python: DataLoader(set, 32, true).
  template <class D, SizeNumber Size>
  requires(std::is_same_v<D, Set> || std::is_base_of_v<Set, D>) DataLoader(D set, Size batch_size, bool shuffle = false)
      : DataLoader(std::move(set), LoaderOptions{.batch_size = int64_t(batch_size), .shuffle = shuffle}) {}

  int64_t size() const { return engine_.size(); }  // batches an epoch; throws ValueError for a stream
  const Set& dataset() const { return *set_; }
  const LoaderOptions& options() const { return engine_.options(); }

  // Returns the next batch of the epoch, or nothing at its end, where the state becomes {epoch + 1, 0}. Rethrows an exception of
  // the data set for this batch; the next call tries the same batch again.
  std::optional<B> next() {
    std::optional<B> out;
    if (const std::shared_ptr<void> batch = engine_.next()) out.emplace(std::move(*static_cast<B*>(batch.get())));
    return out;
  }

  // Returns which rows of the whole batch the last one is.
  const BatchRows& part() const { return engine_.part(); }
  // Returns the indices of its samples in the data set, one per row; empty for a stream.
  std::vector<int64_t> samples_of_part() const { return engine_.samples_of_part(); }

  double wait_seconds() const { return engine_.wait_seconds(); }  // total time spent waiting for batches

  struct Sentinel {};
  class Iterator {
   public:
    using value_type = B;
    using difference_type = std::ptrdiff_t;
    using iterator_category = std::input_iterator_tag;
    explicit Iterator(DataLoader* loader) : loader_(loader), pass_(loader->engine_.begin()) { ++*this; }
    B& operator*() { return *current_; }
    B* operator->() { return &*current_; }
    Iterator& operator++() {
      current_.reset();  // frees its memory before the next batch allocates
      if (loader_->engine_.continues(pass_)) current_ = loader_->next();
      return *this;
    }
    bool operator==(Sentinel) const { return !current_; }

   private:
    DataLoader* loader_;
    int64_t pass_;
    std::optional<B> current_;
  };
  Iterator begin() { return Iterator(this); }
  Sentinel end() { return {}; }

 private:
  std::shared_ptr<const Set> set_;
};

// DataLoader d(x, y, 32): tensors instead of a set, for which is_readable() gives the error.
DataLoader(Tensor, Tensor, LoaderOptions = {})->DataLoader<samples::LooseTensors>;
template <std::integral Size>
DataLoader(Tensor, Size) -> DataLoader<samples::LooseTensors>;
template <std::integral Size>
DataLoader(Tensor, Tensor, Size) -> DataLoader<samples::LooseTensors>;
template <class D>
DataLoader(std::shared_ptr<D>, LoaderOptions = {}) -> DataLoader<samples::Erased<D>>;
template <class D, class F>
DataLoader(std::shared_ptr<D>, LoaderOptions, F) -> DataLoader<samples::Erased<D>, samples::CollateResult<samples::Erased<D>, F>>;
template <class D>
requires(!std::is_convertible_v<D, std::shared_ptr<const Dataset>>) DataLoader(D, LoaderOptions = {})
->DataLoader<samples::Erased<D>>;
template <class D, class F>
requires(!std::is_convertible_v<D, std::shared_ptr<const Dataset>>) DataLoader(D, LoaderOptions, F)
->DataLoader<samples::Erased<D>, samples::CollateResult<samples::Erased<D>, F>>;

template <class D, SizeNumber Size>
requires(!std::is_convertible_v<D, std::shared_ptr<const Dataset>> && !std::is_same_v<D, Tensor>) DataLoader(D, Size, bool = false)
->DataLoader<samples::Erased<D>>;

// Returns one of nearly equal parts of `total` rows; larger parts come first.
BatchRows part_of(int64_t total, int rank, int ranks);

}  // namespace halfstep
