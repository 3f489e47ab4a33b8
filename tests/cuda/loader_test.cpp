// SPDX-License-Identifier: Apache-2.0
// Batches that the loader's workers bring to the device beside its work.
#include "framework/data/loading/loader.h"

#include <doctest/doctest.h>

#include "framework/data/sets/tensor_dataset.h"
#include "tests/cuda/support.h"

using namespace halfstep;
using namespace halfstep::testing;

namespace {

constexpr int64_t kSamples = 90, kWidth = 40;

std::shared_ptr<const Dataset> numbers() {
  const Tensor x = arange(double(kSamples * kWidth)).to(DType::f32).reshape({kSamples, kWidth});
  return std::make_shared<TensorDataset<>>(x, x.narrow(1, 0, 3).contiguous());
}

}  // namespace

TEST_CASE("batches on the device are those on the host, whichever thread brings them") {
  for (const int workers : {0, 1, 3}) {
    CAPTURE(workers);
    LoaderOptions options{.batch_size = 2, .shuffle = true, .seed = 4, .num_workers = workers, .prefetch = 4};
    DataLoader host(numbers(), options);
    options.device = Device::cuda;
    DataLoader device(numbers(), options);
    for (int epoch = 0; epoch < 2; ++epoch) {
      std::vector<Tensor> want, got;
      while (const auto b = host.next()) want.insert(want.end(), {b->input, b->target});
      while (const auto b = device.next()) got.insert(got.end(), {b->input, b->target});
      REQUIRE(got.size() == want.size());
      for (size_t i = 0; i < got.size(); ++i) {
        CHECK(got[i].device().is_cuda());
        CHECK(got[i].to_vector<float>() == want[i].to_vector<float>());
      }
    }
  }
}

// Memory that queued work still reads goes to a worker, whose copy must not come before; and a batch is used while it is on its
// way. On the emulator with HALFSTEP_EMU_ASYNC=1 each stream runs as late as its events allow.
TEST_CASE("copies of batches keep their place among the device's work") {
  DataLoader loader(numbers(), {.batch_size = 1, .num_workers = 2, .prefetch = 3, .device = Device::cuda});
  std::vector<Tensor> doubled, sums;
  int64_t i = 0;
  while (const auto b = loader.next()) {
    sums.push_back(b->input.sum());
    Tensor mine = full({1, kWidth}, double(i), {.device = Device::cuda});
    doubled.push_back(mine * 2.0);
    ++i;
  }
  REQUIRE(i == kSamples);
  for (int64_t k = 0; k < i; ++k) {
    CHECK(sums[size_t(k)].item<float>() == float((k * kWidth + (k + 1) * kWidth - 1) * kWidth) / 2);
    CHECK(doubled[size_t(k)].to_vector<float>() == std::vector<float>(kWidth, float(2 * k)));
  }
}

TEST_CASE("batches that nobody takes, and a data set that fails, leave nothing behind") {
  struct Failing : Dataset {
    std::shared_ptr<const Dataset> inner = numbers();
    int64_t size() const override { return inner->size(); }
    Shape input_shape() const override { return inner->input_shape(); }
    Shape target_shape() const override { return inner->target_shape(); }
    int64_t classes() const override { return 0; }
    std::string describe() const override { return "failing"; }
    halfstep::Batch batch(std::span<const int64_t> indices) const override {
      check<DataError>(indices[0] != 12, "test", "sample 12");
      return inner->batch(indices);
    }
  };
  const size_t before = allocator(Device::cuda).stats().live;
  for (const int taken : {0, 1, 5}) {
    DataLoader loader(numbers(), {.batch_size = 3, .num_workers = 2, .prefetch = 4, .device = Device::cuda});
    for (int i = 0; i < taken; ++i) loader.next();
    loader.set_state({1, 0});
    CHECK(loader.next()->input.sum().item<float>() == float(119 * 120 / 2));
  }
  DataLoader failing(std::make_shared<Failing>(), {.batch_size = 4, .num_workers = 2, .prefetch = 4, .device = Device::cuda});
  for (int i = 0; i < 3; ++i) CHECK(failing.next().has_value());
  CHECK_THROWS_WITH_AS(failing.next(), "[test] sample 12", DataError);
  CHECK_THROWS_AS(failing.next(), DataError);
  CHECK(allocator(Device::cuda).stats().live >= before);
}
