// SPDX-License-Identifier: Apache-2.0
// The options of recurrent layers and cells.
#include "layers/sequences/recurrent.h"

namespace halfstep {

namespace {
template <class O>
Option<O> biases_of() {
  return option("bias", &O::bias, "add biases").if_changed();
}
template <class O>
Option<O> nonlinearity_of() {
  return option("nonlinearity", &O::nonlinearity, "of the state").one_of({"tanh", "relu"}).if_changed();
}
// Lists the common options of the three layers in PyTorch's order, with `after` behind num_layers and `last` behind bidirectional.
// O is the class of options, also in HALFSTEP_OPTIONS.
template <class O>
OptionList<O> layer_list(const OptionList<O>& after, const OptionList<O>& last) {
  return OptionList<O>{option("num_layers", &O::num_layers, "number of stacked layers").at_least(1).if_changed()} + after +
         OptionList<O>{
             biases_of<O>(), option("batch_first", &O::batch_first, "[N, T, features]; else [T, N, features]").if_changed(),
             option("dropout", &O::dropout, "of the outputs of all layers but the last").at_least(0).at_most(1).if_changed(),
             option("bidirectional", &O::bidirectional, "also run backwards, which doubles the width of the output").if_changed()} +
         last +
         OptionList<O>{option("output", &O::output, "the states of all steps, or after the last one").one_of({"sequence", "last"}),
                       option("stateful", &O::stateful, "continue from the last state of the batch before").if_changed()};
}
}  // namespace

HALFSTEP_ARGUMENTS(RecurrentLayer, argument("input_size", "features of a step").at_least(1),
                   argument("hidden_size", "features of the state").at_least(1))
HALFSTEP_OPTIONS(RNNOptions, layer_list<O>({nonlinearity_of<O>()}, {}))
HALFSTEP_OPTIONS(GRUOptions, layer_list<O>({}, {}))
HALFSTEP_OPTIONS(LSTMOptions, layer_list<O>({}, {option("proj_size", &O::proj_size,
                                                        "width of the outputs, less than hidden_size; 0: no projections")
                                                     .at_least(0)
                                                     .if_changed()}))
HALFSTEP_OPTIONS(RNNCellOptions, biases_of<O>(), nonlinearity_of<O>())
HALFSTEP_OPTIONS(GRUCellOptions, biases_of<O>())
HALFSTEP_OPTIONS(LSTMCellOptions, biases_of<O>())

}  // namespace halfstep
