// Layers without parameters.
#include <sstream>

#include "layers/layers.h"

namespace halfstep {

GELU::GELU(const std::string& approximate) : tanh_(approximate == "tanh") {
  check<ValueError>(approximate == "none" || approximate == "tanh", "GELU", "approximate must be \"none\" or \"tanh\", got \"",
                    approximate, '"');
}

std::string GELU::describe() const { return tanh_ ? "GELU(approximate='tanh')" : "GELU(approximate='none')"; }

std::string Softmax::describe() const { return "Softmax(dim=" + std::to_string(dim_) + ")"; }

std::string Flatten::describe() const {
  return "Flatten(start_dim=" + std::to_string(start_) + ", end_dim=" + std::to_string(end_) + ")";
}

Dropout::Dropout(double p) : p_(p) { check<ValueError>(p >= 0 && p <= 1, "Dropout", "p must be in [0, 1], got ", p); }

std::string Dropout::describe() const {
  std::ostringstream out;
  out << "Dropout(p=" << p_ << ", inplace=False)";
  return out.str();
}

}  // namespace halfstep
