// SPDX-License-Identifier: Apache-2.0
// Data by a formula has the same bits on every CPU: the digests were recorded on x86-64.
#include <doctest/doctest.h>

#include "framework/data/loading/fingerprint.h"
#include "framework/data/sets/digits.h"
#include "framework/data/sets/generators.h"
#include "framework/data/sets/synthetic.h"

using namespace halfstep;

TEST_CASE("one seed gives data by a formula the same bits on every CPU") {
  const auto begins = [](const Dataset& data, const std::string& digest) {
    const std::string whole = fingerprint(data);
    CHECK_MESSAGE(whole.substr(0, 16) == digest, data.describe());
  };
  begins(DigitsDataset({.size = 300, .seed = 3}), "3a798e603158e319");
  begins(DigitsDataset({.split = Split::test, .size = 50, .normalize = {0.1307, 0.3081}}), "a13682040e89c91e");
  begins(DigitStripsDataset({.size = 40, .seed = 3}), "9ae7b7ebac0b1a9d");
  begins(SpiralsDataset({.size = 3000, .arms = 3, .seed = 3}), "bb12bd94cf4d9123");
  begins(SinesDataset({.size = 500, .horizon = 4, .seed = 3}), "49b06e6c768d93be");
  begins(CopyTaskDataset({.size = 200, .seed = 3}), "02122f5df40b1289");
  begins(AddingDataset({.size = 500, .seed = 3}), "f53ee1ea88f3ccbb");
  begins(RandomDataset({.num_batches = 20, .batch_size = 50, .input_shape = {17}, .target_shape = {3}, .seed = 3}),
         "bfac82b273d84e8f");
  begins(RandomDataset({.num_batches = 20, .batch_size = 50, .input_shape = {17}, .classes = 10, .seed = 3}),
         "3e3d9cf031c02768");
}
