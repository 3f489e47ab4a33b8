// SPDX-License-Identifier: Apache-2.0
#include "tests/emulators/ptx/syntax.h"

#include <cctype>
#include <cstdlib>
#include <cstring>
#include <stdexcept>
#include <unordered_map>

#include "tests/emulators/ptx/tokens.h"

namespace halfstep::ptx {
namespace {

class Parser {
 public:
  explicit Parser(std::string_view text) : tokens_(tokens_of(text)) {}

  Module module() {
    while (at_ < tokens_.size()) top_level();
    return std::move(module_);
  }

 private:
  [[noreturn]] void fail(const std::string& what) const {
    const Token t = at_ < tokens_.size() ? tokens_[at_] : Token{"the end", 0};
    throw std::runtime_error("ptx line " + std::to_string(t.line) + ": " + what + " at '" + std::string(t.text) + "'");
  }
  std::string_view peek(size_t ahead = 0) const { return at_ + ahead < tokens_.size() ? tokens_[at_ + ahead].text : ""; }
  std::string_view next() {
    if (at_ >= tokens_.size()) fail("more text was expected");
    return tokens_[at_++].text;
  }
  bool take(std::string_view what) {
    if (peek() != what) return false;
    ++at_;
    return true;
  }
  void expect(std::string_view what) {
    if (!take(what)) fail("'" + std::string(what) + "' was expected");
  }
  void skip_line() {
    const int line = tokens_[at_].line;
    while (at_ < tokens_.size() && tokens_[at_].line == line) ++at_;
  }
  void skip_to(std::string_view what) {
    while (next() != what) {}
  }
  uint64_t integer() {
    const bool minus = take("-");
    const uint64_t v = std::strtoull(std::string(next()).c_str(), nullptr, 0);
    return minus ? uint64_t(-int64_t(v)) : v;
  }

  void top_level() {
    const std::string_view word = peek();
    if (word == ".version") return ++at_, module_.version = next(), void();
    if (word == ".target") {
      ++at_;
      module_.target = next();
      while (take(",")) next();
      return;
    }
    if (word == ".address_size") return at_ += 2, void();
    if (word == ".file" || word == ".loc") return skip_line();
    if (word == ".pragma" || word == ".alias") return skip_to(";");
    if (word == ".section") {
      skip_to("{");
      return skip_to("}");
    }
    bool external = false;
    while (peek() == ".visible" || peek() == ".extern" || peek() == ".weak" || peek() == ".common" || peek() == ".noreturn")
      external |= next() == ".extern";
    if (peek() == ".entry" || peek() == ".func") return function();
    for (const char* space : {".global", ".const", ".shared"}) {
      if (!take(space)) continue;
      variables(space + 1, external, [&](Variable v) {
        const std::string name = v.name;
        module_.variables[name] = std::move(v);
      });
      return;
    }
    fail("not understood");
  }

  // After the space, to the semicolon.
  template <class F>
  void variables(const std::string& space, bool external, const F& add) {
    size_t align = 0, element = 0, vector = 1;
    for (; peek().starts_with(".");) {
      const std::string word(next().substr(1));
      if (word == "align")
        align = integer();
      else if (word == "v2" || word == "v4")
        vector = size_t(word[1] - '0');
      else if (const size_t bytes = bytes_of(word))
        element = bytes;
      else if (word != "attribute" && word != "ptr" && word != "global" && word != "managed")
        fail("an attribute of a variable that is not known: " + word);
    }
    if (!element) fail("a variable without a type");
    do {
      Variable v;
      v.space = space;
      v.external = external;
      v.name = next();
      v.align = align ? align : element * vector;
      size_t count = 1;
      bool open = false;
      while (take("[")) {
        if (take("]")) {
          open = true;
          continue;
        }
        count *= integer();
        expect("]");
      }
      v.bytes = open && !external ? 0 : count * element * vector;
      if (open) v.bytes = 0;
      if (take("=")) value(v, element);
      if (v.bytes < v.value.size()) v.bytes = v.value.size();
      add(std::move(v));
    } while (take(","));
    expect(";");
  }
  void value(Variable& v, size_t element) {
    if (take("{")) {
      while (!take("}")) {
        value(v, element);
        take(",");
      }
      return;
    }
    const std::string_view word = peek();
    uint64_t bits = 0;
    if (word == "-" || std::isdigit(static_cast<unsigned char>(word[0]))) {
      const Operand o = operand();
      bits = o.bits;
      if (o.number == Operand::Number::f32 && element == 8) fail("a value of another type");
    } else {
      std::string name(next());
      if (name == "generic") {
        expect("(");
        name = next();
        if (take("+")) bits = integer();
        expect(")");
      } else if (take("+")) {
        bits = integer();
      }
      v.addresses.emplace_back(v.value.size(), name);
    }
    const size_t at = v.value.size();
    v.value.resize(at + element);
    std::memcpy(v.value.data() + at, &bits, element);
  }

  std::vector<Variable> parameters() {
    std::vector<Variable> out;
    expect("(");
    while (!take(")")) {
      take(",");
      if (!take(".param") && !take(".reg")) fail(".param was expected");
      Variable v;
      v.space = "param";
      size_t align = 0, element = 0, count = 1;
      while (peek().starts_with(".")) {
        const std::string word(next().substr(1));
        if (word == "align")
          align = integer();
        else if (const size_t bytes = bytes_of(word))
          element = bytes;
        else if (word != "ptr" && word != "global" && word != "shared" && word != "const" && word != "local")
          fail("an attribute of a parameter that is not known: " + word);
      }
      v.name = next();
      while (take("[")) {
        count *= integer();
        expect("]");
      }
      v.bytes = element * count;
      v.align = align ? align : element;
      out.push_back(v);
    }
    return out;
  }

  void function() {
    Function f;
    f.entry = next() == ".entry";
    if (!f.entry && peek() == "(") f.results = parameters();
    f.name = next();
    if (peek() == "(") f.parameters = parameters();
    while (peek() != "{" && peek() != ";") {
      const std::string_view word = next();
      if (word == ".maxntid") {
        f.max_threads = 1;
        do f.max_threads *= unsigned(integer());
        while (take(","));
      }
    }
    if (!take(";")) {
      expect("{");
      f.defined = true;
      body(f);
    }
    Function& known = module_.functions[f.name];
    if (!known.defined) known = std::move(f);
  }

  std::string own_name(std::string_view name) const {
    for (auto scope = scopes_.rbegin(); scope != scopes_.rend(); ++scope) {
      const auto it = scope->find(std::string(name));
      if (it != scope->end()) return it->second;
    }
    return std::string(name);
  }
  std::string declare(std::string_view name) {
    std::string own(name);
    if (scopes_.size() > 1) own += "#" + std::to_string(++scoped_);
    scopes_.back()[std::string(name)] = own;
    return own;
  }

  void body(Function& f) {
    scopes_.assign(1, {});
    for (;;) {
      const std::string_view word = peek();
      if (word == "{") {
        ++at_;
        scopes_.emplace_back();
      } else if (word == "}") {
        ++at_;
        scopes_.pop_back();
        if (scopes_.empty()) return;
      } else if (word == ";") {
        ++at_;
      } else if (word == ".loc" || word == ".file") {
        skip_line();
      } else if (word == ".pragma") {
        skip_to(";");
      } else if (word == ".reg") {
        ++at_;
        const std::string type(next().substr(1));
        do {
          const std::string_view name = next();
          if (take("<")) {
            integer();
            expect(">");
            f.registers[std::string(name)] = type;
          } else {
            f.registers[declare(name)] = type;
          }
        } while (take(","));
        expect(";");
      } else if (word == ".local" || word == ".shared" || word == ".param" || word == ".const" || word == ".global") {
        const std::string space(next().substr(1));
        variables(space, false, [&](Variable v) {
          v.name = declare(v.name);
          f.variables.push_back(std::move(v));
        });
      } else if (peek(1) == ":") {
        const std::string name(next());
        ++at_;
        if (take(".branchtargets")) {
          do f.tables[name].emplace_back(next());
          while (take(","));
          expect(";");
        } else if (take(".callprototype")) {
          skip_to(";");
        } else {
          f.labels[name] = f.body.size();
        }
      } else {
        f.body.push_back(statement());
      }
    }
  }

  Statement statement() {
    Statement s;
    s.line = tokens_[at_].line;
    if (take("@")) {
      s.guard_negated = take("!");
      s.guard = own_name(next());
    }
    s.op = parts_of(next());
    while (!take(";")) {
      s.operands.push_back(operand());
      take(",");
    }
    return s;
  }

  Operand operand() {
    using Kind = Operand::Kind;
    Operand o;
    if (take("{") || take("(")) {
      o.kind = Kind::list;
      while (!take("}") && !take(")")) {
        o.items.push_back(operand());
        take(",");
      }
      return o;
    }
    if (take("[")) {
      o = operand();
      if (o.kind == Kind::immediate) o.name.clear();
      if (take("+"))
        o.offset += int64_t(integer());
      else if (peek() == "-")
        o.offset += int64_t(integer());
      expect("]");
      o.kind = Kind::memory;
      return o;
    }
    if (take("!")) {
      o = operand();
      o.negated = !o.negated;
      return o;
    }
    const bool minus = take("-");
    const std::string word(next());
    if (std::isdigit(static_cast<unsigned char>(word[0]))) {
      o.kind = Kind::immediate;
      if (word.size() > 2 && word[0] == '0' && (word[1] == 'f' || word[1] == 'F')) {
        o.number = Operand::Number::f32;
        o.bits = std::strtoull(word.c_str() + 2, nullptr, 16) ^ (minus ? 1ull << 31 : 0);
      } else if (word.size() > 2 && word[0] == '0' && (word[1] == 'd' || word[1] == 'D')) {
        o.number = Operand::Number::f64;
        o.bits = std::strtoull(word.c_str() + 2, nullptr, 16) ^ (minus ? 1ull << 63 : 0);
      } else if (word.find('.') != std::string::npos) {
        fail("a decimal number: " + word);
      } else {
        const uint64_t v = std::strtoull(word.c_str(), nullptr, 0);
        o.bits = minus ? uint64_t(-int64_t(v)) : v;
      }
      return o;
    }
    if (minus) fail("a sign before " + word);
    if (word == "_") return o;
    o.name = own_name(word);
    if (word[0] == '%') {
      o.kind = Kind::reg;
      if (take("|")) {
        Operand pair;
        pair.kind = Kind::pair;
        pair.items.push_back(o);
        pair.items.push_back(operand());
        return pair;
      }
    } else {
      o.kind = Kind::symbol;
      if (peek() == "+") {
        ++at_;
        o.offset = int64_t(integer());
      }
      if (take("|")) {
        o.kind = Kind::reg;
        Operand pair;
        pair.kind = Kind::pair;
        pair.items.push_back(o);
        pair.items.push_back(operand());
        return pair;
      }
    }
    return o;
  }

  std::vector<Token> tokens_;
  size_t at_ = 0;
  Module module_;
  std::vector<std::unordered_map<std::string, std::string>> scopes_;
  int scoped_ = 0;
};

}  // namespace

size_t bytes_of(std::string_view type) {
  static const std::unordered_map<std::string_view, size_t> sizes = {
      {"pred", 1},   {"b8", 1},   {"u8", 1},  {"s8", 1},  {"b16", 2}, {"u16", 2},  {"s16", 2},
      {"f16", 2},    {"bf16", 2}, {"b32", 4}, {"u32", 4}, {"s32", 4}, {"f32", 4},  {"f16x2", 4},
      {"bf16x2", 4}, {"b64", 8},  {"u64", 8}, {"s64", 8}, {"f64", 8}, {"b128", 16}};
  const auto it = sizes.find(type);
  return it == sizes.end() ? 0 : it->second;
}

Module parse(std::string_view text) { return Parser(text).module(); }

}  // namespace halfstep::ptx
