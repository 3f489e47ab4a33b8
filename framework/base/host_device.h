// SPDX-License-Identifier: Apache-2.0
// Marks a function that host and device code share.
#pragma once

#ifdef __CUDACC__
#define HS_HD __host__ __device__ __forceinline__
#else
#define HS_HD inline __attribute__((always_inline))
#endif
