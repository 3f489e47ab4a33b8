// SPDX-License-Identifier: Apache-2.0
#include "amp/step/rank_exchange.h"

#include <algorithm>

#include "framework/autograd/grad_mode.h"
#include "framework/backend/observe.h"
#include "framework/ops/ops.h"

namespace halfstep {

int RankExchange::agree(int readiness, const BatchRows& part) {
  enum : size_t { kReadiness, kRows, kTotal, kNotice, kDrawn };  // fields that each rank sends
  const auto drawn = double(default_generator().state().offset);
  const std::vector<double> own_fields{double(readiness), double(part.rows), double(part.total), double(notice_), drawn};
  double least = readiness, samples = 0, position = 0;
  bool one_batch = true;
  notices_ = 0;
  for (const std::vector<double>& fields : group_.gather(own_fields)) {
    least = std::min(least, fields[kReadiness]);
    samples += fields[kRows];
    one_batch = one_batch && fields[kTotal] == double(part.total);
    notices_ |= uint32_t(fields[kNotice]);
    position = std::max(position, fields[kDrawn]);
  }
  default_generator().move_on_to(uint64_t(position));
  // All ranks compute the same answer from the same numbers.
  return one_batch && samples == double(part.total) ? int(least) : 0;
}

Tensor RankExchange::finish(AccumulationWindow& window) {
  if (!reducer_.armed()) reducer_.arm();
  const CallScope span(SpanKind::wait, "ranks");
  reducer_.send_rest();
  enum : size_t { kLoss, kSamples, kNotice, kDrawn, kTotal, kUnit };  // fields that each rank sends
  const auto drawn = double(default_generator().state().offset);
  const std::vector<double> own_fields{loss_sum_,    double(window.own_samples()), double(notice_), drawn, window.total(),
                                       window.unit()};
  double loss = 0, samples = 0, position = 0, total = 0, unit = 0;
  bool one_batch_size = true;
  notices_ = 0;
  // Gather after the gradients, and so wait for them too.
  for (const std::vector<double>& fields : group_.gather(own_fields)) {
    loss += fields[kLoss];
    samples += fields[kSamples];
    notices_ |= uint32_t(fields[kNotice]);
    position = std::max(position, fields[kDrawn]);  // a rank without samples has drawn nothing
    total += fields[kTotal];
    if (unit == 0) unit = fields[kUnit];
    one_batch_size = one_batch_size && (fields[kUnit] == 0 || fields[kUnit] == unit || window.is_sum());
  }
  notice_ = 0;
  check<ValueError>(int64_t(samples) == window.samples(), "TrainStep", "the ranks computed ", samples, " samples of a window of ",
                    window.samples(), Help{"give every rank its part of the same batch"});
  check<ValueError>(one_batch_size, "TrainStep", "the samples of all ranks must have targets of one size, got ", window.unit(),
                    " elements a row here and ", unit, " on the first rank",
                    Help{"pad them to one length, with a target that the loss ignores (ignore_index)"});
  window.set_total(total, unit);
  default_generator().move_on_to(uint64_t(position));
  reducer_.take();
  const Tensor out = Tensor::empty({}, {.dtype = DType::f32, .device = planned_ ? Device::meta : Device::cpu});
  if (!planned_) *out.data_ptr<float>() = float(window.is_sum() ? loss : loss / total);
  return out;
}

// Returns sum_r loss_r d_r / sum_r d_r over the ranks r, where d_r is the denominator of rank r's loss; sum_r loss_r for a loss
// that is a sum.
Tensor RankExchange::finish_recorded(AccumulationWindow& window, const Tensor& loss) {
  const NoGrad off;
  reducer_.send_rest();
  const Tensor own = window.total_on_device();
  Tensor sum = loss.to(DType::f64);
  if (!window.is_sum()) sum = own.defined() ? where(gt(own, 0.0), sum * own, 0.0) : sum * window.total();
  if (own.defined()) sum = stack({sum, own}, 0);
  const Ticket summed = group_.all_reduce({sum});
  reducer_.take_recorded();
  group_.wait(summed);
  if (own.defined()) {
    window.set_total(sum.select(0, 1));
    sum = sum.select(0, 0) / window.total_on_device();
  } else if (!window.is_sum()) {
    window.set_total(double(window.samples()) * window.unit(), window.unit());  // all rows are alike in a recording
    sum = sum / window.total();
  }
  return sum.to(DType::f32);
}

}  // namespace halfstep
