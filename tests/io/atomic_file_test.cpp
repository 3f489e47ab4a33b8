// SPDX-License-Identifier: Apache-2.0
#include "framework/io/files/atomic_file.h"

#include <doctest/doctest.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include <iterator>
#include <thread>

#include "framework/base/check.h"
#include "framework/io/weights/safetensors.h"
#include "tests/io/files.h"

using namespace halfstep;
using namespace halfstep::testing;

TEST_CASE("atomic_write makes and replaces a file and leaves nothing else") {
  const TempDir dir;
  const std::string bytes("one\0two\n", 8);
  atomic_write(dir / "f", bytes);
  CHECK(read_file(dir / "f") == bytes);
  atomic_write(dir / "f", "");
  CHECK(read_file(dir / "f").empty());
  CHECK(std::distance(std::filesystem::directory_iterator(dir.path()), {}) == 1);
}

TEST_CASE("remove_abandoned removes the temporaries of processes that are gone") {
  const TempDir dir;
  const pid_t gone = fork();
  if (gone == 0) _exit(0);
  waitpid(gone, nullptr, 0);
  const auto name = [](pid_t pid) { return "f.tmp-" + std::to_string(pid) + "-0"; };
  const std::string others[] = {"f",         "f.tmp-",         "f.tmp-12",      "f.tmp-x-0",
                                "f.tmp-0-1", "g" + name(gone), name(getppid()), name(gone) + "x"};
  for (const std::string& other : others) write_bytes(dir / other, "x");
  for (const std::string& mine : {name(gone), name(getpid())}) write_bytes(dir / mine, "x");
  remove_abandoned(dir / "f");
  for (const std::string& other : others) CHECK(std::filesystem::exists(dir / other));
  CHECK(std::distance(std::filesystem::directory_iterator(dir.path()), {}) == std::ssize(others));
  CHECK_NOTHROW(remove_abandoned(dir / "no/such/f"));
}

TEST_CASE("files: devices, folders, what is longer than a limit, and paths with NUL characters are refused") {
  const TempDir dir;
  const auto reading = [](const std::filesystem::path& path, size_t limit = 100) {
    return message_of<IoError>([&] { read_file(path, limit); });
  };
  CHECK(contains(reading("/dev/zero"), "cannot read /dev/zero: it is a device, not a file"));
  CHECK(contains(reading(dir.path()), "it is a directory, not a file"));
  write_bytes(dir / "f", std::string(100, 'x'));
  CHECK(read_file(dir / "f", 100).size() == 100);
  CHECK(contains(reading(dir / "f", 99), "it has more than 99 bytes"));
  REQUIRE(::mkfifo((dir / "pipe").c_str(), 0600) == 0);
  std::thread writer([&] { write_bytes(dir / "pipe", "through a pipe"); });
  CHECK(read_file(dir / "pipe") == "through a pipe");
  writer.join();
  const std::filesystem::path nul = dir / std::string("f\0g", 3);
  CHECK(contains(reading(nul), "must not hold a NUL character, got one after \"" + (dir / "f").string() + '"'));
  CHECK(contains(message_of<IoError>([&] { atomic_write(nul, "y"); }), "must not hold a NUL character"));
  CHECK(contains(message_of<IoError>([&] { load_safetensors(nul); }), "must not hold a NUL character"));
  CHECK(read_bytes(dir / "f") == std::string(100, 'x'));
}

TEST_CASE("an AtomicFile that is not committed changes nothing") {
  const TempDir dir;
  atomic_write(dir / "f", "old");
  {
    AtomicFile file(dir / "f");
    file.write("new", 3);
  }
  CHECK(read_file(dir / "f") == "old");
  CHECK(std::distance(std::filesystem::directory_iterator(dir.path()), {}) == 1);
}

TEST_CASE("files: errors name the path and the reason") {
  const TempDir dir;
  const std::string write = message_of<IoError>([&] { atomic_write(dir / "no/such/f", "x"); });
  CHECK(contains(write, "[file] cannot write " + (dir / "no/such/f").string() + ": No such file or directory"));
  CHECK(contains(message_of<IoError>([&] { read_file(dir / "none"); }), "cannot read"));
}

TEST_CASE("read_file reads files larger than its first piece") {
  const TempDir dir;
  std::string bytes(300001, 'x');
  bytes[300000] = 'y';
  write_bytes(dir / "f", bytes);
  CHECK(read_file(dir / "f") == bytes);
}
