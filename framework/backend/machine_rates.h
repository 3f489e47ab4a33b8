// SPDX-License-Identifier: Apache-2.0
// What a machine does in a second: matrix products by dtype and size, through the library that the backend calls, and copies by
// size, since small ones stay in a cache. What is asked for is measured then, once; the best of a few tries counts, since other
// programs only ever take time away.
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

  // Seconds of `batch` products [m, k] x [k, n] with operands and results in `dtype`, a floating one. Of large ones only a part of
  // the rows is computed.
  virtual double product_seconds(DType dtype, int64_t m, int64_t n, int64_t k, int64_t batch = 1);
  // Of a copy that no cache holds, read and written ones together.
  virtual double bytes_per_second();
  // Of one kernel that reads and writes so many bytes together, all of which it has just used: a copy, the call of the backend
  // and the start of its threads included.
  virtual double copy_seconds(double bytes);
  // The least time that a call of a plan can take here: that of its products, or of a copy of as many bytes as it reads and writes,
  // whichever is longer. Without the casts of autocast.
  double floor_seconds(const LoggedCall& call);

 private:
  double level_seconds(int level);  // of a copy of 2^level bytes

  Device device_;
  std::map<std::tuple<DType, int64_t, int64_t, int64_t>, double> products_;
  std::map<int, double> levels_;
};

}  // namespace halfstep
