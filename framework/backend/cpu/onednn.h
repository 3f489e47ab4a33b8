// SPDX-License-Identifier: Apache-2.0
// What the files that call oneDNN share. Its 2.x API is in gemm_onednn.cpp and conv_onednn.cpp only.
#pragma once

#include <omp.h>

#include <dnnl.hpp>

namespace halfstep::cpu {

inline dnnl::engine& engine() {
  static dnnl::engine e(dnnl::engine::kind::cpu, 0);
  return e;
}

// The number of OpenMP threads that oneDNN's code is made for and run on, on this host thread and for the time of one call: a
// program's own setting comes back.
class OpenMpThreads {
 public:
  explicit OpenMpThreads(int n) : before_(omp_get_max_threads()) { set(n); }
  ~OpenMpThreads() { set(before_); }
  OpenMpThreads(const OpenMpThreads&) = delete;
  OpenMpThreads& operator=(const OpenMpThreads&) = delete;

 private:
  static void set(int n) {
    if (omp_get_max_threads() != n) omp_set_num_threads(n);
  }
  int before_;
};

}  // namespace halfstep::cpu
