// SPDX-License-Identifier: Apache-2.0
#include "framework/comm/rendezvous.h"

#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <random>
#include <thread>
#include <utility>

#include "framework/base/check.h"
#include "framework/base/log.h"
#include "framework/base/text_stream.h"
#include "framework/comm/process_group.h"
#include "framework/comm/sockets.h"

namespace halfstep {
namespace {

using namespace sockets;
using Time = Clock::time_point;

constexpr const char* kGreeting = "halfstep-rank-1";  // includes the protocol's version
constexpr size_t kLongestHello = 2048;
constexpr auto kAttempt = std::chrono::seconds(3);  // for one connection, and for its first answer
constexpr auto kAgain = std::chrono::milliseconds(100);
constexpr auto kUnknownHost = std::chrono::seconds(30);  // names of machines that are just starting become known late
constexpr auto kSayWhoIsMissing = std::chrono::seconds(10);

Time after(double seconds) {
  return Clock::now() + std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(seconds));
}

std::string this_process() {
  char host[256] = "";
  gethostname(host, sizeof host - 1);
  return joined("process ", getpid(), " on ", host);
}

// Closes the connection of a waiting rank that has ended, or whose wait timed out; it may connect again.
void forget_if_gone(int& fd) {
  char byte = 0;
  if (fd >= 0 && recv(fd, &byte, 1, MSG_DONTWAIT) == 0) close(std::exchange(fd, -1));
}

}  // namespace

struct Rendezvous::Visitor {
  int fd = -1;
  std::string hello = {};
};

Rendezvous::Rendezvous(const Launch& launch, double timeout_s)
    : launch_(launch), timeout_s_(timeout_s), peers_(size_t(launch.rank == 0 ? launch.size : 1), -1), came_as_(peers_.size()) {
  try {
    launch_.rank == 0 ? receive_all() : visit();
  } catch (...) {
    for (const int fd : peers_) close(fd);
    throw;
  }
}

Rendezvous::~Rendezvous() {
  for (const int fd : peers_) close(fd);
}

std::vector<int> Rendezvous::missing() const {
  std::vector<int> out;
  for (int r = 1; r < launch_.size; ++r)
    if (peers_[size_t(r)] < 0) out.push_back(r);
  return out;
}

// ---- rank 0

namespace {

// Listens at the first free port of the place.
int listen_in(const MeetingPlace& place) {
  int listener = -1;
  for (int port = place.port; listener < 0 && port <= place.last_port; ++port) listener = listen_at(port);
  const int reason = errno;
  const std::string ports =
      place.port == place.last_port ? joined("port ", place.port) : joined("any port from ", place.port, " to ", place.last_port);
  check<ConfigError>(listener >= 0, "distributed", "rank 0 cannot listen at ", ports, ": ",
                     reason == EADDRINUSE ? "something else does" : std::strerror(reason),
                     Help{"another run, or another process that is rank 0? Give all ranks a MASTER_PORT that is free"});
  return listener;
}

// Writes the file by which the other ranks find this one. Closes the listener before it throws.
void write_meeting_file(const std::string& path, const std::string& job, int listener) {
  const std::string half = path + ".new";
  std::ofstream out(half);
  out.imbue(std::locale::classic());
  out << kGreeting << '\n' << job << '\n' << port_of(listener) << '\n';
  for (const std::string& a : all_addresses()) out << a << '\n';
  out.close();
  if (out && std::rename(half.c_str(), path.c_str()) == 0) return;
  const int error = errno;
  std::remove(half.c_str());
  close(listener);
  fail<ConfigError>("distributed", "rank 0 cannot write HALFSTEP_RENDEZVOUS_FILE ", path, ": ", std::strerror(error),
                    Help{"give the name of a file in a folder that all ranks see"});
}

}  // namespace

void Rendezvous::receive_all() {
  const MeetingPlace& place = *launch_.meeting;
  const bool by_file = !place.file.empty();
  const int listener = listen_in(place);
  std::string job = place.job;
  if (by_file) {
    job = joined(std::hex, std::random_device()(), std::random_device()());
    write_meeting_file(place.file, job, listener);
  }

  std::vector<Visitor> visitors;  // connections that have not identified themselves yet
  const auto leave = [&] {
    for (const Visitor& v : visitors) close(v.fd);
    close(listener);
    if (by_file) std::remove(place.file.c_str());
  };
  const Time until = after(timeout_s_);
  Time say = Clock::now() + kSayWhoIsMissing;
  try {
    while (!missing().empty()) {
      if (Clock::now() > until) send_away(false, joined(listed(missing()), " did not come within ", timeout_s_, " s"));
      if (Clock::now() > say) {
        logging::info("[distributed] rank 0 waits for " + listed(missing()));
        say = until;
      }
      std::vector<pollfd> polled{{listener, POLLIN, 0}};
      for (const Visitor& v : visitors) polled.push_back({v.fd, POLLIN, 0});
      for (const int fd : peers_) polled.push_back({fd, POLLIN, 0});  // poll ignores -1
      poll(polled.data(), polled.size(), 50);
      for (int& fd : peers_) forget_if_gone(fd);
      for (int fd; (fd = accept4(listener, nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC)) >= 0;) visitors.push_back({fd});
      hear(visitors, job);
    }
  } catch (...) {
    leave();
    throw;
  }
  leave();
  send_go();
}

// Reads what visitors have sent, and removes those that have identified themselves or are lost.
void Rendezvous::hear(std::vector<Visitor>& visitors, const std::string& job) {
  for (size_t i = 0; i < visitors.size();) {
    Visitor& v = visitors[i];
    char text[512];
    const ssize_t n = recv(v.fd, text, sizeof text, 0);
    if (n > 0) v.hello.append(text, size_t(n));
    const bool knows = v.hello.find('\n') != std::string::npos, lost = n == 0 || (n < 0 && errno != EAGAIN && errno != EINTR);
    if (!knows && !lost && v.hello.size() < kLongestHello) {
      ++i;
      continue;
    }
    if (!knows || !welcome(v, job)) close(v.fd);
    visitors.erase(visitors.begin() + std::ptrdiff_t(i));
  }
}

void Rendezvous::send_go() {
  // Replaces the loopback address of a rank on this machine by the address at which other machines reach rank 0.
  const auto outward = std::find_if(peers_.begin() + 1, peers_.end(), [](int fd) { return !stays_on_machine(own_address(fd)); });
  address_ = own_address(outward == peers_.end() ? peers_[1] : *outward);
  for (size_t r = 1; r < peers_.size(); ++r) {
    const bool local = outward != peers_.end() && stays_on_machine(own_address(peers_[r]));
    if (!send_text(peers_[r], local ? "go " + address_ : "go", Clock::now() + kAttempt))
      fail<PeerLostError>("distributed", "rank ", r, " ended while the ranks were coming together");
  }
}

// Keeps a visitor's connection, or closes it if it does not belong to this job.
bool Rendezvous::welcome(Visitor& v, const std::string& job) {
  TextReader said(v.hello.substr(0, v.hello.find('\n')));
  std::string greeting, theirs, as;
  int rank = -1, size = -1;
  said >> greeting >> rank >> size;
  if (greeting != kGreeting || !said) return false;
  said.get();
  std::getline(said, as, '\t');
  std::getline(said, theirs);
  const Time soon = Clock::now() + kAttempt;
  if (theirs != job) {
    send_text(v.fd, "other", soon);
    return false;
  }
  const auto contradict = [&](const std::string& why) {
    send_text(v.fd, "no " + why, soon);
    send_away(true, why);
  };
  if (size != launch_.size)
    contradict(joined("rank ", rank, " (", as, ") was started as one of ", size, " ranks, and rank 0 as one of ", launch_.size));
  if (rank < 0 || rank >= size) return false;
  if (rank > 0) forget_if_gone(peers_[size_t(rank)]);
  if (rank == 0 || peers_[size_t(rank)] >= 0)
    contradict(joined("two processes are rank ", rank, ": ", as, " and ", rank == 0 ? this_process() : came_as_[size_t(rank)]));
  if (!send_text(v.fd, "welcome", soon)) return false;
  peers_[size_t(rank)] = v.fd;
  came_as_[size_t(rank)] = as;
  return true;
}

// Ends all ranks that have come, with one message.
void Rendezvous::send_away(bool config, const std::string& why) {
  for (const int fd : peers_)
    if (fd >= 0) send_text(fd, (config ? "no " : "late ") + why, Clock::now() + kAttempt);
  throw_verdict(config, why);
}

// ---- the others

void Rendezvous::visit() {
  const MeetingPlace& place = *launch_.meeting;
  const Time until = after(timeout_s_), host_until = std::min(until, Clock::now() + kUnknownHost);
  std::string where, why;
  for (;;) {
    std::vector<std::string> hosts{place.address};
    int port = place.port, last_port = place.last_port;
    std::string job = place.job;
    if (!place.file.empty()) {
      where = "the address in " + place.file;
      hosts.clear();
      std::ifstream in(place.file);
      in.imbue(std::locale::classic());
      std::string greeting, line;
      if (std::getline(in, greeting) && greeting == kGreeting && std::getline(in, job) && in >> port) {
        last_port = port;
        while (in >> line) hosts.push_back(line);
      } else {
        why = "there is no such file yet";
      }
    } else {
      where = joined(place.address, ':', place.port, port == last_port ? "" : joined(" to ", last_port));
    }
    for (const std::string& host : hosts) {
      for (int p = port; p <= last_port; ++p) {
        const Answer answer = try_to_join(host, p, job, why);
        if (answer == Answer::joined) return;
        if (answer == Answer::no_host && place.file.empty() && Clock::now() > host_until)
          fail<ConfigError>("distributed", "MASTER_ADDR names no host that is known here, got ", host,
                            Help{"it must be the name or the address of rank 0's machine"});
      }
    }
    if (Clock::now() > until)
      fail<PeerLostError>(
          "distributed", "rank ", launch_.rank, " found no rank 0 at ", where, " within ", timeout_s_, " s: ", why,
          Help{"start all ranks, rank 0 too, with one MASTER_ADDR and MASTER_PORT, or one HALFSTEP_RENDEZVOUS_FILE; "
               "between machines a firewall may be in the way"});
    std::this_thread::sleep_for(kAgain);
  }
}

Rendezvous::Answer Rendezvous::try_to_join(const std::string& host, int port, const std::string& job, std::string& why) {
  const Connection made = connect_to(host, port, Clock::now() + kAttempt);
  if (made.fd < 0) {
    why = made.why;
    return made.known_host ? Answer::nobody : Answer::no_host;
  }
  const int fd = made.fd;
  const std::string hello = joined(kGreeting, ' ', launch_.rank, ' ', launch_.size, ' ', this_process(), '\t', job, '\n');
  const Time soon = Clock::now() + kAttempt;
  std::string verdict;
  if (!send_bytes(fd, hello.data(), hello.size(), soon) || !receive_text(fd, verdict, soon, kLongestHello) ||
      (verdict != "welcome" && verdict.compare(0, 3, "no ") != 0)) {
    why = verdict == "other" ? "rank 0 of another job answers" : "the program that listens there is not halfstep";
    close(fd);
    return Answer::nobody;
  }
  peers_[0] = fd;
  // From here on rank 0 decides when it has waited long enough.
  if (verdict == "welcome" && !receive_text(fd, verdict, after(timeout_s_ + 10), kLongestHello))
    fail<PeerLostError>("distributed", "rank 0 ended, or does not answer any more, before all ranks had come");
  if (verdict.compare(0, 3, "no ") == 0) throw_verdict(true, verdict.substr(3));
  if (verdict.compare(0, 5, "late ") == 0) throw_verdict(false, verdict.substr(5));
  address_ = verdict.size() > 3 ? verdict.substr(3) : own_address(fd);
  return Answer::joined;
}

// ---- all

void Rendezvous::throw_verdict(bool config, const std::string& why) {
  if (config)
    fail<ConfigError>("distributed", why, Help{"give each process a RANK of its own, below a WORLD_SIZE that is the same for all"});
  fail<PeerLostError>("distributed", why, Help{"were they started, with this MASTER_ADDR and MASTER_PORT? Start all ranks again"});
}

std::string Rendezvous::gather(const std::string& mine) {
  const Time until = after(timeout_s_);
  const auto lost = [&](size_t rank) {
    fail<PeerLostError>("distributed", "rank ", rank, " ended, or does not answer, while the ranks are being connected",
                        Help{"start all ranks again"});
  };
  const auto longest = uint32_t(mine.size() * size_t(launch_.size));
  std::string all;
  if (launch_.rank != 0) {
    if (!send_text(peers_[0], mine, until) || !receive_text(peers_[0], all, until, longest)) lost(0);
    return all;
  }
  all = mine;
  for (size_t r = 1; r < peers_.size(); ++r) {
    std::string theirs;
    if (!receive_text(peers_[r], theirs, until, uint32_t(mine.size())) || theirs.size() != mine.size()) lost(r);
    all += theirs;
  }
  for (size_t r = 1; r < peers_.size(); ++r)
    if (!send_text(peers_[r], all, until)) lost(r);
  return all;
}

}  // namespace halfstep
