// SPDX-License-Identifier: Apache-2.0
#include "framework/data/loading/loader.h"

#include <doctest/doctest.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <iterator>

#include "framework/base/check.h"
#include "framework/base/sanitizers.h"
#include "framework/data/loading/permutation.h"
#include "framework/data/sets/tensor_dataset.h"
#include "framework/ops/ops.h"
#include "framework/tensor/memory.h"
#include "tests/io/files.h"

using namespace halfstep;
using namespace halfstep::testing;

namespace {

// n samples whose input and class are their own index.
std::shared_ptr<Dataset> counting(int64_t n) {
  const Tensor x = Tensor::empty({n, 1}), y = Tensor::empty({n}, {.dtype = DType::i64});
  for (int64_t i = 0; i < n; ++i) x.data_ptr<float>()[i] = float(i), y.data_ptr<int64_t>()[i] = i;
  return std::make_shared<TensorDataset<>>(x, y, n);
}

// The samples of one pass, batch after batch, each batch ended by -1.
std::vector<int64_t> pass(DataLoader<>& loader) {
  std::vector<int64_t> out;
  for (auto& [x, target] : loader) {
    CHECK(x.size(0) == target.size(0));
    for (int64_t i = 0; i < target.numel(); ++i) {
      CHECK(x.data_ptr<float>()[i] == float(target.data_ptr<int64_t>()[i]));
      out.push_back(target.data_ptr<int64_t>()[i]);
    }
    out.push_back(-1);
  }
  return out;
}

// Fails for one sample, as long as a flag is set.
class Failing : public Dataset {
 public:
  int64_t size() const override { return 10; }
  Shape input_shape() const override { return {}; }
  Shape target_shape() const override { return {}; }
  int64_t classes() const override { return 10; }
  std::string describe() const override { return "failing"; }
  Batch batch(std::span<const int64_t> indices) const override {
    const bool bad = std::find(indices.begin(), indices.end(), 5) != indices.end();
    check<DataError>(!bad || !fails, "Failing", "sample 5 is bad");
    return {Tensor::empty({int64_t(indices.size())}), Tensor::empty({int64_t(indices.size())}, {.dtype = DType::i64})};
  }
  mutable std::atomic<bool> fails = true;
};

}  // namespace

TEST_CASE("DataLoader: batches in order, with and without the last one") {
  DataLoader all(counting(7), {.batch_size = 3});
  CHECK(all.size() == 3);
  CHECK(pass(all) == std::vector<int64_t>{0, 1, 2, -1, 3, 4, 5, -1, 6, -1});
  CHECK(pass(all) == std::vector<int64_t>{0, 1, 2, -1, 3, 4, 5, -1, 6, -1});
  DataLoader full(counting(7), {.batch_size = 3, .drop_last = true});
  CHECK(full.size() == 2);
  CHECK(pass(full) == std::vector<int64_t>{0, 1, 2, -1, 3, 4, 5, -1});
}

TEST_CASE("DataLoader: the order is a function of seed and epoch, whatever the workers") {
  DataLoader plain(counting(50), {.batch_size = 8, .shuffle = true, .seed = 3});
  const std::vector<int64_t> first = pass(plain), second = pass(plain);
  CHECK(first != second);
  std::vector<int64_t> samples;
  std::copy_if(first.begin(), first.end(), std::back_inserter(samples), [](int64_t i) { return i >= 0; });
  CHECK(samples == permutation(50, 3, 0));
  for (int workers : {1, 3}) {
    DataLoader threaded(counting(50), {.batch_size = 8, .shuffle = true, .seed = 3, .num_workers = workers, .prefetch = 2});
    CHECK(pass(threaded) == first);
    CHECK(pass(threaded) == second);
  }
  DataLoader other(counting(50), {.batch_size = 8, .shuffle = true, .seed = 4});
  CHECK(pass(other) != first);
}

TEST_CASE("DataLoader: a saved state continues with the very next batch") {
  for (int workers : {0, 1, 2}) {
    const LoaderOptions options{.batch_size = 4, .shuffle = true, .seed = 11, .num_workers = workers, .prefetch = 3};
    DataLoader loader(counting(30), options);
    pass(loader);
    CHECK(loader.state() == LoaderState{1, 0});
    LoaderState saved;
    std::vector<int64_t> rest;
    int batch = 0;
    for (auto& [x, target] : loader) {
      if (++batch == 3) {
        saved = loader.state();
        CHECK(saved == LoaderState{1, 3});
      }
      if (batch <= 3) continue;
      for (int64_t i : target.to_vector<int64_t>()) rest.push_back(i);
      rest.push_back(-1);
    }
    const std::vector<int64_t> next_epoch = pass(loader);

    DataLoader resumed(counting(30), options);
    resumed.set_state(saved);
    CHECK(pass(resumed) == rest);
    CHECK(pass(resumed) == next_epoch);
    // Back into the middle of what is being prefetched.
    resumed.next();
    resumed.set_state(saved);
    CHECK(pass(resumed) == rest);
  }
}

TEST_CASE("DataLoader: a place in samples is taken up with any batch size, by shuffled, sampled and dropping loaders") {
  const auto samples = [](DataLoader<>& loader) {
    std::vector<int64_t> out;
    for (const int64_t i : pass(loader))
      if (i >= 0) out.push_back(i);
    return out;
  };
  for (const bool shuffle : {false, true}) {
    for (const int workers : {0, 2}) {
      for (const int64_t size : {1, 3, 4, 7, 50}) {
        DataLoader<> first(counting(23), {.batch_size = 5, .shuffle = shuffle, .seed = 9});
        DataLoader<> whole(counting(23), {.batch_size = 23, .shuffle = shuffle, .seed = 9});
        const std::vector<int64_t> order = samples(whole), then = samples(whole);
        for (int i = 0; i < 3; ++i) first.next();
        CHECK(first.position() == LoaderPosition{0, 15, 5, 9, first.position().order});
        DataLoader<> other(counting(23), {.batch_size = size, .shuffle = shuffle, .seed = 1, .num_workers = workers});
        other.set_position(first.position());
        CHECK(other.position().order == first.position().order);
        CHECK(samples(other) == std::vector<int64_t>(order.begin() + 15, order.end()));
        CHECK(other.state() == LoaderState{1, 0});
        CHECK(samples(other) == then);
        CHECK(other.position() == LoaderPosition{2, 0, size, 9, 0});
      }
    }
  }
  DataLoader<> dropping(counting(23), {.batch_size = 4, .drop_last = true});
  dropping.set_position({0, 15, 5, 0, 0});
  CHECK(pass(dropping) == std::vector<int64_t>{15, 16, 17, 18, -1, 19, 20, 21, 22, -1});
  dropping.set_position({3, 23, 5, 0, 0});
  CHECK(pass(dropping).empty());
  CHECK(dropping.state().epoch == 4);
  CHECK_THROWS_WITH_AS(dropping.set_position({0, 24, 5, 0, 0}), doctest::Contains("must lie in the data set, which has 23 samples"),
                       ValueError);
}

TEST_CASE("DataLoader: at the end of an epoch the state says so until the end is seen") {
  DataLoader loader(counting(4), {.batch_size = 2});
  CHECK(loader.next());
  CHECK(loader.next());
  CHECK(loader.state() == LoaderState{0, 2});
  CHECK(!loader.next());
  CHECK(loader.state() == LoaderState{1, 0});
  loader.set_state({5, 2});
  CHECK(pass(loader).empty());
  CHECK(loader.state() == LoaderState{6, 0});
}

TEST_CASE("DataLoader: a pass left early, then a new one") {
  for (int workers : {0, 1, 2}) {
    DataLoader loader(counting(100), {.batch_size = 2, .num_workers = workers, .prefetch = 4});
    for (auto& batch : loader) {
      if (batch.target.data_ptr<int64_t>()[0] == 6) break;
    }
    CHECK(loader.state() == LoaderState{0, 4});
    CHECK(pass(loader).size() == 150);
    CHECK(loader.state() == LoaderState{2, 0});
    for ([[maybe_unused]] auto& batch : loader) break;  // and is destroyed with batches in flight
  }
}

TEST_CASE("DataLoader: what the data set throws arrives with its batch") {
  for (int workers : {0, 1, 2}) {
    const auto data = std::make_shared<Failing>();
    DataLoader loader(data, {.batch_size = 2, .num_workers = workers, .prefetch = 8});
    CHECK(loader.next());
    CHECK(loader.next());
    CHECK(message_of<DataError>([&] { loader.next(); }) == "[Failing] sample 5 is bad");
    CHECK(loader.state() == LoaderState{0, 2});
    data->fails = false;
    CHECK(loader.next());
    CHECK(loader.state() == LoaderState{0, 3});
  }
}

#if defined(__linux__) && !defined(HALFSTEP_ADDRESS_SANITIZER) && !defined(HALFSTEP_THREAD_SANITIZER)
TEST_CASE("DataLoader: more workers than the system has threads for are an error, not the end of the program") {
  const pid_t child = fork();
  if (child == 0) {
    alarm(20);
    const rlimit few{size_t(1) << 30, size_t(1) << 30};  // bytes of addresses, of which each thread's stack takes 8 MB
    setrlimit(RLIMIT_AS, &few);
    try {
      DataLoader loader(counting(4096), {.batch_size = 1, .num_workers = 1000});
      (void)loader.next();
    } catch (const MemoryError&) { _exit(7); }
    _exit(8);
  }
  int status = 0;
  REQUIRE(waitpid(child, &status, 0) == child);
  CHECK(WIFEXITED(status));
  CHECK(WEXITSTATUS(status) == 7);
}
#endif

TEST_CASE("DataLoader: moved while it prefetches") {
  DataLoader loader(counting(20), {.batch_size = 5, .num_workers = 1});
  loader.next();
  DataLoader moved = std::move(loader);
  CHECK(pass(moved).size() == 24);  // a pass after a single next() starts anew
  CHECK(moved.wait_seconds() >= 0);
}

TEST_CASE("DataLoader: batches are booked as data") {
  DataLoader loader(counting(8000), {.batch_size = 4000, .shuffle = true, .num_workers = 1});
  const auto live = [](MemoryTag tag) { return allocator(Device::cpu).stats().live_by_tag[size_t(tag)]; };
  const size_t data = live(MemoryTag::data), activations = live(MemoryTag::activations);
  const std::optional<Batch> batch = loader.next();
  CHECK(live(MemoryTag::data) >= data + 4000 * 12);
  CHECK(live(MemoryTag::activations) == activations);
}

TEST_CASE("DataLoader: options out of range") {
  const auto fails = [](std::shared_ptr<Dataset> data, const LoaderOptions& o) {
    return message_of<ValueError>([&] { DataLoader loader(data, o); });
  };
  CHECK(contains(fails(counting(3), {.batch_size = 0}), "batch_size must be at least 1, got 0"));
  CHECK(contains(fails(counting(3), {.num_workers = -1}), "num_workers must not be negative, got -1"));
  CHECK(contains(fails(counting(3), {.num_workers = 1, .prefetch = 0}), "prefetch must be at least 1, got 0"));
  CHECK(contains(fails(counting(3), {.batch_size = 4, .drop_last = true}),
                 "gives no batch: it has 3 samples, batch_size is 4 and drop_last"));
  CHECK(contains(fails(nullptr, {}), "needs a data set"));
  DataLoader loader(counting(3));
  CHECK(contains(message_of<ValueError>([&] { loader.set_state({0, 4}); }), "next_batch in [0, 3] and begin in [0, "));
}

TEST_CASE("loader: parts of ranks are the batches of one process, also those that are smaller than the ranks are many") {
  CHECK(part_of(10, 0, 4) == BatchRows{0, 3, 10});
  CHECK(part_of(10, 3, 4) == BatchRows{8, 2, 10});
  CHECK(part_of(3, 3, 4) == BatchRows{3, 0, 3});
  const auto data = std::make_shared<TensorDataset<>>(arange(10.0, {.dtype = DType::f32}).reshape({10, 1}),
                                                    arange(10.0, {.dtype = DType::f32}).reshape({10, 1}));
  const LoaderOptions options{.batch_size = 7, .shuffle = true, .seed = 4};
  DataLoader whole(data, options);
  std::vector<DataLoader<>> ranks;
  for (int r = 0; r < 4; ++r) {
    LoaderOptions own = options;
    own.rank = r, own.ranks = 4, own.num_workers = r % 2;
    ranks.emplace_back(data, own);
  }
  for (int epoch = 0; epoch < 2; ++epoch) {
    while (const auto all = whole.next()) {
      CHECK(whole.part() == BatchRows{0, all->input.size(0), all->input.size(0)});
      for (DataLoader<>& rank : ranks) {
        const auto part = rank.next();
        REQUIRE(part);
        const BatchRows rows = rank.part();
        CHECK(part->input.defined() == (rows.rows > 0));
        if (rows.rows > 0)
          CHECK(part->input.to_vector<double>() == all->input.narrow(0, rows.first, rows.rows).to_vector<double>());
        CHECK(rank.state() == whole.state());
      }
    }
    for (DataLoader<>& rank : ranks) CHECK(!rank.next());
  }
  CHECK_THROWS_WITH_AS(DataLoader(data, {.rank = 2, .ranks = 2}), doctest::Contains("rank must lie in [0, ranks), got 2 of 2"),
                       ValueError);
}

TEST_CASE("a loader takes the batch size and shuffle by place, and a data set an index") {
  const Tensor x = arange(10.0).reshape({10, 1});
  DataLoader loader(TensorDataset(x, x), 4, true);
  CHECK(loader.size() == 3);
  CHECK(loader.options().shuffle);
  CHECK(!DataLoader(TensorDataset(x, x, x), 2).options().shuffle);
  CHECK(TensorDataset(x, x)[3].first.item() == 3);
  const auto [a, b, c] = TensorDataset(x, x, x)[4];
  CHECK(c.item() == 4);
}
