// SPDX-License-Identifier: Apache-2.0
// Resolves names in a function's operands (registers, predicates and variables) to places of the machine.
#pragma once

#include <algorithm>
#include <cctype>
#include <deque>
#include <map>
#include <string>
#include <vector>

#include "tests/emulators/ptx/code.h"

namespace halfstep::ptx {

inline size_t aligned(size_t at, size_t align) { return (at + align - 1) / align * align; }

class Operands {
 protected:
  using Kind = Operand::Kind;
  Operands(Program& program, const Module& module, Kernel::Code& code) : program_(program), module_(module), code_(code) {}

  [[noreturn]] void fail(const std::string& what) const {
    std::string text;
    for (const std::string& part : s_->op) text += (text.empty() ? "" : ".") + part;
    throw Fault("ptx line " + std::to_string(s_->line) + ": " + what + ": " + text + " in " + f_->name);
  }

  size_t lane_space(const Variable& v) {
    code_.lane_bytes = aligned(code_.lane_bytes, std::max<size_t>(v.align, 1));
    const size_t at = code_.lane_bytes;
    code_.lane_bytes += v.bytes;
    return at;
  }

  void shared(const Variable& v, std::map<std::string, size_t>& names) {
    code_.static_shared = aligned(code_.static_shared, v.align);
    names[v.name] = code_.static_shared;
    code_.static_shared += v.bytes;
  }

  const std::string* register_type(const std::string& name) const {
    auto it = f_->registers.find(name);
    if (it != f_->registers.end()) return &it->second;
    size_t end = name.size();
    while (end && std::isdigit(static_cast<unsigned char>(name[end - 1]))) --end;
    it = f_->registers.find(name.substr(0, end));
    return it != f_->registers.end() && end < name.size() ? &it->second : nullptr;
  }
  static bool is_special(const std::string& name) {
    for (const char* prefix :
         {"%tid", "%ntid", "%ctaid", "%nctaid", "%laneid", "%warpid", "%nwarpid", "%lanemask", "%clock", "%globaltimer"}) {
      if (name.starts_with(prefix)) return true;
    }
    return false;
  }
  bool is_register(const Operand& o) const {
    return (o.kind == Kind::reg || o.kind == Kind::symbol) && (register_type(o.name) || is_special(o.name));
  }
  bool is_predicate(const std::string& name) const {
    const std::string* type = register_type(name);
    return type && *type == "pred";
  }

  int slot(const std::string& name) {
    const bool special = !register_type(name);
    if (special && !is_special(name)) fail("no register " + name);
    if (is_predicate(name)) fail("a predicate as a number: " + name);
    auto& names = special ? specials_ : names_;
    const auto [it, added] = names.try_emplace(name, code_.registers);
    if (added) {
      ++code_.registers;
      if (special) code_.specials.emplace_back(it->second, name);
    }
    return it->second;
  }
  int predicate(const std::string& name) {
    if (!is_predicate(name)) fail("no predicate: " + name);
    const auto [it, added] = predicates_.try_emplace(name, code_.predicates);
    if (added) ++code_.predicates;
    return it->second;
  }
  int constant(uint64_t bits) {
    const auto [it, added] = constants_.try_emplace(bits, int(code_.constants.size() / kLanes));
    if (added) code_.constants.insert(code_.constants.end(), kLanes, bits);
    return -2 - it->second;
  }
  // Returns an immediate's bits, in the type of the instruction.
  uint64_t bits_of(const Operand& o, const std::string& type) const {
    if (type == "f32" && o.number == Operand::Number::f64) return std::bit_cast<uint32_t>(float(std::bit_cast<double>(o.bits)));
    if (type == "f64" && o.number == Operand::Number::f32)
      return std::bit_cast<uint64_t>(double(std::bit_cast<float>(uint32_t(o.bits))));
    const size_t bytes = bytes_of(type);
    return bytes && bytes < 8 ? o.bits & ((1ull << (8 * bytes)) - 1) : o.bits;
  }
  int source(const Operand& o, const std::string& type) {
    if (is_register(o)) return slot(o.name);
    if (o.kind == Kind::immediate) return constant(bits_of(o, type));
    fail("an operand that is not understood: " + o.name);
  }
  int result(const Operand& o, Instruction& i) {
    if (o.kind == Kind::sink) return slot_of_nothing();
    if (!is_register(o)) fail("a result that is no register");
    const size_t bytes = bytes_of(*register_type(o.name));
    i.mask = bytes < 8 ? (1ull << (8 * bytes)) - 1 : ~0ull;
    return slot(o.name);
  }
  int slot_of_nothing() {
    if (nothing_ < 0) nothing_ = code_.registers++;
    return nothing_;
  }
  void predicate_source(const Operand& o, Instruction& i) {
    i.p_negated = o.negated;
    if (o.kind == Kind::immediate) {
      i.p = 0;
      i.p_negated = o.negated != (o.bits == 0);
    } else {
      i.p = predicate(o.name);
    }
  }
  void predicate_results(const Operand& o, Instruction& i) {
    if (o.kind == Kind::pair) {
      i.q = o.items[0].kind == Kind::sink ? -1 : predicate(o.items[0].name);
      i.r = o.items[1].kind == Kind::sink ? -1 : predicate(o.items[1].name);
    } else if (o.kind != Kind::sink) {
      i.q = predicate(o.name);
    }
  }

  // Sets the base of an address to a name's place.
  void name_base(const std::string& name, int64_t offset, Instruction& i) {
    i.offset = offset;
    if (const auto it = arguments_.find(name); f_->entry && it != arguments_.end()) {
      i.base = Base::argument;
      i.offset += int64_t(it->second);
    } else if (const auto own = lane_.find(name); own != lane_.end()) {
      i.base = Base::lane;
      i.offset += int64_t(own->second);
    } else if (const auto mine = own_shared_.find(name); mine != own_shared_.end()) {
      i.base = Base::shared;
      i.offset += int64_t(mine->second);
    } else if (const auto it2 = module_.variables.find(name); it2 != module_.variables.end()) {
      const Variable& v = it2->second;
      if (v.space == "shared") {
        i.base = Base::shared;
        if (v.bytes == 0) {
          dynamic_users_.push_back(code_.instructions.size());
        } else {
          if (!shared_.contains(name)) shared(v, shared_);
          i.offset += int64_t(shared_.at(name));
        }
      } else {
        i.base = Base::host;
        i.offset += int64_t(reinterpret_cast<uint64_t>(program_.variable(name)));
      }
    } else {
      fail("no variable " + name);
    }
  }
  void memory(const Operand& o, Instruction& i) {
    if (o.kind != Kind::memory) fail("an address was expected");
    if (o.name.empty()) {
      i.base = Base::reg;
      i.a = constant(o.bits);
      i.offset = o.offset;
    } else if (register_type(o.name)) {
      i.base = Base::reg;
      i.a = slot(o.name);
      i.offset = o.offset;
    } else {
      name_base(o.name, o.offset, i);
    }
  }
  static Space space_of(const std::vector<std::string>& op) {
    for (const std::string& w : op) {
      const std::string word = w.substr(0, w.find("::"));
      if (word == "global") return Space::global;
      if (word == "shared") return Space::shared;
      if (word == "local") return Space::local;
      if (word == "param") return Space::param;
      if (word == "const") return Space::constant;
    }
    return Space::generic;
  }
  void list_of(const Operand& o, const std::string& type, bool results, Instruction& i) {
    i.list = int(code_.lists.size());
    const std::vector<Operand> items = o.kind == Kind::list ? o.items : std::vector<Operand>{o};
    i.count = uint8_t(items.size());
    std::vector<int> slots;
    for (const Operand& item : items)
      slots.push_back(item.kind == Kind::sink && results ? -1 : results ? result(item, i) : source(item, type));
    code_.lists.insert(code_.lists.end(), slots.begin(), slots.end());
  }

  Program& program_;
  const Module& module_;
  Kernel::Code& code_;
  const Function* f_ = nullptr;
  const Statement* s_ = nullptr;
  std::map<std::string, size_t> arguments_, lane_, own_shared_, shared_;
  std::map<std::string, int> names_, specials_, predicates_;
  std::map<uint64_t, int> constants_;
  std::vector<size_t> dynamic_users_;
  int nothing_ = -1;
};

}  // namespace halfstep::ptx
