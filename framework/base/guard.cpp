// SPDX-License-Identifier: Apache-2.0
#include "framework/base/guard.h"

#include <algorithm>
#include <vector>

#include "framework/base/fork_mutex.h"
#include "framework/base/log.h"
#include "framework/base/text_stream.h"

namespace halfstep {
namespace {

// Guards that ended on another thread than that of their list, which still has their addresses.
struct LostGuards {
  struct Entry {
    const void* list;
    const void* guard;
    void* outer;
  };
  ForkMutex mutex;  // also of lists, where more of them than the innermost guard is read or written
  std::vector<Entry> entries;
};
LostGuards& lost_guards() {
  static LostGuards& lost = *new LostGuards;
  return lost;
}

// Locks of this thread: (next() ? next()->saved_ : state) has two.
thread_local constinit int locks = 0;

}  // namespace

GuardInList::ListsLock::ListsLock() {
  if (locks++ == 0) lost_guards().mutex.lock();
}
GuardInList::ListsLock::~ListsLock() {
  if (--locks == 0) lost_guards().mutex.unlock();
}

void GuardInList::remove_lost(List& here) {
  const ListsLock lock;
  std::vector<LostGuards::Entry>& lost = lost_guards().entries;
  here.losses_seen = losses_.load(std::memory_order_relaxed);
  for (GuardInList** at = &here.innermost; *at;) {
    const auto entry =
        std::find_if(lost.begin(), lost.end(), [&](const LostGuards::Entry& e) { return e.list == &here && e.guard == *at; });
    if (entry == lost.end())
      at = &(*at)->outer_;
    else
      *at = static_cast<GuardInList*>(entry->outer);
  }
  std::erase_if(lost, [&](const LostGuards::Entry& e) { return e.list == &here; });
}

// Returns the place of the guard in the list; null: it is not there. The mutex is locked.
GuardInList** GuardInList::find(List& here, const GuardInList* guard) {
  if (guard->list_ != &here) return nullptr;
  remove_lost(here);
  for (GuardInList** at = &here.innermost; *at; at = &(*at)->outer_)
    if (*at == guard) return at;
  return nullptr;  // its thread has ended, and this one has its list's address
}

bool GuardInList::is_in(List& here, const char* guard) const {
  {
    const ListsLock lock;
    if (find(here, this)) return true;
  }
  TextWriter text;
  text << '[' << guard << "] ended on another thread than it began on, whose state therefore stays: begin and end it in one block";
  logging::warn(text.str());
  return false;
}

void GuardInList::leave(List& here) {
  const ListsLock lock;
  if (GuardInList** const at = find(here, this)) {
    *at = outer_;
    return;
  }
  lost_guards().entries.push_back({list_, this, outer_});
  losses_.fetch_add(1, std::memory_order_release);
}

}  // namespace halfstep
