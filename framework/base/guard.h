// SPDX-License-Identifier: Apache-2.0
// Bases of guards: objects that change a state of their thread, or of the process, while they live.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <optional>

namespace halfstep {

// Guards are local variables: they cannot be copied, moved, assigned or made by new.
class LocalGuard {
 public:
  LocalGuard(const LocalGuard&) = delete;
  LocalGuard& operator=(const LocalGuard&) = delete;
  static void* operator new(size_t) = delete;
  static void* operator new[](size_t) = delete;

 protected:
  LocalGuard() = default;
  ~LocalGuard() = default;
};

// The guards of one kind that a thread has begun and that have not ended, for OrderedGuard.
class GuardInList : public LocalGuard {
 protected:
  struct List {
    GuardInList* innermost = nullptr;
    uint64_t losses_seen = 0;
  };
  [[nodiscard]] explicit GuardInList(List& here) : list_(&here) {
    if (here.losses_seen != losses_.load(std::memory_order_acquire)) [[unlikely]]
      remove_lost(here);
    outer_ = here.innermost;
    here.innermost = this;
  }
  ~GuardInList() = default;
  bool is_innermost_of(const List& here) const { return here.innermost == this && list_ == &here; }
  // Returns whether the guard is in the list of the thread that calls. Warns if not: a destructor cannot throw.
  bool is_in(List& here, const char* guard) const;
  // Takes the guard out of the list of the thread that calls; if it began on another thread, notes that it is lost to that one.
  void leave(List& here);

  // While it lives, no guard of any thread leaves a list but as the innermost one of its own thread.
  class ListsLock : LocalGuard {
   public:
    [[nodiscard]] ListsLock();
    ~ListsLock();
  };

  // Takes the guards of this thread that ended on others out of its list. Their memory may be free.
  static void remove_lost(List& here);

  GuardInList* outer_;

 private:
  static GuardInList** find(List& here, const GuardInList* guard);
  static inline constinit std::atomic<uint64_t> losses_{0};  // guards so far, of all kinds, that ended on another thread
  const List* list_;                                         // of a thread that may have ended
};

// Base of a guard of its thread's state that may end before guards that began after it, as one in a std::optional may: those keep
// their state, and the next of them restores what this one would have restored. A guard that ends on another thread than it began
// on changes nothing, and warns; the other guards of both threads restore what they would without it.
template <class Self>
class OrderedGuard : public GuardInList {
 protected:
  [[nodiscard]] OrderedGuard() : GuardInList(list_) {}
  ~OrderedGuard() {
    if (is_innermost()) [[likely]]
      list_.innermost = outer_;
    else
      leave(list_);
  }

  // Returns whether this thread began the guard; warns if not.
  bool ends_here(const char* guard) const { return is_innermost() || is_in(list_, guard); }
  bool is_innermost() const { return is_innermost_of(list_); }
  // The first guard that began after another one, has not ended, and for which a condition holds; null: none. It cannot end on
  // another thread while this object lives.
  class Next {
   public:
    template <class F>
    [[nodiscard]] Next(const OrderedGuard* before, const F& f) {
      if (list_.innermost == before) return;
      lock_.emplace();
      remove_lost(list_);
      for (OrderedGuard* g = innermost(); g && g != before; g = static_cast<OrderedGuard*>(g->outer_))
        if (f(static_cast<const Self&>(*g))) guard_ = static_cast<Self*>(g);
    }
    explicit operator bool() const { return guard_ != nullptr; }
    Self* operator->() const { return guard_; }

   private:
    std::optional<ListsLock> lock_;
    Self* guard_ = nullptr;
  };
  template <class F>
  Next next(const F& f) const {
    return Next(this, f);
  }
  Next next() const {
    return next([](const Self&) { return true; });
  }

 private:
  static OrderedGuard* innermost() { return static_cast<OrderedGuard*>(list_.innermost); }
  static inline thread_local constinit List list_{};
};

}  // namespace halfstep
