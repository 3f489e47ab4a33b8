// SPDX-License-Identifier: Apache-2.0
// The ways products take, as they are reported: by the library's answers, by the table of what is fused, by measurement. On the
// emulator's library, fake_cublaslt.cpp.
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>

#include "cuda/blas/gemm.h"
#include "cuda/blas/matmul.h"
#include "cuda/blas/tuning_cache.h"
#include "framework/base/log.h"
#include "tests/cuda/kernels/device.h"
#include "tests/emulators/source/behaviour.h"

using namespace halfstep;
using namespace halfstep::testing;

namespace {

// A layer forward and the way back through it. Each test has a width of its own, since ways are kept.
struct Layer {
  Layer(DType t, int64_t width, Activation act = Activation::relu)
      : type(t),
        n(width),
        activation(act),
        layout(cuda::activation_aux(act, 6, n, t)),
        x(uniform(t, {6, 16}, 1)),
        w(uniform(t, {16, n}, 2)),
        bias(uniform(t, {n}, 3)),
        y(make(t, {6, n})),
        aux(make(layout.dtype, layout.shape)),
        dz(make(t, {6, n})),
        columns(make(t, {n})),
        rows(make(t, {16})),
        dw(make(t, {16, n})) {}

  ProductReport forward() { return one({.a = x, .b = w, .c = y, .bias = bias, .activation = activation, .aux = aux}); }
  ProductReport backward() {
    return one({.a = x, .b = w, .c = dz, .activation = activation, .aux = aux, .derivative = true, .column_sum = columns});
  }
  ProductReport weight() {
    TensorView transposed = x;
    transposed.shape = {16, 6};
    transposed.strides = {1, 16};
    return one({.a = transposed, .b = y, .c = dw, .a_row_sum = rows});
  }
  ProductReport bare() { return one({.a = x, .b = w, .c = y}); }

  DType type;
  int64_t n;
  Activation activation;
  AuxLayout layout;
  OnDevice x, w, bias, y, aux, dz, columns, rows, dw;

 private:
  static ProductReport one(const GemmArgs& g) {
    cuda::product_reports();
    cuda::gemm(queue(), g);
    const std::vector<ProductReport> reports = cuda::product_reports();
    REQUIRE(reports.size() == 1);
    return reports[0];
  }
};

std::vector<std::string> messages;
void keep(logging::Level, std::string_view message) { messages.emplace_back(message); }
int count_of(const std::string& part) {
  int n = 0;
  for (const std::string& m : messages) n += m.find(part) != std::string::npos;
  return n;
}

std::filesystem::path scratch_file(const char* name) {
  const auto folder = std::filesystem::temp_directory_path() / ("halfstep_products_" + std::to_string(getpid()));
  std::filesystem::create_directories(folder);
  return folder / name;
}
std::string text_of(const std::filesystem::path& path) {
  std::ostringstream out;
  out << std::ifstream(path).rdbuf();
  return out.str();
}
void write(const std::filesystem::path& path, const std::string& text) { std::ofstream(path) << text; }

struct Tuning {
  Tuning() { cuda::set_gemm_tuning(1e-9); }
  ~Tuning() { cuda::set_gemm_tuning(0); }
};

}  // namespace

TEST_CASE("a kind of product is reported with the way it took, and logged once") {
  messages.clear();
  const logging::Capture capture(keep);
  Layer l(DType::f16, 40);
  const ProductReport r = l.forward();
  CHECK(r.m == 6);
  CHECK(r.n == 40);
  CHECK(r.k == 16);
  CHECK(r.batch == 1);
  CHECK(!r.a_transposed);
  CHECK(r.in == DType::f16);
  CHECK(r.compute == "f32");
  CHECK(r.epilogue == "relu_aux_bias");
  CHECK(r.rung == "fused");
  CHECK(r.top == "fused");
  CHECK(r.status == "success");
  CHECK(r.candidates == 3);
  CHECK(r.algorithm == 60);
  CHECK(r.workspace == 4096);
  CHECK(!r.tuned);
  CHECK(!r.fell_back);
  CHECK(r.calls == 1);
  CHECK(count_of("[products] float16 [6, 16] x [16, 40] -> float16, relu_aux_bias: fused, algorithm 60 of 3") == 1);
  l.forward();
  l.forward();
  CHECK(messages.size() == 1);
  CHECK(l.weight().a_transposed);
  CHECK(cuda::product_reports().empty());
}

TEST_CASE("what the library refuses is reported with its reason; a plain product is warned of") {
  messages.clear();
  const logging::Capture capture(keep);
  Layer l(DType::f32, 41);
  {
    const Behaviour refuses("HALFSTEP_FAKE_REFUSE", "2");
    const ProductReport r = l.forward();
    CHECK(r.rung == "bias");
    CHECK(r.top == "fused");
    CHECK(r.status == "fused: not supported; unfused_mask: not supported; bias: success");
  }
  Layer other(DType::f32, 42);
  const Behaviour fails("HALFSTEP_FAKE_FAIL", "4");
  const ProductReport r = other.forward();
  CHECK(r.rung == "plain");
  CHECK(r.fell_back);
  CHECK(r.algorithm == -1);
  CHECK(r.status.find("bare: refused when run, not supported; plain: no way of the library is left") != std::string::npos);
  CHECK(other.bare().fell_back);
  CHECK(count_of("which runs slowly on a kernel of halfstep's own") <= 1);  // once a process
}

TEST_CASE("integers and empty products are plain by right") {
  const OnDevice a(make(DType::i64, {3, 4})), b(make(DType::i64, {4, 43})), c(make(DType::i64, {3, 43})),
      none(make(DType::f32, {3, 0})), none_b(make(DType::f32, {0, 43})), zeros(make(DType::f32, {3, 43}));
  cuda::product_reports();
  cuda::gemm(queue(), {.a = a, .b = b, .c = c});
  cuda::gemm(queue(), {.a = none, .b = none_b, .c = zeros});
  const auto reports = cuda::product_reports();
  REQUIRE(reports.size() == 1);
  CHECK(reports[0].rung == "plain");
  CHECK(reports[0].compute == "i64");
  CHECK(!reports[0].fell_back);
}

TEST_CASE("what is fused follows the table: 16 bits only forward, GELU of wide results never") {
  Layer half(DType::f16, 44), brain(DType::bf16, 44), wide(DType::f32, 44), gelu(DType::f32, 44, Activation::gelu),
      half_gelu(DType::f16, 44, Activation::gelu), double_gelu(DType::f64, 44, Activation::gelu);
  CHECK(half.forward().rung == "fused");
  CHECK(half.weight().rung == "fused");
  CHECK(brain.forward().rung == "fused");
  for (Layer* l : {&half, &brain}) {
    const ProductReport r = l->backward();
    CHECK(r.rung == "bare");
    CHECK(r.top == "fused");
    CHECK(r.epilogue == "drelu_bgrad");
    CHECK(r.status == "fused: not by default; unfused_sum: not by default; bare: success");
  }
  CHECK(brain.weight().rung == "bare");
  CHECK(wide.backward().rung == "fused");
  CHECK(half_gelu.forward().rung == "fused");
  for (Layer* l : {&gelu, &double_gelu}) {
    CHECK(l->forward().rung == "bias");
    CHECK(l->forward().top == "bias");
    CHECK(l->backward().rung == "bare");
    CHECK(l->backward().top == "bare");
  }
}

TEST_CASE("a library that sets the mask at zero: the mask is made of the result") {
  Layer ours(DType::f16, 45), other(DType::f16, 46);
  CHECK(ours.forward().rung == "fused");
  const Behaviour sets("HALFSTEP_FAKE_MASK", "set");
  const ProductReport r = other.forward();
  CHECK(r.rung == "unfused_mask");
  CHECK(r.status == "fused: mask is set at 0; unfused_mask: success");
  CHECK(other.backward().rung == "bare");
  CHECK(ours.forward().rung == "fused");  // it was asked once
  const Tuning on;
  const Behaviour nowhere("HALFSTEP_TUNE_FILE", "");
  Layer tuned(DType::f16, 47);
  CHECK(tuned.forward().rung != "fused");
}

TEST_CASE("a library whose ReLU hides NaN: ReLU is a pass of ours") {
  const Behaviour hides("HALFSTEP_FAKE_RELU", "hide");
  Layer l(DType::f16, 53);
  const ProductReport r = l.forward();
  CHECK(r.rung == "bias");
  CHECK(r.status == "fused: ReLU makes a number of NaN; unfused_mask: ReLU makes a number of NaN; bias: success");
  CHECK(l.backward().rung == "bare");
}

TEST_CASE("an infinity in the first batch does not turn a candidate away") {
  Layer l(DType::f16, 54);
  const uint16_t infinity = 0x7c00, nan = 0x7e00;
  REQUIRE(cudaMemcpy(l.x.view.data, &infinity, 2, cudaMemcpyHostToDevice) == cudaSuccess);
  REQUIRE(cudaMemcpy(l.w.view.data, &nan, 2, cudaMemcpyHostToDevice) == cudaSuccess);
  const ProductReport r = l.forward();
  CHECK(r.rung == "fused");
  CHECK(r.status == "success");
}

TEST_CASE("sums as tensor cores make them: cut off in blocks, and in parts of k") {
  const auto product = [](const std::vector<double>& terms) {
    const int64_t k = int64_t(terms.size());
    const Buffer a = make(DType::f16, {1, k}), b = make(DType::f16, {k, 8}), c = poisoned(DType::f32, {1, 8});
    for (int64_t i = 0; i < k; ++i) {
      set(a.view, i, terms[size_t(i)]);
      for (int64_t j = 0; j < 8; ++j) set(b.view, i * 8 + j, 0x1p-10);
    }
    const OnDevice dev_a(a), dev_b(b), dev_c(c);
    REQUIRE(cuda::matmul(queue(), {.a = dev_a, .b = dev_b, .c = dev_c}));
    dev_c.fetch();
    return c[5];
  };
  std::vector<double> terms(24, 1.5 * 0x1p-14);  // products of 1.5 * 2^-24
  terms[0] = 0x1p10;                             // a product of 1
  const double rounded = product(terms);
  CHECK(rounded == 1 + 23 * 0x1p-23);  // each is more than half of the last bit
  {
    const Behaviour block("HALFSTEP_FAKE_BLOCK", "8");
    CHECK(product(terms) == 1);  // each is less than the last bit
    terms[8] = -0x1p10;
    CHECK(product(terms) == 8 * 1.5 * 0x1p-24);  // those of the last block, beside 0
  }
  terms[8] = 1.5 * 0x1p-14;
  const Behaviour splits("HALFSTEP_FAKE_SPLITS", "2");
  CHECK(product(terms) == 1 + 11 * 0x1p-23 + 12 * 1.5 * 0x1p-24);
}

TEST_CASE("measurement overrules the table, and is remembered") {
  const auto file = scratch_file("verdicts.txt");
  std::filesystem::remove(file);
  const Behaviour kept("HALFSTEP_TUNE_FILE", file.string());
  {
    const Tuning on;
    const Behaviour slow("HALFSTEP_FAKE_SLOW", "0x1");  // the bare product
    Layer l(DType::bf16, 48);
    const ProductReport r = l.backward();
    CHECK(r.rung == "fused");
    CHECK(r.tuned);
    CHECK(r.ms > 0);
    CHECK(r.status == "success");
  }
  {
    const Tuning on;
    const Behaviour slow("HALFSTEP_FAKE_SLOW", "0x18");  // derivatives and their sums
    Layer l(DType::f16, 49);
    const ProductReport r = l.backward();
    CHECK(r.rung == "bare");
    CHECK(r.tuned);
    CHECK(r.status == "fused: slower, and not by default; unfused_sum: slower, and not by default; bare: success");
  }
  const std::string text = text_of(file);
  CHECK(text.starts_with("halfstep products 1\n"));
  CHECK(text.find("emulated device") != std::string::npos);
  CHECK(text.find("cuBLASLt 13.") != std::string::npos);
  CHECK(std::count(text.begin(), text.end(), '\n') == 3);
  // Without tuning the table holds.
  Layer untuned(DType::bf16, 50);
  CHECK(untuned.backward().rung == "bare");
}

TEST_CASE("what another run has left is taken up without a measurement") {
  const auto file = scratch_file("earlier.txt"), again = scratch_file("later.txt");
  Layer l(DType::bf16, 51), twin(DType::bf16, 52);
  const Tuning on;
  {
    std::filesystem::remove(file);
    const Behaviour kept("HALFSTEP_TUNE_FILE", file.string()), slow("HALFSTEP_FAKE_SLOW", "0x1");
    CHECK(l.backward().rung == "fused");
  }
  // The line of the one kind, as that of the other: as if an earlier run had met it.
  std::string text = text_of(file);
  const size_t at = text.find("\t6 51 16 ");
  REQUIRE(at != std::string::npos);
  text.replace(at, 9, "\t6 52 16 ");
  text.replace(text.rfind(' '), std::string::npos, " 123.5\n");
  write(again, text);
  const Behaviour kept("HALFSTEP_TUNE_FILE", again.string());
  const ProductReport r = twin.backward();
  CHECK(r.rung == "fused");
  CHECK(r.tuned);
  CHECK(r.ms == 123.5);
  CHECK(text_of(again) == text);  // nothing was measured
}

TEST_CASE("results of another device or library, unknown rungs and other algorithms are measured anew") {
  Layer l(DType::bf16, 53);
  const auto file = scratch_file("foreign.txt");
  const Tuning on;
  std::filesystem::remove(file);
  {
    const Behaviour kept("HALFSTEP_TUNE_FILE", file.string()), slow("HALFSTEP_FAKE_SLOW", "0x1");
    l.backward();
  }
  const std::string text = text_of(file);
  const size_t last = text.rfind('\t'), algorithm = text.find(' ', text.find(' ', last) + 1);
  REQUIRE(text.compare(last, 7, "\tfused ") == 0);
  const std::string until = text.substr(0, algorithm), id = text.substr(algorithm, text.rfind(' ') - algorithm);
  int64_t width = 54;
  const auto measured_anew = [&](std::string changed, const std::string& part, const std::string& with) {
    const std::string kind = "\t6 53 ", own = "\t6 " + std::to_string(width) + " ";
    changed.replace(changed.find(kind), kind.size(), own);
    if (!part.empty()) changed.replace(changed.find(part), part.size(), with);
    const auto other = scratch_file(("foreign" + std::to_string(width) + ".txt").c_str());
    write(other, changed);
    const Behaviour kept("HALFSTEP_TUNE_FILE", other.string());
    return Layer(DType::bf16, width++).backward().ms != 123.5;
  };
  CHECK(!measured_anew(until + id + " 123.5\n", "", ""));
  CHECK(measured_anew(until + " 99 123.5\n", "", ""));
  CHECK(measured_anew(until + id + " 123.5\n", "\tfused ", "\tthrice "));
  CHECK(measured_anew(until + id + " 123.5\n", "emulated device", "another device"));
  CHECK(measured_anew(until + id + " 123.5\n", "cuBLASLt 13.", "cuBLASLt 12."));
}

TEST_CASE("damaged lists lose their damaged lines; files that are no such list stay as they are") {
  messages.clear();
  const logging::Capture capture(keep);
  const cuda::TuningResult result{"fused", 2, 66, 0.5};
  const auto file = scratch_file("damaged.txt");
  write(file,
        std::string(
            "halfstep products 1\nGPU\t1 2 3\tbare 0 60 0.25\nno tabs\nGPU\tkind\tfused -1 60 1\nGPU\tkind\tfused 1 60 nan\n") +
            "GPU\tkind\tfused 1 60 1 1\nGPU\tcut");
  Behaviour kept("HALFSTEP_TUNE_FILE", file.string());
  REQUIRE(cuda::recall_tuning("GPU", "1 2 3"));
  CHECK(cuda::recall_tuning("GPU", "1 2 3")->ms == 0.25);
  CHECK(!cuda::recall_tuning("GPU", "kind"));
  CHECK(count_of("has lines that are no results of the tuner: they are left out") == 1);
  cuda::remember_tuning("GPU", "4 5 6", result);
  CHECK(text_of(file) == "halfstep products 1\nGPU\t1 2 3\tbare 0 60 0.25\nGPU\t4 5 6\tfused 2 66 0.5\n");

  const auto alien = scratch_file("alien.txt");
  write(alien, "the only copy of my thesis\n");
  setenv("HALFSTEP_TUNE_FILE", alien.c_str(), 1);
  CHECK(!cuda::recall_tuning("GPU", "1 2 3"));
  cuda::remember_tuning("GPU", "4 5 6", result);
  CHECK(text_of(alien) == "the only copy of my thesis\n");
  CHECK(count_of("neither read nor changed") == 1);

  const auto long_file = scratch_file("long.txt");
  write(long_file, "halfstep products 1\n" + std::string(5 << 20, 'x'));
  setenv("HALFSTEP_TUNE_FILE", long_file.c_str(), 1);
  cuda::remember_tuning("GPU", "4 5 6", result);
  CHECK(std::filesystem::file_size(long_file) > size_t(5 << 20));

  setenv("HALFSTEP_TUNE_FILE", (scratch_file("alien.txt") / "below").c_str(), 1);  // below a file
  cuda::remember_tuning("GPU", "4 5 6", result);
  CHECK(count_of("cannot be kept in") == 1);
  setenv("HALFSTEP_TUNE_FILE", "/dev/null", 1);
  cuda::remember_tuning("GPU", "4 5 6", result);
  CHECK(std::filesystem::is_character_file("/dev/null"));

  const auto fresh = scratch_file("new/folder/verdicts.txt");
  setenv("HALFSTEP_TUNE_FILE", fresh.c_str(), 1);
  cuda::remember_tuning("GPU", "4 5 6", result);
  CHECK(text_of(fresh) == "halfstep products 1\nGPU\t4 5 6\tfused 2 66 0.5\n");
}

TEST_CASE("where results are kept") {
  const Behaviour cache("XDG_CACHE_HOME", "/cache"), home("HOME", "/users/somebody"), none("HALFSTEP_TUNE_FILE", "");
  CHECK(cuda::tuning_file() == "");
  unsetenv("HALFSTEP_TUNE_FILE");
  CHECK(cuda::tuning_file() == "/cache/halfstep/products.txt");
  const Behaviour no_cache("XDG_CACHE_HOME", "");
  CHECK(cuda::tuning_file() == "/users/somebody/.cache/halfstep/products.txt");
}
