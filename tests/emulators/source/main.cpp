// SPDX-License-Identifier: Apache-2.0
#define DOCTEST_CONFIG_IMPLEMENT
#include <doctest/doctest.h>

#include <iostream>

#include "cuda/backend.h"
#include "framework/backend/backend.h"
#include "framework/base/check.h"

int main(int argc, char** argv) {
  // Where the framework is built without CUDA, nobody registers the emulated backend on first use.
  try {
    if (!halfstep::has_backend(halfstep::Device::Type::cuda)) halfstep::cuda::register_backend();
  } catch (const halfstep::DeviceError& e) {
    std::cout << "no device: " << e.what() << '\n';
    return 1;
  }
  return doctest::Context(argc, argv).run();
}
