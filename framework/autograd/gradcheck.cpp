// SPDX-License-Identifier: Apache-2.0
#include "framework/autograd/gradcheck.h"

#include <cmath>
#include <vector>

#include "framework/autograd/autograd.h"

namespace halfstep {
namespace {

// Returns smooth numbers that are equal in every run: a Weyl sequence in (-1, 1).
Tensor probe(const Tensor& like, uint64_t seed) {
  Tensor t = Tensor::empty(like.shape(), {.dtype = like.dtype(), .device = Device::cpu});
  double* p = t.data_ptr<double>();
  double x = 0.5 + 0.1 * double(seed % 7);
  for (int64_t i = 0; i < t.numel(); ++i) {
    x += 0.61803398874989485;
    x -= std::floor(x);
    p[i] = 2 * x - 1;
  }
  return t;
}

Tensors floating(const Tensors& all) {
  Tensors out;
  for (const Tensor& t : all)
    if (t.defined() && t.is_floating_point()) out.push_back(t);
  return out;
}

// Returns leaves with their own memory and the same layout, so that differences can be computed in place.
Tensors fresh_leaves(const Tensors& inputs) {
  Tensors out;
  for (const Tensor& t : inputs) {
    Tensor copy = t;
    if (t.defined() && t.is_floating_point()) {
      check<DTypeError>(t.dtype() == DType::f64, "gradcheck", "inputs must be float64, got ", t.dtype());
      copy = t.detach();
      if (t.requires_grad()) copy.set_requires_grad();
    }
    out.push_back(copy);
  }
  return out;
}

// Returns element i of x in row-major order.
double& element_of(const Tensor& x, int64_t i) {
  int64_t offset = 0;
  for (int d = x.dim() - 1; d >= 0; --d) {
    offset += i % x.shape()[d] * x.strides()[d];
    i /= x.shape()[d];
  }
  return static_cast<double*>(x.data_ptr())[offset];
}

}  // namespace

void gradcheck(const TensorFunction& f, const Tensors& inputs, const GradcheckOptions& options) {
  const EnableGrad on;
  const Tensors leaves = fresh_leaves(inputs);
  const Tensors outs = floating(f(leaves));
  Tensors wanted;
  for (const Tensor& t : leaves)
    if (t.defined() && t.requires_grad()) wanted.push_back(t);
  check<AutogradError>(!wanted.empty(), "gradcheck", "no input requires grad");

  // A weighted sum of an output's elements. Each output has two of them, with their gradients.
  struct Sum {
    size_t output;
    Tensor weights;
    std::vector<std::vector<double>> gradients;  // by input
  };
  std::vector<Sum> sums;
  for (size_t o = 0; o < outs.size(); ++o) {
    if (!outs[o].requires_grad()) continue;
    for (uint64_t pass = 0; pass < 2; ++pass) {
      Sum& sum = sums.emplace_back(Sum{o, probe(outs[o], pass), {}});
      const Tensors got = grad({outs[o]}, wanted, {sum.weights}, {.retain_graph = true, .allow_unused = true});
      for (size_t k = 0; k < wanted.size(); ++k) {
        sum.gradients.push_back(got[k].defined() ? got[k].to_vector<double>()
                                                 : std::vector<double>(size_t(wanted[k].numel()), 0.0));
      }
    }
  }
  // Evaluates f once and returns all sums.
  auto evaluate = [&] {
    const NoGrad off;
    const Tensors ys = floating(f(leaves));
    std::vector<double> out;
    for (const Sum& sum : sums) {
      const Tensor y = ys[sum.output].contiguous();
      const double *py = y.data_ptr<double>(), *pw = sum.weights.data_ptr<double>();
      double s = 0;
      for (int64_t i = 0; i < y.numel(); ++i) s += py[i] * pw[i];
      out.push_back(s);
    }
    return out;
  };
  for (size_t k = 0; k < wanted.size() && !sums.empty(); ++k) {
    const Tensor& x = wanted[k];
    for (int64_t i = 0; i < x.numel(); ++i) {
      double& element = element_of(x, i);
      const double saved = element;
      element = saved + options.eps;
      const std::vector<double> up = evaluate();
      element = saved - options.eps;
      const std::vector<double> down = evaluate();
      element = saved;
      for (size_t s = 0; s < sums.size(); ++s) {
        const double numeric = (up[s] - down[s]) / (2 * options.eps), a = sums[s].gradients[k][size_t(i)];
        check<AutogradError>(std::fabs(a - numeric) <= options.atol + options.rtol * std::fabs(numeric), "gradcheck", "output ",
                             sums[s].output, ", input ", k, ", element ", i, ": backward gives ", a, ", differences give ",
                             numeric);
      }
    }
  }
}

void gradgradcheck(const TensorFunction& f, const Tensors& inputs, const GradcheckOptions& options) {
  const EnableGrad on;
  const Tensors outs = floating(f(inputs));
  Tensors all = inputs;
  for (const Tensor& out : outs) {
    Tensor v = probe(out, 3);
    all.push_back(v.set_requires_grad());
  }
  const size_t n = inputs.size();
  gradcheck(
      [&](const Tensors& args) -> Tensors {
        // The inner derivative needs a graph even when the outer evaluation records nothing.
        const EnableGrad inner;
        const Tensors xs(args.begin(), args.begin() + long(n)), vs(args.begin() + long(n), args.end());
        Tensors ys, gs, wanted;
        const Tensors all_out = floating(f(xs));
        for (size_t i = 0; i < all_out.size(); ++i)
          if (all_out[i].requires_grad()) ys.push_back(all_out[i]), gs.push_back(vs[i]);
        for (const Tensor& x : xs)
          if (x.defined() && x.requires_grad()) wanted.push_back(x);
        Tensors result;
        for (const Tensor& g : grad(ys, wanted, gs, {.create_graph = true, .allow_unused = true}))
          if (g.defined()) result.push_back(g);
        return result;
      },
      all, options);
}

}  // namespace halfstep
