// SPDX-License-Identifier: Apache-2.0
// Reads Python's pickle format, protocols 2 to 5, from untrusted bytes without running anything. What the bytes would make Python
// import and call is recorded as a value, for the caller to inspect. Contents of such objects other than pairs and a state are
// skipped. Format: https://github.com/python/cpython/blob/main/Lib/pickletools.py
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

namespace halfstep {

struct PickleValue {
  enum class Kind : uint8_t {
    none,
    boolean,  // integer: 0 or 1
    integer,  // integer
    large,    // an integer of more than 64 bits: text has its bytes, least significant first
    real,     // real
    text,     // text
    tuple,    // items
    list,     // items
    map,      // items: key, value, key, value ...; also collections.OrderedDict
    set,      // items
    bytes,    // content is dropped
    global,   // integer: the number that Globals returned for the name; text: the name; items: the module, a text
    call,     // items: the callee, the tuple of its arguments, and then key, value, key, value ... of an object with pairs;
              // integer: the number of its state, or -1
    persistent,  // items: the id of an object outside the pickle
  };
  Kind kind = Kind::none;
  int64_t integer = 0;
  double real = 0;
  std::string_view text{};        // points into the pickle's bytes
  std::vector<uint32_t> items{};  // numbers of other values; may form a cycle
};

class Pickle {
 public:
  // Called with each name that the bytes import, such as "torch" and "FloatStorage"; returns the caller's number for it.
  using Globals = std::function<int64_t(std::string_view module, std::string_view name)>;

  // Reads one pickle at the beginning of `bytes`, which must outlive the object. Takes time and memory proportional to its size,
  // and never recurses. Throws DataError "[pickle] where: ..." for opcodes that protocols 2 to 5 do not write, damaged or missing
  // bytes, and more than four million values.
  Pickle(std::string where, std::string_view bytes, const Globals& globals);

  const PickleValue& root() const { return values_[root_]; }
  const PickleValue& operator[](uint32_t value) const { return values_[value]; }
  const std::deque<PickleValue>& values() const { return values_; }
  size_t size() const { return size_; }  // bytes of the pickle; the next data begins there

 private:
  friend class PickleReader;
  std::deque<PickleValue> values_;
  uint32_t root_ = 0;
  size_t size_ = 0;
};

// Returns the kind of a value for messages: "a list".
std::string_view pickle_kind_words(PickleValue::Kind kind);
// Returns the class or function of an object or global, "numpy.core.multiarray.scalar"; "" for other values.
std::string pickle_class(const Pickle& pickle, const PickleValue& value);

}  // namespace halfstep
