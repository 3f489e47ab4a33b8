// SPDX-License-Identifier: Apache-2.0
// A module of your own in JSON configs: registered once, it is in the schema, in error texts, in `plan` and in `train`. This
// program is the halfstep program with one more layer:
//   custom_layer_in_json train my.json        custom_layer_in_json plan my.json
// Without arguments it tries itself.
#include <filesystem>
#include <fstream>
#include <vector>

#include "apps/catalog/modules.h"
#include "apps/commands/program.h"
#include "apps/config/config.h"
#include "examples/claim.h"
#include "halfstep.h"

using namespace halfstep;
using namespace halfstep::app;

// Two views of one input, added: a linear one and one that bends.
class TwoTowers : public Module {
 public:
  TwoTowers(int64_t in_features, int64_t width, double p)
      : straight_(this, "straight", in_features, width), bent_(this, "bent", in_features, width), drop_(this, "drop", p) {}
  Tensor forward(const Tensor& x) override { return straight_(x) + drop_(tanh(bent_(x))); }
  std::string describe() const override { return "TwoTowers(width=" + std::to_string(straight_->weight.size(0)) + ")"; }

 private:
  Part<Linear> straight_, bent_;
  Part<Dropout> drop_;
};
// The fields go to the constructor in this order. The first is filled in from the layer's input.
HALFSTEP_REGISTER_MODULE(TwoTowers, arg<int64_t>(integer("in_features", nullptr, "width of the input").from_input_dim(-1)),
                         arg<int64_t>(integer("width", 32, "of a tower").at_least(1)),
                         arg<double>(number("p", 0.1, "probability of Dropout").at_least(0).below(1)));

namespace {

int run(const std::vector<const char*>& arguments) { return run_program(int(arguments.size()), arguments.data()); }

void try_it() {
  const auto folder = std::filesystem::temp_directory_path() / "halfstep_custom_layer_in_json";
  std::filesystem::remove_all(folder);
  std::filesystem::create_directories(folder);
  const std::string file = folder / "towers.json", output = "output_dir=" + (folder / "run").string();
  std::ofstream(file) << R"({
    "model": {"type": "Sequential", "layers": ["Flatten", {"type": "TwoTowers", "width": 48}, "ReLU",
                                               {"type": "Linear", "out_features": "auto"}]},
    "loss": "CrossEntropyLoss", "optimizer": {"type": "AdamW", "lr": 0.002}, "amp": {"dtype": "bfloat16"}, "device": "cpu",
    "data": {"train": {"type": "Digits", "size": 640}, "loader": {"batch_size": 64}}, "train": {"epochs": 2}})";

  const Config config = load_config(file);
  claim(config.json["model"]["layers"][1]["in_features"] == 784, "the width of its input was inferred");
  claim(config.layers[1].what == "TwoTowers(width=48)" && config.layers[1].dtype == DType::bf16, "it is in the table of layers");
  claim(run({"custom_layer_in_json", "plan", file.c_str()}) == 0, "a plan names its layers");
  claim(run({"custom_layer_in_json", "train", file.c_str(), "--set", output.c_str()}) == 0, "it trains from JSON");
  std::string error;
  try {
    load_config(file, {.sets = {"model.layers.1.widht=5"}});
  } catch (const ConfigError& e) { error = e.what(); }
  claim(error.find("unknown key of TwoTowers; did you mean \"width\"?") != std::string::npos, "its fields are in error texts");
  std::filesystem::remove_all(folder);
}

}  // namespace

int main(int argc, char** argv) {
  if (argc > 1) return run_program(argc, argv);
  try_it();
  return failed_claims;
}
