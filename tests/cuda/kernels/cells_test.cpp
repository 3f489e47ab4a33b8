// SPDX-License-Identifier: Apache-2.0
// The pointwise parts of recurrent cells against the CPU backend.
#include "device.h"

using namespace halfstep;
using namespace halfstep::testing;

namespace {

// Of h and what is kept for the backward, of the gates' products, and of c and the gradients between steps.
struct Types {
  DType state, gates, wide;
};
constexpr Types kTypes[] = {{DType::f32, DType::f32, DType::f32},   {DType::f16, DType::f32, DType::f16},
                            {DType::bf16, DType::f32, DType::bf16}, {DType::f16, DType::f32, DType::f32},
                            {DType::bf16, DType::f32, DType::f32},  {DType::f64, DType::f64, DType::f64}};
constexpr int64_t kUnits[] = {1, 3, 4, 31, 32, 33, 260};

void check_lstm(const Types& t, int64_t rows, int64_t units, bool saves, int64_t shift) {
  const Shape state{rows, units}, gates{rows, 4 * units};
  const TensorView none;
  const Buffer xg = uniform(t.gates, gates, 1), hg = uniform(t.gates, gates, 2), c = uniform(t.wide, state, 3);
  const Buffer h_out = poisoned(t.state, state), c_out = poisoned(t.wide, state), act = poisoned(t.state, gates);
  const Buffer want_h = make(t.state, state), want_c = make(t.wide, state), want_act = make(t.state, gates);
  const OnDevice dev_xg(xg, shift), dev_hg(hg), dev_c(c);
  cpu().lstm_cell(xg, hg, c, want_h, want_c, want_act);
  {
    const OnDevice dev_h(h_out), dev_c_out(c_out), dev_act(act);
    cuda::lstm_cell(queue(), dev_xg, dev_hg, dev_c, dev_h, dev_c_out, saves ? dev_act.view : none);
    for (const OnDevice* d : {&dev_h, &dev_c_out, &dev_act}) d->fetch();
  }
  check_close(h_out, want_h, 2, 1e-6, "h");
  check_close(c_out, want_c, 2, 1e-6, "c");
  if (saves) check_close(act, want_act, 2, 1e-6, "activated");
  {  // everything in place that may be
    const Buffer gates_in = uniform(t.gates, gates, 1), next = uniform(t.wide, state, 3);
    const OnDevice dev_gates(gates_in, shift), dev_h(h_out), dev_next(next);
    const bool over = saves && t.gates == t.state;
    cuda::lstm_cell(queue(), dev_gates, dev_hg, dev_next, dev_h, dev_next, over ? dev_gates.view : none);
    for (const OnDevice* d : {&dev_gates, &dev_h, &dev_next}) d->fetch();
    check_close(h_out, want_h, 2, 1e-6, "h beside c in place");
    check_close(next, want_c, 2, 1e-6, "c in place");
    if (over) check_close(gates_in, want_act, 2, 1e-6, "activated in place");
  }

  const Buffer dh = uniform(t.state, state, 5), dc = uniform(t.wide, state, 6), more = uniform(t.wide, state, 7);
  struct Given {
    bool dh, more, dc;
  };
  for (const Given& given :
       {Given{true, false, true}, {true, false, false}, {false, false, true}, {false, true, true}, {true, true, true}}) {
    const Buffer dgates = poisoned(t.state, gates), dc_in = poisoned(DType::f32, state), want = make(t.state, gates),
                 want_dc = make(DType::f32, state);
    const OnDevice dev_dh(dh), dev_more(more), dev_dc(dc), dev_act(want_act), dev_c_out(want_c), dev_dgates(dgates, shift),
        dev_dc_in(dc_in);
    const auto pick = [&](bool is_given, const TensorView& v) { return is_given ? v : none; };
    cpu().lstm_cell_backward(pick(given.dh, dh), pick(given.more, more), pick(given.dc, dc), want_act, c, want_c, want, want_dc);
    cuda::lstm_cell_backward(queue(), pick(given.dh, dev_dh), pick(given.more, dev_more), pick(given.dc, dev_dc), dev_act, dev_c,
                             dev_c_out, dev_dgates, dev_dc_in);
    dev_dgates.fetch();
    dev_dc_in.fetch();
    check_close(dgates, want, 2, 1e-6, "dgates");
    check_close(dc_in, want_dc, 2, 1e-6, "dc");
  }
  const Buffer dgates = poisoned(t.state, gates), want = make(t.state, gates), want_dc = make(t.wide, state);
  const OnDevice dev_more(more, shift), dev_dc(dc), dev_act(want_act), dev_c_out(want_c), dev_dgates(dgates);
  cpu().lstm_cell_backward(none, more, dc, want_act, c, want_c, want, want_dc);
  cuda::lstm_cell_backward(queue(), none, dev_more, dev_dc, dev_act, dev_c, dev_c_out, dev_dgates, dev_dc);
  dev_dgates.fetch();
  dev_dc.fetch();
  check_close(dgates, want, 2, 1e-6, "dgates beside dc in place");
  check_close(dc, want_dc, 2, 1e-6, "dc in place");
}

void check_gru(const Types& t, int64_t rows, int64_t units, bool saves, int64_t shift) {
  const Shape state{rows, units}, gates{rows, 3 * units}, four{rows, 4 * units};
  const Buffer xg = uniform(t.gates, gates, 1), hg = uniform(t.gates, gates, 2), h = uniform(t.state, state, 3),
               dh = uniform(t.state, state, 4), more = uniform(t.wide, state, 5);
  const Buffer h_out = poisoned(t.state, state), act = poisoned(t.state, four), want_h = make(t.state, state),
               want_act = make(t.state, four);
  const OnDevice dev_xg(xg), dev_hg(hg, shift), dev_h(h), dev_dh(dh);
  cpu().gru_cell(xg, hg, h, want_h, want_act);
  {
    const OnDevice dev_h_out(h_out), dev_act(act);
    cuda::gru_cell(queue(), dev_xg, dev_hg, dev_h, dev_h_out, saves ? dev_act.view : TensorView());
    dev_h_out.fetch();
    dev_act.fetch();
  }
  check_close(h_out, want_h, 2, 1e-6, "h");
  if (saves) check_close(act, want_act, 2, 1e-6, "activated");

  const Buffer dx = poisoned(t.state, gates), dg = poisoned(t.state, gates), dh_in = poisoned(DType::f32, state);
  const Buffer want_dx = make(t.state, gates), want_dg = make(t.state, gates), want_dh = make(DType::f32, state);
  const OnDevice dev_act(want_act), dev_dx(dx, shift), dev_dg(dg), dev_dh_in(dh_in);
  cpu().gru_cell_backward(dh, {}, want_act, h, want_dx, want_dg, want_dh);
  cuda::gru_cell_backward(queue(), dev_dh, {}, dev_act, dev_h, dev_dx, dev_dg, dev_dh_in);
  for (const OnDevice* d : {&dev_dx, &dev_dg, &dev_dh_in}) d->fetch();
  check_close(dx, want_dx, 2, 1e-6, "dx gates");
  check_close(dg, want_dg, 2, 1e-6, "dh gates");
  check_close(dh_in, want_dh, 2, 1e-6, "dh");
  for (bool alone : {false, true}) {  // the rest of the gradient, which the new one replaces
    const Buffer running = uniform(t.wide, state, 5), want = make(t.wide, state);
    const OnDevice dev_running(running, shift);
    cpu().gru_cell_backward(alone ? TensorView() : dh.view, more, want_act, h, want_dx, want_dg, want);
    cuda::gru_cell_backward(queue(), alone ? TensorView() : dev_dh.view, dev_running, dev_act, dev_h, dev_dx, dev_dg, dev_running);
    for (const OnDevice* d : {&dev_dx, &dev_dg, &dev_running}) d->fetch();
    check_close(dx, want_dx, 2, 1e-6, "dx gates");
    check_close(dg, want_dg, 2, 1e-6, "dh gates");
    check_close(running, want, 2, 1e-6, "dh in place");
  }
}

}  // namespace

TEST_CASE("LSTM and GRU cells, forward and backward") {
  for (const Types& t : kTypes) {
    for (int64_t units : kUnits) {
      for (int64_t rows : {0, 1, 3}) {
        check_lstm(t, rows, units, true, 0);
        check_gru(t, rows, units, true, 0);
      }
    }
    check_lstm(t, 2, 8, false, 1);
    check_gru(t, 2, 8, false, 1);
    check_lstm(t, 70, 64, true, 0);
    check_gru(t, 70, 64, true, 0);
  }
}
