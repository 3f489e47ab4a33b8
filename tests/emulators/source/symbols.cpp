// SPDX-License-Identifier: Apache-2.0
// The names of kernels. Most are in anonymous namespaces, so that only the program's own symbol table has them.
#include <cxxabi.h>
#include <elf.h>
#include <link.h>

#include <cstdlib>
#include <fstream>
#include <map>
#include <string>
#include <vector>

#include "tests/emulators/source/runtime.h"

namespace emu {
namespace {

std::map<uintptr_t, std::string> read_functions() {
  std::map<uintptr_t, std::string> out;
  std::ifstream file("/proc/self/exe", std::ios::binary);
  const auto read = [&](void* to, uint64_t from, size_t bytes) {
    file.seekg(std::streamoff(from)).read(static_cast<char*>(to), std::streamsize(bytes));
  };
  Elf64_Ehdr header;
  read(&header, 0, sizeof header);
  std::vector<Elf64_Shdr> sections(header.e_shnum);
  read(sections.data(), header.e_shoff, sections.size() * sizeof(Elf64_Shdr));
  uintptr_t base = 0;  // where the program was loaded: the first object of the list
  dl_iterate_phdr([](dl_phdr_info* info, size_t, void* to) { return *static_cast<uintptr_t*>(to) = info->dlpi_addr, 1; }, &base);
  for (const Elf64_Shdr& s : sections) {
    if (!file || s.sh_type != SHT_SYMTAB) continue;
    std::vector<Elf64_Sym> symbols(s.sh_size / sizeof(Elf64_Sym));
    std::vector<char> names(sections[s.sh_link].sh_size);
    read(symbols.data(), s.sh_offset, s.sh_size);
    read(names.data(), sections[s.sh_link].sh_offset, names.size());
    for (const Elf64_Sym& symbol : symbols) {
      if (ELF64_ST_TYPE(symbol.st_info) == STT_FUNC) out[base + symbol.st_value] = &names[symbol.st_name];
    }
  }
  return out;
}

// "void halfstep::cuda::(anonymous namespace)::fill<float>(...)" as "fill<float>".
std::string shortened(std::string name) {
  for (const std::string part : {"(anonymous namespace)::", "halfstep::cuda::", "halfstep::"}) {
    for (size_t at; (at = name.find(part)) != std::string::npos;) name.erase(at, part.size());
  }
  int depth = 0;
  for (size_t i = 0; i < name.size(); ++i) {
    depth += name[i] == '<' ? 1 : name[i] == '>' ? -1 : 0;
    if (depth == 0 && name[i] == '(') name.resize(i);
  }
  return name.starts_with("void ") ? name.substr(5) : name;
}

}  // namespace

std::string kernel_name(const void* kernel) {
  static const std::map<uintptr_t, std::string> functions = read_functions();
  const auto it = functions.find(reinterpret_cast<uintptr_t>(kernel));
  if (it == functions.end()) return "a kernel without a name";
  char* text = abi::__cxa_demangle(it->second.c_str(), nullptr, nullptr, nullptr);
  const std::string name = shortened(text ? text : it->second);
  std::free(text);
  return name;
}

}  // namespace emu
