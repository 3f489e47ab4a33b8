// SPDX-License-Identifier: Apache-2.0
// The numbers of PyTorch's CPU generator: a Mersenne Twister, and how it makes uniform and normal numbers of its words. Numbers
// come one after another: each call changes the state.
#pragma once

#include <cstdint>
#include <optional>
#include <random>
#include <string>
#include <vector>

namespace halfstep {

class Twister {
 public:
  explicit Twister(uint64_t seed) : engine_(uint32_t(seed)) {}  // like PyTorch, reads the low 32 bits of a seed

  uint32_t random() {
    ++count_;
    return uint32_t(engine_());
  }
  uint64_t random64() {
    const uint64_t high = random();
    return high << 32 | random();
  }
  float uniform() { return float(random() & 0xffffff) * 0x1p-24f; }                        // of 24 bits, in [0, 1)
  double uniform64() { return double(random64() & ((uint64_t(1) << 53) - 1)) * 0x1p-53; }  // of 53 bits
  // Returns a standard normal number. Numbers are made in pairs; the second one waits for the next call.
  double normal();
  void discard(uint64_t words);
  std::vector<int64_t> permutation(int64_t n);  // of 0..n-1, as torch.randperm

  uint64_t count() const { return count_; }  // words so far
  void forget_normal() { waiting_.reset(); }
  // Converts the whole state to text and back. from_text returns nothing for text that is no state.
  std::string text() const;
  static std::optional<Twister> from_text(const std::string& text);
  bool operator==(const Twister&) const = default;

 private:
  std::mt19937 engine_;
  uint64_t count_ = 0;
  std::optional<double> waiting_;  // second number of a pair
};

}  // namespace halfstep
