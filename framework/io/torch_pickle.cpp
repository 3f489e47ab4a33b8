// SPDX-License-Identifier: Apache-2.0
#include "framework/io/torch_pickle.h"

#include <algorithm>
#include <array>
#include <limits>
#include <set>

#include "framework/base/check.h"
#include "framework/base/shape.h"
#include "framework/io/printable.h"

namespace halfstep {
namespace {

using Kind = PickleValue::Kind;

constexpr const char* kTorch = "torch_file";
constexpr size_t kMaxKey = 200;  // PyTorch writes decimal numbers

// What a name of PyTorch is for.
enum class Role : uint8_t {
  storage,    // the type of a storage
  dtype,      // torch.float32
  tensor,     // makes a tensor of (storage, offset, sizes, strides, ...)
  typed,      // the same with the dtype as argument 6
  parameter,  // makes a parameter of (tensor, ...)
  refused,    // makes a tensor of a kind that halfstep does not have
  inert,      // of no meaning for weights
};
struct TorchName {
  std::string_view module, name;
  Role role;
  uint8_t element_bytes = 0;
  std::optional<DType> dtype{};
  std::string_view words{};  // of what is refused
};

constexpr TorchName kNames[] = {
    {"torch", "FloatStorage", Role::storage, 4, DType::f32},
    {"torch", "DoubleStorage", Role::storage, 8, DType::f64},
    {"torch", "HalfStorage", Role::storage, 2, DType::f16},
    {"torch", "BFloat16Storage", Role::storage, 2, DType::bf16},
    {"torch", "LongStorage", Role::storage, 8, DType::i64},
    {"torch", "IntStorage", Role::storage, 4, DType::i32},
    {"torch", "ShortStorage", Role::storage, 2, DType::i16},
    {"torch", "CharStorage", Role::storage, 1, DType::i8},
    {"torch", "ByteStorage", Role::storage, 1, DType::u8},
    {"torch", "BoolStorage", Role::storage, 1, DType::boolean},
    {"torch", "ComplexFloatStorage", Role::storage, 8},
    {"torch", "ComplexDoubleStorage", Role::storage, 16},
    {"torch", "QInt8Storage", Role::storage, 1},
    {"torch", "QUInt8Storage", Role::storage, 1},
    {"torch", "QInt32Storage", Role::storage, 4},
    {"torch.storage", "UntypedStorage", Role::storage, 1},
    {"torch.storage", "TypedStorage", Role::storage, 1},
    {"torch", "float32", Role::dtype, 4, DType::f32},
    {"torch", "float64", Role::dtype, 8, DType::f64},
    {"torch", "float16", Role::dtype, 2, DType::f16},
    {"torch", "bfloat16", Role::dtype, 2, DType::bf16},
    {"torch", "int64", Role::dtype, 8, DType::i64},
    {"torch", "int32", Role::dtype, 4, DType::i32},
    {"torch", "int16", Role::dtype, 2, DType::i16},
    {"torch", "int8", Role::dtype, 1, DType::i8},
    {"torch", "uint8", Role::dtype, 1, DType::u8},
    {"torch", "bool", Role::dtype, 1, DType::boolean},
    {"torch", "uint16", Role::dtype},
    {"torch", "uint32", Role::dtype},
    {"torch", "uint64", Role::dtype},
    {"torch", "complex32", Role::dtype},
    {"torch", "complex64", Role::dtype},
    {"torch", "complex128", Role::dtype},
    {"torch", "float8_e4m3fn", Role::dtype},
    {"torch", "float8_e4m3fnuz", Role::dtype},
    {"torch", "float8_e5m2", Role::dtype},
    {"torch", "float8_e5m2fnuz", Role::dtype},
    {"torch._utils", "_rebuild_tensor", Role::tensor},
    {"torch._utils", "_rebuild_tensor_v2", Role::tensor},
    {"torch._utils", "_rebuild_tensor_v3", Role::typed},
    {"torch._utils", "_rebuild_parameter", Role::parameter},
    {"torch._utils", "_rebuild_parameter_with_state", Role::parameter},
    {"torch._utils", "_rebuild_sparse_tensor", Role::refused, 0, {}, "a sparse tensor: save its to_dense()"},
    {"torch._utils", "_rebuild_qtensor", Role::refused, 0, {}, "a quantised tensor: save its dequantize()"},
    {"torch._utils", "_rebuild_nested_tensor", Role::refused, 0, {}, "a nested tensor: save its parts"},
    {"torch._utils", "_rebuild_meta_tensor_no_storage", Role::refused, 0, {}, "a tensor of the device meta, which has no values"},
    {"torch", "Size", Role::inert},
    {"torch", "device", Role::inert},
    {"torch", "per_tensor_affine", Role::inert},
    {"torch", "per_channel_affine", Role::inert},
    {"torch.serialization", "_get_layout", Role::inert},
};

// Anything but tensors would have to be run to be read.
constexpr const char* kHow =
    "in Python, torch.save(model.state_dict(), \"weights.pt\") writes tensors alone; or convert it:\n"
    "  from safetensors.torch import save_file\n"
    "  save_file(torch.load(\"old.pt\", weights_only=False).state_dict(), \"weights.safetensors\")";

const TorchName* name_of(const Pickle& pickle, uint32_t value) {
  const PickleValue& v = pickle[value];
  return v.kind == Kind::global && v.integer >= 0 ? &kNames[v.integer] : nullptr;
}
// Which function of PyTorch makes the value; null for any other value.
const TorchName* maker_of(const Pickle& pickle, const PickleValue& value) {
  return value.kind == Kind::call ? name_of(pickle, value.items[0]) : nullptr;
}

// The parts of one tensor, with errors that name it.
class TensorReader {
 public:
  TensorReader(const std::string& file, std::string_view name, const Pickle& pickle) : file_(file), name_(name), pickle_(pickle) {}

  TorchTensor read(const PickleValue* value) const {
    const TorchName* maker = maker_of(pickle_, *value);
    if (maker->role == Role::parameter) {
      const auto& arguments = pickle_[value->items[1]].items;
      if (arguments.empty()) fault("has a parameter without a tensor");
      value = &pickle_[arguments[0]];
      maker = maker_of(pickle_, *value);
      if (!maker || maker->role == Role::parameter) fault("has a parameter of something that is no tensor");
    }
    if (maker->role == Role::refused) fault("is ", maker->words);
    const auto& arguments = pickle_[value->items[1]].items;
    const bool typed = maker->role == Role::typed;
    if ((maker->role != Role::tensor && !typed) || arguments.size() < (typed ? 7 : 4)) fault("lacks parts of a tensor");
    const PickleValue& storage = pickle_[arguments[0]];
    if (storage.kind != Kind::persistent) fault("has no storage");
    TorchTensor out;
    out.storage = torch_storage_of(file_, pickle_, storage);
    out.dtype = typed ? dtype_of(arguments[6]) : dtype_of(out.storage);
    out.offset = uint64_t(integer(arguments[1]));
    out.sizes = integers(arguments[2]);
    out.strides = integers(arguments[3]);
    place(out);
    return out;
  }

 private:
  template <class... Parts>
  [[noreturn]] void fault(const Parts&... parts) const {
    fail<DataError>(kTorch, file_, ": \"", printable(name_), "\" ", parts...);
  }

  DType dtype_of(const TorchStorage& storage) const {
    if (!storage.dtype) {
      fault("must have one of the dtypes float32, float64, float16, bfloat16, int64, int32, int16, int8, uint8 and bool, got a ",
            storage.type, Help{"convert it before saving: tensor.to(torch.float32)"});
    }
    return *storage.dtype;
  }
  DType dtype_of(uint32_t value) const {
    const TorchName* name = name_of(pickle_, value);
    if (!name || name->role != Role::dtype) fault("has no dtype");
    if (!name->dtype) {
      fault("must have one of the dtypes float32, float64, float16, bfloat16, int64, int32, int16, int8, uint8 and bool, got ",
            name->name, Help{"convert it before saving: tensor.to(torch.float32)"});
    }
    return *name->dtype;
  }

  int64_t integer(uint32_t value) const {
    const PickleValue& v = pickle_[value];
    if (v.kind != Kind::integer || v.integer < 0)
      fault("must have sizes, strides and an offset that are integers of at least 0, got ",
            v.kind == Kind::integer ? std::to_string(v.integer) : std::string(pickle_kind_words(v.kind)));
    return v.integer;
  }
  std::vector<int64_t> integers(uint32_t value) const {
    const PickleValue* v = &pickle_[value];
    if (const TorchName* maker = maker_of(pickle_, *v); maker && maker->name == "Size" && !pickle_[v->items[1]].items.empty())
      v = &pickle_[pickle_[v->items[1]].items[0]];
    if (v->kind != Kind::tuple) fault("must have a tuple of sizes and one of strides, got ", pickle_kind_words(v->kind));
    if (v->items.size() > size_t(kMaxDims)) fault("may have ", kMaxDims, " dimensions, got ", v->items.size());
    std::vector<int64_t> out;
    for (const uint32_t item : v->items) out.push_back(integer(item));
    return out;
  }

  // Checks that all elements lie in the storage, and computes `bytes`.
  void place(TorchTensor& t) const {
    const TorchStorage& s = t.storage;
    if (t.sizes.size() != t.strides.size()) fault("has ", t.sizes.size(), " sizes, but ", t.strides.size(), " strides");
    uint64_t last = 0;
    bool overflow = __builtin_add_overflow(t.offset, s.first, &t.offset);
    t.bytes = size_of(t.dtype);
    const bool empty = std::find(t.sizes.begin(), t.sizes.end(), 0) != t.sizes.end();
    for (size_t d = 0; d < t.sizes.size() && !empty; ++d) {
      uint64_t reach = 0;
      overflow |= __builtin_mul_overflow(t.bytes, uint64_t(t.sizes[d]), &t.bytes);
      overflow |= __builtin_mul_overflow(uint64_t(t.sizes[d] - 1), uint64_t(t.strides[d]), &reach);
      overflow |= __builtin_add_overflow(last, reach, &last);
    }
    if (empty) {
      t.bytes = 0;
      return;
    }
    overflow |= __builtin_add_overflow(last, t.offset, &last);
    const uint64_t held = s.elements * s.element_bytes / size_of(t.dtype);
    if (overflow || last >= held || t.bytes > uint64_t(std::numeric_limits<int64_t>::max()))
      fault("must lie in its storage of ", held, " elements, got an offset of ", t.offset, ", sizes ", Shape(t.sizes),
            " and strides ", Strides(t.strides));
  }

  const std::string& file_;
  std::string_view name_;
  const Pickle& pickle_;
};

// The keys of a dictionary, for messages.
std::string keys_of(const Pickle& pickle, const PickleValue& map) {
  std::string out;
  for (size_t i = 0; i < map.items.size() && out.size() < 400; i += 2) {
    const PickleValue& key = pickle[map.items[i]];
    out += i > 0 ? ", " : "";
    out += key.kind == Kind::text ? printable(key.text, 60) : key.kind == Kind::integer ? std::to_string(key.integer) : "?";
    if (out.size() >= 400) out += "...";
  }
  return out.empty() ? "none" : out;
}

bool has_tensors(const Pickle& pickle, const PickleValue& value) {
  if (value.kind != Kind::map) return false;
  for (size_t i = 1; i < value.items.size(); i += 2)
    if (is_torch_tensor(pickle, pickle[value.items[i]])) return true;
  return false;
}

// The dictionary of tensors that `root` is or has.
const PickleValue& choose_map(const std::string& file, const Pickle& pickle, const PickleValue& root) {
  constexpr std::array<std::string_view, 4> kUsual{"state_dict", "model_state_dict", "model", "module"};
  const PickleValue* found = nullptr;
  std::set<uint32_t> seen;  // one dictionary may be there under many keys
  for (size_t i = 0; i + 1 < root.items.size(); i += 2) {
    const PickleValue& key = pickle[root.items[i]];
    const bool usual = key.kind == Kind::text && std::find(kUsual.begin(), kUsual.end(), key.text) != kUsual.end();
    if (!usual || !seen.insert(root.items[i + 1]).second || !has_tensors(pickle, pickle[root.items[i + 1]])) continue;
    if (found) {
      fail<DataError>(kTorch, file, ": must have one state_dict, got several under the keys ", keys_of(pickle, root),
                      Help{"save the one that is meant: torch.save(checkpoint[\"model\"], \"weights.pt\")"});
    }
    found = &pickle[root.items[i + 1]];
  }
  if (found) return *found;
  if (!root.items.empty() && !has_tensors(pickle, root)) {
    fail<DataError>(kTorch, file,
                    ": must be a dictionary of tensors, or have one under \"state_dict\", \"model_state_dict\", \"model\" or "
                    "\"module\", got the keys ",
                    keys_of(pickle, root), Help{"save it alone: torch.save(checkpoint[\"...\"], \"weights.pt\")"});
  }
  return root;
}

}  // namespace

Pickle read_torch_pickle(const std::string& file, std::string_view bytes) {
  return Pickle(file, bytes, [&](std::string_view module, std::string_view name) -> int64_t {
    for (const TorchName& known : kNames)
      if (known.module == module && known.name == name) return &known - kNames;
    fail<DataError>(kTorch, file, ": may have tensors, names, numbers and containers, got the Python object ",
                    printable(module, 100), '.', printable(name, 100), ", which is not loaded and not run", Help{kHow});
  });
}

TorchStorage torch_storage_of(const std::string& file, const Pickle& pickle, const PickleValue& value) {
  const PickleValue& id = pickle[value.items[0]];
  const auto part = [&](size_t i) -> const PickleValue& { return pickle[id.items[i]]; };
  // ("storage", type, key, device, elements), and in very old files None or (key, first, elements) of a part of it.
  const bool whole = id.kind == Kind::tuple && id.items.size() >= 5 && part(0).text == "storage" && part(2).kind == Kind::text &&
                     part(4).kind == Kind::integer && part(4).integer >= 0;
  const TorchName* type = whole ? name_of(pickle, id.items[1]) : nullptr;
  check<DataError>(type && type->role == Role::storage, kTorch, file, ": is damaged: a storage lacks its type, key or size");
  // Many tensors may refer to one key, and each compares it: a long one would take time without bound.
  check<DataError>(part(2).text.size() <= kMaxKey, kTorch, file, ": is damaged: the key of a storage may have ", kMaxKey,
                   " bytes, got ", part(2).text.size());
  TorchStorage out{part(2).text, type->dtype, type->name, type->element_bytes, uint64_t(part(4).integer)};
  uint64_t bytes = 0;
  check<DataError>(!__builtin_mul_overflow(out.elements, out.element_bytes, &bytes), kTorch, file,
                   ": is damaged: the size of a storage overflows");
  if (id.items.size() > 5 && part(5).kind == Kind::tuple) {
    const auto& view = part(5).items;
    const bool good = view.size() == 3 && pickle[view[1]].kind == Kind::integer && pickle[view[1]].integer >= 0;
    check<DataError>(good, kTorch, file, ": is damaged: a part of a storage has no place");
    out.first = uint64_t(pickle[view[1]].integer);
  }
  return out;
}

bool is_torch_tensor(const Pickle& pickle, const PickleValue& value) {
  const TorchName* maker = maker_of(pickle, value);
  return maker && maker->role != Role::inert && maker->role != Role::storage && maker->role != Role::dtype;
}

TorchTensor torch_tensor_of(const std::string& file, std::string_view name, const Pickle& pickle, const PickleValue& value) {
  return TensorReader(file, name, pickle).read(&value);
}

std::vector<std::pair<std::string_view, const PickleValue*>> find_state_dict(const std::string& file, const Pickle& pickle) {
  const PickleValue& root = pickle.root();
  check<DataError>(root.kind == Kind::map, kTorch, file, ": must have a dictionary of tensors, got ",
                   is_torch_tensor(pickle, root) ? "a tensor" : pickle_kind_words(root.kind), Help{kHow});
  const PickleValue& map = choose_map(file, pickle, root);
  std::vector<std::pair<std::string_view, const PickleValue*>> out;
  for (size_t i = 0; i + 1 < map.items.size(); i += 2) {
    const PickleValue &key = pickle[map.items[i]], &value = pickle[map.items[i + 1]];
    if (!is_torch_tensor(pickle, value)) continue;
    check<DataError>(key.kind == Kind::text, kTorch, file, ": a tensor's name must be a text, got ", pickle_kind_words(key.kind));
    out.emplace_back(key.text, &value);
  }
  return out;
}

}  // namespace halfstep
