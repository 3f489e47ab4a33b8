// SPDX-License-Identifier: Apache-2.0
// Eigen's matrix products: f64 always, f32 of a few rows or columns where oneDNN is missing.
#pragma once

#include "framework/backend/cpu/gemm/gemm.h"

namespace halfstep::cpu {

// As run_gemm(), for T = float or double; `bias` and relu included. Row blocks are fixed: any number of threads gives the same.
template <class T>
void run_gemm_eigen(const GemmProblem& p, const T* bias);

}  // namespace halfstep::cpu
