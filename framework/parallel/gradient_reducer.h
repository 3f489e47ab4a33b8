// SPDX-License-Identifier: Apache-2.0
// Sums gradients over ranks while backward still computes the others.
//
// Copies gradients into buckets, the last parameter's first because backward reaches it first, and frees the gradients' own
// memory. Sends a bucket when it is full and all buckets before it were sent, so every rank sends the same buckets in the same
// order. The first bucket is small, to begin early. A gradient larger than a bucket is sent in pieces of a bucket's size: one is
// summed while the next is sent. While its bucket may be in transfer, a parameter has no gradient, so nothing changes it.
//
// On ranks that did not use a parameter its gradient counts as -0, which changes no sum. If no rank used it, it gets no gradient,
// as in one process.
#pragma once

#include <map>
#include <unordered_map>
#include <vector>

#include "framework/autograd/leaf_listener.h"
#include "framework/comm/process_group.h"

namespace halfstep {

struct ReducerOptions {
  double first_bucket_mb = 1, bucket_mb = 25;  // sizes of a bucket in MiB
  Wire wire = Wire::as_is;
  double scale = 1;  // multiplies every rank's gradients before the sum
};

class GradientReducer final : public LeafListener {
 public:
  // Skips parameters that do not require grad. Throws ValueError unless both bucket sizes are positive.
  GradientReducer(const std::vector<Tensor>& parameters, ProcessGroup& group, const ReducerOptions& options = {});

  // Allows gradients to lie in the buckets, where several backwards add to them before they are sent.
  void open() { open_ = true; }
  // Announces that the next backward makes the gradients to sum. Every rank must call arm(), send_rest() and take()
  // equally often.
  void arm();
  bool armed() const { return armed_; }
  // Returns whether a gradient has arrived since arm().
  bool begun() const { return arrived_ > 0; }
  // Sends the remaining buckets.
  void send_rest();
  // Waits, then sets the sums as the parameters' gradients: parts of the buckets, valid until the next open() or arm(). Throws
  // PeerLostError.
  void take();
  // Does the same in a recording (Backend::begin_recording), for a group that can record. The parameters with a gradient on any
  // rank are those of the last take(); throws RecordingError if this rank uses others.
  void take_recorded();

  std::vector<int64_t> bucket_bytes() const;  // of each operation, in order

  void accumulated(const Tensor& leaf, const Tensor& gradient) override;
  void backward_done() override {}

 private:
  struct Slot {
    Tensor parameter;
    size_t bucket;
    int64_t offset;  // in the bucket, in elements
    bool filled = false, given = false;  // filled: the bucket has data for it; given: that data is a gradient
    bool expected = false, shared = false;  // expected: `given` in the last take(); shared: given on any rank then
  };
  struct Bucket {
    Tensor buffer;     // the gradients, then for each the number of ranks that have it
    int64_t used = 0;  // elements of gradients
    std::vector<size_t> slot_indices;  // of its gradients
    std::vector<Tensor> pieces;  // of the buffer, each sent by an operation of its own
    size_t filled = 0;           // number of its slots with data
    Ticket ticket = 0;  // of the last piece
    // Flags 1 or 0 on the buffer's device, by the gradients that this rank has. They are kept, so that a step copies them
    // within the device, and a recorded step finds those with which it was recorded.
    std::map<std::vector<bool>, Tensor> flags = {};
  };
  // Assigns each parameter a place in a bucket, the last one's first.
  void assign_slots(const std::vector<Tensor>& parameters);
  // Allocates a bucket's buffer and divides it into pieces.
  void allocate(Bucket& bucket, double limit_bytes);
  double most_bytes(size_t bucket) const;
  Tensor gradient_view(const Slot& slot) const;
  void copy(const Slot& slot, const Tensor& gradient);
  void fill(Slot& slot, const Tensor& gradient);
  // Writes behind the gradients which of them this rank has.
  void set_flags(Bucket& bucket);
  void send_full();

  ProcessGroup& group_;
  ReducerOptions options_;
  std::vector<Slot> slots_;  // in the order of the buckets
  std::vector<Bucket> buckets_;
  std::unordered_map<const TensorImpl*, size_t> slot_of_;
  size_t sent_ = 0, arrived_ = 0;  // buckets; gradients since arm()
  bool open_ = false, armed_ = false;
  ListenToLeaves listen_;
};

}  // namespace halfstep
