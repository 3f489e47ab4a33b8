// SPDX-License-Identifier: Apache-2.0
// Rows of initialisers.
#include "apps/catalog/modules.h"
#include "layers/module/init.h"

namespace halfstep::app {
namespace {

template <class F, class... Ts>
InitRow init_row(std::string type, std::string doc, F fill, Arg<Ts>... args) {
  return {{std::move(type), std::move(doc), {args.field...}}, [=](const Json& self, const Tensor& w) {
            if constexpr (std::is_invocable_v<F, const Tensor&, Ts..., Generator*>)
              fill(w, value_of(self, args)..., nullptr);
            else
              fill(w, value_of(self, args)...);
          }};
}

Arg<double> real_arg(const char* key, Json fallback, const char* doc) { return arg<double>(number(key, std::move(fallback), doc)); }
Arg<double> gain() { return real_arg("gain", 1.0, "factor"); }
Arg<double> slope() { return real_arg("a", 0.0, "negative slope, of leaky_relu"); }
Arg<std::string> mode() {
  return arg<std::string>(choice("mode", "fan_in", {"fan_in", "fan_out"}, "direction whose variance is kept"));
}
Arg<std::string> nonlinearity() {
  return arg<std::string>(choice("nonlinearity", "leaky_relu",
                                 {"linear", "conv1d", "conv2d", "conv3d", "conv_transpose1d", "conv_transpose2d",
                                  "conv_transpose3d", "sigmoid", "tanh", "relu", "leaky_relu", "selu"},
                                 "the nonlinearity after the layer"));
}

// The overload with positional arguments.
using Kaiming = void (*)(const Tensor&, double, const std::string&, const std::string&, Generator*);

}  // namespace

void add_init_rows(Catalog<InitRow>& catalog) {
  using namespace init;
  catalog.add(init_row("zeros", "0", zeros_));
  catalog.add(init_row("ones", "1", ones_));
  catalog.add(init_row("constant", "one value", constant_, arg<double>(number("val", nullptr, "the value").required())));
  catalog.add(init_row("uniform", "from a to b", init::uniform_, real_arg("a", 0.0, "least"), real_arg("b", 1.0, "largest")));
  catalog.add(init_row("normal", "normal distribution", init::normal_, real_arg("mean", 0.0, "mean"),
                       arg<double>(number("std", 1.0, "deviation").at_least(0))));
  catalog.add(init_row("trunc_normal", "normal distribution truncated to [a, b]", init::trunc_normal_,
                       real_arg("mean", 0.0, "mean"), arg<double>(number("std", 1.0, "deviation").at_least(0)),
                       real_arg("a", -2.0, "least"), real_arg("b", 2.0, "largest")));
  catalog.add(init_row("eye", "the identity, of matrices", eye_));
  catalog.add(init_row("dirac", "passes channels on, of convolutions", dirac_,
                       arg<int64_t>(integer("groups", 1, "of the convolution").at_least(1))));
  catalog.add(init_row("xavier_uniform", "Glorot and Bengio's, uniform", xavier_uniform_, gain()));
  catalog.add(init_row("xavier_normal", "Glorot and Bengio's, normal", xavier_normal_, gain()));
  catalog.add(init_row("kaiming_uniform", "He's, uniform", Kaiming(kaiming_uniform_), slope(), mode(), nonlinearity()));
  catalog.add(init_row("kaiming_normal", "He's, normal", Kaiming(kaiming_normal_), slope(), mode(), nonlinearity()));
  catalog.add(init_row("orthogonal", "orthonormal rows or columns", orthogonal_, gain()));
  catalog.add(init_row("sparse", "columns with a share of zeros, else normal; of matrices", sparse_,
                       arg<double>(number("sparsity", nullptr, "share of zeros").required().at_least(0).at_most(1)),
                       arg<double>(number("std", 0.01, "deviation").at_least(0))));
}

}  // namespace halfstep::app
