// SPDX-License-Identifier: Apache-2.0
// Recurrent layers that continue from the last state of the batch before.
#include <doctest/doctest.h>

#include "framework/autograd/autograd.h"
#include "framework/autograd/recompute.h"
#include "layers/layers.h"
#include "tests/io/files.h"

using namespace halfstep;
using namespace halfstep::testing;

namespace {

template <class L, class O>
void check_goes_on(O options) {
  manual_seed(1);
  options.batch_first = true;
  L whole_layer(3, 4, options);
  options.stateful = true;
  L layer(3, 4, options);
  Module &whole = whole_layer, &pieces = layer;
  pieces.load_state_dict(whole.state_dict());
  CHECK(pieces.state_dict().size() == whole.state_dict().size());  // the state is not part of it
  const Tensor x = randn({2, 6, 3});
  const Tensor y = whole(x);
  const Tensor first = pieces(x.narrow(1, 0, 4)), second = pieces(x.narrow(1, 4, 2));
  CHECK((cat({first, second}, 1) - y).abs().max().item<double>() < 1e-6);
  CHECK((pieces(x.narrow(1, 4, 2)) - second).abs().max().item<double>() > 1e-3);  // it has gone on
  second.sum().backward();  // both graphs are whole: the state of one is not written to by the other
  first.sum().backward();
  reset_states(pieces);
  CHECK((pieces(x) - y).abs().max().item<double>() < 1e-6);
}

}  // namespace

TEST_CASE("stateful: two pieces are read as one sequence") {
  check_goes_on<LSTM>(LSTMOptions{.num_layers = 2});
  check_goes_on<LSTM>(LSTMOptions{.proj_size = 2});
  check_goes_on<GRU>(GRUOptions{.num_layers = 2});
  check_goes_on<RNN>(RNNOptions{.nonlinearity = "relu"});
}

TEST_CASE("stateful: no gradient goes from a batch to the one before") {
  LSTM lstm(3, 4, {.batch_first = true, .stateful = true});
  const Tensor a = randn({1, 2, 3}).set_requires_grad(), b = randn({1, 2, 3}).set_requires_grad();
  lstm(a);
  lstm(b).output.sum().backward();
  CHECK(!a.grad().defined());
  CHECK(b.grad().defined());
}

TEST_CASE("stateful: states are kept, put back, and lent to another pass") {
  Sequential net(std::make_shared<LSTM>(3, 4, LSTMOptions{.batch_first = true, .stateful = true}),
                 std::make_shared<GRU>(4, 4, GRUOptions{.batch_first = true, .stateful = true}));
  const Tensor x = randn({2, 3, 3});
  net(x);
  const StateDict kept = kept_states(net);
  REQUIRE(kept.size() == 3);
  CHECK(kept[0].name == "0.h");
  CHECK(kept[1].name == "0.c");
  CHECK(kept[2].name == "1.h");
  const std::vector<float> next = net(x).to_vector<float>();
  set_kept_states(net, kept);
  {
    const FreshStates pass(net);
    net(randn({5, 3, 3}));  // another number of sequences
  }
  CHECK(net(x).to_vector<float>() == next);
  set_kept_states(net, {});
  CHECK(net(x).to_vector<float>() != next);
  CHECK(contains(message_of<ValueError>([&] { set_kept_states(net, {{"2.h", x}}); }), "take 0 of the 1 states"));
}

TEST_CASE("stateful: what does not fit") {
  LSTM lstm(3, 4, {.batch_first = true, .stateful = true});
  lstm(randn({2, 3, 3}));
  CHECK(contains(message_of<ShapeError>([&] {
                   lstm(randn({5, 3, 3}));
                 }),
                 "as many sequences as in the batch before, 2, got input [5, 3, 3]"));
  reset_states(lstm);
  CHECK(lstm(randn({5, 3, 3})).output.size(0) == 5);
  CHECK(contains(message_of<ValueError>([] { GRU(3, 4, {.bidirectional = true, .stateful = true}); }), "cannot be bidirectional"));
}

TEST_CASE("stateful: what is computed again begins with the state that it began with, and moves it once") {
  enum Way { plain, by_checkpoint, by_module };
  std::vector<std::vector<double>> expected;
  for (const Way way : {plain, by_checkpoint, by_module}) {
    manual_seed(1);
    Sequential net(make<GRU>(3, 4, GRUOptions{.batch_first = true, .stateful = true}), make<Linear>(4, 2));
    if (way == by_module) net.children()[0]->recompute_in_backward(true);
    const auto forward = [&](const Tensor& x) {
      const auto inner = [&net](const Tensor& t) { return net(t); };  // one within another
      if (way != by_checkpoint) return net(x);
      return checkpoint([inner](const Tensor& t) { return checkpoint(inner, t); }, x, net.parameters());
    };
    std::vector<std::vector<double>> found;
    for (int step = 0; step < 3; ++step) {
      net.zero_grad(), reset_states(net);
      const Tensor first = forward(randn({2, 4, 3})), second = forward(randn({2, 5, 3}));
      (first.sum() + second.square().sum()).backward();
      reset_states(net);
      forward(randn({3 + step, 2, 3})).sum().backward();  // other sequences
      const Tensors all{first, second, kept_states(net)[0].tensor};
      for (const Tensor& t : all) found.push_back(t.detach().flatten().to_vector<double>());
      for (const Tensor& p : net.parameters()) found.push_back(p.grad().flatten().to_vector<double>());
    }
    if (way == plain) expected = found;
    REQUIRE(found.size() == expected.size());
    for (size_t i = 0; i < found.size(); ++i)
      for (size_t k = 0; k < found[i].size(); ++k) CHECK(found[i][k] == doctest::Approx(expected[i][k]).epsilon(1e-5));
  }
}
