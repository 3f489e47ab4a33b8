// Types that other frameworks have and this one does not have yet, by kind: a config that names one is told so.
#include <map>

#include "apps/schema/schema.h"

namespace halfstep::app {

std::vector<std::string> planned_components(const std::string& what) {
  static const std::map<std::string, std::vector<std::string>> all = {
      {"layer",
       {"Conv1d",
        "Conv2d",
        "Conv3d",
        "ConvTranspose2d",
        "MaxPool2d",
        "AvgPool2d",
        "AdaptiveAvgPool2d",
        "BatchNorm1d",
        "BatchNorm2d",
        "LayerNorm",
        "GroupNorm",
        "RMSNorm",
        "Embedding",
        "RNN",
        "LSTM",
        "GRU",
        "LSTMCell",
        "GRUCell",
        "MultiheadAttention",
        "TransformerEncoderLayer",
        "Residual",
        "Parallel",
        "Repeat",
        "LeakyReLU",
        "ELU",
        "SELU",
        "Mish",
        "Hardswish",
        "Softplus",
        "PReLU",
        "LogSoftmax",
        "Dropout2d",
        "Bilinear",
        "Unflatten"}},
      {"loss", {"L1Loss", "SmoothL1Loss", "HuberLoss", "NLLLoss", "BCELoss", "BCEWithLogitsLoss", "KLDivLoss", "CTCLoss"}},
      {"optimizer", {"RMSprop", "Adagrad", "Adadelta", "Adamax", "NAdam", "RAdam", "LBFGS", "Lion", "LAMB", "Muon", "Adafactor"}},
      {"scheduler",
       {"MultiStepLR", "ExponentialLR", "CosineAnnealingWarmRestarts", "OneCycleLR", "PolynomialLR", "LinearLR", "ConstantLR",
        "CyclicLR", "ReduceLROnPlateau", "SequentialLR"}},
      {"data set", {"CIFAR10", "CIFAR100", "FashionMNIST", "Text", "ImageFolder", "NPY", "TimeSeries"}},
      {"metric", {"top5", "perplexity", "bits_per_char"}},
      {"transform", {"RandomCrop", "RandomHorizontalFlip", "RandomRotation", "RandomErasing", "ColorJitter", "Mixup", "CutMix"}},
  };
  const auto found = all.find(what);
  return found == all.end() ? std::vector<std::string>{} : found->second;
}

}  // namespace halfstep::app
