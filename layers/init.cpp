#include <cmath>

#include "layers/layers.h"

namespace halfstep::init {
namespace {

struct Fans {
  double in, out;
};

// [out, in, kernel...]
Fans fans(const Tensor& w, const char* where) {
  check<ShapeError>(w.dim() >= 2, where, "needs at least 2 dimensions, [out, in, ...], got ", w.shape());
  check<ShapeError>(w.numel() > 0, where, "needs elements, got ", w.shape());
  const int64_t kernel = w.numel() / (w.size(0) * w.size(1));
  return {double(w.size(1) * kernel), double(w.size(0) * kernel)};
}

}  // namespace

void kaiming_uniform_(const Tensor& w, double a, Generator* generator) {
  const double bound = std::sqrt(2 / (1 + a * a)) * std::sqrt(3 / fans(w, "kaiming_uniform_").in);
  uniform_(w, -bound, bound, generator);
}

void xavier_uniform_(const Tensor& w, double gain, Generator* generator) {
  const Fans f = fans(w, "xavier_uniform_");
  const double bound = gain * std::sqrt(6 / (f.in + f.out));
  uniform_(w, -bound, bound, generator);
}

}  // namespace halfstep::init
