// SPDX-License-Identifier: Apache-2.0
// ResNet-18 (He et al., 2015) with torchvision's names, so that weights can be exchanged with it in both directions.
#pragma once

#include <cstdint>
#include <string>

#include "halfstep.h"

using namespace halfstep;

inline Conv2d conv(int64_t in, int64_t out, int64_t kernel, int64_t stride) {
  Conv2d made(in, out, kernel, {.stride = stride, .padding = kernel / 2, .bias = false});
  init::kaiming_normal_(made.weight, 0, "fan_out", "relu");
  return made;
}

struct BasicBlock : Module {
  Part<Conv2d> conv1, conv2;
  Part<BatchNorm2d> bn1, bn2;
  Part<Sequential> downsample;
  BasicBlock(int64_t in, int64_t out, int64_t stride) {
    conv1 = add("conv1", conv(in, out, 3, stride));
    bn1 = add("bn1", BatchNorm2d(out));
    conv2 = add("conv2", conv(out, out, 3, 1));
    bn2 = add("bn2", BatchNorm2d(out));
    if (stride != 1 || in != out) downsample = add("downsample", Sequential{conv(in, out, 1, stride), BatchNorm2d(out)});
  }
  Tensor forward(const Tensor& x) override {
    const Tensor y = conv2(bn1->relu(conv1(x)));
    return bn2->add_relu(y, downsample ? downsample(x) : x);
  }
  bool is_recordable() const override { return true; }
};

struct ResNet18 : Module {
  Part<Conv2d> conv1;
  Part<BatchNorm2d> bn1;
  Part<Sequential> layers[4];
  Part<Linear> fc;
  explicit ResNet18(int64_t classes = 1000, int64_t width = 64, int64_t channels = 3) {
    conv1 = add("conv1", conv(channels, width, 7, 2));
    bn1 = add("bn1", BatchNorm2d(width));
    for (int64_t i = 0, in = width; i < 4; ++i) {
      const int64_t out = width << i;
      layers[i] = add("layer" + std::to_string(i + 1), Sequential{BasicBlock(in, out, i ? 2 : 1), BasicBlock(out, out, 1)});
      in = out;
    }
    fc = add("fc", Linear(8 * width, classes));
  }
  Tensor forward(const Tensor& images) override {
    Tensor x = max_pool2d(bn1->relu(conv1(images)), 3, {.stride = 2, .padding = 1});
    for (const auto& layer : layers) x = layer(x);
    return fc(x.mean({2, 3}));
  }
  bool is_recordable() const override { return true; }
};
