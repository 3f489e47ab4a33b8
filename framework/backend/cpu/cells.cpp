// SPDX-License-Identifier: Apache-2.0
// The elementwise part of recurrent cells, after their products. N samples with H units; gates are the sums x_gates + h_gates.
//   LSTM  gates [N, 4H]: i, f, o = sigmoid, g = tanh;  c' = f c + i g, h' = o tanh(c')
//         t = tanh(c'), D = dc' + dh' o (1 - t^2):  di = D g i (1 - i), df = D c f (1 - f), dg = D i (1 - g^2),
//         do = dh' t o (1 - o), dc = D f
//   GRU   gates [N, 3H]: r, z = sigmoid, n = tanh(x_n + r h_n);  h' = (1 - z) n + z h
//         dn = dh' (1 - z) (1 - n^2), dr = dn h_n r (1 - r), dz = dh' (h - n) z (1 - z), dh = dh' z
//         dx_gates = (dr, dz, dn), dh_gates = (dr, dz, dn r)
// Each thread takes whole rows, in parts of kPartUnits units.
#include <algorithm>

#include "framework/backend/cpu/kernels.h"
#include "framework/backend/cpu/norm/norm_rows.h"
#include "framework/math/scalar.h"

namespace halfstep::cpu {
namespace {

constexpr int64_t kUnitWork = 16;    // of a unit of a row, in the cheap elements of team.h
constexpr int64_t kPartUnits = 256;  // units of a row at once, so that the blocks of all operands stay in the first-level cache

// Calls f(row, unit, n) for parts of [rows, units], on all threads.
template <class F>
void each_part(int64_t rows, int64_t units, const F& f) {
  const int64_t grain = std::max<int64_t>(1, kBlock / std::max<int64_t>(units, 1));
  parallel_for(rows, grain, rows * units * kUnitWork, [&](int64_t begin, int64_t end) {
    for (int64_t r = begin; r < end; ++r) {
      for (int64_t i = 0; i < units; i += kPartUnits) f(r, i, std::min(kPartUnits, units - i));
    }
  });
}

// N operands of a part: read(), or begin_write() and end_write() of a write, convert it if it is not stored as C.
template <class C, int N>
struct Operands {
  alignas(64) C buffer[N][kPartUnits];
  const C* in[N];
  C* out[N];

  void read(int k, const TensorView& v, int64_t from, int64_t n) { in[k] = read_row<C>(v, from, 1, n, buffer[k]); }
  void read_or_zero(int k, const TensorView& v, int64_t from, int64_t n) {
    if (v) return read(k, v, from, n);
    std::fill_n(buffer[k], n, C(0));
    in[k] = buffer[k];
  }
  void begin_write(int k, const TensorView& v, int64_t from) { out[k] = v ? begin_row(v, from, buffer[k]) : buffer[k]; }
  void end_write(int k, const TensorView& v, int64_t from, int64_t n) {
    if (v) end_row(v, from, out[k], n);
  }
};

template <class C>
HS_CLONES void lstm(const C* const* x, const C* const* h, const C* c, C* const* activation, C* c_out, C* h_out, int64_t n) {
  C *i = activation[0], *f = activation[1], *g = activation[2], *o = activation[3];
  HS_INDEPENDENT
  for (int64_t k = 0; k < n; ++k) {
    i[k] = m::sigmoid(C(x[0][k] + h[0][k]));
    f[k] = m::sigmoid(C(x[1][k] + h[1][k]));
  }
  HS_INDEPENDENT
  for (int64_t k = 0; k < n; ++k) {
    g[k] = m::tanh(C(x[2][k] + h[2][k]));
    o[k] = m::sigmoid(C(x[3][k] + h[3][k]));
  }
  HS_INDEPENDENT
  for (int64_t k = 0; k < n; ++k) {
    c_out[k] = f[k] * c[k] + i[k] * g[k];
    h_out[k] = o[k] * m::tanh(c_out[k]);
  }
}

template <class C>
HS_CLONES void lstm_gradient(const C* dh, const C* dh_more, const C* dc, const C* const* activation, const C* c, const C* c_out,
                             C* const* d, C* dc_in, int64_t n) {
  const C *i = activation[0], *f = activation[1], *g = activation[2], *o = activation[3];
  C *di = d[0], *df = d[1], *dg = d[2], *d_o = d[3];
  HS_INDEPENDENT
  for (int64_t k = 0; k < n; ++k) {
    const C grad_h = dh[k] + dh_more[k], t = m::tanh(c_out[k]), grad_c = dc[k] + grad_h * o[k] * (C(1) - t * t);
    di[k] = grad_c * g[k] * i[k] * (C(1) - i[k]);
    df[k] = grad_c * c[k] * f[k] * (C(1) - f[k]);
    dg[k] = grad_c * i[k] * (C(1) - g[k] * g[k]);
    d_o[k] = grad_h * t * o[k] * (C(1) - o[k]);
    dc_in[k] = grad_c * f[k];
  }
}

template <class C>
HS_CLONES void gru(const C* const* x, const C* const* h, const C* before, C* const* activation, C* h_out, int64_t n) {
  C *r = activation[0], *z = activation[1], *candidate = activation[2], *h_n = activation[3];
  HS_INDEPENDENT
  for (int64_t k = 0; k < n; ++k) {
    r[k] = m::sigmoid(C(x[0][k] + h[0][k]));
    z[k] = m::sigmoid(C(x[1][k] + h[1][k]));
  }
  HS_INDEPENDENT
  for (int64_t k = 0; k < n; ++k) {
    h_n[k] = h[2][k];
    candidate[k] = m::tanh(C(x[2][k] + r[k] * h[2][k]));
    h_out[k] = (C(1) - z[k]) * candidate[k] + z[k] * before[k];
  }
}

template <class C>
HS_CLONES void gru_gradient(const C* dh, const C* dh_more, const C* const* activation, const C* before, C* const* dx, C* const* dg,
                            C* dh_in, int64_t n) {
  const C *r = activation[0], *z = activation[1], *candidate = activation[2], *h_n = activation[3];
  HS_INDEPENDENT
  for (int64_t k = 0; k < n; ++k) {
    const C grad_h = dh[k] + dh_more[k], grad_candidate = grad_h * (C(1) - z[k]) * (C(1) - candidate[k] * candidate[k]);
    const C dr = grad_candidate * h_n[k] * r[k] * (C(1) - r[k]), dz = grad_h * (before[k] - candidate[k]) * z[k] * (C(1) - z[k]);
    dx[0][k] = dg[0][k] = dr;
    dx[1][k] = dg[1][k] = dz;
    dx[2][k] = grad_candidate;
    dg[2][k] = grad_candidate * r[k];
    dh_in[k] = grad_h * z[k];
  }
}

template <class F>
void for_dtype(const TensorView& v, const F& f) {
  v.dtype == DType::f64 ? f(double{}) : f(float{});
}

}  // namespace

void lstm_cell(const TensorView& x_gates, const TensorView& h_gates, const TensorView& c, const TensorView& h_out,
               const TensorView& c_out, const TensorView& activated) {
  const int64_t units = c.shape[1];
  for_dtype(c, [&](auto tag) {
    using C = decltype(tag);
    each_part(c.shape[0], units, [&](int64_t r, int64_t u, int64_t n) {
      Operands<C, 4> x, h, activation;
      Operands<C, 3> states;
      const auto gate = [&](int k) { return (r * 4 + k) * units + u; };
      for (int k = 0; k < 4; ++k) {
        x.read(k, x_gates, gate(k), n);
        h.read(k, h_gates, gate(k), n);
        activation.begin_write(k, activated, gate(k));
      }
      const int64_t at_unit = r * units + u;
      states.read(0, c, at_unit, n);
      states.begin_write(1, c_out, at_unit);
      states.begin_write(2, h_out, at_unit);
      lstm(x.in, h.in, states.in[0], activation.out, states.out[1], states.out[2], n);
      for (int k = 0; k < 4; ++k) activation.end_write(k, activated, gate(k), n);
      states.end_write(1, c_out, at_unit, n);
      states.end_write(2, h_out, at_unit, n);
    });
  });
}

void lstm_cell_backward(const TensorView& dh, const TensorView& dh_more, const TensorView& dc, const TensorView& activated,
                        const TensorView& c, const TensorView& c_out, const TensorView& dgates, const TensorView& dc_in) {
  const int64_t units = c.shape[1];
  for_dtype(c, [&](auto tag) {
    using C = decltype(tag);
    each_part(c.shape[0], units, [&](int64_t r, int64_t u, int64_t n) {
      Operands<C, 4> activation, d;
      Operands<C, 5> in;
      Operands<C, 1> out;
      const auto gate = [&](int k) { return (r * 4 + k) * units + u; };
      const int64_t at_unit = r * units + u;
      for (int k = 0; k < 4; ++k) {
        activation.read(k, activated, gate(k), n);
        d.begin_write(k, dgates, gate(k));
      }
      const TensorView* const views[5] = {&dh, &dh_more, &dc, &c, &c_out};
      for (int k = 0; k < 5; ++k) in.read_or_zero(k, *views[k], at_unit, n);
      out.begin_write(0, dc_in, at_unit);
      lstm_gradient(in.in[0], in.in[1], in.in[2], activation.in, in.in[3], in.in[4], d.out, out.out[0], n);
      for (int k = 0; k < 4; ++k) d.end_write(k, dgates, gate(k), n);
      out.end_write(0, dc_in, at_unit, n);
    });
  });
}

void gru_cell(const TensorView& x_gates, const TensorView& h_gates, const TensorView& h, const TensorView& h_out,
              const TensorView& activated) {
  const int64_t units = h.shape[1];
  for_dtype(h, [&](auto tag) {
    using C = decltype(tag);
    each_part(h.shape[0], units, [&](int64_t r, int64_t u, int64_t n) {
      Operands<C, 4> activation;
      Operands<C, 3> x_gate, h_gate;
      Operands<C, 2> states;
      const auto gate = [&](int k) { return (r * 3 + k) * units + u; };
      for (int k = 0; k < 3; ++k) {
        x_gate.read(k, x_gates, gate(k), n);
        h_gate.read(k, h_gates, gate(k), n);
      }
      for (int k = 0; k < 4; ++k) activation.begin_write(k, activated, (r * 4 + k) * units + u);
      states.read(0, h, r * units + u, n);
      states.begin_write(1, h_out, r * units + u);
      gru(x_gate.in, h_gate.in, states.in[0], activation.out, states.out[1], n);
      for (int k = 0; k < 4; ++k) activation.end_write(k, activated, (r * 4 + k) * units + u, n);
      states.end_write(1, h_out, r * units + u, n);
    });
  });
}

void gru_cell_backward(const TensorView& dh, const TensorView& dh_more, const TensorView& activated, const TensorView& h,
                       const TensorView& dx_gates, const TensorView& dh_gates, const TensorView& dh_in) {
  const int64_t units = h.shape[1];
  for_dtype(h, [&](auto tag) {
    using C = decltype(tag);
    each_part(h.shape[0], units, [&](int64_t r, int64_t u, int64_t n) {
      Operands<C, 4> activation;
      Operands<C, 3> dx, dg;
      Operands<C, 4> states;
      const auto gate = [&](int k) { return (r * 3 + k) * units + u; };
      for (int k = 0; k < 4; ++k) activation.read(k, activated, (r * 4 + k) * units + u, n);
      for (int k = 0; k < 3; ++k) {
        dx.begin_write(k, dx_gates, gate(k));
        dg.begin_write(k, dh_gates, gate(k));
      }
      const int64_t at_unit = r * units + u;
      states.read_or_zero(0, dh, at_unit, n);
      states.read_or_zero(1, dh_more, at_unit, n);
      states.read(2, h, at_unit, n);
      states.begin_write(3, dh_in, at_unit);
      gru_gradient(states.in[0], states.in[1], activation.in, states.in[2], dx.out, dg.out, states.out[3], n);
      for (int k = 0; k < 3; ++k) {
        dx.end_write(k, dx_gates, gate(k), n);
        dg.end_write(k, dh_gates, gate(k), n);
      }
      states.end_write(3, dh_in, at_unit, n);
    });
  });
}

}  // namespace halfstep::cpu
