// SPDX-License-Identifier: Apache-2.0
// Moves bytes between ranks: what HostGroup needs of MPI or Gloo, or of a fake in a test.
#pragma once

#include <span>
#include <stdexcept>
#include <string>
#include <vector>

namespace halfstep {

// The transport failed; the text says only how: "the connection to rank 1 is closed". The group adds the rest.
struct TransportFault : std::runtime_error {
  using std::runtime_error::runtime_error;
};

// Called by one thread, which also opened it. Each operation begins with a call, and is over when test() says so; one at a time.
class Transport {
 public:
  virtual ~Transport() = default;
  virtual int rank() const = 0;
  virtual int size() const = 0;
  virtual std::string describe() const = 0;

  // Counts and offsets in bytes, by rank. Memory must stay until the end. They throw TransportFault. all_gather: `send` is
  // elsewhere than `receive`, or on all ranks already in its place there.
  virtual void all_to_all(const void* send, std::span<const int> send_counts, std::span<const int> send_offsets, void* receive,
                          std::span<const int> receive_counts, std::span<const int> receive_offsets) = 0;
  virtual void all_gather(const void* send, int bytes, void* receive, std::span<const int> counts,
                          std::span<const int> offsets) = 0;
  virtual void broadcast(void* data, int bytes, int root) = 0;
  virtual void barrier() = 0;
  virtual bool test() = 0;  // may wait for some milliseconds

  // Called again and again while an operation hangs: sets heard[r] for the ranks that call it, too, or answer it.
  virtual void roll_call(std::vector<char>& heard) = 0;
  // Called now and then by a rank that lives. Does not wait.
  virtual void answer_roll() = 0;
  virtual void close() = 0;  // with all ranks
};

}  // namespace halfstep
