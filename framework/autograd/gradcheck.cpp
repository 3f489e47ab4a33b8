// SPDX-License-Identifier: Apache-2.0
#include "framework/autograd/gradcheck.h"

#include <cmath>
#include <vector>

#include "framework/autograd/autograd.h"

namespace halfstep {
namespace {

// Returns numbers in (-1, 1) that are equal in every run: a Weyl sequence, whose steps are the golden ratio's fraction.
Tensor fixed_noise(const Tensor& like, uint64_t seed) {
  Tensor t = Tensor::empty(like.shape(), {.dtype = like.dtype(), .device = Device::cpu});
  constexpr double kStep = 0.61803398874989485;
  double* values = t.data_ptr<double>();
  double x = 0.5 + 0.1 * double(seed % 7);
  for (int64_t i = 0; i < t.numel(); ++i) {
    x += kStep;
    x -= std::floor(x);
    values[i] = 2 * x - 1;
  }
  return t;
}

// Returns the floating tensors of the list.
Tensors floating(const Tensors& tensors) {
  Tensors out;
  for (const Tensor& t : tensors)
    if (t.defined() && t.is_floating_point()) out.push_back(t);
  return out;
}

// Returns leaves that share the memory of the inputs. gradcheck changes one element there at a time, and restores it.
Tensors leaves_of(const Tensors& inputs) {
  Tensors out;
  for (const Tensor& t : inputs) {
    Tensor leaf = t;
    if (t.defined() && t.is_floating_point()) {
      check<DTypeError>(t.dtype() == DType::f64, "gradcheck", "inputs must be float64, got ", t.dtype());
      leaf = t.detach();
      if (t.requires_grad()) leaf.set_requires_grad();
    }
    out.push_back(leaf);
  }
  return out;
}

// Returns element i of x, counted in row-major order.
double& element_of(const Tensor& x, int64_t i) {
  int64_t offset = 0;
  for (int d = x.dim() - 1; d >= 0; --d) {
    offset += i % x.shape()[d] * x.strides()[d];
    i /= x.shape()[d];
  }
  return static_cast<double*>(x.data_ptr())[offset];
}

// Shifts an element, and restores it at its end, also if the function throws.
class ElementShift {
 public:
  [[nodiscard]] ElementShift(double& element, double by) : element_(element), saved_(element) { element = saved_ + by; }
  ~ElementShift() { element_ = saved_; }
  ElementShift(const ElementShift&) = delete;
  ElementShift& operator=(const ElementShift&) = delete;

 private:
  double& element_;
  const double saved_;
};

// A weighted sum of the elements of one output, and its gradients.
struct WeightedSum {
  size_t output;
  Tensor weights;
  std::vector<std::vector<double>> gradients;  // by input
};

// Returns two weighted sums of each output that has a graph, with their gradients by backward.
std::vector<WeightedSum> differentiate_sums(const Tensors& outs, const Tensors& wanted) {
  std::vector<WeightedSum> sums;
  for (size_t o = 0; o < outs.size(); ++o) {
    if (!outs[o].requires_grad()) continue;
    for (uint64_t seed = 0; seed < 2; ++seed) {
      WeightedSum& sum = sums.emplace_back(WeightedSum{o, fixed_noise(outs[o], seed), {}});
      const Tensors got = grad({outs[o]}, wanted, {sum.weights}, {.retain_graph = true, .allow_unused = true});
      for (size_t k = 0; k < wanted.size(); ++k) {
        sum.gradients.push_back(got[k].defined() ? got[k].to_vector<double>()
                                                 : std::vector<double>(size_t(wanted[k].numel()), 0.0));
      }
    }
  }
  return sums;
}

// Computes f once, and returns all sums.
std::vector<double> evaluate(const TensorFunction& f, const Tensors& leaves, const std::vector<WeightedSum>& sums) {
  const NoGrad off;
  const Tensors ys = floating(f(leaves));
  std::vector<double> out;
  for (const WeightedSum& sum : sums) {
    const Tensor y = ys[sum.output].contiguous();
    const double *values = y.data_ptr<double>(), *weights = sum.weights.data_ptr<double>();
    double total = 0;
    for (int64_t i = 0; i < y.numel(); ++i) total += values[i] * weights[i];
    out.push_back(total);
  }
  return out;
}

}  // namespace

void gradcheck(const TensorFunction& f, const Tensors& inputs, const GradcheckOptions& options) {
  const EnableGrad on;
  const Tensors leaves = leaves_of(inputs);
  const Tensors outs = floating(f(leaves));
  Tensors wanted;
  for (const Tensor& t : leaves)
    if (t.defined() && t.requires_grad()) wanted.push_back(t);
  check<AutogradError>(!wanted.empty(), "gradcheck", "no input requires grad");

  const std::vector<WeightedSum> sums = differentiate_sums(outs, wanted);
  for (size_t k = 0; k < wanted.size() && !sums.empty(); ++k) {
    const Tensor& x = wanted[k];
    for (int64_t i = 0; i < x.numel(); ++i) {
      double& element = element_of(x, i);
      const auto shifted_by = [&](double by) {
        const ElementShift shift(element, by);
        return evaluate(f, leaves, sums);
      };
      const std::vector<double> up = shifted_by(options.eps), down = shifted_by(-options.eps);
      for (size_t s = 0; s < sums.size(); ++s) {
        const double numeric = (up[s] - down[s]) / (2 * options.eps), exact = sums[s].gradients[k][size_t(i)];
        check<AutogradError>(std::fabs(exact - numeric) <= options.atol + options.rtol * std::fabs(numeric), "gradcheck", "output ",
                             sums[s].output, ", input ", k, ", element ", i, ": backward gives ", exact, ", differences give ",
                             numeric);
      }
    }
  }
}

void gradgradcheck(const TensorFunction& f, const Tensors& inputs, const GradcheckOptions& options) {
  const EnableGrad on;
  const Tensors outs = floating(f(inputs));
  constexpr uint64_t kSeed = 3;    // not one of the seeds of differentiate_sums
  Tensors inputs_and_vs = inputs;  // the v of v^T J, which is differentiated, are inputs too
  for (const Tensor& out : outs) {
    Tensor v = fixed_noise(out, kSeed);
    inputs_and_vs.push_back(v.set_requires_grad());
  }
  const auto input_count = std::ptrdiff_t(inputs.size());
  gradcheck(
      [&](const Tensors& args) -> Tensors {
        // The inner derivative needs a graph even when the outer evaluation records nothing.
        const EnableGrad inner;
        const Tensors xs(args.begin(), args.begin() + input_count), vs(args.begin() + input_count, args.end());
        Tensors ys, v_of_ys, wanted;
        const Tensors outs_of_xs = floating(f(xs));
        for (size_t i = 0; i < outs_of_xs.size(); ++i)
          if (outs_of_xs[i].requires_grad()) ys.push_back(outs_of_xs[i]), v_of_ys.push_back(vs[i]);
        for (const Tensor& x : xs)
          if (x.defined() && x.requires_grad()) wanted.push_back(x);
        Tensors result;
        for (const Tensor& g : grad(ys, wanted, v_of_ys, {.create_graph = true, .allow_unused = true}))
          if (g.defined()) result.push_back(g);
        return result;
      },
      inputs_and_vs, options);
}

}  // namespace halfstep
