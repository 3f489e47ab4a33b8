// SPDX-License-Identifier: Apache-2.0
// One rule for all constructors: required arguments by position, optional ones in braces under PyTorch's names; what does not fit
// does not compile, and what is outside the domain of an option is refused as its list says.
#include <doctest/doctest.h>

#include <concepts>
#include <string>
#include <vector>

#include "layers/layers.h"
#include "tests/support/damaged_options.h"
#include "tests/support/errors.h"

using namespace halfstep;
using namespace halfstep::testing;

namespace {

// Both ways of writing a layer make the same one.
template <class M>
void same(const M& by_name, const M& by_position) {
  CHECK(by_name.describe() == by_position.describe());
}

// `Type` from these argument types.
template <class Type, class... Arguments>
constexpr bool makes = std::is_constructible_v<Type, Arguments...>;

template <class O>
constexpr bool by_braces = requires {
  O{2, 1};
}
|| requires { O{2}; };
template <class S>
constexpr bool by_name = requires(void (*f)(const S&)) {
  f({.stride = 2, .padding = 1});
};

template <class... Types>
constexpr bool none_of_bools = !(makes<Types, bool> || ...);

}  // namespace

TEST_CASE("what PyTorch's users write by position") {
  same(Linear(5, 4, false), Linear(5, 4, {.bias = false}));
  same(Conv1d(4, 8, 3, 2, 1), Conv1d(4, 8, 3, {.stride = 2, .padding = 1}));
  same(Conv2d(4, 8, 3, 2), Conv2d(4, 8, 3, {.stride = 2}));
  same(Conv2d(4, 8, 3, 1, "same", {.bias = false}), Conv2d(4, 8, 3, {.padding = "same", .bias = false}));
  same(Conv3d(4, 8, 3, 2, {.groups = 2}), Conv3d(4, 8, 3, {.stride = 2, .groups = 2}));
  same(ConvTranspose2d(4, 8, 3, 2, 1, {.output_padding = 1}),
       ConvTranspose2d(4, 8, 3, {.stride = 2, .padding = 1, .output_padding = 1}));
  same(MaxPool1d(3, 2, 1), MaxPool1d(3, {.stride = 2, .padding = 1}));
  same(MaxPool2d(2, 2), MaxPool2d(2, {.stride = 2}));
  same(AvgPool2d(3, 2, 1), AvgPool2d(3, {.stride = 2, .padding = 1}));
  same(MaxUnpool2d(2, 2), MaxUnpool2d(2, {.stride = 2}));
  same(LSTM(5, 8, 2, {.batch_first = true}), LSTM(5, 8, {.num_layers = 2, .batch_first = true}));
  same(RNN(5, 8, 2), RNN(5, 8, {.num_layers = 2}));
  same(GRU(5, 8, 2), GRU(5, 8, {.num_layers = 2}));
  // The first option of a layer without required arguments.
  same(ELU(2), ELU({.alpha = 2}));
  same(CELU(2.0), CELU({.alpha = 2}));
  same(LeakyReLU(0.2), LeakyReLU({.negative_slope = 0.2}));
  same(Hardshrink(1), Hardshrink({.lambd = 1}));
  same(Softshrink(1), Softshrink({.lambd = 1}));
  same(Softplus(2), Softplus({.beta = 2}));
  same(GLU(1), GLU({.dim = 1}));
  same(GELU("tanh"), GELU({.approximate = "tanh"}));
  same(Softmax(1), Softmax({.dim = 1}));
  same(Softmin(1), Softmin({.dim = 1}));
  same(LogSoftmax(1), LogSoftmax({.dim = 1}));
  same(PReLU(3), PReLU({.num_parameters = 3}));
  same(Flatten(0), Flatten({.start_dim = 0}));
  same(Dropout(0.1), Dropout({.p = 0.1}));
  same(Dropout2d(0.1), Dropout2d({.p = 0.1}));
  same(UnitNorm(1), UnitNorm({.p = 1}));
}

TEST_CASE("describe() prints what the lists say") {
  CHECK(Embedding(10, 3, {.padding_idx = 0}).describe() == "Embedding(10, 3, padding_idx=0)");
  CHECK(RNNCell(5, 8, {.nonlinearity = "relu"}).describe() == "RNNCell(5, 8, nonlinearity=relu)");
  CHECK(EmbeddingBag(4, 2).describe() == "EmbeddingBag(4, 2, mode='mean')");
  CHECK(GELU().describe() == "GELU(approximate='none')");
  CHECK(Softshrink().describe() == "Softshrink(0.5)");
  CHECK(Hardtanh({.min_val = -2, .max_val = 2}).describe() == "Hardtanh(min_val=-2.0, max_val=2.0)");
  CHECK(BatchNorm2d(8, {.momentum = std::nullopt}).describe().find("momentum=None") != std::string::npos);
  CHECK(TransformerEncoder(TransformerEncoderLayer(8, 2, {.dim_feedforward = 8}), 2, LayerNorm(8)).layers->size() == 2);
  CHECK(TransformerDecoder(TransformerDecoderLayer(8, 2, {.dim_feedforward = 8}), 2).layers->size() == 2);
}

namespace {

template <class M, class... Required>
int check_layer(const Required&... required) {
  using O = typename M::Options;
  return check_damaged(M::kName, O(), [&](const O& o) { M(required..., o); });
}

}  // namespace

TEST_CASE("every option of every layer and loss refuses what is outside its domain") {
  int tried = 0;
  const auto add = [&](auto... each) { ((tried += each), ...); };
  add(check_layer<ELU>(), check_layer<CELU>(), check_layer<LeakyReLU>(), check_layer<Hardshrink>(), check_layer<Softshrink>(),
      check_layer<Softplus>(), check_layer<Hardtanh>(), check_layer<GLU>(), check_layer<GELU>(), check_layer<Softmax>(),
      check_layer<PReLU>(), check_layer<RReLU>(), check_layer<Flatten>(), check_layer<Unfold>(2), check_layer<Fold>(4, 2));
  add(check_layer<Dropout>(), check_layer<Dropout1d>(), check_layer<AlphaDropout>(), check_layer<FeatureAlphaDropout>());
  add(check_layer<BatchNorm1d>(2), check_layer<InstanceNorm3d>(2), check_layer<LayerNorm>(2), check_layer<RMSNorm>(2),
      check_layer<GroupNorm>(1, 2), check_layer<LocalResponseNorm>(2), check_layer<UnitNorm>());
  add(check_layer<Conv1d>(1, 1, 1), check_layer<Conv2d>(1, 1, 1), check_layer<ConvTranspose3d>(1, 1, 1), check_layer<MaxPool2d>(2),
      check_layer<AvgPool3d>(2), check_layer<LPPool1d>(2.0, 2), check_layer<MaxUnpool2d>(2));
  add(check_layer<Linear>(1, 1), check_layer<Embedding>(3, 1), check_layer<EmbeddingBag>(3, 1), check_layer<RNN>(1, 2),
      check_layer<LSTM>(1, 2), check_layer<GRU>(1, 2), check_layer<RNNCell>(1, 1), check_layer<LSTMCell>(1, 1),
      check_layer<GRUCell>(1, 1), check_layer<MultiheadAttention>(2, 1), check_layer<TransformerEncoderLayer>(2, 1),
      check_layer<PositionalEncoding>(2), check_layer<PositionEmbedding>(2, 2), check_layer<RotaryEmbedding>(2));
  add(check_layer<MSELoss>(), check_layer<SmoothL1Loss>(), check_layer<HuberLoss>(), check_layer<PoissonNLLLoss>(),
      check_layer<KLDivLoss>(), check_layer<BCELoss>(), check_layer<BCEWithLogitsLoss>(), check_layer<HingeEmbeddingLoss>(),
      check_layer<CrossEntropyLoss>(), check_layer<NLLLoss>(), check_layer<MultiMarginLoss>(),
      check_layer<MultiLabelSoftMarginLoss>());
  CHECK(tried > 100);
}

namespace {

template <class M, class... Usual>
int check_required(const Usual&... usual) {
  return check_damaged_arguments<M>(M::arguments(), usual...);
}

}  // namespace

TEST_CASE("every required argument of every layer refuses what is outside its domain") {
  int tried = 0;
  const auto add = [&](auto... each) { ((tried += each), ...); };
  add(check_required<Linear>(1, 1), check_required<Bilinear>(1, 1, 1), check_required<Conv2d>(1, 1, 1),
      check_required<ConvTranspose1d>(1, 1, 1), check_required<BatchNorm1d>(1), check_required<InstanceNorm2d>(1),
      check_required<LayerNorm>(1), check_required<RMSNorm>(1), check_required<GroupNorm>(1, 1),
      check_required<LocalResponseNorm>(1));
  add(check_required<MaxPool1d>(1), check_required<AvgPool2d>(1), check_required<MaxUnpool3d>(1), check_required<LPPool1d>(2, 1),
      check_required<Unflatten>(1, std::vector<int64_t>{2}), check_required<Permute>(std::vector<int64_t>{0, 1}),
      check_required<PixelShuffle>(1), check_required<PixelUnshuffle>(1), check_required<ChannelShuffle>(1),
      check_required<Unfold>(1), check_required<Fold>(1, 1));
  add(check_required<Embedding>(1, 1), check_required<EmbeddingBag>(1, 1), check_required<RNN>(1, 1), check_required<LSTM>(1, 1),
      check_required<GRU>(1, 1), check_required<RNNCell>(1, 1), check_required<LSTMCell>(1, 1), check_required<GRUCell>(1, 1),
      check_required<MultiheadAttention>(1, 1), check_required<TransformerEncoderLayer>(1, 1),
      check_required<TransformerDecoderLayer>(1, 1), check_required<PositionalEncoding>(1), check_required<PositionEmbedding>(1, 1),
      check_required<RotaryEmbedding>(2));
  CHECK(tried > 50);
}

TEST_CASE("{} is nothing given, not zero") {
  same(Linear(5, 4, {}), Linear(5, 4));
  same(LSTMCell(5, 8, {}), LSTMCell(5, 8));
  same(LSTM(5, 8, {}), LSTM(5, 8));
  same(GRU(5, 8, {}), GRU(5, 8));
}

TEST_CASE("every loss takes its optional arguments in braces") {
  const Tensor x = tensor({0.5, 2.0}), y = tensor({0.0, 1.0}), sign = tensor({1.0, -1.0}), rows = tensor({1, 2, 3, 4}, {2, 2});
  const auto equal = [](const Tensor& a, const Tensor& b) { CHECK(a.to_vector<float>() == b.to_vector<float>()); };
  const auto sum_ = Reduction::sum;
  equal(MSELoss({.reduction = sum_})(x, y), mse_loss(x, y, sum_));
  equal(L1Loss({.reduction = sum_})(x, y), l1_loss(x, y, sum_));
  equal(SmoothL1Loss({.beta = 2})(x, y), smooth_l1_loss(x, y, Reduction::mean, 2));
  equal(HuberLoss({.reduction = sum_, .delta = 2})(x, y), huber_loss(x, y, sum_, 2));
  equal(KLDivLoss({.reduction = KlReduction::batchmean, .log_target = true})(x, y), kl_div(x, y, KlReduction::batchmean, true));
  equal(SoftMarginLoss({.reduction = sum_})(x, sign), soft_margin_loss(x, sign, sum_));
  equal(HingeEmbeddingLoss({.margin = 2, .reduction = sum_})(x, sign), hinge_embedding_loss(x, sign, 2, sum_));
  equal(MultiLabelSoftMarginLoss({.weight = x})(rows, rows * 0.0), multilabel_soft_margin_loss(rows, rows * 0.0, x));
  const Tensor classes = arange(2);
  equal(MultiLabelMarginLoss({.reduction = sum_})(rows, rows * 0.0),
        multilabel_margin_loss(rows, (rows * 0.0).to(DType::i64), sum_));
  equal(CrossEntropyLoss({.label_smoothing = 0.1})(rows, classes), cross_entropy(rows, classes, {.label_smoothing = 0.1}));
  equal(NLLLoss({.reduction = sum_})(rows, classes), nll_loss(rows, classes, {.reduction = sum_}));
  equal(BCELoss({.reduction = sum_})(y, y), binary_cross_entropy(y, y, {}, sum_));
  equal(BCEWithLogitsLoss({.pos_weight = x})(x, y), binary_cross_entropy_with_logits(x, y, {.pos_weight = x}));
  equal(PoissonNLLLoss({.log_input = false})(x, y), poisson_nll_loss(x, y, {.log_input = false}));
  equal(MultiMarginLoss({.p = 2})(rows, classes), multi_margin_loss(rows, classes, {.p = 2}));
  equal(GaussianNLLLoss({.full = true})(x, y, x), gaussian_nll_loss(x, y, x, {.full = true}));
  equal(TripletMarginLoss({.margin = 2})(rows, rows, rows + 1.0), triplet_margin_loss(rows, rows, rows + 1.0, {.margin = 2}));
  equal(CosineEmbeddingLoss({.margin = 0.5})(rows, rows + 1.0, sign), cosine_embedding_loss(rows, rows + 1.0, sign, 0.5));
  equal(MarginRankingLoss({.margin = 0.5})(x, y, sign), margin_ranking_loss(x, y, sign, 0.5));
  equal(PairwiseDistance({.p = 1})(rows, rows + 1.0), pairwise_distance(rows, rows + 1.0, 1));
  equal(CosineSimilarity({.dim = 0})(rows, rows + 1.0), cosine_similarity(rows, rows + 1.0, 0));
  CHECK(CTCLoss({.zero_infinity = true}).options.zero_infinity);
}

TEST_CASE("a bool is no number, a fraction no whole number, and a number no bool") {
  static_assert(makes<Linear, int, int> && makes<Linear, int64_t, size_t, bool>);
  static_assert(!makes<Linear, int, double> && !makes<Linear, bool, int> && !makes<Linear, int, int, int>);
  static_assert(!makes<Linear, int, int, const char*> && !makes<Linear, int, int, double>);
  static_assert(
      none_of_bools<ELU, CELU, LeakyReLU, Hardshrink, Softshrink, Softplus, GLU, GELU, Softmax, Softmin, LogSoftmax, PReLU, Flatten,
                    Dropout, Dropout1d, Dropout2d, Dropout3d, AlphaDropout, FeatureAlphaDropout, PixelShuffle, LayerNorm,
                    BatchNorm1d, MaxPool2d, AvgPool1d, AdaptiveAvgPool2d, ZeroPad2d, ReLU, HingeEmbeddingLoss>);
  static_assert(!makes<Softmax, double> && !makes<Flatten, double> && !makes<PReLU, double> && !makes<GLU, float>);
  static_assert(!makes<Conv2d, int, int, int, bool> && !makes<Conv2d, int, int, double> && !makes<MaxPool2d, int, double>);
  static_assert(!makes<LSTM, int, int, bool> && !makes<LSTM, int, int, double> && !makes<LSTMCell, int, int, int>);
  static_assert(!makes<Embedding, int, double> && !makes<MultiheadAttention, int, double> &&
                !makes<TransformerEncoderLayer, int, bool>);
  static_assert(!makes<Threshold, bool, bool>);
  static_assert(!makes<MSELoss, int> && !makes<HuberLoss, double> && !makes<KLDivLoss, Reduction>);
}

TEST_CASE("options of windows are taken by name only") {
  // PyTorch's MaxPool2d(3, (2, 1)) has two strides; {2, 1} must not be a stride and a padding.
  static_assert(!by_braces<ConvLayerOptions> && !by_braces<ConvTransposeLayerOptions> && !by_braces<MaxPoolLayerOptions>);
  static_assert(!by_braces<AvgPoolLayerOptions> && !by_braces<LPPoolLayerOptions> && !by_braces<MaxUnpoolLayerOptions>);
  static_assert(!by_braces<FoldOptions>);
  // Names in braces are no list of sizes.
  static_assert(!by_name<Sizes>);
  CHECK(MaxPool2d({3, 2}, {.stride = {2, 1}}).describe() ==
        "MaxPool2d(kernel_size=(3, 2), stride=(2, 1), padding=0, dilation=1, ceil_mode=False)");
  CHECK(MaxPool2d({3, 2}, Sizes{2, 1}).describe() == MaxPool2d({3, 2}, {.stride = {2, 1}}).describe());
  refuses<ValueError>("[options] stride is given twice, by position and by name", [] { Conv2d(1, 1, 3, 2, {.stride = 3}); });
  refuses<ValueError>("[options] padding is given twice, by position and by name", [] { Conv2d(1, 1, 3, 2, 1, {.padding = 2}); });
  refuses<ValueError>("[options] num_layers is given twice, by position and by name", [] { LSTM(2, 3, 2, {.num_layers = 3}); });
}

TEST_CASE("FractionalMaxPool draws its windows at each call, also in evaluation, from the generator that it is given") {
  Generator a(3), b(3);
  FractionalMaxPool2d pool(2, {.output_ratio = 0.6, .generator = &a});
  pool.eval();
  const Tensor x = arange(200).to(DType::f32).reshape({1, 2, 10, 10});
  const Tensor first = pool(x), second = pool(x);
  CHECK(first.shape() == Shape{1, 2, 6, 6});
  CHECK(!first.equal(second));
  CHECK(first.equal(fractional_max_pool2d(x, 2, {.output_ratio = 0.6, .generator = &b})));
  const auto [values, indices] = pool.forward_with_indices(x);
  CHECK(values.equal(x.flatten(2).gather(2, indices.flatten(2)).reshape(values.shape())));
  // The last window ends at the end, whatever the numbers are.
  CHECK(values[0][1][5][5].item() == 199);
}
