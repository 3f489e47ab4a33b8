// SPDX-License-Identifier: Apache-2.0
// Covers many tensors by one launch: a block takes a chunk of one of them, so that large and small tensors share the device
// evenly. The list is passed in the launch's arguments.
#pragma once

#include "cuda/kernels/reduce/rows.cuh"

namespace halfstep::cuda {

// Entry: a kernel's data for a tensor. Chunk: elements per block, whole packs; a multiple of that for long lists.
template <class Entry, int64_t Chunk>
struct List {
  static constexpr int kCapacity = 96;  // most tensors, so that the list fits into a launch's arguments
  int tensors = 0;
  int chunk = int(Chunk);              // elements per block
  uint32_t first[kCapacity + 1] = {};  // first block of each tensor, and the total number of blocks
  int64_t numel[kCapacity];
  Entry entry[kCapacity];

  void add(const Entry& e, int64_t elements) {
    entry[tensors] = e;
    numel[tensors] = elements;
    first[tensors + 1] = first[tensors] + uint32_t((elements + chunk - 1) / chunk);
    ++tensors;
  }
  // Increases the elements per block so that about `blocks` blocks remain for `elements`, up to `most` times.
  void lengthen(int64_t elements, int64_t blocks, int most) {
    while (chunk < Chunk * most && elements / (2 * chunk) >= blocks) chunk *= 2;
  }
  bool full() const { return tensors == kCapacity; }
  unsigned blocks() const { return first[tensors]; }

  struct Part {
    int tensor;
    int64_t begin, end;
  };
  __device__ Part part() const { return part(blockIdx.x); }  // of this block
  __device__ Part part(uint32_t block) const {
    int low = 0, high = tensors;  // first[low] <= block < first[high]
    while (high - low > 1) {
      const int middle = (low + high) / 2;
      (first[middle] <= block ? low : high) = middle;
    }
    const int64_t begin = int64_t(block - first[low]) * chunk;
    return {low, begin, begin + chunk < numel[low] ? begin + chunk : numel[low]};
  }
};

template <class C>
__device__ inline bool finite(C x) {
  return x - x == C(0);
}

// Calls f(list) for lists of those items that add(list, item) accepts.
template <class List, class Items, class Add, class F>
void for_lists(const Items& items, const Add& add, const F& f) {
  List list;
  for (const auto& item : items) {
    if (!add(list, item) || !list.full()) continue;
    f(list);
    list = List();
  }
  if (list.tensors) f(list);
}

// Returns whether packs of `elements` of its dtype can be read from the view's memory; true for an empty view.
inline bool packs_of(const TensorView& v, size_t elements) {
  return reinterpret_cast<uintptr_t>(v.data) % (elements * size_of(v.dtype)) == 0;
}

}  // namespace halfstep::cuda
