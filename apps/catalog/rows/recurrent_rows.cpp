// SPDX-License-Identifier: Apache-2.0
// Recurrent layers. The first dimension of the input is the batch, so batch_first is true unless a config says otherwise.
#include "apps/catalog/rows/layer_rows.h"

namespace halfstep::app {
namespace {

std::vector<Field> sizes_of_layer() {
  return {width("input_size", "features of a step; left out: those of the input").from_input_dim(-1),
          width("hidden_size", "features of the state").required()};
}
Field state_nonlinearity() { return choice("nonlinearity", "tanh", {"tanh", "relu"}, "of the state"); }

// The fields that all three layers have, with `after` behind num_layers and `last` behind the others, in PyTorch's order.
std::vector<Field> layer_fields(std::vector<Field> after, std::vector<Field> last) {
  std::vector<Field> all = sizes_of_layer();
  const auto add = [&](std::vector<Field> fields) { all.insert(all.end(), fields.begin(), fields.end()); };
  add({copies("num_layers", "number of stacked layers")});
  all.back().fallback = 1;
  add(std::move(after));
  add({boolean("bias", true, "add biases"), boolean("batch_first", true, "[N, T, features]; else [T, N, features]"),
       number("dropout", 0.0, "of the outputs of all layers but the last").at_least(0).at_most(1),
       boolean("bidirectional", false, "also run backwards, which doubles the width of the output")});
  add(std::move(last));
  add({choice("output", "sequence", {"sequence", "last"}, "the states of all steps, or after the last one"),
       boolean("stateful", "auto", "continue from the last state of the batch before; \"auto\": if the data is read in streams")
           .or_streams()});
  return all;
}

template <class M>
ModuleRow cell_row(const char* type, const char* doc) {
  std::vector<Field> fields = sizes_of_layer();
  fields.push_back(boolean("bias", true, "add biases"));
  return {{type, doc, fields}, [](const Json& self) {
            return std::make_shared<M>(self["input_size"].get<int64_t>(), self["hidden_size"].get<int64_t>(),
                                       self["bias"].get<bool>());
          }};
}

}  // namespace

void add_recurrent_rows(Catalog<ModuleRow>& all) {
  all.add({{"RNN", "h' = tanh or ReLU of W x + V h + biases, over a sequence", layer_fields({state_nonlinearity()}, {})},
           [](const Json& self) {
             return std::make_shared<RNN>(
                 self["input_size"].get<int64_t>(), self["hidden_size"].get<int64_t>(),
                 RNNOptions{self["num_layers"], self["nonlinearity"].get<std::string>(), self["bias"], self["batch_first"],
                            self["dropout"], self["bidirectional"], self["output"].get<std::string>(), self["stateful"] == true});
           }});
  const Field projection =
      integer("proj_size", 0, "width of the outputs, less than hidden_size; 0: no projections").at_least(0).at_most(kMaxSample);
  all.add({{"LSTM", "long short-term memory over a sequence", layer_fields({}, {projection})}, [](const Json& self) {
             return std::make_shared<LSTM>(
                 self["input_size"].get<int64_t>(), self["hidden_size"].get<int64_t>(),
                 LSTMOptions{self["num_layers"], self["bias"], self["batch_first"], self["dropout"], self["bidirectional"],
                             self["proj_size"], self["output"].get<std::string>(), self["stateful"] == true});
           }});
  all.add({{"GRU", "gated recurrent units over a sequence", layer_fields({}, {})}, [](const Json& self) {
             return std::make_shared<GRU>(
                 self["input_size"].get<int64_t>(), self["hidden_size"].get<int64_t>(),
                 GRUOptions{self["num_layers"], self["bias"], self["batch_first"], self["dropout"], self["bidirectional"],
                            self["output"].get<std::string>(), self["stateful"] == true});
           }});
  std::vector<Field> cell = sizes_of_layer();
  cell.push_back(boolean("bias", true, "add biases"));
  cell.push_back(state_nonlinearity());
  all.add({{"RNNCell", "one step of RNN, from a state of zeros", cell}, [](const Json& self) {
             return std::make_shared<RNNCell>(self["input_size"].get<int64_t>(), self["hidden_size"].get<int64_t>(),
                                              RNNCellOptions{self["bias"], self["nonlinearity"].get<std::string>()});
           }});
  all.add(cell_row<LSTMCell>("LSTMCell", "one step of LSTM, from states of zeros: h"));
  all.add(cell_row<GRUCell>("GRUCell", "one step of GRU, from a state of zeros"));
}

}  // namespace halfstep::app
