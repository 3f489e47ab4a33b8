// SPDX-License-Identifier: Apache-2.0
#include "framework/ops/linalg/packed_weights.h"

#include <algorithm>
#include <memory>
#include <mutex>
#include <vector>

#include "framework/autograd/grad_mode.h"
#include "framework/backend/backend.h"
#include "framework/base/fork_mutex.h"
#include "framework/tensor/memory.h"

namespace halfstep {
namespace {

// The packed form of one view of a weight; `packed` is undefined until a call packs it.
struct Form {
  int64_t offset;
  Shape shape, strides;
  Tensor packed{};
  bool is_of(const Tensor& b) const { return offset == b.impl()->offset && shape == b.shape() && strides == b.strides(); }
};
// The forms of all views of one storage, which owns them.
struct Forms {
  std::vector<Form> list;
};
constexpr size_t kMostForms = 8;  // of one storage; one with more views holds many weights

}  // namespace

Tensor packed_weight(const Tensor& b, int64_t rows) {
  if (!inference_enabled() || b.dim() != 2 || b.storage()->is_exposed()) return {};
  Backend& backend = backend_for(b.device());
  if (!backend.gains_by_packing(rows, b.size(0), b.size(1), b.dtype())) return {};
  static constinit ForkMutex mutex;
  const std::lock_guard lock(mutex);
  std::shared_ptr<void>& derived = b.storage()->derived;
  if (!derived) derived = std::make_shared<Forms>();
  std::vector<Form>& forms = static_cast<Forms*>(derived.get())->list;
  auto form = std::find_if(forms.begin(), forms.end(), [&](const Form& f) { return f.is_of(b); });
  if (form == forms.end()) {
    if (forms.size() == kMostForms) return {};
    forms.push_back({b.impl()->offset, b.shape(), b.strides()});
    if (!PackAtOnce::is_on()) return {};
    form = forms.end() - 1;
  }
  if (form->packed.defined()) return form->packed;
  const MemoryScope memory(MemoryTag::shadows);
  const AuxLayout layout = backend.packed_layout(b.size(0), b.size(1), b.dtype());
  form->packed = Tensor::empty(layout.shape, {.dtype = layout.dtype, .device = b.device()});
  backend.pack(b.view(), form->packed.view());
  return form->packed;
}

}  // namespace halfstep
