// SPDX-License-Identifier: Apache-2.0
#include "framework/comm/meta_group.h"

#include <cstring>

#include "framework/comm/operands.h"

namespace halfstep {
namespace {

void check_meta(const Tensors& tensors) {
  for (const Tensor& t : tensors) {
    check_contiguous(t);
    check<ValueError>(t.device().is_meta(), "distributed", "ranks of a plan exchange tensors on the meta device, got one on ",
                      t.device());
  }
}

}  // namespace

Ticket MetaGroup::begin_sending(double bytes) {
  sent_bytes_ += bytes;
  return ++begun_;
}

Ticket MetaGroup::all_reduce(const Tensors& tensors, ReduceOp, Wire wire) {
  check_list(tensors);
  check_meta(tensors);
  double bytes = 0;
  for (const Tensor& t : tensors) {
    const DType sent = wire == Wire::bf16 && t.dtype() == DType::f32 ? DType::bf16 : t.dtype();
    bytes += double(t.numel()) * double(size_of(sent));
    t.bump_version();
  }
  return begin_sending(2 * bytes * (size() - 1) / size());  // sends every other rank its part, and then the own sum to all
}

Ticket MetaGroup::broadcast(const Tensors& tensors, int root) {
  check_root(root, size());
  check_meta(tensors);
  double bytes = 0;
  for (const Tensor& t : tensors) bytes += double(t.nbytes());
  return begin_sending(rank() == root ? bytes : 0);
}

Ticket MetaGroup::reduce_scatter(const Tensor& from, const Tensor& to) {
  check_parts("reduce_scatter", "from", from, "to", to, size());
  check_meta({from, to});
  return begin_sending(double(to.nbytes()) * (size() - 1));
}

Ticket MetaGroup::all_gather(const Tensor& from, const Tensor& to) {
  check_parts("all_gather", "to", to, "from", from, size());
  if (!from.device().is_cpu() || !to.device().is_cpu()) {
    check_meta({from, to});
    return begin_sending(double(from.nbytes()) * (size() - 1));
  }
  check_contiguous(from);
  check_contiguous(to);
  for (int r = 0; r < size(); ++r)
    std::memcpy(static_cast<char*>(to.data_ptr()) + size_t(r) * from.nbytes(), from.data_ptr(), from.nbytes());
  return ++begun_;
}

}  // namespace halfstep
