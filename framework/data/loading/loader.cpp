// SPDX-License-Identifier: Apache-2.0
#include "framework/data/loading/loader.h"

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <exception>
#include <limits>
#include <map>
#include <mutex>
#include <string>
#include <system_error>
#include <thread>
#include <utility>

#include "amp/autocast/autocast.h"
#include "framework/autograd/grad_mode.h"
#include "framework/backend/backend.h"
#include "framework/base/check.h"
#include "framework/base/fork_mutex.h"
#include "framework/base/log.h"
#include "framework/data/loading/permutation.h"
#include "framework/tensor/storage.h"

namespace halfstep {
namespace {

struct PreparedBatch {
  std::shared_ptr<void> batch;  // null: the stream has ended
  BatchRows part;
};

// Returns the seed of a loader of one of several ranks that was given none. It is the same on all ranks for the first such loader
// of each, for the second, and so on.
uint64_t seed_of_ranks(int rank, int ranks) {
  struct Made {
    ForkMutex mutex;
    std::map<std::pair<int, int>, int64_t> loaders;  // by rank and number of ranks
  };
  static auto& made = *new Made;
  const std::lock_guard lock(made.mutex);
  const int64_t before = made.loaders[{rank, ranks}]++;
  return before == 0 ? 0 : samples::seed_of(0, before, -1);
}

// The batches of one epoch: state of the loader and its threads, shared so that threads never access the loader.
struct EpochPlan {
  std::shared_ptr<const BatchSource> source;
  std::shared_ptr<const std::vector<int64_t>> order, repeats;
  std::shared_ptr<BatchStream> stream;  // replaces the order
  LoaderOptions options;
  int64_t epoch, begin;
  Device loop_device;  // default device of the loop's thread
  std::shared_ptr<UploadLane> lane;

  BatchRows part(int64_t batch) const {
    const int64_t size = options.batch_size;
    return part_of(std::min(size, int64_t(order->size()) - begin - batch * size), options.rank, options.ranks);
  }
  // Makes a batch, the same on any thread: sets the modes that a thread's scopes may have changed.
  PreparedBatch make(int64_t batch) const {
    const MemoryScope scope(MemoryTag::data);
    const NoGrad no_grad;
    const DefaultDevice on(loop_device);
    const Autocast off(Device::cpu, std::optional<DType>());
    if (stream) {
      BatchStream::StreamBatch next = stream->next(options.batch_size, options.drop_last);
      return {std::move(next.batch), {0, next.rows, next.rows}};
    }
    const BatchRows rows = part(batch);
    if (rows.rows == 0) return {source->empty(), rows};
    const size_t first = size_t(begin + batch * options.batch_size + rows.first), count = size_t(rows.rows);
    const auto in_batch = [&](const std::vector<int64_t>& all) {
      return all.empty() ? std::span<const int64_t>() : std::span(all).subspan(first, count);
    };
    PreparedBatch made{source->make(in_batch(*order), {*options.seed, epoch, in_batch(*repeats)}), rows};
    if (!options.views && source->may_give_views()) {
      source->visit(made.batch.get(), [&](Tensor& t) {
        if (t.defined() && t.device() == options.device) own_memory(t);  // others are copied to the device
      });
    }
    return made;
  }
};

// A batch on the device, whose bytes may still be in transfer. It must be received before it is used or dropped.
struct DeviceBatch {
  PreparedBatch prepared;
  std::vector<uint64_t> copies;

  void receive(UploadLane& lane) {
    for (const uint64_t copy : std::exchange(copies, {})) lane.receive(copy);
  }
};

// Returns how often each index of an order occurs before; nothing where none occurs twice.
std::vector<int64_t> repeats_in(const std::vector<int64_t>& order, int64_t size) {
  std::vector<int64_t> counts(static_cast<size_t>(size), 0), out;
  for (const int64_t i : order) out.push_back(counts[size_t(i)]++);
  if (std::all_of(out.begin(), out.end(), [](int64_t before) { return before == 0; })) out.clear();
  return out;
}

// Moves the tensors of a batch to the device; over a lane, the transfer may still continue at the return.
DeviceBatch send(PreparedBatch made, const BatchSource& source, Device device, UploadLane* lane) {
  DeviceBatch sent{std::move(made), {}};
  if (!sent.prepared.batch || !source.can_visit()) return sent;
  const MemoryScope scope(MemoryTag::data);
  try {
    source.visit(sent.prepared.batch.get(), [&](Tensor& from) {
      if (!from.defined()) return;
      if (!lane || !from.device().is_cpu()) {
        from = from.to(device);
        return;
      }
      const Tensor packed = from.contiguous(), to = Tensor::empty(from.shape(), {.dtype = from.dtype(), .device = device});
      sent.copies.push_back(lane->send(packed.data_ptr(), to.data_ptr(), packed.nbytes()));
      from = to;
    });
  } catch (...) {
    if (lane) sent.receive(*lane);
    throw;
  }
  return sent;
}

}  // namespace

int64_t LoaderPasses::begin() {
  ended_ = set_ = false;
  return ++last_;
}

bool LoaderPasses::continues(int64_t& pass) {
  if (set_) pass = last_;
  set_ = false;
  check<ValueError>(pass == last_, "DataLoader", "this loop's pass ended where another pass over the same loader began",
                    Help{"make a second DataLoader of the data set for the inner loop"});
  return !ended_;
}

// Threads that make the batches [first, end) of one epoch; the first free thread makes the next batch, at most `ahead` more than
// were taken. The end of a stream, which has one thread, is found by reading it.
class LoaderEngine::Prefetcher {
 public:
  Prefetcher(EpochPlan plan, int64_t first, int64_t end, int threads, int ahead)
      : plan_(std::move(plan)), ahead_(ahead), claimed_(first), taken_(first), end_(end) {
    try {
      for (int i = 0; i < threads; ++i) threads_.emplace_back([this] { work(); });
    } catch (const std::system_error& e) {
      const size_t began = threads_.size();
      join();
      fail<MemoryError>("DataLoader", "the system gives ", began, " threads for num_workers = ", threads, ": ", e.what(),
                        Help{"a smaller num_workers"});
    }
  }
  ~Prefetcher() {
    join();
    try {
      for (auto& [batch, result] : ready_) {
        if (plan_.lane) result.batch.receive(*plan_.lane);
      }
    } catch (const Error&) {  // the device failed; its next use throws
    }
  }

  // Returns the next batch in order, and waits for it. Rethrows an exception thrown while making the batch.
  PreparedBatch take() {
    Result result;
    {
      std::unique_lock lock(mutex_);
      filled_.wait(lock, [&] { return ready_.count(taken_) > 0; });
      result = std::move(ready_.extract(taken_).mapped());
      ++taken_;
    }
    room_.notify_all();
    if (result.error) std::rethrow_exception(result.error);
    if (plan_.lane) result.batch.receive(*plan_.lane);
    return std::move(result.batch.prepared);
  }

 private:
  struct Result {
    DeviceBatch batch;
    std::exception_ptr error;
  };

  // Lets the threads end, and waits for them.
  void join() {
    {
      const std::lock_guard lock(mutex_);
      must_stop_ = true;
    }
    room_.notify_all();
    for (std::thread& t : threads_) t.join();
    threads_.clear();
  }

  // Runs in each thread: makes batches until the last one, or until join().
  void work() {
    for (;;) {
      int64_t batch;
      {
        std::unique_lock lock(mutex_);
        room_.wait(lock, [&] { return must_stop_ || claimed_ >= end_ || claimed_ < taken_ + ahead_; });
        if (must_stop_ || claimed_ >= end_) return;
        batch = claimed_++;
      }
      Result result;
      try {
        result.batch = send(plan_.make(batch), *plan_.source, plan_.options.device, plan_.lane.get());
      } catch (...) { result.error = std::current_exception(); }
      const bool is_last = plan_.stream && (result.error || !result.batch.prepared.batch);
      {
        const std::lock_guard lock(mutex_);
        ready_[batch] = std::move(result);
        if (is_last) end_ = claimed_;
      }
      filled_.notify_one();
    }
  }

  const EpochPlan plan_;
  const int64_t ahead_;
  std::mutex mutex_;
  std::condition_variable room_, filled_;  // a batch was taken; one was made
  std::map<int64_t, Result> ready_;        // by batch
  int64_t claimed_, taken_;                // number of the next batch to make, and of the next one to take
  int64_t end_;
  bool must_stop_ = false;
  std::vector<std::thread> threads_;
};

LoaderEngine::LoaderEngine(std::shared_ptr<const BatchSource> source, const LoaderOptions& options)
    : source_(std::move(source)), options_(options) {
  check<ValueError>(options_.batch_size >= 1, "DataLoader", "batch_size must be at least 1, got ", options_.batch_size);
  check<ValueError>(options_.num_workers >= 0, "DataLoader", "num_workers must not be negative, got ", options_.num_workers);
  check<ValueError>(options_.num_workers == 0 || options_.prefetch >= 1, "DataLoader", "prefetch must be at least 1, got ",
                    options_.prefetch);
  check<ValueError>(source_->can_visit() || options_.device.is_cpu(), "DataLoader",
                    "batches of a type that collate made up are not brought to ", options_.device,
                    Help{"leave out .device and move them in the loop, or let collate give tensors, pairs or tuples"});
  const bool in_order = !options_.shuffle && !options_.sampler;
  check<ValueError>(options_.ranks >= 1 && options_.rank >= 0 && options_.rank < options_.ranks, "DataLoader",
                    "rank must lie in [0, ranks), got ", options_.rank, " of ", options_.ranks);
  choose_seed(options);
  if (source_->is_stream()) {
    check<ValueError>(in_order, "DataLoader", "a stream is read in its own order, got ", options_.shuffle ? "shuffle" : "a sampler",
                      Help{"shuffle within next(), or give the set size() and get(i)"});
    check<ValueError>(options_.ranks == 1, "DataLoader", "a stream cannot be read by ", options_.ranks, " ranks",
                      Help{"let the stream of each rank give its share of the samples, with ranks 1"});
    return;
  }
  check<ValueError>(!options_.sampler || options_.sampler->data_size() == source_->size(), "DataLoader",
                    "the sampler must be made for the data set's ", source_->size(), " samples, got one for ",
                    options_.sampler ? options_.sampler->data_size() : 0);
  const int64_t streams = source_->parallel_streams();
  check<ValueError>(streams == 0 || (in_order && options_.batch_size == streams), "DataLoader", "a data set of ", streams,
                    " streams must be read in order with batch_size ", streams, ", got batch_size ", options_.batch_size,
                    options_.shuffle   ? " and shuffle"
                    : options_.sampler ? " and a sampler"
                                       : "");
  check<ValueError>(streams == 0 || options_.ranks == 1, "DataLoader", "a data set of streams cannot be read by ", options_.ranks,
                    " ranks: each stream continues where its last batch ended, in one process");
  check<ValueError>(size() > 0, "DataLoader", "the data set gives no batch: it has ", samples(), " samples, batch_size is ",
                    options_.batch_size, options_.drop_last ? " and drop_last is set" : "");
}

void LoaderEngine::choose_seed(const LoaderOptions& given) {
  Generator& generator = given.generator ? *given.generator : default_generator();
  if (!given.order) options_.order = generator.kind();
  options_.generator = nullptr;
  if (given.seed) return;
  if (given.generator) {
    const Generator::State at = generator.state();
    const uint64_t drawn = samples::drawn_seed(generator);  // also where it is not used: the next loader has other numbers
    const bool is_new = options_.order == GeneratorKind::mt19937 && at.offset == 0;
    options_.seed = is_new ? at.seed : drawn;  // PyTorch shuffles with the numbers of a new generator itself
  } else if (given.ranks > 1) {
    options_.seed = needs_seed() ? seed_of_ranks(given.rank, given.ranks) : 0;
  } else {
    draws_each_pass_ = options_.order == GeneratorKind::mt19937 && generator.kind() == GeneratorKind::mt19937;
    if (!draws_each_pass_ && !needs_seed()) options_.seed = 0;
  }
}

void LoaderEngine::draw_seed() {
  if (has_seed(state_.epoch)) return;
  options_.seed = samples::drawn_seed(default_generator());
  if (!draws_each_pass_) return;
  if (options_.shuffle) options_.seed = samples::drawn_seed(default_generator());  // PyTorch draws one for workers before
  drawn_epoch_ = state_.epoch;
  order_.reset(), order_epoch_ = -1;
}

void LoaderEngine::take_seed(uint64_t seed, int64_t epoch) {
  if (options_.seed == seed && drawn_epoch_ == epoch) return;
  options_.seed = seed;
  drawn_epoch_ = epoch;
  order_.reset(), order_epoch_ = -1;
}

LoaderEngine::~LoaderEngine() = default;
LoaderEngine::LoaderEngine(LoaderEngine&&) noexcept = default;
LoaderEngine& LoaderEngine::operator=(LoaderEngine&&) noexcept = default;

int64_t LoaderEngine::size() const {
  check<ValueError>(!source_->is_stream(), "DataLoader", "a stream does not know how many batches it has",
                    Help{"count them while reading, or give the set size() and get(i)"});
  return batches_from(0);
}

int64_t LoaderEngine::batches_from(int64_t begin) const {
  const int64_t left = samples() - begin, batch_size = options_.batch_size;
  return left / batch_size + (!options_.drop_last && left % batch_size != 0 ? 1 : 0);
}

LoaderState LoaderEngine::state() const {
  LoaderState out = state_;
  if ((needs_seed() || draws_each_pass_) && has_seed(out.epoch)) out.seed = options_.seed;
  return out;
}

void LoaderEngine::set_state(LoaderState state) {
  const int64_t batch_size = options_.batch_size;
  const bool begins_in_data = state.begin >= 0 && state.begin < batch_size && (source_->is_stream() || state.begin <= samples());
  const bool fits = state.epoch >= 0 && state.next_batch >= 0 && begins_in_data &&
                    (source_->is_stream() || state.next_batch <= batches_from(state.begin));
  if (!fits) {
    fail<ValueError>("DataLoader", "a state must have epoch >= 0, next_batch in [0, ",
                     source_->is_stream() ? "..." : std::to_string(size()), "] and begin in [0, ", batch_size, "), got ",
                     state.epoch, ", ", state.next_batch, " and ", state.begin);
  }
  discard_prefetched();
  const std::optional<uint64_t> seed = std::exchange(state.seed, std::nullopt);
  if (seed) take_seed(*seed, state.epoch);
  state_ = state;
  is_at_start_ = true;
  passes_.position_was_set();
  const bool is_within = (state.next_batch > 0 || state.begin > 0) && (source_->is_stream() || left() > 0);
  if (is_within && needs_seed() && !has_seed(state.epoch))
    logging::warn(
        joined("[DataLoader] batch ", state.next_batch, " of epoch ", state.epoch,
               " has another order than when its state was saved: the state has no seed and the loader was given none, so "
               "the rest of this epoch has some samples again, and lacks others",
               Help{"save LoaderState::seed, too, or give the loader a .seed"}));
}

LoaderPosition LoaderEngine::position() {
  int64_t sample = state_.begin + state_.next_batch * options_.batch_size;
  if (!source_->is_stream()) sample = std::min(sample, samples());
  if (!draws_each_pass_ || sample > 0) draw_seed();
  return {state_.epoch, sample, options_.batch_size, options_.seed.value_or(0), hash_of_order(sample)};
}

void LoaderEngine::set_position(const LoaderPosition& position) {
  const bool is_stream = source_->is_stream(), has_other_size = position.batch_size != options_.batch_size;
  if (!(position.epoch >= 0 && position.sample >= 0 && position.batch_size >= 1 && (is_stream || position.sample <= samples())))
    fail<ValueError>("DataLoader", "the place to continue from must lie in the data set, which has ", samples(),
                     " samples an epoch, got sample ", position.sample, " of epoch ", position.epoch,
                     Help{"continue with the same data, or from the end of an epoch"});
  check<ValueError>(!has_other_size || position.sample == 0 || source_->parallel_streams() == 0, "DataLoader",
                    "batch_size must stay within an epoch of a data set of parallel streams, got ", options_.batch_size,
                    " where the epoch began with ", position.batch_size, Help{"continue from the end of an epoch"});
  discard_prefetched();
  take_seed(position.seed, position.sample > 0 ? position.epoch : -1);
  // The last batch of a finished epoch may have been incomplete.
  const bool is_finished = !is_stream && position.sample == samples();
  const int64_t begin = is_finished ? 0 : position.sample % options_.batch_size;
  state_ = {position.epoch, is_finished ? size() : position.sample / options_.batch_size, begin};
  is_at_start_ = true;
  passes_.position_was_set();
  if (position.order != 0 && hash_of_order(position.sample) != position.order)
    logging::warn(joined("[DataLoader] the first ", position.sample, " samples of epoch ", position.epoch,
                         " come in another order than when the run was saved: the rest of this epoch has some of them again, and "
                         "lacks others"));
}

// Hashes the set of samples, not their order: batches may contain the same samples in another order.
uint64_t LoaderEngine::hash_of_order(int64_t samples) {
  if (source_->is_stream() || samples == 0) return 0;
  prepare_order();
  uint64_t hash = 1;
  for (int64_t i = 0; i < samples; ++i) {
    uint64_t x = uint64_t((*order_)[size_t(i)]) + 0x9e3779b97f4a7c15;  // splitmix64
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9;
    x = (x ^ (x >> 27)) * 0x94d049bb133111eb;
    hash += x ^ (x >> 31);
  }
  constexpr uint64_t kJsonBits = (uint64_t(1) << 53) - 1;  // that readers of JSON keep of a number
  return hash & kJsonBits;
}

void LoaderEngine::discard_prefetched() {
  prefetcher_.reset();
  stream_.reset();
}

void LoaderEngine::end_epoch() {
  discard_prefetched();
  state_ = {state_.epoch + 1, 0, 0};
  is_at_start_ = true;
  passes_.end();
}

std::shared_ptr<void> LoaderEngine::next() {
  const bool is_stream = source_->is_stream();
  if (!is_stream && state_.next_batch >= batches_from(state_.begin)) {
    end_epoch();
    return {};
  }
  draw_seed();
  prepare_order();
  const auto start = std::chrono::steady_clock::now();
  if (options_.num_workers > 0 && !lane_ && !options_.device.is_cpu()) lane_ = backend_for(options_.device).open_upload_lane();
  PreparedBatch prepared;
  try {
    if (is_stream && !stream_) {
      stream_ = source_->open(*options_.seed, state_.epoch);
      stream_->skip(state_.begin + state_.next_batch * options_.batch_size);
    }
    const EpochPlan plan{source_, order_, repeats_, stream_, options_, state_.epoch, state_.begin, default_device(), lane_};
    if (options_.num_workers == 0) {
      prepared = send(plan.make(state_.next_batch), *source_, options_.device, nullptr).prepared;
    } else {
      if (!prefetcher_) {
        const int64_t end = is_stream ? std::numeric_limits<int64_t>::max() : batches_from(state_.begin);
        const int threads = is_stream ? 1 : options_.num_workers;  // a stream is read by one thread
        prefetcher_ = std::make_unique<Prefetcher>(plan, state_.next_batch, end, threads, options_.prefetch);
      }
      prepared = prefetcher_->take();
    }
  } catch (...) {
    discard_prefetched();
    throw;
  }
  wait_seconds_ += std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  if (!prepared.batch) {
    end_epoch();
    return {};
  }
  part_ = prepared.part;
  ++state_.next_batch;
  is_at_start_ = false;
  return prepared.batch;
}

int64_t LoaderEngine::begin() {
  if (!is_at_start_ && state_.next_batch > 0) {
    discard_prefetched();
    state_ = {state_.epoch + 1, 0, 0};
  }
  return passes_.begin();
}

std::vector<int64_t> LoaderEngine::samples_of_part() const {
  if (!order_ || order_epoch_ != state_.epoch || state_.next_batch == 0) return {};
  const auto first = order_->begin() + state_.begin + (state_.next_batch - 1) * options_.batch_size + part_.first;
  return {first, first + part_.rows};
}

BatchRows part_of(int64_t total, int rank, int ranks) {
  const int64_t rows = total / ranks, longer_parts = total % ranks;
  return {rank * rows + std::min<int64_t>(rank, longer_parts), rows + (rank < longer_parts ? 1 : 0), total};
}

void LoaderEngine::prepare_order() {
  if (source_->is_stream()) return;
  if (order_epoch_ == state_.epoch || (order_ && !options_.shuffle && !options_.sampler)) return;
  const int64_t size = source_->size();
  std::vector<int64_t> order;
  if (options_.sampler) {
    order = options_.sampler->order(*options_.seed, state_.epoch);
    const int64_t expected = options_.sampler->size();
    check<ValueError>(int64_t(order.size()) == expected, "DataLoader", "the sampler's order must have its size() of ", expected,
                      " samples, got ", order.size());
    for (const int64_t i : order) {
      check<IndexError>(i >= 0 && i < size, "DataLoader", "the sampler's indices must be in [0, ", size, "), got ", i);
    }
  } else if (options_.shuffle) {
    const auto epoch = uint64_t(state_.epoch);
    order = draws_each_pass_                           ? Twister(*options_.seed).permutation(size)
            : options_.order == GeneratorKind::mt19937 ? loader_permutation_of_pytorch(size, *options_.seed, epoch)
                                                       : permutation(size, *options_.seed, epoch);
  } else {
    order.resize(size_t(size));
    for (size_t i = 0; i < order.size(); ++i) order[i] = int64_t(i);
  }
  repeats_ = std::make_shared<const std::vector<int64_t>>(options_.sampler ? repeats_in(order, size) : std::vector<int64_t>());
  order_ = std::make_shared<const std::vector<int64_t>>(std::move(order));
  order_epoch_ = state_.epoch;
}

}  // namespace halfstep
