// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <limits>

#include "tests/backend/buffers.h"

using namespace halfstep;
using namespace halfstep::testing;

namespace {

struct Reference {
  std::vector<double> rows, lse, gradient;  // gradient of the sum of rows, before any division
  double total = 0;
};

Reference naive(const CrossEntropyArgs& a) {
  const int64_t n = a.logits.shape[0], c = a.logits.shape[1];
  const auto weight = [&](int64_t k) { return a.weight ? get(a.weight, k) : 1.0; };
  double all = 0;
  for (int64_t k = 0; k < c; ++k) all += weight(k);
  Reference r;
  for (int64_t i = 0; i < n; ++i) {
    double top = -1e300, sum = 0;
    for (int64_t k = 0; k < c; ++k) top = std::max(top, get(a.logits, i * c + k));
    for (int64_t k = 0; k < c; ++k) sum += std::exp(get(a.logits, i * c + k) - top);
    const double lse = top + std::log(sum);
    r.lse.push_back(lse);
    const int64_t t = int64_t(get(a.target, i));
    const bool counts = t != a.ignore_index;
    const double e = a.label_smoothing;
    double loss = 0;
    for (int64_t k = 0; k < c && counts; ++k) {
      const double share = (k == t ? (1 - e) * weight(t) : 0) + e / double(c) * weight(k);
      loss += share * (lse - get(a.logits, i * c + k));
    }
    for (int64_t k = 0; k < c; ++k) {
      const double p = std::exp(get(a.logits, i * c + k) - lse);
      const double share = (k == t ? (1 - e) * weight(t) : 0) + e / double(c) * weight(k);
      r.gradient.push_back(counts ? p * ((1 - e) * weight(t) + e / double(c) * all) - share : 0);
    }
    r.rows.push_back(loss);
    if (counts) r.total += weight(t);
  }
  return r;
}

}  // namespace

TEST_CASE("cross entropy with weights, smoothing and ignored rows") {
  for (DType t : kFloating) {
    for (Layout layout : {Layout::dense, Layout::transposed, Layout::sliced}) {
      for (bool weighted : {false, true}) {
        for (double eps : {0.0, 0.1}) {
          for (Reduction reduction : {Reduction::none, Reduction::mean, Reduction::sum}) {
            const DType loss_type = t == DType::f64 ? t : DType::f32;
            const int64_t n = 9, c = 37;
            CrossEntropyArgs a{.logits = uniform(t, {n, c}, 1, -3, 3, layout), .label_smoothing = eps, .reduction = reduction};
            const Buffer logits = uniform(t, {n, c}, 1, -3, 3, layout), target = uniform(DType::i64, {n}, 2, 0, double(c));
            const Buffer weight = uniform(DType::f32, {c}, 3, 0.5, 2);
            a.logits = logits;
            set(target.view, 4, -100);
            a.target = target;
            if (weighted) a.weight = weight;
            const Shape shape = reduction == Reduction::none ? Shape{n} : Shape{};
            const Buffer loss = make(loss_type, shape), lse = make(loss_type, {n}), total = make(loss_type, {});
            const Buffer grad = uniform(loss_type, shape, 5), dx = make(t, {n, c});
            cpu().cross_entropy(a, loss, lse, total, {});
            cpu().cross_entropy_backward(a, grad, lse, total, dx);
            if (reduction != Reduction::none) {  // both in one pass: the same bits
              const Buffer once = make(t, {n, c}), same = make(loss_type, {}), same_total = make(loss_type, {});
              cpu().cross_entropy(a, same, lse, same_total, {grad, once});
              CHECK(once.raw() + same.raw() + same_total.raw() == dx.raw() + loss.raw() + total.raw());
            }
            const Reference want = naive(a);
            CHECK(total[0] == doctest::Approx(want.total).epsilon(1e-6));
            double sum = 0;
            for (int64_t i = 0; i < n; ++i) {
              sum += want.rows[size_t(i)];
              CHECK(lse[i] == doctest::Approx(want.lse[size_t(i)]).epsilon(1e-6));
              if (reduction == Reduction::none) CHECK(loss[i] == doctest::Approx(want.rows[size_t(i)]).epsilon(1e-6));
            }
            if (reduction != Reduction::none) {
              CHECK(loss[0] == doctest::Approx(reduction == Reduction::mean ? sum / want.total : sum).epsilon(1e-6));
            }
            bool ok = true;
            for (int64_t i = 0; i < n * c; ++i) {
              double g = grad[reduction == Reduction::none ? i / c : 0];
              if (reduction == Reduction::mean) g /= want.total;
              ok = ok && close(t, dx[i], g * want.gradient[size_t(i)], 4, t == DType::f64 ? 1e-12 : 2e-6);
            }
            CHECK_MESSAGE(ok, name(t), " smoothing ", eps);
          }
        }
      }
    }
  }
}

TEST_CASE("a mean over no counted rows is NaN, and ignored rows have no gradient") {
  const Buffer logits = uniform(DType::f32, {2, 3}, 1), target = make(DType::i64, {2}, {-100, -100});
  const Buffer loss = make(DType::f32, {}), lse = make(DType::f32, {2}), total = make(DType::f32, {}),
               dx = make(DType::f32, {2, 3});
  CrossEntropyArgs a{.logits = logits, .target = target};
  cpu().cross_entropy(a, loss, lse, total, {});
  CHECK(std::isnan(loss[0]));
  CHECK(total[0] == 0);
  cpu().cross_entropy_backward(a, make(DType::f32, {}, {1}), lse, total, dx);
  CHECK(dx.values() == std::vector<double>(6, 0));
  a.reduction = Reduction::sum;
  cpu().cross_entropy(a, loss, lse, total, {make(DType::f32, {}, {1}), dx});
  CHECK(loss[0] == 0);
  CHECK(dx.values() == std::vector<double>(6, 0));
  const Buffer empty = make(DType::f32, {0, 3}), no_target = make(DType::i64, {0});
  cpu().cross_entropy({.logits = empty, .target = no_target}, loss, make(DType::f32, {0}), total, {});
  CHECK(std::isnan(loss[0]));
}

TEST_CASE("check_targets names the first bad one") {
  CHECK(cpu().check_targets(make(DType::i64, {4}, {0, 2, -100, 1}), 3, -100) == -1);
  CHECK(cpu().check_targets(make(DType::i64, {4}, {0, 3, -1, 1}), 3, -100) == 1);
  CHECK(cpu().check_targets(make(DType::i64, {4}, {0, 2, -1, 1}), 3, -100) == 2);
  CHECK(cpu().check_targets(make(DType::i64, {0}), 3, -100) == -1);
}

TEST_CASE("mse and its gradients") {
  for (DType ta : kFloating) {
    for (DType tb : kFloating) {
      for (Reduction reduction : {Reduction::mean, Reduction::sum}) {
        const Buffer a = uniform(ta, {13, 90}, 1, -2, 2, Layout::transposed), b = uniform(tb, {13, 90}, 2);
        const DType loss_type = promote(ta, tb) == DType::f64 ? DType::f64 : DType::f32;
        const Buffer loss = make(loss_type, {}), grad = make(loss_type, {}, {0.7}), da = make(ta, {13, 90}),
                     db = make(tb, {13, 90});
        cpu().mse(a, b, reduction, loss, {});
        cpu().mse_backward(a, b, grad, reduction, 1, da);
        cpu().mse_backward(a, b, grad, reduction, -1, db);
        double sum = 0;
        const double n = reduction == Reduction::mean ? double(a.numel()) : 1;
        bool ok = true;
        for (int64_t i = 0; i < a.numel(); ++i) {
          const double d = a[i] - b[i];
          sum += d * d;
          ok = ok && close(ta, da[i], 2 * d * grad[0] / n, 4, 1e-6 / n) && close(tb, db[i], -2 * d * grad[0] / n, 4, 1e-6 / n);
        }
        CHECK(ok);
        CHECK(loss[0] == doctest::Approx(sum / n).epsilon(1e-6));
      }
    }
  }
  const Buffer none = make(DType::f32, {0}), loss = make(DType::f32, {});
  cpu().mse(none, none, Reduction::mean, loss, {});
  CHECK(std::isnan(loss[0]));
  cpu().mse(none, none, Reduction::sum, loss, {});
  CHECK(loss[0] == 0);
  const Buffer huge = make(DType::f16, {1}, {60000}), minus = make(DType::f16, {1}, {-60000});
  cpu().mse(huge, minus, Reduction::mean, loss, {});
  CHECK(loss[0] == doctest::Approx(120000.0 * 120000.0));
}

TEST_CASE("losses do not depend on the number of threads") {
  const Buffer x = uniform(DType::f32, {700, 60}, 1), y = uniform(DType::f32, {700, 60}, 2),
               target = uniform(DType::i64, {700}, 3, 0, 60);
  same_for_any_threads([&] {
    const Buffer ce = make(DType::f32, {}), lse = make(DType::f32, {700}), total = make(DType::f32, {}),
                 loss = make(DType::f32, {});
    const Buffer dx = make(DType::f32, {700, 60});
    const CrossEntropyArgs a{.logits = x, .target = target};
    cpu().cross_entropy(a, ce, lse, total, {make(DType::f32, {}, {3}), dx});
    cpu().mse(x, y, Reduction::mean, loss, {});
    return ce.raw() + dx.raw() + loss.raw();
  });
}
