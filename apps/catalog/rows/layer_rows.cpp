// SPDX-License-Identifier: Apache-2.0
// Rows of Linear, activations, normalisations, Dropout, Embedding, and layers that move elements.
#include "apps/catalog/rows/layer_rows.h"

#include <map>

#include "framework/ops/elementwise/pointwise.h"

namespace halfstep::app {
namespace {

template <class M>
ModuleRow plain_row(std::string doc) {
  return module_row<M>(M::kName, std::move(doc));
}
Field factor(const char* key) { return width(key, "factor").required(); }
Field channels(const char* key) { return width(key, "channels; left out: those of the input").from_input_dim(1); }
Field rows_of_tokens() { return width("num_embeddings", "rows; \"auto\": the tokens of the data").or_vocabulary().required(); }

Field normalized_shape() {
  return sizes("normalized_shape", nullptr, 0, 1, "sizes of the last dimensions; left out: that of the last one of the input")
      .from_input_dim(-1);
}

Field pad_sizes(int dims) {
  Field f = sizes("padding", nullptr, 2 * dims, -kMaxSample, "for all sides, or (before, after) from the last dimension on");
  return f.required();
}
template <class M>
ModuleRow pad_row(const char* doc) {
  return module_row<M>(M::kName, doc, arg<Sizes>(pad_sizes(M::kDims)));
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
#define HS_ONE_OPTION(row, layer, ...) out.emplace(#layer, option_row<layer>(std::string(info_of(Pointwise::row).doc)));
#define HS_TWO_OPTIONS(row, layer, ...) out.emplace(#layer, option_row<layer>(std::string(info_of(Pointwise::row).doc)));
#include "framework/math/pointwise.def"
  return out;
}

void add_linear_rows(Catalog<ModuleRow>& all) {
  all.add(option_row<Linear>(
      "y = x W^T + b", arg<int64_t>(width("in_features", "width of the input; left out: that of the input").from_input_dim(-1)),
      arg<int64_t>(width("out_features", "width of the output; \"auto\": classes or target width").or_target_width().required())));
}

void add_activation_rows(Catalog<ModuleRow>& all) {
  std::map<std::string, ModuleRow> of_ops = rows_of_ops();
  const auto add_op = [&](const char* type) { all.add(std::move(of_ops.extract(type).mapped())); };
  all.add(plain_row<ReLU>("max(x, 0)"));
  all.add(option_row<GELU>("x times the normal distribution function of x"));
  all.add(plain_row<Tanh>("hyperbolic tangent"));
  all.add(plain_row<Sigmoid>("1 / (1 + exp(-x))"));
  all.add(plain_row<SiLU>("x sigmoid(x)"));
  all.add(plain_row<ReLU6>("min(max(x, 0), 6)"));
  add_op("ELU");
  add_op("CELU");
  all.add(plain_row<SELU>("1.0507 (x, or 1.6733 (exp(x) - 1) for x <= 0)"));
  add_op("LeakyReLU");
  all.add(option_row<PReLU>("x, or weight x for x <= 0"));
  all.add(option_row<RReLU>("x, or s x for x <= 0, s drawn while training, else the mean of both bounds"));
  all.add(option_row<Hardtanh>("x, from min_val to max_val"));
  all.add(plain_row<Hardsigmoid>("x / 6 + 1 / 2, from 0 to 1"));
  all.add(plain_row<Hardswish>("x hardsigmoid(x)"));
  add_op("Hardshrink");
  add_op("Softshrink");
  all.add(plain_row<Tanhshrink>("x - tanh(x)"));
  all.add(plain_row<LogSigmoid>("ln(sigmoid(x))"));
  all.add(plain_row<Mish>("x tanh(softplus(x))"));
  add_op("Softplus");
  all.add(plain_row<Softsign>("x / (1 + |x|)"));
  all.add(module_row<Threshold>("Threshold", "x where x > threshold, else value",
                                arg<double>(number("threshold", nullptr, "bound").required()),
                                arg<double>(number("value", nullptr, "value that replaces x").required())));
  all.add(option_row<GLU>("a sigmoid(b), a and b the halves of x along dim"));
  all.add(option_row<Softmax>("exp(x) over its sum"));
  all.add(option_row<Softmin>("Softmax of -x"));
  all.add(option_row<LogSoftmax>("ln of Softmax"));
  all.add(plain_row<Softmax2d>("Softmax over the channels of an image"));
  for (auto& [type, row] : of_ops) all.add(std::move(row));  // the remaining ones, at the end
}

void add_norm_rows(Catalog<ModuleRow>& all) {
  const auto features = arg<int64_t>(channels("num_features"));
  all.add(option_row<BatchNorm1d>("normalises channels over the batch [N, C] or [N, C, L]", features));
  all.add(option_row<BatchNorm2d>("normalises channels over the batch [N, C, H, W]", features));
  all.add(option_row<BatchNorm3d>("normalises channels over the batch [N, C, D, H, W]", features));
  all.add(option_row<InstanceNorm1d>("normalises each channel of each sample, [C, L]", features));
  all.add(option_row<InstanceNorm2d>("normalises each channel of each sample, [C, H, W]", features));
  all.add(option_row<InstanceNorm3d>("normalises each channel of each sample, [C, D, H, W]", features));
  all.add(option_row<LayerNorm>("normalises over the last dimensions", arg<Sizes>(normalized_shape())));
  all.add(option_row<RMSNorm>("x / sqrt(mean(x^2) + eps) over the last dimensions", arg<Sizes>(normalized_shape())));
  all.add(option_row<GroupNorm>("normalises groups of channels of each sample",
                                arg<int64_t>(width("num_groups", "groups, which divide the channels").required()),
                                arg<int64_t>(channels("num_channels"))));
  all.add(option_row<LocalResponseNorm>("x / (k + alpha mean(x^2 of neighbouring channels))^beta",
                                        arg<int64_t>(width("size", "channels").required())));
  all.add(option_row<UnitNorm>("x / max(|x|_p, eps) along a dimension, torch.nn.functional.normalize"));
}

void add_dropout_rows(Catalog<ModuleRow>& all) {
  all.add(option_row<Dropout>("zeroes inputs with probability p while training"));
  all.add(option_row<Dropout1d>("zeroes channels of [C, L]"));
  all.add(option_row<Dropout2d>("zeroes channels of [C, H, W]"));
  all.add(option_row<Dropout3d>("zeroes channels of [C, D, H, W]"));
  all.add(option_row<AlphaDropout>("Dropout that keeps mean and variance, for SELU"));
  all.add(option_row<FeatureAlphaDropout>("AlphaDropout of whole channels"));
}

void add_embedding_rows(Catalog<ModuleRow>& all) {
  const auto rows = arg<int64_t>(rows_of_tokens());
  const auto dim = arg<int64_t>(width("embedding_dim", "width of a row").required());
  const auto add = [&](ModuleRow row) {
    Field& padding = field_of(row.component, "padding_idx");
    padding = padding.at_least(-kMaxSample).at_most(kMaxSample);
    all.add(std::move(row));
  };
  add(option_row<Embedding>("rows of a matrix, selected by their indices", rows, dim));
  add(option_row<EmbeddingBag>("mean, sum or maximum of the rows that a sample's indices select", rows, dim));
}

void add_shape_rows(Catalog<ModuleRow>& all) {
  all.add(plain_row<Identity>("x"));
  all.add(option_row<Flatten>("joins dimensions"));
  all.add({{"Unflatten",
            "splits a dimension into several",
            {integer("dim", nullptr, "dimension to split; 0 is the batch").required(),
             list("unflattened_size", nullptr, integer("", nullptr, "size").at_least(-1), "its parts; one may be -1")
                 .items(1, kMaxDims - 1)
                 .required()}},
           [](const Json& self) {
             return std::make_shared<Unflatten>(self["dim"].get<int64_t>(),
                                                ReadArg<Sizes>::from(self["unflattened_size"]).values());
           }});
  all.add({{"Permute",
            "dimensions in another order",
            {list("dims", nullptr, integer("", nullptr, "dimension").at_least(0).at_most(kMaxDims - 1),
                  "where each comes from; the first is 0, the batch")
                 .items(2, kMaxDims)
                 .required()}},
           [](const Json& self) { return std::make_shared<Permute>(ReadArg<Sizes>::from(self["dims"]).values()); }});
  all.add(pad_row<ZeroPad1d>("zeros around [C, L]"));
  all.add(pad_row<ZeroPad2d>("zeros around [C, H, W]"));
  all.add(pad_row<ZeroPad3d>("zeros around [C, D, H, W]"));
  const auto value = arg<double>(number("value", nullptr, "value of the padding").required());
  all.add(module_row<ConstantPad1d>(ConstantPad1d::kName, "a number around [C, L]", arg<Sizes>(pad_sizes(1)), value));
  all.add(module_row<ConstantPad2d>(ConstantPad2d::kName, "a number around [C, H, W]", arg<Sizes>(pad_sizes(2)), value));
  all.add(module_row<ConstantPad3d>(ConstantPad3d::kName, "a number around [C, D, H, W]", arg<Sizes>(pad_sizes(3)), value));
  all.add(pad_row<ReflectionPad1d>("[C, L] mirrored at its ends, which are not repeated"));
  all.add(pad_row<ReflectionPad2d>("[C, H, W] mirrored at its edges, which are not repeated"));
  all.add(pad_row<ReflectionPad3d>("[C, D, H, W] mirrored at its faces, which are not repeated"));
  all.add(pad_row<ReplicationPad1d>("the ends of [C, L] repeated"));
  all.add(pad_row<ReplicationPad2d>("the edges of [C, H, W] repeated"));
  all.add(pad_row<ReplicationPad3d>("the faces of [C, D, H, W] repeated"));
  all.add(pad_row<CircularPad1d>("the other end of [C, L]"));
  all.add(pad_row<CircularPad2d>("the other edge of [C, H, W]"));
  all.add(pad_row<CircularPad3d>("the other face of [C, D, H, W]"));
  all.add(module_row<PixelShuffle>("PixelShuffle", "[C r^2, H, W] to [C, H r, W r]", arg<int64_t>(factor("upscale_factor"))));
  all.add(module_row<PixelUnshuffle>("PixelUnshuffle", "[C, H r, W r] to [C r^2, H, W]", arg<int64_t>(factor("downscale_factor"))));
  all.add(module_row<ChannelShuffle>("ChannelShuffle", "interleaves the channels of the groups",
                                     arg<int64_t>(width("groups", "groups, which divide the channels").required())));
  all.add(upsampling_row<Upsample>("Upsample", "interpolates to another size", 0));
  all.add(upsampling_row<UpsamplingNearest2d>("UpsamplingNearest2d", "Upsample by nearest", 2));
  all.add(upsampling_row<UpsamplingBilinear2d>("UpsamplingBilinear2d", "Upsample by bilinear with align_corners", 2));
  const auto kernel = arg<Sizes>(sizes("kernel_size", nullptr, 2, 1, "of the window").required());
  all.add(option_row<Unfold>("windows of [C, H, W] as columns, [C kh kw, L]", kernel));
  all.add(option_row<Fold>("columns [C kh kw, L] to [C, H, W], summed where windows overlap",
                           arg<Sizes>(sizes("output_size", nullptr, 2, 1, "H and W").required()), kernel));
}

}  // namespace halfstep::app
