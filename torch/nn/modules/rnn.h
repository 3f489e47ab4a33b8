// SPDX-License-Identifier: Apache-2.0
// Recurrent layers and cells.
#pragma once

#include "torch/nn/modules/layer.h"
#include "torch/nn/options/sequences.h"
#include "torch/nn/packed.h"

namespace torch::nn {

// What the layers share: parameters with PyTorch's names, "weight_ih_l0_reverse".
template <class Derived, class Options>
class RNNImplBase : public Cloneable<Derived> {
 public:
  explicit RNNImplBase(const Options& o, int64_t gates);
  void reset() override;
  void reset_parameters();
  void flatten_parameters() {}  // does nothing: halfstep lays weights out for cuDNN by itself
  std::vector<Tensor> all_weights() const;
  void pretty_print(std::ostream& out) const override;
  Options options;
  RNNOptionsBase options_base;  // as the layer was made

 protected:
  int64_t projection() const;
  virtual const char* type() const = 0;
  int64_t gates_;
  std::vector<std::string> names_;
};

#define HS_TORCH_RNN(Name, State, Given)                                                                              \
  class Name##Impl : public RNNImplBase<Name##Impl, Name##Options> {                                                  \
   public:                                                                                                            \
    Name##Impl(int64_t input_size, int64_t hidden_size) : Name##Impl(Name##Options(input_size, hidden_size)) {}       \
    explicit Name##Impl(const Name##Options& o);                                                                      \
    std::tuple<Tensor, State> forward(const Tensor& x, Given hx = {});                                                \
    std::tuple<utils::rnn::PackedSequence, State> forward_with_packed_input(const utils::rnn::PackedSequence& packed, \
                                                                            Given hx = {});                           \
                                                                                                                      \
   protected:                                                                                                         \
    const char* type() const override;                                                                                \
                                                                                                                      \
   public:                                                                                                            \
    FORWARD_HAS_DEFAULT_ARGS({1, AnyValue(Given())})                                                                  \
  };                                                                                                                  \
  extern template class RNNImplBase<Name##Impl, Name##Options>;                                                       \
  HS_TORCH_HOLDER(Name)
using LSTMState = std::tuple<Tensor, Tensor>;
HS_TORCH_RNN(RNN, Tensor, Tensor)
HS_TORCH_RNN(GRU, Tensor, Tensor)
HS_TORCH_RNN(LSTM, LSTMState, std::optional<LSTMState>)
#undef HS_TORCH_RNN

template <class Derived, class Options>
class RNNCellImplBase : public Cloneable<Derived> {
 public:
  RNNCellImplBase(const Options& o, int64_t gates);
  void reset() override;
  void reset_parameters();
  void pretty_print(std::ostream& out) const override;
  Options options;
  Tensor weight_ih, weight_hh, bias_ih, bias_hh;

 protected:
  virtual const char* type() const = 0;
  void check_input(const Tensor& x) const;
  int64_t gates_;
};

#define HS_TORCH_CELL(Name, State, Given)                                                                       \
  class Name##Impl : public RNNCellImplBase<Name##Impl, Name##Options> {                                        \
   public:                                                                                                      \
    Name##Impl(int64_t input_size, int64_t hidden_size) : Name##Impl(Name##Options(input_size, hidden_size)) {} \
    explicit Name##Impl(const Name##Options& o);                                                                \
    State forward(const Tensor& x, Given hx = {});                                                              \
                                                                                                                \
   protected:                                                                                                   \
    const char* type() const override;                                                                          \
                                                                                                                \
   public:                                                                                                      \
    FORWARD_HAS_DEFAULT_ARGS({1, AnyValue(Given())})                                                            \
  };                                                                                                            \
  extern template class RNNCellImplBase<Name##Impl, Name##Options>;                                             \
  HS_TORCH_HOLDER(Name)
HS_TORCH_CELL(RNNCell, Tensor, Tensor)
HS_TORCH_CELL(GRUCell, Tensor, Tensor)
HS_TORCH_CELL(LSTMCell, LSTMState, std::optional<LSTMState>)
#undef HS_TORCH_CELL

}  // namespace torch::nn
