// SPDX-License-Identifier: Apache-2.0
#include "framework/autograd/leaf_listener.h"

#include <algorithm>
#include <atomic>
#include <mutex>
#include <vector>

namespace halfstep {
namespace {

std::mutex g_mutex;
std::vector<LeafListener*> g_listeners;
std::atomic<int> g_count{0};  // number of listeners, so that a backward without listeners only costs a read for each leaf

std::vector<LeafListener*> listeners() {
  if (g_count.load(std::memory_order_relaxed) == 0) return {};
  const std::lock_guard lock(g_mutex);
  return g_listeners;
}

}  // namespace

ListenToLeaves::ListenToLeaves(LeafListener& listener) : listener_(listener) {
  const std::lock_guard lock(g_mutex);
  g_listeners.push_back(&listener);
  ++g_count;
}

ListenToLeaves::~ListenToLeaves() {
  const std::lock_guard lock(g_mutex);
  g_listeners.erase(std::find(g_listeners.begin(), g_listeners.end(), &listener_));
  --g_count;
}

void tell_accumulated(const Tensor& leaf) {
  for (LeafListener* l : listeners()) l->accumulated(leaf);
}

void tell_backward_done() {
  for (LeafListener* l : listeners()) l->backward_done();
}

}  // namespace halfstep
