// SPDX-License-Identifier: Apache-2.0
// The elementwise part of recurrent cells, after their products. N samples with H units; gates are the sums x_gates + h_gates.
//   LSTM  gates [N, 4H]: i, f, o = sigmoid, g = tanh;  c' = f c + i g, h' = o tanh(c')
//         t = tanh(c'), D = dc' + dh' o (1 - t^2):  di = D g i (1 - i), df = D c f (1 - f), dg = D i (1 - g^2),
//         do = dh' t o (1 - o), dc = D f
//   GRU   gates [N, 3H]: r, z = sigmoid, n = tanh(x_n + r h_n);  h' = (1 - z) n + z h
//         dn = dh' (1 - z) (1 - n^2), dr = dn h_n r (1 - r), dz = dh' (h - n) z (1 - z), dh = dh' z
//         dx_gates = (dr, dz, dn), dh_gates = (dr, dz, dn r)
// Each thread takes a pack of neighbouring units of a row.
#include "cuda/kernels/norm/norms.cuh"

namespace halfstep::cuda {
namespace {

constexpr int kPack = 4;

// Returns the derivative of the sigmoid whose value is s.
template <class C>
__device__ inline C slope(C s) {
  return s * (C(1) - s);
}
template <class C, int N>
__device__ inline void load_or_zero(const Operand& o, int64_t i, C (&x)[N]) {
  if (o.data != nullptr) return load_some(o, i, x);
#pragma unroll
  for (int j = 0; j < N; ++j) x[j] = C(0);
}

// Calls f(row, unit) for the units of each thread.
template <int N, class F>
__device__ inline void each_unit(int64_t rows, int64_t units, const F& f) {
  const int64_t packs = units / N, step = int64_t(gridDim.x) * blockDim.x;
  for (int64_t p = int64_t(blockIdx.x) * blockDim.x + threadIdx.x; p < rows * packs; p += step) {
    const int64_t r = short_quotient(p, packs);
    f(r, (p - r * packs) * N);
  }
}

// Operands of an LSTM's kernels, forward and backward. activated: i, f, g, o after their functions; dh + dh_more and dc: gradients
// of h' and c'; dc_in: that of c. Any of dh, dh_more and dc may be empty: 0.
struct Lstm {
  Operand x_gates, h_gates, c, h_out, c_out, activated, dh, dh_more, dc, dgates, dc_in;
  int64_t rows, units;
};

template <class C, int N>
__global__ void __launch_bounds__(kThreads) lstm_kernel(Lstm a) {
  each_unit<N>(a.rows, a.units, [&](int64_t r, int64_t u) {
    C act[4][N], c[N], h[N];
#pragma unroll
    for (int k = 0; k < 4; ++k) {
      const int64_t at = (r * 4 + k) * a.units + u;
      load_some(a.x_gates, at, act[k]);
      load_some(a.h_gates, at, h);
#pragma unroll
      for (int j = 0; j < N; ++j) act[k][j] = k == 2 ? m::tanh(C(act[k][j] + h[j])) : m::sigmoid(C(act[k][j] + h[j]));
      if (a.activated.data != nullptr) store_some(a.activated, at, act[k]);
    }
    load_some(a.c, r * a.units + u, c);
#pragma unroll
    for (int j = 0; j < N; ++j) {
      c[j] = act[1][j] * c[j] + act[0][j] * act[2][j];
      h[j] = act[3][j] * m::tanh(c[j]);
    }
    store_some(a.c_out, r * a.units + u, c);
    store_some(a.h_out, r * a.units + u, h);
  });
}

template <class C, int N>
__global__ void __launch_bounds__(kThreads) lstm_backward_kernel(Lstm a) {
  each_unit<N>(a.rows, a.units, [&](int64_t r, int64_t u) {
    C act[4][N], c[N], t[N], dh[N], more[N], dc[N];
    const int64_t at = r * a.units + u;
#pragma unroll
    for (int k = 0; k < 4; ++k) load_some(a.activated, (r * 4 + k) * a.units + u, act[k]);
    load_some(a.c, at, c);
    load_some(a.c_out, at, t);
    load_or_zero(a.dh, at, dh);
    load_or_zero(a.dh_more, at, more);
    load_or_zero(a.dc, at, dc);
#pragma unroll
    for (int j = 0; j < N; ++j) {
      const C i = act[0][j], f = act[1][j], g = act[2][j], o = act[3][j], th = m::tanh(t[j]);
      const C to_h = dh[j] + more[j], to_c = dc[j] + to_h * o * (C(1) - th * th);
      act[0][j] = to_c * g * slope(i);
      act[1][j] = to_c * c[j] * slope(f);
      act[2][j] = to_c * i * (C(1) - g * g);
      act[3][j] = to_h * th * slope(o);
      dc[j] = to_c * f;
    }
#pragma unroll
    for (int k = 0; k < 4; ++k) store_some(a.dgates, (r * 4 + k) * a.units + u, act[k]);
    store_some(a.dc_in, at, dc);
  });
}

// Operands of a GRU's kernels, forward and backward. activated: r, z, n and h_n; dh + dh_more: gradient of h'; dh_in: the part of
// h's gradient that does not go through the gates. Either of dh and dh_more may be empty: 0.
struct Gru {
  Operand x_gates, h_gates, h, h_out, activated, dh, dh_more, dx_gates, dh_gates, dh_in;
  int64_t rows, units;
};

template <class C, int N>
__global__ void __launch_bounds__(kThreads) gru_kernel(Gru a) {
  each_unit<N>(a.rows, a.units, [&](int64_t r, int64_t u) {
    C x[3][N], h[3][N], before[N];
#pragma unroll
    for (int k = 0; k < 3; ++k) {
      load_some(a.x_gates, (r * 3 + k) * a.units + u, x[k]);
      load_some(a.h_gates, (r * 3 + k) * a.units + u, h[k]);
    }
    load_some(a.h, r * a.units + u, before);
#pragma unroll
    for (int j = 0; j < N; ++j) {
      x[0][j] = m::sigmoid(C(x[0][j] + h[0][j]));
      x[1][j] = m::sigmoid(C(x[1][j] + h[1][j]));
      x[2][j] = m::tanh(C(x[2][j] + x[0][j] * h[2][j]));
      before[j] = (C(1) - x[1][j]) * x[2][j] + x[1][j] * before[j];
    }
    store_some(a.h_out, r * a.units + u, before);
    if (a.activated.data == nullptr) return;
#pragma unroll
    for (int k = 0; k < 3; ++k) store_some(a.activated, (r * 4 + k) * a.units + u, x[k]);
    store_some(a.activated, (r * 4 + 3) * a.units + u, h[2]);
  });
}

template <class C, int N>
__global__ void __launch_bounds__(kThreads) gru_backward_kernel(Gru a) {
  each_unit<N>(a.rows, a.units, [&](int64_t r, int64_t u) {
    C act[4][N], dh[N], more[N], before[N];
#pragma unroll
    for (int k = 0; k < 4; ++k) load_some(a.activated, (r * 4 + k) * a.units + u, act[k]);
    load_or_zero(a.dh, r * a.units + u, dh);
    load_or_zero(a.dh_more, r * a.units + u, more);
    load_some(a.h, r * a.units + u, before);
#pragma unroll
    for (int j = 0; j < N; ++j) {
      dh[j] += more[j];
      const C reset = act[0][j], z = act[1][j], n = act[2][j], dn = dh[j] * (C(1) - z) * (C(1) - n * n);
      act[0][j] = dn * act[3][j] * slope(reset);
      act[1][j] = dh[j] * (before[j] - n) * slope(z);
      act[2][j] = dn;
      act[3][j] = dn * reset;
      dh[j] *= z;
    }
#pragma unroll
    for (int k = 0; k < 3; ++k) {
      store_some(a.dx_gates, (r * 3 + k) * a.units + u, act[k]);
      store_some(a.dh_gates, (r * 3 + k) * a.units + u, act[k == 2 ? 3 : k]);
    }
    store_some(a.dh_in, r * a.units + u, dh);
  });
}

// The forms of a kernel: float by packs, float by elements, double by elements.
template <class Args>
struct Kernels {
  void (*packed)(Args), (*by_element)(Args), (*in_double)(Args);
};

template <class Args>
void run(const Queue& q, const Kernels<Args>& kernels, DType dtype, std::initializer_list<const TensorView*> operands,
         const Args& a) {
  if (a.rows * a.units == 0) return;
  const bool packed = reads_some(kPack, operands, a.units);
  const auto kernel = dtype == DType::f64 ? kernels.in_double : packed ? kernels.packed : kernels.by_element;
  launch(kernel, blocks_for(a.rows * a.units / (packed ? kPack : 1), kThreads), kThreads, 0, q.stream, a);
}

}  // namespace

void lstm_cell(const Queue& q, const TensorView& x_gates, const TensorView& h_gates, const TensorView& c, const TensorView& h_out,
               const TensorView& c_out, const TensorView& activated) {
  const Lstm a{x_gates, h_gates, c, h_out, c_out, activated, {}, {}, {}, {}, {}, c.shape[0], c.shape[1]};
  run<Lstm>(q, {lstm_kernel<float, kPack>, lstm_kernel<float, 1>, lstm_kernel<double, 1>}, c.dtype,
            {&x_gates, &h_gates, &c, &h_out, &c_out, &activated}, a);
}

void lstm_cell_backward(const Queue& q, const TensorView& dh, const TensorView& dh_more, const TensorView& dc,
                        const TensorView& activated, const TensorView& c, const TensorView& c_out, const TensorView& dgates,
                        const TensorView& dc_in) {
  const Lstm a{{}, {}, c, {}, c_out, activated, dh, dh_more, dc, dgates, dc_in, c.shape[0], c.shape[1]};
  run<Lstm>(q, {lstm_backward_kernel<float, kPack>, lstm_backward_kernel<float, 1>, lstm_backward_kernel<double, 1>}, c.dtype,
            {&dh, &dh_more, &dc, &activated, &c, &c_out, &dgates, &dc_in}, a);
}

void gru_cell(const Queue& q, const TensorView& x_gates, const TensorView& h_gates, const TensorView& h, const TensorView& h_out,
              const TensorView& activated) {
  const Gru a{x_gates, h_gates, h, h_out, activated, {}, {}, {}, {}, {}, h.shape[0], h.shape[1]};
  run<Gru>(q, {gru_kernel<float, kPack>, gru_kernel<float, 1>, gru_kernel<double, 1>}, h.dtype,
           {&x_gates, &h_gates, &h, &h_out, &activated}, a);
}

void gru_cell_backward(const Queue& q, const TensorView& dh, const TensorView& dh_more, const TensorView& activated,
                       const TensorView& h, const TensorView& dx_gates, const TensorView& dh_gates, const TensorView& dh_in) {
  const Gru a{{}, {}, h, {}, activated, dh, dh_more, dx_gates, dh_gates, dh_in, h.shape[0], h.shape[1]};
  run<Gru>(q, {gru_backward_kernel<float, kPack>, gru_backward_kernel<float, 1>, gru_backward_kernel<double, 1>}, h.dtype,
           {&dh, &dh_more, &activated, &h, &dx_gates, &dh_gates, &dh_in}, a);
}

}  // namespace halfstep::cuda
