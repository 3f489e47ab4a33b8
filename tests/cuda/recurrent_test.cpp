// SPDX-License-Identifier: Apache-2.0
// Recurrent networks by the device's library: against the CPU in float64, recorded, and work that it declines.
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <set>

#include "framework/backend/dnn.h"
#include "tests/cuda/recurrent_support.h"
#include "tests/layers/recurrent_run.h"
#include "tests/ops/op_cases.h"

using namespace halfstep;
using namespace halfstep::testing;

namespace {

enum class Input : uint8_t { steps_first, batch_first, packed, lengths, single };
constexpr Input kInputs[] = {Input::steps_first, Input::batch_first, Input::packed, Input::lengths, Input::single};

struct Grid {
  const char* kind;
  int64_t layers = 1, proj = 0;
  bool bias = true, both = false;
  Input input = Input::steps_first;
  double dropout = 0;
  bool states = true;

  std::string text() const {
    return std::string(kind) + ", layers " + std::to_string(layers) + ", proj_size " + std::to_string(proj) + ", bias " +
           std::to_string(bias) + ", bidirectional " + std::to_string(both) + ", input " + std::to_string(int(input));
  }
  bool is_lstm() const { return kind == std::string("LSTM"); }
};

constexpr int64_t kFeatures = 4, kUnits = 6, kSteps = 5, kSequences = 3;

// The same weights and inputs on every device: those of `dtype`, computed with in `wide`.
struct Problem {
  std::shared_ptr<Module> layer;
  Tensor x, h, c;

  Problem(const Grid& g, DType dtype, DType wide, Device device, uint64_t seed = 31) {
    manual_seed(seed);
    const bool first = g.input == Input::batch_first || g.input == Input::lengths;
    if (g.is_lstm())
      layer = std::make_shared<LSTM>(kFeatures, kUnits, LSTMOptions{g.layers, g.bias, first, g.dropout, g.both, g.proj});
    else if (g.kind == std::string("GRU"))
      layer = std::make_shared<GRU>(kFeatures, kUnits, GRUOptions{g.layers, g.bias, first, g.dropout, g.both});
    else
      layer = std::make_shared<RNN>(kFeatures, kUnits, RNNOptions{g.layers, g.kind, g.bias, first, g.dropout, g.both});
    layer->to(dtype);
    layer->to(wide);
    layer->to(device);
    const int64_t parts = g.layers * (g.both ? 2 : 1);
    const bool single = g.input == Input::single;
    const auto made = [&](const Shape& shape) { return randn(shape).to(dtype).to(wide).to(device).set_requires_grad(); };
    x = made(single  ? Shape{kSteps, kFeatures}
             : first ? Shape{kSequences, kSteps, kFeatures}
                     : Shape{kSteps, kSequences, kFeatures});
    if (!g.states) return;
    const auto state = [&](int64_t width) { return made(single ? Shape{parts, width} : Shape{parts, kSequences, width}); };
    h = state(g.proj > 0 ? g.proj : kUnits);
    if (g.is_lstm()) c = state(kUnits);
  }

  Tensors run(const Grid& g) const {
    return run_recurrent(*layer, x, h, c, g.input == Input::packed, g.input == Input::lengths);
  }
  Tensors leaves() const {
    Tensors out;
    for (const Tensor& t : {x, h, c})
      if (t.defined()) out.push_back(t);
    for (const Tensor& p : layer->parameters()) out.push_back(p);
    std::erase_if(out, [](const Tensor& t) { return !t.requires_grad(); });
    return out;
  }
  Tensors gradients(const Tensors& outputs, bool retain = false) const {
    Tensors given;
    for (const Tensor& y : outputs) {
      const Tensor w = (arange(0.0, double(y.numel()), 1, {.dtype = DType::f64}) * 0.7 + 0.3).sin();
      given.push_back(w.reshape(y.shape()).to(y.dtype()).to(y.device()));
    }
    return grad(outputs, leaves(), given, {.retain_graph = retain});
  }
};

double rounding(DType t) { return t == DType::f32 ? 2e-6 : t == DType::f16 ? 4e-3 : 3e-2; }

// The largest difference from `want`, and the largest of its values.
std::pair<double, double> apart(const Tensor& got, const Tensor& want) {
  const auto a = got.to_vector<double>(), b = want.to_vector<double>();
  double worst = 0, most = 1e-3;
  for (size_t i = 0; i < a.size(); ++i) {
    worst = std::isfinite(a[i]) ? std::max(worst, std::fabs(a[i] - b[i])) : INFINITY;
    most = std::max(most, std::fabs(b[i]));
  }
  return {worst, most};
}

void check_lists(const Tensors& got, const Tensors& want, double tolerance) {
  REQUIRE(got.size() == want.size());
  for (size_t k = 0; k < got.size(); ++k) {
    CAPTURE(k);
    REQUIRE(got[k].shape() == want[k].shape());
    const auto [worst, most] = apart(got[k], want[k]);
    CHECK_MESSAGE(worst <= tolerance * most, worst, " of ", most);
  }
}

// The gradient of ReLU jumps at 0. If roundings of 16 bits carry a unit over it, gradients of right code are far apart: the first
// seed is taken whose gradients stay where they are while weights and inputs change by as much.
uint64_t smooth_seed(const Grid& g, DType dtype) {
  uint64_t seed = 31;
  if (g.kind != std::string("relu") || !is_half(dtype)) return seed;
  for (;; ++seed) {
    const Problem exact(g, dtype, DType::f64, Device::cpu, seed);
    const Tensors want = exact.gradients(exact.run(g));
    bool smooth = true;
    for (int turn = 0; turn < 8 && smooth; ++turn) {
      Problem moved(g, dtype, DType::f64, Device::cpu, seed);
      manual_seed(uint64_t(100 + turn));
      for (const Tensor& t : moved.leaves()) {
        const NoGrad no_grad;
        t.copy_(t * (1 + randn(t.shape(), {.dtype = DType::f64}) * rounding(dtype) / 3));
      }
      const Tensors now = moved.gradients(moved.run(g));
      for (size_t k = 0; k < now.size(); ++k) {
        const auto [worst, most] = apart(now[k], want[k]);
        smooth = smooth && worst <= 3 * rounding(dtype) * most;
      }
    }
    if (smooth) return seed;
  }
}

// Values and gradients against the CPU's; how often the library was called.
uint64_t compare(const Grid& g, DType dtype) {
  const uint64_t seed = smooth_seed(g, dtype);
  const Problem there(g, dtype, dtype, Device::cuda, seed), here(g, dtype, DType::f64, Device::cpu, seed);
  const uint64_t before = recurrent_calls();
  const Tensors got = there.run(g), want = here.run(g);
  for (size_t k = 0; k < got.size(); ++k) CHECK(got[k].dtype() == dtype);
  check_lists(got, want, rounding(dtype));
  // What passes a projection is rounded to 16 bits between steps, too.
  check_lists(there.gradients(got), here.gradients(want), (g.proj > 0 ? 8 : 4) * rounding(dtype));
  return recurrent_calls() - before;
}

struct Options {
  DnnOptions before = dnn_options();
  explicit Options(const DnnOptions& now) { set_dnn_options(now); }
  ~Options() { set_dnn_options(before); }
};

}  // namespace

TEST_CASE("every recurrent case of the op table is the library's, but float64 and second derivatives") {
  if (!has_recurrent_library()) return;
  const std::set<std::string> ops{"lstm", "gru", "rnn_tanh", "rnn_relu"};
  int cases = 0;
  for (const OpCase& c : op_cases(Device::cuda)) {
    if (!ops.contains(c.op)) continue;
    ++cases;
    CAPTURE(title(c));
    for (DType dtype : {DType::f64, DType::f32, DType::f16, DType::bf16}) {
      const Tensors in = in_dtype(c.inputs, dtype);
      Tensors wanted;
      for (const Tensor& t : in)
        if (t.requires_grad()) wanted.push_back(t);
      const uint64_t before = recurrent_calls();
      const Tensors out = c.run(in);
      const bool some = out[0].numel() > 0;
      CHECK((recurrent_calls() > before) == (some && dtype != DType::f64));
      if (!some) continue;
      const uint64_t after = recurrent_calls();
      (void)grad({out[0].sum()}, wanted, {}, {.allow_unused = true});
      CHECK((recurrent_calls() > after) == (dtype != DType::f64));
    }
  }
  CHECK(cases >= 10);
}

TEST_CASE("recurrent layers of all options are the CPU's, values and gradients") {
  if (!has_recurrent_library()) return;
  for (const char* kind : {"tanh", "relu", "GRU", "LSTM"}) {
    for (int64_t proj : {0, 3}) {
      for (int options = 0; options < 8; ++options) {
        for (Input input : kInputs) {
          Grid g{kind, 1 + (options & 1), proj, (options & 2) == 0, (options & 4) != 0, input};
          if (proj > 0 && !g.is_lstm()) continue;
          g.states = options % 3 != 2;
          CAPTURE(g.text());
          for (DType dtype : {DType::f32, DType::f16, DType::bf16}) CHECK(compare(g, dtype) == 2);
        }
      }
    }
  }
}

TEST_CASE("dropout between recurrent layers drops what it drops on the CPU") {
  if (!has_recurrent_library()) return;
  for (Input input : kInputs) {
    const Grid g{.kind = "LSTM", .layers = 3, .both = true, .input = input, .dropout = 0.4};
    CAPTURE(g.text());
    CHECK(compare(g, DType::f32) == 6);  // layer by layer
  }
}

TEST_CASE("a graph of a recurrent network can be walked again") {
  if (!has_recurrent_library()) return;
  for (const char* kind : {"GRU", "LSTM"}) {
    const Grid g{.kind = kind, .layers = 2, .both = true};
    const Problem p(g, DType::f16, DType::f16, Device::cuda);
    const Tensors out = p.run(g), first = p.gradients(out, true), second = p.gradients(out, true), third = p.gradients(out);
    for (size_t k = 0; k < first.size(); ++k) {
      CHECK(bytes(second[k]) == bytes(first[k]));
      CHECK(bytes(third[k]) == bytes(first[k]));
    }
  }
}

TEST_CASE("a recurrent network's inputs may be views of anything, and its last states may be written to") {
  if (!has_recurrent_library()) return;
  for (DType dtype : {DType::f32, DType::f16}) {
    const Grid g{.kind = "LSTM", .layers = 2};
    Problem there(g, dtype, dtype, Device::cuda), here(g, dtype, DType::f64, Device::cpu);
    for (Problem* p : {&there, &here}) {  // a little into other memory, and backwards
      const auto into = [](const Tensor& t) {
        const NoGrad off;
        const Tensor all = zeros({t.numel() + 1}, {.dtype = t.dtype(), .device = t.device()});
        const Tensor part = all.narrow(0, 1, t.numel()).reshape(t.shape());
        part.copy_(t);
        return part.detach().set_requires_grad();
      };
      p->h = into(p->h);
      p->c = into(p->c);
      p->x = spread_out(p->x.detach().set_requires_grad());
    }
    const uint64_t before = recurrent_calls();
    const Tensors got = there.run(g), want = here.run(g);
    check_lists(got, want, rounding(dtype));
    const Tensors wanted_there{there.h, there.c}, wanted_here{here.h, here.c};
    got[1].detach().zero_();
    check_lists(grad({got[0]}, wanted_there, {full(got[0].shape(), 0.5, {.dtype = dtype, .device = Device::cuda})}),
               grad({want[0]}, wanted_here, {full(want[0].shape(), 0.5, {.dtype = DType::f64})}), 4 * rounding(dtype));
    CHECK(recurrent_calls() == before + 2);
  }
}

TEST_CASE("gradients of what nobody asks for are left out, of parameters too") {
  if (!has_recurrent_library()) return;
  const Grid g{.kind = "LSTM", .layers = 2};
  const Problem p(g, DType::f32, DType::f32, Device::cuda);
  const Tensors all = p.gradients(p.run(g));
  for (const Tensor& t : p.layer->parameters()) t.set_requires_grad(false);
  const Tensors out = p.run(g);
  const Tensors some = grad({out[2]}, {p.c}, {ones(out[2].shape(), {.device = Device::cuda})});
  CHECK(some[0].shape() == p.c.shape());
  // The last parameter alone.
  const Tensor last = p.layer->parameters().back();
  last.set_requires_grad();
  p.x.set_requires_grad(false);
  CHECK(bytes(p.gradients(p.run(g)).back()) == bytes(all.back()));
}

TEST_CASE("what the library declines runs as before") {
  const Grid g{.kind = "LSTM", .layers = 2, .both = true, .input = Input::lengths};
  CHECK(compare(g, DType::f64) == 0);
  {
    const Options none({.workspace = 0});
    CHECK(compare(g, DType::f32) == 0);
  }
  if (!has_recurrent_library()) {
    for (DType dtype : {DType::f32, DType::f16, DType::bf16}) CHECK(compare(g, dtype) == 0);
    return;
  }
  // A projection to as many units is none to the library.
  const auto square = [](Device device) {
    manual_seed(7);
    Tensors in{randn({3, 2, 4}), Tensor(), Tensor()};
    for (const Shape& s : {Shape{20, 4}, {20, 5}, {5, 5}}) in.push_back(randn(s));
    for (Tensor& t : in)
      if (t.defined()) t = t.to(device);
    return lstm(in[0], in[1], in[2], {in[3], in[4], in[5]}).output;
  };
  const uint64_t before = recurrent_calls();
  check_lists({square(Device::cuda)}, {square(Device::cpu)}, 1e-5);
  CHECK(recurrent_calls() == before);
}

TEST_CASE("second derivatives of a recurrent network") {
  const auto penalty = [](Device device) {
    const Grid g{.kind = "GRU", .layers = 2, .both = true};
    const Problem p(g, DType::f32, DType::f32, device);
    const Tensor y = p.run(g)[0];
    const Tensor dx = grad({(y * y).sum()}, {p.x}, {}, {.create_graph = true})[0];
    return grad({(dx * dx).sum()}, p.leaves());
  };
  check_lists(penalty(Device::cuda), penalty(Device::cpu), 1e-4);
}

TEST_CASE("the 16-bit weights of a recurrent layer lie where the library wants them, from the first step on") {
  if (!has_recurrent_library()) return;
  for (const double dropout : {0.0, 0.5}) {
    manual_seed(4);
    const DefaultDevice on(Device::cuda);
    LSTM net(4, 6, {.num_layers = 2, .dropout = dropout, .bidirectional = true, .proj_size = 3});
    AdamW opt(net.parameters(), {.lr = 0.01});
    GradScaler scaler({.enabled = false});
    const Tensor x = randn({5, 3, 4});
    const auto forward = [&] {
      const Autocast region(Device::cuda, DType::bf16);
      return net(x, LSTM::State{}, {}).output;
    };
    const auto step = [&] {
      opt.zero_grad();
      const Tensor y = forward();
      (y.to(DType::f32) * y.to(DType::f32)).sum().backward();
      scaler.step(opt);
    };
    const auto places = [&] {
      std::vector<void*> out;
      for (const Tensor& p : net.parameters()) {
        const Tensor shadow = autocast::shadow_of(p);
        REQUIRE(shadow.defined());
        CHECK(bytes(shadow) == bytes(p.detach().to(DType::bf16)));
        out.push_back(shadow.data_ptr());
      }
      return out;
    };
    if (dropout > 0) {  // evaluated first, as another network: it leaves them to the layers'
      const NoGrad off;
      net.eval();
      (void)forward();
      net.train();
    }
    step();
    const std::vector<void*> first = places();
    std::set<const Storage*> blocks;
    for (const Tensor& p : net.parameters()) blocks.insert(autocast::shadow_of(p).storage().get());
    CHECK(blocks.size() == (dropout > 0 ? 2 : 1));  // networks of one layer, or one of both
    const uint64_t casts = autocast::cast_count();
    for (int i = 0; i < 3; ++i) step();
    CHECK(places() == first);
    CHECK(autocast::cast_count() - casts <= 3 * 4);  // the input, and the loss's input
    net.eval();
    (void)forward();  // another network where there is dropout: they stay
    net.train();
    step();
    CHECK(places() == first);
    // New weights get new copies, which are brought to one place again.
    net.load_state_dict(net.state_dict());
    step();
    blocks.clear();
    (void)places();
    for (const Tensor& p : net.parameters()) blocks.insert(autocast::shadow_of(p).storage().get());
    CHECK(blocks.size() == (dropout > 0 ? 2 : 1));
  }
}

TEST_CASE("a recurrent layer computes with the weights that it has now") {
  if (!has_recurrent_library()) return;
  for (DType dtype : {DType::f32, DType::f16}) {
    const Grid g{.kind = "GRU", .layers = 2};
    const Problem there(g, dtype, dtype, Device::cuda), here(g, dtype, DType::f64, Device::cpu);
    const auto same = [&] { check_lists(there.run(g), here.run(g), 2 * rounding(dtype)); };
    const NoGrad off;
    same();
    same();
    for (size_t i = 0; i < here.layer->parameters().size(); i += 3) {
      for (const Problem* p : {&there, &here}) p->layer->parameters()[i].mul_(0.5);
      same();
    }
    for (const Problem* p : {&there, &here}) {  // into memory of its own
      StateDict halves = p->layer->state_dict();
      for (NamedTensor& n : halves) n.tensor = n.tensor * 0.5;
      p->layer->load_state_dict(halves);
    }
    same();
  }
}
