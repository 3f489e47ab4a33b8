// SPDX-License-Identifier: Apache-2.0
// A file of torch.save. An even first byte: the rest is the file. An odd one: the next two are the length of a pickle, and an
// archive is built of it and of what follows as the values of each storage, so that right checksums lead on to the tensors. What
// can be read must be the same when it is mapped, and come back from a safetensors file.
#include "framework/io/weights/torch_file.h"

#include <algorithm>
#include <cstring>
#include <string>

#include "framework/io/weights/safetensors.h"
#include "tests/data/array_files.h"
#include "tests/fuzz/fuzz.h"

HALFSTEP_FUZZ_HARNESS(torch_file) {
  using namespace halfstep;
  if (size < 3) return 0;
  std::string bytes(fuzz::text_of(data + 1, size - 1));
  if (data[0] & 1) {
    const std::string rest = bytes.substr(2);
    const size_t length = std::min(rest.size(), size_t(data[1]) | size_t(data[2]) << 8);
    const std::string values = rest.substr(length);
    bytes = testing::zip({{"a/data.pkl", rest.substr(0, length)},
                          {"a/byteorder", "little"},
                          {"a/data/0", values},
                          {"a/data/1", values},
                          {"a/data/2", values.substr(0, values.size() / 2)}},
                         false);
  }
  const fuzz::MemoryFile file(bytes);
  fuzz::typed([&] {
    fuzz::typed([&] { load_torch_file(file.path()); });
    const TorchFileOptions all{.list_unread = true};
    const TorchFile read = load_torch_file(file.path(), Device::cpu, all), shown = map_torch_file(file.path(), all);
    if (!read.key.empty()) fuzz::typed([&] { load_torch_file(file.path(), Device::cpu, {.key = read.key}); });
    if (!is_torch_file(file.path())) fuzz::found("a file is read that is not known as one");
    if (read.names != shown.names || read.names.size() != read.tensors.size()) fuzz::found("other names when mapped");
    if (read.tensors.count("__metadata__")) return;
    const auto path = fuzz::folder() / "again";
    save_safetensors(path, read.tensors);
    const TensorMap again = load_safetensors(path).tensors;
    for (const auto& [name, t] : read.tensors) {
      for (const Tensor& other : {shown.tensors.at(name), again.at(name)}) {
        if (!t.is_contiguous() || !other.is_contiguous() || !(other.shape() == t.shape()) || other.dtype() != t.dtype() ||
            (t.nbytes() > 0 && std::memcmp(other.data_ptr(), t.data_ptr(), t.nbytes()) != 0))
          fuzz::found("another tensor comes back", name);
      }
    }
  });
  return 0;
}
