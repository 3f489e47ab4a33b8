// SPDX-License-Identifier: Apache-2.0
#include <cstring>
#include <string>

#include "framework/base/check.h"
#include "framework/data/loading/samples.h"
#include "framework/ops/ops.h"
#include "framework/tensor/storage.h"

namespace halfstep::samples {
namespace {

constexpr const char* kCollate = "collate";

// Returns "sample 7", or "element 1 of sample 7" if samples have several elements.
std::string name_of_sample(const CollateContext& context, size_t row) {
  std::string text;
  for (const CollateContext* inner = &context; inner->outer; inner = inner->outer)
    text += joined("element ", inner->element, " of ");
  return joined(text, "sample ", row < context.indices.size() ? context.indices[row] : int64_t(row));
}

template <class T>
Tensor column_of(const std::vector<T>& values) {
  const MemoryScope scope(MemoryTag::data);
  return from_vector<T>(values, {int64_t(values.size())}, Device::cpu);
}

}  // namespace

Tensor stack_rows(const Tensors& rows, const CollateContext& context) {
  check<ValueError>(!rows.empty(), kCollate, "needs a sample");
  for (size_t i = 0; i < rows.size(); ++i) {
    if (!rows[i].defined())
      fail<ValueError>(kCollate, "a sample's tensors must be defined, ", name_of_sample(context, i), " is not");
    const Tensor &a = rows[0], &b = rows[i];
    if (b.shape() != a.shape()) {
      fail<ShapeError>(kCollate, "samples must have one shape, got ", a.shape(), " in ", name_of_sample(context, 0), " and ",
                       b.shape(), " in ", name_of_sample(context, i),
                       Help{"bring them to one shape in get(), or give the DataLoader a collate that pads them"});
    }
    if (b.dtype() != a.dtype()) {
      fail<DTypeError>(kCollate, "samples must have one dtype, got ", a.dtype(), " in ", name_of_sample(context, 0), " and ",
                       b.dtype(), " in ", name_of_sample(context, i), Help{"convert them in get() with .to(dtype)"});
    }
    if (b.device() != a.device()) {
      fail<DeviceError>(kCollate, "samples must be on one device, got ", a.device(), " in ", name_of_sample(context, 0), " and ",
                        b.device(), " in ", name_of_sample(context, i));
    }
  }
  const MemoryScope scope(MemoryTag::data);
  const Tensor& first = rows[0];
  const Tensor out =
      Tensor::empty(with_batch(int64_t(rows.size()), first.shape()), {.dtype = first.dtype(), .device = first.device()});
  const size_t bytes = first.nbytes();
  for (size_t i = 0; i < rows.size() && bytes > 0; ++i) {
    if (first.device().is_cpu() && rows[i].is_contiguous()) {
      std::memcpy(static_cast<char*>(out.data_ptr()) + i * bytes, rows[i].data_ptr(), bytes);
    } else {
      out.alias(first.shape(), contiguous_strides(first.shape()), int64_t(i) * first.numel()).copy_(rows[i].detach());
    }
  }
  return out;
}

Tensor column(const std::vector<int64_t>& values) { return column_of(values); }
Tensor column(const std::vector<float>& values) { return column_of(values); }
Tensor column(const std::vector<double>& values) { return column_of(values); }
Tensor column_of_bools(const std::vector<int64_t>& values) { return column_of(values).to(DType::boolean); }

}  // namespace halfstep::samples
