// SPDX-License-Identifier: Apache-2.0
#include "framework/io/weights/tensor_map.h"

#include "framework/backend/backend.h"

namespace halfstep {

Tensor host_contiguous(const Tensor& t) {
  Tensor packed = t;
  if (!t.is_contiguous()) {
    packed = Tensor::empty(t.shape(), {.dtype = t.dtype(), .device = t.device()});
    backend_for(t.device()).copy(t.view(), packed.view());
  }
  if (packed.device().is_cpu()) return packed;
  const Tensor host = Tensor::empty(t.shape(), {.dtype = t.dtype(), .device = Device::cpu});
  if (host.nbytes() > 0) backend_for(t.device()).copy_to_host(packed.const_data_ptr(), host.view().data, host.nbytes());
  return host;
}

}  // namespace halfstep
