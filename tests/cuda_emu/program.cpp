// The halfstep program with the emulated device for a GPU.
#include <iostream>

#include "apps/commands/commands.h"
#include "cuda/backend.h"
#include "framework/backend/backend.h"
#include "framework/base/check.h"

int main(int argc, char** argv) {
  try {
    if (!halfstep::has_backend(halfstep::Device::Type::cuda)) halfstep::cuda::register_backend();
  } catch (const halfstep::DeviceError& e) {
    std::cerr << e.what() << '\n';  // the program says it again where it needs the device
  }
  return halfstep::app::run_program(argc, argv);
}
