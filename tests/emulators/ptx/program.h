// SPDX-License-Identifier: Apache-2.0
// Runs a kernel's PTX. The threads of a warp run together while they are at the same place; of those that can run, the ones
// furthest back go first. Everything runs on the calling thread of the host.
#pragma once

#include <cstdint>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include "tests/emulators/ptx/syntax.h"

namespace halfstep::ptx {

struct Size {
  unsigned x = 1, y = 1, z = 1;
};

// The meaning of the kernels' addresses on the host. All throw Fault.
struct Fault : std::runtime_error {
  using std::runtime_error::runtime_error;
};
struct Memory {
  virtual ~Memory() = default;
  virtual bool range_of(uint64_t address, uint64_t& begin, uint64_t& end) = 0;  // of the live allocation with that address
};

class Kernel;

class Program {
 public:
  explicit Program(std::string_view text);
  ~Program();
  Kernel* kernel(const std::string& name);           // null if there is none
  unsigned char* variable(const std::string& name);  // memory of a .global or .const; null if there is none
  size_t variable_bytes(const std::string& name) const;
  const Module& module() const { return module_; }

 private:
  friend class Kernel;
  Module module_;
  std::map<std::string, std::vector<unsigned char>> memory_;
  std::map<std::string, std::unique_ptr<Kernel>> kernels_;
};

struct Settings {
  int resident = 3;          // number of blocks that take turns
  int slice = 4000;          // instructions of a warp before the next warp's turn
  bool reverse = false;      // blocks and warps run from the last to the first
  int approximate_ulps = 0;  // error of .approx functions, in either direction
  int64_t static_and_dynamic_shared = 48 << 10;
};
Settings& settings();

struct Counts {
  uint64_t launches = 0, warp_instructions = 0, thread_instructions = 0;
};
Counts& counts();

class Kernel {
 public:
  Kernel(Program& program, const Function& entry);
  ~Kernel();
  // Runs the kernel. Arguments: their bytes as in a launch.
  void run(Size grid, Size block, size_t dynamic_shared, const std::vector<unsigned char>& arguments, Memory& memory) const;
  std::vector<unsigned char> gather(const void* const* arguments) const;  // copies them to the parameter space's layout
  const std::string& name() const { return name_; }
  unsigned max_threads() const { return max_threads_; }
  size_t static_shared() const;
  std::vector<int> lines_run(bool ran) const;  // lines of the PTX whose instruction was, or was not, run

  struct Code;

 private:
  std::string name_;
  unsigned max_threads_;
  std::unique_ptr<Code> code_;
};

}  // namespace halfstep::ptx
