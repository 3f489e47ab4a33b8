// SPDX-License-Identifier: Apache-2.0
// Brings ranks together that were started without MPI: over TCP they exchange the data that a transport needs before it can
// connect them. Rank 0 listens, the others connect to it. No data of training is sent this way.
#pragma once

#include <string>
#include <vector>

#include "framework/comm/launcher.h"

namespace halfstep {

class Rendezvous {
 public:
  // Returns when all ranks of `launch` have come to its meeting place. Throws ConfigError where they contradict each other (two of
  // one number, another size, a port that something else uses, a host that does not exist), and PeerLostError, which names the
  // ranks that have not come within the time.
  [[nodiscard]] Rendezvous(const Launch& launch, double timeout_s);
  ~Rendezvous();
  Rendezvous(const Rendezvous&) = delete;

  // A numeric address of this machine that the others reach: that of its connection with rank 0.
  const std::string& address() const { return address_; }
  // What the ranks gave, one after the other; all give equally much. Throws PeerLostError.
  std::string gather(const std::string& mine);

 private:
  struct Visitor;
  enum class Answer { joined, nobody, no_host };
  void receive_all();
  void hear(std::vector<Visitor>& visitors, const std::string& job);
  bool welcome(Visitor& visitor, const std::string& job);
  void send_go();
  [[noreturn]] void send_away(bool config, const std::string& why);
  [[noreturn]] static void throw_verdict(bool config, const std::string& why);
  void visit();
  Answer try_to_join(const std::string& host, int port, const std::string& job, std::string& why);
  std::vector<int> missing() const;

  const Launch launch_;
  const double timeout_s_;
  std::string address_;
  std::vector<int> peers_;            // sockets: rank 0 has one for each rank, the others have rank 0's; -1: none
  std::vector<std::string> came_as_;  // who they are, for rank 0's messages
};

}  // namespace halfstep
