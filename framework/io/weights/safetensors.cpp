// SPDX-License-Identifier: Apache-2.0
#include "framework/io/weights/safetensors.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <fstream>
#include <limits>
#include <memory>
#include <nlohmann/json.hpp>

#include "framework/backend/backend.h"
#include "framework/base/check.h"
#include "framework/io/files/atomic_file.h"
#include "framework/io/files/mapped_file.h"
#include "framework/io/files/other_file.h"
#include "framework/io/files/printable.h"
#include "framework/io/weights/safetensors_header.h"

namespace halfstep {
namespace {

namespace fs = std::filesystem;
static_assert(std::endian::native == std::endian::little, "the format is little-endian and is read without swapping");

constexpr const char* kSafetensors = "safetensors";

// A file whose header was read; `in` is at the first byte behind it.
struct OpenFile {
  std::ifstream in;
  SafetensorsHeader header;

  void read(void* to, uint64_t bytes, const fs::path& path) {
    in.read(static_cast<char*>(to), std::streamsize(bytes));
    check<IoError>(uint64_t(in.gcount()) == bytes, kSafetensors, path.string(), ": reading failed");
  }
};

// Opens a file, and reads and checks its header.
OpenFile open(const fs::path& path) {
  check_path(path);
  const std::string file = path.string();
  OpenFile out;
  std::error_code error;
  const uint64_t size = fs::file_size(path, error);
  check<IoError>(!error, kSafetensors, file, ": cannot read: ", error.message());
  out.in.open(path, std::ios::binary);
  check<IoError>(out.in.is_open(), kSafetensors, file, ": cannot read");
  check<IoError>(size >= 8, kSafetensors, file, ": a file begins with 8 bytes of header length, but it has ", size, " bytes");
  char head[9] = {};
  out.in.read(head, sizeof head);
  if (out.in.gcount() < 9 || head[8] != '{') refuse_other_file<IoError>(kSafetensors, path, head_of_file(path));
  out.in.clear();
  out.in.seekg(0);
  uint64_t length = 0;
  out.read(&length, 8, path);
  check<IoError>(length <= kMaxSafetensorsHeader, kSafetensors, file, ": a header may have ", kMaxSafetensorsHeader,
                 " bytes, this one says ", length);
  check<IoError>(length <= size - 8, kSafetensors, file, ": the header says ", length, " bytes, but ", size - 8, " follow");
  std::string json(size_t(length), '\0');
  out.read(json.data(), length, path);
  out.header = parse_safetensors_header(json, size - 8 - length, file);
  out.header.data_offset = 8 + length;
  return out;
}

// Converts types that the framework lacks, and bool, where bytes other than 0 and 1 must not get into memory.
template <class From, class To>
void convert(const std::vector<char>& raw, const Tensor& out, const fs::path& path) {
  To* to = static_cast<To*>(out.view().data);
  for (int64_t i = 0; i < out.numel(); ++i) {
    From value;
    std::memcpy(&value, raw.data() + size_t(i) * sizeof(From), sizeof(From));
    if constexpr (sizeof(From) == 8) {
      check<IoError>(value <= From(std::numeric_limits<To>::max()), kSafetensors, path.string(),
                     ": a U64 value does not fit int64: ", value);
    }
    to[i] = To(value);
  }
}

// Returns the tensors whose dtypes halfstep has, and adds the others to `others`. With Unread::refuse, throws IoError for these.
std::vector<const TensorEntry*> readable_entries(const OpenFile& file, const fs::path& path, Unread unread,
                                                 std::vector<UnreadTensor>& others) {
  std::vector<const TensorEntry*> out;
  for (const TensorEntry& entry : file.header.entries) {
    if (find_safetensors_type(entry.dtype)) {
      out.push_back(&entry);
      continue;
    }
    const std::string dtype = printable(entry.dtype, 40);
    others.push_back(
        {entry.name, dtype,
         joined(path.string(), ": tensor \"", printable(entry.name), "\" has the dtype \"", dtype, "\", which is not supported",
                Help{joined("in Python, import torch; from safetensors.torch import load_file, save_file; save_file({k: ",
                            dtype[0] == 'C' ? "torch.view_as_real(t) if t.is_complex()"
                                            : "t.to(torch.float32) if t.is_floating_point() and t.itemsize == 1",
                            " else t for k, t in load_file(\"", printable(path.string(), 300),
                            "\").items()}, \"weights.safetensors\")")}),
         Shape(std::span<const int64_t>(entry.shape))});
    check<IoError>(unread == Unread::list, kSafetensors, others.back().fault);
  }
  return out;
}

Tensor read_tensor(OpenFile& file, const TensorEntry& entry, const fs::path& path) {
  const SafetensorsType& type = *find_safetensors_type(entry.dtype);
  const Tensor out = Tensor::empty(Shape(std::span<const int64_t>(entry.shape)), {.dtype = type.dtype, .device = Device::cpu});
  const uint64_t bytes = entry.end - entry.begin;
  if (bytes == 0) return out;
  if (safetensors_name(type.dtype) == entry.dtype && type.dtype != DType::boolean) {
    file.read(out.view().data, bytes, path);
    return out;
  }
  std::vector<char> raw(bytes);
  file.read(raw.data(), bytes, path);
  if (entry.dtype == "BOOL") convert<uint8_t, bool>(raw, out, path);
  if (entry.dtype == "U16") convert<uint16_t, int32_t>(raw, out, path);
  if (entry.dtype == "U32") convert<uint32_t, int64_t>(raw, out, path);
  if (entry.dtype == "U64") convert<uint64_t, int64_t>(raw, out, path);
  return out;
}

std::string quoted(const std::string& text) {
  try {
    return nlohmann::json(text).dump();
  } catch (const nlohmann::json::exception&) { fail<ValueError>(kSafetensors, "names and metadata must be UTF-8"); }
}

}  // namespace

bool is_safetensors(const fs::path& path) {
  std::error_code error;
  const uint64_t size = fs::file_size(path, error);
  std::ifstream in(path, std::ios::binary);
  struct {
    uint64_t length;
    char first[8];
  } head{};
  in.read(reinterpret_cast<char*>(&head), 9);
  return !error && in.gcount() == 9 && head.length <= size - 8 && head.first[0] == '{';
}

SafetensorsHeader read_safetensors_header(const fs::path& path) { return open(path).header; }

TensorFile load_safetensors(const fs::path& path, Device device) {
  OpenFile file = open(path);
  TensorFile out;
  out.metadata = file.header.metadata;
  for (const TensorEntry* const readable : readable_entries(file, path, Unread::refuse, out.unread)) {
    const TensorEntry& entry = *readable;
    Tensor t = read_tensor(file, entry, path);
    if (!device.is_cpu()) {
      const Tensor host = t;
      t = Tensor::empty(host.shape(), {.dtype = host.dtype(), .device = device});
      if (host.nbytes() > 0) backend_for(device).copy_from_host(host.const_data_ptr(), t.view().data, host.nbytes());
    }
    out.tensors.emplace(entry.name, std::move(t));
  }
  return out;
}

TensorFile map_safetensors(const fs::path& path, Unread unread) {
  OpenFile file = open(path);
  TensorFile out;
  out.metadata = file.header.metadata;
  const uint64_t bytes = file.header.data_offset + (file.header.entries.empty() ? 0 : file.header.entries.back().end);
  const std::shared_ptr<void> pages = map_file(path, bytes, kSafetensors);
  for (const TensorEntry* const readable : readable_entries(file, path, unread, out.unread)) {
    const TensorEntry& entry = *readable;
    const SafetensorsType& type = *find_safetensors_type(entry.dtype);
    const uint64_t at = file.header.data_offset + entry.begin;
    const bool needs_no_conversion = safetensors_name(type.dtype) == entry.dtype && type.dtype != DType::boolean;
    if (needs_no_conversion && at % size_of(type.dtype) == 0 && entry.end > entry.begin) {
      const Shape shape(std::span<const int64_t>(entry.shape));
      out.tensors.emplace(entry.name, Tensor::from_blob(static_cast<char*>(pages.get()) + at, shape, type.dtype, pages));
    } else {
      file.in.seekg(std::streamoff(at));
      out.tensors.emplace(entry.name, read_tensor(file, entry, path));
    }
  }
  return out;
}

void save_safetensors(const fs::path& path, const TensorMap& tensors, const std::map<std::string, std::string>& metadata) {
  write_safetensors(path, tensors, metadata, Waits::yes);
}

void write_safetensors(const fs::path& path, const TensorMap& tensors, const std::map<std::string, std::string>& metadata,
                       Waits waits) {
  std::vector<const TensorMap::value_type*> order;
  for (const auto& item : tensors) {
    check<ValueError>(item.second.defined(), kSafetensors, "tensor \"", item.first, "\" is undefined");
    check<ValueError>(item.first != "__metadata__", kSafetensors, "a tensor must not be named \"__metadata__\"");
    order.push_back(&item);
  }
  std::stable_sort(order.begin(), order.end(),
                   [](auto* a, auto* b) { return size_of(a->second.dtype()) > size_of(b->second.dtype()); });

  std::string header = "{";
  if (!metadata.empty()) {
    header += "\"__metadata__\":{";
    for (const auto& [key, value] : metadata) header += quoted(key) + ':' + quoted(value) + ',';
    header.back() = '}';
    header += ',';
  }
  size_t at = 0;
  for (const auto* item : order) {
    const Tensor& t = item->second;
    header += quoted(item->first) + ":{\"dtype\":\"" + std::string(safetensors_name(t.dtype())) + "\",\"shape\":[";
    for (int d = 0; d < t.dim(); ++d) header += (d ? "," : "") + std::to_string(t.shape()[d]);
    header += "],\"data_offsets\":[" + std::to_string(at) + ',' + std::to_string(at + t.nbytes()) + "]},";
    at += t.nbytes();
  }
  if (header.back() == ',') header.pop_back();
  header += '}';
  header.resize((header.size() + 7) / 8 * 8, ' ');  // so that the data begins at a multiple of 8

  AtomicFile file(path);
  const uint64_t length = header.size();
  file.write(&length, 8);
  file.write(header.data(), header.size());
  for (const auto* item : order) {
    const Tensor host = host_contiguous(item->second);
    if (host.nbytes() > 0) file.write(host.const_data_ptr(), host.nbytes());
  }
  file.commit(waits);
}

}  // namespace halfstep
