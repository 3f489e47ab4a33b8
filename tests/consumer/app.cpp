// SPDX-License-Identifier: Apache-2.0
// The halfstep program with a layer and a loss of this project, built with the installed package alone:
//   consumer_app train app.json        consumer_app predict runs/app x.npy
// Without arguments it trains app.json here and uses the model; fails when the answers are wrong.
#include <halfstep.h>
#include <halfstep_app.h>

#include <cstdint>
#include <cstdio>
#include <fstream>

using namespace halfstep;
using namespace halfstep::app;

// The sum of a line and a parabola in each column.
class Bend : public Module {
 public:
  Bend(int64_t in_features, double start)
      : line_(register_parameter("line", ones({in_features}))), bend_(register_parameter("bend", full({in_features}, start))) {}
  Tensor forward(const Tensor& x) override { return x * line_ + x * x * bend_; }
  std::string describe() const override { return "Bend()"; }

 private:
  Parameter line_, bend_;
};
HALFSTEP_REGISTER_MODULE(Bend, arg<int64_t>(integer("in_features", nullptr, "width of the input").from_input_dim(-1)),
                         arg<double>(number("start", 0.5, "the parabola at first")));

class Distance : public Loss {
 public:
  Tensor operator()(const Tensor& output, const Tensor& target) const override { return (output - target).square().mean(); }
  std::string describe() const override { return "Distance()"; }
};
HALFSTEP_REGISTER_LOSS(Distance, Targets::numbers);

int main(int argc, char** argv) {
  if (argc > 1) return run_program(argc, argv);
  manual_seed(1);
  const Tensor x = randn({256, 3}), y = x.square().sum({1}, /*keepdim=*/true);
  save_safetensors("app.safetensors", {{"x", x}, {"y", y}});
  std::ofstream("app.json") << R"({
    "version": 1, "name": "app", "output_dir": "app", "device": "cpu",
    "data": {"root": ".", "train": {"type": "Safetensors", "path": "app.safetensors"}, "loader": {"batch_size": 32}},
    "model": {"type": "Sequential", "layers": ["Bend", {"type": "Linear", "out_features": "auto"}]},
    "loss": "Distance", "optimizer": {"type": "Adam", "lr": 0.02}, "train": {"epochs": 40}})";
  const char* train[] = {"consumer_app", "train", "app.json", "--quiet", "--overwrite"};
  if (const int code = run_program(5, train)) return code;

  Predictor model("app");
  const double error = (model(x) - y).square().mean().item<double>();
  std::printf("step %lld, mean squared error %.4f\n", static_cast<long long>(model.step()), error);
  return model.step() == 320 && error < 0.5 ? 0 : 1;
}
