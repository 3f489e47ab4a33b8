// SPDX-License-Identifier: Apache-2.0
// What became of every kind of product: for reports, and for the tuner's verdicts. Used by one call at a time, as a queue is.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "cuda/kernels/kernels.h"
#include "framework/backend/reports.h"

namespace halfstep::cuda {

// A kind of product as far as its rung depends on it.
struct ProductKey {
  int64_t m, n, k, batch;
  int64_t kind;       // dtypes, layouts and all that was asked for, packed
  int64_t alignment;  // of the least aligned operand, in bytes

  explicit ProductKey(const GemmArgs& g);
  bool operator==(const ProductKey&) const = default;
  std::string text() const;  // its numbers
};

struct ProductRecord {
  ProductReport report;     // shapes, dtypes and `epilogue` are filled in
  int rung = -1;            // of the ladder, that the last call took
  std::optional<int> best;  // the rung that was found fastest
  bool considered = false;  // for tuning
};

// The record of g's kind. Valid until the next call.
ProductRecord& product_record(const GemmArgs& g, const ProductKey& key);
// The kinds that were called since the last time, in the order of their first call ever.
std::vector<ProductReport> take_product_reports();

}  // namespace halfstep::cuda
