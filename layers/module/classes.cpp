// SPDX-License-Identifier: Apache-2.0
// Registers the library's layers for clone(), which can copy only registered classes.
#include "layers/layers.h"

namespace halfstep {
namespace {

template <class... Ms>
void register_all() {
  (register_class(typeid(Ms), class_functions<Ms>()), ...);
}

}  // namespace

void register_library_layers() {
  register_all<
      AdaptiveAvgPool1d, AdaptiveAvgPool2d, AdaptiveAvgPool3d, AdaptiveLogSoftmaxWithLoss, AdaptiveMaxPool1d, AdaptiveMaxPool2d,
      AdaptiveMaxPool3d, AlphaDropout, AvgPool1d, AvgPool2d, AvgPool3d, BatchNorm1d, BatchNorm2d, BatchNorm3d, Bilinear,
      ChannelShuffle, CircularPad1d, CircularPad2d, CircularPad3d, ConstantPad1d, ConstantPad2d, ConstantPad3d, Conv1d, Conv2d,
      Conv3d, ConvTranspose1d, ConvTranspose2d, ConvTranspose3d, Dropout, Dropout1d, Dropout2d, Dropout3d, Embedding, EmbeddingBag,
      FeatureAlphaDropout, Flatten, Fold, FractionalMaxPool2d, FractionalMaxPool3d, FunctionLayer, GELU, GLU, GRU, GRUCell, Graph,
      GroupNorm, Hardsigmoid, Hardswish, Hardtanh, Identity, InstanceNorm1d, InstanceNorm2d, InstanceNorm3d, LPPool1d, LPPool2d,
      LPPool3d, LSTM, LSTMCell, LayerNorm, LazyBatchNorm1d, LazyBatchNorm2d, LazyBatchNorm3d, LazyConv1d, LazyConv2d, LazyConv3d,
      LazyConvTranspose1d, LazyConvTranspose2d, LazyConvTranspose3d, LazyInstanceNorm1d, LazyInstanceNorm2d, LazyInstanceNorm3d,
      LazyLinear, Linear, LocalResponseNorm, LogSigmoid, LogSoftmax, MaxPool1d, MaxPool2d, MaxPool3d, MaxUnpool1d, MaxUnpool2d,
      MaxUnpool3d, Mish, ModuleDict, ModuleList, MultiheadAttention, NonDynamicallyQuantizableLinear, Orthogonal, PReLU, Parallel,
      ParameterDict, ParameterList, ParametrizationList, Permute, PixelShuffle, PixelUnshuffle, PositionEmbedding,
      PositionalEncoding, RMSNorm, RNN, RNNCell, RReLU, ReLU, ReLU6, ReflectionPad1d, ReflectionPad2d, ReflectionPad3d,
      ReplicationPad1d, ReplicationPad2d, ReplicationPad3d, Residual, RotaryEmbedding, SELU, Sequential, SiLU, Sigmoid, Softmax,
      Softmax2d, Softmin, Softsign, SpectralNorm, SyncBatchNorm, Tanh, Tanhshrink, Threshold, Transformer, TransformerDecoder,
      TransformerDecoderLayer, TransformerEncoder, TransformerEncoderLayer, Unflatten, Unfold, UnitNorm, Upsample,
      UpsamplingBilinear2d, UpsamplingNearest2d, WeightNorm, ZeroPad1d, ZeroPad2d, ZeroPad3d>();
#define HS_ONE_OPTION(row, layer, ...) register_all<layer>();
#define HS_TWO_OPTIONS(row, layer, ...) register_all<layer>();
#include "framework/math/pointwise.def"
}

}  // namespace halfstep
