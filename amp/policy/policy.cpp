// SPDX-License-Identifier: Apache-2.0
#include "amp/policy/policy.h"

#include <atomic>
#include <deque>
#include <mutex>

#include "framework/base/fork_mutex.h"

namespace halfstep {

namespace {
constexpr std::string_view kPolicyNames[] = {"low", "f32", "f32_output", "promote", "keep", "banned"};
}

std::string_view name(CastPolicy p) { return kPolicyNames[size_t(p)]; }

std::optional<CastPolicy> parse_policy(std::string_view name) {
  for (size_t i = 0; i < std::size(kPolicyNames); ++i)
    if (kPolicyNames[i] == name) return CastPolicy(i);
  return {};
}

struct OpPolicies::List {
  explicit List(const ByName& list) : by_name(list) {}
  const ByName by_name;
  mutable std::atomic<bool> checked = false;
};

// Finds the shared list that equals `by_name`, or makes it.
OpPolicies::OpPolicies(const ByName& by_name) {
  if (by_name.empty()) return;
  static constinit ForkMutex guard;
  const std::lock_guard lock(guard);
  static std::deque<List>& lists = *new std::deque<List>;
  for (const List& list : lists)
    if (list.by_name == by_name) list_ = &list;
  if (!list_) list_ = &lists.emplace_back(by_name);
}

const OpPolicies::ByName& OpPolicies::by_name() const {
  static const ByName none;
  return list_ ? list_->by_name : none;
}

std::optional<CastPolicy> OpPolicies::find(std::string_view op) const {
  const auto found = by_name().find(op);
  return found == by_name().end() ? std::nullopt : std::optional(found->second);
}

bool OpPolicies::checked() const { return !list_ || list_->checked.load(std::memory_order_relaxed); }
void OpPolicies::set_checked() const { list_->checked.store(true, std::memory_order_relaxed); }

DType cast_target(CastPolicy policy, DType low, DType own, std::span<const DType> inputs) {
  if (!is_floating(own) || own == DType::f64) return own;
  switch (policy) {
    case CastPolicy::low: return low;
    case CastPolicy::f32: return DType::f32;
    case CastPolicy::promote:
      for (DType d : inputs)
        if (d == DType::f32 || (is_half(d) && d != low)) return DType::f32;
      return low;
    case CastPolicy::f32_output:
    case CastPolicy::keep:
    case CastPolicy::banned: break;
  }
  return own;
}

}  // namespace halfstep
