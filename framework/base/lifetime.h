// SPDX-License-Identifier: Apache-2.0
// References to objects that a program may destroy first: they notice that, instead of reading freed memory.
#pragma once

#include <memory>
#include <string_view>

#include "framework/base/check.h"

namespace halfstep {

// A member of a class to whose objects others keep references. Declare it last, so that it ends first.
class Lifetime {
 public:
  Lifetime() = default;
  Lifetime(const Lifetime&) = delete;
  Lifetime& operator=(const Lifetime&) = delete;

 private:
  template <class T>
  friend class Watched;
  std::shared_ptr<const char> token_ = std::make_shared<const char>();
};

// A reference to an object that has `const Lifetime& lifetime() const`.
template <class T>
class Watched {
 public:
  explicit Watched(T& object) : object_(&object), token_(object.lifetime().token_) {}
  // Returns the object; null once it has been destroyed.
  T* find() const { return token_.expired() ? nullptr : object_; }
  // Returns the object. Throws ValueError for `where`, naming `what`, once it has been destroyed.
  T& get(std::string_view where, std::string_view what) const {
    check<ValueError>(!token_.expired(), where, "its ", what, " was destroyed",
                      Help{"keep it as long as what was made for it, or make this one anew for the next"});
    return *object_;
  }

 private:
  T* object_;
  std::weak_ptr<const char> token_;
};

}  // namespace halfstep
