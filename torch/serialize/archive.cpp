// SPDX-License-Identifier: Apache-2.0
#include "torch/serialize/archive.h"

#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <iterator>

#include "framework/base/number_text.h"
#include "framework/io/weights/safetensors.h"
#include "framework/io/weights/torch_file.h"

namespace torch {

TempFile::~TempFile() {
  std::error_code ignored;
  if (!name.empty()) std::filesystem::remove(name, ignored);
}
TempFile make_tempfile(const std::string& prefix) {
  std::string path = (std::filesystem::temp_directory_path() / (prefix + "XXXXXX")).string();
  const int file = mkstemp(path.data());
  TORCH_CHECK(file >= 0, "cannot make a temporary file ", path);
  ::close(file);
  return TempFile(path);
}

namespace serialize {

void OutputArchive::write(const std::string& key, const Tensor& t, bool) {
  if (t.defined())
    store_->tensors[key] = t.h().detach();
  else
    store_->values[key] = "none";
}
void OutputArchive::write(const std::string& key, const IValue& value) {
  if (value.isTensor())
    write(key, value.toTensor());
  else if (value.isNone())
    store_->values[key] = "none";
  else if (value.isInt())
    store_->values[key] = "int " + std::to_string(value.toInt());
  else if (value.isBool())
    store_->values[key] = value.toBool() ? "bool 1" : "bool 0";
  else if (value.isDouble())
    store_->values[key] = "double " + hs::general_text(value.toDouble(), 17);
  else
    store_->values[key] = "text " + value.toStringRef();
}
void OutputArchive::write(const std::string& key, OutputArchive& nested) {
  for (const auto& [name, t] : nested.store_->tensors) store_->tensors[key + "." + name] = t;
  for (const auto& [name, v] : nested.store_->values) store_->values[key + "." + name] = v;
  if (nested.store_->tensors.empty() && nested.store_->values.empty()) store_->values[key + "."] = "none";
}
void OutputArchive::save_to(const std::string& path) { hs::save_safetensors(path, store_->tensors, store_->values); }
void OutputArchive::save_to(std::ostream& out) {
  const TempFile file = make_tempfile();
  save_to(file.name);
  out << std::ifstream(file.name, std::ios::binary).rdbuf();
  TORCH_CHECK(out.good(), "cannot write to the stream");
}
void OutputArchive::save_to(const std::function<size_t(const void*, size_t)>& write) {
  const TempFile file = make_tempfile();
  save_to(file.name);
  std::ifstream in(file.name, std::ios::binary);
  const std::string bytes{std::istreambuf_iterator<char>(in), {}};
  TORCH_CHECK(write(bytes.data(), bytes.size()) == bytes.size(), "the function that writes took fewer bytes than it was given");
}

void InputArchive::load_from(const std::string& path, std::optional<Device> device) {
  const hs::Device where = device ? device->h() : hs::Device::cpu;
  prefix_.clear();
  if (hs::is_torch_file(path)) {
    store_ = std::make_shared<Store>(Store{hs::load_torch_file(path, where).tensors, {}});
    return;
  }
  hs::TensorFile file = hs::load_safetensors(path, where);
  store_ = std::make_shared<Store>(Store{std::move(file.tensors), std::move(file.metadata)});
}
void InputArchive::load_from(const char* data, size_t size, std::optional<Device> device) {
  const TempFile file = make_tempfile();
  std::ofstream out(file.name, std::ios::binary);
  out.write(data, std::streamsize(size));
  out.close();
  TORCH_CHECK(out.good(), "cannot write the temporary file ", file.name);
  load_from(file.name, device);
}
void InputArchive::load_from(std::istream& in, std::optional<Device> device) {
  const std::string bytes{std::istreambuf_iterator<char>(in), {}};
  load_from(bytes.data(), bytes.size(), device);
}
void InputArchive::load_from(const std::function<size_t(uint64_t, void*, size_t)>& read, const std::function<size_t()>& size,
                             std::optional<Device> device) {
  std::string bytes(size(), '\0');
  TORCH_CHECK(read(0, bytes.data(), bytes.size()) == bytes.size(), "the function that reads gave fewer bytes than its size");
  load_from(bytes.data(), bytes.size(), device);
}

bool InputArchive::try_read(const std::string& key, Tensor& t, bool) {
  const auto at = store_->tensors.find(prefix_ + key);
  if (at == store_->tensors.end()) return store_->values.count(prefix_ + key) != 0;  // an undefined tensor was written
  if (!t.defined()) {
    t = at->second;
    return true;
  }
  NoGradGuard off;
  TORCH_CHECK(t.sizes() == Tensor(at->second).sizes(), "'", prefix_, key, "' has the sizes ", t.sizes(), " here, and ",
              Tensor(at->second).sizes(), " in the file");
  t.set_data(at->second.to(t.device().h()));
  return true;
}
void InputArchive::read(const std::string& key, Tensor& t, bool is_buffer) {
  TORCH_CHECK(try_read(key, t, is_buffer), "No such serialized tensor '", prefix_, key, "'");
}
bool InputArchive::try_read(const std::string& key, IValue& value) {
  const auto at = store_->values.find(prefix_ + key);
  if (at == store_->values.end()) return false;
  const size_t gap = at->second.find(' ');
  const std::string kind = at->second.substr(0, gap), text = gap == std::string::npos ? "" : at->second.substr(gap + 1);
  if (kind == "none")
    value = IValue();
  else if (kind == "int")
    value = IValue(int64_t(std::stoll(text)));
  else if (kind == "bool")
    value = IValue(text == "1");
  else if (kind == "double")
    value = IValue(hs::number_of(text).value_or(0));
  else
    value = IValue(text);
  return true;
}
void InputArchive::read(const std::string& key, IValue& value) {
  TORCH_CHECK(try_read(key, value), "The archive does not have a field with name '", prefix_, key, "'");
}
bool InputArchive::try_read(const std::string& key, InputArchive& nested) {
  const std::string prefix = prefix_ + key + ".";
  auto any = [&](const auto& map) {
    const auto at = map.lower_bound(prefix);
    return at != map.end() && at->first.starts_with(prefix);
  };
  if (!any(store_->tensors) && !any(store_->values)) return false;
  nested.store_ = store_;
  nested.prefix_ = prefix;
  return true;
}
void InputArchive::read(const std::string& key, InputArchive& nested) {
  TORCH_CHECK(try_read(key, nested), "No such serialized submodule: '", prefix_, key, "'");
}
std::map<std::string, hs::Tensor> InputArchive::tensors() const {
  std::map<std::string, hs::Tensor> out;
  for (const auto& [name, t] : store_->tensors) {
    if (name.starts_with(prefix_)) out[name.substr(prefix_.size())] = t;
  }
  return out;
}
std::vector<std::string> InputArchive::keys() const {
  std::vector<std::string> out;
  auto list = [&](const auto& map) {
    for (const auto& item : map) {
      const std::string& name = item.first;
      if (!name.starts_with(prefix_)) continue;
      const std::string key = name.substr(prefix_.size(), name.find('.', prefix_.size()) - prefix_.size());
      if (std::find(out.begin(), out.end(), key) == out.end()) out.push_back(key);
    }
  };
  list(store_->tensors);
  list(store_->values);
  return out;
}

}  // namespace serialize
}  // namespace torch
