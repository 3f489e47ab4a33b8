// SPDX-License-Identifier: Apache-2.0
// Moves bytes between ranks; HostGroup's interface to MPI, to Gloo, or to a fake in a test.
#pragma once

#include <span>
#include <stdexcept>
#include <string>
#include <vector>

namespace halfstep {

// Error of the transport. The text says only how it failed ("the connection to rank 1 is closed"); the group adds the rest.
struct TransportFault : std::runtime_error {
  using std::runtime_error::runtime_error;
};

// A connection of this rank with all others. One thread opens and uses it. A call begins an operation, which has ended when test()
// returns true; the next one begins after that.
class Transport {
 public:
  virtual ~Transport() = default;
  virtual int rank() const = 0;
  virtual int size() const = 0;
  virtual std::string describe() const = 0;

  // Begin operations; counts and offsets are bytes, by rank. Memory must stay valid until the operation has ended. Throw
  // TransportFault. all_gather: `send` is outside of `receive`, or on all ranks already in its place there.
  virtual void all_to_all(const void* send, std::span<const int> send_counts, std::span<const int> send_offsets, void* receive,
                          std::span<const int> receive_counts, std::span<const int> receive_offsets) = 0;
  virtual void all_gather(const void* send, int bytes, void* receive, std::span<const int> counts,
                          std::span<const int> offsets) = 0;
  virtual void broadcast(void* data, int bytes, int root) = 0;
  virtual void barrier() = 0;
  virtual bool test() = 0;  // whether the operation has ended; may wait for some milliseconds

  // Called repeatedly while an operation hangs: sets heard[r] for the ranks that also call it, or answer it.
  virtual void roll_call(std::vector<char>& heard) = 0;
  // Answers roll calls without waiting. Called now and then by a living rank.
  virtual void answer_roll() = 0;
  virtual void close() = 0;  // called by all ranks
};

}  // namespace halfstep
