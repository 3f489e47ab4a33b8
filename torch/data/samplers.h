// SPDX-License-Identifier: Apache-2.0
// Samplers.
#pragma once

#include <numeric>
#include <random>

#include "torch/data/example.h"

namespace torch::data {

// ---- samplers
namespace samplers {
template <class Batch = std::vector<size_t>>
class Sampler {
 public:
  using BatchRequestType = Batch;
  virtual ~Sampler() = default;
  virtual void reset(std::optional<size_t> new_size) = 0;
  virtual std::optional<Batch> next(size_t batch_size) = 0;
  virtual void save(serialize::OutputArchive& archive) const = 0;
  virtual void load(serialize::InputArchive& archive) = 0;
};
class SequentialSampler : public Sampler<> {
 public:
  explicit SequentialSampler(size_t size) : size_(size) {}
  void reset(std::optional<size_t> n = {}) override {
    if (n) size_ = *n;
    index_ = 0;
  }
  std::optional<std::vector<size_t>> next(size_t batch_size) override {
    if (index_ >= size_) return {};
    std::vector<size_t> out(std::min(batch_size, size_ - index_));
    std::iota(out.begin(), out.end(), index_);
    index_ += out.size();
    return out;
  }
  void save(serialize::OutputArchive& a) const override { a.write("index", torch::tensor(int64_t(index_), kInt64)); }
  void load(serialize::InputArchive& a) override {
    Tensor t;
    a.read("index", t);
    index_ = size_t(t.item<int64_t>());
  }
  size_t index() const noexcept { return index_; }

 private:
  size_t size_, index_ = 0;
};
class RandomSampler : public Sampler<> {
 public:
  explicit RandomSampler(int64_t size, Dtype = kInt64) : indices_(torch::randperm(size)) {}
  void reset(std::optional<size_t> n = {}) override {
    indices_ = torch::randperm(int64_t(n.value_or(size_t(indices_.numel()))));
    index_ = 0;
  }
  std::optional<std::vector<size_t>> next(size_t batch_size) override {
    const int64_t left = indices_.numel() - index_;
    if (left == 0) return {};
    std::vector<size_t> out(std::min(batch_size, size_t(left)));
    for (size_t& i : out) i = size_t(indices_.data_ptr<int64_t>()[index_++]);
    return out;
  }
  void save(serialize::OutputArchive& a) const override {
    a.write("index", torch::tensor(index_, kInt64));
    a.write("indices", indices_);
  }
  void load(serialize::InputArchive& a) override {
    Tensor t;
    a.read("index", t);
    index_ = t.item<int64_t>();
    a.read("indices", indices_);
  }
  size_t index() const noexcept { return size_t(index_); }

 private:
  Tensor indices_;
  int64_t index_ = 0;
};
template <class Batch = std::vector<size_t>>
class DistributedSampler : public Sampler<Batch> {
 public:
  DistributedSampler(size_t size, size_t num_replicas = 1, size_t rank = 0, bool allow_duplicates = true)
      : size_(size), num_replicas_(num_replicas), rank_(rank), epoch_(0), allow_duplicates_(allow_duplicates) {}
  void set_epoch(size_t e) { epoch_ = e; }
  size_t epoch() const { return epoch_; }

 protected:
  size_t local_sample_count() const {
    return allow_duplicates_ ? (size_ + num_replicas_ - 1) / num_replicas_ : size_ / num_replicas_;
  }
  size_t size_, num_replicas_, rank_, epoch_;
  bool allow_duplicates_;
};
class DistributedRandomSampler : public DistributedSampler<> {
 public:
  DistributedRandomSampler(size_t size, size_t n = 1, size_t rank = 0, bool dup = true) : DistributedSampler(size, n, rank, dup) {
    reset(size_);
  }
  void reset(std::optional<size_t> n = {}) override {
    size_ = n.value_or(size_);
    populate();
    std::mt19937 rand(static_cast<unsigned>(epoch_));
    std::shuffle(all_.begin(), all_.end(), rand);
    at_ = begin_ = rank_ * local_sample_count();
    end_ = begin_ + local_sample_count();
  }
  std::optional<std::vector<size_t>> next(size_t batch_size) override {
    if (at_ == end_) return {};
    const size_t to = std::min(at_ + batch_size, end_);
    std::vector<size_t> out(all_.begin() + std::ptrdiff_t(at_), all_.begin() + std::ptrdiff_t(to));
    at_ = to;
    return out;
  }
  void save(serialize::OutputArchive& a) const override {
    a.write("sample_index_", torch::tensor(int64_t(at_)));
    a.write("epoch_", torch::tensor(int64_t(epoch_)));
  }
  void load(serialize::InputArchive& a) override {
    Tensor t;
    a.read("epoch_", t);
    set_epoch(size_t(t.item<int64_t>()));
    reset(size_);
    Tensor i;
    a.read("sample_index_", i);
    at_ = size_t(i.item<int64_t>());
  }
  size_t index() const noexcept { return at_; }

 private:
  void populate() {
    all_.resize(num_replicas_ == 1 ? size_ : local_sample_count() * num_replicas_);
    for (size_t i = 0; i < all_.size(); ++i) all_[i] = i % size_;
  }
  size_t begin_ = 0, end_ = 0, at_ = 0;
  std::vector<size_t> all_;
};
class DistributedSequentialSampler : public DistributedSampler<> {
 public:
  DistributedSequentialSampler(size_t size, size_t n = 1, size_t rank = 0, bool dup = true)
      : DistributedSampler(size, n, rank, dup) {
    reset(size_);
  }
  void reset(std::optional<size_t> n = {}) override {
    size_ = n.value_or(size_);
    at_ = begin_ = rank_ * local_sample_count();
    end_ = begin_ + local_sample_count();
  }
  std::optional<std::vector<size_t>> next(size_t batch_size) override {
    if (at_ == end_) return {};
    const size_t to = std::min(at_ + batch_size, end_);
    std::vector<size_t> out(to - at_);
    std::iota(out.begin(), out.end(), at_);
    for (size_t& i : out) i %= size_;
    at_ = to;
    return out;
  }
  void save(serialize::OutputArchive& a) const override { a.write("sample_index_", torch::tensor(int64_t(at_))); }
  void load(serialize::InputArchive& a) override {
    Tensor t;
    a.read("sample_index_", t);
    at_ = size_t(t.item<int64_t>());
  }
  size_t index() const noexcept { return at_; }

 private:
  size_t begin_ = 0, end_ = 0, at_ = 0;
};
struct CustomBatchRequest {
  virtual ~CustomBatchRequest() = default;
  virtual size_t size() const = 0;
};
struct BatchSize : CustomBatchRequest {
  explicit BatchSize(size_t n) : n_(n) {}
  size_t size() const noexcept override { return n_; }
  operator size_t() const noexcept { return n_; }
  size_t n_;
};
class StreamSampler : public Sampler<BatchSize> {
 public:
  explicit StreamSampler(size_t epoch_size) : epoch_size_(epoch_size) {}
  void reset(std::optional<size_t> n = {}) override {
    if (n) epoch_size_ = *n;
    at_ = 0;
  }
  std::optional<BatchSize> next(size_t batch_size) override {
    if (at_ >= epoch_size_) return {};
    batch_size = std::min(batch_size, epoch_size_ - at_);
    at_ += batch_size;
    return BatchSize(batch_size);
  }
  void save(serialize::OutputArchive& a) const override {
    a.write("examples_retrieved_so_far", torch::tensor(int64_t(at_), kInt64));
  }
  void load(serialize::InputArchive& a) override {
    Tensor t;
    a.read("examples_retrieved_so_far", t);
    at_ = size_t(t.item<int64_t>());
  }

 private:
  size_t at_ = 0, epoch_size_;
};
template <class B>
serialize::OutputArchive& operator<<(serialize::OutputArchive& a, const Sampler<B>& s) {
  s.save(a);
  return a;
}
template <class B>
serialize::InputArchive& operator>>(serialize::InputArchive& a, Sampler<B>& s) {
  s.load(a);
  return a;
}
}  // namespace samplers

}  // namespace torch::data
