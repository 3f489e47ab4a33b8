// SPDX-License-Identifier: Apache-2.0
// The main of a program that is built for the emulator with its own main called program_main: where the framework is built without
// CUDA, nobody else registers the emulated backend.
#include <iostream>

#include "cuda/backend.h"
#include "framework/backend/backend.h"
#include "framework/base/check.h"

int program_main(int argc, char** argv);

int main(int argc, char** argv) {
  try {
    if (!halfstep::has_backend(halfstep::Device::Type::cuda)) halfstep::cuda::register_backend();
  } catch (const halfstep::DeviceError& e) {
    std::cerr << e.what() << '\n';
  }  // the program says it again where it needs the device
  return program_main(argc, argv);
}
