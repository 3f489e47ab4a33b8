// SPDX-License-Identifier: Apache-2.0
// Sums gradients over ranks while backward still computes the others.
//
// Gradients are copied into buckets, the last parameter's first since backward reaches it first, and their own memory is freed. A
// bucket is sent when it is full and all buckets before it are sent, so that every rank sends the same buckets in the same order.
// The first is small, to begin early. While a bucket may be on its way its parameters have no gradient, so nothing touches it.
//
// The gradient of a parameter counts as zero on ranks that did not use the parameter (as -0, which changes no sum); if no rank used
// it, it gets no gradient, as in one process.
#pragma once

#include <unordered_map>
#include <vector>

#include "framework/autograd/leaf_listener.h"
#include "framework/comm/process_group.h"

namespace halfstep {

struct ReducerOptions {
  double first_bucket_mb = 1, bucket_mb = 25;
  Wire wire = Wire::as_is;
  double scale = 1;  // of every rank's gradients, before the sum
};

class GradientReducer final : public LeafListener {
 public:
  // Parameters that require no grad are left out. Throws ValueError for a bucket that is not positive.
  GradientReducer(const std::vector<Tensor>& parameters, ProcessGroup& group, const ReducerOptions& options = {});

  // From now on gradients may lie in the buckets, where several backwards add them up before they are sent.
  void open() { open_ = true; }
  // The next backward makes the gradients to sum. Every rank must arm and finish equally often.
  void arm();
  bool armed() const { return armed_; }
  // Has a gradient arrived since?
  bool begun() const { return arrived_ > 0; }
  // Sends the remaining buckets.
  void send_rest();
  // Waits, and gives the parameters the sums as gradients: parts of the buckets, valid until the next open() or arm(). Throws
  // PeerLostError.
  void take();
  // The same in a recording (Backend::begin_recording), for a group that can record: the parameters that have a gradient on any
  // rank are those of the last take(). Throws RecordingError if this rank uses other parameters than then.
  void take_recorded();

  std::vector<int64_t> bucket_bytes() const;

  void accumulated(const Tensor& leaf, const Tensor& gradient) override;
  void backward_done() override {}

 private:
  struct Slot {
    Tensor parameter;
    size_t bucket;
    int64_t offset, flag;                   // in the bucket, in elements
    bool filled = false, given = false;     // there is something in the bucket; that is a gradient
    bool expected = false, shared = false;  // `given` in the last take(), and was it on any rank?
  };
  struct Bucket {
    Tensor buffer;     // the gradients, then a flag for each: how many ranks have one
    int64_t used = 0;  // elements of gradients
    std::vector<size_t> parts;
    size_t filled = 0;
    Ticket ticket = 0;
  };
  Tensor part(const Slot& s) const;
  void copy(const Slot& s, const Tensor& gradient);
  void fill(Slot& s, const Tensor& gradient);
  void send_full();

  ProcessGroup& group_;
  ReducerOptions options_;
  std::vector<Slot> slots_;  // in the order of the buckets
  std::vector<Bucket> buckets_;
  std::unordered_map<const TensorImpl*, size_t> slot_of_;
  size_t sent_ = 0, arrived_ = 0;
  bool open_ = false, armed_ = false;
  ListenToLeaves listen_;
};

}  // namespace halfstep
