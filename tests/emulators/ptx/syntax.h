// SPDX-License-Identifier: Apache-2.0
// PTX text as statements: what nvcc writes, no more. Names in nested scopes are made unique.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace halfstep::ptx {

struct Operand {
  enum class Kind { reg, immediate, symbol, memory, list, pair, sink };
  Kind kind = Kind::sink;
  std::string name;      // of a register or symbol; of what a memory operand's address begins with
  bool negated = false;  // !%p
  enum class Number { integer, f32, f64 } number = Number::integer;
  uint64_t bits = 0;           // of an immediate
  int64_t offset = 0;          // [name + offset]
  std::vector<Operand> items;  // of a list, or p and q of p|q
};

struct Statement {
  int line = 0;
  std::string guard;  // @guard or @!guard
  bool guard_negated = false;
  std::vector<std::string> op;  // "ld.global.u32" in parts
  std::vector<Operand> operands;
};

struct Variable {
  std::string space, name;  // "shared"
  size_t bytes = 0, align = 1;
  bool external = false;  // of the launch's size
  std::vector<unsigned char> value;
  std::vector<std::pair<size_t, std::string>> addresses;  // of other variables, in the value
};

struct Function {
  std::string name;
  bool entry = false, defined = false;
  unsigned max_threads = 0;  // .maxntid
  std::vector<Variable> parameters, results, variables;
  std::map<std::string, std::string> registers;  // "%r" -> "b32"; a name without number where it was declared alone
  std::vector<Statement> body;
  std::map<std::string, size_t> labels;                    // the statement that follows
  std::map<std::string, std::vector<std::string>> tables;  // .branchtargets
};

struct Module {
  std::string version, target;
  std::map<std::string, Function> functions;
  std::map<std::string, Variable> variables;
};

Module parse(std::string_view text);  // throws std::runtime_error with the line

size_t bytes_of(std::string_view type);  // "u32" -> 4; 0 of what is no type

}  // namespace halfstep::ptx
