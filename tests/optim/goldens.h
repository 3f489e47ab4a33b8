// SPDX-License-Identifier: Apache-2.0
// PyTorch's trajectories and rates (scripts/make_optim_goldens.py, which says what each tensor is).
#pragma once

#include <algorithm>
#include <string>
#include <vector>

#include "framework/io/weights/safetensors.h"
#include "tests/support/source_dir.h"

namespace halfstep::goldens {

inline const TensorMap& all() {
  static const TensorMap tensors = load_safetensors(halfstep_source_dir() + "/tests/optim/torch_goldens.safetensors").tensors;
  return tensors;
}

// Counts the tensors of a kind: "trajectory", "lbfgs", "evaluations", "rates".
inline size_t count(const std::string& kind) {
  return size_t(std::count_if(all().begin(), all().end(), [&](const auto& entry) { return entry.first.starts_with(kind + ' '); }));
}

inline std::vector<double> values(const std::string& kind, const std::string& name) {
  return all().at(kind + ' ' + name).to_vector<double>();
}

}  // namespace halfstep::goldens
