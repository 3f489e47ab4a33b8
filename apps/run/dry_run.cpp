#include "apps/run/dry_run.h"

#include <iomanip>
#include <sstream>

#include "apps/run/progress.h"

namespace halfstep::app {
namespace {

int64_t moments(const Json& optimizer) {
  if (optimizer["type"] == "SGD") return optimizer["momentum"] == 0 ? 0 : 1;
  return optimizer["amsgrad"] == true ? 3 : 2;
}

}  // namespace

std::string describe_run(const Config& config) {
  const Json& c = config.json;
  std::ostringstream out;
  const auto low = amp_dtype(c);
  const int64_t batch = c["data"]["loader"]["batch_size"];
  out << c["name"].get<std::string>() << " on " << config_device(c) << ", batch " << batch << '\n';
  if (!config.facts) {
    out << "The data files are not there, so shapes are not known.\n";
    return out.str();
  }
  DType running = DType::f32;
  int64_t parameters = 0, shadowed = 0;
  double activations = 0;
  std::ostringstream input;
  input << config.facts->input;
  out << std::left << std::setw(12) << "name" << std::setw(30) << "layer" << std::setw(20) << "output" << std::right
      << std::setw(12) << "parameters"
      << "  dtype\n";
  out << std::left << std::setw(42) << "data" << std::setw(20) << input.str() << std::right << std::setw(12) << 0 << "  float32\n";
  for (const LayerRow& row : config.layers) {
    if (low && row.precision != '=') running = row.precision == 'l' ? *low : DType::f32;
    std::ostringstream shape;
    shape << row.output;
    out << std::left << std::setw(12) << row.name << std::setw(30) << row.what << std::setw(20) << shape.str() << std::right
        << std::setw(12) << row.parameters << "  " << running << '\n';
    parameters += row.parameters;
    if (low && row.precision == 'l') shadowed += row.parameters;
    activations += double(batch) * double(numel(row.output)) * double(size_of(running));
  }
  const int64_t state = moments(c["optimizer"]) * parameters * 4;
  out << "parameters  " << parameters << '\n'
      << "memory      about " << bytes_text(double(parameters * 8 + shadowed * 2 + state) + activations) << ": weights "
      << bytes_text(double(parameters * 4)) << ", shadows " << bytes_text(double(shadowed * 2)) << ", gradients "
      << bytes_text(double(parameters * 4)) << ", optimizer " << bytes_text(double(state)) << ", activations "
      << bytes_text(activations) << '\n';
  if (config.facts->size)
    out << "samples     " << *config.facts->size << ", " << (*config.facts->size + batch - 1) / batch << " batches\n";
  return out.str();
}

}  // namespace halfstep::app
