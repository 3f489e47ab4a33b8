// SPDX-License-Identifier: Apache-2.0
// Reports of a backend about itself: how it multiplies, and how much memory it has.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "framework/base/dtype.h"

namespace halfstep {

// How matrix products of one kind run.
struct ProductReport {
  int64_t m = 0, n = 0, k = 0, batch = 1;             // c [m, n] = a [m, k] b [k, n], `batch` times
  bool a_transposed = false, b_transposed = false;    // stored by columns
  DType in = DType::f32, out = DType::f32;            // of a and b, of c
  std::string compute;   // precision of the sums: "f32", "tf32" (operands rounded), "f64" or "i64"
  // The operations requested together with the product: "relu_aux_bias", "drelu_bgrad", "bgradb"...; "default": none.
  std::string epilogue;
  // How it runs. "fused": one call of the library does as much as one call can; "unfused_mask": all but a ReLU's mask;
  // "unfused_sum": all but a sum of columns; "bias": product and bias; "bare": the product alone; "plain": no library. Own
  // kernels do the rest. "top" is the most complete rung, whether it is used or not.
  std::string rung, top;
  int candidates = 0;    // number of the library's algorithms for this rung
  std::string status;    // the library's answer, "success"; for skipped rungs the reason: "fused: not supported; bias: success"
  int algorithm = -1;    // number of the chosen algorithm in the library; -1: unknown
  size_t workspace = 0;  // bytes that the algorithm needs
  bool tuned = false;    // whether it was chosen by its time, now or in an earlier run
  double ms = 0;         // that time, including the rest; 0: not measured
  int64_t calls = 0;     // calls by the host; replays of recordings do not count
  bool fell_back = false;  // whether it is plain although the library was to compute it
};

// Implemented by backends with more than one way to multiply.
class ProductReporter {
 public:
  virtual ~ProductReporter() = default;
  // Returns the kinds requested since the last call, in the order of their first use.
  virtual std::vector<ProductReport> take_product_reports() = 0;
};

// Implemented by backends whose device has its own memory.
class MemoryReporter {
 public:
  virtual ~MemoryReporter() = default;
  virtual size_t available_memory() = 0;  // bytes that tensors could still take: free on the device, or cached
};

}  // namespace halfstep
