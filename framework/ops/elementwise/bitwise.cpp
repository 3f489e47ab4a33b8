// SPDX-License-Identifier: Apache-2.0
#include "framework/ops/elementwise/bitwise.h"

#include <utility>

#include "framework/ops/core/composite.h"
#include "framework/ops/core/in_place.h"
#include "framework/ops/core/promotion.h"
#include "framework/ops/core/registry.h"
#include "framework/ops/ops.h"

namespace halfstep {
namespace {

constexpr OpInfo bitwise_info(std::string_view name, std::string_view doc) {
  return {.name = name, .doc = doc, .differentiable = false, .dtypes = DTypeSet::bits};
}
constexpr OpInfo kBitsInfo[] = {bitwise_info("bitwise_and", "a & b, bit by bit"), bitwise_info("bitwise_or", "a | b, bit by bit"),
                                bitwise_info("bitwise_xor", "a ^ b, bit by bit"),
                                bitwise_info("bitwise_left_shift", "a 2^b, without the bits that do not fit"),
                                bitwise_info("bitwise_right_shift", "floor(a / 2^b)")};
constexpr OpInfo kBitwiseNot = bitwise_info("bitwise_not", "~x, bit by bit; of bool: is it false");

bool is_shift(Bitwise op) { return op == Bitwise::left_shift || op == Bitwise::right_shift; }

// Returns the dtype of the result; throws DTypeError for floating tensors, and for shifts of bool.
DType check_bits(const OpInfo& info, const Tensors& in, bool shift) {
  const DType type = result_type(in);
  const Help help{"compare first for a mask (x > 0), or convert with to(DType::i64)"};
  check<DTypeError>(!is_floating(type), info.name, "needs integers or masks, got ", type, help);
  check<DTypeError>(!shift || type != DType::boolean, info.name, "has no result for bool tensors",
                    Help{"convert with to(DType::i64)"});
  return type;
}

struct BitwiseOp {
  struct Attr {
    Bitwise op;
  };
  static const OpInfo& info_of(const Attr& attr) { return kBitsInfo[size_t(attr.op)]; }

  static void check(const Attr& attr, const Tensors& in) { check_bits(info_of(attr), in, is_shift(attr.op)); }
  static Attributes describe(const Attr&) { return {}; }  // nothing besides the name
  static Tensor forward(OpContext&, const Attr& attr, const Tensors& in) {
    const Shape shape = broadcast(in[0].shape(), in[1].shape(), info_of(attr).name);
    const MemoryFormat format = format_of(shape, in);
    const Tensor out = Tensor::empty(
        shape, {.dtype = check_bits(info_of(attr), in, is_shift(attr.op)), .device = device_of(in), .format = format});
    out.impl()->wrapped_number = in[0].impl()->wrapped_number && in[1].impl()->wrapped_number;
    backend_for(out.device())
        .bitwise(attr.op, broadcast_view(in[0], shape, format), broadcast_view(in[1], shape, format), ordered(out, format));
    return out;
  }
  static Tensors backward(const BackwardContext&, const Attr&, const Tensors&) { return {}; }
};

// Calls the op; of two masks the logical op, whose kernels read bytes.
Tensor call_bits(Bitwise op, const Tensor& a, const Tensor& b) {
  const auto is_mask = [](const Tensor& t) { return t.defined() && t.dtype() == DType::boolean; };
  if (is_mask(a) && is_mask(b) && !is_shift(op)) {
    switch (op) {
      case Bitwise::bit_and: return logical_and(a, b);
      case Bitwise::bit_or: return logical_or(a, b);
      default: return logical_xor(a, b);
    }
  }
  return call<BitwiseOp>({a, b}, {op});
}

const Tensor& bits_in_place(Bitwise op, const Tensor& x, const Tensor& y) {
  const OpInfo& info = kBitsInfo[size_t(op)];
  check<ValueError>(x.defined() && y.defined(), info.name, "an input is undefined");
  const Tensors in{x, y};
  check_in_place(x, broadcast(x.shape(), y.shape(), info.name), check_bits(info, in, is_shift(op)), false, info.name);
  return assign_in_place(x, call_bits(op, x, y), info.name);
}

// Marks a 0-dim tensor as a C++ number, and returns it.
Tensor as_wrapped(const Tensor& number) {
  number.impl()->wrapped_number = true;
  return number;
}

}  // namespace

Tensor bit_number(int64_t value) { return as_wrapped(full({}, value, {.device = Device::cpu})); }
Tensor bit_number(bool value) { return as_wrapped(full({}, value, {.device = Device::cpu})); }

#define HS_BITS(name, kind)                                                                 \
  Tensor name(const Tensor& a, const Tensor& b) { return call_bits(Bitwise::kind, a, b); }  \
  Tensor Tensor::name(const Tensor& b) const { return call_bits(Bitwise::kind, *this, b); } \
  const Tensor& Tensor::name##_(const Tensor& b) const& { return bits_in_place(Bitwise::kind, *this, b); }
HS_BITS(bitwise_and, bit_and)
HS_BITS(bitwise_or, bit_or)
HS_BITS(bitwise_xor, bit_xor)
HS_BITS(bitwise_left_shift, left_shift)
HS_BITS(bitwise_right_shift, right_shift)
#undef HS_BITS

Tensor bitwise_not(const Tensor& x) {
  check<ValueError>(x.defined(), kBitwiseNot.name, "the input is undefined");
  check_bits(kBitwiseNot, {x}, false);
  return under_name(kBitwiseNot.name, [&] { return x.dtype() == DType::boolean ? logical_not(x) : bitwise_xor(x, int64_t(-1)); });
}
Tensor Tensor::bitwise_not() const { return halfstep::bitwise_not(*this); }

void add_bitwise(OpList& list) {
  list.add(kBitwiseNot, [](Args& a) { return bitwise_not(a.tensor(0)); });
  for (size_t i = 0; i < std::size(kBitsInfo); ++i) {
    list.add(kBitsInfo[i], [i](Args& a) {
      const Tensor x = a.has_tensor(0) ? a.tensor(0) : bit_number(a.integer("input"));
      const Tensor y = a.has_tensor(1) ? a.tensor(1) : bit_number(a.integer("other"));
      return call_bits(Bitwise(i), x, y);
    });
  }
}

}  // namespace halfstep
