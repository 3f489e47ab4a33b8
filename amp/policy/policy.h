// SPDX-License-Identifier: Apache-2.0
// The rules of mixed precision as a pure function: the dtype to which an op's inputs are cast. No tensors here.
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

// How autocast casts an op's floating inputs. float64, integers and bool never change.
enum class CastPolicy : uint8_t {
  low,          // -> the region's dtype                                  matmul, linear, conv
  f32,          // -> float32                                             exp, pow, losses
  f32_output,   // inputs stay; the result is float32 unless the caller chose a dtype    sum, softmax
  promote,      // -> float32 if an input has it or the other 16-bit type, else the region's dtype    atan2, cat, scatter_add
  keep,         // unchanged                                              relu, dropout, views, add (which promotes by itself)
  banned,       // throws inside a region, naming the safe op             binary_cross_entropy
};
std::string_view name(CastPolicy p);
std::optional<CastPolicy> parse_policy(std::string_view name);

// Policies by op name that replace the ops' own policies in a region (AutocastOptions::policies). Cheap to copy. They do not apply
// to parts of an op, such as the softmax inside attention.
class OpPolicies {
 public:
  using ByName = std::map<std::string, CastPolicy, std::less<>>;
  OpPolicies() = default;  // empty
  OpPolicies(std::initializer_list<ByName::value_type> by_name) : OpPolicies(ByName(by_name)) {}
  OpPolicies(const ByName& by_name);
  bool empty() const { return list_ == nullptr; }
  const ByName& by_name() const;
  std::optional<CastPolicy> find(std::string_view op) const;
  // Returns whether the names were compared with the list of ops. The first op called in a region does that, because the list is
  // defined on a higher level.
  bool checked() const;
  void set_checked() const;

 private:
  struct List;
  const List* list_ = nullptr;  // shared by all equal lists and never freed: graphs that recompute may outlive the region
};

// Returns the dtype to which an input of dtype `own` is cast in a region of dtype `low`; `inputs` are the dtypes of all tensor
// inputs. `promote` does not depend on their order: one of float32, or of a 16-bit type other than `low`, gives float32.
DType cast_target(CastPolicy policy, DType low, DType own, std::span<const DType> inputs);

}  // namespace halfstep
