// SPDX-License-Identifier: Apache-2.0
#include "framework/autograd/leaf_listener.h"

#include <algorithm>
#include <atomic>
#include <mutex>
#include <unordered_map>
#include <utility>
#include <vector>

#include "framework/base/fork_mutex.h"

namespace halfstep {
namespace {

ForkMutex g_mutex;
auto& g_listeners = *new std::unordered_multimap<const TensorImpl*, LeafListener*>;  // threads may use it while the process ends
std::atomic<size_t> g_count{0};  // the map's size, so that a backward without listeners only costs a read for each leaf
thread_local LeafReports* t_reports = nullptr;
thread_local bool t_silent = false;

std::vector<LeafListener*> listeners_of(const Tensor& leaf) {
  std::vector<LeafListener*> out;
  if (g_count.load(std::memory_order_relaxed) == 0 || t_silent) return out;
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

SilentLeaves::SilentLeaves() : saved_(std::exchange(t_silent, true)) {}
SilentLeaves::~SilentLeaves() { t_silent = saved_; }

LeafReports::LeafReports() : outer_(std::exchange(t_reports, this)) {}
LeafReports::~LeafReports() { t_reports = outer_; }

void LeafReports::done() {
  for (LeafListener* l : told_) l->backward_done();
}

void tell_accumulated(const Tensor& leaf) {
  const std::vector<LeafListener*> listeners = listeners_of(leaf);
  if (listeners.empty()) return;
  const Tensor gradient = leaf.raw_grad();
  for (LeafListener* l : listeners) {
    l->accumulated(leaf, gradient);
    if (t_reports && std::find(t_reports->told_.begin(), t_reports->told_.end(), l) == t_reports->told_.end())
      t_reports->told_.push_back(l);
  }
}

}  // namespace halfstep
