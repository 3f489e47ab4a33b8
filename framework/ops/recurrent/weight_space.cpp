// SPDX-License-Identifier: Apache-2.0
#include "framework/ops/recurrent/weight_space.h"

#include <algorithm>
#include <optional>
#include <unordered_set>

#include "framework/backend/backend.h"
#include "framework/tensor/memory.h"

namespace halfstep {
namespace {

// Returns the element of its storage at which the tensor of all parameters begins if t is parameter i of it.
int64_t beginning(const Tensor& t, const RecurrentSpaces& spaces, size_t i) { return t.impl()->offset - spaces.offsets[i]; }

// Returns whether the parameters lie in one tensor of this layout, aligned to 16 bytes.
bool are_in_place(const RecurrentSpaces& spaces, std::span<const Tensor> parameters) {
  const Tensor& first = parameters[0];
  const int64_t begin = beginning(first, spaces, 0), size = int64_t(size_of(first.dtype()));
  if (begin < 0 || (begin + spaces.weights) * size > int64_t(first.storage()->bytes())) return false;
  if ((reinterpret_cast<uintptr_t>(first.const_data_ptr()) - uintptr_t(spaces.offsets[0] * size)) % 16 != 0) return false;
  for (size_t i = 0; i < parameters.size(); ++i) {
    const Tensor& t = parameters[i];
    if (!t.shares_memory_with(first) || !t.is_contiguous() || beginning(t, spaces, i) != begin) return false;
  }
  return true;
}

// Returns the 16-bit copies (Shadow) of the leaves `given`, if all `parameters` are such copies and may move into a new tensor;
// else none. Copies that are parts of a larger tensor may move only if all are parts of one in this layout: otherwise they are laid
// out for another network.
std::vector<Shadow*> movable_shadows(const RecurrentSpaces& spaces, std::span<const Tensor> parameters,
                                     std::span<const Tensor> given) {
  std::vector<Shadow*> out;
  std::unordered_set<const TensorImpl*> seen;
  const Storage* common = nullptr;
  int64_t begin = 0;
  for (size_t i = 0; i < parameters.size(); ++i) {
    const Tensor &t = parameters[i], &leaf = given[i];
    AutogradMeta* const meta = leaf.impl()->autograd.get();
    if (!meta || !meta->shadow.low.defined() || meta->shadow.version != leaf.version() || !seen.insert(leaf.impl()).second)
      return {};
    const Tensor& low = meta->shadow.low;
    if (!low.shares_memory_with(t) || low.const_data_ptr() != t.const_data_ptr() || !low.is_contiguous()) return {};
    if (low.storage()->bytes() != low.nbytes()) {
      const bool is_first = !common;
      if (is_first) common = low.storage().get(), begin = beginning(low, spaces, i);
      if (common != low.storage().get() || begin != beginning(low, spaces, i)) return {};
    }
    out.push_back(&meta->shadow);
  }
  return out;
}

}  // namespace

Tensor part_of(const Tensor& space, const RecurrentSpaces& spaces, size_t i, const Shape& shape) {
  return space.alias(shape, contiguous_strides(shape), spaces.offsets[i]);
}

Tensor PackedWeights::find(const RecurrentSpaces& spaces, std::span<const Tensor> from, DType dtype) {
  const std::lock_guard lock(mutex_);
  if (!space_.defined() || space_.dtype() != dtype || offsets_ != spaces.offsets) return {};
  for (size_t i = 0; i < from.size(); ++i) {
    const Source& source = sources_[i];
    if (from[i].storage()->is_exposed()) return {};
    if (source.storage.lock() != from[i].storage() || source.offset != from[i].impl()->offset ||
        source.version != from[i].version())
      return {};
  }
  return space_;
}
void PackedWeights::keep(const RecurrentSpaces& spaces, std::span<const Tensor> from, const Tensor& space) {
  const std::lock_guard lock(mutex_);
  offsets_ = spaces.offsets;
  sources_.clear();
  for (const Tensor& t : from) sources_.push_back({t.storage(), t.impl()->offset, t.version()});
  space_ = space;
}

Tensor weight_space(const RecurrentSpaces& spaces, std::span<const Tensor> parameters, std::span<const Tensor> given,
                    PackedWeights* packed, bool may_move) {
  const Tensor& first = parameters[0];
  if (are_in_place(spaces, parameters)) return first.alias({spaces.weights}, {1}, -spaces.offsets[0]);
  // In a recording nothing moves and nothing is kept: its replays copy the current parameters.
  const std::vector<Shadow*> shadows =
      may_move && !spaces.recording ? movable_shadows(spaces, parameters, given) : std::vector<Shadow*>();
  const bool keeps = packed && shadows.empty() && !spaces.recording &&
                     std::all_of(given.begin(), given.end(), [](const Tensor& t) { return t.is_contiguous() && !t.node(); });
  if (keeps) {
    if (Tensor known = packed->find(spaces, given, first.dtype()); known.defined()) return known;
  }
  const MemoryScope memory(shadows.empty() && !keeps ? MemoryScope::current() : MemoryTag::shadows);
  const Tensor space = Tensor::empty({spaces.weights}, {.dtype = first.dtype(), .device = first.device()});
  Backend& backend = backend_for(first.device());
  backend.fill(space.view(), 0);  // the gaps between the parameters
  for (size_t i = 0; i < parameters.size(); ++i) {
    const Tensor part = part_of(space, spaces, i, parameters[i].shape());
    backend.copy(parameters[i].view(), part.view());
    if (!shadows.empty()) shadows[i]->low = part;
  }
  if (keeps) packed->keep(spaces, given, space);
  return space;
}

}  // namespace halfstep
