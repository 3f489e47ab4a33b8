// SPDX-License-Identifier: Apache-2.0
#include "tests/emulators/ptx/host_half.h"

#include <immintrin.h>

namespace host {

float from_half(uint16_t bits) { return _cvtsh_ss(bits); }

uint16_t to_half(float x, Rounding rounding) {
  switch (rounding) {
    case Rounding::downward: return _cvtss_sh(x, _MM_FROUND_TO_NEG_INF);
    case Rounding::upward: return _cvtss_sh(x, _MM_FROUND_TO_POS_INF);
    case Rounding::to_zero: return _cvtss_sh(x, _MM_FROUND_TO_ZERO);
    case Rounding::to_nearest: break;
  }
  return _cvtss_sh(x, _MM_FROUND_TO_NEAREST_INT);
}

}  // namespace host
