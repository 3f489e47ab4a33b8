// SPDX-License-Identifier: Apache-2.0
// Drives a harness where there is no libFuzzer:
//   test_fuzz csv             each seed of corpus/csv, then damaged copies of them: the same ones in every run
//   test_fuzz csv FILE...     these inputs, e.g. one that was found
// HALFSTEP_FUZZ_RUNS=N makes N damaged copies instead of 2000. An input that fails is written to fuzz-found.bin.
#include <fcntl.h>
#include <sys/resource.h>
#include <sys/time.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <fstream>
#include <iostream>
#include <iterator>
#include <random>

#include "tests/fuzz/fuzz.h"
#include "tests/support/source_dir.h"

namespace {

namespace fs = std::filesystem;
constexpr int kSeconds = 20;       // an input may compute, and ten times as long it may wait: others may have the machine
constexpr long kMegabytes = 1024;  // the program may come to hold
constexpr const char* kFound = "fuzz-found.bin";

std::string g_input, g_found;
halfstep::fuzz::Harness g_harness = nullptr;

extern "C" void failing(int signal) {
  const int fd = ::open(g_found.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0666);
  [[maybe_unused]] const auto written = ::write(fd, g_input.data(), g_input.size());
  const std::string_view text = signal == SIGALRM || signal == SIGPROF ? "fuzz: an input takes too long, see fuzz-found.bin\n"
                                                                       : "fuzz: an input fails, see fuzz-found.bin\n";
  [[maybe_unused]] const auto printed = ::write(2, text.data(), text.size());
  std::signal(SIGABRT, SIG_DFL);
  std::abort();
}

std::string read(const fs::path& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

void give(std::string input) {
  g_input = std::move(input);
  const itimerval most{{}, {kSeconds, 0}}, off{};
  setitimer(ITIMER_PROF, &most, nullptr);
  alarm(10 * kSeconds);
  g_harness(reinterpret_cast<const uint8_t*>(g_input.data()), g_input.size());
  alarm(0);
  setitimer(ITIMER_PROF, &off, nullptr);
}

// One to eight small damages.
std::string damaged(const std::vector<std::string>& seeds, std::mt19937_64& random) {
  const auto below = [&](size_t n) { return n == 0 ? 0 : size_t(random() % n); };
  std::string s = seeds[below(seeds.size())];
  for (size_t left = 1 + below(8); left > 0; --left) {
    const size_t at = below(s.size() + 1), length = below(std::min<size_t>(s.size() - at, 64) + 1);
    switch (below(8)) {
      case 0: s.insert(at, 1, char(random())); break;
      case 1: s.erase(at, length); break;
      case 2: s.insert(at, s.substr(at, length)); break;
      case 3: s.resize(at); break;
      case 4:
        if (at < s.size()) s[at] = char(s[at] ^ (1 << below(8)));
        break;
      case 5: {  // a number at the end of its type
        constexpr uint64_t kEnds[] = {0, 1, 0x7f, 0xff, 0x7fff, 0xffff, 0x7fffffff, 0xffffffff, 1ull << 62, ~0ull};
        const uint64_t value = kEnds[below(std::size(kEnds))];
        const size_t bytes = size_t(1) << below(4);
        for (size_t i = 0; i < bytes && at + i < s.size(); ++i) s[at + i] = char(value >> 8 * (bytes - 1 - i));
        break;
      }
      case 6: {
        constexpr std::string_view kWords[] = {
            "{", "}", "[", "]", "\"", ",", "\n", ":", "0", "-1", "1e999", "nan", "\\u0000", "null", "9223372036854775808", "\xff"};
        s.insert(at, kWords[below(std::size(kWords))]);
        break;
      }
      case 7: {
        const std::string& other = seeds[below(seeds.size())];
        const size_t from = below(other.size() + 1);
        s.insert(at, other.substr(from, below(other.size() - from + 1)));
        break;
      }
    }
    if (s.size() > 1 << 16) s.resize(1 << 16);
  }
  return s;
}

}  // namespace

int main(int argc, char** argv) {
  const auto& all = halfstep::fuzz::harnesses();
  const auto found = argc > 1 ? all.find(argv[1]) : all.end();
  if (found == all.end()) {
    std::cerr << "usage: test_fuzz FORMAT [FILE...], where FORMAT is one of";
    for (const auto& [format, harness] : all) std::cerr << ' ' << format;
    std::cerr << '\n';
    return 2;
  }
  g_harness = found->second;
  g_found = fs::absolute(kFound).string();
  for (const int signal : {SIGABRT, SIGSEGV, SIGALRM, SIGPROF, SIGFPE, SIGBUS}) std::signal(signal, failing);
  if (argc > 2) {
    std::vector<std::string> inputs;  // read before a harness changes the working directory
    for (int i = 2; i < argc; ++i) inputs.push_back(read(argv[i]));
    for (std::string& input : inputs) give(std::move(input));
    return 0;
  }
  const fs::path corpus = fs::path(halfstep_source_dir()) / "tests/fuzz/corpus" / argv[1];
  std::vector<fs::path> files;
  for (const auto& entry : fs::directory_iterator(corpus)) files.push_back(entry.path());
  std::sort(files.begin(), files.end());
  std::vector<std::string> seeds;
  for (const fs::path& file : files) seeds.push_back(read(file));
  if (seeds.empty()) {
    std::cerr << "fuzz: no seeds in " << corpus.string() << '\n';
    return 1;
  }
  for (const std::string& seed : seeds) give(seed);
  const char* wanted = std::getenv("HALFSTEP_FUZZ_RUNS");
  const long runs = wanted ? std::atol(wanted) : 2000;
  std::mt19937_64 random(11);
  for (long i = 0; i < runs; ++i) give(damaged(seeds, random));

  rusage used{};
  getrusage(RUSAGE_SELF, &used);
  const long megabytes = used.ru_maxrss / 1024;
  std::cout << seeds.size() << " seeds and " << runs << " damaged copies, " << megabytes << " MB\n";
  if (megabytes > kMegabytes) std::cerr << "fuzz: more than " << kMegabytes << " MB were held\n";
  return megabytes > kMegabytes;
}
