// SPDX-License-Identifier: Apache-2.0
// Data sets.
#pragma once

#include "torch/data/transforms.h"

namespace torch::data {

// ---- data sets
namespace datasets {
template <class S, class T>
class MapDataset;
template <class D, class T>
MapDataset<D, T> map(D dataset, T transform);
template <class Self, class Batch, class Request = ArrayRef<size_t>>
class BatchDataset {
 public:
  using SelfType = Self;
  using BatchType = Batch;
  using BatchRequestType = Request;
  static constexpr bool is_stateful = false;
  virtual ~BatchDataset() = default;
  virtual Batch get_batch(Request request) = 0;
  virtual std::optional<size_t> size() const = 0;
  template <class T>
  MapDataset<Self, T> map(T t) & {
    return datasets::map(static_cast<Self&>(*this), std::move(t));
  }
  template <class T>
  MapDataset<Self, T> map(T t) && {
    return datasets::map(std::move(static_cast<Self&>(*this)), std::move(t));
  }
};
template <class Self, class Single = Example<>>
class Dataset : public BatchDataset<Self, std::vector<Single>> {
 public:
  using ExampleType = Single;
  virtual ExampleType get(size_t index) = 0;
  std::vector<ExampleType> get_batch(ArrayRef<size_t> indices) override {
    std::vector<ExampleType> out;
    out.reserve(indices.size());
    for (size_t i : indices) out.push_back(get(i));
    return out;
  }
};
template <class Self, class Batch = std::vector<Example<>>>
using StreamDataset = BatchDataset<Self, Batch, size_t>;
template <class Self, class Batch = std::vector<Example<>>, class Request = size_t>
class StatefulDataset : public BatchDataset<Self, std::optional<Batch>, Request> {
 public:
  static constexpr bool is_stateful = true;
  virtual void reset() = 0;
  virtual void save(serialize::OutputArchive& archive) const = 0;
  virtual void load(serialize::InputArchive& archive) = 0;
};
template <class Self, class Batch, class Request>
serialize::OutputArchive& operator<<(serialize::OutputArchive& archive, const StatefulDataset<Self, Batch, Request>& dataset) {
  dataset.save(archive);
  return archive;
}
template <class Self, class Batch, class Request>
serialize::InputArchive& operator>>(serialize::InputArchive& archive, StatefulDataset<Self, Batch, Request>& dataset) {
  dataset.load(archive);
  return archive;
}
template <class S, class T>
class MapDataset : public BatchDataset<
                       MapDataset<S, T>,
                       std::conditional_t<S::is_stateful, std::optional<typename T::OutputBatchType>, typename T::OutputBatchType>,
                       typename S::BatchRequestType> {
 public:
  using DatasetType = S;
  using TransformType = T;
  using BatchRequestType = typename S::BatchRequestType;
  using OutputBatchType =
      std::conditional_t<S::is_stateful, std::optional<typename T::OutputBatchType>, typename T::OutputBatchType>;
  static constexpr bool is_stateful = S::is_stateful;
  MapDataset(S d, T t) : dataset_(std::move(d)), transform_(std::move(t)) {}
  OutputBatchType get_batch(BatchRequestType indices) override {
    if constexpr (S::is_stateful) {
      if (auto b = dataset_.get_batch(std::move(indices))) return transform_.apply_batch(std::move(*b));
      return std::nullopt;
    } else {
      return transform_.apply_batch(dataset_.get_batch(std::move(indices)));
    }
  }
  std::optional<size_t> size() const noexcept override { return dataset_.size(); }
  void reset() {
    if constexpr (requires { dataset_.reset(); }) dataset_.reset();
  }
  const S& dataset() noexcept { return dataset_; }
  const T& transform() noexcept { return transform_; }

 private:
  S dataset_;
  T transform_;
};
template <class D, class T>
MapDataset<D, T> map(D dataset, T transform) {
  return MapDataset<D, T>(std::move(dataset), std::move(transform));
}
template <class U>
class SharedBatchDataset : public BatchDataset<SharedBatchDataset<U>, typename U::BatchType, typename U::BatchRequestType> {
 public:
  static constexpr bool is_stateful = U::is_stateful;
  SharedBatchDataset(std::shared_ptr<U> d) : dataset_(std::move(d)) {}
  typename U::BatchType get_batch(typename U::BatchRequestType r) override { return dataset_->get_batch(std::move(r)); }
  std::optional<size_t> size() const override { return dataset_->size(); }
  U& operator*() { return *dataset_; }
  const U& operator*() const { return *dataset_; }
  U* operator->() { return dataset_.get(); }
  const U* operator->() const { return dataset_.get(); }
  void reset() { dataset_->reset(); }

 private:
  std::shared_ptr<U> dataset_;
};
template <class U, class... A>
SharedBatchDataset<U> make_shared_dataset(A&&... a) {
  return std::make_shared<U>(std::forward<A>(a)...);
}
struct TensorDataset : Dataset<TensorDataset, TensorExample> {
  explicit TensorDataset(const std::vector<Tensor>& t) : TensorDataset(torch::stack(t)) {}
  explicit TensorDataset(Tensor t) : tensor(std::move(t)) {}
  TensorExample get(size_t i) override { return tensor[int64_t(i)]; }
  std::optional<size_t> size() const override { return size_t(tensor.size(0)); }
  Tensor tensor;
};
class MNIST : public Dataset<MNIST> {
 public:
  enum class Mode { kTrain, kTest };
  explicit MNIST(const std::string& root, Mode mode = Mode::kTrain);  // throws if a file is missing or damaged
  Example<> get(size_t i) override { return {images_[int64_t(i)], targets_[int64_t(i)]}; }
  std::optional<size_t> size() const override { return size_t(images_.size(0)); }
  bool is_train() const noexcept { return is_train_; }
  const Tensor& images() const { return images_; }
  const Tensor& targets() const { return targets_; }

 private:
  bool is_train_;
  Tensor images_, targets_;
};
}  // namespace datasets

}  // namespace torch::data
