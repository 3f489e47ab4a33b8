// SPDX-License-Identifier: Apache-2.0
// The law of mixed precision as a pure function: which dtype an op's inputs take. No tensors here.
#pragma once

#include <functional>
#include <initializer_list>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "framework/base/dtype.h"

namespace halfstep {

// What autocast does with an op's floating inputs. float64, integers and bool are never touched.
enum class CastPolicy : uint8_t {
  low,          // -> the region's dtype                                  matmul, linear, conv
  f32,          // -> float32                                             exp, pow, losses
  f32_output,   // inputs stay; the result is float32 unless the caller chose a dtype    sum, softmax
  promote,      // -> the widest among them                               atan2, cat, scatter_add
  keep,         // unchanged                                              relu, dropout, views, add (which promotes by itself)
  banned,       // throws inside a region, naming the safe op             binary_cross_entropy
};
std::string_view name(CastPolicy p);
std::optional<CastPolicy> parse_policy(std::string_view name);

// Policies in place of those that ops have, by the ops' names, for the ops called in a region (AutocastOptions::policies). Cheap to
// copy. What an op computes inside itself, such as the softmax of attention, is no call of that op.
class OpPolicies {
 public:
  using ByName = std::map<std::string, CastPolicy, std::less<>>;
  OpPolicies() = default;  // none
  OpPolicies(std::initializer_list<ByName::value_type> by_name) : OpPolicies(ByName(by_name)) {}
  OpPolicies(const ByName& by_name);
  bool empty() const { return list_ == nullptr; }
  const ByName& by_name() const;
  std::optional<CastPolicy> find(std::string_view op) const;
  // Were the names held against the list of ops? It is far above this file, so that the first op called in a region does it.
  bool checked() const;
  void set_checked() const;

 private:
  struct List;
  const List* list_ = nullptr;  // one for all that are equal, never freed: graphs that recompute may outlive the region
};

// The dtype that input `self` takes inside a region whose low dtype is `low`; `all` are the dtypes of all tensor inputs.
// `promote` does not depend on the order of the inputs: float32, or a 16-bit type other than `low`, anywhere gives float32.
DType cast_target(CastPolicy policy, DType low, DType self, std::span<const DType> all);

}  // namespace halfstep
