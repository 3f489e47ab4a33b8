// SPDX-License-Identifier: Apache-2.0
// Tests whether the device's library supports recurrent networks, and counts its calls.
#pragma once

#include <cstdio>

#include "framework/backend/recurrent_library.h"
#include "framework/base/log.h"
#include "tests/cuda/support.h"

namespace halfstep::testing {

inline RecurrentLibrary& recurrent_library() { return dynamic_cast<RecurrentLibrary&>(backend_for(Device::cuda)); }
inline uint64_t recurrent_calls() { return recurrent_library().recurrent_calls(); }

// Returns whether it supports them; prints the reason if not.
inline bool has_recurrent_library() {
  const RecurrentArgs small{.cell = Cell::gru,
                            .dtype = DType::f32,
                            .layers = 1,
                            .directions = 1,
                            .features = 2,
                            .units = 2,
                            .width = 2,
                            .biased = true,
                            .projected = false,
                            .layout = RecurrentArgs::Layout::steps_first,
                            .steps = 1,
                            .batch = 1};
  const logging::Capture why([](logging::Level, std::string_view m) { std::puts(std::string(m).c_str()); });
  if (recurrent_library().recurrent_spaces(small)) return true;
  std::puts("SKIPPED: no library takes recurrent networks here");
  return false;
}

}  // namespace halfstep::testing
