// SPDX-License-Identifier: Apache-2.0
// The residual stream of a net of blocks: branches are added to it, and norms read it.
//
//   void Block::pass(ResidualStream& x) {
//     x.add(attention(x.through(*norm1, &*attention)));   // x += attention(norm1(x))
//     x.add(net(x.through(*norm2, &*net)));               // x += net(norm2(x))
//   }
//   ResidualStream x(embedded);
//   for (...) x.pass(block);
//   return x.through(*last_norm);
//
// A branch waits for the norm that reads the stream next, and is added in the same pass, forward and backward. The bits are those
// of the sum and the norm by themselves; on a GPU in 16 bits the gradient of the branch's last bias is summed in another order.
#pragma once

#include <utility>

#include "layers/module/module.h"

namespace halfstep {

class ResidualStream {
 public:
  explicit ResidualStream(Tensor x) : x_(std::move(x)) {}
  // Returns the stream itself. If a norm added its last branch, the gradient that hooks, retain_grad and grad() see of it lacks
  // what comes through that norm; a hook of the norm keeps both apart.
  Tensor value();
  // Adds the result of a branch, of the stream's shape.
  void add(const Tensor& branch);
  // Returns norm(value()). A module other than LayerNorm and RMSNorm, and one with hooks, a precision or recomputation of its own,
  // gets the sum. reader: a module that reads the result alone, first of all by a matrix product: in a region the norm then writes
  // the 16 bits to which the product would cast, unless the reader or a module below it has hooks, a precision or recomputation.
  Tensor through(Module& norm, const Module* reader = nullptr);
  // Computes x = block(x, inputs...) by block.pass(x, inputs...), which changes the stream and may leave its last branch to the
  // next norm; by a call of the block if it has hooks, a precision or recomputation of its own.
  template <class Block, class... Inputs>
  void pass(Block& block, const Inputs&... inputs) {
    if (is_plain(block))
      block.pass(*this, inputs...);
    else
      *this = ResidualStream(block(value(), inputs...));
  }

 private:
  static bool is_plain(const Module& module);
  Tensor x_, branch_;         // undefined branch: all is added
  bool is_recorded_ = false;  // whether grad mode was on where the branch was added
};

}  // namespace halfstep
