// SPDX-License-Identifier: Apache-2.0
// What a loop over a DataLoader may do: write into its batches, and begin another pass.
#include <doctest/doctest.h>

#include <algorithm>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "framework/base/check.h"
#include "framework/data/loading/loader.h"
#include "framework/data/loading/subsets.h"
#include "framework/data/sets/split.h"
#include "framework/data/sets/tensor_dataset.h"
#include "framework/ops/ops.h"
#include "tests/io/files.h"

using namespace halfstep;
using namespace halfstep::testing;

namespace {

using Ints = std::vector<int64_t>;

constexpr int64_t kRows = 7;
Tensor counted_rows(double from = 0) { return arange(from, from + kRows * 2, {.dtype = DType::f32}).reshape({kRows, 2}); }

// Adds to all tensors of the batches of two passes; checks that neither the data nor the batches of the second pass have changed.
template <class Set>
void check_own_memory(const std::string& name, const Set& set, const Tensors& data) {
  CAPTURE(name);
  std::vector<std::vector<double>> stored;
  for (const Tensor& t : data) stored.push_back(t.to_vector<double>());
  for (const int workers : {0, 2}) {
    for (const int64_t batch_size : {int64_t(1), int64_t(3), kRows}) {
      for (const bool shuffle : {false, true}) {
        DataLoader loader(set, {.batch_size = batch_size, .shuffle = shuffle, .seed = 1, .num_workers = workers});
        double sums[2] = {};
        for (double& sum : sums) {
          for (auto& batch : loader) {
            samples::visit(batch, [&](Tensor& t) {
              sum += t.to(DType::f64).sum().item();
              t.add_(1);
            });
          }
        }
        CHECK(sums[0] == sums[1]);
      }
    }
  }
  for (size_t i = 0; i < data.size(); ++i) CHECK(data[i].to_vector<double>() == stored[i]);
}

// Data sets of a program's own, which give views of what they hold.
struct OwnDataset : Dataset {
  explicit OwnDataset(Tensor t) : x(std::move(t)) {}
  int64_t size() const override { return kRows; }
  Shape input_shape() const override { return {2}; }
  Shape target_shape() const override { return {2}; }
  int64_t classes() const override { return 0; }
  std::string describe() const override { return "own"; }
  Batch batch(std::span<const int64_t> indices) const override {
    if (int64_t(indices.size()) == kRows) return {x, x};  // the stored tensor itself
    const auto n = int64_t(indices.size());
    if (indices[0] + n <= kRows && std::is_sorted(indices.begin(), indices.end()))
      return {x.narrow(0, indices[0], n), x.narrow(0, 0, n)};
    return {x.narrow(0, 0, n), x.narrow(0, 1, n)};
  }
  Tensor x;
};
struct OwnBatches {
  Tensor x;
  int64_t size() const { return kRows; }
  Tensor get(int64_t i) const { return x[i]; }
  std::pair<Tensor, Tensor> get_batch(std::span<const int64_t> indices) const {
    const Tensor rows = x.narrow(0, 0, int64_t(indices.size()));
    return {rows, rows};
  }
};
// Gives tensors of memory that is none of halfstep's.
struct WrapsMemory {
  std::shared_ptr<std::vector<float>> values = std::make_shared<std::vector<float>>(size_t(kRows), 1.0f);
  int64_t size() const { return kRows; }
  Tensor get(int64_t i) const { return from_blob(values->data() + i, {1}); }
  Tensor get_batch(std::span<const int64_t> indices) const {
    return from_blob(values->data(), {int64_t(indices.size())}).view(-1, 1);
  }
};
struct WritesIntoTarget : Transform {
  Batch apply(const Batch& batch, const Draws&) const override {
    if (!batch.target.device().is_meta()) batch.target.fill_(9);
    return {batch.input, batch.target};
  }
};
// A picture of bytes per sample, and a view of the stored targets.
struct BytePictures : Dataset {
  int64_t size() const override { return kRows; }
  Shape input_shape() const override { return {1, 2, 2}; }
  Shape target_shape() const override { return {}; }
  int64_t classes() const override { return 10; }
  std::string describe() const override { return "bytes"; }
  Batch batch(std::span<const int64_t> indices) const override {
    const auto n = int64_t(indices.size());
    return {zeros({n, 1, 2, 2}), targets.narrow(0, 0, n)};
  }
  std::optional<ByteRows> byte_rows(std::span<const int64_t> indices) const override {
    const auto n = int64_t(indices.size());
    return ByteRows{std::vector<const uint8_t*>(indices.size(), bytes.data()), {}, targets.narrow(0, 0, n)};
  }
  std::vector<uint8_t> bytes{1, 2, 3, 4};
  Tensor targets = zeros({kRows}, {.dtype = DType::i64});
};
struct WritesIntoInput : Transform {
  Tensor operator()(const Tensor& x) const override { return x.add_(1); }
};

std::vector<int> first_column(const Tensor& batch) { return batch.select(1, 0).to_vector<int>(); }

}  // namespace

TEST_CASE("a loop may write into its batches: they have memory of their own, whatever the data set") {
  const Tensor x = counted_rows(), y = counted_rows(50), z = arange(kRows);
  check_own_memory("two tensors", TensorDataset(x, y), {x, y});
  check_own_memory("classes", TensorDataset(x, z), {x, z});
  check_own_memory("three tensors", TensorDataset(x, y, z), {x, y, z});
  check_own_memory("a part of three", Subset(TensorDataset(x, y, z), {1, 2, 3, 4, 6, 0, 5}), {x, y, z});
  const auto two = std::make_shared<TensorDataset<>>(x, y);
  const std::shared_ptr<const Dataset> part = subset(two, {0, 1, 2, 3, 4, 5, 6}),
                                       kept = transformed(two, {std::make_shared<ToTensor>()});
  check_own_memory("a part", part, {x, y});
  check_own_memory("transformed", kept, {x, y});
  check_own_memory("several", ConcatDataset(TensorDataset(x, y, z), TensorDataset(x, y, z)), {x, y, z});
  check_own_memory("own", std::shared_ptr<const Dataset>(std::make_shared<OwnDataset>(x)), {x});
  check_own_memory("own batches", OwnBatches{x}, {x});
  check_own_memory("a list", x.unbind(0), {x});
}

TEST_CASE("batches may be views where the loop asks for them, and a copy has the layout of what it copies") {
  const Tensor x = counted_rows(), y = counted_rows(50);
  DataLoader views(TensorDataset(x, y), {.batch_size = 3, .views = true});
  DataLoader three(TensorDataset(x, y, x), {.batch_size = 3, .views = true});
  CHECK(views.next()->input.shares_memory_with(x));
  CHECK(std::get<1>(*three.next()).shares_memory_with(y));
  DataLoader copies(TensorDataset(x, y), {.batch_size = 3});
  const Batch batch = *copies.next();
  CHECK(!batch.input.shares_memory_with(x));
  CHECK(equal(batch.input, x.narrow(0, 0, 3)));
  // What nothing else holds is not copied once more.
  Tensor own = counted_rows();
  const void* const at = own.data_ptr();
  own_memory(own);
  CHECK(own.data_ptr() == at);
}

TEST_CASE("a transform that writes into its input leaves the data set as it is") {
  const Tensor x = counted_rows(), y = counted_rows(50);
  const auto data = transformed(std::make_shared<TensorDataset<>>(x, y), {std::make_shared<WritesIntoInput>()});
  for (int i = 0; i < 3; ++i) CHECK(first_column(data->batch(Ints{2, 3}).input) == std::vector<int>{5, 7});
  CHECK(equal(x, counted_rows()));
}

TEST_CASE("a loop may write into batches of memory that a program has wrapped") {
  const WrapsMemory data;
  for (const int workers : {0, 1}) {
    DataLoader loader(data, {.batch_size = 3, .num_workers = workers});
    for (const Tensor& batch : loader) batch.fill_(5);
  }
  CHECK(*data.values == std::vector<float>(size_t(kRows), 1.0f));
  Tensor part = Tensor::from_blob(data.values->data(), {2}, DType::f32, data.values);
  own_memory(part);
  CHECK(part.const_data_ptr<float>() != data.values->data());
  const void* const own = part.data_ptr();  // its pointer is known, but the memory is the tensor's
  own_memory(part);
  CHECK(part.const_data_ptr() == own);
}

TEST_CASE("a transform that writes into its targets leaves the data set as it is, whatever comes before it") {
  const Tensor x = zeros({kRows, 1, 2, 2}), y = zeros({kRows}, {.dtype = DType::i64});
  const auto stored = std::make_shared<TensorDataset<>>(x, y, 10);
  const auto scales = std::make_shared<NormalizeTransform>(Normalize{.mean = 1, .std = 2});
  const auto pictures = std::make_shared<BytePictures>();
  const auto writes = std::make_shared<WritesIntoTarget>();
  const std::pair<std::shared_ptr<const Dataset>, Tensor> sets[] = {{stored, y}, {pictures, pictures->targets}};
  for (const auto& [set, targets] : sets) {
    for (const Transforms& transforms : {Transforms{writes}, Transforms{scales, writes},
                                         Transforms{std::make_shared<WritesIntoInput>(), scales, writes, writes}}) {
      const Batch batch = transformed(set, transforms)->batch(Ints{0, 1, 2});
      CHECK(batch.target.to_vector<int>() == std::vector<int>{9, 9, 9});
      CHECK(targets.sum().item() == 0);
    }
  }
}

TEST_CASE("a pass within a pass ends the outer loop with an error, whose remedy gives both") {
  const Tensor x = counted_rows();
  const auto data = std::make_shared<TensorDataset<>>(x, x);
  for (const int workers : {0, 2}) {
    const LoaderOptions options{.batch_size = 3, .shuffle = true, .num_workers = workers};
    DataLoader loader(data, options);
    int outer = 0, inner = 0;
    const auto nested = [&](auto& within) {
      outer = inner = 0;
      for (const Batch& a : loader) {
        CHECK(a.input.defined());
        ++outer;
        for (const Batch& b : within) inner += b.input.defined();
      }
    };
    const std::string error = message_of<ValueError>([&] { nested(loader); });
    CHECK(contains(error, "[DataLoader] this loop's pass ended where another pass over the same loader began"));
    CHECK(contains(error, "help: make a second DataLoader of the data set"));
    CHECK((outer == 1 && inner == 3));
    DataLoader second(data, options);
    nested(second);
    CHECK((outer == 3 && inner == 9));
    // Also where the inner loop is left early, and in the last batch of the outer one.
    CHECK_THROWS_AS(
        [&] {
          int loops = 0;
          for (const Batch& a : loader) {
            REQUIRE(++loops == 1);
            for (const Batch& b : loader)
              if (a.input.defined() && b.input.defined()) break;
          }
        }(),
        ValueError);
  }
}

TEST_CASE("a pass within a pass over a stream") {
  struct Counter {
    int64_t at = 0;
    std::optional<int64_t> next() {
      if (at == 6) return {};
      return at++;
    }
  };
  for (const int workers : {0, 1}) {
    DataLoader loader(Counter{}, {.batch_size = 2, .num_workers = workers}), second(Counter{}, {.batch_size = 2});
    CHECK_THROWS_AS(
        [&] {
          for (const Tensor& a : loader)
            for (const Tensor& b : loader) CHECK((a.defined() && b.defined()));
        }(),
        ValueError);
    int pairs = 0;
    for (const Tensor& a : loader)
      for (const Tensor& b : second) pairs += a.defined() && b.defined();
    CHECK(pairs == 9);
  }
}

TEST_CASE("other uses of a loader within its loop keep working") {
  const Tensor x = counted_rows();
  for (const int workers : {0, 2}) {
    DataLoader loader(TensorDataset(x, x), {.batch_size = 3, .num_workers = workers});
    // next() takes batches of the same pass, and may see its end.
    int loops = 0, taken = 0;
    for (const Batch& a : loader) {
      CHECK(a.input.defined());
      REQUIRE(++loops <= 2);
      taken += loader.next().has_value();
    }
    CHECK((loops == 2 && taken == 1));
    CHECK(loader.state() == LoaderState{1, 0});
    // A position that is restored after an inner pass.
    std::vector<int> outer, inner;
    for (const Batch& a : loader) {
      outer.push_back(first_column(a.input)[0]);
      const LoaderState state = loader.state();
      for (const Batch& b : loader) inner.push_back(first_column(b.input)[0]);
      loader.set_state(state);
    }
    CHECK(outer == std::vector<int>{0, 6, 12});
    CHECK(inner.size() == 9);
    CHECK(loader.state() == LoaderState{2, 0});
    // A first look, whose iterator lives on; a pass that is left early; a whole one.
    const auto look = loader.begin();
    int batches = 0;
    for ([[maybe_unused]] const Batch& a : loader)
      if (++batches == 2) break;
    for ([[maybe_unused]] const Batch& a : loader) ++batches;
    CHECK(batches == 5);
  }
}
