// SPDX-License-Identifier: Apache-2.0
#include "framework/data/loading/fingerprint.h"

#include <algorithm>
#include <optional>
#include <vector>

#include "framework/base/check.h"
#include "framework/io/files/checksum.h"

namespace halfstep {
namespace {

constexpr int64_t kMostBytes = int64_t(8) << 20;  // of the samples that are hashed
constexpr int64_t kBatch = 256;                   // samples

// Adds samples: as stored bytes, if the data set has them, else as it returns them. input_bytes: of one stored input.
void add_samples(Sha256& hash, const Dataset& data, std::span<const int64_t> indices, int64_t input_bytes) {
  const std::optional<ByteRows> stored = data.byte_rows(indices);
  if (!stored) {
    const Batch batch = data.batch(indices, 0);
    hash.update(sha256(batch.input));
    hash.update(sha256(batch.target));
    return;
  }
  for (const uint8_t* const row : stored->rows) hash.update(row, size_t(input_bytes));
  hash.update(sha256(stored->target));
}

}  // namespace

std::string fingerprint(const Dataset& given) {
  const Dataset& data = given.untransformed();
  const int64_t size = data.size();
  Sha256 hash;
  hash.update(joined(size, ' ', data.input_shape(), ' ', data.input_dtype(), ' ', data.target_shape(), ' ', data.classes()));
  const std::vector<int64_t> labels = data.labels();
  hash.update(labels.data(), labels.size() * sizeof(int64_t));
  if (size == 0) return hash.hex();
  const int64_t first_index = 0;
  const std::span<const int64_t> first(&first_index, 1);
  const bool has_byte_rows = data.byte_rows(first).has_value();
  const Batch sample = data.batch(first, 0);
  const int64_t input_bytes = has_byte_rows ? sample.input.numel() : int64_t(sample.input.nbytes());
  const int64_t count =
      std::clamp<int64_t>(kMostBytes / std::max<int64_t>(1, input_bytes + int64_t(sample.target.nbytes())), 1, size);
  std::vector<int64_t> indices;
  for (int64_t i = 0; i < count; ++i) {
    indices.push_back(i * size / count);
    if (std::ssize(indices) < kBatch && i + 1 < count) continue;
    add_samples(hash, data, indices, input_bytes);
    indices.clear();
  }
  return hash.hex();
}

}  // namespace halfstep
