// Outputs and gradients against PyTorch's, replayed from goldens.safetensors (scripts/make_goldens.py).
#include <doctest/doctest.h>

#include <cmath>
#include <map>
#include <set>

#include "framework/io/safetensors.h"
#include "halfstep.h"

using namespace halfstep;

namespace {

using Run = std::function<Tensors(const Tensors&)>;

std::map<std::string, std::vector<Run>> runs() {
  std::map<std::string, std::vector<Run>> r;
#define HS_UNARY(name, ...) r[#name] = {[](const Tensors& t) -> Tensors { return {halfstep::name(t[0])}; }};
#define HS_BINARY(name, ...) r[#name] = std::vector<Run>(2, [](const Tensors& t) -> Tensors { return {halfstep::name(t[0], t[1])}; });
#define HS_TEST(name, ...) r[#name] = {[](const Tensors& t) -> Tensors { return {halfstep::name(t[0], t[1])}; }};
#include "framework/math/elementwise.def"
#undef HS_UNARY
#undef HS_BINARY
#undef HS_TEST
  r["mm"] = {[](const Tensors& t) -> Tensors { return {mm(t[0], t[1])}; }};
  r["bmm"] = {[](const Tensors& t) -> Tensors { return {bmm(t[0], t[1])}; }};
  r["matmul"] = std::vector<Run>(2, [](const Tensors& t) -> Tensors { return {matmul(t[0], t[1])}; });
  r["linear"] = {[](const Tensors& t) -> Tensors { return {linear(t[0], t[1], t[2])}; }};
  r["addmm"] = {[](const Tensors& t) -> Tensors { return {addmm(t[0], t[1], t[2], 0.5, -2)}; }};
  r["sum"] = {[](const Tensors& t) -> Tensors { return {sum(t[0], {0, 2})}; }};
  r["mean"] = {[](const Tensors& t) -> Tensors { return {mean(t[0], {1}, true)}; }};
  r["amax"] = {[](const Tensors& t) -> Tensors { return {amax(t[0], {1})}; }};
  r["amin"] = {[](const Tensors& t) -> Tensors { return {amin(t[0])}; }};
  r["max"] = {[](const Tensors& t) -> Tensors {
    const auto [values, indices] = max(t[0], 1);
    return {values, indices};
  }};
  r["argmax"] = {[](const Tensors& t) -> Tensors { return {argmax(t[0], 0)}; }};
  r["softmax"] = {[](const Tensors& t) -> Tensors { return {softmax(t[0], 0)}; }};
  r["log_softmax"] = {[](const Tensors& t) -> Tensors { return {log_softmax(t[0], -1)}; }};
  for (Reduction how : {Reduction::mean, Reduction::sum, Reduction::none}) {
    r["cross_entropy"].push_back([how](const Tensors& t) -> Tensors {
      return {cross_entropy(t[0], t[1], {.weight = t[2], .reduction = how, .label_smoothing = 0.2})};
    });
    r["nll_loss"].push_back([how](const Tensors& t) -> Tensors { return {nll_loss(t[0], t[1], {.weight = t[2], .reduction = how})}; });
    r["mse_loss"].push_back([how](const Tensors& t) -> Tensors { return {mse_loss(t[0], t[1], how)}; });
  }
  r["cross_entropy_images"] = {[](const Tensors& t) -> Tensors { return {cross_entropy(t[0], t[1])}; }};
  r["cross_entropy_probabilities"] = {[](const Tensors& t) -> Tensors { return {cross_entropy(t[0], t[1], {.label_smoothing = 0.1})}; }};
  r["gather"] = {[](const Tensors& t) -> Tensors { return {gather(t[0], 1, t[1])}; }};
  r["scatter_add"] = {[](const Tensors& t) -> Tensors { return {scatter_add(t[0], 0, t[1], t[2])}; }};
  r["cat"] = {[](const Tensors& t) -> Tensors { return {cat({t[0], t[1]}, 1)}; }};
  r["stack"] = {[](const Tensors& t) -> Tensors { return {stack({t[0], t[1]}, -1)}; }};
  r["where"] = {[](const Tensors& t) -> Tensors { return {where(t[0] > zeros_like(t[0]), t[0] * t[1], t[1])}; }};
  r["clamp"] = {[](const Tensors& t) -> Tensors { return {clamp(t[0], -0.5, 1)}; }};
  return r;
}

void check_close(const Tensor& got, const Tensor& want, double rtol) {
  REQUIRE(got.shape() == want.shape());
  const auto a = got.to_vector<double>(), b = want.to_vector<double>();
  for (size_t i = 0; i < a.size(); ++i) {
    CAPTURE(i);
    const bool close = std::fabs(a[i] - b[i]) <= rtol * (1 + std::fabs(b[i])) || (std::isnan(a[i]) && std::isnan(b[i]));
    CHECK_MESSAGE(close, a[i], " against ", b[i]);
  }
}

}  // namespace

TEST_CASE("ops and their gradients agree with PyTorch") {
  const auto file = load_safetensors(std::string(HALFSTEP_SOURCE_DIR) + "/tests/ops/goldens.safetensors");
  size_t cases = 0;
  for (const auto& [name, list] : runs()) {
    for (size_t n = 0; n < list.size(); ++n, ++cases) {
      const std::string key = name + "." + std::to_string(n) + ".";
      CAPTURE(key);
      for (const DType dtype : {DType::f64, DType::f32}) {
        const double rtol = dtype == DType::f64 ? 1e-10 : 1e-5;
        Tensors in;
        for (size_t i = 0; file.tensors.contains(key + "in." + std::to_string(i)); ++i) {
          Tensor t = file.tensors.at(key + "in." + std::to_string(i));
          if (t.is_floating_point()) t = t.to(dtype).clone();
          if (file.tensors.contains(key + "grad." + std::to_string(i))) t.set_requires_grad();
          in.push_back(t);
        }
        if (in.empty()) continue;
        const Tensors out = list[n](in);
        for (size_t i = 0; i < out.size(); ++i) check_close(out[i], file.tensors.at(key + "out." + std::to_string(i)), rtol);
        if (!out[0].requires_grad()) continue;
        out[0].backward(cos(arange(0, double(out[0].numel()), 1, {.dtype = DType::f64})).reshape(out[0].shape()).to(dtype));
        for (size_t i = 0; i < in.size(); ++i)
          if (in[i].requires_grad()) check_close(in[i].grad(), file.tensors.at(key + "grad." + std::to_string(i)), dtype == DType::f64 ? 1e-10 : 2e-5);
      }
    }
  }
}
