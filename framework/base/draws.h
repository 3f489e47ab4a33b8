// SPDX-License-Identifier: Apache-2.0
// Random numbers for a part of a batch.
//
// If a batch is computed in parts, by several ranks or as micro-batches, every part draws what its rows would get in the whole
// batch. So the numbers do not depend on the number of parts, and no two parts get the same numbers.
#pragma once

#include <cstdint>
#include <optional>

#include "framework/base/generator.h"
#include "framework/base/guard.h"

namespace halfstep {

// Rows [first, first + rows) of a batch of `total` rows.
struct BatchRows {
  int64_t first = 0, rows = 0, total = 0;
  bool operator==(const BatchRows&) const = default;
};

// Makes this thread's draws from the default generator those of one part while it lives. If the count of a draw is not a multiple
// of `rows`, it is not a draw by rows, and every part gets the same numbers.
class DrawsOf : LocalGuard {
 public:
  [[nodiscard]] explicit DrawsOf(const std::optional<BatchRows>& part);  // empty: a whole batch
  ~DrawsOf();
  static const std::optional<BatchRows>& current();

 private:
  std::optional<BatchRows> saved_;
};

// Start of a draw: number `skip` (0 to 3) of the Philox block at `state`.
struct Draw {
  Generator::State state;
  int64_t skip = 0;
};
// Reserves the random numbers of the whole batch. Every op that draws calls this.
Draw draw(Generator& generator, int64_t count);

}  // namespace halfstep
