// SPDX-License-Identifier: Apache-2.0
// A library that is opened when something first needs it, so that a run which does not never loads it: cuBLASLt, cuDNN, NCCL.
#pragma once

#include <cstddef>
#include <functional>
#include <string>
#include <vector>

namespace halfstep::cuda {

struct LibrarySymbol {
  const char* name;
  void** function;        // where its address goes
  bool optional = false;  // null where the library has none
};
// One of a table whose members are called as the functions are.
#define HS_SYMBOL(table, name) {#name, reinterpret_cast<void**>(&(table).name)},
#define HS_OPTIONAL_SYMBOL(table, name) {#name, reinterpret_cast<void**>(&(table).name), true},

// Opens the file that the environment's `variable` names, and no other; without that the first of `files` that serves; empty ones
// are passed over. `unfit` is asked when all symbols are found: empty, or its defect ("is version 8.1.0, not 9").
// Returns why none serves, file by file; empty: the symbols are those of a library that stays open until the end.
std::string open_library(const char* variable, const std::vector<std::string>& files, const std::vector<LibrarySymbol>& symbols,
                         const std::function<std::string()>& unfit);

// "13.1.0" of 130100, as these libraries number their versions.
std::string library_version(size_t version);

}  // namespace halfstep::cuda
