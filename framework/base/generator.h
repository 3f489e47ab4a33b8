// SPDX-License-Identifier: Apache-2.0
// The random state: a seed and a position in its Philox stream. Equal state gives equal numbers on every device and with
// any number of threads, because element i of a draw is a pure function of (seed, offset, i): see framework/math/random.h.
#pragma once

#include <cstdint>

namespace halfstep {

class Generator {
 public:
  struct State {
    uint64_t seed = 0;
    uint64_t offset = 0;  // counts blocks of four 32-bit numbers already handed out
    bool operator==(const State&) const = default;
  };

  explicit Generator(uint64_t seed = 0) : state_{seed, 0} {}
  Generator(const Generator&) = delete;

  // Reserves the blocks for `count` elements and returns the state at which the draw starts. Thread-safe.
  State reserve(int64_t count);

  State state() const;
  void set_state(State s);
  void manual_seed(uint64_t seed) { set_state({seed, 0}); }

 private:
  State state_;
};

// Returns the generator that draws use by default.
Generator& default_generator();
void manual_seed(uint64_t seed);

}  // namespace halfstep
