// The main of a program that is built for the emulator with its own main called program_main: where the framework is built without
// CUDA, nobody else registers the emulated backend.
#include "cuda/backend.h"
#include "framework/backend/backend.h"

int program_main(int argc, char** argv);

int main(int argc, char** argv) {
  if (!halfstep::has_backend(halfstep::Device::Type::cuda)) halfstep::cuda::register_backend();
  return program_main(argc, argv);
}
