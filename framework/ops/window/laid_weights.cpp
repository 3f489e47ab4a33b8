// SPDX-License-Identifier: Apache-2.0
#include "framework/ops/window/laid_weights.h"

#include <algorithm>
#include <set>

#include "framework/backend/backend.h"
#include "framework/backend/unfold_conv.h"
#include "framework/tensor/memory.h"

namespace halfstep {

bool LaidWeights::Source::matches(const Source& other) const {
  return storage.lock() == other.storage.lock() && offset == other.offset && version == other.version;
}

Tensor LaidWeights::find_or_lay(const Tensor& weight, const ConvArgs& args) {
  if (weight.storage()->is_exposed()) return {};
  const Source source{weight.storage(), weight.impl()->offset, weight.version()};
  LaidWeight wanted{.key = {.x = args.x.shape,
                            .dtype = args.x.dtype,
                            .channels_last = conv_format({args.x, args.weight, args.out}) == MemoryFormat::channels_last,
                            .with_bias = bool(args.bias),
                            .threads = num_threads()},
                    .layout = {}};
  Backend& backend = backend_for(weight.device());
  {
    const std::lock_guard lock(mutex_);
    if (!source_.matches(source)) kept_.clear(), source_ = source;  // a changed weight does not come back
    const auto found = std::find_if(kept_.begin(), kept_.end(), [&](const LaidWeight& k) { return k.key == wanted.key; });
    const bool is_latest = found != kept_.end() && found == kept_.begin();
    if (found != kept_.end()) {
      kept_.splice(kept_.begin(), kept_, found);
      if (!found->laid.defined()) found->laid = laid_as(found->layout);  // other image sizes may share this layout
      if (found->laid.defined() || found->layout.bytes == 0 || !is_latest) return found->laid;
      wanted.layout = found->layout;
    } else {
      wanted.layout = backend.laid_weight_layout(args);
      wanted.laid = laid_as(wanted.layout);
      if (wanted.laid.defined() || wanted.layout.bytes == 0 || layout_count() == kMostLayouts) {
        keep(wanted);
        return wanted.laid;
      }
    }
  }
  const MemoryScope memory(MemoryTag::shadows);
  const Tensor dense = weight.contiguous();
  wanted.laid = Tensor::empty({int64_t(wanted.layout.bytes)}, {.dtype = DType::u8, .device = weight.device()});
  backend.lay_weight(args, dense.view(), wanted.laid.view());
  const std::lock_guard lock(mutex_);
  if (source_.matches(source)) keep(wanted);
  return wanted.laid;
}

Tensor LaidWeights::laid_as(const ConvWeightLayout& layout) const {
  const auto same = [&](const LaidWeight& k) { return k.laid.defined() && k.layout.id == layout.id; };
  const auto found = std::find_if(kept_.begin(), kept_.end(), same);
  return found == kept_.end() ? Tensor() : found->laid;
}

size_t LaidWeights::layout_count() const {
  std::set<uint64_t> ids;
  for (const LaidWeight& k : kept_)
    if (k.laid.defined()) ids.insert(k.layout.id);
  return ids.size();
}

void LaidWeights::keep(const LaidWeight& weight) {
  kept_.remove_if([&](const LaidWeight& k) { return k.key == weight.key; });
  kept_.push_front(weight);
  if (kept_.size() > kMostSizes) kept_.pop_back();
  while (layout_count() > kMostLayouts) {
    const auto oldest = std::find_if(kept_.rbegin(), kept_.rend(), [](const LaidWeight& k) { return k.laid.defined(); });
    const uint64_t id = oldest->layout.id;
    for (LaidWeight& k : kept_)
      if (k.layout.id == id) k.laid = Tensor();
  }
}

}  // namespace halfstep
