// SPDX-License-Identifier: Apache-2.0
#include "framework/ops/window/sparse_rows.h"

#include <algorithm>
#include <map>
#include <mutex>
#include <tuple>

#include "framework/ops/core/promotion.h"
#include "framework/ops/ops.h"
#include "framework/ops/window/windows.h"

namespace halfstep {
namespace {

// A table in a device's memory.
struct DeviceTable {
  Tensor start, index, weight;
  SparseRows view() const { return {start.view(), index.view(), weight.view()}; }
};

DeviceTable upload(const RowSpec& spec, Device device, DType dtype) {
  const RowTable t = row_table(spec);
  const int64_t n = int64_t(t.index.size());
  const auto indices = [&](const std::vector<int64_t>& v) { return from_vector(v, {int64_t(v.size())}, device); };
  return {indices(t.start), indices(t.index), from_vector(t.weight, {n}, Device::cpu).to(dtype).to(device)};
}

// The first tables are kept: a model asks for the same few in every step. None goes again, as recorded work may read its memory.
DeviceTable table_for(const RowSpec& spec, Device device, DType dtype) {
  constexpr int64_t kMostEntries = int64_t(1) << 20;  // of all that are kept; the others are made again for every call
  using Key = std::tuple<RowSpec, Device::Type, DType>;
  static std::mutex mutex;
  static auto& kept = *new std::map<Key, DeviceTable>;  // never freed: the devices' memory may go first at exit
  static int64_t entries = 0;
  const Key key{spec, device.type, dtype};
  {
    const std::lock_guard lock(mutex);
    if (const auto found = kept.find(key); found != kept.end()) return found->second;
  }
  const DeviceTable made = upload(spec, device, dtype);  // not under the lock: a thread that records may wait for it
  const int64_t size = std::max(made.index.numel(), made.start.numel());
  const std::lock_guard lock(mutex);
  if (entries + size <= kMostEntries && kept.emplace(key, made).second) entries += size;
  return made;
}

struct ApplyRows {
  struct Attr {
    const OpInfo* info;
    std::vector<DimRows> rows;  // in the order of application
  };
  static const OpInfo& info_of(const Attr& a) { return *a.info; }

  static Tensor forward(OpContext&, const Attr& a, const Tensors& in) {
    const MemoryFormat format = in[0].format();
    Tensor x = in[0].to(format);
    const DType dtype = x.dtype(), wide = dtype == DType::f64 ? DType::f64 : DType::f32;
    for (size_t i = 0; i < a.rows.size(); ++i) {
      const auto& [dim, spec] = a.rows[i];
      Shape shape = x.shape();
      shape[dim] = spec.transposed ? spec.in : spec.out;
      const Tensor out =
          Tensor::empty(shape, {.dtype = i + 1 < a.rows.size() ? wide : dtype, .device = x.device(), .format = format});
      if (out.numel() > 0) {
        const DeviceTable table = table_for(spec, x.device(), wide);
        const int walked = format == MemoryFormat::contiguous || dim == 0 ? dim : dim == 1 ? x.dim() - 1 : dim - 1;
        backend_for(x.device()).resample(ordered(x, format), walked, table.view(), ordered(out, format));
      }
      x = out;
    }
    return x;
  }
  static Tensors backward(const BackwardContext&, const Attr& a, const Tensors& grads) {
    Attr t{a.info, {a.rows.rbegin(), a.rows.rend()}};
    for (DimRows& r : t.rows) r.rows.transposed = !r.rows.transposed;
    return {call<ApplyRows>({grads[0]}, t)};
  }
};

}  // namespace

Tensor apply_rows(const OpInfo& info, const Tensor& x, const std::vector<DimRows>& rows) {
  check<DTypeError>(x.is_floating_point(), info.name, "input must be floating, got ", x.dtype());
  if (rows.empty()) return x.clone();
  Shape out = x.shape();
  for (const auto& [dim, spec] : rows) out[dim] = spec.out;
  check_size(info.name, out);
  // What shrinks goes first, so that the passes between are small; of equals the innermost.
  std::vector<DimRows> order = rows;
  const auto growth = [](const DimRows& r) { return double(r.rows.out) / double(std::max<int64_t>(r.rows.in, 1)); };
  std::sort(order.begin(), order.end(),
            [&](const DimRows& a, const DimRows& b) { return growth(a) != growth(b) ? growth(a) < growth(b) : a.dim > b.dim; });
  return call<ApplyRows>({x}, {&info, order});
}

}  // namespace halfstep
