// SPDX-License-Identifier: Apache-2.0
// Constant padding fills around a copy; its gradient is padding by the negative sizes. Other modes read each element from another
// place: a sparse matrix per dimension. Circular padding wraps what negative sizes leave; the other modes read what they cut off.
#include "framework/ops/window/padding.h"

#include <algorithm>
#include <array>

#include "framework/ops/core/promotion.h"
#include "framework/ops/core/registry.h"
#include "framework/ops/ops.h"
#include "framework/ops/window/sparse_rows.h"
#include "framework/ops/window/windows.h"

namespace halfstep {
namespace {

// The elements before and after x in each dimension; negative numbers cut off.
struct PadAttr {
  Dims before, after;
  Number value = 0.0;
};
Shape padded_shape(const Shape& x, const PadAttr& attr) {
  Shape s = x;
  for (int d = 0; d < s.size(); ++d) s[d] += attr.before[d] + attr.after[d];
  return s;
}

struct PadOp {
  using Attr = PadAttr;
  static constexpr OpInfo info{.name = "pad",
                               .doc = "more elements around: a constant, or mirrored, repeated or circular; negative sizes cut off",
                               .dtypes = DTypeSet::any};

  static Attributes describe(const Attr& attr) {
    return {{"before", attr.before}, {"after", attr.after}, {"value", attr.value.floating()}};
  }
  static Tensor forward(OpContext&, const Attr& attr, const Tensors& in) {
    const Tensor& x = in[0];
    const MemoryFormat format = x.format();
    const Tensor out = Tensor::empty(padded_shape(x.shape(), attr), {.dtype = x.dtype(), .device = x.device(), .format = format});
    Backend& backend = backend_for(x.device());
    Shape shared = x.shape();  // the common part
    int64_t from = 0, to = 0;
    for (int d = 0; d < shared.size(); ++d) {
      shared[d] += std::min<int64_t>(attr.before[d], 0) + std::min<int64_t>(attr.after[d], 0);
      from -= std::min<int64_t>(attr.before[d], 0) * x.strides()[d];
      to += std::max<int64_t>(attr.before[d], 0) * out.strides()[d];
      if (shared[d] <= 0) shared[d] = 0;
    }
    if (shared != out.shape()) fill(out, attr.value);
    if (numel(shared) > 0)
      backend.copy(ordered(x.alias(shared, x.strides(), from), format), ordered(out.alias(shared, out.strides(), to), format));
    return out;
  }
  static Tensors backward(const BackwardContext&, const Attr& attr, const Tensors& grads) {
    Attr back = attr;
    for (int d = 0; d < attr.before.size(); ++d) {
      back.before[d] = -attr.before[d];
      back.after[d] = -attr.after[d];
    }
    back.value = 0;
    return {call<PadOp>({grads[0]}, back)};
  }
};

// Reads rows of any dtype by the indices of the matrix's rows, without a gradient.
Tensor read_rows(const Tensor& x, const std::vector<DimRows>& rows) {
  Tensor y = x;
  for (const auto& [dim, spec] : rows) {
    const Tensor index = x.device().is_meta() ? empty({spec.out}, {.dtype = DType::i64, .device = x.device()})
                                              : from_vector(row_table(spec).index, {spec.out}, x.device());
    Shape along = Dims::filled(y.dim(), 1), to = y.shape();
    along[dim] = to[dim] = spec.out;
    y = gather(y, dim, index.reshape(along).expand(to));
  }
  return y;
}

// Pads by elements of x itself, as `kind` says; padding as in pad().
Tensor pad_from_elsewhere(const OpInfo& info, const Tensor& x, RowKind kind, const Dims& padding) {
  const std::string_view op = info.name;
  const int dims = padding.size() / 2;
  check<ShapeError>(dims >= 1 && dims <= 3 && (x.dim() == dims + 1 || x.dim() == dims + 2), op,
                    "modes other than constant pad the last 1 to 3 dimensions of [C, ...] or "
                    "[N, C, ...], got ",
                    x.shape(), " and ", padding);
  std::vector<DimRows> rows;
  for (int i = 0; i < dims; ++i) {
    const int d = x.dim() - 1 - i;
    const int64_t before = padding[2 * i], after = padding[2 * i + 1], n = x.size(d);
    const int64_t kept = n + std::min<int64_t>(before, 0) + std::min<int64_t>(after, 0);  // size of the part that is wrapped
    const int64_t most = kind == RowKind::reflect ? n - 1 : kept;
    check<ShapeError>(n > 0 && n + before + after >= (kind == RowKind::circular ? 0 : 1), op, "dimension ", d, " of ", x.shape(),
                      " would have too few elements with padding ", padding);
    check<ShapeError>(kind == RowKind::replicate || (before <= most && after <= most), op,
                      kind == RowKind::reflect ? "reflect" : "circular", " padding must be ",
                      kind == RowKind::reflect ? "less than the size" : "at most the rest of the size", ", got ", padding, " for ",
                      x.shape());
    if (before == 0 && after == 0) continue;
    rows.push_back({d, {.kind = kind, .in = n, .out = n + before + after, .before = before}});
  }
  if (!x.is_floating_point()) return read_rows(x, rows);
  return apply_rows(info, x, rows);
}

// One of PyTorch's ops for single modes.
struct PadByName {
  OpInfo info;
  RowKind kind;
  int dims;
};
constexpr std::array<PadByName, 6> kPadsByName{{
    {{.name = "reflection_pad1d", .doc = "pad, mode reflect"}, RowKind::reflect, 1},
    {{.name = "reflection_pad2d", .doc = "pad, mode reflect, two dimensions"}, RowKind::reflect, 2},
    {{.name = "reflection_pad3d", .doc = "pad, mode reflect, three dimensions"}, RowKind::reflect, 3},
    {{.name = "replication_pad1d", .doc = "pad, mode replicate"}, RowKind::replicate, 1},
    {{.name = "replication_pad2d", .doc = "pad, mode replicate, two dimensions"}, RowKind::replicate, 2},
    {{.name = "replication_pad3d", .doc = "pad, mode replicate, three dimensions"}, RowKind::replicate, 3},
}};

void check_padding(std::string_view op, const Dims& padding) {
  check<ShapeError>(padding.size() % 2 == 0, op, "padding must hold pairs, got ", padding);
  for (int64_t p : padding)
    check<ValueError>(p >= -kMostWindow && p <= kMostWindow, op, "padding must lie within +-", kMostWindow, ", got ", padding);
}

}  // namespace

Tensor pad(const Tensor& x, const Dims& padding, const PadArguments& options) {
  constexpr std::string_view op = "pad";
  const auto& [mode, value] = options;
  check_padding(op, padding);
  if (mode == "reflect") return pad_from_elsewhere(PadOp::info, x, RowKind::reflect, padding);
  if (mode == "replicate") return pad_from_elsewhere(PadOp::info, x, RowKind::replicate, padding);
  if (mode == "circular") return pad_from_elsewhere(PadOp::info, x, RowKind::circular, padding);
  check<ValueError>(mode == "constant", op, "mode must be constant, reflect, replicate or circular, got '", mode, "'");
  check<ShapeError>(padding.size() <= 2 * x.dim(), op, "has ", padding.size() / 2, " pairs for the dimensions of ", x.shape());
  check_fits(op, value, x.dtype());
  PadAttr attr{Dims::filled(x.dim(), 0), Dims::filled(x.dim(), 0), value};
  for (int i = 0; i < padding.size() / 2; ++i) {
    attr.before[x.dim() - 1 - i] = padding[2 * i];
    attr.after[x.dim() - 1 - i] = padding[2 * i + 1];
  }
  const Shape out = padded_shape(x.shape(), attr);
  for (int d = 0; d < out.size(); ++d)
    check<ShapeError>(out[d] >= 0 && std::max(-attr.before[d], -attr.after[d]) <= x.size(d), op, "padding ", padding,
                      " cuts off more than there is of ", x.shape());
  check_size(op, out);
  return call<PadOp>({x}, attr);
}

void add_padding(OpList& list) {
  list.add(PadOp::info, [](Args& a) {
    const Tensor x = a.tensor(0);
    const Dims padding = a.ints("pad");
    return pad(x, padding, a.text("mode", "constant"), a.scalar("value", 0.0));
  });
  for (const PadByName& pad : kPadsByName) {
    list.add(pad.info, [&pad](Args& a) {
      const Tensor x = a.tensor(0);
      const Dims padding = a.ints("padding");
      check_padding(pad.info.name, padding);
      check<ShapeError>(padding.size() == 2 * pad.dims, pad.info.name, "padding must have ", 2 * pad.dims, " entries, got ",
                        padding);
      return pad_from_elsewhere(pad.info, x, pad.kind, padding);
    });
  }
}

}  // namespace halfstep
