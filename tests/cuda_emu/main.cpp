#define DOCTEST_CONFIG_IMPLEMENT
#include <doctest/doctest.h>

#include "cuda/backend.h"
#include "framework/backend/backend.h"

int main(int argc, char** argv) {
  // Where the framework is built without CUDA, nobody registers the emulated backend on first use.
  if (!halfstep::has_backend(halfstep::Device::Type::cuda)) halfstep::cuda::register_backend();
  return doctest::Context(argc, argv).run();
}
