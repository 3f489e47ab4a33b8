// SPDX-License-Identifier: Apache-2.0
// The precisions of a model's modules, changed for a trial.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "layers/module/module.h"

namespace halfstep {

// Puts the precisions back at the end of the scope.
class Precisions {
 public:
  [[nodiscard]] explicit Precisions(Module& model);
  ~Precisions();
  Precisions(const Precisions&) = delete;

  // To float32. False: there is no such module, or it computes in float32 already.
  bool widen(const std::string& path);
  void put_back(const std::string& path);
  // By their modules' places in the model.
  void sort(std::vector<std::string>& paths) const;

 private:
  size_t place(const std::string& path) const;
  std::map<std::string, Module*> modules_;
  std::vector<std::pair<Module*, std::optional<DType>>> before_;
};

}  // namespace halfstep
