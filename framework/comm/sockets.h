// SPDX-License-Identifier: Apache-2.0
// TCP functions for framework/comm/rendezvous.cpp. Sockets do not block; functions that wait take a deadline.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <vector>

namespace halfstep::sockets {

using Clock = std::chrono::steady_clock;

// Transfer a text after its length. Return false if the other side closed the connection, at the deadline, or if the text is
// longer than `longest`.
bool send_text(int fd, const std::string& text, Clock::time_point until);
bool receive_text(int fd, std::string& text, Clock::time_point until, uint32_t longest);
bool send_bytes(int fd, const char* data, size_t bytes, Clock::time_point until);

// Returns a socket that listens at the port, for IPv4 and IPv6 if the machine has both; -1 with errno.
int listen_at(int port);
int port_of(int fd);

struct Connection {
  int fd = -1;
  bool known_host = true;
  std::string why = {};  // reason why there is no socket
};
Connection connect_to(const std::string& host, int port, Clock::time_point until);

// Return the numeric address of this end of a connection, and those of the machine, with addresses that other machines can reach
// first.
std::string own_address(int fd);
std::vector<std::string> all_addresses();
bool stays_on_machine(const std::string& address);

}  // namespace halfstep::sockets
