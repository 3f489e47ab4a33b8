// SPDX-License-Identifier: Apache-2.0
// Collects all errors of a config before anything is thrown.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace halfstep::app {

struct Mark {
  int line = 0, column = 0;  // from 1; 0: unknown
};
// The place where a value was written. `file` may also be a command line option ("--set optimizer.lr=1"), without line and column.
struct SourceLocation {
  std::string file;
  Mark key, value;
};
using Origins = std::map<std::string, SourceLocation>;  // by dotted path: "model.layers.0.out_features"; "" is the whole document

struct Issue {
  std::string path, message;
  bool at_key = false;  // the key is wrong, not its value
  bool warning = false;
};

class Issues {
 public:
  // Adds an error. The first hundred are listed, the others counted.
  void error(std::string path, std::string message, bool at_key = false) {
    ++errors_;
    if (errors_ <= kListed) list_.push_back({std::move(path), std::move(message), at_key, false});
  }
  void warn(std::string path, std::string message) { list_.push_back({std::move(path), std::move(message), false, true}); }

  // Returns whether there is an error at `path`, above it or below it; true if there are more errors than are listed.
  bool touches(std::string_view path) const;
  int64_t errors() const { return errors_; }
  bool full() const { return errors_ >= kListed; }  // further errors are only counted, so callers need not build messages
  const std::vector<Issue>& list() const { return list_; }

  // Formats "mlp.json:12:5: optimizer.lr: must be a number > 0, got -1".
  static std::string line(const Issue& issue, const Origins& origins);
  // Throws a ConfigError with the listed errors, in the order of the file, and the number of others. Does nothing without errors.
  void raise(std::string_view file, const Origins& origins) const;

 private:
  static constexpr int64_t kListed = 100;
  std::vector<Issue> list_;
  int64_t errors_ = 0;
};

// Joins "a" and "b" to "a.b"; "" and "b" to "b".
std::string join_path(const std::string& base, const std::string& key);
inline std::string join_path(const std::string& base, size_t index) { return join_path(base, std::to_string(index)); }

}  // namespace halfstep::app
