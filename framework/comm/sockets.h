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
// Sends the bytes without a length. Returns false as above.
bool send_bytes(int fd, const char* data, size_t bytes, Clock::time_point until);

// Returns a socket that listens at the port, for IPv4 and IPv6 if the machine has both; -1 with errno.
int listen_at(int port);
// Returns the port at which a socket listens.
int port_of(int fd);

struct Connection {
  int fd = -1;
  bool host_exists = true;
  std::string why = {};  // reason why there is no socket
};
// Connects to the first address of the host that answers.
Connection connect_to(const std::string& host, int port, Clock::time_point until);

// Return the numeric address of this end of a connection, and those of the machine, with addresses that other machines can reach
// first.
std::string own_address(int fd);
std::vector<std::string> all_addresses();
// Returns whether this is an address of the loopback interface, which other machines cannot reach.
bool is_loopback(const std::string& address);

}  // namespace halfstep::sockets
