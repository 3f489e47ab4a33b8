// SPDX-License-Identifier: Apache-2.0
// The measured speed of a machine: matrix products by dtype and size, through the backend's library, and copies by size, because
// small ones stay in a cache. Each rate is measured once, when it is first needed; the best of a few tries counts, because other
// programs only ever slow one down.
#pragma once

#include <cstdint>
#include <map>
#include <tuple>

#include "framework/backend/op_log.h"
#include "framework/base/device.h"
#include "framework/base/dtype.h"

namespace halfstep {

class MachineRates {
 public:
  explicit MachineRates(Device device) : device_(device) {}
  virtual ~MachineRates() = default;

  // Returns the seconds of `batch` products [m, k] x [k, n] with operands and results in `dtype`, which is floating. Measures
  // large ones on part of the rows.
  virtual double product_seconds(DType dtype, int64_t m, int64_t n, int64_t k, int64_t batch = 1);
  // Does the same for a plan's product. A fused one is computed at the rate of a large product.
  double seconds(const MatrixProduct& p);
  // Returns the rate of a copy too large for caches, counting bytes read and written.
  virtual double bytes_per_second();
  // Returns the seconds of one kernel that reads and writes `bytes` in total, all recently used: a copy, including the backend
  // call and the start of its threads.
  virtual double copy_seconds(double bytes);
  // Returns the least time of a plan's call on this machine: that of its products, or of a copy of the bytes that it reads and
  // writes, whichever is longer. Ignores autocast's casts.
  double floor_seconds(const LoggedCall& call);

 private:
  double level_seconds(int level);  // of a copy that reads and writes 2^level bytes in total

  Device device_;
  std::map<std::tuple<DType, int64_t, int64_t, int64_t>, double> products_;  // seconds, by dtype, m, n and k
  std::map<int, double> levels_;                                             // seconds, by level
};

}  // namespace halfstep
