// SPDX-License-Identifier: Apache-2.0
// Brings together ranks that were started without MPI: over TCP they exchange the data that a transport needs to connect them.
// Rank 0 listens, and the others connect to it. No training data is sent this way.
#pragma once

#include <string>
#include <vector>

#include "framework/comm/launcher.h"

namespace halfstep {

class Rendezvous {
 public:
  // Returns when all ranks of `launch` have come to its meeting place. Throws ConfigError if they contradict each other (two ranks
  // with one number, different sizes, a port in use by another program, a host that does not exist), and PeerLostError, with the
  // missing ranks, after the timeout.
  [[nodiscard]] Rendezvous(const Launch& launch, double timeout_s);
  ~Rendezvous();
  Rendezvous(const Rendezvous&) = delete;

  // Returns the numeric address of this machine at which the others reach it: that of its connection with rank 0.
  const std::string& address() const { return address_; }
  // Returns the concatenated texts of all ranks; all texts must have the same length. Throws PeerLostError.
  std::string gather(const std::string& mine);

 private:
  struct Visitor;
  enum class Answer { joined, nobody, no_host };  // nobody: no rank 0 of this job answers
  // Rank 0:
  void receive_all();
  void read_greetings(std::vector<Visitor>& visitors, const std::string& job);
  bool admit(Visitor& visitor, const std::string& job);
  void send_go();
  [[noreturn]] void send_away(bool is_config_error, const std::string& why);
  std::vector<int> missing() const;

  // The other ranks:
  void join();
  Answer try_to_join(const std::string& host, int port, const std::string& job, std::string& why);

  [[noreturn]] static void throw_verdict(bool is_config_error, const std::string& why);

  const Launch launch_;
  const double timeout_s_;
  std::string address_;
  std::vector<int> peers_;                  // sockets: rank 0 has one for each rank, the others only rank 0's; -1: none
  std::vector<std::string> process_names_;  // by rank, for rank 0's messages
};

}  // namespace halfstep
