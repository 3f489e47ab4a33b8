// SPDX-License-Identifier: Apache-2.0
#include "apps/session/branch_names.h"

#include <doctest/doctest.h>

#include "framework/ops/ops.h"
#include "layers/layers.h"

using namespace halfstep;
using namespace halfstep::app;

TEST_CASE("a checkpoint of before has the branches of a Parallel under their names") {
  using Branches = std::vector<std::shared_ptr<Module>>;
  const auto linear = [] { return std::make_shared<Linear>(1, 1); };
  const auto list = std::make_shared<Sequential>(), model = std::make_shared<Sequential>();
  list->push_back("inner", linear());
  const auto more = std::make_shared<Parallel>(Branches{linear()}, Combine::add, 1, std::vector<std::string>{"deep"});
  model->push_back("0", linear());
  model->push_back("heads", std::make_shared<Parallel>(Branches{linear(), list, more}, Combine::add, 1,
                                                       std::vector<std::string>{"left", "1", "more"}));
  CheckpointContents old;
  for (const char* name : {"0.weight", "heads.0.weight", "heads.1.inner.weight", "heads.2.0.weight"}) {
    old.model[name] = zeros({1});
    old.state[std::string("optimizer.") + name + ".exp_avg"] = zeros({1});
  }
  const auto names = [](const TensorMap& tensors) {
    std::vector<std::string> out;
    for (const auto& entry : tensors) out.push_back(entry.first);
    return out;
  };
  const CheckpointContents got = with_branch_names(old, *model);
  CHECK(names(got.model) ==
        std::vector<std::string>{"0.weight", "heads.1.inner.weight", "heads.left.weight", "heads.more.deep.weight"});
  CHECK(names(got.state) == std::vector<std::string>{"optimizer.0.weight.exp_avg", "optimizer.heads.1.inner.weight.exp_avg",
                                                     "optimizer.heads.left.weight.exp_avg",
                                                     "optimizer.heads.more.deep.weight.exp_avg"});
  CHECK(names(with_branch_names(got, *model).model) == names(got.model));
}
