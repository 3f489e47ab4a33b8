// SPDX-License-Identifier: Apache-2.0
// A process group over NCCL: tensors of the GPU stay there. Host data is exchanged over a group of the host, which also brings the
// ranks together.
//
// Order. NCCL works on its own stream: an operation starts after all work queued before it, and runs in parallel with work queued
// later. wait() returns when the operation has ended on the device, so work queued after that sees its result.
//
// Recordings (Backend::begin_recording). An operation that begins in one becomes part of it, on a branch of the graph, and wait()
// joins that branch: every rank must record the same operations, and replay them together. The host does not wait for recorded
// operations; waiting for the device uses the group's deadline (DeviceQueue::before_waiting).
//
// Sums of floating-point numbers follow the order of the ranks, those of 16 bits in float32 and rounded once: each rank receives
// its part of the numbers of all ranks, adds them up (cuda/kernels/rank_sum.h), and the sums are gathered. They equal the host
// group's sums to the bit. For two ranks NCCL's own sum has these bits, too, and is used. With GroupOptions::library_sums it is
// always used: it adds in the order of its rings or trees, and rounds 16-bit numbers at every addition. Every rank gets the same
// bits then, too.
#pragma once

#include <functional>
#include <memory>
#include <mutex>
#include <string>

#include "cuda/kernels/kernels.h"
#include "framework/comm/process_group.h"

namespace halfstep::cuda {

// Returns why ranks here cannot exchange over NCCL; empty if they can.
std::string why_no_nccl();
// Returns "NCCL 2.30.7", or "no NCCL: " and why.
std::string describe_nccl();

// The device's queue and its companions, which must all outlive the group.
struct DeviceQueue {
  const Queue& queue;                               // used under `mutex`
  std::recursive_mutex& mutex;                      // locks `queue`
  std::function<void(std::shared_ptr<void>)> keep;  // keeps an object until the current recording is gone
  std::function<void()>& before_waiting;            // called before the host waits for the queue without limit
};

// Opens a group; all ranks of `host` call it. Throws DeviceError if the library refuses, PeerLostError if a rank does not come.
std::unique_ptr<ProcessGroup> open_nccl_group(std::unique_ptr<ProcessGroup> host, const DeviceQueue& compute,
                                              const GroupOptions& options);

}  // namespace halfstep::cuda
