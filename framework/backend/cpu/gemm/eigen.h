// SPDX-License-Identifier: Apache-2.0
// Eigen's matrix products: f64 always, f32 of a few rows or columns where oneDNN is missing.
#pragma once

#include "framework/backend/cpu/gemm/gemm.h"

namespace halfstep::cpu {

// As multiply(), for T = float or double; `bias` and relu included. Row blocks are fixed: any number of threads gives the same.
template <class T>
void multiply_eigen(const Product& p, const T* bias);

}  // namespace halfstep::cpu
