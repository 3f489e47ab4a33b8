// SPDX-License-Identifier: Apache-2.0
// Archives: trees of tensors and plain values, written as safetensors with the names "a.b.c"; values are in the file's metadata.
// They also read a module that libtorch's torch::save wrote, and what Python's torch.save (a state_dict) and torch.jit.save wrote.
#pragma once

#include "torch/autograd/autograd.h"

namespace torch {
namespace serialize {

struct Store {
  std::map<std::string, hs::Tensor> tensors;
  std::map<std::string, std::string> values;
};

class OutputArchive {
 public:
  OutputArchive() : store_(std::make_shared<Store>()) {}
  void write(const std::string& key, const Tensor& t, bool is_buffer = false);
  void write(const std::string& key, const IValue& value);
  void write(const std::string& key, OutputArchive& nested);
  template <class T>
  void operator()(const std::string& key, const T& value) {
    write(key, value);
  }
  void save_to(const std::string& path);
  void save_to(std::ostream& out);
  void save_to(const std::function<size_t(const void*, size_t)>& write);

 private:
  std::shared_ptr<Store> store_;
};

class InputArchive {
 public:
  InputArchive() : store_(std::make_shared<Store>()) {}
  void load_from(const std::string& path, std::optional<Device> device = {});
  void load_from(std::istream& in, std::optional<Device> device = {});
  void load_from(const char* data, size_t size, std::optional<Device> device = {});
  void load_from(const std::function<size_t(uint64_t, void*, size_t)>& read, const std::function<size_t()>& size,
                 std::optional<Device> device = {});
  bool try_read(const std::string& key, Tensor& t, bool is_buffer = false);
  void read(const std::string& key, Tensor& t, bool is_buffer = false);
  bool try_read(const std::string& key, IValue& value);
  void read(const std::string& key, IValue& value);
  bool try_read(const std::string& key, InputArchive& nested);
  void read(const std::string& key, InputArchive& nested);
  template <class T>
  void operator()(const std::string& key, T& value) {
    read(key, value);
  }
  std::vector<std::string> keys() const;
  std::map<std::string, hs::Tensor> tensors() const;  // all below this place

 private:
  std::shared_ptr<Store> store_;
  std::string prefix_;
};

}  // namespace serialize

// A file that is removed with its object.
struct TempFile {
  explicit TempFile(std::string path) : name(std::move(path)) {}
  TempFile(TempFile&& o) noexcept : name(std::exchange(o.name, "")) {}
  ~TempFile();
  std::string name;
};
TempFile make_tempfile(const std::string& prefix = "torch-file-");

}  // namespace torch
