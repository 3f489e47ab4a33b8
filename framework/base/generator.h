// SPDX-License-Identifier: Apache-2.0
// The random state, of one of two kinds.
//
// philox, the usual one: a seed and a position in its Philox stream. Equal state gives equal numbers on every device and with any
// number of threads, because element i of a draw is a pure function of (seed, offset, i): see framework/math/random.h.
//
// mt19937: the numbers that PyTorch draws on a CPU for a seed (Twister). They are drawn on the host, one after another, and
// copied to the device of the tensor. docs/random_numbers.md says which calls give PyTorch's numbers to the bit.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <string_view>
#include <vector>

namespace halfstep {

// The numbers of PyTorch's CPU generator: a Mersenne Twister, and how it makes uniform and normal numbers of its 32-bit words.
// Numbers come one after another: each call changes the state.
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
  void discard(uint64_t words);                 // skips them
  std::vector<int64_t> permutation(int64_t n);  // of 0..n-1, as torch.randperm

  uint64_t count() const { return count_; }  // words so far, those skipped included
  void forget_normal() { second_normal_.reset(); }
  // Converts the whole state to text and back. from_text returns nothing for text that is no state.
  std::string text() const;
  static std::optional<Twister> from_text(const std::string& text);
  bool operator==(const Twister&) const = default;

 private:
  std::mt19937 engine_;
  uint64_t count_ = 0;
  std::optional<double> second_normal_;  // of a pair whose first number normal() has returned
};

enum class GeneratorKind : uint8_t { philox, mt19937 };
std::string_view name(GeneratorKind kind);
GeneratorKind parse_generator_kind(std::string_view text, std::string_view where = "generator");  // throws ValueError

class DrawLog;  // draw_log.h
class ForkMutex;

class Generator {
 public:
  static constexpr int64_t kBlockSize = 4;  // 32-bit numbers of a Philox block
  struct State {
    uint64_t seed = 0;
    uint64_t offset = 0;                               // philox: blocks already drawn; mt19937: 32-bit numbers
    std::shared_ptr<const Twister> twister = nullptr;  // null: philox
    GeneratorKind kind() const { return twister ? GeneratorKind::mt19937 : GeneratorKind::philox; }
    bool operator==(const State& o) const {
      return seed == o.seed && offset == o.offset && kind() == o.kind() && (!twister || *twister == *o.twister);
    }
  };

  explicit Generator(uint64_t seed = 0, GeneratorKind kind = GeneratorKind::philox);
  Generator(const Generator&) = delete;

  GeneratorKind kind() const;
  // Reserves the blocks for `count` elements and returns the state at which the draw starts. Thread-safe. Throws ValueError for
  // mt19937, whose numbers are no function of a position.
  State reserve(int64_t count);
  // Calls f with the Mersenne Twister, which no other thread uses meanwhile. Throws ValueError for philox.
  void with_twister(const std::function<void(Twister&)>& f);

  State state() const;
  void set_state(const State& state);  // also the kind
  // Moves on to the offset that another rank has reached. mt19937 forgets the second number of a pair, so that all ranks agree.
  void move_on_to(uint64_t offset);
  void manual_seed(uint64_t seed);  // keeps the kind
  void manual_seed(uint64_t seed, GeneratorKind kind);

 private:
  friend class DrawLog;
  static ForkMutex& mutex();  // of all generators. They hold it for a few instructions, or for a draw of mt19937
  static uint64_t made();     // how many generators were made
  State locked_state() const;
  void put(const State& state);

  uint64_t seed_ = 0, offset_ = 0;  // the offset of philox
  std::unique_ptr<Twister> twister_;
  const uint64_t number_;                     // in the order in which they were made
  mutable std::shared_ptr<Generator> alive_;  // made by the first log of its draws; does not own it
};

// Returns the generator that draws use by default.
Generator& default_generator();
void manual_seed(uint64_t seed);  // keeps the kind, which is philox unless the next one or set_state changed it
void manual_seed(uint64_t seed, GeneratorKind kind);

}  // namespace halfstep
