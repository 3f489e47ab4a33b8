// SPDX-License-Identifier: Apache-2.0
// Rows of recurrent layers. In configs the batch is the first dimension, so batch_first is true by default.
#include "apps/catalog/rows/layer_rows.h"

namespace halfstep::app {
namespace {

template <class M>
ModuleRow layer_row(const char* doc) {
  ModuleRow row = from_input(class_row<M>(doc, typename M::Options{.batch_first = true}), "input_size", -1, "those of the input");
  Field &layers = field_of(row.component, "num_layers"), &stateful = field_of(row.component, "stateful");
  layers = layers.at_most(kMaxCopies);
  stateful = stateful.or_streams();
  stateful.fallback = "auto";
  stateful.doc += "; \"auto\": if the data is read in streams";
  return row;
}

template <class M>
ModuleRow cell_row(const char* doc) {
  return from_input(class_row<M>(doc), "input_size", -1, "those of the input");
}

}  // namespace

void add_recurrent_rows(Catalog<ModuleRow>& catalog) {
  catalog.add(layer_row<RNN>("h' = tanh or ReLU of W x + V h + biases, over a sequence"));
  catalog.add(layer_row<LSTM>("long short-term memory over a sequence"));
  catalog.add(layer_row<GRU>("gated recurrent units over a sequence"));
  catalog.add(cell_row<RNNCell>("one step of RNN, from a state of zeros"));
  catalog.add(cell_row<LSTMCell>("one step of LSTM, from states of zeros: h"));
  catalog.add(cell_row<GRUCell>("one step of GRU, from a state of zeros"));
}

}  // namespace halfstep::app
