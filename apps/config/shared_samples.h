// SPDX-License-Identifier: Apache-2.0
// Whether held-out data has samples that a model is trained on, as far as configs and copies of files show it: the data of two
// files is compared only if they have one size.
#pragma once

#include <string>

#include "apps/catalog/datasets.h"

namespace halfstep::app {

struct SharedSamples {
  std::string key{};      // of the held-out split, which says so: "range", "files"; "": the split as a whole
  std::string message{};  // "shares the samples of [0, 0.5) with data.train"; empty: none are shared
  std::string remedy{};   // what to do in the config of both
  bool any() const { return !message.empty(); }
};

// Returns whether both are samples of the same files, however their paths are spelled, of copies, or of the same generator.
bool have_same_source(const SplitRequest& held_out, const SplitRequest& trained);

// Returns what a held-out split shares with the training split of the same config or of another one, which `owner` names.
SharedSamples shared_samples(const SplitRequest& held_out, const SplitRequest& trained, const std::string& owner = "data.train");

// Returns whether both are parts of the same files in an order that the seed shuffles: other files then make other parts.
bool are_shuffled_parts(const SplitRequest& held_out, const SplitRequest& trained);

}  // namespace halfstep::app
