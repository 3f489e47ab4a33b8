// SPDX-License-Identifier: Apache-2.0
// Internals of the machine: decoded instructions, and the state of blocks and warps.
#pragma once

#include <bit>
#include <unordered_map>

#include "tests/emulators/ptx/numbers.h"
#include "tests/emulators/ptx/program.h"

namespace halfstep::ptx {

constexpr int kLanes = 32;
constexpr uint64_t kSharedBegin = 1024;  // in its own window; 0 is not an address there
constexpr uint32_t kAll = ~0u;

struct Context;
struct Instruction;
using Handler = void (*)(Context&, const Instruction&, uint32_t lanes);

enum class Flow : uint8_t { straight, branch, table, call, ret, exit, barrier, warp, sleep };
enum class Space : uint8_t { generic, global, shared, local, param, constant };
enum class Base : uint8_t { reg, host, shared, argument, lane };  // base of an address
enum class Vote : uint8_t { none, count, all, any };

struct Instruction {
  Handler run = nullptr;
  Flow flow = Flow::straight;
  bool guard_negated = false, p_negated = false, flush = false, saturate = false, nan_wins = false;
  Round round = Round::nearest;
  Space space = Space::generic;
  Base base = Base::reg;
  Vote vote = Vote::none;
  uint8_t mode = 0, count = 1;         // of a vector
  int guard = -1;                      // predicates
  int p = -1, q = -1, r = -1;          // source, and results
  int d = -1, a = -1, b = -1, c = -1;  // registers; constants from -2 downwards
  int list = 0;                        // index in Code::lists of a vector's registers
  int target = -1;                     // a branch's, a table, a call
  int line = 0;
  int64_t offset = 0;
  uint64_t mask = ~0ull;  // bits of the result's register
};

struct Call {
  struct Copy {
    size_t from, to, bytes;
  };
  int target;
  std::vector<Copy> arguments, results;  // in the lane's memory
};

struct Kernel::Code {
  const Program* program = nullptr;
  std::vector<Instruction> instructions;
  mutable std::vector<char> ran;    // instructions that were ever run
  std::vector<uint64_t> constants;  // 32 lanes each
  std::vector<int> lists;
  std::vector<std::vector<int>> tables;
  std::vector<Call> calls;
  std::vector<std::pair<int, std::string>> specials;  // registers to fill at a block's start
  int registers = 0, predicates = 1;                  // predicate 0 is true
  size_t lane_bytes = 0, static_shared = 0, argument_bytes = 0;
  std::vector<std::pair<size_t, size_t>> arguments;  // offset and size
};

struct Frame {
  int back, call;
};

struct Warp {
  uint32_t exists = 0, alive = 0, runnable = 0, parked = 0, at_barrier = 0;
  int pc[kLanes];
  std::vector<Frame> frames[kLanes];
  std::vector<uint64_t> registers;
  std::vector<uint32_t> predicates;
  std::vector<unsigned char> memory;  // private memory of the lanes
  uint32_t carry = 0, voted = 0;
  int first_thread = 0;
};

struct Launch {
  const Kernel::Code* code;
  const std::string* name;
  Size grid, block;
  size_t shared_bytes;
  const std::vector<unsigned char>* arguments;
  Memory* memory;
  struct Range {
    uint64_t begin = 0, end = 0;
  } ranges[4];
  int next_range = 0;
};

struct Block {
  Size index;
  std::vector<Warp> warps;
  std::vector<unsigned char> shared_memory;  // with padding for alignment
  unsigned char* shared = nullptr;
  bool done = false;
};

struct Context {
  Launch& launch;
  Block& block;
  Warp& warp;
  uint64_t* registers;
  uint32_t* predicates;
  const uint64_t* constants;

  const uint64_t* in(int slot) const {
    return slot >= 0 ? registers + size_t(slot) * kLanes : constants + size_t(-2 - slot) * kLanes;
  }
  uint64_t* out(int slot) const { return registers + size_t(slot) * kLanes; }
  uint32_t predicate(int p, bool negated) const { return negated ? ~predicates[p] : predicates[p]; }
  void set_predicate(int p, uint32_t lanes, uint32_t value) {
    if (p >= 0) predicates[p] = (predicates[p] & ~lanes) | (value & lanes);
  }
};

std::string number_text(uint64_t v);  // in hexadecimal
[[noreturn]] void fault(const Context& x, const Instruction& i, int lane, const std::string& what);
unsigned char* at(Context& x, const Instruction& i, int lane, uint64_t address, size_t bytes);  // checks the access
uint64_t address_of(const Context& x, const Instruction& i, int lane);

template <class F>
inline void each(uint32_t lanes, const F& f) {
  if (lanes == kAll) {
    for (int l = 0; l < kLanes; ++l) f(l);
  } else {
    for (uint32_t rest = lanes; rest; rest &= rest - 1) f(std::countr_zero(rest));
  }
}
template <class T>
inline T get(const uint64_t* slot, int lane) {
  T v;
  std::memcpy(&v, slot + lane, sizeof v);
  return v;
}
template <class T>
inline void put(uint64_t* slot, int lane, T v) {
  uint64_t bits = 0;
  std::memcpy(&bits, &v, sizeof v);
  slot[lane] = bits;
}

void run(Launch& launch);

// Sets an instruction's handler, from `op` and its operands' registers. Returns false if it is unknown.
bool choose(Instruction& i, const std::vector<std::string>& op);

}  // namespace halfstep::ptx
