// SPDX-License-Identifier: Apache-2.0
// Recurrent layers: states, lengths, packed sequences, hooks and errors. Their values are compared with PyTorch's in
// layer_goldens_test.cpp.
#include <doctest/doctest.h>

#include <cmath>
#include <functional>
#include <numeric>

#include "framework/autograd/autograd.h"
#include "framework/autograd/grad_mode.h"
#include "layers/containers/sequential.h"
#include "layers/layers.h"
#include "tests/support/errors.h"

using namespace halfstep;
using halfstep::testing::refuses;

namespace {

using Numbers = std::vector<double>;

Numbers numbers_of(const Tensor& t) { return t.to_vector<double>(); }

void check_close(const Tensor& a, const Tensor& b, double tolerance = 1e-12) {
  REQUIRE(a.shape() == b.shape());
  const Numbers x = numbers_of(a), y = numbers_of(b);
  for (size_t i = 0; i < x.size(); ++i) CHECK(x[i] == doctest::Approx(y[i]).epsilon(tolerance));
}

// A layer of any kind, with states as a list: h, and c of an LSTM.
struct AnyLayer {
  std::string kind;
  std::shared_ptr<Module> module;
  bool batch_first;
  Dims widths;  // of its states
  int64_t parts;

  std::pair<Tensor, Tensors> operator()(const Tensor& x, const Tensors& states = {},
                                        const std::vector<int64_t>& lengths = {}) const {
    const auto at = [&](size_t i) { return i < states.size() ? states[i] : Tensor(); };
    if (kind == "LSTM") {
      const auto [y, state] = static_cast<LSTM&>(*module)(x, {at(0), at(1)}, lengths);
      return {y, {state.h, state.c}};
    }
    const auto [y, h] = static_cast<OneStateLayer&>(*module)(x, at(0), lengths);
    return {y, {h}};
  }
  Tensors states(int64_t batch) const {
    Tensors out;
    for (int64_t w : widths) out.push_back(randn({parts, batch, w}).to(DType::f64));
    return out;
  }
};

AnyLayer make_layer(const std::string& kind, int64_t in, int64_t hidden, int64_t layers, bool batch_first, bool both,
                    int64_t proj) {
  AnyLayer out{kind, nullptr, batch_first, {proj > 0 ? proj : hidden}, layers * (both ? 2 : 1)};
  if (kind == "LSTM") {
    out.widths.push_back(hidden);
    out.module = std::make_shared<LSTM>(
        in, hidden, LSTMOptions{.num_layers = layers, .batch_first = batch_first, .bidirectional = both, .proj_size = proj});
  } else if (kind == "GRU") {
    out.module =
        std::make_shared<GRU>(in, hidden, GRUOptions{.num_layers = layers, .batch_first = batch_first, .bidirectional = both});
  } else {
    out.module = std::make_shared<RNN>(in, hidden,
                                       RNNOptions{.num_layers = layers,
                                                  .nonlinearity = kind == "RNN relu" ? "relu" : "tanh",
                                                  .batch_first = batch_first,
                                                  .bidirectional = both});
  }
  out.module->to(DType::f64);
  return out;
}

void each_layer(const std::function<void(const AnyLayer&)>& f) {
  manual_seed(3);
  for (const char* kind : {"RNN tanh", "RNN relu", "GRU", "LSTM"}) {
    for (bool batch_first : {false, true}) {
      for (bool both : {false, true}) {
        for (int64_t proj : {0, 2}) {
          if (proj > 0 && std::string(kind) != "LSTM") continue;
          CAPTURE(kind);
          CAPTURE(batch_first);
          CAPTURE(both);
          CAPTURE(proj);
          f(make_layer(kind, 3, 4, 2, batch_first, both, proj));
        }
      }
    }
  }
}

std::vector<std::string> state_names(const Module& m) {
  std::vector<std::string> out;
  for (const NamedTensor& n : m.state_dict()) out.push_back(n.name);
  return out;
}

}  // namespace

TEST_CASE("recurrent layers have PyTorch's parameters, in its order") {
  const LSTM lstm(3, 4, {.num_layers = 2, .bidirectional = true, .proj_size = 2});
  std::vector<std::string> want;
  for (const char* end : {"l0", "l0_reverse", "l1", "l1_reverse"}) {
    for (const char* what : {"weight_ih_", "weight_hh_", "bias_ih_", "bias_hh_", "weight_hr_"})
      want.push_back(std::string(what) + end);
  }
  CHECK(state_names(lstm) == want);
  CHECK(lstm.named_parameters()[0].tensor.shape() == Shape{16, 3});
  CHECK(lstm.named_parameters()[1].tensor.shape() == Shape{16, 2});
  CHECK(lstm.named_parameters()[4].tensor.shape() == Shape{2, 4});
  CHECK(lstm.named_parameters()[10].tensor.shape() == Shape{16, 4});  // reads both directions
  CHECK(lstm.describe() == "LSTM(3, 4, proj_size=2, num_layers=2, bidirectional=True)");
  CHECK(state_names(GRU(3, 4, {.bias = false})) == std::vector<std::string>{"weight_ih_l0", "weight_hh_l0"});
  CHECK(state_names(LSTMCell(3, 4)) == std::vector<std::string>{"weight_ih", "weight_hh", "bias_ih", "bias_hh"});

  Generator generator(7);
  const RNN rnn(5, 16, {}, &generator);
  for (const Tensor& p : rnn.parameters()) {
    const double bound = 1 / std::sqrt(16.0), largest = p.abs().max().item<double>();
    CHECK(largest <= bound);
    CHECK(largest > bound / 2);
  }
}

TEST_CASE("a sequence in two parts, the second from the state of the first, is the sequence") {
  for (const char* kind : {"RNN tanh", "GRU", "LSTM"}) {
    const AnyLayer layer = make_layer(kind, 3, 4, 2, true, false, 0);
    const Tensor x = randn({2, 5, 3}).to(DType::f64);
    const auto [whole, end] = layer(x);
    const auto [first, state] = layer(x.narrow(1, 0, 2));
    const auto [second, last] = layer(x.narrow(1, 2, 3), state);
    check_close(cat({first, second}, 1), whole);
    for (size_t i = 0; i < end.size(); ++i) check_close(last[i], end[i]);
  }
}

TEST_CASE("one sequence without a batch is a batch of one") {
  each_layer([](const AnyLayer& layer) {
    const Tensor x = randn({4, 3}).to(DType::f64);
    const Tensors states = layer.states(1);
    Tensors single;
    for (const Tensor& s : states) single.push_back(s.squeeze(1));
    const auto [y, end] = layer(x, single);
    const auto [batch, batch_end] = layer(x.unsqueeze(layer.batch_first ? 0 : 1), states);
    check_close(y, batch.squeeze(layer.batch_first ? 0 : 1));
    for (size_t i = 0; i < end.size(); ++i) check_close(end[i], batch_end[i].squeeze(1));
  });
}

TEST_CASE("sequences of any lengths, none and unsorted ones among them, give what each gives by itself") {
  const std::vector<int64_t> lengths{2, 0, 5, 3, 0};
  each_layer([&](const AnyLayer& layer) {
    const int64_t count = int64_t(lengths.size()), steps = 6;
    const int batch = layer.batch_first ? 0 : 1;
    const Tensor x = randn(layer.batch_first ? Shape{count, steps, 3} : Shape{steps, count, 3}).to(DType::f64);
    for (bool with_states : {false, true}) {
      CAPTURE(with_states);
      const Tensors states = layer.states(count);
      layer.module->zero_grad();
      const auto [y, end] = layer(x, with_states ? states : Tensors(), lengths);
      CHECK(y.size(0) == x.size(0));
      CHECK(y.size(1) == x.size(1));
      (y * y).sum().backward();
      std::vector<Numbers> gradients;
      for (const Tensor& p : layer.module->parameters()) gradients.push_back(numbers_of(p.grad()));
      layer.module->zero_grad();
      for (int64_t i = 0; i < count; ++i) {
        CAPTURE(i);
        const int64_t n = lengths[size_t(i)];
        Tensors own;
        for (const Tensor& s : states) own.push_back(s.select(1, i));
        const Tensor padding = y.select(batch, i).narrow(0, n, steps - n);
        CHECK((padding == 0).all().item<bool>());
        if (n == 0) {
          for (size_t k = 0; k < end.size(); ++k) check_close(end[k].select(1, i), with_states ? own[k] : zeros_like(own[k]));
          continue;
        }
        const auto [alone, alone_end] = layer(x.select(batch, i).narrow(0, 0, n), with_states ? own : Tensors());
        check_close(y.select(batch, i).narrow(0, 0, n), alone);
        for (size_t k = 0; k < end.size(); ++k) check_close(end[k].select(1, i), alone_end[k]);
        (alone * alone).sum().backward();
      }
      const std::vector<Tensor> parameters = layer.module->parameters();
      for (size_t k = 0; k < parameters.size(); ++k) {
        const Numbers alone = numbers_of(parameters[k].grad());
        for (size_t j = 0; j < alone.size(); ++j) CHECK(gradients[k][j] == doctest::Approx(alone[j]).epsilon(1e-10));
      }
    }
    const auto [nothing, state] = layer(x, {}, {0, 0, 0, 0, 0});
    CHECK((nothing == 0).all().item<bool>());
    CHECK((state[0] == 0).all().item<bool>());
  });
}

TEST_CASE("a batch whose rows are shared among threads gives what one thread gives") {
  const int64_t count = 40, steps = 6;
  std::vector<int64_t> lengths;
  for (int64_t i = 0; i < count; ++i) lengths.push_back(i * 7 % (steps + 1));
  manual_seed(9);
  for (const char* kind : {"RNN tanh", "GRU", "LSTM"}) {
    for (int64_t proj : {0, 24}) {
      if (proj > 0 && std::string(kind) != "LSTM") continue;
      for (DType dtype : {DType::f64, DType::f32, DType::bf16, DType::f16}) {
        for (bool ragged : {false, true}) {
          CAPTURE(kind);
          CAPTURE(proj);
          CAPTURE(name(dtype));
          CAPTURE(ragged);
          const AnyLayer layer = make_layer(kind, 8, 40, 1, false, true, proj);
          layer.module->to(dtype);
          const Tensor x = randn({steps, count, 8}).to(dtype);
          Tensors states;
          for (const Tensor& s : layer.states(count)) states.push_back(s.to(dtype));
          const auto run = [&](int threads) {
            set_num_threads(threads);
            layer.module->zero_grad();
            const Tensor in = x.detach().clone().set_requires_grad();
            Tensors out;
            {
              const NoGrad quiet;
              out.push_back(layer(in, states, ragged ? lengths : std::vector<int64_t>()).first);
            }
            const auto [y, end] = layer(in, states, ragged ? lengths : std::vector<int64_t>());
            (y.to(DType::f32) * y.to(DType::f32)).sum().backward();
            out.push_back(y);
            out.insert(out.end(), end.begin(), end.end());
            out.push_back(in.grad());
            for (const Tensor& p : layer.module->parameters()) out.push_back(p.grad());
            set_num_threads(0);
            return out;
          };
          const Tensors alone = run(1), shared = run(3);
          REQUIRE(alone.size() == shared.size());
          for (size_t i = 0; i < alone.size(); ++i) {
            CAPTURE(i);
            const Tensor off = (alone[i].to(DType::f64) - shared[i].to(DType::f64)).abs().max();
            CHECK(off.item<double>() <= 4 * epsilon(dtype) * (1 + alone[i].to(DType::f64).abs().max().item<double>()));
          }
        }
      }
    }
  }
}

TEST_CASE("packed sequences: PyTorch's example, there and back") {
  const Tensor x = tensor(Numbers{1, 2, 0, 3, 0, 0, 4, 5, 6}, {3, 3});  // [B, T]
  const PackedSequence packed = pack_padded_sequence(x, {2, 1, 3}, true, false);
  CHECK(numbers_of(packed.data) == Numbers{4, 1, 3, 5, 2, 6});
  CHECK(packed.batch_sizes == std::vector<int64_t>{3, 2, 1});
  CHECK(packed.sorted_indices == std::vector<int64_t>{2, 0, 1});
  CHECK(packed.unsorted_indices == std::vector<int64_t>{1, 2, 0});
  const auto [back, lengths] = pad_packed_sequence(packed, true);
  CHECK(numbers_of(back) == numbers_of(x));
  CHECK(lengths == std::vector<int64_t>{2, 1, 3});
  CHECK(numbers_of(pad_packed_sequence(packed, false, -1, 4).output) == Numbers{1, 3, 4, 2, -1, 5, -1, -1, 6, -1, -1, -1});

  const Tensors sequences{tensor(Numbers{1, 2}, {2}), tensor(Numbers{3}, {1}), tensor(Numbers{}, {0})};
  CHECK(numbers_of(pad_sequence(sequences, true)) == Numbers{1, 2, 3, 0, 0, 0});
  CHECK(numbers_of(pad_sequence(sequences, false, 9)) == Numbers{1, 3, 9, 2, 9, 9});
  CHECK(numbers_of(pad_sequence(sequences, true, 0, "left")) == Numbers{1, 2, 0, 3, 0, 0});
  const Tensors again = unpack_sequence(pack_sequence(sequences));
  REQUIRE(again.size() == 3);
  for (size_t i = 0; i < 3; ++i) CHECK(numbers_of(again[i]) == numbers_of(sequences[i]));

  manual_seed(1);
  const auto lstm = std::make_shared<LSTM>(3, 4, LSTMOptions{.batch_first = true, .bidirectional = true});
  const Tensor batch = randn({3, 5, 3});
  const auto [output, end] = (*lstm)(pack_padded_sequence(batch, {2, 0, 5}, true, false));
  const auto [padded, state] = (*lstm)(batch, {}, {2, 0, 5});
  CHECK(numbers_of(pad_packed_sequence(output, true).output) == numbers_of(padded));
  CHECK(numbers_of(end.h) == numbers_of(state.h));
  CHECK(numbers_of(end.c) == numbers_of(state.c));
}

TEST_CASE("dropout works between layers, while training, and draws from the generator") {
  manual_seed(2);
  GRU gru(3, 4, {.num_layers = 2, .dropout = 0.5});
  const Tensor x = randn({5, 2, 3});
  const auto run = [&](uint64_t seed) {
    manual_seed(seed);
    return numbers_of(gru(x).output);
  };
  CHECK(run(1) == run(1));
  CHECK(run(1) != run(2));
  const std::vector<Tensor> p = gru.parameters();
  const Tensor below = halfstep::gru(x, {}, {p.begin(), p.begin() + 4}).output;
  manual_seed(1);
  const Tensor dropped = dropout(below.reshape({10, 4}), 0.5, true).reshape({5, 2, 4});
  CHECK(numbers_of(halfstep::gru(dropped, {}, {p.begin() + 4, p.end()}).output) == run(1));
  gru.eval();
  CHECK(run(1) == run(2));
  CHECK(run(1) == numbers_of(halfstep::gru(below, {}, {p.begin() + 4, p.end()}).output));
}

TEST_CASE("in a Sequential a recurrent layer gives its sequence or its last state; hooks see states; it can be cloned") {
  manual_seed(4);
  const auto last = make<LSTM>(3, 4, LSTMOptions{.batch_first = true, .bidirectional = true, .output = "last"});
  Sequential net(last, std::make_shared<Linear>(8, 2));
  const Tensor x = randn({2, 5, 3});
  CHECK(net(x).shape() == Shape{2, 2});
  const auto [output, state] = (*last)(x);
  CHECK(numbers_of(static_cast<Module&>(*last)(x)) == numbers_of(cat({state.h.select(0, 0), state.h.select(0, 1)}, 1)));
  CHECK(numbers_of(state.h.select(0, 0)) == numbers_of(output.select(1, 4).narrow(1, 0, 4)));
  CHECK(numbers_of(state.h.select(0, 1)) == numbers_of(output.select(1, 0).narrow(1, 4, 4)));

  size_t in = 0, out = 0;
  last->register_forward_hook([&](Module&, const Tensors& given, const Tensors& made) {
    in = given.size();
    out = made.size();
  });
  const auto again = (*last)(x, state);
  CHECK(in == 3);
  CHECK(out == 3);
  const auto copy = std::static_pointer_cast<LSTM>(last->clone());
  CHECK(numbers_of((*copy)(x, state).output) == numbers_of(again.output));
}

TEST_CASE("recurrent layers and packed sequences refuse what does not fit") {
  refuses<ValueError>("[LSTM] input_size must be >= 1, got 0", [] { LSTM(0, 4); });
  refuses<ValueError>("[GRUCell] hidden_size must be >= 1, got -1", [] { GRUCell(3, -1); });
  refuses<ValueError>("[GRU] num_layers must be >= 1, got 0", [] { GRU(3, 4, {.num_layers = 0}); });
  refuses<ValueError>("[RNN] dropout must be in [0, 1], got 1.5", [] { RNN(3, 4, {.dropout = 1.5}); });
  refuses<ValueError>("[RNN] nonlinearity must be \"tanh\" or \"relu\", got \"gelu\"", [] { RNN(3, 4, {.nonlinearity = "gelu"}); });
  refuses<ValueError>("[RNNCell] nonlinearity must be \"tanh\" or \"relu\", got \"\"", [] { RNNCell(3, 4, {.nonlinearity = ""}); });
  refuses<ValueError>("[LSTM] proj_size must be less than hidden_size = 4, got 4", [] { LSTM(3, 4, {.proj_size = 4}); });
  refuses<ValueError>("[LSTM] output must be \"sequence\" or \"last\", got \"first\"", [] { LSTM(3, 4, {.output = "first"}); });

  LSTM lstm(3, 4, {.batch_first = true});
  const Tensor x = ones({2, 5, 3}), state = zeros({1, 2, 4});
  refuses<ShapeError>("[LSTM] input must have input_size = 3 features in its last dimension, got [2, 5, 4]", [&] {
    lstm(ones({2, 5, 4}));
  });
  refuses<ShapeError>("[lstm] input must be [T, N, I] or [T, I], got [3]", [&] { lstm(ones({3})); });
  refuses<ShapeError>("[lstm] h must be [1, 2, 4] for input [2, 5, 3] and these parameters, got [1, 2, 5]", [&] {
    lstm(x, {zeros({1, 2, 5}), state});
  });
  refuses<ShapeError>("[lstm] c must be [1, 2, 4] for input [2, 5, 3] and these parameters, got [2, 2, 4]", [&] {
    lstm(x, {state, zeros({2, 2, 4})});
  });
  refuses<ShapeError>("[lstm] h must be [1, 4] for input [5, 3] and these parameters, got [1, 2, 4]", [&] {
    lstm(x.select(0, 0), {state, state});
  });
  refuses<DTypeError>(
      "[lstm] all inputs must have one dtype, got float64 [2, 5, 3] and float32 [16, 3]\n"
      "help: convert with to(dtype)",
      [&] { lstm(x.to(DType::f64)); });
  refuses<DTypeError>("[lstm] input must be floating, got int64", [&] { lstm(x.to(DType::i64)); });
  refuses<ValueError>("[LSTM] lengths must be within [0, 5], the steps of input [2, 5, 3], got 6", [&] { lstm(x, {}, {5, 6}); });
  refuses<ValueError>("[LSTM] lengths must be within [0, 5], the steps of input [2, 5, 3], got -1", [&] { lstm(x, {}, {-1, 2}); });
  refuses<ValueError>("[LSTM] needs a length for each of the 2 sequences of input [2, 5, 3], got 1", [&] { lstm(x, {}, {5}); });
  refuses<ShapeError>("[LSTM] lengths need a batch of sequences, got input [5, 3]", [&] { lstm(x.select(0, 0), {}, {5}); });
  const PackedSequence packed = pack_padded_sequence(x, {5, 2}, true);
  refuses<ShapeError>("[LSTM] the state of 2 packed sequences must be [layers and directions, 2, width], got [1, 3, 4]", [&] {
    lstm(packed, {zeros({1, 3, 4}), zeros({1, 3, 4})});
  });
  refuses<ShapeError>("[lstm_cell] w_hh must be [4 H, H] to match state [2, 5], got [16, 4]", [&] {
    LSTMCell(3, 4)(ones({2, 3}), {ones({2, 5}), ones({2, 5})});
  });
  refuses<ShapeError>("[GRUCell] input must have input_size = 3 features in its last dimension, got [2, 2]", [] {
    GRUCell(3, 4)(ones({2, 2}));
  });

  refuses<ValueError>(
      "[pack_padded_sequence] lengths must not grow with enforce_sorted, got 3 after 2\nhelp: pass enforce_sorted = false", [&] {
        pack_padded_sequence(x, {2, 3}, true);
      });
  refuses<ValueError>("[pack_padded_sequence] lengths must be within the steps of [2, 5, 3], [0, 5], got 7", [&] {
    pack_padded_sequence(x, {7, 2}, true);
  });
  refuses<ValueError>("[pad_packed_sequence] total_length must be >= the longest sequence, 5, got 4",
                      [&] { pad_packed_sequence(packed, true, 0, 4); });
  refuses<ValueError>("[pad_sequence] needs at least one sequence", [] { pad_sequence({}); });
  refuses<ShapeError>("[pad_sequence] sequences must agree in all but their first dimension, got [2, 3] and [2, 4]", [] {
    pad_sequence({ones({2, 3}), ones({2, 4})});
  });
  refuses<ValueError>("[pad_sequence] padding_side must be \"right\" or \"left\", got \"up\"",
                      [] { pad_sequence({ones({2})}, false, 0, "up"); });
  refuses<ValueError>("[unpad_sequence] lengths must be within the steps of [2, 5, 3], [0, 5], got 6", [&] {
    unpad_sequence(x, {6, 1}, true);
  });
  refuses<ValueError>("[lstm] batch_sizes must be >= 0 and never grow, got 3 after 2", [&] {
    halfstep::lstm(ones({5, 3}), {}, {}, lstm.parameters(), {.batch_sizes = {2, 3}});
  });
  refuses<ValueError>(
      "[gru] needs 2 parameters (w_ih, w_hh) for each layer and direction, 2 more with biases, got 3 for num_layers 1", [&] {
        halfstep::gru(x, {}, Tensors(3, ones({3, 3})));
      });
}
