// SPDX-License-Identifier: Apache-2.0
#include "framework/ops/window/laid_weights.h"

#include <algorithm>

#include "framework/backend/backend.h"
#include "framework/backend/unfold_conv.h"
#include "framework/tensor/memory.h"

namespace halfstep {

bool LaidWeights::Kept::is_for(const Kept& call) const {
  return storage.lock() == call.storage.lock() && offset == call.offset && version == call.version && x == call.x &&
         dtype == call.dtype && channels_last == call.channels_last && with_bias == call.with_bias && threads == call.threads;
}

Tensor LaidWeights::find(const Tensor& weight, const ConvArgs& args) {
  Kept call{.storage = weight.storage(),
            .offset = weight.impl()->offset,
            .version = weight.version(),
            .x = args.x.shape,
            .dtype = args.x.dtype,
            .channels_last = conv_format({args.x, args.weight, args.out}) == MemoryFormat::channels_last,
            .with_bias = bool(args.bias),
            .threads = num_threads()};
  {
    const std::lock_guard lock(mutex_);
    const auto found = std::find_if(kept_.begin(), kept_.end(), [&](const Kept& k) { return k.is_for(call); });
    if (found != kept_.end()) {
      kept_.splice(kept_.begin(), kept_, found);
      return found->laid;
    }
    // A weight that has changed does not come back.
    kept_.remove_if([&](const Kept& k) { return k.storage.lock() != call.storage.lock() || k.version != call.version; });
  }
  Backend& backend = backend_for(weight.device());
  if (const size_t bytes = backend.laid_weight_bytes(args)) {
    const MemoryScope memory(MemoryTag::shadows);
    const Tensor dense = weight.contiguous();
    call.laid = Tensor::empty({int64_t(bytes)}, {.dtype = DType::u8, .device = weight.device()});
    backend.lay_weight(args, dense.view(), call.laid.view());
  }
  const std::lock_guard lock(mutex_);
  kept_.push_front(call);
  if (kept_.size() > kMost) kept_.pop_back();
  return call.laid;
}

}  // namespace halfstep
