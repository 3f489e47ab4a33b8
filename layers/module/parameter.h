// SPDX-License-Identifier: Apache-2.0
// Parameters and buffers as members of a module. The tensor that is assigned to the member is trained, moved and saved:
//
//   struct Scale : Module {
//     Parameter gain = register_parameter("gain", ones({8}));
//     ModuleBuffer steps = register_buffer("steps", zeros({}, {.dtype = DType::i64}));
//     Tensor forward(const Tensor& x) override { return x * gain; }
//   };
//   scale.gain = full({16}, 2.0);       // now parameters(), the optimizer's check and save() see this tensor
//   head.weight = embedding.weight;     // both train one tensor, which is counted, updated and saved once
//
// Copying the module copies them. `Parameter` copied by itself, `auto w = scale.gain`, is a plain tensor.
#pragma once

#include <memory>
#include <string>
#include <type_traits>
#include <utility>

#include "framework/tensor/tensor.h"

namespace halfstep {

class Module;
class HeldTensor;
class ParametrizationList;  // layers/module/parametrize.h

// A named tensor of a module. Its member, if there is one, holds the value.
struct TensorSlot {
  std::string name;              // within its module
  std::string label;             // from the root, for messages: "encoder.0.weight"
  Tensor value{};                // without a member; undefined: an omitted option, such as a bias
  HeldTensor* holder = nullptr;  // the member
  bool is_parameter = true;
  bool persistent = true;  // saved; a buffer may not be
  bool registered = true;  // in a module; false after another was assigned to its module
  bool was_held = false;   // held by a member in the module that this one copies
  bool waits = false;      // of a lazy layer before its first call: `value` has dtype and device, but no elements
  std::shared_ptr<ParametrizationList> computed{};  // computes it from other parameters before each forward; null: a plain one

  inline const Tensor& get() const;
  inline void put(const Tensor& t);  // without an assignment's checks
};

// The result of register_parameter and register_buffer, for a member of type Parameter or ModuleBuffer.
template <class Holder>
struct Registered {
  std::shared_ptr<TensorSlot> slot;

  template <std::same_as<Tensor> T>
  operator T() const {
    static_assert(sizeof(T) == 0,
                  "a Tensor would not follow what is assigned: Parameter weight = register_parameter(...), ModuleBuffer steps = "
                  "register_buffer(...)");
  }
};

// The base of Parameter and ModuleBuffer: a tensor, and its slot in the module.
class HeldTensor : public Tensor {
 public:
  HeldTensor() = default;
  HeldTensor(const HeldTensor& other);  // in a copy of other's module it takes the copy's tensor; elsewhere it has no module
  HeldTensor(HeldTensor&& other) noexcept;
  ~HeldTensor() { release(); }

 protected:
  explicit HeldTensor(std::shared_ptr<TensorSlot> slot) { bind(std::move(slot)); }
  void bind(std::shared_ptr<TensorSlot> slot) noexcept;
  void release() noexcept;
  void assign(const Tensor& t, bool shared);  // into the slot, checked
  void take(HeldTensor&& other);              // takes its slot if this one has none; else its value

 private:
  friend struct TensorSlot;
  std::shared_ptr<TensorSlot> slot_;
  bool loose_ = false;  // copied by itself: accepts any tensor
};

// Throws ValueError for a tensor that an operation computed, DTypeError for integers.
void check_parameter(const char* where, const std::string& name, const Tensor& t);
// Counts the modules that hold it. An optimizer refuses a parameter that was replaced in all of them.
void enter_module(const Tensor& parameter);
void leave_module(const Tensor& parameter);

// A Parameter, which is trained, or a ModuleBuffer, which is not.
template <bool trained>
class ModuleTensor : public HeldTensor {
 public:
  ModuleTensor() = default;
  ModuleTensor(Registered<ModuleTensor> made) : HeldTensor(std::move(made.slot)) {}
  ModuleTensor(const ModuleTensor&) = default;
  ModuleTensor(ModuleTensor&&) noexcept = default;
  ModuleTensor& operator=(Registered<ModuleTensor> made) & {
    bind(std::move(made.slot));
    return *this;
  }
  // Replaces the tensor by another of any size. A parameter then requires a gradient; assigning an undefined tensor removes it.
  // Throws ValueError for a member that no module has registered, and for a parameter that an operation computed; DTypeError for a
  // parameter of integers. A parametrized one passes the value on to its originals.
  ModuleTensor& operator=(const Tensor& t) & {
    assign(t, /*shared=*/false);
    return *this;
  }
  // Shares the other's tensor, and whether it is frozen.
  ModuleTensor& operator=(const ModuleTensor& other) & {
    assign(other, /*shared=*/true);
    return *this;
  }
  ModuleTensor& operator=(ModuleTensor&& other) & {
    take(std::move(other));
    return *this;
  }
};
using Parameter = ModuleTensor<true>;
using ModuleBuffer = ModuleTensor<false>;

const Tensor& TensorSlot::get() const { return holder ? *holder : value; }
void TensorSlot::put(const Tensor& t) { (holder ? static_cast<Tensor&>(*holder) : value) = t; }

}  // namespace halfstep
