// SPDX-License-Identifier: Apache-2.0
// The parameters of a recurrent network in one tensor, in the layout of the device's library.
#pragma once

#include <memory>
#include <mutex>
#include <span>
#include <vector>

#include "framework/backend/recurrent_library.h"
#include "framework/tensor/tensor.h"

namespace halfstep {

// Returns parameter i of `space`, a tensor [spaces.weights].
Tensor part_of(const Tensor& space, const RecurrentSpaces& spaces, size_t i, const Shape& shape);

// Keeps the last copy of one network's parameters in the library's layout, until a parameter changes. Thread-safe.
class PackedWeights {
 public:
  // Returns the copy that was made of `from`; undefined if a parameter or the layout has changed.
  Tensor find(const RecurrentSpaces& spaces, std::span<const Tensor> from, DType dtype);
  void keep(const RecurrentSpaces& spaces, std::span<const Tensor> from, const Tensor& space);

 private:
  struct Source {
    std::weak_ptr<Storage> storage;
    int64_t offset;
    uint64_t version;
  };
  std::mutex mutex_;
  std::vector<int64_t> offsets_;
  std::vector<Source> sources_;
  Tensor space_;
};

// Returns [spaces.weights]: the parameters' own memory if each is in its place there, else a copy. `given`: the parameters before
// a region cast them to 16 bits. If `may_move`, their kept copies (Shadow) move into the new tensor, so that the next call finds
// them in place, and the optimizer, which writes each with its parameter, keeps the whole up to date. Other copies are kept in
// `packed` unless it is null; in a recording every replay makes them.
Tensor weight_space(const RecurrentSpaces& spaces, std::span<const Tensor> parameters, std::span<const Tensor> given,
                    PackedWeights* packed, bool may_move);

}  // namespace halfstep
