// SPDX-License-Identifier: Apache-2.0
// Parses PTX text to statements, as far as nvcc writes it. Makes names in nested scopes unique.
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
  std::string name;      // of a register or symbol, or of a memory operand's base
  bool negated = false;  // !%p
  enum class Number { integer, f32, f64 } number = Number::integer;
  uint64_t bits = 0;           // of an immediate
  int64_t offset = 0;          // in [name + offset]
  std::vector<Operand> items;  // of a list, or p and q of p|q
};

struct Statement {
  int line = 0;
  std::string guard;  // @guard or @!guard
  bool guard_negated = false;
  std::vector<std::string> op;  // parts of "ld.global.u32"
  std::vector<Operand> operands;
};

struct Variable {
  std::string space, name;  // "shared"
  size_t bytes = 0, align = 1;
  bool external = false;  // size given at launch
  std::vector<unsigned char> value;
  std::vector<std::pair<size_t, std::string>> addresses;  // addresses of other variables in the value
};

struct Function {
  std::string name;
  bool entry = false, defined = false;
  unsigned max_threads = 0;  // .maxntid
  std::vector<Variable> parameters, results, variables;
  std::map<std::string, std::string> registers;  // "%r" -> "b32"; a full name if it was declared alone
  std::vector<Statement> body;
  std::map<std::string, size_t> labels;                    // index of the following statement
  std::map<std::string, std::vector<std::string>> tables;  // .branchtargets
};

struct Module {
  std::string version, target;
  std::map<std::string, Function> functions;
  std::map<std::string, Variable> variables;
};

Module parse(std::string_view text);  // throws std::runtime_error with the line

size_t bytes_of(std::string_view type);  // "u32" -> 4; 0 for other names

}  // namespace halfstep::ptx
