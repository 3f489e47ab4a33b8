// SPDX-License-Identifier: Apache-2.0
// Helpers for files that call oneDNN, with the differences between versions 2 and 3 of its interface.
#pragma once

#include <omp.h>

#include <cstdint>
#include <cstring>
#include <dnnl.hpp>
#include <string>
#include <typeinfo>

#include "framework/base/check.h"
#include "framework/base/dtype.h"
#include "framework/base/guard.h"
#include "framework/base/process_end.h"

namespace halfstep::cpu {

// Returns the engine of all primitives. It is never destroyed: threads may still compute when the process ends
// (framework/base/process_end.h).
inline dnnl::engine& engine() {
  static auto& cpu = *new dnnl::engine(dnnl::engine::kind::cpu, 0);
  return cpu;
}

// Throws Error unless a call of the library succeeded.
inline void check_success(const char* op, dnnl_status_t status) {
  check<Error>(status == dnnl_success, op, "oneDNN failed with status ", int(status),
               Help{"if the program also links libtorch, functions of its oneDNN are taken for those of halfstep's: open "
                    "libhalfstep_predict.so by dlopen with RTLD_DEEPBIND, or link the static library before libtorch"});
}

// Marks the making of a description: the library makes lists of its codes for it, also where none of them serves.
class Describing : LocalGuard {
 public:
  [[nodiscard]] explicit Describing(const char* primitive) : primitive_(primitive) {}
  ~Describing() { FirstUse::watch_end_after(primitive_); }

 private:
  const FirstUse first_;
  const char* primitive_;
};

// Makes the description of a primitive. Version 2 first needs a description of the operation.
template <class Primitive, class... Args>
typename Primitive::primitive_desc describe(const dnnl::primitive_attr& attributes, const Args&... args) {
  const Describing marked(typeid(Primitive).name());
#if DNNL_VERSION_MAJOR >= 3
  return {engine(), args..., attributes};
#else
  return {typename Primitive::desc(args...), attributes, engine()};
#endif
}
// Makes the description of a gradient from that of its forward.
template <class Primitive, class Forward, class... Args>
typename Primitive::primitive_desc describe_gradient(const dnnl::primitive_attr& attributes, const Forward& forward,
                                                     const Args&... args) {
  const Describing marked(typeid(Primitive).name());
#if DNNL_VERSION_MAJOR >= 3
  return {engine(), args..., forward, attributes};
#else
  return {typename Primitive::desc(args...), attributes, engine(), forward};
#endif
}

// Returns a tensor of the same sizes and type whose layout the library may choose.
inline dnnl::memory::desc in_any_layout(const dnnl::memory::desc& d) {
#if DNNL_VERSION_MAJOR >= 3
  return {d.get_dims(), d.get_data_type(), dnnl::memory::format_tag::any};
#else
  return {d.dims(), d.data_type(), dnnl::memory::format_tag::any};
#endif
}

// Returns oneDNN's name of a dtype; float32 for those that it lacks.
inline dnnl::memory::data_type type_of(DType t) {
  return t == DType::bf16  ? dnnl::memory::data_type::bf16
         : t == DType::f16 ? dnnl::memory::data_type::f16
                           : dnnl::memory::data_type::f32;
}

// Hashes a key that consists of 64-bit words. The factor is 2^64 divided by the golden ratio, which mixes the bits.
inline size_t hash_of_words(const void* key, size_t bytes) {
  uint64_t hash = 0, word = 0;
  for (size_t at = 0; at < bytes; at += sizeof word) {
    std::memcpy(&word, static_cast<const char*>(key) + at, sizeof word);
    hash = (hash ^ word) * 0x9E3779B97F4A7C15u, hash ^= hash >> 29;
  }
  return size_t(hash);
}

// A stream for one thread.
struct OwnStream : dnnl::stream {
  OwnStream() : dnnl::stream(engine()) {}
};
// Returns the stream of the calling thread.
inline dnnl::stream& stream() { return of_this_thread<OwnStream>(); }

// Returns the name of the code behind a primitive.
inline std::string code_name(const dnnl::primitive& p) {
  const char* name = "";
  const_dnnl_primitive_desc_t of = nullptr;
  if (dnnl_primitive_get_primitive_desc(p.get(), &of) == dnnl_success)
    dnnl_primitive_desc_query(of, dnnl_query_impl_info_str, 0, &name);
  return name;
}

// Sets the number of OpenMP threads for oneDNN's code on this host thread during one call, and restores the program's own setting.
class OpenMpThreads : LocalGuard {
 public:
  [[nodiscard]] explicit OpenMpThreads(int count) : before_(omp_get_max_threads()) { set(count); }
  ~OpenMpThreads() { set(before_); }

 private:
  static void set(int count) {
    if (omp_get_max_threads() != count) omp_set_num_threads(count);
  }
  int before_;
};

}  // namespace halfstep::cpu
