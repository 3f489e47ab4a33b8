// SPDX-License-Identifier: Apache-2.0
// The C functions of cuDNN's handles and backend descriptors; fake_cudnn.h describes the fake library.
#include "tests/emulators/fake_cudnn/fake_cudnn.h"

#include <algorithm>
#include <set>

namespace emu::dnn {
namespace {

std::map<const void*, std::shared_ptr<Descriptor>> descriptors;
std::set<Handle*> handles;

void finalize(Descriptor& d) {
  if (d.finalized) misuse(CUDNN_STATUS_BAD_PARAM, "a %s is finalised twice", name_of(d.type));
  check_complete(d);
  switch (d.type) {
    case CUDNN_BACKEND_TENSOR_DESCRIPTOR: d.tensor = make_tensor(d); break;
    case CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR: d.graph = make_graph(d); break;
    case CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR:
    case CUDNN_BACKEND_ENGINE_DESCRIPTOR:
    case CUDNN_BACKEND_ENGINECFG_DESCRIPTOR:
    case CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR: finalize_engine(d); break;
    case CUDNN_BACKEND_DEVICEPROP_DESCRIPTOR:
      if (d.attributes.empty()) misuse(CUDNN_STATUS_BAD_PARAM, "device properties of no device");
      break;
    case CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR: {
      auto uids = d.all<int64_t>(CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS);
      if (uids.size() != d.all<void*>(CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS).size())
        misuse(CUDNN_STATUS_BAD_PARAM, "a variant pack has as many pointers as uids");
      std::sort(uids.begin(), uids.end());
      if (std::adjacent_find(uids.begin(), uids.end()) != uids.end())
        misuse(CUDNN_STATUS_BAD_PARAM_DUPLICATED_ENTRIES, "a variant pack has one uid twice");
      break;
    }
    default: d.operation = make_operation(d);
  }
  d.finalized = true;
}

}  // namespace

std::shared_ptr<Descriptor> descriptor_of(cudnnBackendDescriptor_t handle) {
  const auto it = descriptors.find(handle);
  if (it == descriptors.end()) misuse(CUDNN_STATUS_BAD_PARAM_NULL_POINTER, "%p is not a live backend descriptor", handle);
  return it->second;
}

Handle& handle_of(cudnnHandle_t handle) {
  Handle* const h = reinterpret_cast<Handle*>(handle);
  if (!handles.contains(h)) misuse(CUDNN_STATUS_BAD_PARAM, "%p is not a live handle", static_cast<void*>(handle));
  return *h;
}

}  // namespace emu::dnn

using namespace emu;
using namespace emu::dnn;

extern "C" {

cudnnStatus_t cudnnCreate(cudnnHandle_t* handle) {
  return guarded("cudnnCreate", [&] {
    // It allocates on the device.
    if (refuse_unsafe() != cudaSuccess) refuse(CUDNN_STATUS_INTERNAL_ERROR, "a handle was made while a stream is captured");
    if (!options().has_image) refuse(CUDNN_STATUS_NOT_INITIALIZED, "no device");
    *handle = reinterpret_cast<cudnnHandle_t>(*handles.insert(new Handle).first);
  });
}
cudnnStatus_t cudnnDestroy(cudnnHandle_t handle) {
  return guarded("cudnnDestroy", [&] {
    Handle* const h = &handle_of(handle);
    handles.erase(h);
    delete h;
  });
}
cudnnStatus_t cudnnSetStream(cudnnHandle_t handle, cudaStream_t stream) {
  return guarded("cudnnSetStream", [&] {
    stream_of(stream);
    handle_of(handle).stream = stream;
  });
}
cudnnStatus_t cudnnGetStream(cudnnHandle_t handle, cudaStream_t* stream) {
  return guarded("cudnnGetStream", [&] { *stream = handle_of(handle).stream; });
}

cudnnStatus_t cudnnBackendCreateDescriptor(cudnnBackendDescriptorType_t type, cudnnBackendDescriptor_t* descriptor) {
  return guarded("cudnnBackendCreateDescriptor", [&] {
    if (!name_of(type)) refuse(CUDNN_STATUS_NOT_SUPPORTED, "descriptors of type %d", int(type));
    auto made = std::make_shared<Descriptor>();
    made->type = type;
    *descriptor = made.get();
    descriptors[*descriptor] = std::move(made);
  });
}
cudnnStatus_t cudnnBackendDestroyDescriptor(cudnnBackendDescriptor_t descriptor) {
  return guarded("cudnnBackendDestroyDescriptor", [&] {
    if (const auto d = descriptor_of(descriptor); d->plan) d->plan->destroyed = true;
    descriptors.erase(descriptor);
  });
}
cudnnStatus_t cudnnBackendInitialize(cudnnBackendDescriptor_t descriptor) {
  return guarded("cudnnBackendInitialize", [&] {
    const auto d = descriptor_of(descriptor);
    const cudnnBackendDescriptorType_t type = d->type;
    *d = Descriptor{};
    d->type = type;
  });
}
cudnnStatus_t cudnnBackendSetAttribute(cudnnBackendDescriptor_t descriptor, cudnnBackendAttributeName_t name,
                                       cudnnBackendAttributeType_t type, int64_t count, const void* values) {
  return guarded("cudnnBackendSetAttribute", [&] { set_attribute(*descriptor_of(descriptor), name, type, count, values); });
}
cudnnStatus_t cudnnBackendGetAttribute(cudnnBackendDescriptor_t const descriptor, cudnnBackendAttributeName_t name,
                                       cudnnBackendAttributeType_t type, int64_t requested, int64_t* count, void* values) {
  return guarded("cudnnBackendGetAttribute", [&] {
    const auto d = descriptor_of(descriptor);
    if (!d->finalized) misuse(CUDNN_STATUS_BAD_PARAM_NOT_FINALIZED, "an attribute of a %s that is not finalised", name_of(d->type));
    get_engine_attribute(*d, name, type, requested, count, values);
  });
}
cudnnStatus_t cudnnBackendFinalize(cudnnBackendDescriptor_t descriptor) {
  return guarded("cudnnBackendFinalize", [&] { finalize(*descriptor_of(descriptor)); });
}
cudnnStatus_t cudnnBackendExecute(cudnnHandle_t handle, cudnnBackendDescriptor_t plan, cudnnBackendDescriptor_t pack) {
  return guarded("cudnnBackendExecute", [&] {
    const auto p = descriptor_of(plan), v = descriptor_of(pack);
    if (p->type != CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR || v->type != CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR)
      misuse(CUDNN_STATUS_BAD_PARAM_DESCRIPTOR_TYPE, "a %s is executed with a %s", name_of(p->type), name_of(v->type));
    if (!p->finalized || !v->finalized)
      misuse(CUDNN_STATUS_BAD_PARAM_NOT_FINALIZED, "the plan or the variant pack is not finalised");
    execute(handle_of(handle).stream, p->plan, *v);
  });
}

}  // extern "C"
