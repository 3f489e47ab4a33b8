// SPDX-License-Identifier: Apache-2.0
// A safetensors file. An even first byte: the rest is the file. An odd one: the next two are the length of the header. What can
// be read must come back from a file written by save_safetensors.
#include "framework/io/weights/safetensors.h"

#include <cstring>

#include "tests/fuzz/fuzz.h"

HALFSTEP_FUZZ_HARNESS(safetensors) {
  using namespace halfstep;
  if (size < 3) return 0;
  std::string bytes(fuzz::text_of(data + 1, size - 1));
  if (data[0] & 1) {
    const uint64_t length = uint64_t(data[1]) << 8 | data[2];
    bytes.replace(0, 2, reinterpret_cast<const char*>(&length), 8);
  }
  const fuzz::MemoryFile file(bytes);
  TensorFile read;
  bool good = false;
  fuzz::typed([&] {
    read = load_safetensors(file.path());
    good = true;
  });
  if (!good || read.tensors.count("__metadata__")) return 0;
  const auto path = fuzz::folder() / "again";
  save_safetensors(path, read.tensors, read.metadata);
  const TensorFile again = load_safetensors(path);
  if (again.metadata != read.metadata || again.tensors.size() != read.tensors.size()) fuzz::found("another file comes back");
  for (const auto& [name, t] : read.tensors) {
    const auto it = again.tensors.find(name);
    if (it == again.tensors.end() || !(it->second.shape() == t.shape()) || it->second.dtype() != t.dtype() ||
        (t.nbytes() > 0 && std::memcmp(it->second.data_ptr(), t.data_ptr(), t.nbytes()) != 0)) {
      fuzz::found("another tensor comes back", name);
    }
  }
  return 0;
}
