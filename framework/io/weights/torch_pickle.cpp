// SPDX-License-Identifier: Apache-2.0
#include "framework/io/weights/torch_pickle.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "framework/base/check.h"
#include "framework/base/shape.h"
#include "framework/io/files/printable.h"

namespace halfstep {
namespace {

using Kind = PickleValue::Kind;

constexpr const char* kTorch = "torch_file";
constexpr size_t kMaxKey = 200;   // bytes of a storage's key; PyTorch writes decimal numbers
constexpr int64_t kForeign = -2;  // a name that is not PyTorch's

// The role of a name of PyTorch.
enum class Role : uint8_t {
  storage,          // the type of a storage
  dtype,            // torch.float32
  tensor,           // makes a tensor of (storage, offset, sizes, strides, ...)
  tensor_of_dtype,  // the same with the dtype as argument 6
  parameter,        // makes a parameter of (tensor, ...)
  tensor_of_class,  // calls another function: (function, type, arguments, ...)
  refused,          // makes a tensor of a kind that halfstep lacks
  inert,            // irrelevant for weights
};
struct TorchName {
  std::string_view module, name;
  Role role;
  uint8_t element_bytes = 0;
  std::optional<DType> dtype{};
  std::string_view kind{}, conversion{}, condition{};  // as in TorchTensor, for Role::refused
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
    {"torch._utils", "_rebuild_tensor_v3", Role::tensor_of_dtype},
    {"torch._utils", "_rebuild_parameter", Role::parameter},
    {"torch._utils", "_rebuild_parameter_with_state", Role::parameter},
    {"torch._tensor", "_rebuild_from_type_v2", Role::tensor_of_class},
    {"torch._utils", "_rebuild_sparse_tensor", Role::refused, 0, {}, "a sparse tensor", "t.to_dense()", "t.is_sparse"},
    {"torch._utils", "_rebuild_qtensor", Role::refused, 0, {}, "a quantised tensor", "t.dequantize()", "t.is_quantized"},
    {"torch._utils", "_rebuild_nested_tensor", Role::refused, 0, {}, "a nested tensor", "t.to_padded_tensor(0)", "t.is_nested"},
    {"torch._utils", "_rebuild_meta_tensor_no_storage", Role::refused, 0, {}, "a tensor of the device meta, which has no values"},
    {"torch", "Size", Role::inert},
    {"torch", "device", Role::inert},
    {"torch", "per_tensor_affine", Role::inert},
    {"torch", "per_channel_affine", Role::inert},
    {"torch.serialization", "_get_layout", Role::inert},
};

// Returns the name of PyTorch that the value is; null for any other value.
const TorchName* name_of(const Pickle& pickle, uint32_t value) {
  const PickleValue& global = pickle[value];
  return global.kind == Kind::global && global.integer >= 0 ? &kNames[global.integer] : nullptr;
}
// Returns the function of PyTorch that makes the value; null for any other value.
const TorchName* maker_of(const Pickle& pickle, const PickleValue& value) {
  return value.kind == Kind::call ? name_of(pickle, value.items[0]) : nullptr;
}
bool makes_tensor(const TorchName* maker) {
  return maker && maker->role != Role::inert && maker->role != Role::storage && maker->role != Role::dtype;
}

// A function that makes a tensor, and its arguments.
struct Construction {
  const TorchName* maker = nullptr;
  const PickleValue* arguments = nullptr;
  size_t count() const { return arguments && arguments->kind == Kind::tuple ? arguments->items.size() : 0; }
  uint32_t operator[](size_t i) const { return arguments->items[i]; }
};
// Returns the maker of a tensor; for parameters and tensor subclasses, that of the inner tensor. Null if there is none.
Construction construction_of(const Pickle& pickle, const PickleValue& tensor) {
  constexpr int kMaxDepth = 3;  // a subclass of a parameter of a tensor
  Construction out{maker_of(pickle, tensor), &pickle[tensor.items[1]]};
  for (int depth = 0; depth < kMaxDepth && makes_tensor(out.maker); ++depth) {
    if (out.maker->role == Role::tensor_of_class) {
      out = out.count() < 3 ? Construction() : Construction{name_of(pickle, out[0]), &pickle[out[2]]};
    } else if (out.maker->role == Role::parameter) {
      const PickleValue* const inner = out.count() > 0 ? &pickle[out[0]] : nullptr;
      out = inner && is_torch_tensor(pickle, *inner) ? Construction{maker_of(pickle, *inner), &pickle[inner->items[1]]}
                                                     : Construction();
    } else {
      return out;
    }
  }
  return {};
}

// Reads the parts of one tensor, with errors that name it.
class TensorReader {
 public:
  TensorReader(const std::string& file, std::string_view name, const Pickle& pickle) : file_(file), name_(name), pickle_(pickle) {}

  TorchTensor read(const PickleValue& value) const {
    const Construction construction = construction_of(pickle_, value);
    if (!construction.maker) fail_tensor("has a parameter of something that is no tensor");
    TorchTensor out;
    if (construction.maker->role == Role::refused) {
      out.unsupported = construction.maker->kind;
      out.conversion = construction.maker->conversion;
      out.condition = construction.maker->condition;
      return out;
    }
    const bool has_dtype = construction.maker->role == Role::tensor_of_dtype;
    if (construction.count() < (has_dtype ? 7 : 4)) fail_tensor("lacks parts of a tensor");
    const size_t metadata = has_dtype ? 7 : 6;
    if (construction.count() > metadata && has_flag(pickle_[construction[metadata]], "neg")) {
      out.unsupported = "a tensor that is stored with the other sign";
      out.conversion = "t.resolve_neg()";
      out.condition = "t.is_neg()";
      return out;
    }
    const PickleValue& storage = pickle_[construction[0]];
    const auto memory = storage.kind == Kind::persistent ? torch_storage_of(file_, pickle_, storage) : std::nullopt;
    if (!memory) fail_tensor("has no storage");
    out.storage = *memory;
    out.offset = uint64_t(integer(construction[1]));
    out.sizes = integers(construction[2]);
    out.strides = integers(construction[3]);
    const TorchName* const name = has_dtype ? name_of(pickle_, construction[6]) : nullptr;
    if (has_dtype && (!name || name->role != Role::dtype)) fail_tensor("has no dtype");
    const std::optional<DType> dtype = has_dtype ? name->dtype : out.storage.dtype;
    if (dtype) {
      out.dtype = *dtype;
      locate(out);
      return out;
    }
    uint64_t elements = 1;
    bool overflow = false;
    for (const int64_t size : out.sizes) overflow |= __builtin_mul_overflow(elements, uint64_t(size), &elements);
    constexpr uint64_t kMostElements = uint64_t(1) << 48;  // more than any memory holds
    if (overflow || elements > kMostElements) fail_tensor("has sizes that are too large: ", Shape(out.sizes));
    out.unsupported = has_dtype ? name->name : out.storage.type;
    const bool complex = out.unsupported.find("omplex") != std::string::npos, quantised = out.unsupported.starts_with('Q');
    out.conversion = complex ? "torch.view_as_real(t)" : quantised ? "t.dequantize()" : "t.to(torch.float32)";
    out.condition = complex ? "t.is_complex()" : quantised ? "t.is_quantized" : joined("t.dtype == torch.", out.unsupported);
    return out;
  }

 private:
  template <class... Parts>
  [[noreturn]] void fail_tensor(const Parts&... parts) const {
    fail<DataError>(kTorch, file_, ": \"", printable(name_), "\" ", parts...);
  }

  // Returns whether a dictionary has the key with the value True.
  bool has_flag(const PickleValue& map, std::string_view key) const {
    for (size_t i = 0; map.kind == Kind::map && i + 1 < map.items.size(); i += 2) {
      const PickleValue &name = pickle_[map.items[i]], &flag = pickle_[map.items[i + 1]];
      if (name.kind == Kind::text && name.text == key && flag.kind == Kind::boolean && flag.integer == 1) return true;
    }
    return false;
  }
  int64_t integer(uint32_t value) const {
    const PickleValue& v = pickle_[value];
    if (v.kind != Kind::integer || v.integer < 0)
      fail_tensor("must have sizes, strides and an offset that are integers of at least 0, got ",
                  v.kind == Kind::integer ? std::to_string(v.integer) : std::string(pickle_kind_words(v.kind)));
    return v.integer;
  }
  std::vector<int64_t> integers(uint32_t value) const {
    const PickleValue* v = &pickle_[value];
    if (const TorchName* maker = maker_of(pickle_, *v); maker && maker->name == "Size" && !pickle_[v->items[1]].items.empty())
      v = &pickle_[pickle_[v->items[1]].items[0]];
    if (v->kind != Kind::tuple) fail_tensor("must have a tuple of sizes and one of strides, got ", pickle_kind_words(v->kind));
    if (v->items.size() > size_t(kMaxDims)) fail_tensor("may have ", kMaxDims, " dimensions, got ", v->items.size());
    std::vector<int64_t> out;
    for (const uint32_t item : v->items) out.push_back(integer(item));
    return out;
  }

  // Checks that all elements are inside the storage, and computes `bytes`.
  void locate(TorchTensor& t) const {
    const TorchStorage& s = t.storage;
    if (t.sizes.size() != t.strides.size()) fail_tensor("has ", t.sizes.size(), " sizes, but ", t.strides.size(), " strides");
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
      fail_tensor("must lie in its storage of ", held, " elements, got an offset of ", t.offset, ", sizes ", Shape(t.sizes),
                  " and strides ", Strides(t.strides));
  }

  const std::string& file_;
  std::string_view name_;
  const Pickle& pickle_;
};

}  // namespace

Pickle read_torch_pickle(const std::string& file, std::string_view bytes) {
  return Pickle(file, bytes, [&](std::string_view module, std::string_view name) -> int64_t {
    for (const TorchName& known : kNames)
      if (known.module == module && known.name == name) return &known - kNames;
    return kForeign;
  });
}

std::optional<TorchStorage> torch_storage_of(const std::string& file, const Pickle& pickle, const PickleValue& value) {
  const PickleValue& id = pickle[value.items[0]];
  const auto part = [&](size_t i) -> const PickleValue& { return pickle[id.items[i]]; };
  // ("module", class, file, source) is not a storage.
  if (id.kind == Kind::tuple && id.items.size() >= 2 && part(0).kind == Kind::text && part(0).text == "module") return {};
  // ("storage", type, key, device, elements), and in very old files None or (key, first, elements) for a part of it.
  const bool is_storage = id.kind == Kind::tuple && id.items.size() >= 5 && part(0).text == "storage" &&
                          part(2).kind == Kind::text && part(4).kind == Kind::integer && part(4).integer >= 0;
  const TorchName* type = is_storage ? name_of(pickle, id.items[1]) : nullptr;
  check<DataError>(type && type->role == Role::storage, kTorch, file, ": is damaged: a storage lacks its type, key or size");
  // Limits the length, because many tensors may refer to one key and each compares it.
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

bool is_torch_tensor(const Pickle& pickle, const PickleValue& value) { return makes_tensor(maker_of(pickle, value)); }

bool is_torch_scalar(const Pickle& pickle, const PickleValue& tensor) {
  const Construction construction = construction_of(pickle, tensor);
  const bool has_shape = construction.maker && construction.maker->role != Role::refused && construction.count() > 2;
  return has_shape && pickle[construction[2]].kind == Kind::tuple && pickle[construction[2]].items.empty();
}

TorchTensor torch_tensor_of(const std::string& file, std::string_view name, const Pickle& pickle, const PickleValue& value) {
  return TensorReader(file, name, pickle).read(value);
}

bool is_foreign(const Pickle& pickle, const PickleValue& value) { return value.kind == Kind::call && !maker_of(pickle, value); }

std::string torch_load_code(const std::string& file, const Pickle& pickle, std::string_view key) {
  const auto quoted = [](std::string_view text) {
    const bool is_quotable = text.size() < 300 && text.find_first_of("\"\\") == text.npos &&
                             std::none_of(text.begin(), text.end(), [](unsigned char c) { return c < ' ' || c == 127; });
    return joined('"', is_quotable ? text : "...", '"');
  };
  const auto& all = pickle.values();
  const bool loads_weights_only =
      std::none_of(all.begin(), all.end(), [](const PickleValue& v) { return v.kind == Kind::global && v.integer == kForeign; });
  std::string out = joined("torch.load(", quoted(file), loads_weights_only ? ")" : ", weights_only=False)");
  for (size_t at = 0; at < key.size();) {
    const size_t end = std::min(key.find('/', at), key.size());
    out += joined('[', quoted(key.substr(at, end - at)), ']');
    at = end + 1;
  }
  return out;
}

}  // namespace halfstep
