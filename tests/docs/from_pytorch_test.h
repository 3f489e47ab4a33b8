// SPDX-License-Identifier: Apache-2.0
// Definitions for the lines of docs/from_pytorch.md, each of which tests/docs/snippets.py makes a test case.
#pragma once

#include <doctest/doctest.h>

#include <filesystem>
#include <iostream>
#include <vector>

#include "halfstep.h"
#include "tests/docs/temp_dir.h"
#include "tests/support/source_dir.h"

using namespace halfstep;
using namespace halfstep::indexing;

#define HS_VARIABLES                                                                                                               \
  const InTempDir there;                                                                                                           \
  manual_seed(1);                                                                                                                  \
  [[maybe_unused]] Tensor x = rand({4, 5}), y = rand({4, 5}) + 0.1, w = rand({4, 5}).set_requires_grad();                          \
  w.square().sum().backward();                                                                                                     \
  [[maybe_unused]] const Tensor mask = x > 0.5, rows = tensor({0, 3, 1}, {.dtype = DType::i64}), a = arange(3.0), b = arange(4.0), \
                                square = eye(3) + 0.1, classes = arange(4), index = zeros({4, 5}, {.dtype = DType::i64});          \
  [[maybe_unused]] const Tensor images = rand({2, 3, 4, 4});                                                                       \
  [[maybe_unused]] std::vector<float> values{1, 2, 3, 4, 5, 6};                                                                    \
  [[maybe_unused]] const Device device = Device::cpu;                                                                              \
  Sequential model(std::make_shared<Linear>(5, 5));                                                                                \
  save(model, "m.safetensors");                                                                                                    \
  std::filesystem::copy_file(halfstep_source_dir() + "/tests/io/torch/linear.pt", "m.pt");                                         \
  SGD optimizer(model.parameters(), {.lr = 0.1});                                                                                  \
  GradScaler scaler;
