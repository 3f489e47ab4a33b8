// SPDX-License-Identifier: Apache-2.0
// The micro-batches of one optimizer step.
//
// The gradient of a window is that of its samples as one batch: sum_i n_i grad(loss_i) / sum_i n_i, exact also when batches differ
// in size or the window ends early. Each loss is weighted n_i / (k n_1), where k is the number of micro-batches of all ranks and
// n_1 the size of the first one; if the window turns out otherwise, its gradients are multiplied by k n_1 / sum_i n_i before they
// are clipped. The loss must be a mean over samples (dimension 0 of the input).
//
// The random numbers of a window are those of its samples as one batch (framework/base/draws.h): a dropout mask does not depend on
// the number of micro-batches, or ranks, that compute it.
#pragma once

#include <cstdint>
#include <optional>

#include "framework/base/draws.h"
#include "framework/base/generator.h"

namespace halfstep {

class AccumulationWindow {
 public:
  AccumulationWindow(int64_t micro_batches, int64_t ranks) : micro_batches_(micro_batches), ranks_(ranks) {}

  void open(const BatchRows& first);      // with the rows of its first micro-batch
  void count(const BatchRows& part);      // after each micro-batch
  void close() { pending_ = 0; }          // the counts stay until the next open()
  int64_t pending() const { return pending_; }  // micro-batches in the open window
  bool at_last() const { return pending_ + 1 == micro_batches_; }
  bool full() const { return pending_ >= micro_batches_; }
  int64_t samples() const { return samples_; }          // of all ranks
  int64_t own_samples() const { return own_samples_; }  // of this rank
  Generator::State random() const { return random_; }   // where its random numbers begin

  double loss_weight(const BatchRows& part) const { return double(part.rows) / double(expected()); }
  std::optional<BatchRows> rows_of(const BatchRows& part) const;  // in the window; nothing where it is a single part
  double gradient_factor() const { return samples_ == expected() ? 1 : double(expected()) / double(samples_); }

  // While it lives, the default generator gives a micro-batch the random numbers of its rows in the window.
  class Draws {
   public:
    [[nodiscard]] Draws(const AccumulationWindow& window, const BatchRows& part);
    ~Draws();  // the generator is then past the numbers of all micro-batches so far
    Draws(const Draws&) = delete;

   private:
    DrawsOf rows_;
    bool later_;  // not the window's first
    Generator::State before_;
  };

 private:
  int64_t expected() const { return micro_batches_ * ranks_ * first_rows_; }

  int64_t micro_batches_, ranks_;
  int64_t pending_ = 0;
  int64_t first_rows_ = 0, first_total_ = 0;  // of the first micro-batch: the rows of rank 0, and of all ranks
  int64_t samples_ = 0, own_samples_ = 0;
  Generator::State random_;  // where its numbers begin
};

}  // namespace halfstep
