// SPDX-License-Identifier: Apache-2.0
// Activations, normalisations, Dropout, Embedding, and layers that move elements.
#include "apps/catalog/rows/layer_rows.h"

#include <map>

#include "framework/ops/elementwise/pointwise.h"

namespace halfstep::app {
namespace {

Arg<double> real(const char* key, double fallback, const char* doc) { return arg<double>(number(key, fallback, doc)); }
Arg<int64_t> whole(const char* key, int64_t fallback, const char* doc) { return arg<int64_t>(integer(key, fallback, doc)); }
template <class M>
ModuleRow plain_row(std::string doc) {
  return module_row<M>(M::kName, std::move(doc));
}
Field factor(const char* key) { return width(key, "factor").required(); }
Field eps() { return number("eps", 1e-5, "added to the variance").at_least(0); }
Field channels(const char* key) { return width(key, "channels; left out: those of the input").from_input_dim(1); }
Field rows_of_tokens() { return width("num_embeddings", "rows; \"auto\": the tokens of the data").or_vocabulary().required(); }

Field momentum() {
  return number("momentum", 0.1, "share of the new statistics; \"cumulative\", PyTorch's None: all batches count the same")
      .at_least(0)
      .at_most(1)
      .or_word("cumulative");
}

template <class M, class Options>
ModuleRow running_norm_row(const char* type, const char* doc) {
  constexpr bool can_sync = requires(Options options) { options.sync; };
  const Options o;
  ModuleRow row{{type,
                 doc,
                 {channels("num_features"), eps(), momentum(), boolean("affine", o.affine, "has weights"),
                  boolean("track_running_stats", o.track_running_stats, "gathers statistics for evaluation"),
                  boolean("bias", true, "add a bias, where affine")}},
                [](const Json& self) {
                  Options options{self["eps"], ReadArg<std::optional<double>>::from(self["momentum"]), self["affine"],
                                  self["track_running_stats"], self["bias"]};
                  if constexpr (can_sync) options.sync = self["sync"];
                  return std::make_shared<M>(self["num_features"].get<int64_t>(), options);
                }};
  if (can_sync)
    row.component.fields.push_back(boolean("sync", false, "statistics of all ranks' samples, where ranks train together"));
  return row;
}

Field normalized_shape() {
  return sizes("normalized_shape", nullptr, 0, 1, "sizes of the last dimensions; left out: that of the last one of the input")
      .from_input_dim(-1);
}

template <class M>
ModuleRow dropout_row(const char* type, const char* doc) {
  return module_row<M>(type, doc, arg<double>(number("p", 0.5, "probability").at_least(0).at_most(1)));
}

Field pad_sizes(int dims) {
  Field f = sizes("padding", nullptr, 2 * dims, -kMaxSample, "for all sides, or (before, after) from the last dimension on");
  return f.required();
}
template <class M>
ModuleRow pad_row(const char* type, int dims, const char* doc) {
  return module_row<M>(type, doc, arg<Sizes>(pad_sizes(dims)));
}

InterpolateOptions upsample_options(const Json& self) {
  InterpolateOptions o;
  o.size = ReadArg<Sizes>::from(self["size"]).values();
  const Json& scale = self["scale_factor"];
  if (scale.is_number()) o.scale_factor = {scale.get<double>()};
  if (scale.is_array()) o.scale_factor = scale.get<std::vector<double>>();
  return o;
}
std::vector<Field> upsample_fields(int dims) {
  Field scale =
      list("scale_factor", nullptr, number("", nullptr, "factor").above(0), "factor of the input's size, instead of size");
  return {sizes("size", nullptr, dims, 1, "of the output"), scale.items(1, dims == 0 ? 3 : dims).or_one()};
}

ModuleRow upsample_row() {
  std::vector<Field> fields = upsample_fields(0);
  fields.push_back(choice("mode", "nearest", {"nearest", "nearest-exact", "linear", "bilinear", "bicubic", "trilinear"}, "how"));
  fields.push_back(boolean("align_corners", nullptr, "the corner elements keep their places; not for nearest"));
  fields.push_back(boolean("recompute_scale_factor", false, "positions from the sizes, not from scale_factor"));
  return {{"Upsample", "interpolates to another size", fields}, [](const Json& self) {
            InterpolateOptions o = upsample_options(self);
            o.mode = self["mode"];
            o.align_corners = ReadArg<std::optional<bool>>::from(self["align_corners"]);
            o.recompute_scale_factor = self["recompute_scale_factor"];
            return std::make_shared<Upsample>(o);
          }};
}

template <class M>
ModuleRow upsampling_row(const char* type, const char* doc) {
  return {{type, doc, upsample_fields(2)}, [](const Json& self) { return std::make_shared<M>(upsample_options(self)); }};
}

std::vector<Field> fold_fields() {
  return {sizes("kernel_size", nullptr, 2, 1, "of the window").required(), sizes("dilation", 1, 2, 1, "step within the window"),
          sizes("padding", 0, 2, 0, "zeros around the image"), sizes("stride", 1, 2, 1, "step of the window")};
}
FoldOptions fold_options(const Json& self) {
  const auto of = [&](const char* key) { return ReadArg<Sizes>::from(self[key]); };
  return {.dilation = of("dilation"), .padding = of("padding"), .stride = of("stride")};
}

}  // namespace

Sizes ReadArg<Sizes>::from(const Json& value) {
  if (value.is_null()) return {};
  if (value.is_number()) return value.get<int64_t>();
  Dims each;
  for (const Json& v : value) each.push_back(v.get<int64_t>());
  return each;
}

// The rows of pointwise.def that are layers, by type.
std::map<std::string, ModuleRow> rows_of_ops() {
  std::map<std::string, ModuleRow> out;
#define HS_ONE_OPTION(row, layer, ...) out.emplace(#layer, option_row<layer>(std::string(info_of(Pointwise::row).doc)));
#define HS_TWO_OPTIONS(row, layer, ...) out.emplace(#layer, option_row<layer>(std::string(info_of(Pointwise::row).doc)));
#include "framework/math/pointwise.def"
  return out;
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
  for (auto& [type, row] : of_ops) all.add(std::move(row));  // with no place of their own
}

void add_norm_rows(Catalog<ModuleRow>& all) {
  all.add(running_norm_row<BatchNorm1d, BatchNormOptions>("BatchNorm1d", "normalises channels over the batch [N, C] or [N, C, L]"));
  all.add(running_norm_row<BatchNorm2d, BatchNormOptions>("BatchNorm2d", "normalises channels over the batch [N, C, H, W]"));
  all.add(running_norm_row<BatchNorm3d, BatchNormOptions>("BatchNorm3d", "normalises channels over the batch [N, C, D, H, W]"));
  all.add(
      running_norm_row<InstanceNorm1d, InstanceNormOptions>("InstanceNorm1d", "normalises each channel of each sample, [C, L]"));
  all.add(
      running_norm_row<InstanceNorm2d, InstanceNormOptions>("InstanceNorm2d", "normalises each channel of each sample, [C, H, W]"));
  all.add(running_norm_row<InstanceNorm3d, InstanceNormOptions>("InstanceNorm3d",
                                                                "normalises each channel of each sample, [C, D, H, W]"));
  all.add({{"LayerNorm",
            "normalises over the last dimensions",
            {normalized_shape(), eps(), boolean("elementwise_affine", true, "has weights"),
             boolean("bias", true, "add a bias, where affine")}},
           [](const Json& self) {
             return std::make_shared<LayerNorm>(ReadArg<Sizes>::from(self["normalized_shape"]),
                                                LayerNormOptions{self["eps"], self["elementwise_affine"], self["bias"]});
           }});
  all.add({{"RMSNorm",
            "x / sqrt(mean(x^2) + eps) over the last dimensions",
            {normalized_shape(), number("eps", nullptr, "left out: the dtype's epsilon").at_least(0),
             boolean("elementwise_affine", true, "has weights")}},
           [](const Json& self) {
             return std::make_shared<RMSNorm>(
                 ReadArg<Sizes>::from(self["normalized_shape"]),
                 RMSNormOptions{ReadArg<std::optional<double>>::from(self["eps"]), self["elementwise_affine"]});
           }});
  all.add({{"GroupNorm",
            "normalises groups of channels of each sample",
            {width("num_groups", "groups, which divide the channels").required(), channels("num_channels"), eps(),
             boolean("affine", true, "has weights"), boolean("bias", true, "add a bias, where affine")}},
           [](const Json& self) {
             return std::make_shared<GroupNorm>(self["num_groups"].get<int64_t>(), self["num_channels"].get<int64_t>(),
                                                GroupNormOptions{self["eps"], self["affine"], self["bias"]});
           }});
  all.add(module_row<LocalResponseNorm>("LocalResponseNorm", "x / (k + alpha mean(x^2 of neighbouring channels))^beta",
                                        arg<int64_t>(width("size", "channels").required()), real("alpha", 1e-4, "factor"),
                                        real("beta", 0.75, "exponent"), real("k", 1, "summand")));
  all.add(module_row<UnitNorm>("UnitNorm", "x / max(|x|_p, eps) along a dimension, torch.nn.functional.normalize",
                               arg<double>(number("p", 2.0, "which norm; 2: the length").above(0)),
                               arg<int64_t>(integer("dim", 1, "dimension").at_least(-kMaxDims).at_most(kMaxDims)),
                               arg<double>(number("eps", 1e-12, "least divisor").at_least(0))));
}

void add_dropout_rows(Catalog<ModuleRow>& all) {
  all.add(dropout_row<Dropout>("Dropout", "zeroes inputs with probability p while training"));
  all.add(dropout_row<Dropout1d>("Dropout1d", "zeroes channels of [C, L]"));
  all.add(dropout_row<Dropout2d>("Dropout2d", "zeroes channels of [C, H, W]"));
  all.add(dropout_row<Dropout3d>("Dropout3d", "zeroes channels of [C, D, H, W]"));
  all.add(dropout_row<AlphaDropout>("AlphaDropout", "Dropout that keeps mean and variance, for SELU"));
  all.add(dropout_row<FeatureAlphaDropout>("FeatureAlphaDropout", "AlphaDropout of whole channels"));
}

void add_embedding_rows(Catalog<ModuleRow>& all) {
  all.add({{"Embedding",
            "rows of a matrix, selected by their indices",
            {rows_of_tokens(), width("embedding_dim", "width of a row").required(),
             integer("padding_idx", nullptr, "a row of zeros without gradient").at_least(-kMaxSample).at_most(kMaxSample),
             number("max_norm", nullptr, "largest norm of a row; rows that are used are scaled down to it").above(0),
             number("norm_type", 2.0, "of max_norm").above(0), boolean("scale_grad_by_freq", false, "divide gradients by uses")}},
           [](const Json& self) {
             return std::make_shared<Embedding>(self["num_embeddings"].get<int64_t>(), self["embedding_dim"].get<int64_t>(),
                                                EmbeddingOptions{ReadArg<std::optional<int64_t>>::from(self["padding_idx"]),
                                                                 ReadArg<std::optional<double>>::from(self["max_norm"]),
                                                                 self["norm_type"], self["scale_grad_by_freq"]});
           }});
  all.add({{"EmbeddingBag",
            "mean, sum or maximum of the rows that a sample's indices select",
            {rows_of_tokens(), width("embedding_dim", "width of a row").required(),
             number("max_norm", nullptr, "largest norm of a row; rows that are used are scaled down to it").above(0),
             number("norm_type", 2.0, "of max_norm").above(0), boolean("scale_grad_by_freq", false, "divide gradients by uses"),
             choice("mode", "mean", {"mean", "sum", "max"}, "how"),
             boolean("include_last_offset", false, "of offsets, which configs cannot pass"),
             integer("padding_idx", nullptr, "index that is ignored").at_least(-kMaxSample).at_most(kMaxSample)}},
           [](const Json& self) {
             return make<EmbeddingBag>(
                 self["num_embeddings"].get<int64_t>(), self["embedding_dim"].get<int64_t>(),
                 EmbeddingBagLayerOptions{.max_norm = ReadArg<std::optional<double>>::from(self["max_norm"]),
                                          .norm_type = self["norm_type"],
                                          .scale_grad_by_freq = self["scale_grad_by_freq"],
                                          .mode = self["mode"],
                                          .include_last_offset = self["include_last_offset"],
                                          .padding_idx = ReadArg<std::optional<int64_t>>::from(self["padding_idx"])});
           }});
}

void add_shape_rows(Catalog<ModuleRow>& all) {
  all.add(module_row<Identity>("Identity", "x"));
  all.add(module_row<Flatten>("Flatten", "joins dimensions", whole("start_dim", 1, "first dimension; 0 is the batch"),
                              whole("end_dim", -1, "last dimension")));
  all.add({{"Unflatten",
            "splits a dimension into several",
            {integer("dim", nullptr, "dimension; 0 is the batch").required(),
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
  all.add(pad_row<ZeroPad1d>("ZeroPad1d", 1, "zeros around [C, L]"));
  all.add(pad_row<ZeroPad2d>("ZeroPad2d", 2, "zeros around [C, H, W]"));
  all.add(pad_row<ZeroPad3d>("ZeroPad3d", 3, "zeros around [C, D, H, W]"));
  const auto value = arg<double>(number("value", nullptr, "value of the padding").required());
  all.add(module_row<ConstantPad1d>("ConstantPad1d", "a number around [C, L]", arg<Sizes>(pad_sizes(1)), value));
  all.add(module_row<ConstantPad2d>("ConstantPad2d", "a number around [C, H, W]", arg<Sizes>(pad_sizes(2)), value));
  all.add(module_row<ConstantPad3d>("ConstantPad3d", "a number around [C, D, H, W]", arg<Sizes>(pad_sizes(3)), value));
  all.add(pad_row<ReflectionPad1d>("ReflectionPad1d", 1, "[C, L] mirrored at its ends, which are not repeated"));
  all.add(pad_row<ReflectionPad2d>("ReflectionPad2d", 2, "[C, H, W] mirrored at its edges, which are not repeated"));
  all.add(pad_row<ReflectionPad3d>("ReflectionPad3d", 3, "[C, D, H, W] mirrored at its faces, which are not repeated"));
  all.add(pad_row<ReplicationPad1d>("ReplicationPad1d", 1, "the ends of [C, L] repeated"));
  all.add(pad_row<ReplicationPad2d>("ReplicationPad2d", 2, "the edges of [C, H, W] repeated"));
  all.add(pad_row<ReplicationPad3d>("ReplicationPad3d", 3, "the faces of [C, D, H, W] repeated"));
  all.add(pad_row<CircularPad1d>("CircularPad1d", 1, "the other end of [C, L]"));
  all.add(pad_row<CircularPad2d>("CircularPad2d", 2, "the other edge of [C, H, W]"));
  all.add(pad_row<CircularPad3d>("CircularPad3d", 3, "the other face of [C, D, H, W]"));
  all.add(module_row<PixelShuffle>("PixelShuffle", "[C r^2, H, W] to [C, H r, W r]", arg<int64_t>(factor("upscale_factor"))));
  all.add(module_row<PixelUnshuffle>("PixelUnshuffle", "[C, H r, W r] to [C r^2, H, W]", arg<int64_t>(factor("downscale_factor"))));
  all.add(module_row<ChannelShuffle>("ChannelShuffle", "interleaves the channels of the groups",
                                     arg<int64_t>(width("groups", "groups, which divide the channels").required())));
  all.add(upsample_row());
  all.add(upsampling_row<UpsamplingNearest2d>("UpsamplingNearest2d", "Upsample by nearest"));
  all.add(upsampling_row<UpsamplingBilinear2d>("UpsamplingBilinear2d", "Upsample by bilinear with align_corners"));
  all.add({{"Unfold", "windows of [C, H, W] as columns, [C kh kw, L]", fold_fields()}, [](const Json& self) {
             return std::make_shared<Unfold>(ReadArg<Sizes>::from(self["kernel_size"]), fold_options(self));
           }});
  std::vector<Field> fold = fold_fields();
  fold.insert(fold.begin(), sizes("output_size", nullptr, 2, 1, "H and W").required());
  all.add({{"Fold", "columns [C kh kw, L] to [C, H, W], summed where windows overlap", fold}, [](const Json& self) {
             return std::make_shared<Fold>(ReadArg<Sizes>::from(self["output_size"]), ReadArg<Sizes>::from(self["kernel_size"]),
                                           fold_options(self));
           }});
}

}  // namespace halfstep::app
