// SPDX-License-Identifier: Apache-2.0
// The random numbers of a part of a batch.
//
// Where a batch is computed in parts, by several ranks or one micro-batch after the other, every part must draw what its rows would
// get if the batch were whole: then the numbers do not depend on the number of parts, and no two parts get the same ones.
#pragma once

#include <cstdint>
#include <optional>

#include "framework/base/generator.h"

namespace halfstep {

// Rows [first, first + rows) of a batch of `total`.
struct BatchRows {
  int64_t first = 0, rows = 0, total = 0;
  bool operator==(const BatchRows&) const = default;
};

// While it lives, this thread's draws from the default generator are those of such a part. A draw whose count is no multiple of
// `rows` is not made row by row, and every part gets the same numbers.
class DrawsOf {
 public:
  [[nodiscard]] explicit DrawsOf(const std::optional<BatchRows>& part);  // nothing: of a whole batch
  ~DrawsOf();
  DrawsOf(const DrawsOf&) = delete;
  static const std::optional<BatchRows>& current();

 private:
  std::optional<BatchRows> saved_;
};

// Where `count` numbers begin: at number `skip`, 0 to 3, of the block that `state` names.
struct Draw {
  Generator::State state;
  int64_t skip = 0;
};
// Reserves the random numbers of the whole batch. Every op that draws calls this.
Draw draw(Generator& generator, int64_t count);

}  // namespace halfstep
