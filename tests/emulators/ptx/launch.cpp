// SPDX-License-Identifier: Apache-2.0
// The run of a launch: blocks, warps, branches, barriers, what lanes exchange.
#include <algorithm>
#include <array>
#include <bit>
#include <climits>
#include <cstring>
#include <memory>

#include "tests/emulators/ptx/code.h"

namespace halfstep::ptx {
namespace {

// ---- a launch
class Runner {
 public:
  Runner(Launch& launch) : launch_(launch), code_(*launch.code) {}

  void all() {
    const uint64_t total = uint64_t(launch_.grid.x) * launch_.grid.y * launch_.grid.z;
    uint64_t next = 0;
    std::vector<std::unique_ptr<Block>> blocks;
    const auto start = [&](Block& b) {
      const uint64_t n = settings().reverse ? total - 1 - next : next;
      ++next;
      begin(b, {unsigned(n % launch_.grid.x), unsigned(n / launch_.grid.x % launch_.grid.y),
                unsigned(n / (uint64_t(launch_.grid.x) * launch_.grid.y))});
    };
    while (next < total && blocks.size() < size_t(settings().resident)) {
      blocks.push_back(std::make_unique<Block>());
      start(*blocks.back());
    }
    for (size_t left = blocks.size(); left;) {
      for (auto& b : blocks) {
        if (b->done) continue;
        go_on(*b);
        if (!b->done) continue;
        if (next < total)
          start(*b);
        else
          --left;
      }
    }
  }

 private:
  void begin(Block& b, Size index) {
    const Size n = launch_.block;
    const int threads = int(n.x * n.y * n.z);
    b.index = index;
    b.done = false;
    const size_t gap = 512;
    b.shared_memory.assign(launch_.shared_bytes + gap, 0xFF);
    b.shared = b.shared_memory.data() + (256 - reinterpret_cast<uintptr_t>(b.shared_memory.data()) % 256);
    b.warps.resize(size_t(threads + kLanes - 1) / kLanes);
    for (size_t w = 0; w < b.warps.size(); ++w) {
      Warp& warp = b.warps[w];
      warp.first_thread = int(w) * kLanes;
      const int lanes = std::min(kLanes, threads - warp.first_thread);
      warp.exists = warp.alive = warp.runnable = lanes == kLanes ? kAll : (1u << lanes) - 1;
      warp.parked = warp.at_barrier = warp.carry = warp.voted = 0;
      std::fill(std::begin(warp.pc), std::end(warp.pc), 0);
      for (auto& frames : warp.frames) frames.clear();
      warp.registers.resize(size_t(code_.registers) * kLanes);
      warp.predicates.assign(size_t(code_.predicates), 0);
      warp.predicates[0] = kAll;
      warp.memory.assign(code_.lane_bytes * kLanes + 16, 0xFF);
      for (const auto& [slot, name] : code_.specials) {
        for (int l = 0; l < kLanes; ++l) warp.registers[size_t(slot) * kLanes + size_t(l)] = special(name, b, int(w), l);
      }
    }
  }
  uint64_t special(const std::string& name, const Block& b, int w, int l) const {
    const Size n = launch_.block;
    const unsigned t = unsigned(w * kLanes + l);
    const char axis = name.back();
    const auto of = [&](Size s) { return axis == 'x' ? s.x : axis == 'y' ? s.y : s.z; };
    if (name.starts_with("%tid")) return of({t % n.x, t / n.x % n.y, t / (n.x * n.y)});
    if (name.starts_with("%ntid")) return of(n);
    if (name.starts_with("%ctaid")) return of(b.index);
    if (name.starts_with("%nctaid")) return of(launch_.grid);
    if (name == "%laneid") return uint64_t(l);
    if (name == "%warpid") return uint64_t(w);
    if (name == "%nwarpid") return b.warps.size();
    if (name == "%lanemask_eq") return 1u << l;
    if (name == "%lanemask_lt") return (1u << l) - 1;
    if (name == "%lanemask_le") return (2ull << l) - 1;
    if (name == "%lanemask_gt") return kAll & ~uint32_t((2ull << l) - 1);
    if (name == "%lanemask_ge") return kAll & ~((1u << l) - 1);
    throw Fault("a special register that is not known: " + name);
  }

  void go_on(Block& b) {
    bool moved = false;
    for (size_t k = 0; k < b.warps.size(); ++k) {
      Warp& w = b.warps[settings().reverse ? b.warps.size() - 1 - k : k];
      if (!w.runnable) continue;
      moved = true;
      Context x{launch_, b, w, w.registers.data(), w.predicates.data(), code_.constants.data()};
      run(x, settings().slice);
    }
    bool over = true, all_wait = true;
    for (const Warp& w : b.warps) {
      over &= w.alive == 0;
      all_wait &= w.alive == w.at_barrier;
    }
    if (over) {
      b.done = true;
      check_shared_gap(b);
    } else if (all_wait) {
      pass_barrier(b);
    } else if (!moved) {
      for (Warp& w : b.warps) {
        if (!w.parked) continue;
        Context x{launch_, b, w, w.registers.data(), w.predicates.data(), code_.constants.data()};
        const int l = std::countr_zero(w.parked);
        fault(x, code_.instructions[size_t(w.pc[l])], l, "waits for lanes that never come");
      }
      throw Fault(*launch_.name + ": a deadlock");
    }
  }
  void check_shared_gap(const Block& b) const {
    for (size_t k = launch_.shared_bytes; k < launch_.shared_bytes + 256; ++k) {
      if (b.shared[k] != 0xFF) throw Fault(*launch_.name + ": written behind shared memory");
    }
  }

  void pass_barrier(Block& b) {
    int votes = 0, threads = 0;
    for (const Warp& w : b.warps) {
      if (w.alive != w.exists) throw Fault(*launch_.name + ": a barrier after threads of the block have returned");
      votes += std::popcount(w.voted);
      threads += std::popcount(w.alive);
    }
    for (Warp& w : b.warps) {
      const int first = std::countr_zero(w.alive);
      for (int l = 0; l < kLanes; ++l) {
        if ((w.alive >> l & 1) && w.pc[l] != w.pc[first])
          throw Fault(*launch_.name + ": lanes of a warp wait at different barriers");
      }
      const Instruction& i = code_.instructions[size_t(w.pc[first]) - 1];
      Context x{launch_, b, w, w.registers.data(), w.predicates.data(), code_.constants.data()};
      if (i.vote == Vote::count) each(w.alive, [&](int l) { x.out(i.d)[l] = uint64_t(votes); });
      if (i.vote == Vote::all) x.set_predicate(i.q, w.alive, votes == threads ? kAll : 0);
      if (i.vote == Vote::any) x.set_predicate(i.q, w.alive, votes > 0 ? kAll : 0);
      w.runnable = w.alive;
      w.at_barrier = w.voted = 0;
    }
  }

  void leave(Warp& w, uint32_t lanes) {
    w.alive &= ~lanes;
    w.runnable &= ~lanes;
  }

  void run(Context& x, int budget) {
    Warp& w = x.warp;
    const Instruction* const code = code_.instructions.data();
    uint64_t done = 0, threads = 0;
    while (budget > 0 && w.runnable) {
      int pc = INT_MAX, limit = INT_MAX;
      uint32_t lanes = 0;
      each(w.runnable, [&](int l) { pc = std::min(pc, w.pc[l]); });
      each(w.runnable, [&](int l) {
        if (w.pc[l] == pc)
          lanes |= 1u << l;
        else
          limit = std::min(limit, w.pc[l]);
      });
      const auto put_back = [&](uint32_t these, int place) { each(these, [&](int l) { w.pc[l] = place; }); };
      for (bool together = true; together;) {
        const Instruction& i = code[pc];
        ++done;
        uint32_t active = lanes;
        if (i.guard >= 0) active &= x.predicate(i.guard, i.guard_negated);
        threads += uint64_t(std::popcount(active));
        if (active) code_.ran[size_t(pc)] = 1;
        int after = pc + 1;
        switch (i.flow) {
          case Flow::straight:
            if (active) i.run(x, i, active);
            break;
          case Flow::branch:
            if (active == lanes) {
              after = i.target;
            } else if (active) {
              put_back(active, i.target);
              put_back(lanes & ~active, after);
              together = false;
              continue;
            }
            break;
          case Flow::table: {
            put_back(lanes & ~active, after);
            const auto& table = code_.tables[size_t(i.target)];
            each(active, [&](int l) {
              const uint32_t index = get<uint32_t>(x.in(i.a), l);
              if (index >= table.size()) fault(x, i, l, "a branch past its table");
              w.pc[l] = table[index];
            });
            together = false;
            continue;
          }
          case Flow::call: {
            const Call& call = code_.calls[size_t(i.target)];
            each(active, [&](int l) {
              unsigned char* own = lane_memory(w, l);
              for (const auto& c : call.arguments) std::memcpy(own + c.to, own + c.from, c.bytes);
              w.frames[l].push_back({after, i.target});
              w.pc[l] = call.target;
            });
            put_back(lanes & ~active, after);
            together = false;
            continue;
          }
          case Flow::ret: {
            put_back(lanes & ~active, after);
            each(active, [&](int l) {
              if (w.frames[l].empty()) return leave(w, 1u << l);
              const Frame frame = w.frames[l].back();
              w.frames[l].pop_back();
              unsigned char* own = lane_memory(w, l);
              for (const auto& c : code_.calls[size_t(frame.call)].results) std::memcpy(own + c.to, own + c.from, c.bytes);
              w.pc[l] = frame.back;
            });
            together = false;
            continue;
          }
          case Flow::exit:
            put_back(lanes & ~active, after);
            leave(w, active);
            together = false;
            continue;
          case Flow::barrier:
            put_back(lanes, after);
            if (i.vote != Vote::none) w.voted |= active & x.predicate(i.p, i.p_negated);
            w.at_barrier |= active;
            w.runnable &= ~active;
            together = false;
            continue;
          case Flow::warp:
            if (!active) break;
            if (meets(x, i, active)) break;
            // Some lanes are still to come.
            put_back(lanes & ~active, after);
            put_back(active, pc);
            w.parked |= active;
            w.runnable &= ~active;
            meet_parked(x, i, pc);
            together = false;
            continue;
          case Flow::sleep:
            put_back(lanes, after);
            budget = 0;
            together = false;
            continue;
        }
        pc = after;
        if (--budget <= 0 || pc >= limit) {
          put_back(lanes, pc);
          together = false;
        }
      }
    }
    counts().warp_instructions += done;
    counts().thread_instructions += threads;
    instructions_ += done;
    if (instructions_ > 40'000'000'000ull) throw Fault(*launch_.name + ": does not end");
  }

  unsigned char* lane_memory(Warp& w, int l) const { return w.memory.data() + size_t(l) * code_.lane_bytes; }

  uint32_t members(const Context& x, const Instruction& i, uint32_t lanes) const {
    const uint64_t* b = x.in(i.b);
    const uint32_t mask = uint32_t(b[std::countr_zero(lanes)]);
    each(lanes, [&](int l) {
      if (uint32_t(b[l]) != mask) fault(x, i, l, "lanes of a warp name different members");
      if (!(mask >> l & 1)) fault(x, i, l, "a lane is not among the members that it names");
    });
    return mask;
  }
  bool meets(Context& x, const Instruction& i, uint32_t active) {
    const uint32_t mask = members(x, i, active);
    if (mask & ~x.warp.alive)
      fault(x, i, std::countr_zero(active), "members that are no more: " + number_text(mask & ~x.warp.alive));
    if (mask != active) return false;
    exchange(x, i, active);
    return true;
  }
  void meet_parked(Context& x, const Instruction& i, int pc) {
    Warp& w = x.warp;
    uint32_t here = 0;
    each(w.parked, [&](int l) { here |= uint32_t(w.pc[l] == pc) << l; });
    const uint32_t mask = members(x, i, here);
    if (mask & ~here) return;
    exchange(x, i, mask);
    each(mask, [&](int l) { w.pc[l] = pc + 1; });
    w.parked &= ~mask;
    w.runnable |= mask;
  }

  void exchange(Context& x, const Instruction& i, uint32_t lanes) {
    if (i.mode == 0) return;
    if (i.mode >= 5) {
      const uint32_t votes = x.predicate(i.p, i.p_negated) & lanes;
      if (i.mode == 5) each(lanes, [&](int l) { x.out(i.d)[l] = votes; });
      if (i.mode == 6) x.set_predicate(i.q, lanes, votes ? kAll : 0);
      if (i.mode == 7) x.set_predicate(i.q, lanes, votes == lanes ? kAll : 0);
      return;
    }
    uint32_t given[kLanes], valid = 0;
    std::array<uint32_t, kLanes> got{};
    const uint64_t *a = x.in(i.a), *b = x.in(i.list), *c = x.in(i.c);
    for (int l = 0; l < kLanes; ++l) given[l] = uint32_t(a[l]);
    each(lanes, [&](int l) {
      const int by = int(b[l] & 31), segments = int(c[l] >> 8 & 31), clamp = int(c[l] & 31);
      const int last = (l & segments) | (clamp & ~segments), first = l & segments;
      int from = 0;
      bool inside = false;
      switch (i.mode) {
        case 1: from = l - by, inside = from >= last; break;
        case 2: from = l + by, inside = from <= last; break;
        case 3: from = l ^ by, inside = from <= last; break;
        default: from = first | (by & ~segments), inside = from <= last;
      }
      if (!inside) from = l;
      if (!(lanes >> from & 1)) fault(x, i, l, "a shuffle reads lane " + std::to_string(from) + ", which takes no part");
      got[size_t(l)] = given[from];
      valid |= uint32_t(inside) << l;
    });
    if (i.d >= 0) each(lanes, [&](int l) { x.out(i.d)[l] = got[size_t(l)]; });
    x.set_predicate(i.q, lanes, valid);
  }

  Launch& launch_;
  const Kernel::Code& code_;
  uint64_t instructions_ = 0;
};

}  // namespace

void run(Launch& launch) { Runner(launch).all(); }

}  // namespace halfstep::ptx
