// SPDX-License-Identifier: Apache-2.0
// The TCP functions for framework/comm/rendezvous.cpp. Sockets do not block; functions that wait take a deadline.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <vector>

namespace halfstep::sockets {

using Clock = std::chrono::steady_clock;

// A text with its length before it. False where the other side left, the time is over, or the text is longer than `longest`.
bool send_text(int fd, const std::string& text, Clock::time_point until);
bool receive_text(int fd, std::string& text, Clock::time_point until, uint32_t longest);
bool send_bytes(int fd, const char* data, size_t bytes, Clock::time_point until);

// A socket that listens at the port, of both families where the machine has them; -1 with errno.
int listen_at(int port);
int port_of(int fd);

struct Connection {
  int fd = -1;
  bool known_host = true;
  std::string why = {};  // why there is none
};
Connection connect_to(const std::string& host, int port, Clock::time_point until);

// The numeric address of this end of a connection, and those of the machine: those that other machines can reach come first.
std::string own_address(int fd);
std::vector<std::string> all_addresses();
bool stays_on_machine(const std::string& address);

}  // namespace halfstep::sockets
