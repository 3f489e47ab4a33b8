// SPDX-License-Identifier: Apache-2.0
// Recurrent networks of the fake cuDNN, against halfstep's sequences on the CPU.
#include "framework/ops/recurrent/recurrent.h"
#include "halfstep.h"
#include "tests/emulators/fake_cudnn/cudnn_rnn_builder.h"

using namespace halfstep;
using namespace halfstep::testing;

namespace {

const RnnCase kRnnCases[] = {
    {.name = "tanh", .mode = CUDNN_RNN_TANH},
    {.name = "relu, two layers", .mode = CUDNN_RNN_RELU, .layers = 2},
    {.name = "lstm", .mode = CUDNN_LSTM},
    {.name = "lstm, two layers, both ways", .mode = CUDNN_LSTM, .layers = 2, .directions = 2},
    {.name = "lstm, projected", .mode = CUDNN_LSTM, .projected = 2, .layers = 2, .directions = 2},
    {.name = "lstm, no bias", .mode = CUDNN_LSTM, .bias = CUDNN_RNN_NO_BIAS, .layers = 2},
    {.name = "gru", .mode = CUDNN_GRU},
    {.name = "gru, both ways", .mode = CUDNN_GRU, .layers = 2, .directions = 2},
    {.name = "gru, batch first", .mode = CUDNN_GRU, .layout = CUDNN_RNN_DATA_LAYOUT_BATCH_MAJOR_UNPACKED},
    {.name = "lstm, ragged", .mode = CUDNN_LSTM, .layers = 2, .directions = 2, .lengths = {5, 2, 0}},
    {.name = "gru, ragged, batch first",
     .mode = CUDNN_GRU,
     .layout = CUDNN_RNN_DATA_LAYOUT_BATCH_MAJOR_UNPACKED,
     .lengths = {1, 5, 3}},
    {.name = "lstm, packed",
     .mode = CUDNN_LSTM,
     .directions = 2,
     .layout = CUDNN_RNN_DATA_LAYOUT_SEQ_MAJOR_PACKED,
     .lengths = {5, 3, 3}},
};

Tensor tensor_of(const Buffer& b, const Shape& shape) {
  Tensor t = Tensor::empty(shape, {.dtype = DType::f32});
  for (int64_t i = 0; i < b.numel(); ++i) t.data_ptr<float>()[i] = float(b[i]);
  return t;
}

// Of the same numbers, sequence by sequence since the op knows no lengths: results and gradients, padded with zeros.
struct Reference {
  Reference(const RnnCase& c, RnnMemory& m);
  Buffer y, hy, cy, dx, dhx, dcx;
  std::vector<Buffer> dweights;
};

Buffer zeros_like(const Buffer& b) {
  Buffer z = make(DType::f32, b.view.shape);
  for (int64_t i = 0; i < z.numel(); ++i) set(z.view, i, 0);
  return z;
}

Reference::Reference(const RnnCase& c, RnnMemory& m)
    : y(zeros_like(m.y)),
      hy(zeros_like(m.hx)),
      cy(zeros_like(m.cx)),
      dx(zeros_like(m.x)),
      dhx(zeros_like(m.hx)),
      dcx(zeros_like(m.cx)) {
  Tensors weights;
  for (const RnnParameter& p : m.parameters()) { weights.push_back(tensor_of(p.value, p.value.view.shape).set_requires_grad()); }
  const int64_t states = c.layers * c.directions, in = c.input, out = c.outputs();
  for (int64_t b = 0; b < c.batch; ++b) {
    const auto row = [&](const Buffer& from, int64_t size) {
      Tensor t = Tensor::empty({states, 1, size}, {.dtype = DType::f32});
      for (int64_t s = 0; s < states; ++s) {
        for (int64_t i = 0; i < size; ++i) t.data_ptr<float>()[s * size + i] = float(from[(s * c.batch + b) * size + i]);
      }
      return t;
    };
    const auto put_row = [&](const Tensor& from, Buffer& to, int64_t size) {
      const Tensor t = from.contiguous();
      for (int64_t s = 0; s < states; ++s) {
        for (int64_t i = 0; i < size; ++i) set(to.view, (s * c.batch + b) * size + i, t.data_ptr<float>()[s * size + i]);
      }
    };
    const auto steps = [&](const Buffer& from, int64_t size) {
      Tensor t = Tensor::empty({c.length(b), 1, size}, {.dtype = DType::f32});
      for (int64_t s = 0; s < c.length(b); ++s) {
        for (int64_t i = 0; i < size; ++i) t.data_ptr<float>()[s * size + i] = float(from[c.at(s, b, size) + i]);
      }
      return t;
    };
    const auto put_steps = [&](const Tensor& from, Buffer& to, int64_t size) {
      const Tensor t = from.contiguous();
      for (int64_t s = 0; s < c.length(b); ++s) {
        for (int64_t i = 0; i < size; ++i) set(to.view, c.at(s, b, size) + i, t.data_ptr<float>()[s * size + i]);
      }
    };
    const Tensor hx = row(m.hx, c.state()), cx = row(m.cx, c.hidden);
    if (c.length(b) == 0) {  // the states pass through, and so do their gradients
      put_row(hx, hy, c.state());
      put_row(cx, cy, c.hidden);
      put_row(row(m.dhy, c.state()), dhx, c.state());
      put_row(row(m.dcy, c.hidden), dcx, c.hidden);
      continue;
    }
    const Tensor x = steps(m.x, in).set_requires_grad(), h = hx.set_requires_grad(), cell = cx.set_requires_grad();
    const SequenceOptions options{.num_layers = c.layers, .bidirectional = c.directions == 2};
    Tensor output, last, last_cell;
    if (c.mode == CUDNN_LSTM) {
      const LstmSequenceResult r = lstm(x, h, cell, weights, options);
      output = r.output, last = r.h, last_cell = r.c;
    } else {
      const SequenceResult r = c.mode == CUDNN_GRU        ? gru(x, h, weights, options)
                               : c.mode == CUDNN_RNN_TANH ? rnn_tanh(x, h, weights, options)
                                                          : rnn_relu(x, h, weights, options);
      output = r.output, last = r.h;
    }
    put_steps(output, y, out);
    put_row(last, hy, c.state());
    Tensors results{output, last}, gradients{steps(m.dy, out), row(m.dhy, c.state())};
    if (c.mode == CUDNN_LSTM) {
      put_row(last_cell, cy, c.hidden);
      results.push_back(last_cell);
      gradients.push_back(row(m.dcy, c.hidden));
    }
    backward(results, gradients);
    put_steps(x.grad(), dx, in);
    put_row(h.grad(), dhx, c.state());
    if (c.mode == CUDNN_LSTM) put_row(cell.grad(), dcx, c.hidden);
  }
  for (const Tensor& w : weights) {
    Buffer b = make(DType::f32, w.shape());
    const Tensor g = w.grad().contiguous();
    for (int64_t i = 0; i < b.numel(); ++i) set(b.view, i, g.data_ptr<float>()[i]);
    dweights.push_back(b);
  }
}

// Where no sequence reaches, `got` may hold anything.
void near_steps(const RnnCase& c, const Buffer& got, const Buffer& want, int64_t size, double tolerance, const char* what) {
  for (int64_t b = 0; b < c.batch; ++b) {
    for (int64_t s = 0; s < c.length(b); ++s) {
      for (int64_t i = 0; i < size; ++i) {
        const int64_t at = c.at(s, b, size) + i;
        CHECK_MESSAGE(std::abs(got[at] - want[at]) <= tolerance, c.name, ", ", what, " ", at, ": ", got[at], ", not ", want[at]);
      }
    }
  }
}
void near(const RnnCase& c, const Buffer& got, const Buffer& want, double tolerance, const std::string& what) {
  for (int64_t i = 0; i < want.numel(); ++i)
    CHECK_MESSAGE(std::abs(got[i] - want[i]) <= tolerance, c.name, ", ", what, " ", i, ": ", got[i], ", not ", want[i]);
}

void compare(const RnnCase& c, DType t, double tolerance) {
  RnnMemory m(c, t);
  m.forward(true);
  m.backward();
  const Reference want(c, m);
  near_steps(c, m.y, want.y, c.outputs(), tolerance, "y");
  near(c, m.hy, want.hy, tolerance, "hy");
  near_steps(c, m.dx, want.dx, c.input, tolerance, "dx");
  near(c, m.dhx, want.dhx, tolerance, "dhx");
  if (c.mode == CUDNN_LSTM) {
    near(c, m.cy, want.cy, tolerance, "cy");
    near(c, m.dcx, want.dcx, tolerance, "dcx");
  }
  const std::vector<RnnParameter> gradients = m.gradients();
  REQUIRE(gradients.size() == want.dweights.size());
  for (size_t i = 0; i < gradients.size(); ++i) near(c, gradients[i].value, want.dweights[i], 8 * tolerance, gradients[i].name);
}

}  // namespace

TEST_CASE("cudnn: recurrent networks and their gradients") {
  for (const RnnCase& c : kRnnCases) {
    compare(c, DType::f32, 1e-5);
    compare(c, DType::f16, 1e-2);
  }
}

TEST_CASE("cudnn: one bias of two") {
  for (cudnnRNNMode_t mode : {CUDNN_LSTM, CUDNN_GRU}) {
    for (cudnnRNNBiasMode_t bias : {CUDNN_RNN_SINGLE_INP_BIAS, CUDNN_RNN_SINGLE_REC_BIAS}) {
      RnnMemory one({.name = "one", .mode = mode, .bias = bias}, DType::f32);
      RnnMemory two({.name = "two", .mode = mode}, DType::f32);
      // The bias that is missing is zero.
      std::vector<RnnParameter> values = one.parameters(), all;
      for (const char* name : {"w_ih", "w_hh", "b_ih", "b_hh"}) {
        const auto it = std::find_if(values.begin(), values.end(), [&](const RnnParameter& p) { return p.name == name; });
        all.push_back(it == values.end() ? RnnParameter{name, zeros_like(make(DType::f32, {two.c.gates() * two.c.hidden}))} : *it);
      }
      two.set_parameters(all);
      one.forward(false);
      two.forward(false);
      CHECK(one.y.values() == two.y.values());
    }
  }
}

TEST_CASE("cudnn: what lies behind a sequence's end is filled, or anything") {
  RnnCase c{.name = "ragged", .mode = CUDNN_GRU, .lengths = {5, 2, 0}};
  RnnMemory filled(c, DType::f32);
  filled.forward(false);
  c.fills = false;
  RnnMemory open(c, DType::f32);
  open.forward(false);
  const int64_t behind = c.at(3, 1, c.outputs()), within = c.at(1, 1, c.outputs());
  CHECK(filled.y[behind] == 0);
  CHECK(std::isnan(open.y[behind]));
  CHECK(filled.y[within] == open.y[within]);
}

TEST_CASE("cudnn: dropout between layers, from states that move on and are saved") {
  const RnnCase c{.name = "dropout", .mode = CUDNN_LSTM, .layers = 2, .dropout = 0.5f};
  RnnMemory m(c, DType::f32);
  const auto results = [&] {
    m.forward(true);
    return m.y.raw();
  };
  const std::string saved = m.dropout_states(), first = results(), second = results();
  CHECK(first != second);
  m.set_dropout_states(saved);
  CHECK(results() == first);
  CHECK(results() == second);
  // In a graph, whose launches are as many forwards.
  std::vector<std::string> captured;
  m.set_dropout_states(saved);
  m.forward(true, &captured);
  CHECK(captured == std::vector<std::string>{first, second});
  m.forward(false);
  const std::string kept = m.y.raw();
  m.forward(false);
  CHECK(m.y.raw() == kept);
  // The gradient of the sum is that of the function with the same masks.
  m.set_dropout_states(saved);
  m.forward(true);
  m.backward();
  const double step = 1e-2, slope = m.dx[1];
  const auto total = [&](double change) {
    RnnMemory moved(c, DType::f32);
    set(moved.x.view, 1, moved.x[1] + change);
    moved.set_dropout_states(saved);
    moved.forward(true);
    double sum = 0;
    for (int64_t i = 0; i < moved.y.numel(); ++i) sum += moved.y[i] * moved.dy[i];
    for (int64_t i = 0; i < moved.hy.numel(); ++i) sum += moved.hy[i] * moved.dhy[i] + moved.cy[i] * moved.dcy[i];
    return sum;
  };
  CHECK(slope == doctest::Approx((total(step) - total(-step)) / (2 * step)).epsilon(1e-2));
}

TEST_CASE("cudnn: gradients of weights are added") {
  RnnMemory m({.name = "lstm", .mode = CUDNN_LSTM}, DType::f32);
  m.forward(true);
  m.backward();
  const std::vector<RnnParameter> once = m.gradients();
  m.keep_gradients = true;
  m.forward(true);
  m.backward();
  const std::vector<RnnParameter> twice = m.gradients();
  for (size_t i = 0; i < once.size(); ++i) {
    for (int64_t j = 0; j < once[i].value.numel(); ++j) CHECK(twice[i].value[j] == doctest::Approx(2 * once[i].value[j]));
  }
}
