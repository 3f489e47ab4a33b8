// SPDX-License-Identifier: Apache-2.0
// The arithmetic of recurrent networks, in double; states are rounded to the type of the data at every step, as they are stored.
#include <bit>
#include <cmath>

#include "tests/emulators/fake_cudnn/rnn.h"

namespace emu::dnn {
namespace {

double sigmoid(double x) { return 1 / (1 + std::exp(-x)); }

uint64_t mixed(uint64_t h, uint64_t value) {
  h = std::rotl((h ^ value) * 0x9E3779B97F4A7C15u, 29);
  return (h ^ h >> 31) * 0xBF58476D1CE4E5B9u;
}

// One call under way. The reserve is kept in `slots`, and written back by those that change it.
class Network {
 public:
  explicit Network(const RnnCall& call)
      : c_(call), d_(call.d), layout_(call.d), slot_(call.d), slots_(size_t(slot_count() * slot_.size), 0) {}

  int64_t slot_count() const { return d_.pseudo_layers() * c_.x.steps * c_.x.batch; }
  double* slot(int64_t pseudo, int64_t step, int64_t sequence) {
    return &slots_[size_t(((pseudo * c_.x.steps + step) * c_.x.batch + sequence) * slot_.size)];
  }
  void read_slots() { std::memcpy(slots_.data(), c_.reserve + kReserveHeader, slots_.size() * sizeof(double)); }
  void write_slots(uint64_t stage) {
    const ReserveHeader header{kReserveMagic, c_.fingerprint(), stage};
    std::memcpy(c_.reserve, &header, sizeof header);
    std::memcpy(c_.reserve + kReserveHeader, slots_.data(), slots_.size() * sizeof(double));
  }
  void expect_stage(const char* call, uint64_t stage) const {
    ReserveHeader header;
    std::memcpy(&header, c_.reserve, sizeof header);
    if (header.magic != kReserveMagic) fail("%s: the reserve space is not what a forward in training mode left", call);
    if (header.problem != c_.fingerprint()) fail("%s: the reserve space is of another network or batch", call);
    if (header.stage != stage)
      fail("%s: %s", call,
           stage == kDataDone ? "the gradient of the data comes first"
                              : "the reserve space has served a gradient of the data already");
  }

  const Piece& matrix(int64_t pseudo, int64_t linear) const { return layout_.matrices[size_t(pseudo)][size_t(linear)]; }
  const Piece& bias(int64_t pseudo, int64_t linear) const { return layout_.biases[size_t(pseudo)][size_t(linear)]; }
  void read_weights() {
    weights_.resize(size_t(layout_.elements));
    for (size_t i = 0; i < weights_.size(); ++i) weights_[i] = load(d_.type, c_.weights, int64_t(i));
  }
  double product(double a, double b) const { return d_.tf32 ? rounded_to_tf32(a) * rounded_to_tf32(b) : a * b; }
  // to += M from, or to += M^T from.
  void multiply(const Piece& m, const double* from, double* to) const {
    for (int64_t r = 0; r < m.rows; ++r) {
      for (int64_t k = 0; k < m.columns; ++k) to[r] += product(weights_[size_t(m.offset + r * m.columns + k)], from[k]);
    }
  }
  void multiply_transposed(const Piece& m, const double* from, double* to) const {
    for (int64_t r = 0; r < m.rows; ++r) {
      for (int64_t k = 0; k < m.columns; ++k) to[k] += product(weights_[size_t(m.offset + r * m.columns + k)], from[r]);
    }
  }

  int64_t length(int64_t sequence) const { return c_.x.lengths[size_t(sequence)]; }
  // The step that a direction reads as its number s.
  int64_t step_of(int64_t pseudo, int64_t sequence, int64_t s) const {
    return pseudo % d_.directions ? length(sequence) - 1 - s : s;
  }
  Values state(const char* from, int64_t pseudo, int64_t sequence, int64_t size) const {
    Values v(size_t(size), 0);
    for (int64_t i = 0; from && i < size; ++i) v[size_t(i)] = load(d_.type, from, (pseudo * c_.x.batch + sequence) * size + i);
    return v;
  }
  void put_state(char* to, int64_t pseudo, int64_t sequence, const Values& v) const {
    const int64_t size = int64_t(v.size());
    for (int64_t i = 0; to && i < size; ++i) store(d_.type, to, (pseudo * c_.x.batch + sequence) * size + i, v[size_t(i)]);
  }

  // The input of a layer at a step: x, or the output of the layer below after dropout.
  Values input(int64_t pseudo, int64_t step, int64_t sequence) {
    const int64_t layer = pseudo / d_.directions;
    Values in(size_t(d_.inputs_of(pseudo)));
    for (size_t i = 0; i < in.size(); ++i) {
      if (layer == 0) {
        in[i] = load(d_.type, c_.x_at, c_.x.at(step, sequence) + int64_t(i));
      } else {
        const double* const below = slot((layer - 1) * d_.directions + int64_t(i) / d_.projected, step, sequence);
        const int64_t j = int64_t(i) % d_.projected;
        in[i] = rounded(d_.type, below[slot_.out + j] * below[slot_.mask + j]);
      }
    }
    return in;
  }

  void forward() {
    read_weights();
    DropoutStates states{0, 0, 0};
    const bool drops = c_.training && d_.dropout.p > 0 && d_.layers > 1;
    if (drops) {
      std::memcpy(&states, d_.dropout.states, sizeof states);
      if (states.magic != kDropoutMagic) fail("cudnnRNNForward: the states of dropout were never set");
    }
    for (int64_t p = 0; p < d_.pseudo_layers(); ++p) {
      const bool last = p / d_.directions == d_.layers - 1;
      for (int64_t b = 0; b < c_.x.batch; ++b) {
        Values h = state(c_.hx, p, b, d_.projected), cell = state(c_.cx, p, b, d_.hidden);
        for (int64_t s = 0; s < length(b); ++s) {
          const int64_t t = step_of(p, b, s);
          double* const at = slot(p, t, b);
          step(p, input(p, t, b), h, cell, at);
          for (int64_t j = 0; j < d_.projected; ++j) {
            const uint64_t number =
                mixed(mixed(mixed(states.seed, states.counter), uint64_t((p * c_.x.steps + t) * c_.x.batch + b)), uint64_t(j));
            const bool kept = !drops || double(number >> 11) * 0x1p-53 >= double(d_.dropout.p);
            at[slot_.mask + j] = last || !drops ? 1 : kept ? 1 / (1 - double(d_.dropout.p)) : 0;
            if (last) store(d_.type, c_.y_at, c_.y.at(t, b) + p % d_.directions * d_.projected + j, at[slot_.out + j]);
          }
        }
        put_state(c_.hy, p, b, h);
        if (d_.mode == CUDNN_LSTM) put_state(c_.cy, p, b, cell);
      }
    }
    ++states.counter;
    if (drops) std::memcpy(d_.dropout.states, &states, sizeof states);
    if (c_.training) write_slots(kForwardDone);
  }

  void step(int64_t p, const Values& in, Values& h, Values& cell, double* at) {
    const int64_t n = d_.hidden, gates = d_.gates();
    Values from_x(size_t(gates * n), 0), from_h(size_t(gates * n), 0);
    for (int64_t g = 0; g < gates; ++g) {
      double *const x = &from_x[size_t(g * n)], *const r = &from_h[size_t(g * n)];
      multiply(matrix(p, g), in.data(), x);
      multiply(matrix(p, gates + g), h.data(), r);
      for (int64_t i = 0; i < n; ++i) {
        if (d_.has_bias(false)) x[i] += weights_[size_t(bias(p, g).offset + i)];
        if (d_.has_bias(true)) r[i] += weights_[size_t(bias(p, gates + g).offset + i)];
      }
    }
    double *const act = at + slot_.gates, *const full = at + slot_.full;
    for (int64_t i = 0; i < n; ++i) {
      const auto sum = [&](int64_t g) { return from_x[size_t(g * n + i)] + from_h[size_t(g * n + i)]; };
      if (d_.mode == CUDNN_LSTM) {
        for (int64_t g : {0, 1, 3}) act[g * n + i] = sigmoid(sum(g));
        act[2 * n + i] = std::tanh(sum(2));
        cell[size_t(i)] = act[n + i] * cell[size_t(i)] + act[i] * act[2 * n + i];
        at[slot_.cell + i] = cell[size_t(i)];
        full[i] = act[3 * n + i] * std::tanh(cell[size_t(i)]);
      } else if (d_.mode == CUDNN_GRU) {
        act[i] = sigmoid(sum(0));
        act[n + i] = sigmoid(sum(1));
        at[slot_.recurrent + i] = from_h[size_t(2 * n + i)];
        act[2 * n + i] = std::tanh(from_x[size_t(2 * n + i)] + act[i] * at[slot_.recurrent + i]);
        full[i] = (1 - act[n + i]) * act[2 * n + i] + act[n + i] * h[size_t(i)];
      } else {
        full[i] = act[i] = d_.mode == CUDNN_RNN_TANH ? std::tanh(sum(0)) : sum(0) > 0 ? sum(0) : 0 * sum(0);
      }
    }
    if (d_.has_projection()) {
      std::fill(h.begin(), h.end(), 0);
      for (int64_t i = 0; i < n; ++i) full[i] = rounded(d_.type, full[i]);
      multiply(matrix(p, 2 * gates), full, h.data());
    } else {
      h.assign(full, full + n);
    }
    for (int64_t j = 0; j < d_.projected; ++j) at[slot_.out + j] = h[size_t(j)] = rounded(d_.type, h[size_t(j)]);
  }

  // The state before number s of a sequence: the step before, or the network's initial state.
  Values before(int64_t p, int64_t b, int64_t s, bool of_cell) {
    const int64_t size = of_cell ? d_.hidden : d_.projected;
    if (s == 0) return state(of_cell ? c_.cx : c_.hx, p, b, size);
    const double* const from = slot(p, step_of(p, b, s - 1), b) + (of_cell ? slot_.cell : slot_.out);
    return Values(from, from + size);
  }

  void backward_data() {
    expect_stage("cudnnRNNBackwardData_v8", kForwardDone);
    read_slots();
    read_weights();
    check_y("cudnnRNNBackwardData_v8");
    const int64_t places = c_.x.steps * c_.x.batch;
    Values above(size_t(places * d_.directions * d_.projected), 0);
    for_each_step([&](int64_t t, int64_t b) {
      for (int64_t j = 0; j < d_.directions * d_.projected; ++j)
        above[size_t((t * c_.x.batch + b) * d_.directions * d_.projected + j)] = load(d_.type, c_.dy, c_.y.at(t, b) + j);
    });
    for (int64_t layer = d_.layers; layer-- > 0;) {
      const int64_t in = d_.inputs_of(layer * d_.directions);
      Values below(size_t(places * in), 0);
      for (int64_t p = layer * d_.directions; p < (layer + 1) * d_.directions; ++p) {
        for (int64_t b = 0; b < c_.x.batch; ++b) {
          Values dh = state(c_.dhy, p, b, d_.projected), dc = state(c_.dcy, p, b, d_.hidden);
          for (int64_t s = length(b); s-- > 0;) {
            const int64_t t = step_of(p, b, s), place = t * c_.x.batch + b;
            for (int64_t j = 0; j < d_.projected; ++j)
              dh[size_t(j)] += above[size_t((place * d_.directions + p % d_.directions) * d_.projected + j)];
            step_back(p, b, s, slot(p, t, b), dh, dc, &below[size_t(place * in)]);
          }
          put_state(c_.dhx, p, b, dh);
          if (d_.mode == CUDNN_LSTM) put_state(c_.dcx, p, b, dc);
        }
      }
      for_each_step([&](int64_t t, int64_t b) {
        for (int64_t i = 0; i < in; ++i) {
          double& gradient = below[size_t((t * c_.x.batch + b) * in + i)];
          if (layer == 0)
            store(d_.type, c_.dx, c_.x.at(t, b) + i, gradient);
          else
            gradient *= slot((layer - 1) * d_.directions + i / d_.projected, t, b)[slot_.mask + i % d_.projected];
        }
      });
      above = std::move(below);
    }
    write_slots(kDataDone);
  }

  // Gates become their gradients; `recurrent` that of what a GRU's n has from h.
  void step_back(int64_t p, int64_t b, int64_t s, double* at, Values& dh, Values& dc, double* dx) {
    const int64_t n = d_.hidden, gates = d_.gates();
    std::copy(dh.begin(), dh.end(), at + slot_.gradient);
    Values full(size_t(n), 0.0);
    if (d_.has_projection())
      multiply_transposed(matrix(p, 2 * gates), dh.data(), full.data());
    else
      full = dh;
    std::fill(dh.begin(), dh.end(), 0);
    const Values h_before = before(p, b, s, false), c_before = before(p, b, s, true);
    double* const act = at + slot_.gates;
    for (int64_t i = 0; i < n; ++i) {
      const double d = full[size_t(i)];
      if (d_.mode == CUDNN_LSTM) {
        const double in = act[i], keep = act[n + i], g = act[2 * n + i], o = act[3 * n + i], th = std::tanh(at[slot_.cell + i]);
        const double cell = dc[size_t(i)] + d * o * (1 - th * th);
        act[i] = cell * g * in * (1 - in);
        act[n + i] = cell * c_before[size_t(i)] * keep * (1 - keep);
        act[2 * n + i] = cell * in * (1 - g * g);
        act[3 * n + i] = d * th * o * (1 - o);
        dc[size_t(i)] = cell * keep;
      } else if (d_.mode == CUDNN_GRU) {
        const double r = act[i], z = act[n + i], m = act[2 * n + i], dn = d * (1 - z) * (1 - m * m);
        act[i] = dn * at[slot_.recurrent + i] * r * (1 - r);
        act[n + i] = d * (h_before[size_t(i)] - m) * z * (1 - z);
        act[2 * n + i] = dn;
        at[slot_.recurrent + i] = dn * r;
        dh[size_t(i)] = d * z;
      } else {
        act[i] = d_.mode == CUDNN_RNN_TANH ? d * (1 - act[i] * act[i]) : act[i] > 0 ? d : 0;
      }
    }
    for (int64_t g = 0; g < gates; ++g) {
      multiply_transposed(matrix(p, g), act + g * n, dx);
      multiply_transposed(matrix(p, gates + g), from_state(at, g), dh.data());
    }
  }
  const double* from_state(const double* at, int64_t gate) const {
    return d_.mode == CUDNN_GRU && gate == 2 ? at + slot_.recurrent : at + slot_.gates + gate * d_.hidden;
  }

  void backward_weights() {
    expect_stage("cudnnRNNBackwardWeights_v8", kDataDone);
    read_slots();
    check_y("cudnnRNNBackwardWeights_v8");
    Values sums(size_t(layout_.elements), 0);
    const auto add = [&](const Piece& to, const double* rows, const double* columns) {
      for (int64_t r = 0; r < to.rows; ++r) {
        for (int64_t k = 0; k < to.columns; ++k) sums[size_t(to.offset + r * to.columns + k)] += rows[r] * columns[k];
      }
    };
    const double one = 1;
    const int64_t gates = d_.gates();
    for (int64_t p = 0; p < d_.pseudo_layers(); ++p) {
      for (int64_t b = 0; b < c_.x.batch; ++b) {
        for (int64_t s = 0; s < length(b); ++s) {
          const int64_t t = step_of(p, b, s);
          const Values in = input(p, t, b), h = before(p, b, s, false);
          const double* const at = slot(p, t, b);
          for (int64_t g = 0; g < gates; ++g) {
            const double* const gradient = at + slot_.gates + g * d_.hidden;
            add(matrix(p, g), gradient, in.data());
            add(matrix(p, gates + g), from_state(at, g), h.data());
            if (d_.has_bias(false)) add(bias(p, g), gradient, &one);
            if (d_.has_bias(true)) add(bias(p, gates + g), from_state(at, g), &one);
          }
          if (d_.has_projection()) add(matrix(p, 2 * gates), at + slot_.gradient, at + slot_.full);
        }
      }
    }
    const auto write = [&](const Piece& piece) {
      for (int64_t i = piece.offset; i < piece.offset + piece.rows * piece.columns; ++i)
        store(d_.type, c_.dweights, i, load(d_.type, c_.dweights, i) + sums[size_t(i)]);
    };
    for (const auto* pieces : {&layout_.matrices, &layout_.biases}) {
      for (const auto& of_layer : *pieces) {
        for (const Piece& piece : of_layer) write(piece);
      }
    }
  }

  template <class F>
  void for_each_step(const F& f) const {
    for (int64_t t = 0; t < c_.x.steps; ++t) {
      for (int64_t b = 0; b < c_.x.batch; ++b) {
        if (t < length(b)) f(t, b);
      }
    }
  }
  // The caller keeps the forward's results.
  void check_y(const char* call) {
    for_each_step([&](int64_t t, int64_t b) {
      for (int64_t i = 0; i < d_.directions * d_.projected; ++i) {
        const double kept = slot((d_.layers - 1) * d_.directions + i / d_.projected, t, b)[slot_.out + i % d_.projected];
        const double given = load(d_.type, c_.y_at, c_.y.at(t, b) + i);
        if (kept != given && !(std::isnan(kept) && std::isnan(given))) fail("%s: y is not what forward wrote", call);
      }
    });
  }

 private:
  const RnnCall& c_;
  const RnnDescriptor& d_;
  const WeightLayout layout_;
  const Slot slot_;
  Values slots_, weights_;
};

}  // namespace

void rnn_forward(const RnnCall& call) {
  // Where no sequence reaches: the symbol that was asked for, else anything.
  if (call.y.layout != CUDNN_RNN_DATA_LAYOUT_SEQ_MAJOR_PACKED) {
    for (int64_t i = 0; i < call.y.elements(); ++i) store(call.y.type, call.y_at, i, call.y.fills ? call.y.fill : std::nan(""));
  }
  Network(call).forward();
}
void rnn_backward_data(const RnnCall& call) { Network(call).backward_data(); }
void rnn_backward_weights(const RnnCall& call) { Network(call).backward_weights(); }

WeightLayout::WeightLayout(const RnnDescriptor& d) {
  constexpr int64_t kGap = 2;
  elements = 2 * kGap;
  const int64_t gates = d.gates();
  const auto add = [&](std::vector<Piece>& to, int64_t rows, int64_t columns, bool exists = true) {
    to.push_back(exists ? Piece{elements, rows, columns} : Piece{});
    if (exists) elements += rows * columns;
  };
  for (int64_t p = 0; p < d.pseudo_layers(); ++p) {
    std::vector<Piece>& of_layer = matrices.emplace_back();
    for (int64_t g = 0; g < gates; ++g) add(of_layer, d.hidden, d.inputs_of(p));
    elements += kGap;
    for (int64_t g = 0; g < gates; ++g) add(of_layer, d.hidden, d.projected);
    elements += kGap;
    add(of_layer, d.projected, d.hidden, d.has_projection());
  }
  for (int64_t p = 0; p < d.pseudo_layers(); ++p) {
    std::vector<Piece>& of_layer = biases.emplace_back();
    for (bool recurrent : {false, true}) {
      for (int64_t g = 0; g < gates; ++g) add(of_layer, d.hidden, 1, d.has_bias(recurrent));
      elements += kGap;
    }
    of_layer.push_back({});
  }
}

Slot::Slot(const RnnDescriptor& d) {
  size = 0;
  const auto next = [&](int64_t n) { return std::exchange(size, size + n); };
  gates = next(d.gates() * d.hidden);
  recurrent = next(d.hidden);
  cell = next(d.hidden);
  full = next(d.hidden);
  out = next(d.projected);
  mask = next(d.projected);
  gradient = next(d.projected);
}

size_t RnnCall::reserve_bytes() const {
  return kReserveHeader + size_t(d.pseudo_layers() * x.steps * x.batch * Slot(d).size) * sizeof(double);
}
uint64_t RnnCall::fingerprint() const {
  uint64_t h = 1;
  for (int64_t v : {int64_t(d.mode), int64_t(d.bias), int64_t(d.type), d.input, d.hidden, d.projected, d.layers, d.directions,
                    int64_t(x.layout), x.steps, x.batch})
    h = mixed(h, uint64_t(v));
  for (int length : x.lengths) h = mixed(h, uint64_t(length));
  return h;
}

}  // namespace emu::dnn
