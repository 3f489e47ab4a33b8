// SPDX-License-Identifier: Apache-2.0
// Arrays of NumPy. The first byte: 0 mod 3 for a file of one array, 1 for an archive, 2 for an archive that is rebuilt around the
// rest as its array "x", so that a right checksum leads on to the array.
#include "framework/data/formats/npy.h"

#include "framework/data/sets/arrays.h"
#include "tests/data/array_files.h"
#include "tests/fuzz/fuzz.h"

HALFSTEP_FUZZ_HARNESS(npy) {
  using namespace halfstep;
  if (size < 1) return 0;
  const std::string_view bytes = fuzz::text_of(data + 1, size - 1);
  const std::string rebuilt =
      data[0] % 3 == 2 ? testing::zip({{"x.npy", std::string(bytes)}, {"y.npy", std::string(bytes)}}, data[0] & 64) : "";
  const fuzz::MemoryFile file(rebuilt.empty() ? bytes : std::string_view(rebuilt));
  fuzz::typed([&] {
    if (data[0] % 3 == 0) {
      const Tensor mapped = map_npy(file.path());  // which faults wherever reading does
      if (mapped.shape() != read_npy(file.path()).shape()) fuzz::found("a mapped array of another shape");
      return;
    }
    ArrayOptions options;
    options.tokens = (data[0] & 128) != 0;
    const ArrayDataset set = ArrayDataset::npz(file.path(), options);
    if (set.batch(std::vector<int64_t>{0}).input.size(0) != 1) fuzz::found("a data set that does not hold");
  });
  return 0;
}
