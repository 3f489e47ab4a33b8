// The pointwise parts of recurrent cells against the CPU backend.
#include "device.h"

using namespace halfstep;
using namespace halfstep::testing;

namespace {

struct Types {
  DType state, gates;
};
constexpr Types kTypes[] = {
    {DType::f32, DType::f32}, {DType::f16, DType::f32}, {DType::bf16, DType::f32}, {DType::f64, DType::f64}};
constexpr int64_t kUnits[] = {1, 3, 4, 31, 32, 33, 260};

void check_lstm(const Types& t, int64_t rows, int64_t units, bool saves, int64_t shift) {
  const Shape state{rows, units}, gates{rows, 4 * units};
  const TensorView none;
  const Buffer xg = uniform(t.gates, gates, 1), hg = uniform(t.gates, gates, 2), c = uniform(t.state, state, 3);
  const Buffer h_out = poisoned(t.state, state), c_out = poisoned(t.state, state), act = poisoned(t.state, gates);
  const Buffer want_h = make(t.state, state), want_c = make(t.state, state), want_act = make(t.state, gates);
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

  const Buffer dh = uniform(t.state, state, 5), dc = uniform(t.state, state, 6);
  for (int which : {0, 1, 2}) {  // both gradients, dh alone, dc alone
    const Buffer dgates = poisoned(t.state, gates), dc_in = poisoned(DType::f32, state), want = make(t.state, gates),
                 want_dc = make(DType::f32, state);
    const OnDevice dev_dh(dh), dev_dc(dc), dev_act(want_act), dev_c_out(want_c), dev_dgates(dgates, shift), dev_dc_in(dc_in);
    cpu().lstm_cell_backward(which == 2 ? none : dh.view, which == 1 ? none : dc.view, want_act, c, want_c, want, want_dc);
    cuda::lstm_cell_backward(queue(), which == 2 ? none : dev_dh.view, which == 1 ? none : dev_dc.view, dev_act, dev_c, dev_c_out,
                             dev_dgates, dev_dc_in);
    dev_dgates.fetch();
    dev_dc_in.fetch();
    check_close(dgates, want, 2, 1e-6, "dgates");
    check_close(dc_in, want_dc, 2, 1e-6, "dc");
  }
}

void check_gru(const Types& t, int64_t rows, int64_t units, bool saves, int64_t shift) {
  const Shape state{rows, units}, gates{rows, 3 * units}, four{rows, 4 * units};
  const Buffer xg = uniform(t.gates, gates, 1), hg = uniform(t.gates, gates, 2), h = uniform(t.state, state, 3),
               dh = uniform(t.state, state, 4);
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
  cpu().gru_cell_backward(dh, want_act, h, want_dx, want_dg, want_dh);
  cuda::gru_cell_backward(queue(), dev_dh, dev_act, dev_h, dev_dx, dev_dg, dev_dh_in);
  for (const OnDevice* d : {&dev_dx, &dev_dg, &dev_dh_in}) d->fetch();
  check_close(dx, want_dx, 2, 1e-6, "dx gates");
  check_close(dg, want_dg, 2, 1e-6, "dh gates");
  check_close(dh_in, want_dh, 2, 1e-6, "dh");
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
