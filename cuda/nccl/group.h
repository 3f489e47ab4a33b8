// A process group over NCCL: tensors of the GPU stay there. What is on the host goes over a group of the host, which also brings
// the ranks together.
//
// Order. NCCL works on a stream of its own, behind what was queued when an operation begins, beside what is queued afterwards.
// wait() returns when the operation has ended on the device, so all that is queued then finds its result.
//
// Sums are NCCL's: taken in the order of its rings or trees, those of 16-bit numbers rounded at every addition. Every rank gets the
// same bits; NCCL_ALGO=Ring in the environment makes them those of every run. For two ranks, they are those of the host's group.
#pragma once

#include <memory>
#include <mutex>
#include <string>

#include "cuda/kernels/kernels.h"
#include "framework/comm/process_group.h"

namespace halfstep::cuda {

// Why ranks here cannot exchange over NCCL; empty when they can.
std::string why_no_nccl();

// All ranks of `host` call it. Throws DeviceError where the library refuses, PeerLostError where a rank does not come. `queue` is
// what computes, used under `mutex`; both must outlive the group.
std::unique_ptr<ProcessGroup> open_nccl_group(std::unique_ptr<ProcessGroup> host, const Queue& queue, std::recursive_mutex& mutex,
                                              const GroupOptions& options);

}  // namespace halfstep::cuda
