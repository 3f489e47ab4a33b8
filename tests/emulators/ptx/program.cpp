// SPDX-License-Identifier: Apache-2.0
#include "tests/emulators/ptx/program.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "tests/emulators/ptx/builder.h"
#include "tests/emulators/ptx/operands.h"

namespace halfstep::ptx {

Settings& settings() {
  static Settings s = [] {
    Settings out;
    const auto number = [](const char* name, int64_t otherwise) {
      const char* text = std::getenv(name);
      return text && *text ? std::strtoll(text, nullptr, 0) : otherwise;
    };
    out.resident = int(std::max<int64_t>(1, number("HALFSTEP_PTX_RESIDENT", out.resident)));
    out.slice = int(std::max<int64_t>(1, number("HALFSTEP_PTX_SLICE", out.slice)));
    out.reverse = number("HALFSTEP_PTX_REVERSE", 0) != 0;
    out.approximate_ulps = int(number("HALFSTEP_PTX_ULPS", 0));
    return out;
  }();
  return s;
}
Counts& counts() {
  static Counts c;
  return c;
}

std::string number_text(uint64_t v) {
  char text[32];
  std::snprintf(text, sizeof text, "0x%llx", static_cast<unsigned long long>(v));
  return text;
}

void fault(const Context& x, const Instruction& i, int lane, const std::string& what) {
  const Size n = x.launch.block;
  const unsigned t = unsigned(x.warp.first_thread + lane);
  char where[160];
  std::snprintf(where, sizeof where, " (ptx line %d, block %u,%u,%u thread %u,%u,%u)", i.line, x.block.index.x, x.block.index.y,
                x.block.index.z, t % n.x, t / n.x % n.y, t / (n.x * n.y));
  throw Fault(*x.launch.name + ": " + what + where);
}

uint64_t address_of(const Context& x, const Instruction& i, int lane) {
  switch (i.base) {
    case Base::reg: return x.in(i.a)[lane] + uint64_t(i.offset);
    case Base::host: return uint64_t(i.offset);
    case Base::shared: return kSharedBegin + uint64_t(i.offset);
    case Base::argument: return reinterpret_cast<uint64_t>(x.launch.arguments->data()) + uint64_t(i.offset);
    case Base::lane:
      return reinterpret_cast<uint64_t>(x.warp.memory.data()) + size_t(lane) * x.launch.code->lane_bytes + uint64_t(i.offset);
  }
  return 0;
}

unsigned char* at(Context& x, const Instruction& i, int lane, uint64_t address, size_t bytes) {
  if (address % bytes != 0)
    fault(x, i, lane, "an address that is not aligned to " + std::to_string(bytes) + ": " + number_text(address));
  const auto inside = [&](const void* begin, size_t size) {
    const uint64_t b = reinterpret_cast<uint64_t>(begin);
    return address >= b && address + bytes <= b + size;
  };
  auto* const p = reinterpret_cast<unsigned char*>(address);
  Launch& launch = x.launch;
  if (i.space == Space::shared) {
    const uint64_t offset = address - kSharedBegin;
    if (address < kSharedBegin || offset + bytes > launch.shared_bytes)
      fault(x, i, lane,
            std::to_string(bytes) + " bytes at " + std::to_string(int64_t(offset)) + " of " + std::to_string(launch.shared_bytes) +
                " bytes of shared memory");
    return x.block.shared + offset;
  }
  const bool any = i.space == Space::generic;
  if (any || i.space == Space::global) {
    for (const auto& r : launch.ranges) {
      if (address >= r.begin && address + bytes <= r.end) return p;
    }
    uint64_t begin = 0, end = 0;
    if (launch.memory->range_of(address, begin, end)) {
      if (address + bytes > end)
        fault(x, i, lane,
              std::to_string(bytes) + " bytes at " + number_text(address) + " overrun an allocation of " +
                  std::to_string(end - begin) + " bytes");
      launch.ranges[launch.next_range++ % 4] = {begin, end};
      return p;
    }
  }
  if ((any || i.space == Space::local || i.space == Space::param) &&
      inside(x.warp.memory.data() + size_t(lane) * launch.code->lane_bytes, launch.code->lane_bytes))
    return p;
  if ((any || i.space == Space::param) && inside(launch.arguments->data(), launch.code->argument_bytes)) return p;
  if (any && inside(x.block.shared, launch.shared_bytes)) return p;
  if (any || i.space == Space::global || i.space == Space::constant) {
    auto* program = const_cast<Program*>(launch.code->program);
    for (const auto& [name, v] : program->module().variables) {
      if (v.space != "shared" && inside(program->variable(name), v.bytes)) return p;
    }
  }
  static constexpr const char* spaces[] = {"generic", "global", "shared", "local", "param", "const"};
  fault(x, i, lane,
        std::to_string(bytes) + " bytes at " + number_text(address) + ", which is nowhere (" + spaces[int(i.space)] + ")");
}

Program::Program(std::string_view text) : module_(parse(text)) {
  for (const auto& [name, v] : module_.variables) {
    if (v.space == "shared") continue;
    std::vector<unsigned char>& memory = memory_[name];
    memory.assign(v.bytes + 256, 0);
    std::copy(v.value.begin(), v.value.end(), variable(name));
  }
  for (const auto& [name, v] : module_.variables) {
    for (const auto& [offset, other] : v.addresses) {
      uint64_t added = 0;
      std::memcpy(&added, variable(name) + offset, 8);
      const unsigned char* target = variable(other);
      if (!target) throw Fault("no variable " + other);
      const uint64_t address = reinterpret_cast<uint64_t>(target) + added;
      std::memcpy(variable(name) + offset, &address, 8);
    }
  }
}
Program::~Program() = default;
unsigned char* Program::variable(const std::string& name) {
  const auto it = memory_.find(name);
  if (it == memory_.end()) return nullptr;
  const auto address = reinterpret_cast<uintptr_t>(it->second.data());
  return reinterpret_cast<unsigned char*>((address + 255) / 256 * 256);
}
size_t Program::variable_bytes(const std::string& name) const { return module_.variables.at(name).bytes; }
Kernel* Program::kernel(const std::string& name) {
  auto it = kernels_.find(name);
  if (it == kernels_.end()) {
    const auto f = module_.functions.find(name);
    if (f == module_.functions.end() || !f->second.entry) return nullptr;
    it = kernels_.emplace(name, std::make_unique<Kernel>(*this, f->second)).first;
  }
  return it->second.get();
}

Kernel::Kernel(Program& program, const Function& entry) : name_(entry.name), max_threads_(entry.max_threads), code_(new Code) {
  code_->program = &program;
  build(program, entry, *code_);
  code_->lane_bytes = aligned(code_->lane_bytes, 16);
  code_->ran.assign(code_->instructions.size(), 0);
}
Kernel::~Kernel() = default;
std::vector<int> Kernel::lines_run(bool ran) const {
  std::vector<int> out;
  for (size_t k = 0; k < code_->instructions.size(); ++k) {
    if (code_->instructions[k].line && bool(code_->ran[k]) == ran) out.push_back(code_->instructions[k].line);
  }
  return out;
}
size_t Kernel::static_shared() const { return code_->static_shared; }

std::vector<unsigned char> Kernel::gather(const void* const* arguments) const {
  std::vector<unsigned char> out(code_->argument_bytes + 64, 0xFF);
  for (size_t k = 0; k < code_->arguments.size(); ++k)
    std::memcpy(out.data() + code_->arguments[k].first, arguments[k], code_->arguments[k].second);
  return out;
}

void Kernel::run(Size grid, Size block, size_t dynamic_shared, const std::vector<unsigned char>& arguments, Memory& memory) const {
  Launch launch{code_.get(), &name_, grid, block, code_->static_shared + dynamic_shared, &arguments, &memory, {}, 0};
  ++counts().launches;
  ptx::run(launch);
}

}  // namespace halfstep::ptx
