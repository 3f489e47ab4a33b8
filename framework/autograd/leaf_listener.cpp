// SPDX-License-Identifier: Apache-2.0
#include "framework/autograd/leaf_listener.h"

#include <algorithm>
#include <atomic>
#include <mutex>
#include <unordered_map>
#include <vector>

#include "framework/base/fork_mutex.h"

namespace halfstep {
namespace {

ForkMutex g_mutex;
auto& g_listeners = *new std::unordered_multimap<const TensorImpl*, LeafListener*>;  // threads may use it while the process ends
std::atomic<size_t> g_count{0};  // size of the map: without listeners a backward only reads this number for each leaf

std::vector<LeafListener*> listeners_of(const Tensor& leaf) {
  std::vector<LeafListener*> out;
  if (g_count.load(std::memory_order_relaxed) == 0) return out;
  const std::lock_guard lock(g_mutex);
  const auto [first, last] = g_listeners.equal_range(leaf.impl());
  for (auto it = first; it != last; ++it) out.push_back(it->second);
  return out;
}

}  // namespace

ListenToLeaves::ListenToLeaves(LeafListener& listener, const std::vector<Tensor>& leaves) : listener_(listener), leaves_(leaves) {
  const std::lock_guard lock(g_mutex);
  for (const Tensor& leaf : leaves_) g_listeners.emplace(leaf.impl(), &listener_);
  g_count = g_listeners.size();
}

ListenToLeaves::~ListenToLeaves() {
  const std::lock_guard lock(g_mutex);
  std::erase_if(g_listeners, [&](const auto& entry) { return entry.second == &listener_; });
  g_count = g_listeners.size();
}

void LeafReports::done() {
  for (LeafListener* l : notified_) l->backward_done();
}

void LeafReports::accumulated(const Tensor& leaf) {
  const std::vector<LeafListener*> listeners = listeners_of(leaf);
  if (listeners.empty()) return;
  const Tensor gradient = leaf.raw_grad();
  for (LeafListener* l : listeners) {
    l->accumulated(leaf, gradient);
    if (std::find(notified_.begin(), notified_.end(), l) == notified_.end()) notified_.push_back(l);
  }
}

}  // namespace halfstep
