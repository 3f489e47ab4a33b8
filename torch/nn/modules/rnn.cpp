// SPDX-License-Identifier: Apache-2.0
#include "torch/nn/modules/rnn.h"

#include "framework/ops/recurrent/recurrent.h"
#include "torch/nn/init.h"
#include "torch/nn/modules/define.h"

namespace torch::nn {
namespace {

void draw_weights(const std::vector<Tensor>& weights, int64_t hidden) {
  NoGradGuard off;
  const double bound = 1 / std::sqrt(double(hidden));
  for (const Tensor& w : weights) init::uniform_(w, -bound, bound);
}
Tensor picked(const Tensor& h, const Tensor& order) { return h.defined() && order.defined() ? h.index_select(1, order) : h; }
template <class Options>
hs::SequenceOptions how(const Options& o, bool training, const Tensor& batch_sizes = {}) {
  hs::SequenceOptions out;
  out.num_layers = o.num_layers();
  out.bidirectional = o.bidirectional();
  out.batch_first = o.batch_first() && !batch_sizes.defined();
  out.dropout = o.dropout();
  out.training = training;
  if (batch_sizes.defined()) out.batch_sizes = batch_sizes.h().to_vector<int64_t>();
  return out;
}
hs::Tensor part(const std::optional<LSTMState>& s, bool cell, const Tensor& order = {}) {
  return s ? picked(cell ? std::get<1>(*s) : std::get<0>(*s), order).h() : hs::Tensor();
}

}  // namespace

template <class Derived, class Options>
RNNImplBase<Derived, Options>::RNNImplBase(const Options& o, int64_t gates) : options(o), options_base(o), gates_(gates) {
  RNNImplBase::reset();
}
template <class Derived, class Options>
int64_t RNNImplBase<Derived, Options>::projection() const {
  if constexpr (std::is_same_v<Options, LSTMOptions>) return options.proj_size();
  return 0;
}
template <class Derived, class Options>
void RNNImplBase<Derived, Options>::reset() {
  TORCH_CHECK(options.dropout() >= 0 && options.dropout() <= 1,
              "dropout should be a number in range [0, 1] representing the probability of an element being zeroed");
  const int64_t D = options.bidirectional() ? 2 : 1, H = options.hidden_size(), P = projection(), out = P ? P : H;
  TORCH_CHECK(P >= 0, "proj_size should be a positive integer or zero to disable projections");
  TORCH_CHECK(P < H, "proj_size has to be smaller than hidden_size");
  names_.clear();
  auto put = [&](const std::string& name, std::vector<int64_t> sizes) {
    this->register_parameter(name, torch::empty(sizes));
    names_.push_back(name);
  };
  for (int64_t i = 0; i < options.num_layers() * D; ++i) {
    const int64_t layer = i / D;
    const std::string end = "_l" + std::to_string(layer) + (i % D ? "_reverse" : "");
    put("weight_ih" + end, {gates_ * H, layer == 0 ? options.input_size() : out * D});
    put("weight_hh" + end, {gates_ * H, out});
    if (options.bias()) {
      put("bias_ih" + end, {gates_ * H});
      put("bias_hh" + end, {gates_ * H});
    }
    if (P) put("weight_hr" + end, {P, H});
  }
  reset_parameters();
}
template <class Derived, class Options>
void RNNImplBase<Derived, Options>::reset_parameters() {
  draw_weights(this->parameters(), options.hidden_size());
}
template <class Derived, class Options>
std::vector<Tensor> RNNImplBase<Derived, Options>::all_weights() const {
  std::vector<Tensor> out;
  for (const auto& n : names_) out.push_back(this->parameters_[n]);
  return out;
}
template <class Derived, class Options>
void RNNImplBase<Derived, Options>::pretty_print(std::ostream& out) const {
  out << std::boolalpha << type() << "(input_size=" << options.input_size() << ", hidden_size=" << options.hidden_size()
      << ", num_layers=" << options.num_layers() << ", bias=" << options.bias() << ", batch_first=" << options.batch_first()
      << ", dropout=" << options.dropout() << ", bidirectional=" << options.bidirectional();
  if (projection()) out << ", proj_size=" << projection();
  out << ")";
}

#define HS_TORCH_RNN(Name, gates, run)                                                                                      \
  template class Cloneable<Name##Impl>;                                                                                     \
  template class RNNImplBase<Name##Impl, Name##Options>;                                                                    \
  Name##Impl::Name##Impl(const Name##Options& o) : RNNImplBase(o, gates) {}                                                 \
  const char* Name##Impl::type() const { return "torch::nn::" #Name; }                                                      \
  std::tuple<Tensor, Tensor> Name##Impl::forward(const Tensor& x, Tensor hx) {                                              \
    const auto r = run(options, x.h(), hx.h(), ::torch::detail::H(all_weights()), how(options, is_training()));             \
    return {r.output, r.h};                                                                                                 \
  }                                                                                                                         \
  std::tuple<utils::rnn::PackedSequence, Tensor> Name##Impl::forward_with_packed_input(const utils::rnn::PackedSequence& p, \
                                                                                       Tensor hx) {                         \
    const auto r = run(options, p.data().h(), picked(hx, p.sorted_indices()).h(), ::torch::detail::H(all_weights()),        \
                       how(options, is_training(), p.batch_sizes()));                                                       \
    return {utils::rnn::PackedSequence(r.output, p.batch_sizes(), p.sorted_indices(), p.unsorted_indices()),                \
            picked(r.h, p.unsorted_indices())};                                                                             \
  }
namespace {

hs::SequenceResult run_rnn(const RNNOptions& options, const hs::Tensor& x, const hs::Tensor& h, const hs::Tensors& w,
                           const hs::SequenceOptions& o) {
  return options.nonlinearity().index() == 0 ? hs::rnn_tanh(x, h, w, o) : hs::rnn_relu(x, h, w, o);
}
hs::SequenceResult run_gru(const GRUOptions&, const hs::Tensor& x, const hs::Tensor& h, const hs::Tensors& w,
                           const hs::SequenceOptions& o) {
  return hs::gru(x, h, w, o);
}

}  // namespace
HS_TORCH_RNN(RNN, 1, run_rnn)
HS_TORCH_RNN(GRU, 3, run_gru)
#undef HS_TORCH_RNN

template class Cloneable<LSTMImpl>;
template class RNNImplBase<LSTMImpl, LSTMOptions>;
LSTMImpl::LSTMImpl(const LSTMOptions& o) : RNNImplBase(o, 4) {}
const char* LSTMImpl::type() const { return "torch::nn::LSTM"; }
std::tuple<Tensor, LSTMState> LSTMImpl::forward(const Tensor& x, std::optional<LSTMState> hx) {
  const auto r = hs::lstm(x.h(), part(hx, false), part(hx, true), ::torch::detail::H(all_weights()), how(options, is_training()));
  return {r.output, {r.h, r.c}};
}
std::tuple<utils::rnn::PackedSequence, LSTMState> LSTMImpl::forward_with_packed_input(const utils::rnn::PackedSequence& p,
                                                                                      std::optional<LSTMState> hx) {
  const auto r = hs::lstm(p.data().h(), part(hx, false, p.sorted_indices()), part(hx, true, p.sorted_indices()),
                          ::torch::detail::H(all_weights()), how(options, is_training(), p.batch_sizes()));
  return {utils::rnn::PackedSequence(r.output, p.batch_sizes(), p.sorted_indices(), p.unsorted_indices()),
          {picked(r.h, p.unsorted_indices()), picked(r.c, p.unsorted_indices())}};
}

template <class Derived, class Options>
RNNCellImplBase<Derived, Options>::RNNCellImplBase(const Options& o, int64_t gates) : options(o), gates_(gates) {
  RNNCellImplBase::reset();
}
template <class Derived, class Options>
void RNNCellImplBase<Derived, Options>::reset() {
  const int64_t H = options.hidden_size();
  auto bias = [&](const char* name) {
    return this->register_parameter(name, options.bias() ? torch::empty({gates_ * H}) : Tensor(), options.bias());
  };
  weight_ih = this->register_parameter("weight_ih", torch::empty({gates_ * H, options.input_size()}));
  weight_hh = this->register_parameter("weight_hh", torch::empty({gates_ * H, H}));
  bias_ih = bias("bias_ih");
  bias_hh = bias("bias_hh");
  reset_parameters();
}
template <class Derived, class Options>
void RNNCellImplBase<Derived, Options>::reset_parameters() {
  draw_weights(this->parameters(), options.hidden_size());
}
template <class Derived, class Options>
void RNNCellImplBase<Derived, Options>::pretty_print(std::ostream& out) const {
  out << std::boolalpha << type() << "(" << options.input_size() << ", " << options.hidden_size();
  if (!options.bias()) out << ", bias=" << options.bias();
  if constexpr (std::is_same_v<Options, RNNCellOptions>) {
    if (options.nonlinearity().index() != 0) out << ", nonlinearity=" << enumtype::get_enum_name(options.nonlinearity());
  }
  out << ")";
}
template <class Derived, class Options>
void RNNCellImplBase<Derived, Options>::check_input(const Tensor& x) const {
  TORCH_CHECK(x.size(-1) == options.input_size(), "input has inconsistent input_size: got ", x.size(-1), " expected ",
              options.input_size());
}

#define HS_TORCH_CELL(Name, gates)                                              \
  template class Cloneable<Name##Impl>;                                         \
  template class RNNCellImplBase<Name##Impl, Name##Options>;                    \
  Name##Impl::Name##Impl(const Name##Options& o) : RNNCellImplBase(o, gates) {} \
  const char* Name##Impl::type() const { return "torch::nn::" #Name; }
HS_TORCH_CELL(RNNCell, 1)
HS_TORCH_CELL(GRUCell, 3)
HS_TORCH_CELL(LSTMCell, 4)
#undef HS_TORCH_CELL
Tensor RNNCellImpl::forward(const Tensor& x, Tensor hx) {
  check_input(x);
  auto* cell = options.nonlinearity().index() == 0 ? hs::rnn_tanh_cell : hs::rnn_relu_cell;
  return cell(x.h(), hx.h(), weight_ih.h(), weight_hh.h(), bias_ih.h(), bias_hh.h());
}
Tensor GRUCellImpl::forward(const Tensor& x, Tensor hx) {
  check_input(x);
  return hs::gru_cell(x.h(), hx.h(), weight_ih.h(), weight_hh.h(), bias_ih.h(), bias_hh.h());
}
LSTMState LSTMCellImpl::forward(const Tensor& x, std::optional<LSTMState> hx) {
  check_input(x);
  const auto r = hs::lstm_cell(x.h(), part(hx, false), part(hx, true), weight_ih.h(), weight_hh.h(), bias_ih.h(), bias_hh.h());
  return {r.first, r.second};
}

}  // namespace torch::nn
