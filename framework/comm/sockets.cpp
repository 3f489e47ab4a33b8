// SPDX-License-Identifier: Apache-2.0
#include "framework/comm/sockets.h"

#include <arpa/inet.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netdb.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "framework/base/list_text.h"

namespace halfstep::sockets {
namespace {

// Waits until poll() reports the events; returns false at the deadline.
bool wait_for(int fd, short events, Clock::time_point until) {
  for (;;) {
    const auto left_ms = std::chrono::duration_cast<std::chrono::milliseconds>(until - Clock::now()).count();
    pollfd polled{fd, events, 0};
    constexpr int64_t kLongestPoll = 1000;  // ms; fits into the int that poll() takes
    const int count = poll(&polled, 1, int(std::clamp<int64_t>(left_ms + 1, 0, kLongestPoll)));
    if (count > 0) return true;
    if ((count < 0 && errno != EINTR) || left_ms <= 0) return false;
  }
}

// Transfers all bytes by calls of send() or recv(); returns false if the other side closed the connection, or at the deadline.
template <class Byte, class Call>
bool transfer(int fd, Byte* data, size_t bytes, short events, Clock::time_point until, const Call& call) {
  for (size_t done = 0; done < bytes;) {
    const ssize_t n = call(data + done, bytes - done);
    if (n > 0)
      done += size_t(n);
    else if (n == 0 || (errno != EAGAIN && errno != EINTR) || !wait_for(fd, events, until))
      return false;
  }
  return true;
}
bool receive_bytes(int fd, char* data, size_t bytes, Clock::time_point until) {
  return transfer(fd, data, bytes, POLLIN, until, [&](char* at, size_t n) { return recv(fd, at, n, 0); });
}

// Returns the numeric form of an address; without the prefix of an IPv4 address in IPv6.
std::string numeric(const sockaddr* address, socklen_t length) {
  char text[NI_MAXHOST] = "";
  getnameinfo(address, length, text, sizeof text, nullptr, 0, NI_NUMERICHOST);
  const std::string out = text, mapped = "::ffff:";
  return out.compare(0, mapped.size(), mapped) == 0 ? out.substr(mapped.size()) : out;
}

}  // namespace

bool send_bytes(int fd, const char* data, size_t bytes, Clock::time_point until) {
  return transfer(fd, data, bytes, POLLOUT, until, [&](const char* at, size_t n) { return send(fd, at, n, MSG_NOSIGNAL); });
}
bool send_text(int fd, const std::string& text, Clock::time_point until) {
  const auto length = uint32_t(text.size());
  char head[sizeof length];
  std::memcpy(head, &length, sizeof length);
  return send_bytes(fd, head, sizeof head, until) && send_bytes(fd, text.data(), text.size(), until);
}
bool receive_text(int fd, std::string& text, Clock::time_point until, uint32_t longest) {
  char head[sizeof(uint32_t)];
  if (!receive_bytes(fd, head, sizeof head, until)) return false;
  uint32_t length = 0;
  std::memcpy(&length, head, sizeof length);
  text.resize(std::min(length, longest));
  return length <= longest && receive_bytes(fd, text.data(), text.size(), until);
}

std::string own_address(int fd) {
  sockaddr_storage address{};
  socklen_t length = sizeof address;
  getsockname(fd, reinterpret_cast<sockaddr*>(&address), &length);
  return numeric(reinterpret_cast<sockaddr*>(&address), length);
}
bool is_loopback(const std::string& address) { return address.compare(0, 4, "127.") == 0 || address == "::1"; }

int listen_at(int port) {
  constexpr int kBacklog = 1024;  // connections that the system accepts before rank 0 does
  for (const int family : {AF_INET6, AF_INET}) {
    const int fd = socket(family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (fd < 0) continue;
    const int on = 1, off = 0;
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    sockaddr_in6 six{};
    sockaddr_in four{};
    six.sin6_family = AF_INET6, six.sin6_port = htons(uint16_t(port));
    four.sin_family = AF_INET, four.sin_port = htons(uint16_t(port));
    if (family == AF_INET6) setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof off);
    const bool bound = family == AF_INET6 ? bind(fd, reinterpret_cast<sockaddr*>(&six), sizeof six) == 0
                                          : bind(fd, reinterpret_cast<sockaddr*>(&four), sizeof four) == 0;
    if (bound && listen(fd, kBacklog) == 0) return fd;
    const int error = errno;
    close(fd);
    errno = error;
    if (error == EADDRINUSE || error == EACCES) return -1;
  }
  return -1;
}

int port_of(int fd) {
  sockaddr_storage address{};
  socklen_t length = sizeof address;
  getsockname(fd, reinterpret_cast<sockaddr*>(&address), &length);
  return ntohs(address.ss_family == AF_INET6 ? reinterpret_cast<sockaddr_in6&>(address).sin6_port
                                             : reinterpret_cast<sockaddr_in&>(address).sin_port);
}

std::vector<std::string> all_addresses() {
  std::vector<std::string> out;
  ifaddrs* list = nullptr;
  if (getifaddrs(&list) != 0) return {"127.0.0.1"};
  for (const ifaddrs* i = list; i; i = i->ifa_next) {
    if (!i->ifa_addr || !(i->ifa_flags & IFF_UP)) continue;
    if (i->ifa_addr->sa_family == AF_INET) out.push_back(numeric(i->ifa_addr, sizeof(sockaddr_in)));
  }
  freeifaddrs(list);
  std::stable_partition(out.begin(), out.end(), [](const std::string& a) { return !is_loopback(a); });
  return out;
}

Connection connect_to(const std::string& host, int port, Clock::time_point until) {
  addrinfo hints{}, *found = nullptr;
  hints.ai_socktype = SOCK_STREAM;
  if (getaddrinfo(host.c_str(), std::to_string(port).c_str(), &hints, &found) != 0) return {-1, false, "there is no host " + host};
  Connection out;
  for (const addrinfo* a = found; a && out.fd < 0; a = a->ai_next) {
    const int fd = socket(a->ai_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (fd < 0) continue;
    int error = connect(fd, a->ai_addr, a->ai_addrlen) == 0 ? 0 : errno;
    if (error == EINPROGRESS) {
      socklen_t length = sizeof error;
      if (!wait_for(fd, POLLOUT, until))
        error = ETIMEDOUT;
      else
        getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &length);
    }
    if (error == 0) {
      out.fd = fd;
      continue;
    }
    out.why = std::strerror(error);
    out.why[0] = lower_case(out.why[0]);
    close(fd);
  }
  freeaddrinfo(found);
  return out;
}

}  // namespace halfstep::sockets
