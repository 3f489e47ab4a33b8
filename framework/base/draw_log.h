// SPDX-License-Identifier: Apache-2.0
// The draws of a computation, so that it can be repeated with the same random numbers.
//
//   DrawLog log;
//   { const DrawLog::Writing on(log); y = f(x); }
//   { const DrawLog::Repeating on(log); y = f(x); }  // with the same numbers, in any thread
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "framework/base/fork_mutex.h"
#include "framework/base/generator.h"
#include "framework/base/guard.h"

namespace halfstep {

// Knows the generators from which a computation drew, and where its draws began. A draw is kept only if it did not begin where the
// one before ended, as other threads drew in between.
class DrawLog {
 public:
  // Writes the draws of this thread into a log while it lives.
  class Writing : LocalGuard {
   public:
    [[nodiscard]] explicit Writing(DrawLog& into);
    ~Writing();

   private:
    DrawLog* outer_;
  };

  // Lets this thread's draws from the log's generators begin where those in the log did, while it lives. The generators themselves
  // do not move, and other threads draw from them as before. Throws ValueError if a generator is gone that was not made within the
  // computation.
  class Repeating : LocalGuard {
   public:
    [[nodiscard]] explicit Repeating(const DrawLog& log);
    ~Repeating();

   private:
    friend class DrawLog;
    struct StandIn;
    std::vector<StandIn> stand_ins_;
    Repeating* outer_;
  };

 private:
  friend class Generator;
  struct Start {
    uint64_t draws = 0;  // how many there were before
    Generator::State state;
  };
  struct Entry {
    uint64_t number = 0;  // of the generator
    std::weak_ptr<Generator> generator;
    bool is_own = false;  // whether the computation made the generator
    uint64_t draws = 0;
    Generator::State next{};  // the end of the last draw, without the Twister
    std::vector<Start> starts;
  };
  // One draw, or another use, of a generator by this thread, which it locks.
  class Use : LocalGuard {
   public:
    [[nodiscard]] explicit Use(Generator& generator, bool draws = true);
    ~Use();
    Generator& from() const { return from_; }  // the generator, or its stand-in

   private:
    Generator& generator_;
    Repeating::StandIn* const stand_in_;
    Generator& from_;
    const std::lock_guard<ForkMutex> lock_;
    const bool draws_;
  };

  static Repeating::StandIn* stand_in_of(const Generator& generator);
  Entry& entry_of(Generator& generator);
  void begin(Generator& generator, const Generator& from);
  void end(Generator& generator, const Generator& from, bool draws);

  std::vector<Entry> entries_;
  uint64_t first_own_ = 0;    // number of the first generator that the computation may make
  DrawLog* outer_ = nullptr;  // while it is written: the log around it
};

}  // namespace halfstep
