// SPDX-License-Identifier: Apache-2.0
#include "framework/io/pickle.h"

#include <bit>
#include <cstring>
#include <span>
#include <utility>

#include "framework/base/check.h"
#include "framework/io/printable.h"

namespace halfstep {
namespace {

using Kind = PickleValue::Kind;

constexpr const char* kPickle = "pickle";
constexpr uint32_t kMaxPickleValues = 4'000'000;

// Opcodes that messages can name, because other pickles than those of tensors have them.
constexpr std::pair<uint8_t, const char*> kRefusedOpcodes[] = {{'i', "INST"},
                                                               {'o', "OBJ"},
                                                               {0x81, "NEWOBJ"},
                                                               {0x92, "NEWOBJ_EX"},
                                                               {0x82, "EXT1"},
                                                               {0x83, "EXT2"},
                                                               {0x84, "EXT4"},
                                                               {'P', "PERSID"},
                                                               {'S', "STRING"},
                                                               {'I', "INT"},
                                                               {'L', "LONG"},
                                                               {'F', "FLOAT"},
                                                               {'V', "UNICODE"},
                                                               {'0', "POP"},
                                                               {'1', "POP_MARK"},
                                                               {'2', "DUP"},
                                                               {'g', "GET"},
                                                               {'p', "PUT"},
                                                               {'d', "DICT"},
                                                               {'l', "LIST"},
                                                               {'B', "BINBYTES"},
                                                               {'C', "SHORT_BINBYTES"},
                                                               {0x8b, "LONG4"},
                                                               {0x8d, "BINUNICODE8"},
                                                               {0x8e, "BINBYTES8"},
                                                               {0x8f, "EMPTY_SET"},
                                                               {0x90, "ADDITEMS"},
                                                               {0x91, "FROZENSET"},
                                                               {0x96, "BYTEARRAY8"},
                                                               {0x97, "NEXT_BUFFER"},
                                                               {0x98, "READONLY_BUFFER"}};

}  // namespace

// The machine that pickles are programs of: a stack of values, marks in it, and a memo of values by number.
class PickleReader {
 public:
  PickleReader(std::string where, std::string_view bytes, const Pickle::Globals& globals, Pickle& out)
      : where_(std::move(where)), bytes_(bytes), globals_(globals), out_(out) {}

  void run() {
    if (number<uint8_t>() != 0x80) damaged("it does not begin with a protocol");
    if (const int protocol = number<uint8_t>(); protocol < 2 || protocol > 5)
      fail<DataError>(kPickle, where_, ": the protocol must be 2 to 5, got ", protocol);
    for (;;) {
      const uint8_t op = number<uint8_t>();
      if (op == '.') break;
      if (!number_op(op) && !text_op(op) && !container_op(op) && !memo_op(op) && !object_op(op)) unknown(op);
    }
    out_.root_ = pop();
    out_.size_ = at_;
  }

 private:
  [[noreturn]] void damaged(std::string_view how) const {
    fail<DataError>(kPickle, where_, ": the pickle is damaged at byte ", at_, ": ", how);
  }
  [[noreturn]] void unknown(uint8_t op) const {
    const char* name = "";
    for (const auto& [code, known] : kRefusedOpcodes)
      if (code == op) name = known;
    fail<DataError>(kPickle, where_, ": byte ", at_ - 1, " must be an opcode of tensors, names, numbers and containers, got ",
                    int(op), *name ? " (" : "", name, *name ? ")" : "",
                    Help{"save model.state_dict(), which has no other objects"});
  }

  std::string_view take(size_t bytes) {
    if (bytes > bytes_.size() - at_) damaged("it is cut off");
    at_ += bytes;
    return bytes_.substr(at_ - bytes, bytes);
  }
  template <class T>
  T number() {  // little-endian
    const std::string_view raw = take(sizeof(T));
    uint64_t out = 0;
    for (size_t i = 0; i < sizeof(T); ++i) out |= uint64_t(uint8_t(raw[i])) << (8 * i);
    return T(out);
  }
  std::string_view line() {
    const size_t end = bytes_.substr(at_, 1000).find('\n');
    if (end == std::string_view::npos) damaged("a name does not end");
    const std::string_view out = take(end);
    take(1);
    return out;
  }

  void push(PickleValue value) {
    if (out_.values_.size() >= kMaxPickleValues)
      fail<DataError>(kPickle, where_, ": a pickle may have ", kMaxPickleValues, " values, this one has more");
    stack_.push_back(uint32_t(out_.values_.size()));
    out_.values_.push_back(std::move(value));
  }
  void push_integer(int64_t value) { push({.kind = Kind::integer, .integer = value}); }
  void push_text(std::string_view text) { push({.kind = Kind::text, .text = text}); }
  uint32_t pop() {
    const uint32_t out = top();
    stack_.pop_back();
    return out;
  }
  uint32_t top() const {
    if (stack_.size() <= (marks_.empty() ? 0 : marks_.back())) damaged("an opcode lacks its values");
    return stack_.back();
  }
  // The values since the last mark.
  std::vector<uint32_t> pop_marked() {
    if (marks_.empty()) damaged("an opcode lacks its mark");
    const auto from = stack_.begin() + ptrdiff_t(marks_.back());
    std::vector<uint32_t> out(from, stack_.end());
    stack_.erase(from, stack_.end());
    marks_.pop_back();
    return out;
  }
  PickleValue& top_of(Kind kind) {
    PickleValue& out = out_.values_[top()];
    if (out.kind != kind) damaged("a container is of another kind");
    return out;
  }

  bool number_op(uint8_t op) {
    switch (op) {
      case 'N': push({.kind = Kind::none}); return true;
      case 0x88: push({.kind = Kind::boolean, .integer = 1}); return true;
      case 0x89: push({.kind = Kind::boolean, .integer = 0}); return true;
      case 'K': push_integer(number<uint8_t>()); return true;   // BININT1
      case 'M': push_integer(number<uint16_t>()); return true;  // BININT2
      case 'J': push_integer(number<int32_t>()); return true;   // BININT
      case 0x8a: {                                              // LONG1
        const std::string_view raw = take(number<uint8_t>());
        if (raw.size() > 8) {
          push({.kind = Kind::large, .text = raw});
          return true;
        }
        uint64_t value = !raw.empty() && (uint8_t(raw.back()) & 0x80) ? ~uint64_t(0) : 0;
        for (size_t i = raw.size(); i-- > 0;) value = value << 8 | uint8_t(raw[i]);
        push_integer(int64_t(value));
        return true;
      }
      case 'G': {  // BINFLOAT, which is big-endian
        uint64_t bits = 0;
        for (const char c : take(8)) bits = bits << 8 | uint8_t(c);
        push({.kind = Kind::real, .real = std::bit_cast<double>(bits)});
        return true;
      }
      default: return false;
    }
  }

  bool text_op(uint8_t op) {
    switch (op) {
      case 'U':                                                    // SHORT_BINSTRING, of Python 2
      case 0x8c: push_text(take(number<uint8_t>())); return true;  // SHORT_BINUNICODE
      case 'T':                                                    // BINSTRING, of Python 2
      case 'X': push_text(take(number<uint32_t>())); return true;  // BINUNICODE
      default: return false;
    }
  }

  bool container_op(uint8_t op) {
    switch (op) {
      case '(': marks_.push_back(stack_.size()); return true;
      case ')': push({.kind = Kind::tuple}); return true;
      case ']': push({.kind = Kind::list}); return true;
      case '}': push({.kind = Kind::map}); return true;
      case 't': push({.kind = Kind::tuple, .items = pop_marked()}); return true;
      case 0x85:
      case 0x86:
      case 0x87: {  // TUPLE1, TUPLE2, TUPLE3
        std::vector<uint32_t> items(size_t(op - 0x84));
        for (size_t i = items.size(); i-- > 0;) items[i] = pop();
        push({.kind = Kind::tuple, .items = std::move(items)});
        return true;
      }
      case 'a': {
        const uint32_t item = pop();
        top_of(Kind::list).items.push_back(item);
        return true;
      }
      case 'e': append(pop_marked(), Kind::list); return true;
      case 's': {
        const uint32_t value = pop(), key = pop();
        append(std::vector<uint32_t>{key, value}, Kind::map);
        return true;
      }
      case 'u': append(pop_marked(), Kind::map); return true;
      default: return false;
    }
  }
  void append(std::span<const uint32_t> items, Kind kind) {
    PickleValue& to = top_of(kind);
    if (kind == Kind::map && items.size() % 2 != 0) damaged("a key has no value");
    to.items.insert(to.items.end(), items.begin(), items.end());
  }

  bool memo_op(uint8_t op) {
    switch (op) {
      case 'q': put(number<uint8_t>()); return true;
      case 'r': put(number<uint32_t>()); return true;
      case 0x94: put(uint32_t(memo_.size())); return true;  // MEMOIZE
      case 'h': get(number<uint8_t>()); return true;
      case 'j': get(number<uint32_t>()); return true;
      case 0x95: take(8); return true;  // FRAME: how many bytes to read at once
      default: return false;
    }
  }
  void put(uint32_t place) {
    if (place >= kMaxPickleValues) damaged("a value is kept under too large a number");
    if (place >= memo_.size()) memo_.resize(size_t(place) + 1, kNowhere);
    memo_[place] = top();
  }
  void get(uint32_t place) {
    if (place >= memo_.size() || memo_[place] == kNowhere) damaged("it refers to a value that it does not have");
    stack_.push_back(memo_[place]);
  }

  bool object_op(uint8_t op) {
    switch (op) {
      case 'c': {
        const std::string_view module = line();
        push_global(module, line());
        return true;
      }
      case 0x93: {  // STACK_GLOBAL
        const PickleValue &name = out_.values_[pop()], &module = out_.values_[pop()];
        if (name.kind != Kind::text || module.kind != Kind::text) damaged("a class has no name");
        push_global(module.text, name.text);
        return true;
      }
      case 'Q': push({.kind = Kind::persistent, .items = {pop()}}); return true;
      case 'R': {
        const uint32_t arguments = pop(), callee = pop();
        reduce(callee, arguments);
        return true;
      }
      case 'b': {  // BUILD: attributes of an object, such as the _metadata of a state_dict
        pop();
        top_of(Kind::map);
        return true;
      }
      default: return false;
    }
  }
  void push_global(std::string_view module, std::string_view name) {
    const bool ordered = module == "collections" && name == "OrderedDict";
    push({.kind = Kind::global, .integer = ordered ? kOrderedDict : globals_(module, name)});
  }
  void reduce(uint32_t callee, uint32_t arguments) {
    const PickleValue& function = out_.values_[callee];
    const PickleValue& given = out_.values_[arguments];
    if (function.kind != Kind::global || given.kind != Kind::tuple) damaged("what is called is no function");
    if (function.integer != kOrderedDict) return push({.kind = Kind::call, .items = {callee, arguments}});
    PickleValue map{.kind = Kind::map};
    if (!given.items.empty()) {  // Python 2 gives a list of its pairs
      const PickleValue& pairs = out_.values_[given.items[0]];
      if (given.items.size() != 1 || pairs.kind != Kind::list) damaged("an OrderedDict is not made of pairs");
      copied_ += pairs.items.size();  // a list may be in the memo, and be copied again and again
      if (copied_ > bytes_.size()) damaged("it copies lists more than once");
      for (const uint32_t p : pairs.items) {
        const PickleValue& pair = out_.values_[p];
        if ((pair.kind != Kind::list && pair.kind != Kind::tuple) || pair.items.size() != 2)
          damaged("an OrderedDict is not made of pairs");
        map.items.insert(map.items.end(), pair.items.begin(), pair.items.end());
      }
    }
    push(std::move(map));
  }

  static constexpr int64_t kOrderedDict = -1;
  static constexpr uint32_t kNowhere = ~uint32_t(0);
  const std::string where_;
  const std::string_view bytes_;
  const Pickle::Globals& globals_;
  Pickle& out_;
  size_t at_ = 0;
  std::vector<uint32_t> stack_, memo_;
  std::vector<size_t> marks_;
  size_t copied_ = 0;
};

Pickle::Pickle(std::string where, std::string_view bytes, const Globals& globals) {
  PickleReader(std::move(where), bytes, globals, *this).run();
}

std::string_view pickle_kind_words(Kind kind) {
  switch (kind) {
    case Kind::none: return "None";
    case Kind::boolean: return "a truth value";
    case Kind::integer:
    case Kind::large: return "an integer";
    case Kind::real: return "a number";
    case Kind::text: return "a text";
    case Kind::tuple: return "a tuple";
    case Kind::list: return "a list";
    case Kind::map: return "a dictionary";
    case Kind::global: return "a class or function";
    case Kind::call: return "an object";
    case Kind::persistent: return "a storage";
  }
  return "";
}

}  // namespace halfstep
