// SPDX-License-Identifier: Apache-2.0
#include "apps/catalog/rows/dataset_examples.h"

#include <algorithm>
#include <array>

namespace halfstep::app {
namespace {

constexpr const char* kClasses = "CrossEntropyLoss";
constexpr const char* kNumbers = "MSELoss";

constexpr const char* kMlp = R"({"type": "MLP", "hidden": [64]})";
constexpr const char* kConvolutions = R"({"type": "Sequential", "layers": [
    {"type": "Conv2d", "out_channels": 16, "kernel_size": 3, "padding": 1}, "ReLU",
    {"type": "MaxPool2d", "kernel_size": 2},
    {"type": "Conv2d", "out_channels": 32, "kernel_size": 3, "padding": 1}, "ReLU",
    {"type": "AdaptiveAvgPool2d", "output_size": 4}, "Flatten", {"type": "Linear", "out_features": "auto"}]})";
constexpr const char* kTokens = R"({"type": "Sequential", "layers": [
    {"type": "Embedding", "num_embeddings": "auto", "embedding_dim": 64}, {"type": "LSTM", "hidden_size": 128},
    {"type": "Linear", "out_features": "auto"}]})";
constexpr const char* kLastState = R"({"type": "Sequential", "layers": [
    {"type": "LSTM", "hidden_size": 64, "output": "last"}, {"type": "Linear", "out_features": "auto"}]})";
constexpr const char* kStrips = R"({"type": "Sequential", "layers": [
    {"type": "Conv2d", "out_channels": 8, "kernel_size": 5, "stride": 4, "padding": 2}, "ReLU",
    {"type": "Permute", "dims": [0, 3, 1, 2]}, {"type": "Flatten", "start_dim": 2},
    {"type": "LSTM", "hidden_size": 64, "bidirectional": true},
    {"type": "Linear", "out_features": "auto"}, {"type": "LogSoftmax", "dim": -1}]})";

struct Example {
  const char *type, *data, *model, *loss;
};

constexpr std::array kExamples = {
    Example{"MNIST", R"("root": "data/mnist",
    "train": {"type": "MNIST", "transforms": [{"type": "Normalize", "preset": "mnist"}]},
    "val": {"type": "MNIST", "transforms": [{"type": "Normalize", "preset": "mnist"}]})",
            kConvolutions, kClasses},
    Example{"FashionMNIST", R"("root": "data/fashion-mnist",
    "train": {"type": "FashionMNIST", "transforms": [{"type": "RandomHorizontalFlip"}]},
    "val": {"type": "FashionMNIST"})",
            kConvolutions, kClasses},
    Example{"KMNIST", R"("root": "data/kmnist",
    "train": {"type": "KMNIST"},
    "val": {"type": "KMNIST"})",
            kConvolutions, kClasses},
    Example{"EMNIST", R"("root": "data/emnist", "part": "letters",
    "train": {"type": "EMNIST"},
    "val": {"type": "EMNIST"})",
            kConvolutions, kClasses},
    Example{"ImageFolder", R"("root": "data/pets", "size": 64,
    "train": {"type": "ImageFolder", "path": "train", "transforms": [
      {"type": "RandomHorizontalFlip"}, {"type": "Normalize", "from": "data"}]},
    "val": {"type": "ImageFolder", "path": "val", "transforms": [{"type": "Normalize", "from": "data"}]})",
            kConvolutions, kClasses},
    Example{"CIFAR10", R"("root": "data/cifar10",
    "train": {"type": "CIFAR10", "transforms": [
      {"type": "RandomCrop", "size": 32, "padding": 4}, {"type": "RandomHorizontalFlip"}]},
    "val": {"type": "CIFAR10"})",
            kConvolutions, kClasses},
    Example{"CIFAR100", R"("root": "data/cifar100", "labels": "coarse",
    "train": {"type": "CIFAR100"},
    "val": {"type": "CIFAR100"})",
            kConvolutions, kClasses},
    Example{"CSV", R"("type": "CSV", "path": "houses.csv", "target": "price", "task": "regression",
    "standardize": true, "standardize_target": true, "missing": "median",
    "train": {"range": [0, 0.8]},
    "val": {"range": [0.8, 1]})",
            kMlp, kNumbers},
    Example{"TimeSeries", R"("type": "TimeSeries", "path": "sales.csv", "time": "date", "columns": ["sales", "visitors"],
    "target": "sales", "missing": "interpolate", "window": 28, "horizon": 7,
    "train": {"range": [0, 0.8]},
    "val": {"range": [0.8, 1]})",
            kMlp, kNumbers},
    Example{"NPY", R"("train": {"type": "NPY", "input": "train_x.npy", "target": "train_y.npy"},
    "val": {"type": "NPY", "input": "val_x.npy", "target": "val_y.npy"})",
            kMlp, kClasses},
    Example{"NPZ", R"("type": "NPZ", "path": "signals.npz", "input": "x", "target": "y",
    "train": {"range": [0, 0.8]},
    "val": {"range": [0.8, 1]})",
            kMlp, kClasses},
    Example{"Safetensors", R"("type": "Safetensors", "path": "signals.safetensors", "input": "x", "target": "y",
    "train": {"range": [0, 0.8]},
    "val": {"range": [0.8, 1]})",
            kMlp, kClasses},
    Example{"Text", R"("type": "Text", "path": "novel.txt", "tokenizer": "char", "seq_len": 64,
    "train": {"range": [0, 0.9]},
    "val": {"range": [0.9, 1]})",
            kTokens, kClasses},
    Example{"Digits", R"("train": {"type": "Digits"},
    "val": {"type": "Digits"})",
            kConvolutions, kClasses},
    Example{"Random", R"("train": {"type": "Random", "num_batches": 10, "input_shape": [16], "classes": 4})", kMlp, kClasses},
    Example{"Spirals", R"("type": "Spirals", "arms": 3, "train": {}, "val": {})", kMlp, kClasses},
    Example{"Sines", R"("type": "Sines", "window": 32, "horizon": 4, "train": {}, "val": {})", kMlp, kNumbers},
    Example{"CopyTask", R"("type": "CopyTask", "length": 5, "wait": 10, "train": {}, "val": {})", kTokens, kClasses},
    Example{"Adding", R"("type": "Adding", "length": 30, "train": {}, "val": {})", kLastState, kNumbers},
    Example{"DigitStrips", R"("type": "DigitStrips", "min_digits": 2, "max_digits": 4, "train": {}, "val": {})", kStrips,
            "CTCLoss"},
};

}  // namespace

std::string dataset_example(std::string_view type) {
  const auto* const found = std::find_if(kExamples.begin(), kExamples.end(), [&](const Example& e) { return type == e.type; });
  if (found == kExamples.end()) return "";
  return std::string("{\n  \"data\": {\n    ") + found->data + "},\n  \"model\": " + found->model + ",\n  \"loss\": \"" +
         found->loss + "\",\n  \"optimizer\": {\"type\": \"AdamW\", \"lr\": 0.001},\n  \"train\": {\"epochs\": 10}\n}\n";
}

}  // namespace halfstep::app
