// SPDX-License-Identifier: Apache-2.0
#include "framework/data/sets/cifar.h"

#include <doctest/doctest.h>

#include "framework/base/check.h"
#include "tests/io/files.h"

using namespace halfstep;
using namespace halfstep::testing;

namespace {

std::string record(std::initializer_list<char> labels, char red, char green, char blue) {
  return std::string(labels) + std::string(1024, red) + std::string(1024, green) + std::string(1024, blue);
}

}  // namespace

TEST_CASE("cifar: records of both data sets, and fine or coarse labels") {
  const TempDir dir;
  std::filesystem::create_directory(dir / "cifar10");
  write_bytes(dir / "cifar10/some.bin", record({3}, 0, 51, char(255)) + record({9}, 1, 2, 3));
  const CifarDataset ten(dir.path(), {.files = {"some.bin"}});
  CHECK(ten.describe() == "CIFAR10 of 1 file: 2 samples, input [3, 32, 32], 10 classes");
  const Batch batch = ten.batch(std::vector<int64_t>{1, 0});
  CHECK(batch.target.to_vector<int>() == std::vector<int>{9, 3});
  const float* second = batch.input.data_ptr<float>() + 3072;
  CHECK(second[0] == 0);
  CHECK(second[1024] == doctest::Approx(0.2));
  CHECK(second[2048] == 1);

  write_bytes(dir / "hundred.bin", record({19, 99}, 0, 0, 0));
  CHECK(CifarDataset(dir.path(), {.labels = CifarLabels::fine, .files = {"hundred.bin"}}).target().item<int>() == 99);
  const CifarDataset coarse(dir.path(), {.labels = CifarLabels::coarse, .files = {"hundred.bin"}});
  CHECK(coarse.target().item<int>() == 19);
  CHECK(coarse.classes() == 20);
}

TEST_CASE("cifar: damaged and missing files") {
  const TempDir dir;
  const auto error = [&](const CifarOptions& options) { return message_of<DataError>([&] { CifarDataset(dir.path(), options); }); };
  write_bytes(dir / "test_batch.bin", record({1}, 0, 0, 0));
  CHECK(contains(error({.split = Split::test}),
                 "test_batch.bin must have 30730000 bytes (10000 records of 3073), got 3073\nhelp: it is cut off"));
  write_bytes(dir / "cut.bin", record({1}, 0, 0, 0).substr(1));
  CHECK(contains(error({.files = {"cut.bin"}}), "cut.bin must be whole records of 3073 bytes, got 3072 bytes"));
  write_bytes(dir / "label.bin", record({1}, 0, 0, 0) + record({10}, 0, 0, 0));
  CHECK(contains(error({.files = {"label.bin"}}), "label.bin: labels must be in 0..9, but that of record 1 is 10"));
  const std::string missing = error({});
  CHECK(contains(missing, "[CIFAR10] files are missing, looked for " + (dir / "data_batch_1.bin").string()));
  CHECK(contains(missing, "170052171 bytes"));
  CHECK(contains(missing,
                 "c4a38c50a1bc5f3a1c5537f2155ab9d68f9f25eb1ed8d9ddda3db29a59bca1dd  cifar-10-binary.tar.gz\" | sha256sum -c"));
  CHECK(contains(error({.labels = CifarLabels::fine}), "train.bin"));
}

TEST_SUITE("data") {
  TEST_CASE("cifar: the part that is there") {
    const auto root = data_root();
    if (!root) return;
    const CifarDataset train(*root, {.files = {"data_batch_1.first4000.bin"}});
    CHECK(train.size() == 4000);
    CHECK(train.batch(std::vector<int64_t>{0, 1, 2, 3}).target.to_vector<int>() == std::vector<int>{6, 9, 9, 4});
    const uint8_t* pixels = train.input().data_ptr<uint8_t>();
    CHECK(pixels[0] == 59);
    CHECK(pixels[3071] == 72);
    double red = 0;
    for (int64_t i = 0; i < 4000; ++i)
      for (int64_t j = 0; j < 1024; ++j) red += pixels[i * 3072 + j];
    CHECK(red / (4000 * 1024) == doctest::Approx(125.36).epsilon(1e-4));
  }
}
