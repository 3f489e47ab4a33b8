// SPDX-License-Identifier: Apache-2.0
// Exports convolutions, pooling, padding and resizing. k, s, p and d: kernel size, stride, padding and dilation, by dimension.
// Windows keep the sizes with which they were traced. Pads at the end are explicit, so that no runtime interprets ceil_mode.
#include <algorithm>
#include <cmath>

#include "framework/interchange/onnx_rows.h"
#include "framework/ops/ops.h"

namespace halfstep {
namespace {
namespace row {  // separate from the ops of these names

// Returns pads as ONNX lists them: those before all dimensions, then those behind them.
Ints pads_of(const Ints& before, const Ints& behind) {
  Ints out = before;
  out.insert(out.end(), behind.begin(), behind.end());
  return out;
}

OnnxNames conv(OnnxCall& c) {
  OnnxNames in{c.in(0), c.in(1)};
  if (c.has_input(2)) in.push_back(c.in(2));
  const Ints& p = c.ints("padding");
  const std::string y = c.node("Conv", in,
                               {{"kernel_shape", c.ints("kernel_size")},
                                {"strides", c.ints("stride")},
                                {"pads", pads_of(p, p)},
                                {"dilations", c.ints("dilation")},
                                {"group", c.integer("groups")}});
  return {c.flag("relu") ? c.node("Relu", {y}) : y};
}

// Returns by how much the sizes of a transposed convolution's result exceed the smallest ones with that many window positions.
Ints output_padding(const Ints& sizes, const Ints& positions, const Ints& k, const Ints& s, const Ints& p, const Ints& d) {
  Ints out;
  for (size_t i = 0; i < p.size(); ++i) out.push_back(sizes[i] - ((positions[i] - 1) * s[i] - 2 * p[i] + d[i] * (k[i] - 1) + 1));
  return out;
}

OnnxNames conv_transpose(OnnxCall& c) {
  OnnxNames in{c.in(0), c.in(1)};
  if (c.has_input(2)) in.push_back(c.in(2));
  const Ints &k = c.ints("kernel_size"), &s = c.ints("stride"), &p = c.ints("padding"), &d = c.ints("dilation");
  return {c.node("ConvTranspose", in,
                 {{"kernel_shape", k},
                  {"strides", s},
                  {"pads", pads_of(p, p)},
                  {"dilations", d},
                  {"group", c.integer("groups")},
                  {"output_padding", output_padding(c.ints("in"), c.ints("out"), k, s, p, d)}})};
}

// Returns how far the last window reaches beyond the input and the padding before it.
Ints pads_behind(const OnnxCall& c, const Ints& dilation) {
  const Ints &in = c.ints("in"), &out = c.ints("out"), &k = c.ints("kernel_size"), &s = c.ints("stride"), &p = c.ints("padding");
  Ints end;
  for (size_t i = 0; i < in.size(); ++i)
    end.push_back(std::max<int64_t>(0, (out[i] - 1) * s[i] + dilation[i] * (k[i] - 1) + 1 - in[i] - p[i]));
  return end;
}

OnnxNames max_pool(OnnxCall& c) {
  const Ints& d = c.ints("dilation");
  return {c.node("MaxPool", {c.in(0)},
                 {{"kernel_shape", c.ints("kernel_size")},
                  {"strides", c.ints("stride")},
                  {"pads", pads_of(c.ints("padding"), pads_behind(c, d))},
                  {"dilations", d}})};
}

// Return the range that output o of an adaptive pooling covers.
int64_t first_of(int64_t o, int64_t in, int64_t out) { return o * in / out; }
int64_t end_of(int64_t o, int64_t in, int64_t out) { return ((o + 1) * in + out - 1) / out; }

// Exports the maximum of a slice for each position, one dimension after the other.
OnnxNames adaptive_max_pool(OnnxCall& c) {
  const Ints &in = c.ints("in"), &out = c.ints("out");
  std::string v = c.in(0);
  for (size_t i = 0; i < in.size(); ++i) {
    const int64_t dim = int64_t(i) + 2;
    OnnxNames parts;
    for (int64_t o = 0; o < out[i]; ++o) {
      const std::string window = c.slice(v, dim, first_of(o, in[i], out[i]), end_of(o, in[i], out[i]));
      parts.push_back(c.node("ReduceMax", {window}, {{"axes", Ints{dim}}, {"keepdims", int64_t(1)}}));
    }
    v = parts.size() == 1 ? parts[0] : c.node("Concat", parts, {{"axis", dim}});
  }
  return {v};
}

// Exports a product with a matrix of weights 1 / (size of the range), one dimension after the other.
OnnxNames adaptive_avg_pool(OnnxCall& c) {
  const Ints &in = c.ints("in"), &out = c.ints("out");
  if (std::all_of(out.begin(), out.end(), [](int64_t n) { return n == 1; })) return {c.node("GlobalAveragePool", {c.in(0)})};
  std::string v = c.in(0);
  for (size_t i = 0; i < in.size(); ++i) {
    const Tensor means = zeros({out[i], in[i]});
    for (int64_t o = 0; o < out[i]; ++o) {
      const int64_t from = first_of(o, in[i], out[i]), to = end_of(o, in[i], out[i]);
      means.select(0, o).narrow(0, from, to - from).fill_(1.0 / double(to - from));
    }
    v = c.multiply_along(v, int64_t(i) + 2, c.x().dim(), means);
  }
  return {v};
}

// Exports average pooling. ONNX divides by the whole window, including padding; a factor corrects results where halfstep divides
// by fewer elements, or by another divisor.
OnnxNames avg_pool(OnnxCall& c) {
  const Ints &in = c.ints("in"), &out = c.ints("out"), &k = c.ints("kernel_size"), &s = c.ints("stride"), &p = c.ints("padding");
  const std::string y = c.node("AveragePool", {c.in(0)},
                               {{"kernel_shape", k},
                                {"strides", s},
                                {"pads", pads_of(p, pads_behind(c, Ints(in.size(), 1)))},
                                {"count_include_pad", int64_t(1)}});
  const bool with_padding = c.flag("count_include_pad");
  const int rank = int(in.size()) + 2;
  double area = 1;
  Tensor counts = ones({}, {.dtype = DType::f64});
  for (size_t i = 0; i < in.size(); ++i) {
    area *= double(k[i]);
    std::vector<double> elements;  // that a window has along this dimension, by position
    for (int64_t o = 0; o < out[i]; ++o) {
      int64_t from = o * s[i] - p[i], to = std::min(from + k[i], in[i] + p[i]);
      if (!with_padding) from = std::max<int64_t>(from, 0), to = std::min(to, in[i]);
      elements.push_back(double(to - from));
    }
    Shape broadcast_shape = Dims::filled(rank, 1);
    broadcast_shape[int(i) + 2] = out[i];
    counts = counts * from_vector(elements, broadcast_shape, Device::cpu);
  }
  if (const int64_t divisor = c.integer("divisor_override")) counts = full_like(counts, double(divisor));
  const Tensor factor = area / counts;
  if (same_values(factor, ones_like(factor))) return {y};
  return {c.node("Mul", {y, c.constant(factor.to(c.x().dtype()))})};
}

OnnxNames pad(OnnxCall& c) {
  const Ints before = c.ints("before"), after = c.ints("after");
  return {c.node("Pad", {c.in(0), c.ints_in(pads_of(before, after)), c.number(c.real("value"), c.x().dtype())})};
}
bool pads_by_constant(const Attributes& a, std::span<const Tensor>) { return find_attribute<double>(a, "value") != nullptr; }

// Returns whether ONNX's Resize computes the same: images and volumes enlarged by integers, or linear with positions from the
// sizes.
bool resizes_alike(const Attributes& a, std::span<const Tensor> in) {
  const auto* mode = find_attribute<std::string>(a, "mode");
  const auto *from = find_attribute<Ints>(a, "in"), *to = find_attribute<Ints>(a, "out"), *dims = find_attribute<Ints>(a, "dims");
  const auto* scales = find_attribute<std::vector<double>>(a, "scales");
  if (!mode || !scales || in[0].dim() < 4 || find_attribute<bool>(a, "transposed")) return false;
  if (*mode == "cubic" && in[0].dim() != 4) return false;
  for (size_t i = 0; i < dims->size(); ++i) {
    if ((*scales)[i] != 0 && double((*to)[i]) != double((*from)[i]) * (*scales)[i]) return false;
    if (*mode == "nearest" && (*to)[i] % (*from)[i] != 0) return false;
  }
  return *mode == "nearest" || *mode == "linear" || *mode == "cubic";
}
OnnxNames resize(OnnxCall& c) {
  const bool nearest = c.word("mode") == "nearest", aligned = c.flag("align_corners");
  std::vector<OnnxSize> sizes = c.result_shape();
  OnnxFile::Named a{{"mode", c.word("mode")},
                    {"coordinate_transformation_mode", std::string(nearest   ? "asymmetric"
                                                                   : aligned ? "align_corners"
                                                                             : "half_pixel")}};
  if (nearest) a.push_back({"nearest_mode", std::string("floor")});
  return {c.node("Resize", {c.in(0), "", "", c.shape_in(sizes)}, a)};
}

// Exports one slice of the padded image for each element of the window.
OnnxNames unfold(OnnxCall& c) {
  const Ints &k = c.ints("kernel_size"), &s = c.ints("stride"), &p = c.ints("padding"), &d = c.ints("dilation"),
             &at = c.ints("positions");
  std::string x = c.in(0);
  if (p[0] > 0 || p[1] > 0) x = c.node("Pad", {x, c.ints_in({0, 0, p[0], p[1], 0, 0, p[0], p[1]}), c.number(0, c.x().dtype())});
  OnnxNames parts;
  for (int64_t row = 0; row < k[0]; ++row) {
    const int64_t top = row * d[0];
    const std::string rows = c.slice(x, 2, top, top + (at[0] - 1) * s[0] + 1, s[0]);
    for (int64_t column = 0; column < k[1]; ++column) {
      const int64_t left = column * d[1];
      parts.push_back(c.unsqueeze(c.slice(rows, 3, left, left + (at[1] - 1) * s[1] + 1, s[1]), 2));
    }
  }
  return {c.reshape(parts.size() == 1 ? parts[0] : c.node("Concat", parts, {{"axis", int64_t(2)}}), c.result_shape())};
}
// Returns one-hot kernels that turn a window's elements into channels.
Tensor one_hot_kernels(int64_t channels, const Ints& k, DType dtype) {
  const int64_t area = k[0] * k[1];
  return eye(area).repeat({channels, 1}).reshape({channels * area, 1, k[0], k[1]}).to(dtype);
}
OnnxNames fold(OnnxCall& c) {
  const Ints &k = c.ints("kernel_size"), &s = c.ints("stride"), &p = c.ints("padding"), &d = c.ints("dilation"),
             &at = c.ints("positions");
  const int64_t channels = c.y().size(1);
  const std::string x = c.reshape(c.in(0), {c.result_shape()[0], {channels * k[0] * k[1]}, {at[0]}, {at[1]}});
  return {c.node("ConvTranspose", {x, c.constant(one_hot_kernels(channels, k, c.x().dtype()))},
                 {{"kernel_shape", k},
                  {"strides", s},
                  {"pads", pads_of(p, p)},
                  {"dilations", d},
                  {"group", channels},
                  {"output_padding", output_padding(c.ints("pixels"), at, k, s, p, d)}})};
}

}  // namespace row
}  // namespace

void add_window_rows(OnnxRows& rows) {
  for (const std::string d : {"1d", "2d", "3d"}) {
    rows["conv" + d] = {row::conv};
    rows["conv_transpose" + d] = {row::conv_transpose};
    rows["max_pool" + d] = {row::max_pool};
    rows["adaptive_max_pool" + d] = {row::adaptive_max_pool};
    rows["avg_pool" + d] = {row::avg_pool};
    rows["adaptive_avg_pool" + d] = {row::adaptive_avg_pool};
  }
  rows["pad"] = {row::pad, row::pads_by_constant};
  for (const char* op :
       {"upsample_nearest2d", "upsample_nearest3d", "upsample_bilinear2d", "upsample_trilinear3d", "upsample_bicubic2d"})
    rows[op] = {row::resize, row::resizes_alike};
  rows["unfold"] = {row::unfold};
  rows["fold"] = {row::fold};
}

}  // namespace halfstep
