// SPDX-License-Identifier: Apache-2.0
// Behaviour 55: every recurrent layer in a region against the same layer computed in 16 bits by hand, without one.
#include <doctest/doctest.h>

#include "tests/amp/autocast_calls.h"
#include "tests/layers/recurrent_run.h"

using namespace halfstep;
using namespace halfstep::calls;

namespace {

enum class Input : uint8_t { steps_first, batch_first, packed, lengths };

struct Grid {
  const char* kind;
  int64_t layers, proj;
  bool bias, both, training;
  Input input;

  std::string text() const {
    return std::string(kind) + ", layers " + std::to_string(layers) + ", proj_size " + std::to_string(proj) + ", bias " +
           std::to_string(bias) + ", bidirectional " + std::to_string(both) + ", training " + std::to_string(training) +
           ", input " + std::to_string(int(input));
  }
};

std::shared_ptr<Module> make_layer(const Grid& g) {
  const bool first = g.input == Input::batch_first || g.input == Input::lengths;
  const std::string kind = g.kind;
  if (kind == "LSTM") return std::make_shared<LSTM>(4, 6, LSTMOptions{g.layers, g.bias, first, 0.25, g.both, g.proj});
  if (kind == "GRU") return std::make_shared<GRU>(4, 6, GRUOptions{g.layers, g.bias, first, 0.25, g.both});
  return std::make_shared<RNN>(4, 6, RNNOptions{g.layers, kind, g.bias, first, 0.25, g.both});
}

Tensors run(const Grid& g, Module& layer, const Tensor& x, const Tensor& h, const Tensor& c) {
  return testing::run_recurrent(layer, x, h, c, g.input == Input::packed, g.input == Input::lengths);
}

Tensor loss_of(const Tensors& outputs) {
  Tensor sum;
  for (const Tensor& t : outputs) {
    const Tensor own = (t.to(DType::f32) * t.to(DType::f32)).sum();
    sum = sum.defined() ? sum + own : own;
  }
  return sum;
}

Tensor leaf(const Tensor& t, DType dtype) { return t.detach().to(dtype).clone().set_requires_grad(); }

void check(const Grid& g, DType low, DType given, DType weights) {
  CAPTURE(g.text());
  CAPTURE(name(low));
  CAPTURE(name(given));
  CAPTURE(name(weights));
  manual_seed(5);
  const auto layer = make_layer(g), control = make_layer(g);
  layer->to(weights);
  StateDict state;
  for (const NamedTensor& n : layer->state_dict()) state.push_back({n.name, n.tensor.to(low)});
  control->to(low);
  control->load_state_dict(state);
  layer->train(g.training);
  control->train(g.training);

  const bool first = g.input == Input::batch_first || g.input == Input::lengths;
  const int64_t parts = g.layers * (g.both ? 2 : 1), width = g.proj > 0 ? g.proj : 6;
  const Tensor x = randn(first ? Shape{3, 5, 4} : Shape{5, 3, 4}), h = randn({parts, 3, width}), c = randn({parts, 3, 6});
  const Tensors own{leaf(x, given), leaf(h, given), leaf(c, given)}, by_hand{leaf(x, low), leaf(h, low), leaf(c, low)};
  Tensors got, want = run(g, *control, by_hand[0], by_hand[1], by_hand[2]);
  {
    const Autocast region(Device::cpu, low);
    got = run(g, *layer, own[0], own[1], own[2]);
  }
  REQUIRE(got.size() == want.size());
  for (size_t i = 0; i < got.size(); ++i) {
    CAPTURE(i);
    CHECK(got[i].dtype() == low);
    CHECK(bitwise(got[i], want[i]));
  }
  loss_of(got).backward();
  loss_of(want).backward();
  const std::vector<Tensor> a = layer->parameters(), b = control->parameters();
  for (size_t i = 0; i < a.size(); ++i) {
    CAPTURE(i);
    CHECK(a[i].grad().dtype() == weights);
    CHECK(bitwise(a[i].grad().to(low), b[i].grad()));
  }
  for (size_t i = 0; i < got.size(); ++i) {
    CAPTURE(i);
    CHECK(own[i].grad().dtype() == given);
    const Tensor grad = own[i].grad(), expected = by_hand[i].grad();
    if (i == 0 && g.both && given != low) {
      // Both directions add to it: in float32 here, after each was rounded there.
      const double bound = 2 * epsilon(low) * expected.abs().max().item<double>();
      CHECK((grad - expected.to(DType::f32)).abs().max().item<double>() <= bound);
    } else {
      CHECK(bitwise(grad.to(low), expected));
    }
  }
}

}  // namespace

TEST_CASE("amp 55: recurrent layers run in the region's dtype and equal layers in 16 bits, states and gradients included"
          * doctest::test_suite("values")) {
  int cases = 0;
  for (const char* kind : {"tanh", "relu", "GRU", "LSTM"}) {
    for (int64_t layers : {1, 2}) {
      for (int64_t proj : {0, 3}) {
        for (int bits = 0; bits < 8; ++bits) {
          for (Input input : {Input::steps_first, Input::batch_first, Input::packed, Input::lengths}) {
            if (proj > 0 && std::string(kind) != "LSTM") continue;
            const Grid g{kind, layers, proj, (bits & 1) != 0, (bits & 2) != 0, (bits & 4) != 0, input};
            for (DType low : {DType::f16, DType::bf16}) {
              for (DType given : {DType::f32, low}) {
                for (DType weights : {DType::f32, low}) {
                  check(g, low, given, weights);
                  ++cases;
                }
              }
            }
          }
        }
      }
    }
  }
  CHECK(cases == 2560);
}

TEST_CASE("amp 55: outside of a region dtypes do not mix, inside they may; the op is its layer's own") {
  LSTM lstm(4, 6);
  const Tensor x = randn({5, 3, 4});
  CHECK_THROWS_AS(lstm(x.to(DType::bf16)), DTypeError);
  lstm.to(DType::f16);
  CHECK_THROWS_AS(lstm(x), DTypeError);
  const Autocast region(Device::cpu, DType::bf16);
  CHECK(lstm(x).output.dtype() == DType::bf16);  // not the weights' float16, nor PyTorch's float16 in any region
  {
    const Autocast off(Device::cpu, DType::bf16, false);
    CHECK_THROWS_AS(lstm(x), DTypeError);
  }
}
