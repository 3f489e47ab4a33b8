// SPDX-License-Identifier: Apache-2.0
// Products and their epilogues against the CPU backend.
#include "cuda/blas/gemm.h"

#include <cstdlib>

#include "cuda/blas/padding.h"
#include "device.h"

using namespace halfstep;
using namespace halfstep::testing;

namespace {

constexpr int64_t kEdges[] = {1, 7, 31, 33, 127, 129};

// The difference that two correct orders of a sum of k terms may have.
double slack(DType t, int64_t k) { return t == DType::f64 ? 1e-15 * double(k + 4) : 3e-7 * double(k + 4); }

void check_product(const Buffer& a, const Buffer& b, DType out, bool accumulate = false, const Buffer* bias = nullptr,
                   Activation activation = Activation::none) {
  Shape shape = a.view.shape;
  shape[shape.size() - 1] = b.view.shape.back();
  const Buffer want = uniform(out, shape, 9), got = make(out, shape);
  std::memcpy(got.view.data, want.view.data, size_t(want.numel()) * size_of(out));
  const OnDevice dev_a(a), dev_b(b), dev_c(got), dev_bias(bias ? *bias : make(DType::f32, {1}));
  GemmArgs host{.a = a, .b = b, .c = want, .activation = activation, .accumulate = accumulate};
  GemmArgs device{.a = dev_a, .b = dev_b, .c = dev_c, .activation = activation, .accumulate = accumulate};
  if (bias) {
    host.bias = *bias;
    device.bias = dev_bias;
  }
  cpu().gemm(host);
  cuda::gemm(queue(), device);
  dev_c.fetch();
  // 16-bit results are rounded once more where bias and activation are steps of their own.
  const bool steps = is_half(out) && (bias || activation != Activation::none);
  check_close(got, want, steps ? 6 : 2, slack(out, a.view.shape.back()) + (steps ? 4 * epsilon(out) : 0), "gemm");
}

void check_sizes_and_transposes(DType t) {
  int layout = 0;
  for (int64_t m : kEdges) {
    for (int64_t n : kEdges) {
      const int64_t k = kEdges[layout % 6];
      const Buffer a = operand(t, {m, k}, layout & 1, 1, layout % 3), b = operand(t, {k, n}, layout & 2, 2, layout % 5);
      check_product(a, b, t);
      if (is_half(t)) check_product(a, b, DType::f32, layout & 1);
      if (t == DType::f32 || t == DType::f64) check_product(a, b, t, true);
      ++layout;
    }
  }
}

bool bit(const Buffer& mask, int64_t row, int64_t column) {
  return int(mask[row * mask.view.shape[1] + column / 8]) >> (column % 8) & 1;
}

}  // namespace

TEST_CASE("products over dtypes, sizes and transposes") {
  for (DType t : kFloating) check_sizes_and_transposes(t);
}

TEST_CASE("products of integers over dtypes, sizes and transposes") {
  for (DType t : {DType::i32, DType::i64, DType::u8}) check_sizes_and_transposes(t);
}

TEST_CASE("products of batches, with shared operands") {
  for (DType t : {DType::f32, DType::f16, DType::bf16, DType::f64, DType::i64}) {
    for (int layout = 0; layout < 4; ++layout) {
      const Buffer a = operand(t, {3, 12, 20}, layout & 1, 1), b = operand(t, {3, 20, 18}, layout & 2, 2);
      Buffer shared_a = a, shared_b = b;
      shared_a.view.strides[0] = 0;
      shared_b.view.strides[0] = 0;
      const Buffer bias = uniform(t, {18}, 5);
      check_product(a, b, t);
      check_product(a, shared_b, t, false, &bias, Activation::relu);
      check_product(shared_a, b, t, false, &bias);
    }
  }
}

TEST_CASE("bias and activation, with biases of several dtypes and layouts") {
  for (DType t : kFloating) {
    for (int64_t n : {1, 7, 8, 33, 64, 129}) {
      const Buffer a = operand(t, {17, 20}, false, 1), b = operand(t, {20, n}, true, 2);
      for (DType bias_type : {t, DType::f32}) {
        for (Layout layout : {Layout::dense, Layout::sliced}) {
          const Buffer bias = uniform(bias_type, {n}, 3, -2, 2, layout);
          for (Activation act : {Activation::none, Activation::relu, Activation::gelu}) check_product(a, b, t, false, &bias, act);
        }
      }
      for (Activation act : {Activation::relu, Activation::gelu}) check_product(a, b, t, false, nullptr, act);
      const Buffer bias = uniform(t, {n}, 3);
      if (!is_half(t)) check_product(a, b, t, true, &bias);
    }
  }
  const Buffer a = operand(DType::i64, {5, 4}, false, 1), b = operand(DType::i64, {4, 3}, false, 2),
               bias = uniform(DType::i64, {3}, 3);
  check_product(a, b, DType::i64, false, &bias, Activation::relu);
}

TEST_CASE("the ReLU mask: bit column % 8 of byte column / 8, rows of 128 bits") {
  for (DType t : kFloating) {
    for (int64_t n : {1, 7, 8, 127, 128, 129, 260}) {
      const int64_t m = n == 129 ? 40 : 5;  // more units than a block has threads
      const AuxLayout layout = cuda::activation_aux(Activation::relu, m, n, t);
      CHECK(layout.shape == Shape{m, (n + 127) / 128 * 16});
      CHECK(layout.dtype == DType::u8);
      const Buffer x = uniform(t, {m, n}, 1), bias = uniform(t, {n}, 2), y = poisoned(t, {m, n}),
                   mask = poisoned(DType::u8, layout.shape);
      set(x.view, 0, std::nan(""));
      const OnDevice dev_x(x), dev_bias(bias), dev_y(y), dev_mask(mask);
      cuda::bias_activation(queue(), dev_x, dev_bias, Activation::relu, dev_mask, dev_y);
      dev_y.fetch();
      dev_mask.fetch();
      bool ok = true;
      for (int64_t i = 0; i < m * n; ++i) {
        const double z = x[i] + bias[i % n];
        ok = ok && bit(mask, i / n, i % n) == !(z <= 0);
        ok = ok && close(t, y[i], z <= 0 ? 0 : z, 1, 1e-7);
      }
      CHECK_MESSAGE(ok, name(t), " ", n);

      const Buffer g = uniform(t, {m, n}, 3), dx = poisoned(t, {m, n});
      const OnDevice dev_g(g, 1), dev_dx(dx, n % 2);
      cuda::activation_derivative(queue(), dev_g, Activation::relu, dev_mask, dev_dx);
      dev_dx.fetch();
      ok = true;
      for (int64_t i = 0; i < m * n; ++i) ok = ok && dx[i] == (bit(mask, i / n, i % n) ? g[i] : 0);
      CHECK_MESSAGE(ok, name(t), " ", n);
    }
  }
}

TEST_CASE("GELU keeps its argument, in rows of a pitch, for the derivative") {
  for (DType t : kFloating) {
    for (int64_t n : {1, 8, 33}) {
      const int64_t m = 5;
      const AuxLayout layout = cuda::activation_aux(Activation::gelu, m, n, t);
      const Buffer x = uniform(t, {m, n}, 1), bias = uniform(t, {n}, 2), y = poisoned(t, {m, n}), z = poisoned(t, layout.shape),
                   g = uniform(t, {m, n}, 3), dx = poisoned(t, {m, n}), want = make(t, {m, n}), want_dx = make(t, {m, n}),
                   sum = make(t, {m, n});
      for (int64_t i = 0; i < m * n; ++i) set(sum.view, i, x[i] + bias[i % n]);
      cpu().unary(Unary::gelu_tanh, sum, want);
      cpu().unary_backward(Unary::gelu_tanh, g, sum, want_dx);
      const OnDevice dev_x(x), dev_bias(bias), dev_y(y), dev_z(z), dev_g(g), dev_dx(dx);
      cuda::bias_activation(queue(), dev_x, dev_bias, Activation::gelu, dev_z, dev_y);
      cuda::activation_derivative(queue(), dev_g, Activation::gelu, dev_z, dev_dx);
      dev_y.fetch();
      dev_dx.fetch();
      const double absolute = t == DType::f64 ? 1e-12 : t == DType::f32 ? 2e-6 : 1e-3;
      check_close(y, want, 4, absolute, "gelu");
      check_close(dx, want_dx, 4, absolute, "gelu backward");
    }
  }
}

TEST_CASE("derivatives and the sums for biases") {
  for (DType t : kFloating) {
    for (int64_t n : {1, 7, 33, 64, 129}) {
      for (Activation act : {Activation::relu, Activation::gelu}) {
        const int64_t m = 19, k = 24;
        CAPTURE(name(t));
        CAPTURE(n);
        // Forward with aux.
        const Buffer x = operand(t, {m, k}, false, 1), w = operand(t, {k, n}, true, 2), bias = uniform(t, {n}, 3);
        const AuxLayout layout = cuda::activation_aux(act, m, n, t);
        if (act == Activation::gelu) {
          CHECK(layout.shape == Shape{m, (n + 7) / 8 * 8});
          CHECK(layout.dtype == t);
        }
        const Buffer y = poisoned(t, {m, n}), aux = poisoned(layout.dtype, layout.shape), z = make(t, {m, n}),
                     cpu_y = make(t, {m, n});
        const OnDevice dev_x(x), dev_w(w), dev_bias(bias), dev_y(y), dev_aux(aux);
        cuda::gemm(queue(), {.a = dev_x, .b = dev_w, .c = dev_y, .bias = dev_bias, .activation = act, .aux = dev_aux});
        dev_y.fetch();
        dev_aux.fetch();
        cpu().gemm({.a = x, .b = w, .c = z, .bias = bias});
        cpu().unary(act == Activation::relu ? Unary::relu : Unary::gelu_tanh, z, cpu_y);
        const double tolerance = slack(t, k) + (is_half(t) ? 6 * epsilon(t) : 0);
        check_close(y, cpu_y, 4, tolerance, "forward");
        if (act == Activation::gelu) {
          TensorView inner = aux;
          inner.shape = {m, n};
          check_close(Buffer{nullptr, inner}, z, 4, tolerance, "z");
        }
        // Backward through it: a is stored by columns, as in the gradient of a weight.
        const Buffer g = operand(t, {m, k}, true, 5), dz = poisoned(t, {m, n}), want = make(t, {m, n});
        const DType sum_type = n % 2 ? t : t == DType::f64 ? t : DType::f32;
        const Buffer columns = poisoned(sum_type, {n}), rows = poisoned(sum_type, {m}), want_columns = make(sum_type, {n}),
                     want_rows = make(sum_type, {m});
        const OnDevice dev_g(g), dev_dz(dz), dev_columns(columns), dev_rows(rows);
        cuda::gemm(queue(), {.a = dev_g,
                             .b = dev_w,
                             .c = dev_dz,
                             .activation = act,
                             .aux = dev_aux,
                             .derivative = true,
                             .column_sum = dev_columns,
                             .a_row_sum = dev_rows});
        for (const OnDevice* out : {&dev_dz, &dev_columns, &dev_rows}) out->fetch();
        TensorView saved = y;
        if (act == Activation::gelu) {
          saved = aux;
          saved.shape = {m, n};
        }
        cpu().gemm({.a = g,
                    .b = w,
                    .c = want,
                    .activation = act,
                    .aux = saved,
                    .derivative = true,
                    .column_sum = want_columns,
                    .a_row_sum = want_rows});
        check_close(dz, want, 4, tolerance, "derivative");
        check_close(columns, want_columns, 4, tolerance * double(m), "column_sum");
        check_close(rows, want_rows, 4, tolerance * double(k), "a_row_sum");
      }
    }
  }
}

TEST_CASE("the sums of the second factor's columns come with a product") {
  for (DType t : kFloating) {
    for (bool wide : {false, true}) {
      const DType out = wide && is_half(t) ? DType::f32 : t;
      const int64_t m = 40, k = 96, n = 33;
      for (Layout layout : {Layout::dense, Layout::transposed}) {
        const Buffer a = uniform(t, {m, k}, 1), b = uniform(t, {k, n}, 2, -1, 1, layout), c = poisoned(out, {m, n}),
                     want = make(out, {m, n}), sums = poisoned(out, {n}), want_sums = make(out, {n});
        cpu().gemm({.a = a, .b = b, .c = want, .b_column_sum = want_sums});
        const OnDevice dev_a(a), dev_b(b), dev_c(c), dev_sums(sums);
        cuda::gemm(queue(), {.a = dev_a, .b = dev_b, .c = dev_c, .b_column_sum = dev_sums});
        dev_c.fetch();
        dev_sums.fetch();
        const double tolerance = out == DType::f64 ? 1e-14 : 1e-6;
        check_close(c, want, 4, tolerance * double(k), "product");
        check_close(sums, want_sums, 4, tolerance * double(k), "b_column_sum");
      }
    }
  }
}

namespace {

// Makes all products of 16 bits large.
struct Small {
  Small() { cuda::set_least_padded_product(1); }
  ~Small() { cuda::set_least_padded_product(0x1p30); }
};

// Checks a product whose result has rows of `pitch` elements, and that nothing is written behind the columns.
void check_pitched_product(const Buffer& a, const Buffer& b, DType out, int64_t pitch, const Buffer* bias, bool accumulate) {
  const int64_t m = a.view.shape[0], n = b.view.shape[1], k = a.view.shape[1];
  const Buffer got = uniform(out, {m, pitch}, 9), begin = uniform(out, {m, pitch}, 9), want = make(out, {m, n}),
               sums = poisoned(out, {m}), column_sums = poisoned(out, {n}), want_sums = make(out, {m}),
               want_column_sums = make(out, {n});
  for (int64_t i = 0; i < m * n; ++i) set(want.view, i, begin[i / n * pitch + i % n]);
  const OnDevice dev_a(a), dev_b(b), dev_c(got), dev_bias(bias ? *bias : make(out, {1})), dev_sums(sums),
      dev_column_sums(column_sums);
  GemmArgs host{.a = a, .b = b, .c = want, .accumulate = accumulate}, device{.a = dev_a, .b = dev_b, .accumulate = accumulate};
  device.c = dev_c;
  device.c.shape[1] = n;
  if (bias) host.bias = *bias, device.bias = dev_bias;
  if (!bias) host.a_row_sum = want_sums, device.a_row_sum = dev_sums;
  cpu().gemm(host);
  cuda::gemm(queue(), device);
  dev_c.fetch();
  dev_sums.fetch();
  const Buffer columns = make(out, {m, n});
  bool untouched = true;
  for (int64_t i = 0; i < m * pitch; ++i) {
    if (i % pitch < n)
      set(columns.view, i / pitch * n + i % pitch, got[i]);
    else
      untouched = untouched && got[i] == begin[i];
  }
  CHECK(untouched);
  check_close(columns, want, bias ? 6 : 2, slack(out, k) + (bias ? 4 * epsilon(out) : 0), "product in parts");
  if (!bias) check_close(sums, want_sums, 4, 1e-6 * double(k), "row sums in parts");
  if (bias || accumulate) return;
  cpu().gemm({.a = a, .b = b, .c = want, .b_column_sum = want_column_sums});
  device.a_row_sum = {};
  device.b_column_sum = dev_column_sums;
  cuda::gemm(queue(), device);
  dev_column_sums.fetch();
  check_close(column_sums, want_column_sums, 4, 1e-6 * double(k), "column sums in parts");
}

std::string cut_text(const GemmArgs& g) {
  const cuda::ProductCut cut = cuda::cut_of(g);
  return std::string(1, "-mnk"[cut.extent]) + (cut.at ? " " + std::to_string(cut.at) : "");
}

}  // namespace

TEST_CASE("large products whose rows start at packs, but do not end there, are computed in two parts without a copy") {
  const Small small;
  const int64_t rows = 264, words = 257, width = 256, pitch = 264;
  const auto transposed = [](const Buffer& x) {
    Buffer t = x;
    std::swap(t.view.shape[0], t.view.shape[1]);
    std::swap(t.view.strides[0], t.view.strides[1]);
    return t;
  };
  for (DType t : {DType::f16, DType::bf16}) {
    const Buffer x = uniform(t, {rows, width}, 1, -1, 1), w = operand(t, {width, words}, true, 2),
                 g = pitched(t, rows, words, pitch, 3, -1, 1), w_rows = uniform(t, {words, width}, 4, -1, 1),
                 odd = pitched(t, words, words, pitch, 5, -1, 1);
    for (DType out : {t, DType::f32}) {
      const Buffer bias = uniform(out, {words}, 6, -1, 1);
      Buffer logits = make(out, {rows, pitch});
      logits.view.shape[1] = words;
      CHECK(cut_text({.a = x, .b = w, .c = logits}) == "n 256");
      CHECK(cut_text({.a = g, .b = w_rows, .c = make(out, {rows, width})}) == "k 256");
      CHECK(cut_text({.a = transposed(g), .b = x, .c = make(out, {words, width})}) == "m 256");
      CHECK(cut_text({.a = x, .b = w, .c = make(out, {rows, words})}) == "-");  // rows that start between packs
      CHECK(cut_text({.a = x, .b = w_rows, .c = make(out, {rows, width})}) == "-");
      for (bool accumulate : {false, true}) {
        if (accumulate && out != DType::f32) continue;
        check_pitched_product(x, w, out, pitch, nullptr, accumulate);
        check_pitched_product(x, w, out, pitch, &bias, accumulate);
        check_pitched_product(g, w_rows, out, width, nullptr, accumulate);
        check_pitched_product(transposed(g), x, out, width, nullptr, accumulate);
        check_pitched_product(odd, odd, out, pitch, nullptr, accumulate);  // all three extents
        check_pitched_product(odd, odd, out, pitch, &bias, accumulate);
      }
    }
  }
  // The rest of the epilogue follows the parts.
  check_product(pitched(DType::f16, rows, words, pitch, 3, -1, 1), uniform(DType::f16, {words, width}, 4, -1, 1), DType::f16, false,
                nullptr, Activation::relu);
}

TEST_CASE("plain products and biases of rows at a distance") {
  for (DType t : {DType::f16, DType::bf16, DType::f32, DType::f64, DType::i64}) {
    for (int64_t pitch : {24, 25}) {
      const Buffer a = uniform(t, {9, 5}, 1), b = uniform(t, {5, 17}, 2), bias = uniform(t, {17}, 3), c = uniform(t, {9, pitch}, 4),
                   before = uniform(t, {9, pitch}, 4), want = make(t, {9, 17});
      for (int64_t i = 0; i < 9 * 17; ++i) set(want.view, i, c[i / 17 * pitch + i % 17]);
      const OnDevice dev_a(a), dev_b(b), dev_bias(bias), dev_c(c);
      TensorView rows = dev_c;
      rows.shape[1] = 17;
      if (is_floating(t)) {
        cpu().binary(Binary::add, want, Buffer{nullptr, {bias.view.data, t, {9, 17}, {0, 1}}}, want);
        cuda::bias_activation(queue(), rows, dev_bias, Activation::none, {}, rows);
      } else {
        cpu().gemm({.a = a, .b = b, .c = want, .bias = bias, .accumulate = true});
        cuda::gemm(queue(), {.a = dev_a, .b = dev_b, .c = rows, .bias = dev_bias, .accumulate = true});
      }
      dev_c.fetch();
      bool ok = true;
      for (int64_t i = 0; i < 9 * pitch; ++i) {
        const int64_t column = i % pitch;
        ok = ok && (column < 17 ? c[i] == want[i / pitch * 17 + column] : c[i] == before[i]);
      }
      CHECK_MESSAGE(ok, name(t), " ", pitch);
    }
  }
}

TEST_CASE("large products whose rows start between packs are computed with longer rows") {
  const Small small;
  const auto padding = [](const GemmArgs& g) {
    const cuda::Padding p = cuda::padding_of(g);
    std::string out = std::string(p.a ? "a" : "") + (p.b ? "b" : "") + (p.c ? "c" : "");
    if (p.any()) out += " " + std::to_string(p.m) + " " + std::to_string(p.n) + " " + std::to_string(p.k);
    return out;
  };
  for (DType t : {DType::f16, DType::bf16}) {
    for (DType out : {t, DType::f32}) {
      // A head's logits, the gradient of its input, and that of its weight.
      const int64_t rows = 264, words = 257, width = 256;
      const Buffer x = uniform(t, {rows, width}, 1, -1, 1), w = operand(t, {width, words}, true, 2),
                   g = uniform(t, {rows, words}, 3, -1, 1), w_rows = uniform(t, {words, width}, 4, -1, 1),
                   g_columns = operand(t, {words, rows}, true, 5), bias = uniform(out, {words}, 6, -1, 1);
      CHECK(padding({.a = x, .b = w, .c = make(out, {rows, words})}) == "bc 264 264 256");
      CHECK(padding({.a = g, .b = w_rows, .c = make(out, {rows, width})}) == "ab 264 256 264");
      CHECK(padding({.a = g_columns, .b = x, .c = make(out, {words, width})}) == "ac 264 256 264");
      check_product(x, w, out);
      check_product(x, w, out, false, &bias, Activation::relu);
      check_product(g, w_rows, out);
      check_product(g_columns, x, out);
      if (out == DType::f32) check_product(x, w, out, true);
      CHECK(padding({.a = x, .b = w, .c = make(DType::f32, {rows, words}), .accumulate = true}).empty());
      // Fewer uses than a copy costs.
      CHECK(padding({.a = g, .b = uniform(t, {words, 128}, 1), .c = make(out, {rows, 128})}).empty());
    }
  }
  const Buffer x = uniform(DType::f32, {264, 257}, 1), w = uniform(DType::f32, {257, 256}, 2);
  CHECK(padding({.a = x, .b = w, .c = make(DType::f32, {264, 256})}).empty());
}

TEST_CASE("empty products") {
  for (DType t : kFloating) {
    const Buffer none_a = make(t, {3, 0}), none_b = make(t, {0, 2}), bias = make(t, {2}, {-1, 2}), zero = make(t, {3, 2});
    check_product(none_a, none_b, t);
    check_product(none_a, none_b, t, false, &bias, Activation::relu);
    check_product(make(t, {0, 4}), make(t, {4, 2}), t);
    check_product(make(t, {3, 4}), make(t, {4, 0}), t);
    const Buffer columns = poisoned(t, {2}), rows = poisoned(t, {3});
    const OnDevice a(make(t, {0, 4})), b(uniform(t, {4, 2}, 1)), c(make(t, {0, 2})), a3(none_a), b3(none_b), c3(zero),
        dev_columns(columns), dev_rows(rows);
    cuda::gemm(queue(), {.a = a, .b = b, .c = c, .column_sum = dev_columns});
    cuda::gemm(queue(), {.a = a3, .b = b3, .c = c3, .a_row_sum = dev_rows});
    dev_columns.fetch();
    dev_rows.fetch();
    CHECK(columns.values() == std::vector<double>(2, 0));
    CHECK(rows.values() == std::vector<double>(3, 0));
  }
}

TEST_CASE("the environment leaves the library out") {
  const char* const value = std::getenv("HALFSTEP_CUDA_BLAS");
  if (value && value == std::string("plain")) CHECK(cuda::describe_blas() == "plain products");
}
