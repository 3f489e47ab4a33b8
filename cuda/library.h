// SPDX-License-Identifier: Apache-2.0
// A library that is opened when first needed, so that runs without it never load it: cuBLASLt, cuDNN, NCCL.
#pragma once

#include <cstddef>
#include <functional>
#include <string>
#include <vector>

namespace halfstep::cuda {

struct LibrarySymbol {
  const char* name;
  void** function;        // destination of its address
  bool optional = false;  // null if the library lacks it
};
// Adds a symbol to a table whose members have the names of the functions.
#define HS_SYMBOL(table, name) {#name, reinterpret_cast<void**>(&(table).name)},
#define HS_OPTIONAL_SYMBOL(table, name) {#name, reinterpret_cast<void**>(&(table).name), true},

// Opens the file that the environment's `variable` names, and no other; if it names none, the first usable one of `files`, skipping
// empty names. `unfit` is called when all symbols are found: it returns the library's defect ("is version 8.1.0, not 9"), or "".
// Returns "" if `symbols` are set to functions of a library, which stays open until the process ends; else why no file is usable.
std::string open_library(const char* variable, const std::vector<std::string>& files, const std::vector<LibrarySymbol>& symbols,
                         const std::function<std::string()>& unfit);

// Returns "13.1.0" for 130100, as these libraries number their versions.
std::string library_version(size_t version);

}  // namespace halfstep::cuda
