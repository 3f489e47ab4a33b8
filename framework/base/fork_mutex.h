// SPDX-License-Identifier: Apache-2.0
// A mutex that fork() takes before it makes the child, so that no other thread holds it there.
#pragma once

#include <mutex>

namespace halfstep {

// For mutexes that live as long as the process. The child of a fork has only the thread that called it: a mutex that another thread
// held at that moment would stay locked in the child for ever. fork() waits up to ten seconds for all of them.
class ForkMutex : public std::mutex {
 public:
  ForkMutex();

 private:
  ForkMutex* next_;
  friend class ForkMutexes;
};

// Functions that fork() calls before it takes the mutexes and after it has released them, in the parent and in the child. One set
// per process.
struct ForkGate {
  void (*before)();
  void (*after)();
  void (*in_child)();
};
void set_fork_gate(const ForkGate& gate);

}  // namespace halfstep
