// SPDX-License-Identifier: Apache-2.0
// Bad arguments: every op, called by name with its cases' arguments damaged one after the other and at random, must succeed or
// throw a halfstep::Error that names it. Never crash, hang, allocate without bound, or throw anything else. On the device that
// computes nothing the call must end in the same way.
// HALFSTEP_FUZZ_TRACE=1 prints each call before it is made; damaged_calls.h has more.
#include "tests/ops/damaged_calls.h"

#include <doctest/doctest.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <iostream>
#include <map>
#include <set>
#include <sstream>

#include "framework/base/log.h"
#include "framework/tensor/memory.h"
#include "tests/ops/meta_lists.h"

using namespace halfstep;
using testing::Call;
using testing::MemoryLimit;

namespace {

// A call that does not come back ends the program: nothing else could.
extern "C" void too_long(int) {
  constexpr std::string_view text = "fuzz: a call took longer than 60 s; HALFSTEP_FUZZ_TRACE=1 shows which\n";
  [[maybe_unused]] const auto written = write(2, text.data(), text.size());
  _exit(1);
}

// How a call ends.
struct Outcome {
  Tensors results = {};
  std::string error = {};                              // the text, empty without one
  bool memory = false, index = false, values = false;  // MemoryError, IndexError, MetaError
  std::string fault = {};                              // what must not be thrown
};

Outcome outcome(const Call& c, bool with_gradient) {
  try {
    return {.results = testing::run(c, with_gradient)};
  } catch (const MemoryError& e) { return {.error = e.what(), .memory = true}; } catch (const IndexError& e) {
    return {.error = e.what(), .index = true};
  } catch (const MetaError& e) { return {.error = e.what(), .values = true}; } catch (const Error& e) {
    return {.error = e.what()};
  } catch (const std::exception& e) { return {.fault = std::string("an untyped error: ") + e.what()}; } catch (...) {
    return {.fault = "something thrown that is no exception"};
  }
}

class Judge {
 public:
  Judge() { std::signal(SIGALRM, too_long); }
  ~Judge() {
    alarm(0);
    std::signal(SIGALRM, SIG_DFL);
  }
  Outcome make(const Call& c, bool with_gradient) {
    ++made_;
    if (trace_) std::cerr << c.str() << (with_gradient ? " backward\n" : "\n") << std::flush;
    alarm(60);
    const std::clock_t start = std::clock();  // the program's own time: others may have the machine
    const Outcome end = outcome(c, with_gradient);
    const double seconds = double(std::clock() - start) / CLOCKS_PER_SEC;
    if (!end.fault.empty()) found(c, end.fault);
    const std::string& text = end.error;
    if (!text.empty() && !end.memory) {  // the size that was asked for is in the text of a MemoryError
      if (text[0] != '[' || text.find(']') == std::string::npos)
        found(c, "an error without [where]: " + text);
      else if (text.find(c.op) == std::string::npos)
        found(c, "names another op: " + text.substr(0, text.find(']') + 1), text);
    }
    if (seconds > 5) found(c, "takes long", std::to_string(seconds) + " s");
    return end;
  }
  void report() const {
    for (const auto& [what, example] : found_) FAIL_CHECK(what, "\n  e.g. ", example);
    CHECK(made_ > 0);
    MESSAGE(made_, " calls");
  }

 private:
  void found(const Call& c, const std::string& what, const std::string& detail = "") {
    found_.try_emplace(c.op + ": " + what, c.str() + (detail.empty() ? "" : "\n  " + detail));
  }

  std::map<std::string, std::string> found_;
  size_t made_ = 0;
  const bool trace_ = std::getenv("HALFSTEP_FUZZ_TRACE") != nullptr;
};

Tensor same_geometry(const Tensor& t) {
  int64_t extent = t.numel() > 0;
  for (int d = 0; d < t.dim() && extent > 0; ++d) extent += (t.size(d) - 1) * t.strides()[d];
  return empty({extent}, {.dtype = t.dtype(), .device = Device::meta}).alias(t.shape(), t.strides(), 0);
}

std::string geometry(const Tensors& results) {
  std::ostringstream out;
  for (const Tensor& t : results) {
    if (t.defined())
      out << t.dtype() << t.shape() << t.strides() << ' ';
    else
      out << "none ";
  }
  return out.str();
}

// Makes calls on meta, and compares how they end.
class MetaTwin {
 public:
  void make(const Call& c, bool with_gradient, const Outcome& cpu) {
    if (c.op == "to_device" || cpu.memory) return;
    Call moved = c;
    for (Tensor* t : testing::slots(moved))
      if (t->defined()) *t = same_geometry(*t);
    const Outcome meta = outcome(moved, with_gradient);
    if (meta.values)
      refused_.insert(c.op);
    else if (cpu.index)
      return;  // where an index points is a value, too
    else if (cpu.error != meta.error && testing::kCheckValues.contains(c.op))
      blind_.insert(c.op);
    else if (cpu.error != meta.error || cpu.fault != meta.fault)
      differ_.try_emplace(c.op + ": \n  " + cpu.error + "\n  " + meta.error + meta.fault, c.str());
    else if (geometry(cpu.results) != geometry(meta.results))
      differ_.try_emplace(c.op + ": \n  " + geometry(cpu.results) + "\n  " + geometry(meta.results), c.str());
  }
  void report() const {
    for (const auto& [what, example] : differ_) FAIL_CHECK(what, "\n  e.g. ", example);
    CHECK_EQ(testing::joined_names(refused_), testing::joined_names(testing::kNeedValues));
    CHECK_EQ(testing::joined_names(blind_), testing::joined_names(testing::kCheckValues));
  }

 private:
  std::map<std::string, std::string> differ_;
  std::set<std::string> refused_, blind_;
};

// Writes `byte` all over the memory that the next small tensors get.
void fill_free_memory(int byte) {
  Allocator& memory = allocator(Device::cpu);
  std::vector<void*> held;
  for (size_t size = 64; size <= 4096; size += 64)
    for (int k = 0; k < 12; ++k) {
      held.push_back(memory.allocate(size, MemoryTag::activations));
      std::memset(held.back(), byte, size);
    }
  for (void* const p : held) memory.release(p);
}

bool same_numbers(const std::vector<double>& a, const std::vector<double>& b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(),
                    [](double x, double y) { return x == y || (std::isnan(x) && std::isnan(y)); });
}

}  // namespace

TEST_CASE("with nothing along a dimension, results do not depend on what memory held, and gradients of empty results are zeros") {
  std::map<std::string, std::string> found;
  size_t made = 0;
  const logging::Capture quiet([](logging::Level, std::string_view) {});
  testing::for_empty_calls([&](const Call& c) {
    std::vector<std::vector<double>> first;
    for (const int byte : {0xff, 0x3e}) {  // NaN or -1, and 0.186 or a large integer
      fill_free_memory(byte);
      manual_seed(5);
      Tensors results;
      try {
        results = testing::run(c, true);
      } catch (const Error&) { return; }
      ++made;
      std::vector<std::vector<double>> values;
      Call own = c;
      size_t outputs = results.size();
      for (const Tensor* t : testing::slots(own)) outputs -= t->defined() && t->is_floating_point();
      bool empty_outputs = true;
      for (size_t i = 0; i < results.size(); ++i) {
        values.push_back(results[i].defined() ? results[i].to_vector<double>() : std::vector<double>());
        if (i < outputs) empty_outputs = empty_outputs && values.back().empty();
      }
      for (size_t i = outputs; empty_outputs && i < values.size(); ++i)
        if (!same_numbers(values[i], std::vector<double>(values[i].size(), 0)))
          found.try_emplace(c.op + ": a gradient of an empty result is not 0", c.str());
      if (first.empty()) first = values;
      if (!std::equal(first.begin(), first.end(), values.begin(), values.end(), same_numbers))
        found.try_emplace(c.op + ": a result is what memory held before", c.str());
    }
  });
  for (const auto& [what, example] : found) FAIL_CHECK(what, "\n  e.g. ", example);
  CHECK(made > 1000);
}

TEST_CASE("the memory limit of damaged calls holds under sanitizers, too") {
  const size_t before = allocator(Device::cpu).stats().reserved;
  {
    const MemoryLimit limit;
    CHECK_THROWS_AS(empty({(int64_t(1) << 28) + 1}), MemoryError);                                                    // at once
    CHECK_THROWS_AS(Tensors({empty({int64_t(1) << 27}), empty({int64_t(1) << 27}), empty({1 << 20})}), MemoryError);  // bit by bit
    CHECK_NOTHROW(empty({int64_t(1) << 26}));
    void* volatile other = std::malloc(size_t(1) << 31);
    if (limit.bounds_all()) CHECK((other == nullptr));
    std::free(other);
    CHECK(allocator(Device::cpu).stats().reserved <= before + (size_t(1) << 30));
  }
  CHECK_NOTHROW(empty({int64_t(1) << 28}));
  allocator(Device::cpu).empty_cache();
}

TEST_CASE("damaged arguments give typed errors that name the op; on meta calls end as on the CPU, but for what values decide") {
  Judge judge;
  MetaTwin twin;
  const MemoryLimit limit;
  const logging::Capture quiet([](logging::Level, std::string_view) {});
  testing::for_damaged_calls(
      [&](const Call& c, bool with_gradient) { twin.make(c, with_gradient, judge.make(c, with_gradient)); });
  judge.report();
  twin.report();
}
