// SPDX-License-Identifier: Apache-2.0
// Without a GPU every test here is skipped, and the reason printed.
#define DOCTEST_CONFIG_IMPLEMENT
#include <doctest/doctest.h>

#include <iostream>

#include "framework/backend/backend.h"
#include "framework/base/check.h"

int main(int argc, char** argv) {
  try {
    halfstep::backend_for(halfstep::Device::cuda);
  } catch (const halfstep::DeviceError& e) {
    std::cout << "SKIPPED: " << e.what() << '\n';
    return 0;
  }
  return doctest::Context(argc, argv).run();
}
