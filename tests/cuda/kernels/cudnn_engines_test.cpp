// SPDX-License-Identifier: Apache-2.0
// Every engine that cuDNN proposes for a convolution and that the rules allow: it computes what the CPU does, writes what it was
// given and nothing else, and gives the same bits again. HALFSTEP_SHOW_PLANS=1 prints a line for each.
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "cuda/dnn/attention.h"
#include "cuda/dnn/conv.h"
#include "cuda/dnn/library.h"
#include "device.h"
#include "framework/backend/dnn.h"
#include "framework/base/check.h"

using namespace halfstep;
using namespace halfstep::testing;
using namespace halfstep::cuda::dnn;

namespace {

constexpr size_t kGuard = 4096;
constexpr unsigned char kPoison = 0xFF;  // NaN in every float

bool shows() { return std::getenv("HALFSTEP_SHOW_PLANS"); }
bool is_emulated() { return cuda::device_name() == "emulated device"; }

cudnnHandle_t handle() {
  Library* const library = Library::find(queue());
  if (!library) std::puts(("SKIPPED: " + cuda::cudnn_version()).c_str());
  return library ? library->handle(queue()) : nullptr;
}

// Device memory between two guards, poisoned.
class Guarded {
 public:
  explicit Guarded(size_t bytes) : bytes_((bytes + 255) / 256 * 256), used_(bytes) {
    REQUIRE(cudaMalloc(&all_, bytes_ + 2 * kGuard) == cudaSuccess);
    REQUIRE(cudaMemset(all_, kPoison, bytes_ + 2 * kGuard) == cudaSuccess);
  }
  ~Guarded() { cudaFree(all_); }
  Guarded(const Guarded&) = delete;
  void* data() const { return static_cast<char*>(all_) + kGuard; }
  void put(const void* from) const { REQUIRE(cudaMemcpy(data(), from, used_, cudaMemcpyHostToDevice) == cudaSuccess); }
  std::string bytes() const {
    std::string out(used_, '\0');
    REQUIRE(cudaMemcpy(out.data(), data(), used_, cudaMemcpyDeviceToHost) == cudaSuccess);
    return out;
  }
  bool is_intact() const {
    std::string out(bytes_ + 2 * kGuard, '\0');
    REQUIRE(cudaMemcpy(out.data(), all_, out.size(), cudaMemcpyDeviceToHost) == cudaSuccess);
    const auto poisoned = [&](size_t from, size_t to) { return out.find_first_not_of(char(kPoison), from) >= to; };
    return poisoned(0, kGuard) && poisoned(kGuard + bytes_, out.size());
  }

 private:
  void* all_ = nullptr;
  size_t bytes_, used_;
};

struct EngineCase {
  const char* name;
  Shape x, w, y;
  ConvWindow window;
};
const EngineCase kEngineCases[] = {
    {"image", {4, 16, 12, 12}, {32, 16, 3, 3}, {4, 32, 12, 12}, {{1, 1}, {1, 1}, {1, 1}, {1, 1}}},
    {"one tap", {4, 16, 12, 12}, {32, 16, 1, 1}, {4, 32, 12, 12}, {{0, 0}, {0, 0}, {1, 1}, {1, 1}}},
    {"strided", {2, 16, 13, 13}, {16, 16, 3, 3}, {2, 16, 7, 7}, {{1, 1}, {1, 1}, {2, 2}, {1, 1}}},
    {"grouped", {2, 16, 10, 10}, {32, 4, 3, 3}, {2, 32, 8, 8}, {{0, 0}, {0, 0}, {1, 1}, {1, 1}}},
    {"depthwise", {2, 16, 10, 10}, {16, 1, 3, 3}, {2, 16, 8, 8}, {{0, 0}, {0, 0}, {1, 1}, {1, 1}}},
    {"odd channels", {2, 7, 9, 9}, {5, 7, 3, 3}, {2, 5, 9, 9}, {{1, 1}, {1, 1}, {1, 1}, {1, 1}}},
    {"sequence", {4, 16, 1, 40}, {16, 16, 1, 3}, {4, 16, 1, 38}, {{0, 0}, {0, 0}, {1, 1}, {1, 1}}},
    {"volume", {2, 8, 6, 6, 6}, {8, 8, 3, 3, 3}, {2, 8, 6, 6, 6}, {{1, 1, 1}, {1, 1, 1}, {1, 1, 1}, {1, 1, 1}}},
};
constexpr Direction kDirections[] = {Direction::forward, Direction::data, Direction::weight};

Numbers numbers(const Shape& s) { return {s.begin(), s.end()}; }
Strides dense(const Shape& s, bool channels_last) {
  Strides out;
  for (int64_t n : dense_strides(numbers(s), channels_last)) out.push_back(n);
  return out;
}

// x, w, y of a case: two are read, and the third is the CPU's result in float64. fused: y = relu(conv(x, w) + bias), and one pixel
// of x is NaN.
struct Truth {
  Buffer x, w, y, bias;
  Truth(const EngineCase& c, DType dtype, Direction d, bool fused)
      : x(make(DType::f64, c.x)), w(make(DType::f64, c.w)), y(make(DType::f64, c.y)), bias(make(DType::f64, {c.w[0]})) {
    unsigned seed = 1;
    for (Buffer* b : {&x, &w, &y, &bias}) {
      const Buffer rounded = uniform(dtype, b->view.shape, seed++);
      for (int64_t i = 0; i < b->numel(); ++i) set(b->view, i, rounded[i]);
    }
    if (fused) set(x.view, 0, NAN);
    Window window{.dims = int(c.window.stride.size())};
    for (int i = 0; i < window.dims; ++i) {
      const size_t at = size_t(i);
      window.size[at] = c.w[i + 2];
      window.stride[at] = c.window.stride[at];
      window.padding[at] = c.window.before[at];
      window.dilation[at] = c.window.dilation[at];
    }
    Backend& cpu = backend_for(Device::cpu);
    const int64_t groups = c.x[1] / c.w[1];
    if (d == Direction::forward) cpu.conv(x.view, w.view, fused ? bias.view : TensorView{}, window, groups, fused, y.view);
    if (d == Direction::data) cpu.conv_backward_data(y.view, w.view, {}, window, groups, x.view);
    if (d == Direction::weight) cpu.conv_backward_weight(x.view, y.view, window, groups, w.view, {});
  }
};

// The elements of `b` as they lie in memory in another dtype and layout.
Buffer placed(const Buffer& b, DType dtype, bool channels_last) {
  Buffer out = make(dtype, b.view.shape);
  out.view.strides = dense(b.view.shape, channels_last);
  backend_for(Device::cpu).copy(b.view, out.view);
  return out;
}

void check_engines(const EngineCase& c, DType dtype, bool channels_last, Direction d, bool tensor_cores, bool fused, int& ran) {
  const cudnnDataType_t type = dtype == DType::f16    ? CUDNN_DATA_HALF
                               : dtype == DType::bf16 ? CUDNN_DATA_BFLOAT16
                                                      : CUDNN_DATA_FLOAT;
  ConvProblem p{.direction = d, .type = type, .x = numbers(c.x), .w = numbers(c.w), .y = numbers(c.y), .window = c.window};
  p.x_strides = dense_strides(p.x, channels_last);
  p.w_strides = dense_strides(p.w, channels_last);
  p.y_strides = dense_strides(p.y, channels_last);
  if (fused) p.bias = type, p.relu = true;
  const Target target = Target::of(handle());
  Plans plans(conv_graph(p), target, {.tensor_cores = tensor_cores, .relu = fused});
  const Truth truth(c, dtype, d, fused);
  const Buffer* const all[] = {&truth.x, &truth.w, &truth.y, &truth.bias};
  const int count = fused ? 4 : 3;
  const int result = d == Direction::forward ? 2 : d == Direction::data ? 0 : 1;
  double most = 0;
  for (int64_t i = 0; i < all[result]->numel(); ++i) most = std::fmax(most, std::fabs((*all[result])[i]));
  const double tolerance = (dtype == DType::bf16 ? 2e-2 : dtype == DType::f16 ? 3e-3 : tensor_cores ? 5e-3 : 1e-4) * most;
  for (size_t i = 0;; ++i) {
    const auto begin = std::chrono::steady_clock::now();
    const Plan* const plan = plans.at(i, target);
    if (!plan) break;
    const double ms = std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - begin).count();
    const std::string what = std::string(c.name) + " " + std::string(name(dtype)) + (channels_last ? " channels last" : " rows") +
                             (tensor_cores ? "" : " strict") + (fused ? " with bias and ReLU" : "") + ", direction " +
                             std::to_string(int(d)) + ", engine " + std::to_string(plan->engine().number);
    CAPTURE(what);
    std::string first;
    // A NaN may reach more than its outputs: those of its tile by Winograd and FFT, those of other groups if an engine multiplies
    // them by 0. It must never get lost.
    const bool spreads =
        p.x[1] != p.w[1] || plan->engine().has(CUDNN_NUMERICAL_NOTE_WINOGRAD) || plan->engine().has(CUDNN_NUMERICAL_NOTE_FFT);
    int64_t lost = 0, spread = 0;
    double worst = 0;
    cudnnStatus_t status = CUDNN_STATUS_SUCCESS;
    for (int turn = 0; turn < 2 && status == CUDNN_STATUS_SUCCESS; ++turn) {
      const Guarded work(size_t(plan->workspace()));
      std::vector<std::unique_ptr<Guarded>> tensors;
      std::vector<void*> memory;
      for (int t = 0; t < count; ++t) {
        const Buffer at = placed(*all[t], dtype, channels_last && t < 3);
        tensors.push_back(std::make_unique<Guarded>(size_t(at.numel()) * size_of(dtype)));
        if (t != result) tensors.back()->put(at.view.data);
        memory.push_back(tensors.back()->data());
      }
      status = plan->run(handle(), plans.graph(), memory, work.data());
      REQUIRE(cudaDeviceSynchronize() == cudaSuccess);
      if (status != CUDNN_STATUS_SUCCESS) break;
      for (int t = 0; t < count; ++t) {
        CHECK(tensors[size_t(t)]->is_intact());
        const Buffer at = placed(*all[t], dtype, channels_last && t < 3);
        if (t != result)
          CHECK(std::memcmp(tensors[size_t(t)]->bytes().data(), at.view.data, tensors[size_t(t)]->bytes().size()) == 0);
      }
      CHECK(work.is_intact());
      const std::string bytes = tensors[size_t(result)]->bytes();
      if (turn == 0) first = bytes;
      CHECK(bytes == first);
      Buffer got = placed(*all[result], dtype, channels_last);
      std::memcpy(got.view.data, bytes.data(), bytes.size());
      const Buffer wide = placed(got, DType::f64, false);
      for (int64_t e = 0; e < wide.numel(); ++e) {
        const double want = (*all[result])[e], off = std::fabs(wide[e] - want);
        if (std::isnan(want) || std::isnan(wide[e])) {
          lost += !std::isnan(wide[e]);
          spread += !std::isnan(want);
        } else {
          worst = std::fmax(worst, off);
        }
      }
    }
    if (shows())
      std::printf("%s: %s, workspace %lld, made in %.1f ms, off by %.2g of %.2g, NaN lost %d, spread %d\n", what.c_str(),
                  cuda::cudnn().cudnnGetErrorString(status), static_cast<long long>(plan->workspace()), ms, worst, most, int(lost),
                  int(spread));
    if (status != CUDNN_STATUS_SUCCESS) {
      CHECK(is_refusal(status));  // proposed, yet refused: the adapter tries the next
      continue;
    }
    CHECK(worst <= tolerance);
    CHECK(lost == 0);
    if (!spreads) CHECK(spread == 0);
    ++ran;
  }
}

}  // namespace

TEST_CASE("every engine of cuDNN that is allowed computes the CPU's convolutions, and nothing else") {
  if (!handle()) return;
  int ran = 0;
  for (const EngineCase& c : kEngineCases) {
    for (DType dtype : {DType::f16, DType::bf16, DType::f32}) {
      if (dtype == DType::bf16 && cuda::capability() < 80) continue;
      for (bool channels_last : {true, false}) {
        for (Direction d : kDirections) {
          for (const bool fused : {false, true}) {
            if (fused && d != Direction::forward) continue;
            check_engines(c, dtype, channels_last, d, true, fused, ran);
            if (dtype == DType::f32) check_engines(c, dtype, channels_last, d, false, fused, ran);
          }
        }
      }
    }
  }
  CHECK(ran > 100);
  if (shows()) std::printf("%d plans ran\n", ran);
}

TEST_CASE("16-bit images of three channels, with the channels last, are given to the library with four") {
  if (!handle()) return;
  const EngineCase c{"first", {2, 3, 20, 22}, {8, 3, 7, 7}, {2, 8, 20, 22}, {{3, 3}, {3, 3}, {1, 1}, {1, 1}}};
  const Window window{.dims = 2, .size = {7, 7, 1}, .stride = {1, 1, 1}, .padding = {3, 3, 0}};
  const Truth forward(c, DType::f16, Direction::forward, true), weight(c, DType::f16, Direction::weight, false);
  const auto at = [](const Buffer& b) { return placed(b, DType::f16, b.view.shape.size() == 4); };
  for (const bool wide : {false, true}) {
    set_least_widened_convolution(wide ? 1 : 0x1p28);
    const OnDevice x(at(forward.x)), w(at(forward.w)), bias(at(forward.bias)), g(at(weight.y)), x_finite(at(weight.x));
    const Buffer y = at(forward.y), want_y = at(forward.y);
    std::memset(y.view.data, kPoison, size_t(y.numel()) * 2);
    const OnDevice dev_y(y);
    const int64_t launches = launches_of([&] { cuda::conv(queue(), x, w, bias, window, 1, true, dev_y); });
    CHECK(launches == (wide ? 2 : 0));  // the copies: the library's own are not counted
    dev_y.fetch();
    for (int64_t i = 0; i < y.numel(); ++i)
      CHECK((std::isnan(want_y[i]) ? std::isnan(y[i]) : std::fabs(y[i] - want_y[i]) <= 3e-3 * 64));
    for (DType t : {DType::f16, DType::f32}) {
      Buffer dw = placed(weight.w, t, true), want = placed(weight.w, DType::f16, true);
      std::memset(dw.view.data, kPoison, size_t(dw.numel()) * size_of(t));
      const OnDevice dev_dw(dw);
      cuda::conv_backward_weight(queue(), x_finite, g, window, 1, dev_dw, {});
      dev_dw.fetch();
      for (int64_t i = 0; i < dw.numel(); ++i) CHECK(std::fabs(dw[i] - want[i]) <= 3e-3 * 128);
    }
  }
  set_least_widened_convolution(0x1p28);
}

namespace {

// Compares a convolution of stride 2 with the CPU's, in all directions and dtypes of results; the second image's last pixel is NaN
// in the forward direction. blocks: whether the library is to get it in the form of blocks.
void check_strided(const EngineCase& c, DType dtype, bool blocks) {
  Window window{.dims = 2, .size = {c.w[2], c.w[3], 1}, .stride = {c.window.stride[0], c.window.stride[1], 1}};
  for (size_t d = 0; d < 2; ++d) window.padding[d] = c.window.before[d], window.dilation[d] = c.window.dilation[d];
  CAPTURE(c.x);
  CAPTURE(c.w);
  CAPTURE(c.y);
  CAPTURE(name(dtype));
  const auto poisoned_like = [&](const Buffer& b, DType t) {
    const Buffer out = placed(b, t, true);
    std::memset(out.view.data, kPoison, size_t(out.numel()) * size_of(t));
    return out;
  };
  const auto compare = [&](const Buffer& got, const Buffer& want, bool spreads) {
    double most = 0, worst = 0;
    for (int64_t i = 0; i < want.numel(); ++i) {
      if (std::isnan(want[i])) CHECK(std::isnan(got[i]));
      if (!spreads) CHECK(std::isnan(want[i]) == std::isnan(got[i]));
      if (std::isnan(want[i]) || std::isnan(got[i])) continue;
      most = std::fmax(most, std::fabs(want[i]));
      worst = std::fmax(worst, std::fabs(got[i] - want[i]));
    }
    CHECK(worst <= (dtype == DType::bf16 ? 1e-2 : 2e-3) * most);
  };
  for (const bool fused : {false, true}) {
    const Truth truth(c, dtype, Direction::forward, fused);
    const OnDevice x(placed(truth.x, dtype, true)), w(placed(truth.w, dtype, true)), bias(placed(truth.bias, dtype, false));
    const Buffer y = poisoned_like(truth.y, dtype);
    const OnDevice dev_y(y);
    const int launches = launches_of([&] { cuda::conv(queue(), x, w, fused ? bias.view : TensorView{}, window, 1, fused, dev_y); });
    CHECK(launches == (blocks ? 2 : 0));
    dev_y.fetch();
    compare(placed(y, DType::f64, false), truth.y, fused);
  }
  for (DType t : {dtype, DType::f32}) {
    const Truth data(c, dtype, Direction::data, false), weight(c, dtype, Direction::weight, false);
    const Buffer dx = poisoned_like(data.x, t), dw = poisoned_like(weight.w, t), db = make(t, {c.w[0]});
    const OnDevice x(placed(weight.x, dtype, true)), w(placed(data.w, dtype, true)), g(placed(data.y, dtype, true)),
        g_weight(placed(weight.y, dtype, true)), dev_dx(dx), dev_dw(dw), dev_db(db);
    cuda::conv_backward_data(queue(), g, w, {}, window, 1, dev_dx);
    cuda::conv_backward_weight(queue(), x, g_weight, window, 1, dev_dw, dev_db);
    for (const OnDevice* v : {&dev_dx, &dev_dw, &dev_db}) v->fetch();
    compare(placed(dx, DType::f64, false), data.x, false);
    compare(placed(dw, DType::f64, false), weight.w, false);
    for (int64_t o = 0; o < c.w[0]; ++o) {
      double sum = 0;
      for (int64_t i = 0; i < weight.y.numel(); ++i) sum += i / (c.y[2] * c.y[3]) % c.w[0] == o ? weight.y[i] : 0;
      CHECK(std::fabs(db[o] - sum) <= 1e-2 * std::fmax(1, std::fabs(sum)));
    }
  }
}

}  // namespace

TEST_CASE(
    "a convolution of stride 2 on 3 or 4 channels in 16 bits is given to the library in the form of blocks, in every direction") {
  if (!handle()) return;
  set_least_widened_convolution(1);
  for (DType dtype : {DType::f16, DType::bf16}) {
    if (dtype == DType::bf16 && cuda::capability() < 80) continue;
    for (int64_t channels : {3, 4}) {
      for (int64_t size : {7, 5, 3, 2, 4}) {
        for (int64_t padding = 0; padding <= size / 2; ++padding) {
          for (const auto& [height, width] : {std::pair<int64_t, int64_t>{14, 16}, {15, 13}, {13, 18}}) {
            const auto out = [&](int64_t n) { return (n + 2 * padding - size) / 2 + 1; };
            check_strided({"blocks",
                           {2, channels, height, width},
                           {8, channels, size, size},
                           {2, 8, out(height), out(width)},
                           {{padding, padding}, {padding, padding}, {2, 2}, {1, 1}}},
                          dtype, true);
          }
        }
      }
      // Another size and padding in each dimension; a last row of the image that no window reaches.
      check_strided({"oblong", {1, channels, 12, 17}, {16, channels, 2, 7}, {1, 16, 7, 6}, {{1, 0}, {1, 0}, {2, 2}, {1, 1}}}, dtype,
                    true);
      check_strided({"unread", {3, channels, 17, 17}, {8, channels, 2, 2}, {3, 8, 8, 8}, {{0, 0}, {0, 0}, {2, 2}, {1, 1}}}, dtype,
                    true);
    }
    // These are left as they are: a stride of 2 and 1, dilation, filters that are no multiple of 8, more channels.
    check_strided({"strides", {1, 4, 9, 9}, {8, 4, 3, 3}, {1, 8, 4, 7}, {{0, 0}, {0, 0}, {2, 1}, {1, 1}}}, dtype, false);
    check_strided({"dilated", {1, 4, 9, 9}, {8, 4, 3, 3}, {1, 8, 3, 3}, {{0, 0}, {0, 0}, {2, 2}, {2, 2}}}, dtype, false);
    check_strided({"filters", {1, 4, 9, 9}, {6, 4, 3, 3}, {1, 6, 4, 4}, {{0, 0}, {0, 0}, {2, 2}, {1, 1}}}, dtype, false);
    check_strided({"channels", {1, 5, 9, 9}, {8, 5, 3, 3}, {1, 8, 4, 4}, {{0, 0}, {0, 0}, {2, 2}, {1, 1}}}, dtype, false);
  }
  // Tuning times the blocks with their copies, and the other way; either may be faster here.
  {
    const char* const before = std::getenv("HALFSTEP_TUNE_FILE");
    const std::string file = before ? before : "";
    setenv("HALFSTEP_TUNE_FILE", "", 1);
    set_dnn_options({.benchmark = true, .workspace = 1000000});
    const EngineCase c{"tuned", {2, 3, 12, 12}, {8, 3, 3, 3}, {2, 8, 6, 6}, {{1, 1}, {1, 1}, {2, 2}, {1, 1}}};
    const OnDevice x(uniform(DType::f16, c.x, 1)), w(uniform(DType::f16, c.w, 2)), y(make(DType::f16, c.y));
    const auto last = [](TensorView v) {
      v.strides = dense(v.shape, true);
      return v;
    };
    const Window window{.dims = 2, .size = {3, 3, 1}, .stride = {2, 2, 1}, .padding = {1, 1, 0}};
    const auto run = [&] { cuda::conv(queue(), last(x), last(w), {}, window, 1, false, last(y)); };
    CHECK(launches_of(run) > 4);
    CHECK(launches_of(run) <= 4);
    set_dnn_options({});
    before ? setenv("HALFSTEP_TUNE_FILE", file.c_str(), 1) : unsetenv("HALFSTEP_TUNE_FILE");
  }
  set_least_widened_convolution(0x1p28);
  check_strided({"small", {1, 4, 9, 9}, {8, 4, 3, 3}, {1, 8, 4, 4}, {{0, 0}, {0, 0}, {2, 2}, {1, 1}}}, DType::f16, false);
}

TEST_CASE("a device described in words is proposed what the device itself is") {
  if (!handle() || is_emulated()) return;
  Descriptor here(CUDNN_BACKEND_DEVICEPROP_DESCRIPTOR);
  here.set(CUDNN_ATTR_DEVICEPROP_HANDLE, handle()).finalize();
  const std::vector<char> words = here.get<char>(CUDNN_ATTR_DEVICEPROP_JSON_REPRESENTATION, 1 << 16);
  const std::string text(words.data(), strnlen(words.data(), words.size()));
  if (shows()) std::puts(text.c_str());
  for (const EngineCase& c : kEngineCases) {
    for (Direction d : kDirections) {
      ConvProblem p{
          .direction = d, .type = CUDNN_DATA_HALF, .x = numbers(c.x), .w = numbers(c.w), .y = numbers(c.y), .window = c.window};
      p.x_strides = dense_strides(p.x, true);
      p.w_strides = dense_strides(p.w, true);
      p.y_strides = dense_strides(p.y, true);
      const auto listed = [&](const Target& target) {
        std::string out;
        for (const Engine& e : engines(*conv_graph(p), target, CUDNN_HEUR_MODE_A)) out += std::to_string(e.number) + " ";
        return out;
      };
      CAPTURE(c.name);
      CHECK(listed(Target::of(handle())) == listed(Target::described(text)));
    }
  }
}

// cuda/dnn/attention.cpp pads the keys of such calls on Hopper. Where this prints 0 of all lengths it need not.
TEST_CASE("probe of attention's gradient to a number of keys that leaves 64 of 128, of scores far below zero") {
  if (!handle() || cuda::capability() < 80) return;
  for (int64_t length : {64, 192, 128}) {
    const int64_t heads = 2, size = 64;
    AttentionProblem p{.q = {1, heads, length, size}, .k = {1, heads, length, size}, .causal = true, .scale = 0.125f};
    p.q_strides = p.k_strides = p.v_strides = {heads * length * size, length * size, size, 1};
    const Shape shape{1, heads, length, size};
    Buffer in[4];  // q, k, v and the gradient: the products of q and k are near -800, the scores near -100
    for (int i = 0; i < 4; ++i)
      in[i] = i == 0   ? uniform(DType::f16, shape, 1, 3.4, 3.6)
              : i == 1 ? uniform(DType::f16, shape, 2, -3.6, -3.5)
                       : uniform(DType::f16, shape, unsigned(i), -1, 1);
    const size_t bytes = size_t(in[0].numel()) * size_of(DType::f16), rows = size_t(heads * length) * sizeof(float);
    std::vector<std::unique_ptr<Guarded>> m;  // q, k, v, out, stats, grad, dq, dk, dv, sums
    for (size_t need : {bytes, bytes, bytes, bytes, rows, bytes, bytes, bytes, bytes, rows})
      m.push_back(std::make_unique<Guarded>(need));
    for (int i = 0; i < 4; ++i) m[size_t(i == 3 ? 5 : i)]->put(in[i].view.data);
    const Target target = Target::of(handle());
    bool ran = true;
    for (bool backward : {false, true}) {
      Plans plans(backward ? attention_backward_graph(p) : attention_graph(p), target, {});
      const Plan* const plan = plans.chosen(target);
      std::vector<void*> memory;
      for (size_t i = 0; i < (backward ? m.size() : 5); ++i) memory.push_back(m[i]->data());
      const Guarded work(plan ? size_t(plan->workspace()) : 0);
      ran = ran && plan && plan->run(handle(), plans.graph(), memory, work.data()) == CUDNN_STATUS_SUCCESS;
      REQUIRE(cudaDeviceSynchronize() == cudaSuccess);
    }
    int64_t bad = 0;
    for (size_t i : {6, 7, 8}) {
      Buffer got = make(DType::f16, shape);
      std::memcpy(got.view.data, m[i]->bytes().data(), bytes);
      for (int64_t e = 0; e < got.numel(); ++e) bad += !std::isfinite(got[e]);
      CHECK(m[i]->is_intact());
    }
    std::printf("%lld keys: %s, %lld of %lld gradients are not finite\n", static_cast<long long>(length),
                ran ? "ran" : "did not run", static_cast<long long>(bad), static_cast<long long>(3 * in[0].numel()));
    if (is_emulated() || length == 128) CHECK((ran && bad == 0));
  }
}
