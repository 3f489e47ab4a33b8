// SPDX-License-Identifier: Apache-2.0
// Rows of Linear, activations, normalisations, Dropout, Embedding, and layers that move elements.
#include "apps/catalog/rows/layer_rows.h"

#include <map>

#include "framework/ops/elementwise/pointwise.h"

namespace halfstep::app {
namespace {

template <class M>
ModuleRow pad_row(const char* doc) {
  ModuleRow row = class_row<M>(doc);
  Field& padding = row.component.fields[0];
  padding = padding.items(2 * M::kDims, 2 * M::kDims);
  return row;
}

// Makes the row of a layer of `dims` spatial dimensions, or of any number (0).
template <class M>
ModuleRow upsampling_row(const char* type, const char* doc, int dims) {
  ModuleRow row{{type, doc, fields_of<InterpolateOptions>({}, {.dims = dims})},
                [](const Json& self) {
                  InterpolateOptions o;
                  read_options(self, o);
                  return std::make_shared<M>(o);
                },
                {},
                {},
                0};
  std::vector<Field>& fields = row.component.fields;
  fields.pop_back();  // antialias
  std::erase(field_of(row.component, "mode").words, "area");
  if (dims == 0) return row;
  fields.resize(2);  // size, scale_factor
  fields.back() = fields.back().items(1, dims);
  return row;
}

}  // namespace

ModuleRow from_input(ModuleRow row, std::string_view key, int dim, std::string_view default_text) {
  Field& f = field_of(row.component, key);
  f = f.from_input_dim(dim);
  f.needed = false, f.doc += joined("; left out: ", default_text);
  return row;
}

ModuleRow linear_row() {
  ModuleRow row = from_input(class_row<Linear>("y = x W^T + b"), "in_features", -1);
  Field& out = field_of(row.component, "out_features");
  out = out.or_target_width();
  out.doc += "; \"auto\": classes or target width";
  return row;
}

AdaptiveSizes ReadArg<AdaptiveSizes>::from(const Json& value) {
  OutputSize out;
  for (const Json& v : value.is_array() ? value : Json::array({value})) out.push_back(ReadArg<std::optional<int64_t>>::from(v));
  return out;
}

Sizes ReadArg<Sizes>::from(const Json& value) {
  if (value.is_null()) return {};
  if (value.is_number()) return value.get<int64_t>();
  Dims each;
  for (const Json& v : value) each.push_back(v.get<int64_t>());
  return each;
}

// Returns the rows of pointwise.def that are layers, by type.
std::map<std::string, ModuleRow> rows_of_ops() {
  std::map<std::string, ModuleRow> out;
#define HS_ONE_OPTION(row, layer, ...) out.emplace(#layer, class_row<layer>(std::string(info_of(Pointwise::row).doc)));
#define HS_TWO_OPTIONS(row, layer, ...) out.emplace(#layer, class_row<layer>(std::string(info_of(Pointwise::row).doc)));
#include "framework/math/pointwise.def"
  return out;
}

void add_activation_rows(Catalog<ModuleRow>& catalog) {
  std::map<std::string, ModuleRow> of_ops = rows_of_ops();
  const auto add_op = [&](const char* type) { catalog.add(std::move(of_ops.extract(type).mapped())); };
  catalog.add(class_row<ReLU>("max(x, 0)"));
  catalog.add(class_row<GELU>("x times the normal distribution function of x"));
  catalog.add(class_row<Tanh>("hyperbolic tangent"));
  catalog.add(class_row<Sigmoid>("1 / (1 + exp(-x))"));
  catalog.add(class_row<SiLU>("x sigmoid(x)"));
  catalog.add(class_row<ReLU6>("min(max(x, 0), 6)"));
  add_op("ELU");
  add_op("CELU");
  catalog.add(class_row<SELU>("1.0507 (x, or 1.6733 (exp(x) - 1) for x <= 0)"));
  add_op("LeakyReLU");
  catalog.add(class_row<PReLU>("x, or weight x for x <= 0"));
  catalog.add(class_row<RReLU>("x, or s x for x <= 0, s drawn while training, else the mean of both bounds"));
  catalog.add(class_row<Hardtanh>("x, from min_val to max_val"));
  catalog.add(class_row<Hardsigmoid>("x / 6 + 1 / 2, from 0 to 1"));
  catalog.add(class_row<Hardswish>("x hardsigmoid(x)"));
  add_op("Hardshrink");
  add_op("Softshrink");
  catalog.add(class_row<Tanhshrink>("x - tanh(x)"));
  catalog.add(class_row<LogSigmoid>("ln(sigmoid(x))"));
  catalog.add(class_row<Mish>("x tanh(softplus(x))"));
  add_op("Softplus");
  catalog.add(class_row<Softsign>("x / (1 + |x|)"));
  catalog.add(class_row<Threshold>("x where x > threshold, else value"));
  catalog.add(class_row<GLU>("a sigmoid(b), a and b the halves of x along dim"));
  catalog.add(class_row<Softmax>("exp(x) over its sum"));
  catalog.add(class_row<Softmin>("Softmax of -x"));
  catalog.add(class_row<LogSoftmax>("ln of Softmax"));
  catalog.add(class_row<Softmax2d>("Softmax over the channels of an image"));
  for (auto& [type, row] : of_ops) catalog.add(std::move(row));  // the remaining ones, at the end
}

void add_norm_rows(Catalog<ModuleRow>& catalog) {
  const auto add = [&](ModuleRow row) { catalog.add(from_input(std::move(row), "num_features", 1, "those of the input")); };
  add(class_row<BatchNorm1d>("normalises channels over the batch [N, C] or [N, C, L]"));
  add(class_row<BatchNorm2d>("normalises channels over the batch [N, C, H, W]"));
  add(class_row<BatchNorm3d>("normalises channels over the batch [N, C, D, H, W]"));
  add(class_row<InstanceNorm1d>("normalises each channel of each sample, [C, L]"));
  add(class_row<InstanceNorm2d>("normalises each channel of each sample, [C, H, W]"));
  add(class_row<InstanceNorm3d>("normalises each channel of each sample, [C, D, H, W]"));
  const auto add_of_last = [&](ModuleRow row) {
    catalog.add(from_input(std::move(row), "normalized_shape", -1, "that of the last one of the input"));
  };
  add_of_last(class_row<LayerNorm>("normalises over the last dimensions"));
  add_of_last(class_row<RMSNorm>("x / sqrt(mean(x^2) + eps) over the last dimensions"));
  catalog.add(from_input(class_row<GroupNorm>("normalises groups of channels of each sample"), "num_channels", 1,
                     "those of the input"));
  catalog.add(class_row<LocalResponseNorm>("x / (k + alpha mean(x^2 of neighbouring channels))^beta"));
  catalog.add(class_row<UnitNorm>("x / max(|x|_p, eps) along a dimension, torch.nn.functional.normalize"));
}

void add_dropout_rows(Catalog<ModuleRow>& catalog) {
  catalog.add(class_row<Dropout>("zeroes inputs with probability p while training"));
  catalog.add(class_row<Dropout1d>("zeroes channels of [C, L]"));
  catalog.add(class_row<Dropout2d>("zeroes channels of [C, H, W]"));
  catalog.add(class_row<Dropout3d>("zeroes channels of [C, D, H, W]"));
  catalog.add(class_row<AlphaDropout>("Dropout that keeps mean and variance, for SELU"));
  catalog.add(class_row<FeatureAlphaDropout>("AlphaDropout of whole channels"));
}

void add_embedding_rows(Catalog<ModuleRow>& catalog) {
  const auto add = [&](ModuleRow row) {
    Field& rows = field_of(row.component, "num_embeddings");
    rows = rows.or_vocabulary();
    rows.doc += "; \"auto\": the tokens of the data";
    Field& padding = field_of(row.component, "padding_idx");
    padding = padding.at_least(-kMaxSample).at_most(kMaxSample);
    catalog.add(std::move(row));
  };
  add(class_row<Embedding>("rows of a matrix, selected by their indices"));
  add(class_row<EmbeddingBag>("mean, sum or maximum of the rows that a sample's indices select"));
}

void add_shape_rows(Catalog<ModuleRow>& catalog) {
  catalog.add(class_row<Identity>("x"));
  catalog.add(class_row<Flatten>("joins dimensions"));
  ModuleRow unflatten = class_row<Unflatten>("splits a dimension into several");
  Field& parts = field_of(unflatten.component, "unflattened_size");
  parts.or_single = false;
  parts.item = std::make_shared<const Field>(integer("", nullptr, parts.item->doc).at_least(parts.item->low));
  catalog.add(std::move(unflatten));
  catalog.add(class_row<Permute>("dimensions in another order"));
  catalog.add(pad_row<ZeroPad1d>("zeros around [C, L]"));
  catalog.add(pad_row<ZeroPad2d>("zeros around [C, H, W]"));
  catalog.add(pad_row<ZeroPad3d>("zeros around [C, D, H, W]"));
  catalog.add(pad_row<ConstantPad1d>("a number around [C, L]"));
  catalog.add(pad_row<ConstantPad2d>("a number around [C, H, W]"));
  catalog.add(pad_row<ConstantPad3d>("a number around [C, D, H, W]"));
  catalog.add(pad_row<ReflectionPad1d>("[C, L] mirrored at its ends, which are not repeated"));
  catalog.add(pad_row<ReflectionPad2d>("[C, H, W] mirrored at its edges, which are not repeated"));
  catalog.add(pad_row<ReflectionPad3d>("[C, D, H, W] mirrored at its faces, which are not repeated"));
  catalog.add(pad_row<ReplicationPad1d>("the ends of [C, L] repeated"));
  catalog.add(pad_row<ReplicationPad2d>("the edges of [C, H, W] repeated"));
  catalog.add(pad_row<ReplicationPad3d>("the faces of [C, D, H, W] repeated"));
  catalog.add(pad_row<CircularPad1d>("the other end of [C, L]"));
  catalog.add(pad_row<CircularPad2d>("the other edge of [C, H, W]"));
  catalog.add(pad_row<CircularPad3d>("the other face of [C, D, H, W]"));
  catalog.add(class_row<PixelShuffle>("[C r^2, H, W] to [C, H r, W r]"));
  catalog.add(class_row<PixelUnshuffle>("[C, H r, W r] to [C r^2, H, W]"));
  catalog.add(class_row<ChannelShuffle>("interleaves the channels of the groups"));
  catalog.add(upsampling_row<Upsample>("Upsample", "interpolates to another size", 0));
  catalog.add(upsampling_row<UpsamplingNearest2d>("UpsamplingNearest2d", "Upsample by nearest", 2));
  catalog.add(upsampling_row<UpsamplingBilinear2d>("UpsamplingBilinear2d", "Upsample by bilinear with align_corners", 2));
  catalog.add(class_row<Unfold>("windows of [C, H, W] as columns, [C kh kw, L]"));
  catalog.add(class_row<Fold>("columns [C kh kw, L] to [C, H, W], summed where windows overlap"));
}

}  // namespace halfstep::app
