// SPDX-License-Identifier: Apache-2.0
#include "amp/step/buffer_rollback.h"

#include "framework/autograd/grad_mode.h"
#include "framework/ops/ops.h"

namespace halfstep {

void BufferRollback::save() {
  if (!buffers_) {
    buffers_.emplace();
    for (const NamedTensor& b : module_.named_buffers()) buffers_->push_back({b.tensor});
  }
  const NoGrad off;
  const MemoryScope tag(MemoryTag::workspace);
  for (Buffer& b : *buffers_) {
    b.before = b.moves ? b.tensor.detach().clone() : Tensor();
    b.version = b.tensor.version();
  }
}

void BufferRollback::restore_if(const Tensor& found_inf) {
  if (!buffers_) return;
  const NoGrad off;
  const MemoryScope tag(MemoryTag::workspace);
  for (Buffer& b : *buffers_) {
    b.moves = b.tensor.version() != b.version;
    if (b.moves && b.before.defined() && found_inf.defined()) b.tensor.copy_(where(found_inf.ne(0), b.before, b.tensor.detach()));
    b.before = Tensor();
  }
}

}  // namespace halfstep
