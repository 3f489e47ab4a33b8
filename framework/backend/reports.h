// SPDX-License-Identifier: Apache-2.0
// What a backend reports about itself: how it multiplies, and how much memory there is.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "framework/base/dtype.h"

namespace halfstep {

// How matrix products of one kind are done.
struct ProductReport {
  int64_t m = 0, n = 0, k = 0, batch = 1;             // c [m, n] = a [m, k] b [k, n], `batch` times
  bool a_transposed = false, b_transposed = false;    // stored by columns
  DType in = DType::f32, out = DType::f32;            // of a and b, of c
  std::string compute;   // precision of the sums: "f32", "tf32" (operands rounded), "f64" or "i64"
  // The operations requested together with the product: "relu_aux_bias", "drelu_bgrad", "bgradb"...; "default": none.
  std::string epilogue;
  // How it runs. "fused": one call of the library does as much as one call can; "unfused_mask": all but a ReLU's mask;
  // "unfused_sum": all but a sum of columns; "bias": product and bias; "bare": the product alone; "plain": no library. Kernels of
  // our own do the rest. "top" is the rung that does the most of it, whether it is taken or not.
  std::string rung, top;
  int candidates = 0;    // ways that the library offers for this rung
  std::string status;    // its answer, "success"; for skipped rungs the reason: "fused: not supported; bias: success"
  int algorithm = -1;    // the library's number of the way that is taken; -1: unknown
  size_t workspace = 0;  // bytes that it needs
  bool tuned = false;    // chosen by its time, now or in an earlier run
  double ms = 0;         // that time, of product and rest; 0: not measured
  int64_t calls = 0;     // as the host made them: a replayed recording counts none
  bool fell_back = false;  // plain, though it is for the library
};

// Backends with more than one way to multiply also implement this interface.
class ProductReporter {
 public:
  virtual ~ProductReporter() = default;
  // The kinds that were asked for since the last call of this, in the order of their first use.
  virtual std::vector<ProductReport> take_product_reports() = 0;
};

// Backends whose device has memory of its own also implement this interface.
class MemoryReporter {
 public:
  virtual ~MemoryReporter() = default;
  virtual size_t available_memory() = 0;  // bytes that tensors could still take: free on the device, or cached
};

}  // namespace halfstep
