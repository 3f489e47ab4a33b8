// SPDX-License-Identifier: Apache-2.0
// The options of recurrent layers and cells.
#include "layers/sequences/recurrent.h"

namespace halfstep {

namespace {
template <class O>
Option<O> cell_bias() {
  return option("bias", &O::bias, "add biases").if_changed();
}
template <class O>
Option<O> nonlinearity_of() {
  return option("nonlinearity", &O::nonlinearity, "of the state").one_of({"tanh", "relu"}).if_changed();
}
// Lists the common options of the three layers, with `after` behind num_layers and `last` behind bidirectional, in PyTorch's
// order.
template <class O>
OptionList<O> layer_list(const OptionList<O>& after, const OptionList<O>& last) {
  OptionList<O> all{option("num_layers", &O::num_layers, "number of stacked layers").at_least(1)};
  const auto add = [&](const OptionList<O>& more) { all.insert(all.end(), more.begin(), more.end()); };
  add(after);
  add({option("bias", &O::bias, "add biases"), option("batch_first", &O::batch_first, "[N, T, features]; else [T, N, features]"),
       option("dropout", &O::dropout, "of the outputs of all layers but the last").at_least(0).at_most(1),
       option("bidirectional", &O::bidirectional, "also run backwards, which doubles the width of the output")});
  add(last);
  add({option("output", &O::output, "the states of all steps, or after the last one").one_of({"sequence", "last"}),
       option("stateful", &O::stateful, "continue from the last state of the batch before")});
  return all;
}
}  // namespace

const OptionList<RNNOptions>& RNNOptions::list() {
  static const auto& all = *new OptionList<RNNOptions>(layer_list<RNNOptions>({nonlinearity_of<RNNOptions>()}, {}));
  return all;
}
const OptionList<GRUOptions>& GRUOptions::list() {
  static const auto& all = *new OptionList<GRUOptions>(layer_list<GRUOptions>({}, {}));
  return all;
}
const OptionList<LSTMOptions>& LSTMOptions::list() {
  using O = LSTMOptions;
  static const auto& all = *new OptionList<O>(layer_list<O>(
      {}, {option("proj_size", &O::proj_size, "width of the outputs, less than hidden_size; 0: no projections").at_least(0)}));
  return all;
}
HALFSTEP_OPTIONS(RNNCellOptions, cell_bias<O>(), nonlinearity_of<O>())
HALFSTEP_OPTIONS(GRUCellOptions, cell_bias<O>())
HALFSTEP_OPTIONS(LSTMCellOptions, cell_bias<O>())

}  // namespace halfstep
