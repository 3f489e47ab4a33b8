// SPDX-License-Identifier: Apache-2.0
// Types that other frameworks have and this one does not have yet, by kind: a config that names one gets an error that says so.
#include <map>

#include "apps/schema/schema.h"

namespace halfstep::app {

std::vector<std::string> planned_components(const std::string& what) {
  static const std::map<std::string, std::vector<std::string>> all = {
      {"layer", {"TransformerDecoder", "Transformer"}},
      {"loss", {"GaussianNLLLoss"}},
  };
  const auto found = all.find(what);
  return found == all.end() ? std::vector<std::string>{} : found->second;
}

}  // namespace halfstep::app
