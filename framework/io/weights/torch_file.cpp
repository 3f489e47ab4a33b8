// SPDX-License-Identifier: Apache-2.0
#include "framework/io/weights/torch_file.h"

#include <bit>
#include <cstdint>
#include <cstring>
#include <fstream>
#include <map>
#include <memory>
#include <set>
#include <string_view>
#include <system_error>
#include <tuple>
#include <utility>

#include "framework/backend/backend.h"
#include "framework/base/check.h"
#include "framework/io/files/atomic_file.h"
#include "framework/io/files/mapped_file.h"
#include "framework/io/files/other_file.h"
#include "framework/io/files/printable.h"
#include "framework/io/files/zip.h"
#include "framework/io/weights/torch_pickle.h"
#include "framework/io/weights/torch_state.h"

namespace halfstep {
namespace {

namespace fs = std::filesystem;
static_assert(std::endian::native == std::endian::little, "the files are little-endian and are read without swapping");

constexpr const char* kTorchFile = "torch_file";
constexpr std::string_view kZipMagic = "PK\3\4";
constexpr std::string_view kLegacyMagic{"\x6c\xfc\x9c\x46\xf9\x20\x6a\xa8\x50\x19", 10};  // an integer, first in the old format
constexpr int64_t kLegacyProtocol = 1001;
constexpr uint64_t kExtraBytes = uint64_t(64) << 20;  // that tensors may need beyond twice the bytes of the file
constexpr size_t kHead = 9;                           // bytes that begins_as_torch() needs

// Returns whether a file begins like one of torch.save. The 9th byte of a safetensors file is always '{', of a torch.save file
// never.
bool begins_as_torch(std::string_view head) {
  const bool pickle = head.size() >= 2 && head[0] == '\x80' && head[1] >= 2 && head[1] <= 5;
  return head.size() >= kHead && head[8] != '{' && (head.starts_with(kZipMagic) || pickle);
}

// The storages of a file, to which its pickle refers.
class TorchSource {
 public:
  virtual ~TorchSource() = default;
  virtual const Pickle& pickle() const = 0;
  // Returns the bytes of a storage.
  virtual std::string_view find(const TorchStorage& storage) = 0;
};

// The zip format: NAME/data.pkl, and NAME/data/KEY for each storage. Archives of TorchScript have the same beside their program.
class ZipSource : public TorchSource {
 public:
  ZipSource(const std::string& file, std::string_view bytes)
      : file_(file), file_bytes_(bytes.size()), zip_(file, bytes), pickle_(read_torch_pickle(file, pickle_bytes())) {}
  const Pickle& pickle() const override { return pickle_; }

  std::string_view find(const TorchStorage& storage) override {
    const auto [at, is_new] = found_.try_emplace(storage.key);
    if (!is_new) return at->second;
    const std::string entry = joined(root_, "/data/", storage.key);
    check<DataError>(zip_.has(entry), kTorchFile, file_, ": is damaged: it lacks the values of \"", printable(storage.key, 40),
                     '"');
    at->second = zip_.stored(entry);
    checked_bytes_ += at->second.size();  // overlapping entries would be checked many times
    check<DataError>(checked_bytes_ <= file_bytes_, kTorchFile, file_, ": is damaged: parts of it overlap");
    return at->second;
  }

 private:
  std::string_view pickle_bytes() {
    check<DataError>(!zip_.names().empty(), kTorchFile, file_, ": the archive is empty");
    const std::string& first = zip_.names()[0];
    root_ = first.substr(0, first.find('/'));
    if (!zip_.has(root_ + "/data.pkl")) refuse_other_file<DataError>(kTorchFile, file_, head_of_file(file_));
    check<DataError>(zip_.has(root_ + "/data.pkl"), kTorchFile, file_,
                     ": an archive of torch.save has a data.pkl, this one begins with \"", printable(first, 60), '"');
    const std::string order = root_ + "/byteorder";
    check<DataError>(!zip_.has(order) || zip_.stored(order) == "little", kTorchFile, file_,
                     ": must come from a little-endian machine, got byteorder \"",
                     zip_.has(order) ? printable(zip_.stored(order), 20) : "", '"');
    return zip_.stored(root_ + "/data.pkl");
  }

  const std::string& file_;
  const uint64_t file_bytes_;
  const ZipFile zip_;
  std::string root_;
  const Pickle pickle_;  // points into zip_'s bytes
  std::map<std::string_view, std::string_view> found_;
  uint64_t checked_bytes_ = 0;
};

// The format before PyTorch 1.6: five pickles in a row, then the storages, each preceded by its number of elements.
class LegacySource : public TorchSource {
 public:
  LegacySource(const std::string& file, std::string_view bytes) : file_(file), bytes_(bytes), pickle_(read_pickles()) {
    read_storages();
  }
  const Pickle& pickle() const override { return pickle_; }
  std::string_view find(const TorchStorage& storage) override {
    const auto at = found_.find(storage.key);
    check<DataError>(at != found_.end(), kTorchFile, file_, ": is damaged: it lacks the values of \"", printable(storage.key, 40),
                     '"');
    return at->second;
  }

 private:
  // Reads the next pickle of the file.
  Pickle next() {
    Pickle out = read_torch_pickle(file_, bytes_.substr(at_));
    at_ += out.size();
    return out;
  }
  Pickle read_pickles() {
    const Pickle magic = next();
    check<DataError>(magic.root().kind == PickleValue::Kind::large && magic.root().text == kLegacyMagic, kTorchFile, file_,
                     ": must be a file of torch.save, got a pickle of another program",
                     Help{joined("in Python, where it is a dictionary of arrays: import pickle, torch; torch.save({k: "
                                 "torch.as_tensor(v) for k, v in pickle.load(open(\"",
                                 printable(file_, 300), "\", \"rb\")).items()}, \"weights.pt\")")});
    const Pickle protocol = next();
    check<DataError>(protocol.root().integer == kLegacyProtocol, kTorchFile, file_, ": the old format's version must be ",
                     kLegacyProtocol, ", got ", protocol.root().integer);
    const Pickle system = next();
    const auto& entries = system.root().items;
    for (size_t i = 0; i + 1 < entries.size() && system.root().kind == PickleValue::Kind::map; i += 2) {
      const bool is_big_endian = system[entries[i]].text == "little_endian" && system[entries[i + 1]].integer == 0;
      check<DataError>(!is_big_endian, kTorchFile, file_, ": must come from a little-endian machine, got a big-endian one");
    }
    return next();
  }
  void read_storages() {
    std::map<std::string_view, uint64_t> element_bytes;
    for (const PickleValue& value : pickle_.values()) {
      if (value.kind != PickleValue::Kind::persistent) continue;
      const auto storage = torch_storage_of(file_, pickle_, value);
      if (!storage) continue;
      check<DataError>(element_bytes.emplace(storage->key, storage->element_bytes).first->second == storage->element_bytes,
                       kTorchFile, file_, ": is damaged: a storage has two types");
    }
    const Pickle keys = next();
    for (const uint32_t item : keys.root().items) {
      const auto known = element_bytes.find(keys[item].text);
      check<DataError>(known != element_bytes.end(), kTorchFile, file_, ": is damaged: it has values that nothing refers to");
      uint64_t elements = 0, bytes = 0;
      check<DataError>(bytes_.size() - at_ >= sizeof(elements), kTorchFile, file_, ": is cut off");
      std::memcpy(&elements, bytes_.data() + at_, sizeof(elements));
      at_ += sizeof(elements);
      const bool fits = !__builtin_mul_overflow(elements, known->second, &bytes) && bytes <= bytes_.size() - at_;
      check<DataError>(fits, kTorchFile, file_, ": is cut off: a storage must have ", elements, " elements, but ",
                       bytes_.size() - at_, " bytes follow");
      found_.emplace(known->first, bytes_.substr(at_, bytes));
      at_ += bytes;
    }
  }

  const std::string& file_;
  const std::string_view bytes_;
  size_t at_ = 0;
  const Pickle pickle_;
  std::map<std::string_view, std::string_view> found_;
};

// Copies the elements of a strided tensor, of `size` bytes each, to `to` in row-major order.
template <size_t size>
void copy_strided(const char* from, const TorchTensor& t, char* to) {
  const size_t dims = t.sizes.size();
  const uint64_t inner = uint64_t(t.sizes[dims - 1]), step = uint64_t(t.strides[dims - 1]) * size;
  std::vector<int64_t> at(dims, 0);
  for (const char* end = to + t.bytes; to < end;) {
    const char* row = from;
    for (size_t d = 0; d + 1 < dims; ++d) row += uint64_t(at[d]) * uint64_t(t.strides[d]) * size;
    for (uint64_t i = 0; i < inner; ++i, to += size) std::memcpy(to, row + i * step, size);
    for (size_t d = dims - 1; d-- > 0;) {
      if (++at[d] < t.sizes[d]) break;
      at[d] = 0;
    }
  }
}

// Returns whether the elements follow each other in row-major order.
bool is_dense(const TorchTensor& t) {
  uint64_t expected = 1;
  for (size_t d = t.sizes.size(); d-- > 0;) {
    if (t.sizes[d] != 1 && uint64_t(t.strides[d]) != expected) return false;
    expected *= uint64_t(t.sizes[d]);
  }
  return true;
}

// Makes tensors of the values in the file, within the memory that a file of its size may need.
class TensorMaker {
 public:
  // pages: the mapped file, if the memory of tensors may be its pages; else null.
  TensorMaker(const std::string& file, TorchSource& source, uint64_t file_bytes, std::shared_ptr<void> pages, Device device)
      : file_(file), source_(source), pages_(std::move(pages)), device_(device), bytes_left_(2 * file_bytes + kExtraBytes) {}

  Tensor make(std::string_view name, const TorchTensor& t) {
    if (t.bytes == 0) return Tensor::empty(Shape(t.sizes), {.dtype = t.dtype, .device = device_});
    const auto [at, is_new] = made_.try_emplace({t.storage.key, t.dtype, t.offset, t.sizes, t.strides});
    if (!is_new) return at->second.alias(at->second.shape(), at->second.strides());
    const std::string_view bytes = source_.find(t.storage);
    check<DataError>(bytes.size() == t.storage.elements * t.storage.element_bytes, kTorchFile, file_, ": is damaged: \"",
                     printable(name), "\" has a storage of ", t.storage.elements, " elements, for which the file has ",
                     bytes.size(), " bytes");
    at->second = tensor_at(name, t, bytes.data() + t.offset * size_of(t.dtype));
    return at->second;
  }

 private:
  // Returns the tensor whose first element is at `from`.
  Tensor tensor_at(std::string_view name, const TorchTensor& t, const char* from) {
    const size_t size = size_of(t.dtype);
    const bool dense = is_dense(t), aligned = std::bit_cast<uintptr_t>(from) % size == 0;
    if (pages_ && dense && aligned && t.dtype != DType::boolean)
      return Tensor::from_blob(const_cast<char*>(from), Shape(t.sizes), t.dtype, pages_);
    check<DataError>(t.bytes <= bytes_left_, kTorchFile, file_, ": \"", printable(name), "\" of ", t.bytes,
                     " bytes is too much: tensors may need twice the bytes of the file and 64 MiB, ", bytes_left_,
                     " of which are left");
    bytes_left_ -= t.bytes;
    const Tensor host = Tensor::empty(Shape(t.sizes), {.dtype = t.dtype, .device = Device::cpu});
    char* to = static_cast<char*>(host.view().data);
    if (dense)
      std::memcpy(to, from, t.bytes);
    else if (size == 1)
      copy_strided<1>(from, t, to);
    else if (size == 2)
      copy_strided<2>(from, t, to);
    else if (size == 4)
      copy_strided<4>(from, t, to);
    else
      copy_strided<8>(from, t, to);
    if (t.dtype == DType::boolean)  // bytes other than 0 and 1 must not get into memory
      for (uint64_t i = 0; i < t.bytes; ++i) to[i] = to[i] != 0;
    if (device_.is_cpu()) return host;
    const Tensor out = Tensor::empty(host.shape(), {.dtype = t.dtype, .device = device_});
    backend_for(device_).copy_from_host(host.const_data_ptr(), out.view().data, host.nbytes());
    return out;
  }

  const std::string& file_;
  TorchSource& source_;
  const std::shared_ptr<void> pages_;
  const Device device_;
  uint64_t bytes_left_;  // that may still be allocated
  std::map<std::tuple<std::string_view, DType, uint64_t, std::vector<int64_t>, std::vector<int64_t>>, Tensor> made_;
};

// Returns a remedy: Python code that loads a dictionary and saves it with the tensors for which `condition` holds replaced by
// `conversion`. Empty without a conversion.
std::string python_remedy(const std::string& load, std::string_view conversion, std::string_view condition) {
  if (conversion.empty()) return "";
  return joined("\nhelp: in Python, import torch; torch.save({k: ", conversion, " if ", condition, " else t for k, t in ", load,
                ".items()}, \"weights.pt\")");
}

// Describes the entries of the file that are not halfstep tensors.
class UnreadDescriber {
 public:
  UnreadDescriber(const std::string& file, const Pickle& pickle, const std::string& key)
      : file_(file), pickle_(pickle), load_(torch_load_code(file, pickle, key)) {}
  UnreadTensor describe_tensor(std::string_view name, const TorchTensor& t) const {
    std::string fault =
        joined(file_, ": \"", printable(name),
               "\" must be a dense tensor of float32, float64, float16, bfloat16, int64, int32, int16, int8, uint8 or "
               "bool, got ",
               t.unsupported, python_remedy(load_, t.conversion, "torch.is_tensor(t) and " + t.condition));
    return {std::string(name), t.unsupported, std::move(fault), Shape(t.sizes)};
  }
  UnreadTensor describe_object(std::string_view name, const PickleValue& value) const {
    const std::string type = pickle_class(pickle_, value);
    const bool is_numpy_array = type.starts_with("numpy.") && type.ends_with("._reconstruct");
    std::string fault = joined(file_, ": \"", printable(name), "\" must be a tensor, got the Python object ", type,
                               ", which is not loaded and not run",
                               python_remedy(load_, is_numpy_array ? "torch.as_tensor(t)" : "", "type(t).__name__ == \"ndarray\""));
    return {std::string(name), "the Python object " + type, std::move(fault), {}, false};
  }

 private:
  const std::string& file_;
  const Pickle& pickle_;
  const std::string load_;
};

// Reads a file; maps: the memory of tensors may be the pages of the mapped file.
TorchFile read_torch_file(const fs::path& path, const TorchFileOptions& options, bool maps, Device device) {
  check_path(path);
  const std::string file = path.string();
  std::error_code error;
  const uint64_t size = fs::file_size(path, error);
  check<IoError>(!error, kTorchFile, file, ": cannot read: ", error.message());
  check<DataError>(size > 0, kTorchFile, file, ": is empty");
  const std::shared_ptr<void> pages = map_file(path, size, kTorchFile);
  const std::string_view bytes(static_cast<const char*>(pages.get()), size);
  if (!begins_as_torch(bytes.substr(0, kHead))) refuse_other_file<DataError>(kTorchFile, path, bytes);
  check<DataError>(begins_as_torch(bytes.substr(0, kHead)), kTorchFile, file,
                   ": must be a file of torch.save, which begins as a zip archive or a pickle, got \"",
                   printable(bytes.substr(0, kHead)), '"');
  std::unique_ptr<TorchSource> source;
  if (bytes.starts_with(kZipMagic))
    source = std::make_unique<ZipSource>(file, bytes);
  else
    source = std::make_unique<LegacySource>(file, bytes);
  const Pickle& pickle = source->pickle();
  TensorMaker maker(file, *source, size, maps ? pages : nullptr, device);
  const TorchState state = find_torch_state(file, pickle, options.key);
  TorchFile out;
  out.key = state.key;
  out.model = state.model;
  out.others = state.others;
  std::set<std::string_view> names;
  const UnreadDescriber describer(file, pickle, state.key);
  for (const auto& [name, value] : state.tensors) {
    check<DataError>(names.insert(name).second, kTorchFile, file, ": is damaged: two tensors are named \"", printable(name), '"');
    const TorchTensor t = torch_tensor_of(file, name, pickle, *value);
    if (!t.unsupported.empty()) {
      out.unread.push_back(describer.describe_tensor(name, t));
      check<DataError>(options.list_unread, kTorchFile, out.unread.back().fault);
      continue;
    }
    out.tensors.emplace(name, maker.make(name, t));
    out.names.push_back(name);
  }
  for (const auto& [name, value] : state.objects)
    if (options.list_unread) out.unread.push_back(describer.describe_object(name, *value));
  return out;
}

}  // namespace

bool is_torch_file(const fs::path& path) {
  std::ifstream in(path, std::ios::binary);
  char head[kHead];
  in.read(head, kHead);
  return begins_as_torch({head, size_t(in.gcount())});
}

TorchFile load_torch_file(const fs::path& path, Device device, const TorchFileOptions& options) {
  return read_torch_file(path, options, false, device);
}

TorchFile map_torch_file(const fs::path& path, const TorchFileOptions& options) {
  return read_torch_file(path, options, true, Device::cpu);
}

}  // namespace halfstep
