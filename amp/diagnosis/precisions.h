// SPDX-License-Identifier: Apache-2.0
// Precisions of a model's modules, changed for a trial.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "framework/base/guard.h"
#include "layers/module/module.h"

namespace halfstep {

// Restores the precisions at the end of the scope.
class Precisions : LocalGuard {
 public:
  [[nodiscard]] explicit Precisions(Module& model);
  ~Precisions();

  // Sets a module to float32. Returns false if there is no such module, or it is in float32 already.
  bool widen(const std::string& path);
  void put_back(const std::string& path);
  // Sorts paths by their modules' places in the model.
  void sort(std::vector<std::string>& paths) const;

 private:
  size_t index_of(const std::string& path) const;
  std::map<std::string, Module*> modules_;
  std::vector<std::pair<Module*, std::optional<DType>>> before_;
};

}  // namespace halfstep
