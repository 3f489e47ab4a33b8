// SPDX-License-Identifier: Apache-2.0
// Tensors with their names in a module.
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "framework/tensor/tensor.h"

namespace halfstep {

struct NamedTensor {
  std::string name;  // "0.weight"
  Tensor tensor;
};

// Returns whether both are the same elements of one storage in the same order: a tensor and itself under another name, but not a
// tensor and its transpose. Tensors without elements are not.
bool are_same_elements(const Tensor& a, const Tensor& b);

// A list with access by position and by name: net.state_dict()["0.weight"], net.named_parameters()[0].tensor.
class NamedTensors : public std::vector<NamedTensor> {
 public:
  using std::vector<NamedTensor>::vector;
  NamedTensors(std::vector<NamedTensor> list) : std::vector<NamedTensor>(std::move(list)) {}
  NamedTensors(const std::map<std::string, Tensor>& map) {
    for (const auto& [name, tensor] : map) push_back({name, tensor});
  }
  using std::vector<NamedTensor>::operator[], std::vector<NamedTensor>::at;
  // Throw ValueError with the nearest name if the name is unknown.
  const Tensor& operator[](std::string_view name) const { return at(name); }
  const Tensor& at(std::string_view name) const;
  bool contains(std::string_view name) const;
};
using StateDict = NamedTensors;  // in registration order

}  // namespace halfstep
