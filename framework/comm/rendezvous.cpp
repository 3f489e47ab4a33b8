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

constexpr const char* kGreeting = "halfstep-rank-1";    // includes the protocol's version
constexpr size_t kLongestMessage = 2048;                // bytes
constexpr auto kAttemptTime = std::chrono::seconds(3);  // for one connection, and for its first answer
constexpr auto kAttemptPause = std::chrono::milliseconds(100);
constexpr int kPollTime = 50;                                // ms for which rank 0 waits before it checks its deadline
constexpr auto kUnknownHostTime = std::chrono::seconds(30);  // names of machines that are just starting become known late
constexpr auto kReportTime = std::chrono::seconds(10);       // until rank 0 logs which ranks are missing
constexpr double kVerdictSeconds = 10;                       // beyond rank 0's timeout, in which its last message arrives

// Returns the time in `seconds` from now.
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

// A connection that has not identified itself yet.
struct Rendezvous::Visitor {
  int fd = -1;
  std::string greeting = {};  // as far as it has arrived
};

Rendezvous::Rendezvous(const Launch& launch, double timeout_s)
    : launch_(launch),
      timeout_s_(timeout_s),
      peers_(size_t(launch.rank == 0 ? launch.size : 1), -1),
      process_names_(peers_.size()) {
  try {
    launch_.rank == 0 ? receive_all() : join();
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
  const std::string unfinished = path + ".new";
  std::ofstream out(unfinished);
  out.imbue(std::locale::classic());
  out << kGreeting << '\n' << job << '\n' << port_of(listener) << '\n';
  for (const std::string& address : all_addresses()) out << address << '\n';
  out.close();
  if (out && std::rename(unfinished.c_str(), path.c_str()) == 0) return;
  const int error = errno;
  std::remove(unfinished.c_str());
  close(listener);
  fail<ConfigError>("distributed", "rank 0 cannot write HALFSTEP_RENDEZVOUS_FILE ", path, ": ", std::strerror(error),
                    Help{"give the name of a file in a folder that all ranks see"});
}

}  // namespace

// Waits at the meeting place until all ranks have come, then sends them the message "go".
void Rendezvous::receive_all() {
  const MeetingPlace& place = *launch_.meeting;
  const bool by_file = !place.file.empty();
  const int listener = listen_in(place);
  std::string job = place.job;
  if (by_file) {
    job = joined(std::hex, std::random_device()(), std::random_device()());
    write_meeting_file(place.file, job, listener);
  }

  std::vector<Visitor> visitors;
  const auto clean_up = [&] {
    for (const Visitor& visitor : visitors) close(visitor.fd);
    close(listener);
    if (by_file) std::remove(place.file.c_str());
  };
  const Time until = after(timeout_s_);
  Time report_time = Clock::now() + kReportTime;
  try {
    while (!missing().empty()) {
      if (Clock::now() > until) send_away(false, joined(listed(missing()), " did not come within ", timeout_s_, " s"));
      if (Clock::now() > report_time) {
        logging::info("[distributed] rank 0 waits for " + listed(missing()));
        report_time = until;  // once is enough
      }
      std::vector<pollfd> polled{{listener, POLLIN, 0}};
      for (const Visitor& visitor : visitors) polled.push_back({visitor.fd, POLLIN, 0});
      for (const int fd : peers_) polled.push_back({fd, POLLIN, 0});  // poll ignores -1
      poll(polled.data(), polled.size(), kPollTime);
      for (int& fd : peers_) forget_if_gone(fd);
      for (int fd; (fd = accept4(listener, nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC)) >= 0;) visitors.push_back({fd});
      read_greetings(visitors, job);
    }
  } catch (...) {
    clean_up();
    throw;
  }
  clean_up();
  send_go();
}

// Reads what visitors have sent, and removes those that have identified themselves or are lost.
void Rendezvous::read_greetings(std::vector<Visitor>& visitors, const std::string& job) {
  for (size_t i = 0; i < visitors.size();) {
    Visitor& visitor = visitors[i];
    char text[512];
    const ssize_t n = recv(visitor.fd, text, sizeof text, 0);
    if (n > 0) visitor.greeting.append(text, size_t(n));
    const bool is_complete = visitor.greeting.find('\n') != std::string::npos;
    const bool lost = n == 0 || (n < 0 && errno != EAGAIN && errno != EINTR);
    if (!is_complete && !lost && visitor.greeting.size() < kLongestMessage) {
      ++i;
      continue;
    }
    if (!is_complete || !admit(visitor, job)) close(visitor.fd);
    visitors.erase(visitors.begin() + std::ptrdiff_t(i));
  }
}

// Sends "go" to all ranks, and to those on this machine also the address at which other machines reach it.
void Rendezvous::send_go() {
  // The address of this end of a connection from another machine; of any connection, if all ranks are on this machine.
  const auto outward = std::find_if(peers_.begin() + 1, peers_.end(), [](int fd) { return !is_loopback(own_address(fd)); });
  address_ = own_address(outward == peers_.end() ? peers_[1] : *outward);
  for (size_t r = 1; r < peers_.size(); ++r) {
    const bool local = outward != peers_.end() && is_loopback(own_address(peers_[r]));
    if (!send_text(peers_[r], local ? "go " + address_ : "go", Clock::now() + kAttemptTime))
      fail<PeerLostError>("distributed", "rank ", r, " ended while the ranks were coming together");
  }
}

// Keeps the connection of a rank of this job. Returns false for another visitor, whose connection the caller closes. Ends all ranks
// if the visitor contradicts them.
bool Rendezvous::admit(Visitor& visitor, const std::string& job) {
  TextReader message(visitor.greeting.substr(0, visitor.greeting.find('\n')));
  std::string greeting, visitor_job, process;
  int rank = -1, size = -1;
  message >> greeting >> rank >> size;
  if (greeting != kGreeting || !message) return false;
  message.get();
  std::getline(message, process, '\t');
  std::getline(message, visitor_job);
  const Time soon = Clock::now() + kAttemptTime;
  if (visitor_job != job) {
    send_text(visitor.fd, "other", soon);
    return false;
  }
  const auto contradict = [&](const std::string& why) {
    send_text(visitor.fd, "no " + why, soon);
    send_away(true, why);
  };
  if (size != launch_.size)
    contradict(
        joined("rank ", rank, " (", process, ") was started as one of ", size, " ranks, and rank 0 as one of ", launch_.size));
  if (rank < 0 || rank >= size) return false;
  if (rank > 0) forget_if_gone(peers_[size_t(rank)]);
  if (rank == 0 || peers_[size_t(rank)] >= 0)
    contradict(
        joined("two processes are rank ", rank, ": ", process, " and ", rank == 0 ? this_process() : process_names_[size_t(rank)]));
  if (!send_text(visitor.fd, "welcome", soon)) return false;
  peers_[size_t(rank)] = visitor.fd;
  process_names_[size_t(rank)] = process;
  return true;
}

// Ends all ranks that have come, with one message.
void Rendezvous::send_away(bool is_config_error, const std::string& why) {
  for (const int fd : peers_)
    if (fd >= 0) send_text(fd, (is_config_error ? "no " : "late ") + why, Clock::now() + kAttemptTime);
  throw_verdict(is_config_error, why);
}

// ---- the other ranks

// Tries to reach rank 0 at the meeting place until it answers.
void Rendezvous::join() {
  const MeetingPlace& place = *launch_.meeting;
  const Time until = after(timeout_s_), host_until = std::min(until, Clock::now() + kUnknownHostTime);
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
    std::this_thread::sleep_for(kAttemptPause);
  }
}

// Sends the greeting to rank 0 and waits for its verdict; `why` becomes the reason if no rank 0 answers. Throws if it refuses.
Rendezvous::Answer Rendezvous::try_to_join(const std::string& host, int port, const std::string& job, std::string& why) {
  const Connection connection = connect_to(host, port, Clock::now() + kAttemptTime);
  if (connection.fd < 0) {
    why = connection.why;
    return connection.host_exists ? Answer::nobody : Answer::no_host;
  }
  const int fd = connection.fd;
  const std::string greeting = joined(kGreeting, ' ', launch_.rank, ' ', launch_.size, ' ', this_process(), '\t', job, '\n');
  const Time soon = Clock::now() + kAttemptTime;
  std::string verdict;
  if (!send_bytes(fd, greeting.data(), greeting.size(), soon) || !receive_text(fd, verdict, soon, kLongestMessage) ||
      (verdict != "welcome" && verdict.compare(0, 3, "no ") != 0)) {
    why = verdict == "other" ? "rank 0 of another job answers" : "the program that listens there is not halfstep";
    close(fd);
    return Answer::nobody;
  }
  peers_[0] = fd;
  // From here on rank 0 decides when it has waited long enough.
  if (verdict == "welcome" && !receive_text(fd, verdict, after(timeout_s_ + kVerdictSeconds), kLongestMessage))
    fail<PeerLostError>("distributed", "rank 0 ended, or does not answer any more, before all ranks had come");
  if (verdict.compare(0, 3, "no ") == 0) throw_verdict(true, verdict.substr(3));
  if (verdict.compare(0, 5, "late ") == 0) throw_verdict(false, verdict.substr(5));
  address_ = verdict.size() > 3 ? verdict.substr(3) : own_address(fd);
  return Answer::joined;
}

// ---- all ranks

// Throws ConfigError or PeerLostError: rank 0's decision, on all ranks.
void Rendezvous::throw_verdict(bool is_config_error, const std::string& why) {
  if (is_config_error)
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
    std::string text;
    if (!receive_text(peers_[r], text, until, uint32_t(mine.size())) || text.size() != mine.size()) lost(r);
    all += text;
  }
  for (size_t r = 1; r < peers_.size(); ++r)
    if (!send_text(peers_[r], all, until)) lost(r);
  return all;
}

}  // namespace halfstep
