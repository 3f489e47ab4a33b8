// SPDX-License-Identifier: Apache-2.0
#include "framework/comm/rendezvous.h"

#include <arpa/inet.h>
#include <doctest/doctest.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "framework/base/check.h"
#include "framework/comm/process_group.h"
#include "tests/io/files.h"

using namespace halfstep;
using namespace halfstep::testing;

namespace {

// A port of this machine that something else uses.
class Taken {
 public:
  Taken() : fd_(socket(AF_INET, SOCK_STREAM, 0)) {
    sockaddr_in any{};
    any.sin_family = AF_INET;
    socklen_t length = sizeof any;
    bind(fd_, reinterpret_cast<sockaddr*>(&any), sizeof any);
    getsockname(fd_, reinterpret_cast<sockaddr*>(&any), &length);
    port = ntohs(any.sin_port);
  }
  ~Taken() { close(fd_); }
  int port = 0;

 private:
  int fd_;
};

int free_port() { return Taken().port; }

MeetingPlace at(int port, int last_port = 0) { return {"127.0.0.1", port, last_port ? last_port : port, "", "job 0"}; }
Launch as(int rank, int size, const MeetingPlace& place) { return {"WORLD_SIZE", rank, size, {}, false, place}; }

struct Said {
  bool config = false, lost = false;
  std::string text, all, address;
};

// Each launch in a thread: what it gathers, or how it is refused.
std::vector<Said> meet(const std::vector<Launch>& launches, double timeout_s) {
  std::vector<Said> out(launches.size());
  std::vector<std::thread> threads;
  for (size_t i = 0; i < launches.size(); ++i) {
    threads.emplace_back([&, i] {
      try {
        Rendezvous r(launches[i], timeout_s);
        out[i].all = r.gather("<" + std::to_string(launches[i].rank) + ">");
        out[i].address = r.address();
      } catch (const ConfigError& e) { out[i].config = true, out[i].text = e.what(); } catch (const PeerLostError& e) {
        out[i].lost = true, out[i].text = e.what();
      }
    });
  }
  for (std::thread& t : threads) t.join();
  return out;
}

}  // namespace

TEST_CASE("rendezvous: ranks find each other by address, behind ports that others use, and by a file") {
  std::string folder = (std::filesystem::temp_directory_path() / "halfstep-meet-XXXXXX").string();
  REQUIRE(mkdtemp(folder.data()));
  const Taken other;  // as torchrun's own store
  MeetingPlace file;
  file.file = folder + "/meet";
  for (const MeetingPlace& place : {at(free_port()), at(other.port, other.port + 16), file}) {
    CAPTURE(place.port);
    for (const Said& s : meet({as(2, 3, place), as(0, 3, place), as(1, 3, place)}, 20)) {
      CHECK(s.text == "");
      CHECK(s.all == "<0><1><2>");
      CHECK(!s.address.empty());
    }
  }
  CHECK(std::filesystem::is_empty(folder));
  file.file = folder + "/none/meet";
  const Said nowhere = meet({as(0, 2, file)}, 5)[0];
  CHECK(nowhere.config);
  CHECK(contains(nowhere.text, "rank 0 cannot write HALFSTEP_RENDEZVOUS_FILE " + folder + "/none/meet: No such file"));
  std::filesystem::remove_all(folder);
}

TEST_CASE("rendezvous: ranks that do not come are named, on all that did") {
  const MeetingPlace place = at(free_port());
  const auto start = std::chrono::steady_clock::now();
  for (const Said& s : meet({as(0, 5, place), as(3, 5, place)}, 0.4)) {
    CHECK(s.lost);
    CHECK(s.text.find("[distributed] ranks 1, 2 and 4 did not come within 0.4 s\nhelp: ") == 0);
  }
  const Said alone = meet({as(1, 2, place)}, 0.3)[0];
  CHECK(alone.lost);
  CHECK(contains(alone.text,
                 "rank 1 found no rank 0 at 127.0.0.1:" + std::to_string(place.port) + " within 0.3 s: connection refused"));
  CHECK(std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count() < 3);
}

TEST_CASE("rendezvous: ranks that contradict each other are refused, all with one message") {
  const MeetingPlace place = at(free_port());
  for (const Said& s : meet({as(0, 3, place), as(1, 3, place), as(1, 3, place)}, 20)) {
    CHECK(s.config);
    CHECK(contains(s.text, "[distributed] two processes are rank 1: process "));
  }
  for (const Said& s : meet({as(0, 3, place), as(1, 4, place)}, 20)) {
    CHECK(s.config);
    CHECK(contains(s.text, "was started as one of 4 ranks, and rank 0 as one of 3"));
  }
  // A rank of another job continues to search, and its own job does not suffer.
  MeetingPlace elsewhere = place;
  elsewhere.job = "job 1";
  const std::vector<Said> said = meet({as(0, 2, place), as(1, 2, elsewhere)}, 0.4);
  CHECK(contains(said[0].text, "rank 1 did not come within 0.4 s"));
  CHECK(contains(said[1].text, "within 0.4 s: "));

  const Taken other;
  const Said used = meet({as(0, 2, at(other.port))}, 5)[0];
  CHECK(used.config);
  CHECK(contains(used.text, "rank 0 cannot listen at port " + std::to_string(other.port) + ": something else does"));
}
