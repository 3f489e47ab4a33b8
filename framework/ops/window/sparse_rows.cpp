// SPDX-License-Identifier: Apache-2.0
#include "framework/ops/window/sparse_rows.h"

#include <algorithm>
#include <map>
#include <mutex>
#include <tuple>

#include "framework/base/fork_mutex.h"
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

constexpr int64_t kMostEntries = int64_t(1) << 20;  // of all kept tables; others are rebuilt at every call

// Computes a table and copies it to the device.
DeviceTable upload(const RowSpec& spec, Device device, DType dtype) {
  // A plan needs no values; for very many rows they would take gigabytes. About two entries per row.
  if (device.is_meta() && std::max(spec.in, spec.out) > kMostEntries) {
    const TensorOptions int64_options{.dtype = DType::i64, .device = device};
    const int64_t rows = spec.transposed ? spec.in : spec.out, n = 2 * spec.out;
    return {empty({rows + 1}, int64_options), empty({n}, int64_options), empty({n}, {.dtype = dtype, .device = device})};
  }
  const RowTable table = row_table(spec);
  const int64_t n = int64_t(table.index.size());
  const auto indices = [&](const std::vector<int64_t>& v) { return from_vector(v, {int64_t(v.size())}, device); };
  return {indices(table.start), indices(table.index), from_vector(table.weight, {n}, Device::cpu).to(dtype).to(device)};
}

// Returns a table, and keeps the first ones: a model uses the same few in every step. None is ever freed, because recorded work
// may read its memory.
DeviceTable table_for(const RowSpec& spec, Device device, DType dtype) {
  using Key = std::tuple<RowSpec, Device::Type, DType>;
  static constinit ForkMutex mutex;
  static auto& kept = *new std::map<Key, DeviceTable>;  // never freed: the devices' memory may be freed first at exit
  static int64_t entries = 0;
  const Key key{spec, device.type, dtype};
  {
    const std::lock_guard lock(mutex);
    if (const auto found = kept.find(key); found != kept.end()) return found->second;
  }
  const DeviceTable made = upload(spec, device, dtype);  // not under the lock, for which a recording thread may wait
  const int64_t size = std::max(made.index.numel(), made.start.numel());
  const std::lock_guard lock(mutex);
  if (entries + size <= kMostEntries && kept.emplace(key, made).second) entries += size;
  return made;
}

Attributes describe_rows(const std::vector<DimRows>& rows) {
  constexpr const char* kinds[] = {"nearest",         "nearest-exact", "linear",    "cubic",   "linear-antialias",
                                   "cubic-antialias", "reflect",       "replicate", "circular"};
  if (rows.empty()) return {};
  const RowSpec& first = rows[0].rows;
  std::vector<int64_t> dims, in, out, before;
  std::vector<double> scales;
  for (const auto& [dim, spec] : rows) {
    dims.push_back(dim);
    in.push_back(spec.in);
    out.push_back(spec.out);
    before.push_back(spec.before);
    scales.push_back(spec.scale);
  }
  Attributes all{{"mode", kinds[size_t(first.kind)]}, {"dims", dims}, {"in", in}, {"out", out}};
  if (first.kind >= RowKind::reflect) {
    all.emplace_back("before", before);
  } else {
    all.emplace_back("scales", scales);
    all.emplace_back("align_corners", first.align_corners);
  }
  if (first.transposed) all.emplace_back("transposed", true);
  return all;
}

// Returns the whole matrix, on the CPU in float64.
Tensor dense_rows(const RowSpec& spec) {
  const RowTable table = row_table(spec);
  const int64_t rows = int64_t(table.start.size()) - 1, columns = spec.transposed ? spec.out : spec.in;
  std::vector<double> out(size_t(rows * columns));
  for (int64_t o = 0; o < rows; ++o)
    for (int64_t k = table.start[size_t(o)]; k < table.start[size_t(o) + 1]; ++k)
      out[size_t(o * columns + table.index[size_t(k)])] += table.weight[size_t(k)];
  return from_vector(out, {rows, columns}, Device::cpu);
}

struct ApplyRows {
  struct Attr {
    const OpInfo* info;
    std::vector<DimRows> rows;  // in the order of application
  };
  static const OpInfo& info_of(const Attr& attr) { return *attr.info; }
  // Selects rows of one element each by index; multiplies by other matrices, dense.
  static Tensor in_simpler_ops(const Attr& attr, const Tensors& in) {
    Tensor x = in[0];
    for (const auto& [dim, spec] : attr.rows) {
      const RowTable table = row_table(spec);
      const bool picks = table.index.size() + 1 == table.start.size() &&
                         std::all_of(table.weight.begin(), table.weight.end(), [](double w) { return w == 1; });
      x = picks ? index_select(x, dim, from_vector(table.index, {int64_t(table.index.size())}, x.device()))
                : matmul(x.transpose(dim, -1), dense_rows(spec).to(x.dtype()).to(x.device()).t()).transpose(dim, -1);
    }
    return x;
  }

  static Attributes describe(const Attr& attr) { return describe_rows(attr.rows); }
  static Tensor forward(OpContext&, const Attr& attr, const Tensors& in) {
    const MemoryFormat format = in[0].format();
    Tensor x = in[0].to(format);
    const DType dtype = x.dtype(), wide = dtype == DType::f64 ? DType::f64 : DType::f32;
    for (size_t i = 0; i < attr.rows.size(); ++i) {
      const auto& [dim, spec] = attr.rows[i];
      Shape shape = x.shape();
      shape[dim] = spec.transposed ? spec.in : spec.out;
      const Tensor out =
          Tensor::empty(shape, {.dtype = i + 1 < attr.rows.size() ? wide : dtype, .device = x.device(), .format = format});
      if (out.numel() > 0) {
        const DeviceTable table = table_for(spec, x.device(), wide);
        const int memory_dim = format == MemoryFormat::contiguous || dim == 0 ? dim : dim == 1 ? x.dim() - 1 : dim - 1;
        backend_for(x.device()).resample(ordered(x, format), memory_dim, table.view(), ordered(out, format));
      }
      x = out;
    }
    return x;
  }
  static Tensors backward(const BackwardContext&, const Attr& attr, const Tensors& grads) {
    Attr transposed{attr.info, {attr.rows.rbegin(), attr.rows.rend()}};
    for (DimRows& r : transposed.rows) r.rows.transposed = !r.rows.transposed;
    return {call<ApplyRows>({grads[0]}, transposed)};
  }
};

}  // namespace

Tensor apply_rows(const OpInfo& info, const Tensor& x, const std::vector<DimRows>& rows) {
  check<DTypeError>(x.is_floating_point(), info.name, "input must be floating, got ", x.dtype());
  if (rows.empty()) return x.clone();
  Shape out = x.shape();
  for (const auto& [dim, spec] : rows) out[dim] = spec.out;
  check_size(info.name, out);
  // Applies what shrinks first, so that the passes in between are small; among equals the innermost.
  std::vector<DimRows> order = rows;
  const auto growth = [](const DimRows& r) { return double(r.rows.out) / double(std::max<int64_t>(r.rows.in, 1)); };
  std::sort(order.begin(), order.end(),
            [&](const DimRows& a, const DimRows& b) { return growth(a) != growth(b) ? growth(a) < growth(b) : a.dim > b.dim; });
  return call<ApplyRows>({x}, {&info, order});
}

}  // namespace halfstep
