// SPDX-License-Identifier: Apache-2.0
// The epilogue of a product x [M, N], where the library does not fuse it: out = act(x + bias), which writes `aux` (a ReLU's mask
// or x + bias), and the derivative out = g act'(aux). Each thread takes eight columns of a row, the bits of one byte of the mask.
#include "cuda/kernels/elementwise/elementwise.cuh"

namespace halfstep::cuda {
namespace {

constexpr int kUnit = 8;

// Rows of `columns` elements, as units.
struct Units {
  int64_t columns, row_step, per_row, count;  // units of a row, and of all rows

  explicit Units(const TensorView& x)
      : columns(x.shape[1]),
        row_step(x.shape[0] > 1 ? x.strides[0] : columns),
        per_row((columns + kUnit - 1) / kUnit),
        count(x.shape[0] * per_row) {}
  // Computes the row and the first column of unit i.
  __device__ void locate(int64_t i, int64_t& row, int64_t& first) const {
    row = count <= 0x7fffffff ? int64_t(uint32_t(i) / uint32_t(per_row)) : i / per_row;
    first = (i - row * per_row) * kUnit;
  }
};

// Loads a unit. left: the elements of the row from here on, which may be fewer than a unit has.
template <class T>
__device__ inline void load_unit(const T* from, int64_t left, bool packed, T (&v)[kUnit]) {
  constexpr int kSize = Pack<T>::kSize;
  if (packed) {  // rows are whole packs, but perhaps not whole units
#pragma unroll
    for (int p = 0; p < kUnit / kSize; ++p) {
      if (p * kSize >= left) break;
      const Pack<T> in = reinterpret_cast<const Pack<T>*>(from)[p];
#pragma unroll
      for (int j = 0; j < kSize; ++j) v[p * kSize + j] = in.v[j];
    }
  } else {
#pragma unroll
    for (int j = 0; j < kUnit; ++j)
      if (j < left) v[j] = from[j];
  }
}
template <class T>
__device__ inline void store_unit(T* to, int64_t left, bool packed, const T (&v)[kUnit]) {
  constexpr int kSize = Pack<T>::kSize;
  if (packed) {
#pragma unroll
    for (int p = 0; p < kUnit / kSize; ++p) {
      if (p * kSize >= left) break;
      Pack<T> out;
#pragma unroll
      for (int j = 0; j < kSize; ++j) out.v[j] = v[p * kSize + j];
      reinterpret_cast<Pack<T>*>(to)[p] = out;
    }
  } else {
#pragma unroll
    for (int j = 0; j < kUnit; ++j)
      if (j < left) to[j] = v[j];
  }
}

// The second operand of an epilogue: a mask's bytes or z, in rows of `stride` elements.
struct Aux {
  void* data = nullptr;
  int64_t stride = 0;
};

// Returns whether the gradient passes a ReLU whose output is y: not at 0, as in PyTorch, but at NaN.
template <class T>
__device__ inline bool passes(T y) {
  return !(to_float(y) <= 0);
}

template <class T, Activation Act>
__global__ void __launch_bounds__(kThreads) bias_activation_kernel(const T* x, T* out, Units units, Operand bias,
                                                                   int64_t bias_stride, Aux aux, bool packed, bool bias_packed) {
  using C = typename ComputeOf<T>::type;
  const int64_t step = int64_t(gridDim.x) * blockDim.x;
  for (int64_t i = int64_t(blockIdx.x) * blockDim.x + threadIdx.x; i < units.count; i += step) {
    int64_t row, first;
    units.locate(i, row, first);
    const int64_t left = units.columns - first, at = row * units.row_step + first;
    T v[kUnit] = {}, b[kUnit] = {}, z[kUnit] = {};
    load_unit(x + at, left, packed, v);
    if (bias_packed) load_unit(static_cast<const T*>(bias.data) + first, left, true, b);
    unsigned mask = 0;
#pragma unroll
    for (int j = 0; j < kUnit; ++j) {
      C s = to_float(v[j]);
      if (bias_packed)
        s += C(to_float(b[j]));
      else if (bias.data && j < left)
        s += bias.load<C>((first + j) * bias_stride);
      if constexpr (Act == Activation::gelu) {
        z[j] = from_float<T>(s);
        s = C(functor::gelu_tanh{}(s));
      }
      if constexpr (Act == Activation::relu) s = C(functor::relu{}(s));
      v[j] = from_float<T>(s);
      if constexpr (Act == Activation::relu) {
        if (j < left && passes(v[j])) mask |= 1u << j;
      }
    }
    if (out) store_unit(out + at, left, packed, v);
    if (aux.data) {
      if constexpr (Act == Activation::gelu) store_unit(static_cast<T*>(aux.data) + row * aux.stride + first, left, packed, z);
      if constexpr (Act == Activation::relu) static_cast<uint8_t*>(aux.data)[row * aux.stride + first / kUnit] = uint8_t(mask);
    }
  }
}

template <class T, Activation Act>
__global__ void __launch_bounds__(kThreads) derivative_kernel(const T* grad, T* out, Units units, Aux aux, bool packed) {
  using C = typename ComputeOf<T>::type;
  const int64_t step = int64_t(gridDim.x) * blockDim.x;
  for (int64_t i = int64_t(blockIdx.x) * blockDim.x + threadIdx.x; i < units.count; i += step) {
    int64_t row, first;
    units.locate(i, row, first);
    const int64_t left = units.columns - first, at = row * units.row_step + first;
    T v[kUnit] = {};
    load_unit(grad + at, left, packed, v);
    if constexpr (Act == Activation::relu) {
      const unsigned mask = static_cast<const uint8_t*>(aux.data)[row * aux.stride + first / kUnit];
#pragma unroll
      for (int j = 0; j < kUnit; ++j)
        if (!(mask >> j & 1u)) v[j] = from_float<T>(C(0));
    } else {
      T z[kUnit] = {};
      load_unit(static_cast<const T*>(aux.data) + row * aux.stride + first, left, packed, z);
#pragma unroll
      for (int j = 0; j < kUnit; ++j) v[j] = from_float<T>(C(functor::gelu_tanh_backward{}(C(to_float(v[j])), C(to_float(z[j])))));
    }
    store_unit(out + at, left, packed, v);
  }
}

// Calls f(T{}) with the device's type of a floating dtype.
template <class F>
void with_floating(DType t, const F& f) {
  switch (t) {
    case DType::f16: return f(__half{});
    case DType::bf16: return f(__nv_bfloat16{});
    case DType::f32: return f(float{});
    default: return f(double{});
  }
}

// Returns whether rows consist of 16-byte packs at aligned addresses.
bool in_packs(const TensorView& v, int64_t row) { return aligned16(v.data) && row * int64_t(size_of(v.dtype)) % 16 == 0; }
bool in_packs(const TensorView& v, const Units& units) { return in_packs(v, units.columns) && in_packs(v, units.row_step); }

}  // namespace

void bias_activation(const Queue& q, const TensorView& x, const TensorView& bias, Activation activation, const TensorView& aux,
                     const TensorView& out) {
  const Units units(x);
  if (units.count == 0) return;
  const bool z = aux && activation == Activation::gelu;
  const bool packed = in_packs(x, units) && (!out || in_packs(out, units)) && (!z || in_packs(aux, aux.strides[0]));
  const bool bias_packed = packed && bias && bias.dtype == x.dtype && bias.strides[0] == 1 && aligned16(bias.data);
  const Aux second = aux ? Aux{aux.data, aux.strides[0]} : Aux{};
  with_floating(x.dtype, [&](auto tag) {
    using T = decltype(tag);
    const auto run = [&](auto kernel) {
      launch(kernel, blocks_for(units.count, kThreads), kThreads, 0, q.stream, x.as<const T>(), out.as<T>(), units, Operand(bias),
             bias ? bias.strides[0] : 0, second, packed, bias_packed);
    };
    if (activation == Activation::relu) return run(bias_activation_kernel<T, Activation::relu>);
    if (activation == Activation::gelu) return run(bias_activation_kernel<T, Activation::gelu>);
    return run(bias_activation_kernel<T, Activation::none>);
  });
}

void activation_derivative(const Queue& q, const TensorView& grad, Activation activation, const TensorView& aux,
                           const TensorView& out) {
  const Units units(grad);
  if (units.count == 0) return;
  const bool packed =
      in_packs(grad, units) && in_packs(out, units) && (activation == Activation::relu || in_packs(aux, aux.strides[0]));
  with_floating(grad.dtype, [&](auto tag) {
    using T = decltype(tag);
    const auto run = [&](auto kernel) {
      launch(kernel, blocks_for(units.count, kThreads), kThreads, 0, q.stream, grad.as<const T>(), out.as<T>(), units,
             Aux{aux.data, aux.strides[0]}, packed);
    };
    if (activation == Activation::relu) return run(derivative_kernel<T, Activation::relu>);
    return run(derivative_kernel<T, Activation::gelu>);
  });
}

}  // namespace halfstep::cuda
