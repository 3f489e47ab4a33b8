// SPDX-License-Identifier: Apache-2.0
// The seed of loaders that are given none.
#include <doctest/doctest.h>

#include <algorithm>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "framework/base/log.h"
#include "framework/data/loading/loader.h"
#include "framework/data/sets/tensor_dataset.h"
#include "framework/ops/ops.h"

using namespace halfstep;

namespace {

using Ints = std::vector<int64_t>;

struct Range {
  int64_t n;
  int64_t size() const { return n; }
  int64_t get(int64_t i) const { return i; }
};
// A random number of each sample.
struct Drawing {
  int64_t n;
  int64_t size() const { return n; }
  double get(int64_t, Generator& random) const { return rand({1}, {.dtype = DType::f64}, &random).item(); }
};
struct DrawingStream {
  int64_t left;
  std::optional<double> next(Generator& random) {
    if (left-- == 0) return {};
    return rand({1}, {.dtype = DType::f64}, &random).item();
  }
};

// The numbers of the next pass.
template <class Loader>
std::vector<double> numbers_of_pass(Loader& loader) {
  std::vector<double> out;
  for (const Tensor& batch : loader)
    for (const double v : batch.template to_vector<double>()) out.push_back(v);
  return out;
}

LoaderOptions shuffled(int rank = 0, int ranks = 1) { return {.batch_size = 5, .shuffle = true, .rank = rank, .ranks = ranks}; }

int64_t equal_places(const std::vector<double>& a, const std::vector<double>& b) {
  int64_t out = 0;
  for (size_t i = 0; i < a.size(); ++i) out += a[i] == b[i];
  return out;
}

}  // namespace

TEST_CASE("loaders without a seed: a new order for each that is made, and the same after manual_seed") {
  constexpr int64_t kSamples = 20;
  constexpr int kEpochs = 30;
  const auto made_in_the_loop = [] {
    std::set<std::vector<double>> orders;
    for (int epoch = 0; epoch < kEpochs; ++epoch) {
      DataLoader loader(Range{kSamples}, shuffled());
      orders.insert(numbers_of_pass(loader));
    }
    return orders;
  };
  manual_seed(1);
  const auto first = made_in_the_loop();
  CHECK(first.size() == kEpochs);
  CHECK(first != made_in_the_loop());
  manual_seed(1);
  CHECK(made_in_the_loop() == first);
  // Two loaders are not paired: the same index is at one place of both by chance, once a pass.
  manual_seed(2);
  DataLoader a(Range{kSamples}, shuffled()), b(Range{kSamples}, shuffled());
  int64_t equal = 0;
  for (int epoch = 0; epoch < kEpochs; ++epoch) equal += equal_places(numbers_of_pass(a), numbers_of_pass(b));
  CHECK(equal < 3 * kEpochs);
}

TEST_CASE("loaders without a seed: samplers, and the numbers of samples and streams, are not paired") {
  manual_seed(4);
  const WeightedSampler sampler(std::vector<double>(50, 1.0), 200);
  DataLoader a(Range{50}, {.batch_size = 8, .sampler = sampler}), b(Range{50}, {.batch_size = 8, .sampler = sampler});
  CHECK(equal_places(numbers_of_pass(a), numbers_of_pass(b)) < 20);  // 4 by chance
  for (const int workers : {0, 2}) {
    DataLoader c(Drawing{9}, {.batch_size = 2, .num_workers = workers}), d(Drawing{9}, {.batch_size = 2, .num_workers = workers});
    CHECK(equal_places(numbers_of_pass(c), numbers_of_pass(d)) == 0);
    DataLoader e(DrawingStream{9}, {.batch_size = 2, .num_workers = workers});
    DataLoader f(DrawingStream{9}, {.batch_size = 2, .num_workers = workers});
    CHECK(equal_places(numbers_of_pass(e), numbers_of_pass(f)) == 0);
  }
}

TEST_CASE("loaders without a seed: one is drawn at the first batch, and only where it matters") {
  manual_seed(7);
  DataLoader loader(Range{30}, shuffled());
  CHECK(default_generator().state() == Generator::State{7, 0});  // the weights of a model that is made now are the same
  manual_seed(8);
  const std::vector<double> order = numbers_of_pass(loader);
  manual_seed(8);
  DataLoader again(Range{30}, shuffled());
  CHECK(numbers_of_pass(again) == order);
  manual_seed(9);
  DataLoader other(Range{30}, shuffled()), in_order(Range{30}, {.batch_size = 7});
  DataLoader seeded(Drawing{30}, {.seed = 3});
  CHECK(numbers_of_pass(other) != order);
  const Generator::State before = default_generator().state();
  numbers_of_pass(in_order), numbers_of_pass(seeded), numbers_of_pass(other);
  CHECK(in_order.position().sample == 0);
  CHECK(default_generator().state() == before);
}

TEST_CASE("loaders without a seed: a generator that two of them are given does not pair them") {
  for (const GeneratorKind kind : {GeneratorKind::philox, GeneratorKind::mt19937}) {
    Generator generator(6, kind);
    const auto options = [&] { return LoaderOptions{.batch_size = 5, .shuffle = true, .generator = &generator}; };
    DataLoader a(Range{40}, options()), b(Range{40}, options());
    CHECK(a.options().seed != b.options().seed);
    CHECK(equal_places(numbers_of_pass(a), numbers_of_pass(b)) < 8);
    if (kind == GeneratorKind::mt19937) CHECK(a.options().seed == 6u);  // the order of PyTorch's with this generator
  }
}

TEST_CASE("loaders without a seed: ranks agree, whatever their generators, and the next loaders have another order") {
  constexpr int kRanks = 3, kLoaders = 3;
  std::vector<std::vector<std::vector<double>>> passes(kRanks);  // by rank and loader
  for (int rank = 0; rank < kRanks; ++rank) {
    manual_seed(uint64_t(100 + rank));
    DataLoader(Range{3}, {.rank = rank, .ranks = kRanks});  // in order: it does not count
    if (rank == 1) DataLoader(Range{60}, shuffled());       // of one process, as for an evaluation on one rank
    for (int k = 0; k < kLoaders; ++k) {
      LoaderOptions o = shuffled(rank, kRanks);
      o.batch_size = 6;
      DataLoader loader(Range{60}, o);
      passes[size_t(rank)].push_back(numbers_of_pass(loader));
    }
  }
  for (int k = 0; k < kLoaders; ++k) {
    std::set<double> all;
    for (const auto& of_rank : passes) all.insert(of_rank[size_t(k)].begin(), of_rank[size_t(k)].end());
    CHECK(all.size() == 60);  // no sample is read by two ranks
    if (k > 0) CHECK(passes[0][size_t(k)] != passes[0][size_t(k) - 1]);
  }
}

TEST_CASE("loaders without a seed: a saved position continues the epoch, and with the generator all that follow") {
  const Generator::State before = default_generator().state();
  for (const GeneratorKind kind : {GeneratorKind::philox, GeneratorKind::mt19937}) {
    for (const int batches : {0, 2, 4, 6}) {  // 4: at the end of the first epoch
      manual_seed(5, kind);
      DataLoader whole(Range{17}, shuffled());
      for (int i = 0; i < batches;) i += whole.next().has_value();
      const LoaderPosition position = whole.position();
      const Generator::State drawn = default_generator().state();
      std::vector<double> rest;
      while (const auto batch = whole.next())
        for (const double v : batch->to_vector<double>()) rest.push_back(v);
      const std::vector<double> then = numbers_of_pass(whole), last = numbers_of_pass(whole);

      manual_seed(99);
      DataLoader resumed(Range{17}, shuffled());
      numbers_of_pass(resumed);
      default_generator().set_state(drawn);
      resumed.set_position(position);
      CHECK(numbers_of_pass(resumed) == rest);
      CHECK(numbers_of_pass(resumed) == then);
      CHECK(numbers_of_pass(resumed) == last);
    }
  }
  default_generator().set_state(before);
}

TEST_CASE("loaders without a seed: so does a saved state, also of sets that draw, of streams and of other generators") {
  const Generator::State before = default_generator().state();
  // Reads a pass and some batches, and the rest of the epoch; then the rest once more, by a loader of another process.
  const auto check_resumed = [](const char* name, const auto& make) {
    CAPTURE(name);
    for (const int batches : {1, 3}) {
      manual_seed(5);
      auto whole = make();
      numbers_of_pass(whole);
      for (int i = 0; i < batches; ++i) CHECK(whole.next().has_value());
      const LoaderState state = whole.state();
      CHECK(state.seed.has_value());
      const Generator::State drawn = default_generator().state();
      std::vector<double> rest;
      while (const auto batch = whole.next())
        for (const double v : batch->template to_vector<double>()) rest.push_back(v);
      const std::vector<double> then = numbers_of_pass(whole);

      manual_seed(6);
      auto resumed = make();
      default_generator().set_state(drawn);
      resumed.set_state(state);
      CHECK(numbers_of_pass(resumed) == rest);
      CHECK(numbers_of_pass(resumed) == then);
      resumed.set_state(state);  // back, after the seed of another epoch
      CHECK(numbers_of_pass(resumed) == rest);
    }
  };
  for (const GeneratorKind kind : {GeneratorKind::philox, GeneratorKind::mt19937}) {
    manual_seed(0, kind);
    check_resumed("shuffled", [] { return DataLoader(Range{17}, shuffled()); });
    check_resumed("a set that draws", [] { return DataLoader(Drawing{17}, {.batch_size = 5}); });
    check_resumed("a stream", [] { return DataLoader(DrawingStream{17}, {.batch_size = 5}); });
    check_resumed("workers", [] { return DataLoader(Range{17}, {.batch_size = 5, .shuffle = true, .num_workers = 2}); });
    check_resumed("a generator", [] {
      static uint64_t used = 0;  // as where each process has another
      Generator own(++used);
      return DataLoader(Range{17}, {.batch_size = 5, .shuffle = true, .generator = &own});
    });
    check_resumed("a rank", [] { return DataLoader(Range{17}, shuffled(1, 2)); });
  }
  default_generator().set_state(before);
}

TEST_CASE("loaders without a seed: a position within an epoch that has none is warned of, unless nothing depends on it") {
  static std::vector<std::string> warnings;
  warnings.clear();
  const logging::Capture capture([](logging::Level, std::string_view text) { warnings.emplace_back(text); });
  DataLoader in_order(Range{17}, {.batch_size = 5}), given(Range{17}, {.batch_size = 5, .shuffle = true, .seed = 1});
  DataLoader loader(Range{17}, shuffled());
  in_order.set_state({2, 1});
  given.set_state({2, 1});
  loader.set_state({2, 0});
  loader.set_state({2, 4});  // at the end
  CHECK(warnings.empty());
  CHECK(!in_order.state().seed.has_value());
  CHECK(given.state().seed == 1);
  CHECK(!loader.state().seed.has_value());
  loader.set_state({2, 1});
  REQUIRE(warnings.size() == 1);
  CHECK(warnings[0].find("[DataLoader] batch 1 of epoch 2 has another order than when its state was saved") == 0);
  CHECK(warnings[0].find("help: save LoaderState::seed, too") != std::string::npos);
  numbers_of_pass(loader);
  loader.set_state({2, 1});  // by its own seed
  CHECK(warnings.size() == 1);
}

TEST_CASE("transformed() without a seed: two data sets have other random numbers, and manual_seed decides on them") {
  struct Noise : Transform {
    Batch apply(const Batch& batch, const Draws& draws) const override {
      Batch out{batch.input.clone(), batch.target};
      for (size_t i = 0; i < draws.indices.size(); ++i) out.input.data_ptr<float>()[i] = float(SampleRandom(draws, i).uniform());
      return out;
    }
    bool is_random() const override { return true; }
  };
  const auto data = std::make_shared<TensorDataset<>>(zeros({8, 1}), zeros({8, 1}));
  const auto values = [&] {
    return transformed(data, {std::make_shared<Noise>()})->batch(Ints{0, 1, 2, 3}).input.to_vector<double>();
  };
  manual_seed(1);
  const std::vector<double> first = values(), second = values();
  CHECK(equal_places(first, second) == 0);
  manual_seed(1);
  CHECK(values() == first);
  const Generator::State before = default_generator().state();
  transformed(data, {std::make_shared<NormalizeTransform>(Normalize{.mean = 1, .std = 2})});
  CHECK(default_generator().state() == before);
}
