// SPDX-License-Identifier: Apache-2.0
// Transforms of examples and batches.
#pragma once

#include "torch/data/example.h"

namespace torch::data {

// ---- transforms
namespace transforms {
template <class In, class Out>
class BatchTransform {
 public:
  using InputBatchType = In;
  using OutputBatchType = Out;
  virtual ~BatchTransform() = default;
  virtual Out apply_batch(In in) = 0;
};
template <class In, class Out>
class Transform : public BatchTransform<std::vector<In>, std::vector<Out>> {
 public:
  using InputType = In;
  using OutputType = Out;
  virtual Out apply(In in) = 0;
  std::vector<Out> apply_batch(std::vector<In> in) override {
    std::vector<Out> out;
    out.reserve(in.size());
    for (auto& i : in) out.push_back(apply(std::move(i)));
    return out;
  }
};
template <class T, class BatchType = std::vector<T>>
using Collation = BatchTransform<BatchType, T>;
template <class In, class Out = In>
class BatchLambda : public BatchTransform<In, Out> {
 public:
  using FunctionType = std::function<Out(In)>;
  explicit BatchLambda(FunctionType f) : f_(std::move(f)) {}
  Out apply_batch(In in) override { return f_(std::move(in)); }

 private:
  FunctionType f_;
};
template <class T, class BatchType = std::vector<T>>
using Collate = BatchLambda<BatchType, T>;
template <class In, class Out = In>
class Lambda : public Transform<In, Out> {
 public:
  using FunctionType = std::function<Out(In)>;
  explicit Lambda(FunctionType f) : f_(std::move(f)) {}
  Out apply(In in) override { return f_(std::move(in)); }

 private:
  FunctionType f_;
};
template <class Target = Tensor>
class TensorTransform : public Transform<Example<Tensor, Target>, Example<Tensor, Target>> {
 public:
  using E = Example<Tensor, Target>;
  virtual Tensor operator()(Tensor in) = 0;
  E apply(E in) override {
    in.data = (*this)(std::move(in.data));
    return in;
  }
};
template <class Target = Tensor>
class TensorLambda : public TensorTransform<Target> {
 public:
  using FunctionType = std::function<Tensor(Tensor)>;
  explicit TensorLambda(FunctionType f) : f_(std::move(f)) {}
  Tensor operator()(Tensor in) override { return f_(std::move(in)); }

 private:
  FunctionType f_;
};
template <class Target = Tensor>
class Normalize : public TensorTransform<Target> {
 public:
  Normalize(ArrayRef<double> mean, ArrayRef<double> stddev)
      : mean(torch::tensor(mean, kFloat32).unsqueeze(1).unsqueeze(2)),
        stddev(torch::tensor(stddev, kFloat32).unsqueeze(1).unsqueeze(2)) {}
  Tensor operator()(Tensor in) override { return in.sub(mean).div(stddev); }
  Tensor mean, stddev;
};
template <class E = Example<>>
struct Stack;
template <>
struct Stack<Example<>> : Collation<Example<>> {
  Example<> apply_batch(std::vector<Example<>> in) override {
    std::vector<Tensor> data, targets;
    for (auto& e : in) data.push_back(std::move(e.data)), targets.push_back(std::move(e.target));
    return {torch::stack(data), torch::stack(targets)};
  }
};
template <>
struct Stack<TensorExample> : Collation<Example<Tensor, example::NoTarget>> {
  TensorExample apply_batch(std::vector<TensorExample> in) override {
    std::vector<Tensor> data;
    for (auto& e : in) data.push_back(std::move(e.data));
    return torch::stack(data);
  }
};
}  // namespace transforms

}  // namespace torch::data
