// SPDX-License-Identifier: Apache-2.0
#include "apps/catalog/averages.h"

#include "framework/ops/ops.h"

namespace halfstep::app {

int use_averages(const CheckpointContents& contents, StateDict& state) {
  int used = 0;
  for (NamedTensor& weight : state) {
    const auto count = contents.state.find("optimizer." + weight.name + ".average_count");
    const auto average = contents.state.find("optimizer." + weight.name + ".average");
    if (count == contents.state.end() || average == contents.state.end() || count->second.item<double>() == 0) continue;
    weight.tensor = average->second;
    ++used;
  }
  if (used == 0) return 0;
  for (NamedTensor& t : state)
    if (const auto own = contents.state.find(kAveragePrefix + t.name); own != contents.state.end()) t.tensor = own->second;
  return used;
}

}  // namespace halfstep::app
