// SPDX-License-Identifier: Apache-2.0
// Rows of metrics. They sum in double over all batches, so a smaller last batch counts by its samples.
#include <algorithm>
#include <cmath>
#include <limits>
#include <numbers>
#include <span>

#include "apps/catalog/metrics.h"
#include "framework/base/check.h"
#include "framework/ops/ops.h"

namespace halfstep::app {
namespace {

// The share of samples, or of positions of sequences, whose largest output is their class.
class Accuracy : public Metric {
 public:
  void reset() override { correct_ = samples_ = 0; }
  void add(const Tensor& output, const Tensor& target) override {
    const Tensor truth = classes_of(target, output);
    correct_ += eq(argmax(output, -1), truth).sum().item<int64_t>();
    samples_ += truth.ge(0).sum().item<int64_t>();  // losses ignore negative classes
  }
  double value() const override { return double(correct_) / double(samples_); }
  bool is_share() const override { return true; }
  int64_t counted() const override { return samples_; }

 private:
  int64_t correct_ = 0, samples_ = 0;
};

// A metric of scores [N, C] and classes of N samples, or positions of sequences; ignores negative classes, as losses do.
class ClassMetric : public Metric {
 public:
  void add(const Tensor& output, const Tensor& target) final {
    const int64_t classes = output.size(-1);
    const Tensor scores = output.to(DType::f32).reshape({-1, classes}).to(Device::cpu).contiguous();
    const Tensor truth = classes_of(target, output).to(Device::cpu).reshape({-1}).contiguous();
    check<ShapeError>(scores.size(0) == truth.numel(), "metrics", "the output must have scores for each target, got ",
                      output.shape(), " for targets ", target.shape());
    for (int64_t i = 0; i < truth.numel(); ++i) {
      const int64_t c = truth.data_ptr<int64_t>()[i];
      if (c < 0) continue;
      check<IndexError>(c < classes, "metrics", "a class must be below ", classes, ", the scores of a sample, got ", c);
      count({scores.data_ptr<float>() + i * classes, size_t(classes)}, c);
    }
  }

 protected:
  virtual void count(std::span<const float> scores, int64_t truth) = 0;
};

// Returns the class with the largest score; with NaN among the scores, that of the first NaN.
size_t best_of(std::span<const float> scores) {
  size_t best = 0;
  for (size_t c = 1; c < scores.size(); ++c) {
    if (!std::isnan(scores[best]) && !(scores[c] <= scores[best])) best = c;
  }
  return best;
}

double share(double part, double whole) { return whole > 0 ? part / whole : 0; }

class TopK : public ClassMetric {
 public:
  explicit TopK(int64_t k) : k_(k) {}
  void reset() override { hits_ = count_ = 0; }
  double value() const override { return double(hits_) / double(count_); }
  bool is_share() const override { return true; }
  int64_t counted() const override { return count_; }

 protected:
  void count(std::span<const float> scores, int64_t truth) override {
    check<ConfigError>(k_ <= int64_t(scores.size()), "top_k", "k must be at most the number of classes, ", scores.size(), ", got ",
                       k_);
    int64_t before = 0;  // of equal scores the first wins
    const float own = scores[size_t(truth)];
    for (int64_t c = 0; c < int64_t(scores.size()); ++c) {
      const float s = scores[size_t(c)];
      before += s > own || (s == own && c < truth) || (std::isnan(s) && !std::isnan(own));
    }
    hits_ += before < k_ && !std::isnan(own);
    ++count_;
  }

 private:
  int64_t k_, hits_ = 0, count_ = 0;
};

// Counts how often class t (row) was predicted as class p (column).
class Confusion : public ClassMetric {
 public:
  void reset() override { table_.clear(), classes_ = 0; }
  double value() const override {  // the share on the diagonal
    double hits = 0;
    for (size_t c = 0; c < classes_; ++c) hits += count(c, c);
    return hits / sum();
  }
  bool is_share() const override { return true; }
  int64_t counted() const override { return int64_t(sum()); }
  Json details() const override {
    Json rows = Json::array();
    for (size_t t = 0; t < classes_; ++t) {
      rows.push_back(Json::array());
      for (size_t p = 0; p < classes_; ++p) rows.back().push_back(table_[t * classes_ + p]);
    }
    return rows;
  }

 protected:
  void count(std::span<const float> scores, int64_t truth) override {
    if (classes_ == 0) classes_ = scores.size(), table_.assign(classes_ * classes_, 0);
    check<ShapeError>(scores.size() == classes_, "metrics", "all batches must have ", classes_, " classes, got ", scores.size());
    ++table_[size_t(truth) * classes_ + best_of(scores)];
  }
  double count(size_t t, size_t p) const { return double(table_[t * classes_ + p]); }
  double sum() const {
    double out = 0;
    for (const int64_t n : table_) out += double(n);
    return out;
  }
  double actual(size_t c) const {
    double n = 0;
    for (size_t p = 0; p < classes_; ++p) n += count(c, p);
    return n;
  }
  double predicted(size_t c) const {
    double n = 0;
    for (size_t t = 0; t < classes_; ++t) n += count(t, c);
    return n;
  }
  size_t classes_ = 0;

 private:
  std::vector<int64_t> table_;
};

// Precision, recall or F1: the mean over the classes that occur as targets or answers; micro: of all samples as one class, which
// with one answer for each sample is the accuracy.
class Averaged : public Confusion {
 public:
  explicit Averaged(const std::string& average) : micro_(average == "micro") {}
  double value() const final {
    if (micro_) return Confusion::value();
    double total = 0, classes = 0;
    for (size_t c = 0; c < classes_; ++c) {
      const double answers = predicted(c), members = actual(c);
      if (answers + members == 0) continue;
      total += score(count(c, c), answers, members);
      ++classes;
    }
    return total / classes;
  }
  Json details() const final { return {}; }

 protected:
  virtual double score(double hits, double predicted, double actual) const = 0;

 private:
  bool micro_;
};
class Precision : public Averaged {
  using Averaged::Averaged;
  double score(double hits, double predicted, double) const override { return share(hits, predicted); }
};
class Recall : public Averaged {
  using Averaged::Averaged;
  double score(double hits, double, double actual) const override { return share(hits, actual); }
};
class F1 : public Averaged {
  using Averaged::Averaged;
  double score(double hits, double predicted, double actual) const override { return share(2 * hits, predicted + actual); }
};

// The mean of -ln softmax(output)[class].
class LogLikelihood : public ClassMetric {
 public:
  void reset() override { sum_ = 0, count_ = 0; }
  bool more_is_better() const override { return false; }

 protected:
  void count(std::span<const float> scores, int64_t truth) override {
    const double largest = double(*std::max_element(scores.begin(), scores.end()));
    double total = 0;
    for (const float s : scores) total += std::exp(double(s) - largest);
    sum_ += largest + std::log(total) - double(scores[size_t(truth)]);
    ++count_;
  }
  double mean() const { return sum_ / double(count_); }

 private:
  double sum_ = 0;
  int64_t count_ = 0;
};
class Perplexity : public LogLikelihood {
  double value() const override { return std::exp(mean()); }
};
class BitsPerChar : public LogLikelihood {
  double value() const override { return mean() / std::numbers::ln2; }
};

// A metric of outputs and targets of one shape; column j is value j of a sample.
class NumberMetric : public Metric {
 public:
  void add(const Tensor& output, const Tensor& target) final {
    check<ShapeError>(output.shape() == target.shape(), "metrics", "the output must have the target's shape ", target.shape(),
                      ", got ", output.shape());
    const Tensor x = output.to(Device::cpu).to(DType::f64).contiguous(), y = target.to(Device::cpu).to(DType::f64).contiguous();
    const int64_t columns = x.size(0) > 0 ? x.numel() / x.size(0) : 0;
    const double *const outputs = x.const_data_ptr<double>(), *const targets = y.const_data_ptr<double>();
    for (int64_t i = 0; i < x.numel(); ++i) count(outputs[i], targets[i], size_t(i % columns));
  }
  bool more_is_better() const override { return false; }

 protected:
  virtual void count(double output, double target, size_t column) = 0;
};

class MeanError : public NumberMetric {
 public:
  void reset() override { sum_ = 0, count_ = 0; }

 protected:
  void add_error(double error) { sum_ += error, ++count_; }
  double mean() const { return sum_ / double(count_); }

 private:
  double sum_ = 0;
  int64_t count_ = 0;
};
class Mae : public MeanError {
  void count(double output, double target, size_t) override { add_error(std::abs(output - target)); }
  double value() const override { return mean(); }
};
class Rmse : public MeanError {
  void count(double output, double target, size_t) override { add_error((output - target) * (output - target)); }
  double value() const override { return std::sqrt(mean()); }
};

// 1 - sum (output - target)^2 / sum (target - mean)^2 of each column, averaged. A column with a constant target has 1 if all
// outputs are right, else 0.
class R2 : public NumberMetric {
 public:
  void reset() override { columns_.clear(); }
  bool more_is_better() const override { return true; }
  double value() const override {
    double total = 0;
    for (const Column& c : columns_) total += c.spread > 0 ? 1 - c.error / c.spread : c.error > 0 ? 0 : 1;
    return total / double(columns_.size());
  }

 protected:
  void count(double output, double target, size_t column) override {
    if (columns_.size() <= column) columns_.resize(column + 1);
    Column& c = columns_[column];
    c.error += (output - target) * (output - target);
    const double deviation = target - c.mean;  // Welford, 1962
    c.mean += deviation / ++c.count;
    c.spread += deviation * (target - c.mean);
  }

 private:
  struct Column {
    double count = 0, mean = 0, spread = 0, error = 0;
  };
  std::vector<Column> columns_;
};

// The probability that a positive sample scores above a negative one; ties count half. For classes: each against the rest by its
// share of softmax(output), averaged over classes that have both kinds; for numbers 0 and 1: of each column.
class Auroc : public Metric {
 public:
  void reset() override { columns_.clear(); }
  bool is_share() const override { return true; }
  int64_t counted() const override { return columns_.empty() ? 0 : int64_t(columns_[0].size()); }

  void add(const Tensor& output, const Tensor& target) override {
    const Tensor scores = output.to(DType::f32).to(Device::cpu).contiguous();
    const Tensor truth = target.to(Device::cpu).contiguous();
    if (truth.is_floating_point()) return add_numbers(scores, truth.to(DType::f32));
    const int64_t classes = scores.size(-1);
    check<ShapeError>(truth.numel() * classes == scores.numel(), "auroc", "the output must have scores for each target, got ",
                      output.shape(), " for targets ", target.shape());
    columns_.resize(size_t(classes));
    for (int64_t i = 0; i < truth.numel(); ++i) {
      const float* const row = scores.const_data_ptr<float>() + i * classes;
      const int64_t c = truth.data_ptr<int64_t>()[i];
      if (c < 0) continue;
      const double largest = double(*std::max_element(row, row + classes));
      double total = 0;
      for (int64_t j = 0; j < classes; ++j) total += std::exp(double(row[j]) - largest);
      for (int64_t j = 0; j < classes; ++j) columns_[size_t(j)].emplace_back(std::exp(double(row[j]) - largest) / total, j == c);
    }
  }

  double value() const override {
    double total = 0;
    int64_t areas = 0;
    for (const auto& column : columns_) {
      const double area = area_of(column);
      if (!std::isnan(area)) total += area, ++areas;
    }
    return areas > 0 ? total / double(areas) : std::numeric_limits<double>::quiet_NaN();
  }

 private:
  using Column = std::vector<std::pair<double, bool>>;  // score, positive

  void add_numbers(const Tensor& scores, const Tensor& truth) {
    check<ShapeError>(scores.shape() == truth.shape(), "auroc", "the output must have the target's shape ", truth.shape(), ", got ",
                      scores.shape());
    const int64_t columns = scores.size(0) > 0 ? scores.numel() / scores.size(0) : 0;
    columns_.resize(size_t(columns));
    for (int64_t i = 0; i < scores.numel(); ++i)
      columns_[size_t(i % columns)].emplace_back(double(scores.data_ptr<float>()[i]), truth.data_ptr<float>()[i] > 0.5f);
  }

  // Computes the area by the sum of the positives' ranks (Mann & Whitney); NaN without both kinds, or with a NaN score.
  static double area_of(Column column) {
    double positives = 0, ranks = 0;
    for (const auto& [score, positive] : column) {
      if (std::isnan(score)) return score;
      positives += positive;
    }
    const double negatives = double(column.size()) - positives;
    if (positives == 0 || negatives == 0) return std::numeric_limits<double>::quiet_NaN();
    std::sort(column.begin(), column.end());
    for (size_t from = 0; from < column.size();) {
      size_t to = from;
      while (to < column.size() && column[to].first == column[from].first) ++to;
      for (size_t i = from; i < to; ++i) {
        if (column[i].second) ranks += 0.5 * double(from + 1 + to);  // equal scores share their mean rank
      }
      from = to;
    }
    return (ranks - positives * (positives + 1) / 2) / (positives * negatives);
  }

  std::vector<Column> columns_;
};

}  // namespace

Tensor classes_of(const Tensor& target, const Tensor& output) {
  const bool shares = target.is_floating_point() && target.shape() == output.shape();
  return shares ? argmax(target, -1) : target;
}

void add_metric_rows(Catalog<MetricRow>& catalog) {
  MetricRow accuracy = metric_row<Accuracy>("accuracy", "share of samples whose largest output is their class", Targets::classes);
  accuracy.always = true;
  catalog.add(std::move(accuracy));
  const auto average = arg<std::string>(
      choice("average", "macro", {"macro", "micro"}, "\"macro\": mean over the classes that occur; \"micro\": over all samples"));
  catalog.add(metric_row<TopK>("top_k", "share of samples whose class is among the k largest outputs", Targets::classes,
                               arg<int64_t>(integer("k", 5, "how many").at_least(1).at_most(kMaxSample))));
  catalog.add(
      metric_row<Precision>("precision", "share of the samples predicted as a class that belong to it", Targets::classes, average));
  catalog.add(
      metric_row<Recall>("recall", "share of the samples of a class that are predicted as this class", Targets::classes, average));
  catalog.add(metric_row<F1>("f1", "harmonic mean of precision and recall", Targets::classes, average));
  catalog.add(metric_row<Confusion>(
      "confusion_matrix", "how often class i (row) was predicted as class j; its value is the accuracy", Targets::classes));
  catalog.add(metric_row<Perplexity>("perplexity", "exp of the mean of -ln softmax(output)[class]", Targets::classes));
  catalog.add(metric_row<BitsPerChar>("bits_per_char", "the mean of -log2 softmax(output)[class]", Targets::classes));
  catalog.add(metric_row<Mae>("mae", "mean of |output - target|", Targets::numbers));
  catalog.add(metric_row<Rmse>("rmse", "root of the mean of (output - target)^2", Targets::numbers));
  catalog.add(metric_row<R2>("r2", "share of the target's variance that is explained, mean over the outputs", Targets::numbers));
  catalog.add(metric_row<Auroc>(
      "auroc", "area under the ROC curve: of each class against the rest, or of outputs for targets 0 and 1; the mean",
      std::nullopt));
}

}  // namespace halfstep::app
