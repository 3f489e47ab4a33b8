// SPDX-License-Identifier: Apache-2.0
// The micro-batches of one optimizer step.
//
// The gradient of a window is that of its samples as one batch: sum_i d_i grad(loss_i) / sum_i d_i, where d_i is the denominator
// of micro-batch i's loss (Loss::denominator). It is exact also if batches differ in size or the window ends early.
//
// sum_i d_i is known only at the end, so each loss is weighted d_i / e, where e is the denominator that the window is expected to
// have: all micro-batches on all ranks have as many rows as the first one, and the usual number of targets. e is the same on all
// ranks. At the end, before clipping, the gradients are multiplied by e / sum_i d_i. Until then they are as large as those of a
// whole batch, which the loss scale fits.
//
// The random numbers of a window are those of its samples as one batch (framework/base/draws.h): a dropout mask does not depend on
// the number of micro-batches, or ranks, that compute it.
#pragma once

#include <cstdint>
#include <optional>

#include "framework/base/draws.h"
#include "framework/base/generator.h"
#include "framework/base/guard.h"
#include "layers/feedforward/losses.h"

namespace halfstep {

class AccumulationWindow {
 public:
  AccumulationWindow(int64_t micro_batches, int64_t ranks) : micro_batches_(micro_batches), ranks_(ranks) {}

  // Begins a window: resets the sums, and takes the rows of its first micro-batch and the state of the default generator.
  void open(const BatchRows& first);
  void begin(const BatchRows& part, const Denominator& denominator);  // call before each micro-batch that has rows
  void count(const BatchRows& part, const Denominator& denominator);  // call after each micro-batch
  void close() { pending_ = 0; }                                      // keeps the counts until the next open()
  int64_t pending() const { return pending_; }                        // micro-batches in the open window
  bool is_last() const { return pending_ + 1 == micro_batches_; }
  bool full() const { return pending_ >= micro_batches_; }
  int64_t samples() const { return samples_; }          // of all ranks
  int64_t own_samples() const { return own_samples_; }  // of this rank
  Generator::State random() const { return random_; }   // where its random numbers begin

  std::optional<BatchRows> rows_of(const BatchRows& part) const;  // within the window; nothing for a single part

  bool is_single() const { return ranks_ == 1 && micro_batches_ == 1; }
  // Return the weight of a micro-batch's loss, after begin(); the second one if the denominator is on a device: 0-dim f64.
  double loss_weight(const Denominator& denominator) const;
  Tensor loss_weight_on_device(const Denominator& denominator) const { return denominator.on_device() / expected(); }
  double gradient_factor() const;
  Tensor gradient_factor_on_device() const { return expected() / total_on_device_; }  // infinite if no target counts

  // Returns the sum of the denominators so far: this rank's, until set_total() gives all ranks'.
  double total() const { return total_; }
  const Tensor& total_on_device() const { return total_on_device_; }  // undefined: total() is known
  Denominator denominator() const;
  void set_total(double total, double unit);  // of all ranks; keeps this rank's unit if it had rows
  void set_total(const Tensor& total) { total_on_device_ = total; }
  bool is_sum() const { return is_sum_; }
  double unit() const { return unit_; }  // a row's usual share of it; 0: no micro-batch had rows
  bool counts_nothing() const { return !is_sum_ && !total_on_device_.defined() && total_ == 0; }

  // Makes the default generator draw a micro-batch's numbers at its rows' place in the window while it lives.
  class Draws : LocalGuard {
   public:
    [[nodiscard]] Draws(const AccumulationWindow& window, const BatchRows& part);
    ~Draws();  // moves the generator past the numbers of all micro-batches so far

   private:
    DrawsOf rows_;
    bool is_later_;  // not the window's first micro-batch
    Generator::State before_;
  };

 private:
  double expected() const { return double(micro_batches_ * ranks_ * first_rows_) * unit_; }

  int64_t micro_batches_, ranks_;
  int64_t pending_ = 0;
  int64_t first_rows_ = 0, first_total_ = 0;  // of the first micro-batch: rows of rank 0, and of all ranks
  int64_t samples_ = 0, own_samples_ = 0;
  double unit_ = 0, total_ = 0;
  Tensor total_on_device_;
  bool is_sum_ = false;
  Generator::State random_;  // start of its numbers
};

}  // namespace halfstep
