// SPDX-License-Identifier: Apache-2.0
// Statistics of every kind of product, for reports and for the tuner. Used by one call at a time, like a queue.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "cuda/kernels/kernels.h"
#include "framework/backend/reports.h"

namespace halfstep::cuda {

// A kind of product, as far as its rung depends on it.
struct ProductKey {
  int64_t m, n, k, batch;
  int64_t kind;       // dtypes, layouts and all requested extras, packed
  int64_t alignment;  // of the least aligned operand, in bytes

  explicit ProductKey(const GemmArgs& g);
  bool operator==(const ProductKey&) const = default;
  std::string text() const;  // its numbers
};

struct ProductRecord {
  ProductReport report;     // with shapes, dtypes and `epilogue` filled in
  int rung = -1;            // rung of the last call
  std::optional<int> best;  // fastest rung, if measured
  bool considered = false;  // whether it was considered for tuning
};

// Returns the record of g's kind. Valid until the next call.
ProductRecord& product_record(const GemmArgs& g, const ProductKey& key);
// Returns the kinds that were called since the last call, in the order of their first call ever.
std::vector<ProductReport> take_product_reports();

}  // namespace halfstep::cuda
