// SPDX-License-Identifier: Apache-2.0
#include "torch/serialize/serialize.h"

namespace torch {

serialize::OutputArchive& operator<<(serialize::OutputArchive& archive, const Tensor& t) {
  archive.write("0", t);
  return archive;
}
serialize::InputArchive& operator>>(serialize::InputArchive& archive, Tensor& t) {
  archive.read("0", t);
  return archive;
}
serialize::OutputArchive& operator<<(serialize::OutputArchive& archive, const std::vector<Tensor>& tensors) {
  archive.write("size", IValue(int64_t(tensors.size())));
  for (size_t i = 0; i < tensors.size(); ++i) archive.write(std::to_string(i), tensors[i]);
  return archive;
}
serialize::InputArchive& operator>>(serialize::InputArchive& archive, std::vector<Tensor>& tensors) {
  IValue size;
  archive.read("size", size);
  for (int64_t i = 0; i < size.toInt(); ++i) archive.read(std::to_string(i), tensors.emplace_back());
  return archive;
}
serialize::OutputArchive& operator<<(serialize::OutputArchive& archive, const std::shared_ptr<nn::Module>& module) {
  TORCH_CHECK(module != nullptr, "an empty pointer cannot be saved");
  module->save(archive);
  return archive;
}
serialize::InputArchive& operator>>(serialize::InputArchive& archive, const std::shared_ptr<nn::Module>& module) {
  TORCH_CHECK(module != nullptr, "an empty pointer cannot be loaded");
  module->load(archive);
  return archive;
}
serialize::OutputArchive& operator<<(serialize::OutputArchive& archive, const optim::Optimizer& optimizer) {
  optimizer.save(archive);
  return archive;
}
serialize::InputArchive& operator>>(serialize::InputArchive& archive, optim::Optimizer& optimizer) {
  optimizer.load(archive);
  return archive;
}

}  // namespace torch
