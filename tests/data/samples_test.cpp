// SPDX-License-Identifier: Apache-2.0
// Data sets that are not derived from Dataset, and the batches that a DataLoader makes of their samples.
#include "framework/data/loading/samples.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <atomic>
#include <map>
#include <stdexcept>

#include "amp/autocast/autocast.h"
#include "framework/autograd/grad_mode.h"
#include "framework/base/check.h"
#include "framework/data/loading/loader.h"
#include "framework/data/loading/subsets.h"
#include "framework/data/sets/tensor_dataset.h"
#include "framework/ops/ops.h"
#include "framework/tensor/memory.h"
#include "tests/io/files.h"

using namespace halfstep;
using namespace halfstep::testing;

namespace {

using Ints = std::vector<int64_t>;

Tensor counted(const Shape& shape) { return arange(double(numel(shape)), {.dtype = DType::f32}).reshape(shape); }

// Two inputs and a label, as a siamese network reads them.
struct Pairs {
  Tensor left = counted({7, 2}), right = counted({7, 3}) * -1;
  int64_t size() const { return left.size(0); }
  auto get(int64_t i) const { return std::tuple{left[i], right[i], i % 2 == 0}; }
};

// Its index, and a random number that belongs to it.
struct Drawn {
  int64_t n = 20;
  int64_t size() const { return n; }
  std::pair<int64_t, Tensor> get(int64_t i, Generator& random) const { return {i, rand({2}, {}, &random)}; }
};

// 0, 1, ... up to an end. A copy begins anew.
struct Counter {
  int64_t end = 10, at = 0, epoch = 0;
  void set_epoch(int64_t e) { epoch = e; }
  std::optional<int64_t> next() {
    if (at == end) return {};
    return 100 * epoch + at++;
  }
};

// The numbers of a loader whose batches are one tensor of integers, with -1 behind each batch.
template <class Loader>
Ints numbers(Loader& loader) {
  Ints out;
  for (const Tensor& batch : loader) {
    for (const int64_t v : batch.template to_vector<int64_t>()) out.push_back(v);
    out.push_back(-1);
  }
  return out;
}

}  // namespace

TEST_CASE("samples: a data set of ten lines, in batches of a tuple like its samples") {
  DataLoader loader(Pairs{}, {.batch_size = 3});
  CHECK(loader.size() == 3);
  int64_t seen = 0;
  for (auto [left, right, even] : loader) {
    const int64_t n = left.size(0);
    CHECK(right.shape() == Shape{n, 3});
    CHECK(even.dtype() == DType::boolean);
    CHECK(equal(left, Pairs{}.left.narrow(0, seen, n)));
    CHECK(equal(right, Pairs{}.right.narrow(0, seen, n)));
    CHECK(even.to_vector<int>()[0] == (seen % 2 == 0));
    seen += n;
  }
  CHECK(seen == 7);
  CHECK(std::get<0>(loader.dataset().get(2)).to_vector<int>() == std::vector<int>{4, 5});
}

TEST_CASE("samples: numbers, texts and what is nested become columns, as default_collate makes them") {
  struct Mixed {
    int64_t size() const { return 2; }
    auto get(int64_t i) const {
      return std::tuple{int(i), float(i) / 2, double(i) / 3, std::string(size_t(i), 'a'), std::pair{i == 1, uint8_t(i)}};
    }
  };
  DataLoader loader(Mixed{}, {.batch_size = 2});
  auto [whole, half, third, text, nested] = *loader.next();
  CHECK((whole.dtype() == DType::i64 && half.dtype() == DType::f32 && third.dtype() == DType::f64));
  CHECK(third.to_vector<double>() == std::vector<double>{0, 1.0 / 3});
  CHECK(text == std::vector<std::string>{"", "a"});
  CHECK((nested.first.dtype() == DType::boolean && nested.second.dtype() == DType::i64));
  // A std::vector of samples is a data set.
  DataLoader list(std::vector<std::pair<Tensor, int>>{{ones({2}), 4}, {zeros({2}), 5}}, {.batch_size = 2});
  auto [x, y] = *list.next();
  CHECK(x.to_vector<int>() == std::vector<int>{1, 1, 0, 0});
  CHECK(y.to_vector<int>() == std::vector<int>{4, 5});
  const auto [a, b] = default_collate(std::vector<std::pair<Tensor, double>>{{ones({1}), 2}, {ones({1}), 3}});
  CHECK((a.shape() == Shape{2, 1} && b.to_vector<double>() == std::vector<double>{2, 3}));
}

TEST_CASE("samples: random numbers belong to the sample and the epoch, whatever the workers") {
  std::map<std::pair<int, int64_t>, std::vector<float>> drawn;
  for (const int workers : {0, 1, 3}) {
    DataLoader loader(Drawn{}, {.batch_size = 6, .shuffle = true, .seed = 5, .num_workers = workers});
    for (int epoch = 0; epoch < 2; ++epoch) {
      for (auto [index, number] : loader) {
        for (int64_t k = 0; k < index.numel(); ++k) {
          const auto [at, fresh] = drawn.try_emplace({epoch, index[k].item<int64_t>()}, number[k].to_vector<float>());
          if (!fresh) CHECK(at->second == number[k].to_vector<float>());
        }
      }
    }
  }
  CHECK(drawn.size() == 40);
  CHECK(drawn[{0, 3}] != drawn[{1, 3}]);
  CHECK(drawn[{0, 3}] != drawn[{0, 4}]);
}

TEST_CASE("samples: get_batch makes whole batches; a collate takes its place") {
  struct Fetches {
    std::shared_ptr<std::atomic<int>> calls = std::make_shared<std::atomic<int>>(0);
    int64_t size() const { return 5; }
    Tensor get(int64_t i) const { return full({1}, double(i)); }
    Tensor get_batch(std::span<const int64_t> indices) const {
      ++*calls;
      return tensor(std::vector<float>(indices.begin(), indices.end())).unsqueeze(1);
    }
  };
  const Fetches set;
  DataLoader loader(set, {.batch_size = 2, .num_workers = 2});
  CHECK(cat({*loader.next(), *loader.next(), *loader.next()}).to_vector<int>() == std::vector<int>{0, 1, 2, 3, 4});
  CHECK(*set.calls == 3);

  // Texts of different lengths, padded by a collate.
  struct Texts {
    int64_t size() const { return 3; }
    Tensor get(int64_t i) const { return full({i + 1}, double(i + 1)); }
  };
  const auto padded_rows = [](const Tensors& rows) {
    int64_t longest = 0;
    for (const Tensor& row : rows) longest = std::max(longest, row.size(0));
    Tensors padded;
    Ints lengths;
    for (const Tensor& row : rows) padded.push_back(pad(row, {0, longest - row.size(0)})), lengths.push_back(row.size(0));
    return std::pair{stack(padded), lengths};
  };
  for (const int workers : {0, 2}) {
    DataLoader texts(Texts{}, {.batch_size = 3, .num_workers = workers}, padded_rows);
    const auto [x, lengths] = *texts.next();
    CHECK(x.to_vector<int>() == std::vector<int>{1, 0, 0, 2, 2, 0, 3, 3, 3});
    CHECK(lengths == Ints{1, 2, 3});
  }
}

TEST_CASE("samples: errors name the sample and keep their type") {
  struct Uneven {
    int64_t size() const { return 4; }
    std::pair<Tensor, Tensor> get(int64_t i) const { return {ones({i == 2 ? 3 : 2}), zeros({})}; }
  };
  DataLoader uneven(Uneven{}, {.batch_size = 4});
  const std::string shapes = message_of<ShapeError>([&] { uneven.next(); });
  CHECK_MESSAGE(contains(shapes, "[3]"), shapes);
  CHECK_MESSAGE(contains(shapes, "sample 2"), shapes);

  struct Types {
    int64_t size() const { return 2; }
    Tensor get(int64_t i) const { return ones({1}, {.dtype = i == 1 ? DType::f64 : DType::f32}); }
  };
  DataLoader types(Types{}, {.batch_size = 2});
  CHECK(contains(message_of<DTypeError>([&] { types.next(); }), "float64"));

  struct Throws {
    bool ours = true;
    int64_t size() const { return 4; }
    Tensor get(int64_t i) const {
      if (i == 2 && ours) fail<IndexError>("lookup", "no such word");
      if (i == 2) throw std::runtime_error("disk on fire");
      return ones({1});
    }
  };
  for (const int workers : {0, 2}) {
    DataLoader ours(Throws{true}, {.batch_size = 2, .num_workers = workers});
    CHECK(ours.next());
    const std::string own = message_of<IndexError>([&] { ours.next(); });
    CHECK_MESSAGE(contains(own, "sample: get(2), epoch 0"), own);
    DataLoader theirs(Throws{false}, {.batch_size = 2, .num_workers = workers});
    CHECK(theirs.next());
    const std::string other = message_of<DataError>([&] { theirs.next(); });
    CHECK_MESSAGE(contains(other, "get(2) of epoch 0 threw: disk on fire"), other);
    CHECK(theirs.state() == LoaderState{0, 1});  // the next call tries the same batch
  }
  CHECK(contains(message_of<ValueError>([] { DataLoader(std::vector<Tensor>{}, {}); }), "the data set gives no batch"));
  CHECK_THROWS_AS(DataLoader(std::shared_ptr<Pairs>{}, {}), ValueError);
  CHECK_THROWS_AS(default_collate(std::vector<Tensor>{}), ValueError);
}

TEST_CASE("samples: get() sees neither a graph nor the loop's autocast region") {
  struct Looks {
    int64_t size() const { return 1; }
    std::pair<bool, Tensor> get(int64_t) const {
      const Tensor w = ones({2, 2}, {.requires_grad = true});
      return {grad_enabled(), mm(w, w)};
    }
  };
  for (const int workers : {0, 1}) {
    DataLoader loader(Looks{}, {.num_workers = workers});
    const Autocast region(Device::cpu, DType::bf16);
    const auto [recording, product] = *loader.next();
    CHECK(!recording.item<bool>());
    CHECK(!product.requires_grad());
    CHECK(product.dtype() == DType::f32);
  }
}

TEST_CASE("streams: each epoch reads a fresh copy, in batches, with workers ahead") {
  for (const int workers : {0, 1, 4}) {
    DataLoader all(Counter{}, {.batch_size = 4, .num_workers = workers});
    CHECK(numbers(all) == Ints{0, 1, 2, 3, -1, 4, 5, 6, 7, -1, 8, 9, -1});
    CHECK(numbers(all) == Ints{100, 101, 102, 103, -1, 104, 105, 106, 107, -1, 108, 109, -1});
    DataLoader full(Counter{}, {.batch_size = 4, .drop_last = true, .num_workers = workers});
    CHECK(numbers(full) == Ints{0, 1, 2, 3, -1, 4, 5, 6, 7, -1});
    DataLoader resumed(Counter{}, {.batch_size = 4, .num_workers = workers});
    resumed.set_state({1, 2});
    CHECK(numbers(resumed) == Ints{108, 109, -1});
    CHECK(resumed.state() == LoaderState{2, 0});
    for (const Tensor& first : resumed) {
      CHECK(first[0].item<int64_t>() == 200);
      break;
    }
    CHECK(numbers(resumed).front() == 300);  // an epoch that was left early is over
  }
}

TEST_CASE("streams: random numbers follow the seed; what does not fit is refused") {
  struct Noise {
    int64_t left = 6;
    std::optional<Tensor> next(Generator& random) {
      if (left-- == 0) return {};
      return rand({1}, {}, &random);
    }
  };
  const auto pass = [](uint64_t seed, int workers) {
    DataLoader loader(Noise{}, {.batch_size = 6, .seed = seed, .num_workers = workers});
    return loader.next()->to_vector<float>();
  };
  CHECK(pass(1, 0) == pass(1, 2));
  CHECK(pass(1, 0) != pass(2, 0));
  CHECK(contains(message_of<ValueError>([] { DataLoader(Counter{}, {.shuffle = true}); }), "a stream is read in its own order"));
  CHECK(contains(message_of<ValueError>([] { DataLoader(Counter{}, {.ranks = 2}); }), "a stream cannot be read by 2 ranks"));
  DataLoader loader(Counter{}, {});
  CHECK(contains(message_of<ValueError>([&] { loader.size(); }), "does not know how many batches"));
  CHECK(contains(message_of<ValueError>([&] { loader.set_state({0, -1}); }), "next_batch in [0, ...]"));
}

TEST_CASE("samples: ranks get the parts of one process's batches, also empty ones") {
  DataLoader whole(Pairs{}, {.batch_size = 2, .shuffle = true, .seed = 1});
  std::vector<DataLoader<Pairs>> ranks;
  for (int r = 0; r < 2; ++r)
    ranks.emplace_back(Pairs{}, LoaderOptions{.batch_size = 2, .shuffle = true, .seed = 1, .rank = r, .ranks = 2});
  while (const auto all = whole.next()) {
    for (auto& rank : ranks) {
      const auto part = rank.next();
      REQUIRE(part);
      const BatchRows rows = rank.part();
      CHECK(std::get<0>(*part).defined() == (rows.rows > 0));
      if (rows.rows > 0) CHECK(equal(std::get<1>(*part), std::get<1>(*all).narrow(0, rows.first, rows.rows)));
    }
  }
}

TEST_CASE("TensorDataset of any number of tensors: tuples of rows") {
  const Tensor a = counted({5, 2}), b = counted({5}), c = arange(5);
  const TensorDataset three(a, b, c);
  CHECK(three.size() == 5);
  const auto [x, y, z] = three.get(3);
  CHECK((x.shape() == Shape{2} && y.shape() == Shape{} && z.item<int64_t>() == 3));
  DataLoader loader(three, {.batch_size = 2});
  const auto first = *loader.next();
  CHECK(equal(std::get<0>(first), a.narrow(0, 0, 2)));
  CHECK(std::get<2>(first).dtype() == DType::i64);
  DataLoader one(TensorDataset{a}, {.batch_size = 5});
  const auto [only] = *one.next();
  CHECK(equal(only, a));
  CHECK_THROWS_AS((TensorDataset<3>(a, b, counted({4}))), ShapeError);
  CHECK_THROWS_AS((TensorDataset<3>(a, b, Tensor())), ValueError);
  CHECK_THROWS_AS(three.get(5), IndexError);
  // Two are a Dataset, whose classes are counted.
  CHECK(TensorDataset(a, c).classes() == 5);
  CHECK(TensorDataset(a, b).classes() == 0);
  DataLoader two(TensorDataset(a, c), {.batch_size = 5});
  const Batch batch = *two.next();
  CHECK(equal(batch.input, a));
  CHECK(equal(batch.target, c));
}

TEST_CASE("Subset, random_split and ConcatDataset take any data set") {
  const Subset part(Pairs{}, {6, 0});
  CHECK(part.size() == 2);
  CHECK(std::get<0>(part.get(0)).to_vector<int>() == std::vector<int>{12, 13});
  CHECK_THROWS_AS(part.get(2), IndexError);
  CHECK_THROWS_AS(Subset(Pairs{}, {7}), IndexError);
  DataLoader loader(part, {.batch_size = 2});
  CHECK(std::get<0>(*loader.next()).to_vector<int>() == std::vector<int>{12, 13, 0, 1});

  Generator generator(3), same(3);
  const auto [train, val] = random_split(Pairs{}, {0.7, 0.3}, &generator);
  CHECK((train.size() == 5 && val.size() == 2));  // 4 and 2, and the one that is left goes to the first
  const auto again = random_split(Pairs{}, {0.7, 0.3}, &same);
  CHECK(train.indices() == again[0].indices());
  Ints all = train.indices();
  all.insert(all.end(), val.indices().begin(), val.indices().end());
  std::sort(all.begin(), all.end());
  CHECK(all == Ints{0, 1, 2, 3, 4, 5, 6});
  CHECK(random_split(Pairs{}, std::vector<int>{3, 3, 1}).size() == 3);
  CHECK(contains(message_of<ValueError>([] {
                   random_split(Pairs{}, {3, 3});
                 }),
                 "lengths must sum to the data set's 7 samples, got 6"));
  CHECK(contains(message_of<ValueError>([] { random_split(Pairs{}, {0.5, 0.6}); }), "fractions must sum to 1"));

  // Of a class derived from Dataset: Datasets again, so that transforms, classes and labels stay.
  const auto [a, b] = random_split(TensorDataset(counted({4, 1}), arange(4)), {3, 1});
  const Dataset& as_dataset = a;
  CHECK((as_dataset.classes() == 4 && as_dataset.labels().size() == 3 && b.size() == 1));

  const ConcatDataset both(Pairs{}, Subset(Pairs{}, {2}));
  CHECK(both.size() == 8);
  CHECK(std::get<1>(both.get(7)).to_vector<int>() == std::vector<int>{-6, -7, -8});
  CHECK_THROWS_AS(both.get(8), IndexError);
  DataLoader long_loader(both, {.batch_size = 8});
  CHECK(std::get<0>(*long_loader.next()).size(0) == 8);
  // Random numbers reach the sets inside.
  DataLoader plain(Drawn{4}, {.batch_size = 4, .seed = 2});
  DataLoader joined_sets(ConcatDataset(Drawn{4}), {.batch_size = 4, .seed = 2});
  CHECK(equal(plain.next()->second, joined_sets.next()->second));
}
