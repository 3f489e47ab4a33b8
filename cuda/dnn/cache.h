// SPDX-License-Identifier: Apache-2.0
// A cache that evicts the least recently used value. One call at a time uses it, like a queue.
#pragma once

#include <cstdint>
#include <list>
#include <unordered_map>
#include <utility>
#include <vector>

namespace halfstep::cuda::dnn {

// Everything a plan depends on, as a list of numbers.
using PlanKey = std::vector<int64_t>;

struct KeyHash {
  size_t operator()(const PlanKey& key) const {
    uint64_t h = key.size();
    for (int64_t w : key) h = (h ^ uint64_t(w)) * 0x9E3779B97F4A7C15u, h ^= h >> 29;
    return size_t(h);
  }
};

template <class Value>
class Cache {
 public:
  explicit Cache(size_t most_values = 1024) : most_values_(most_values) {}

  // Returns the value, or null. Valid until it is evicted.
  Value* find(const PlanKey& key) {
    const auto found = index_.find(key);
    if (found == index_.end()) return nullptr;
    items_.splice(items_.begin(), items_, found->second);
    return &found->second->second;
  }
  // Stores a value, replacing an existing one.
  Value& put(const PlanKey& key, Value value) {
    if (const auto found = index_.find(key); found != index_.end()) items_.erase(found->second), index_.erase(found);
    items_.emplace_front(key, std::move(value));
    index_[key] = items_.begin();
    if (items_.size() > most_values_) {
      index_.erase(items_.back().first);
      items_.pop_back();
    }
    return items_.front().second;
  }
  size_t size() const { return items_.size(); }

 private:
  using Items = std::list<std::pair<PlanKey, Value>>;
  size_t most_values_;
  Items items_;  // most recently used first
  std::unordered_map<PlanKey, typename Items::iterator, KeyHash> index_;
};

}  // namespace halfstep::cuda::dnn
