// SPDX-License-Identifier: Apache-2.0
#include "framework/ops/reduce/embedding_bag.h"

#include <algorithm>
#include <limits>
#include <string>
#include <string_view>
#include <vector>

#include "framework/ops/core/composite.h"
#include "framework/ops/core/registry.h"
#include "framework/ops/index/indices.h"

namespace halfstep {
namespace {

constexpr OpInfo kInfo{.name = "embedding_bag",
                       .doc = "sums, means or largest elements of the rows of weight that bags of indices name"};
constexpr double kMinusInf = -std::numeric_limits<double>::infinity();

// Throws IndexError unless offsets, which are on the host, begin with 0, do not fall, and are at most the number of indices; with
// `has_end` the last one must be that number.
void check_offsets(const Tensor& offsets, int64_t count, bool has_end) {
  const std::vector<int64_t> at = offsets.detach().to_vector<int64_t>();
  if (at.empty()) return;
  check<IndexError>(at.front() == 0, kInfo.name, "offsets must begin with 0, got ", at.front());
  check<IndexError>(std::is_sorted(at.begin(), at.end()), kInfo.name, "offsets must not fall");
  check<IndexError>(at.back() <= count, kInfo.name, "offsets must not exceed the number of indices, ", count, ", got ", at.back());
  check<IndexError>(!has_end || at.back() == count, kInfo.name, "the last offset must be the number of indices, ", count, ", got ",
                    at.back());
}

// Returns the bag of each index, [n].
Tensor bag_of(const Tensor& offsets, int64_t count) {
  const TensorOptions int64_options{.dtype = DType::i64, .device = offsets.device()};
  const Tensor begun = index_add(zeros({count + 1}, int64_options), 0, offsets, ones({offsets.numel()}, int64_options));
  return cumsum(begun, 0).narrow(0, 0, count) - 1;
}

// Returns the bags of [n, D] rows, which begin at `offsets`, as [B, longest, D], with -inf behind shorter bags.
Tensor padded(const Tensor& rows, const Tensor& offsets, const Tensor& bag) {
  const int64_t count = rows.size(0), bags = offsets.numel();
  std::vector<int64_t> at = offsets.detach().to_vector<int64_t>();
  at.push_back(count);
  int64_t longest = 1;
  for (size_t i = 0; i + 1 < at.size(); ++i) longest = std::max(longest, at[i + 1] - at[i]);
  const Tensor within = arange(0, double(count), 1, {.dtype = DType::i64, .device = rows.device()}) - index_select(offsets, 0, bag);
  const Tensor empty = full({bags * longest, rows.size(1)}, kMinusInf, {.dtype = rows.dtype(), .device = rows.device()});
  return index_copy(empty, 0, bag * longest + within, rows).reshape({bags, longest, rows.size(1)});
}

// Computes the bags for checked arguments. factors: per_sample_weights; padding: padding_idx, counted from the start.
Tensor reduce_bags(const Tensor& weight, const Tensor& index, Tensor offsets, const Tensor& factors,
                   const EmbeddingBagOptions& options, std::optional<int64_t> padding) {
  const int64_t count = index.numel(), width = weight.size(1);
  const bool even = index.dim() == 2;  // bags of equal size
  const int64_t bag_count = even ? index.size(0) : offsets.numel(), bag_size = even ? index.size(1) : 0;
  const Tensor flat_index = index.reshape({-1});
  Tensor rows = embedding(weight, flat_index, padding, options.scale_grad_by_freq, options.max_norm, options.norm_type);
  if (factors.defined()) rows = rows * factors.reshape({-1, 1});
  const Tensor is_kept = padding ? ne(flat_index, *padding).unsqueeze(1) : Tensor();  // [n, 1]
  const Tensor bag = even ? Tensor() : bag_of(offsets, count);
  const auto summed = [&](const Tensor& x) {  // [n, k] -> [B, k]
    if (even) return sum(x.reshape({bag_count, bag_size, x.size(1)}), {1});
    return index_add(zeros({bag_count, x.size(1)}, {.dtype = x.dtype(), .device = x.device()}), 0, bag, x);
  };
  const auto with_padding_as = [&](double value) { return is_kept.defined() ? where(is_kept, rows, value) : rows; };
  if (options.mode == BagMode::sum) return summed(with_padding_as(0));
  const Tensor counts =
      summed(is_kept.defined() ? is_kept.to(rows.dtype()) : ones({count, 1}, {.dtype = rows.dtype(), .device = rows.device()}));
  if (options.mode == BagMode::mean || count == 0) return summed(with_padding_as(0)) / clamp(counts, 1.0, {});
  rows = with_padding_as(kMinusInf);
  return where(counts > 0.0, max(even ? rows.reshape({bag_count, bag_size, width}) : padded(rows, offsets, bag), 1).first, 0.0);
}

}  // namespace

BagMode bag_mode(std::string_view where, std::string_view name) {
  check<ValueError>(name == "sum" || name == "mean" || name == "max", where, "mode must be \"sum\", \"mean\" or \"max\", got \"",
                    name, '"');
  return name == "sum" ? BagMode::sum : name == "mean" ? BagMode::mean : BagMode::max;
}

Tensor embedding_bag(const Tensor& weight, const Tensor& index, const Tensor& given_offsets, const EmbeddingBagOptions& options) {
  constexpr std::string_view op = kInfo.name;
  check_same_device(op, {weight, index, given_offsets, options.per_sample_weights});
  check<ShapeError>(weight.dim() == 2, op, "weight must be [rows, width], got ", weight.shape());
  check<DTypeError>(weight.is_floating_point(), op, "weight must be floating, got ", weight.dtype());
  const Tensor i = index_tensor(op, index);
  check<ShapeError>(i.dim() == 1 || i.dim() == 2, op, "index must be [n] with offsets, or [bags, n], got ", i.shape());
  check<ValueError>(given_offsets.defined() == (i.dim() == 1), op,
                    i.dim() == 1 ? "index [n] needs offsets" : "index [bags, n] takes no offsets");
  check<ValueError>(!options.scale_grad_by_freq || options.mode != BagMode::max, op, "mode max has no scale_grad_by_freq");
  std::optional<int64_t> padding = options.padding_idx;
  if (padding) {
    check<ValueError>(*padding >= -weight.size(0) && *padding < weight.size(0), op, "padding_idx must lie in [", -weight.size(0),
                      ", ", weight.size(0), "), got ", *padding);
    if (*padding < 0) *padding += weight.size(0);
  }
  if (const Tensor& w = options.per_sample_weights; w.defined()) {
    check<ValueError>(options.mode == BagMode::sum, op, "per_sample_weights need mode sum");
    check<ShapeError>(w.shape() == i.shape(), op, "per_sample_weights must have the shape of index, ", i.shape(), ", got ",
                      w.shape());
    check<DTypeError>(w.dtype() == weight.dtype(), op, "per_sample_weights must have the dtype of weight, ", weight.dtype(),
                      ", got ", w.dtype());
  }
  Tensor offsets;
  if (given_offsets.defined()) {
    offsets = index_tensor(op, given_offsets);
    check<ShapeError>(offsets.dim() == 1, op, "offsets must be [bags], got ", offsets.shape());
    const int64_t bags = offsets.numel() - (options.include_last_offset ? 1 : 0);
    check<ShapeError>(bags >= 0 && (bags > 0 || i.numel() == 0), op, "indices need a bag, got ", i.shape(), " indices and ",
                      offsets.shape(), " offsets");
    if (offsets.device().is_cpu()) check_offsets(offsets, i.numel(), options.include_last_offset);
    if (options.include_last_offset) offsets = offsets.narrow(0, 0, offsets.numel() - 1);
  }
  check_index(op, i, weight.size(0));
  if (options.max_norm && i.numel() > 0)  // scales rows of weight itself, before it is copied to another dtype
    embedding(weight.detach(), i.reshape({-1}), {}, false, options.max_norm, options.norm_type);
  return composite(kInfo, {weight, options.per_sample_weights}, [&](const Tensors& in) {
    EmbeddingBagOptions without_norm = options;
    without_norm.max_norm = std::nullopt;
    return reduce_bags(in[0], i, offsets, in[1], without_norm, padding);
  });
}

void add_embedding_bag(OpList& list) {
  list.add(kInfo, [](Args& a) {
    check<ValueError>(!a.flag("sparse", false), a.op(), "has no sparse gradients: 'sparse' must be false");
    const std::string mode = a.text("mode", "mean");
    const Tensor weight = a.tensor(0), index = a.tensor(1), offsets = a.tensor_or_none(2);
    return embedding_bag(weight, index, offsets,
                         {.max_norm = a.number_or_none("max_norm"),
                          .norm_type = a.number("norm_type", 2),
                          .scale_grad_by_freq = a.flag("scale_grad_by_freq", false),
                          .mode = bag_mode(a.op(), mode),
                          .per_sample_weights = a.tensor_or_none(3),
                          .include_last_offset = a.flag("include_last_offset", false),
                          .padding_idx = a.integer_or_none("padding_idx")});
  });
}

}  // namespace halfstep
