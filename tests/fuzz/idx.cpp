// SPDX-License-Identifier: Apache-2.0
// A file of the MNIST family, plain: the first byte is the rank, 0 for a folder with images and labels, which a line "====="
// separates.
#include "framework/data/formats/idx.h"

#include "framework/data/sets/mnist.h"
#include "tests/fuzz/fuzz.h"

HALFSTEP_FUZZ_HARNESS(idx) {
  using namespace halfstep;
  if (size < 1) return 0;
  const std::string_view bytes = fuzz::text_of(data + 1, size - 1);
  const int rank = data[0] % 9;
  if (rank > 0) {
    const fuzz::MemoryFile file(bytes);
    fuzz::typed([&] { read_idx(file.path(), rank); });
    return 0;
  }
  const auto two = fuzz::parts(bytes, 2);
  fuzz::put(fuzz::folder() / "train-images-idx3-ubyte", two[0]);
  fuzz::put(fuzz::folder() / "train-labels-idx1-ubyte", two[1]);
  fuzz::typed([&] { MnistDataset(fuzz::folder()).size(); });
  return 0;
}
