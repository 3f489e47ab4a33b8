// SPDX-License-Identifier: Apache-2.0
// Examples, and the options of a loader.
#pragma once

#include <chrono>
#include <exception>

#include "torch/nn/enums.h"
#include "torch/serialize/archive.h"

namespace torch::data {

template <class Data = Tensor, class Target = Tensor>
struct Example {
  using DataType = Data;
  using TargetType = Target;
  Example() = default;
  Example(Data d, Target t) : data(std::move(d)), target(std::move(t)) {}
  Data data;
  Target target;
};
namespace example {
using NoTarget = void;
}
template <class Data>
struct Example<Data, example::NoTarget> {
  using DataType = Data;
  using TargetType = example::NoTarget;
  Example() = default;
  Example(Data d) : data(std::move(d)) {}
  operator Data&() { return data; }
  operator const Data&() const { return data; }
  Data data;
};
using TensorExample = Example<Tensor, example::NoTarget>;

struct DataLoaderOptions {
  DataLoaderOptions() = default;
  DataLoaderOptions(size_t batch_size) : batch_size_(batch_size) {}
  HS_TORCH_ARG(size_t, batch_size, 1);
  HS_TORCH_ARG(size_t, workers, 0);
  HS_TORCH_ARG(std::optional<size_t>, max_jobs, std::nullopt);
  HS_TORCH_ARG(std::optional<std::chrono::milliseconds>, timeout, std::nullopt);
  HS_TORCH_ARG(bool, enforce_ordering, true);
  HS_TORCH_ARG(bool, drop_last, false);
};
struct FullDataLoaderOptions {
  explicit FullDataLoaderOptions(DataLoaderOptions o)
      : batch_size(o.batch_size()),
        workers(o.workers()),
        max_jobs(o.max_jobs().value_or(2 * o.workers())),
        timeout(o.timeout()),
        enforce_ordering(o.enforce_ordering()),
        drop_last(o.drop_last()) {}
  size_t batch_size, workers, max_jobs;
  std::optional<std::chrono::milliseconds> timeout;
  bool enforce_ordering, drop_last;
};
struct WorkerException : std::exception {
  explicit WorkerException(std::exception_ptr original) : original_exception(std::move(original)) {
    try {
      std::rethrow_exception(original_exception);
    } catch (std::exception& e) {
      message = std::string("Caught exception in DataLoader worker thread. Original message: ") + e.what();
    }
  }
  const char* what() const noexcept override { return message.c_str(); }
  std::string message = "Caught exception in DataLoader worker thread.";
  std::exception_ptr original_exception;
};

}  // namespace torch::data
