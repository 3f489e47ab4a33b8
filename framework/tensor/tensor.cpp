// SPDX-License-Identifier: Apache-2.0
#include "framework/tensor/tensor.h"

#include <algorithm>
#include <ostream>

#include "framework/tensor/write_log.h"

namespace halfstep {

void Tensor::fail_undefined() { fail<ValueError>("tensor", "the tensor is undefined"); }

Tensor Tensor::empty(const Shape& shape, const TensorOptions& options) {
  check_size("empty", shape);
  auto impl = std::make_shared<TensorImpl>();
  impl->storage = std::make_shared<Storage>(size_t(halfstep::numel(shape)) * size_of(options.dtype), options.device);
  impl->shape = shape;
  impl->strides = strides_of(shape, options.format);
  impl->dtype = options.dtype;
  Tensor t(std::move(impl));
  if (options.requires_grad) t.set_requires_grad();
  return t;
}

Tensor Tensor::from_blob(void* data, const Shape& shape, DType dtype, std::shared_ptr<void> owner, Device device) {
  auto impl = std::make_shared<TensorImpl>();
  if (!owner) owner = std::shared_ptr<void>(data, [](void*) {});
  impl->storage = std::make_shared<Storage>(data, size_t(halfstep::numel(shape)) * size_of(dtype), device, std::move(owner));
  impl->storage->expose();
  impl->shape = shape;
  impl->strides = contiguous_strides(shape);
  impl->dtype = dtype;
  return Tensor(std::move(impl));
}

Tensor Tensor::alias(const Shape& shape, const Strides& strides, int64_t offset) const {
  const TensorImpl& self = get();
  auto impl = std::make_shared<TensorImpl>();
  impl->storage = self.storage;
  impl->offset = self.offset + offset;
  impl->shape = shape;
  impl->strides = strides;
  impl->dtype = self.dtype;
  impl->wrapped_number = self.wrapped_number;
  impl->label = self.label;
  return Tensor(std::move(impl));
}

const Strides& Tensor::strides() const { return get().strides; }
int64_t Tensor::size(int64_t d) const {
  check<IndexError>(dim() > 0, "size", "a 0-dim tensor has no dimension ", d);
  return get().shape[wrap_dim(d, dim(), "size")];
}
int64_t Tensor::numel() const { return halfstep::numel(get().shape); }
Device Tensor::device() const { return get().storage->device(); }
bool Tensor::is_contiguous() const { return halfstep::is_contiguous(get().shape, get().strides); }
bool Tensor::is_contiguous(MemoryFormat format) const { return halfstep::is_contiguous(get().shape, get().strides, format); }
MemoryFormat Tensor::format() const { return format_of(get().shape, get().strides); }

TensorView Tensor::view() const { return {first_element(), get().dtype, get().shape, get().strides, get().wrapped_number}; }

void* Tensor::data_ptr() const {
  get().storage->expose();
  return first_element();
}

void* Tensor::first_element() const {
  const TensorImpl& self = get();
  void* base = self.storage->data();
  return base ? static_cast<char*>(base) + self.offset * int64_t(size_of(self.dtype)) : nullptr;
}

uint64_t Tensor::version() const { return get().storage->version(); }
void Tensor::bump_version() const {
  get().storage->bump_version();
  WriteLog::note(get().storage.get());
}
const std::shared_ptr<Storage>& Tensor::storage() const { return get().storage; }
const std::string& Tensor::label() const { return get().label; }

const Tensor& Tensor::set_label(std::string label) const {
  get().label = std::move(label);
  return *this;
}

std::ostream& operator<<(std::ostream& out, const Tensor& t) { return out << t.str(); }

}  // namespace halfstep
