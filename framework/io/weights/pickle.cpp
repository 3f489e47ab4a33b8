// SPDX-License-Identifier: Apache-2.0
#include "framework/io/weights/pickle.h"

#include <bit>
#include <cstring>
#include <span>
#include <utility>

#include "framework/base/check.h"
#include "framework/io/files/printable.h"

namespace halfstep {
namespace {

using Kind = PickleValue::Kind;

constexpr const char* kPickle = "pickle";
constexpr uint32_t kMaxPickleValues = 4'000'000;

// Opcodes that messages can name: those of protocols 0 and 1, and of memory outside the pickle.
constexpr std::pair<uint8_t, const char*> kRefusedOpcodes[] = {
    {0x82, "EXT1"}, {0x83, "EXT2"}, {0x84, "EXT4"}, {'P', "PERSID"},       {'S', "STRING"},
    {'I', "INT"},   {'L', "LONG"},  {'F', "FLOAT"}, {'V', "UNICODE"},      {'g', "GET"},
    {'p', "PUT"},   {'d', "DICT"},  {'l', "LIST"},  {0x97, "NEXT_BUFFER"}, {0x98, "READONLY_BUFFER"}};

}  // namespace

// The stack machine that runs pickles: a stack of values with marks, and a memo of values by number.
class PickleReader {
 public:
  PickleReader(std::string where, std::string_view bytes, const Pickle::Globals& globals, Pickle& out)
      : where_(std::move(where)), bytes_(bytes), globals_(globals), out_(out) {}

  void run() {
    if (read_number<uint8_t>() != 0x80) fail_damaged("it does not begin with a protocol");
    if (const int protocol = read_number<uint8_t>(); protocol < 2 || protocol > 5)
      fail<DataError>(kPickle, where_, ": the protocol must be 2 to 5, got ", protocol);
    for (;;) {
      const uint8_t op = read_number<uint8_t>();
      if (op == '.') break;
      if (!run_number_op(op) && !run_text_op(op) && !run_container_op(op) && !run_memo_op(op) && !run_object_op(op))
        fail_unknown(op);
    }
    out_.root_ = pop();
    out_.size_ = at_;
  }

 private:
  [[noreturn]] void fail_damaged(std::string_view how) const {
    fail<DataError>(kPickle, where_, ": the pickle is damaged at byte ", at_, ": ", how);
  }
  [[noreturn]] void fail_unknown(uint8_t op) const {
    const char* name = "";
    for (const auto& [code, known] : kRefusedOpcodes)
      if (code == op) name = known;
    fail<DataError>(kPickle, where_, ": byte ", at_ - 1, " must be an opcode of the protocols 2 to 5, got ", int(op),
                    *name ? " (" : "", name, *name ? ")" : "");
  }

  // Returns the next bytes, and moves behind them.
  std::string_view take(size_t bytes) {
    if (bytes > bytes_.size() - at_) fail_damaged("it is cut off");
    at_ += bytes;
    return bytes_.substr(at_ - bytes, bytes);
  }
  template <class T>
  T read_number() {  // little-endian
    const std::string_view raw = take(sizeof(T));
    uint64_t out = 0;
    for (size_t i = 0; i < sizeof(T); ++i) out |= uint64_t(uint8_t(raw[i])) << (8 * i);
    return T(out);
  }
  std::string_view read_line() {
    constexpr size_t kLongestName = 1000;
    const size_t end = bytes_.substr(at_, kLongestName).find('\n');
    if (end == std::string_view::npos) fail_damaged("a name does not end");
    const std::string_view out = take(end);
    take(1);
    return out;
  }

  // Adds a value to the list of values and returns its number.
  uint32_t add(PickleValue value) {
    if (out_.values_.size() >= kMaxPickleValues)
      fail<DataError>(kPickle, where_, ": a pickle may have ", kMaxPickleValues, " values, this one has more");
    out_.values_.push_back(std::move(value));
    return uint32_t(out_.values_.size() - 1);
  }
  void push(PickleValue value) { stack_.push_back(add(std::move(value))); }
  void push_integer(int64_t value) { push({.kind = Kind::integer, .integer = value}); }
  // Pushes an integer whose bytes are `raw`, in two's complement, least significant first.
  void push_long(std::string_view raw) {
    if (raw.size() > 8) return push({.kind = Kind::large, .text = raw});
    uint64_t value = !raw.empty() && (uint8_t(raw.back()) & 0x80) ? ~uint64_t(0) : 0;
    for (size_t i = raw.size(); i-- > 0;) value = value << 8 | uint8_t(raw[i]);
    push_integer(int64_t(value));
  }
  void push_text(std::string_view text) { push({.kind = Kind::text, .text = text}); }
  uint32_t pop() {
    const uint32_t out = top();
    stack_.pop_back();
    return out;
  }
  uint32_t top() const {
    if (stack_.size() <= (marks_.empty() ? 0 : marks_.back())) fail_damaged("an opcode lacks its values");
    return stack_.back();
  }
  // Pops the values since the last mark.
  std::vector<uint32_t> pop_marked() {
    if (marks_.empty()) fail_damaged("an opcode lacks its mark");
    const auto from = stack_.begin() + ptrdiff_t(marks_.back());
    std::vector<uint32_t> out(from, stack_.end());
    stack_.erase(from, stack_.end());
    marks_.pop_back();
    return out;
  }
  // Returns the top value, which must be a container of this kind or an object.
  PickleValue& top_of(Kind kind) {
    PickleValue& out = out_.values_[top()];
    if (out.kind != kind && out.kind != Kind::call) fail_damaged("a container is of another kind");
    return out;
  }

  // These functions run an opcode of one kind; they return false for the others.

  bool run_number_op(uint8_t op) {
    switch (op) {
      case 'N': push({.kind = Kind::none}); return true;
      case 0x88: push({.kind = Kind::boolean, .integer = 1}); return true;
      case 0x89: push({.kind = Kind::boolean, .integer = 0}); return true;
      case 'K': push_integer(read_number<uint8_t>()); return true;   // BININT1
      case 'M': push_integer(read_number<uint16_t>()); return true;  // BININT2
      case 'J': push_integer(read_number<int32_t>()); return true;   // BININT
      case 0x8a: {                                                   // LONG1
        push_long(take(read_number<uint8_t>()));
        return true;
      }
      case 0x8b: push_long(take(read_number<uint32_t>())); return true;  // LONG4
      case 'G': {                                                        // BINFLOAT, which is big-endian
        uint64_t bits = 0;
        for (const char c : take(8)) bits = bits << 8 | uint8_t(c);
        push({.kind = Kind::real, .real = std::bit_cast<double>(bits)});
        return true;
      }
      default: return false;
    }
  }

  bool run_text_op(uint8_t op) {
    switch (op) {
      case 'U':                                                          // SHORT_BINSTRING, of Python 2
      case 0x8c: push_text(take(read_number<uint8_t>())); return true;   // SHORT_BINUNICODE
      case 'T':                                                          // BINSTRING, of Python 2
      case 'X': push_text(take(read_number<uint32_t>())); return true;   // BINUNICODE
      case 0x8d: push_text(take(read_number<uint64_t>())); return true;  // BINUNICODE8
      case 'C': return push_bytes(read_number<uint8_t>());               // SHORT_BINBYTES
      case 'B': return push_bytes(read_number<uint32_t>());              // BINBYTES
      case 0x8e:                                                         // BINBYTES8
      case 0x96: return push_bytes(read_number<uint64_t>());             // BYTEARRAY8
      default: return false;
    }
  }

  // Skips the bytes and pushes a value for them. Returns true, as the opcode's result.
  bool push_bytes(uint64_t size) {
    take(size);
    push({.kind = Kind::bytes});
    return true;
  }

  bool run_container_op(uint8_t op) {
    switch (op) {
      case 0x8f: push({.kind = Kind::set}); return true;                         // EMPTY_SET
      case 0x90: append(pop_marked(), Kind::set); return true;                   // ADDITEMS
      case 0x91: push({.kind = Kind::set, .items = pop_marked()}); return true;  // FROZENSET
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
        append(std::span(&item, 1), Kind::list);
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
  // Appends items to the container on top of the stack.
  void append(std::span<const uint32_t> items, Kind kind) {
    PickleValue& to = top_of(kind);
    if (kind == Kind::map && items.size() % 2 != 0) fail_damaged("a key has no value");
    if (kind != Kind::map && to.kind == Kind::call) return;  // of a class derived from list or set
    to.items.insert(to.items.end(), items.begin(), items.end());
  }

  bool run_memo_op(uint8_t op) {
    switch (op) {
      case 'q': store_in_memo(read_number<uint8_t>()); return true;
      case 'r': store_in_memo(read_number<uint32_t>()); return true;
      case 0x94: store_in_memo(uint32_t(memo_.size())); return true;  // MEMOIZE
      case 'h': push_from_memo(read_number<uint8_t>()); return true;
      case 'j': push_from_memo(read_number<uint32_t>()); return true;
      case 0x95: take(8); return true;                 // FRAME: how many bytes to read at once
      case '2': stack_.push_back(top()); return true;  // DUP
      case '1': pop_marked(); return true;             // POP_MARK
      case '0':                                        // POP, of a value or the mark
        if (!marks_.empty() && marks_.back() == stack_.size())
          marks_.pop_back();
        else
          pop();
        return true;
      default: return false;
    }
  }
  void store_in_memo(uint32_t place) {
    if (place >= kMaxPickleValues) fail_damaged("a value is kept under too large a number");
    if (place >= memo_.size()) memo_.resize(size_t(place) + 1, kNowhere);
    memo_[place] = top();
  }
  void push_from_memo(uint32_t place) {
    if (place >= memo_.size() || memo_[place] == kNowhere) fail_damaged("it refers to a value that it does not have");
    stack_.push_back(memo_[place]);
  }

  bool run_object_op(uint8_t op) {
    switch (op) {
      case 'c': {
        const std::string_view module = read_line();
        push_global(module, read_line());
        return true;
      }
      case 0x93: {  // STACK_GLOBAL
        const PickleValue &name = out_.values_[pop()], &module = out_.values_[pop()];
        if (name.kind != Kind::text || module.kind != Kind::text) fail_damaged("a class has no name");
        push_global(module.text, name.text);
        return true;
      }
      case 'Q': push({.kind = Kind::persistent, .items = {pop()}}); return true;
      case 0x81:  // NEWOBJ
      case 'R': {
        const uint32_t arguments = pop(), callee = pop();
        reduce(callee, arguments);
        return true;
      }
      case 0x92: {  // NEWOBJ_EX: also arguments by name
        pop();
        const uint32_t arguments = pop(), callee = pop();
        push_object(callee, arguments);
        return true;
      }
      case 'i': {  // INST, of Python 2
        const std::string_view module = read_line();
        const uint32_t callee = add_global(module, read_line());
        push_object(callee, add({.kind = Kind::tuple, .items = pop_marked()}));
        return true;
      }
      case 'o': {  // OBJ, of Python 2
        std::vector<uint32_t> items = pop_marked();
        if (items.empty()) fail_damaged("an object has no class");
        const uint32_t callee = items[0];
        items.erase(items.begin());
        push_object(callee, add({.kind = Kind::tuple, .items = std::move(items)}));
        return true;
      }
      case 'b': {  // BUILD: attributes of an object, such as the _metadata of a state_dict
        const uint32_t state = pop();
        if (PickleValue& to = top_of(Kind::map); to.kind == Kind::call) to.integer = state;
        return true;
      }
      default: return false;
    }
  }
  void push_global(std::string_view module, std::string_view name) { stack_.push_back(add_global(module, name)); }
  uint32_t add_global(std::string_view module, std::string_view name) {
    const bool ordered = module == "collections" && name == "OrderedDict";
    const int64_t number = ordered ? kOrderedDict : globals_(module, name);
    const uint32_t in = add({.kind = Kind::text, .text = module});
    return add({.kind = Kind::global, .integer = number, .text = name, .items = {in}});
  }
  // Records an object. Classes and functions may also be attributes of others, results of calls, and in old files objects outside
  // the pickle.
  void push_object(uint32_t callee, uint32_t arguments) {
    const Kind kind = out_.values_[callee].kind;
    const bool callable = kind == Kind::global || kind == Kind::call || kind == Kind::persistent;
    if (!callable || out_.values_[arguments].kind != Kind::tuple) fail_damaged("what is called is no function");
    push({.kind = Kind::call, .integer = -1, .items = {callee, arguments}});
  }
  // Calls `callee`: makes an OrderedDict, records any other object.
  void reduce(uint32_t callee, uint32_t arguments) {
    const PickleValue& function = out_.values_[callee];
    const PickleValue& given = out_.values_[arguments];
    const bool ordered = function.kind == Kind::global && function.integer == kOrderedDict;
    if (!ordered || given.kind != Kind::tuple) return push_object(callee, arguments);
    PickleValue map{.kind = Kind::map};
    if (!given.items.empty()) {  // a list of pairs from Python 2
      const PickleValue& pairs = out_.values_[given.items[0]];
      if (given.items.size() != 1 || pairs.kind != Kind::list) fail_damaged("an OrderedDict is not made of pairs");
      copied_ += pairs.items.size();  // a list in the memo may be copied many times
      if (copied_ > bytes_.size()) fail_damaged("it copies lists more than once");
      for (const uint32_t item : pairs.items) {
        const PickleValue& pair = out_.values_[item];
        if ((pair.kind != Kind::list && pair.kind != Kind::tuple) || pair.items.size() != 2)
          fail_damaged("an OrderedDict is not made of pairs");
        map.items.insert(map.items.end(), pair.items.begin(), pair.items.end());
      }
    }
    push(std::move(map));
  }

  static constexpr int64_t kOrderedDict = -1;  // number of collections.OrderedDict; those of Globals are others
  static constexpr uint32_t kNowhere = ~uint32_t(0);
  const std::string where_;
  const std::string_view bytes_;
  const Pickle::Globals& globals_;
  Pickle& out_;
  size_t at_ = 0;                       // position in the bytes
  std::vector<uint32_t> stack_, memo_;  // numbers of values; kNowhere: no value
  std::vector<size_t> marks_;           // sizes of the stack
  size_t copied_ = 0;                   // items of lists of pairs that were copied
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
    case Kind::set: return "a set";
    case Kind::bytes: return "bytes";
    case Kind::global: return "a class or function";
    case Kind::call: return "an object";
    case Kind::persistent: return "a storage";
  }
  return "";
}

std::string pickle_class(const Pickle& pickle, const PickleValue& value) {
  const PickleValue* named = &value;
  constexpr int kMaxDepth = 9;  // of calls whose callee is the result of a call; values may form a cycle
  for (int depth = 0; depth < kMaxDepth; ++depth) {
    if (named->kind == Kind::global) return joined(printable(pickle[named->items[0]].text, 100), '.', printable(named->text, 100));
    if (named->kind != Kind::call && named->kind != Kind::persistent) break;
    named = &pickle[named->items[0]];
    // ("module", class, file, source) for a class outside the pickle.
    if (named->kind == Kind::tuple && named->items.size() > 1) named = &pickle[named->items[1]];
  }
  return value.kind == Kind::call ? "of a class without a name" : "";
}

}  // namespace halfstep
