// SPDX-License-Identifier: Apache-2.0
#include "framework/interchange/onnx_file.h"

#include "framework/autograd/grad_mode.h"
#include "framework/backend/export_error.h"
#include "framework/base/attributes.h"
#include "framework/io/files/atomic_file.h"
#include "framework/ops/core/promotion.h"
#include "framework/ops/ops.h"
#include "generated/halfstep_release.h"

namespace halfstep {
namespace {

// Field numbers of onnx.proto.
namespace model {
enum { ir_version = 1, producer_name, producer_version, graph = 7, opset_import, metadata_props = 14 };
}
namespace graph {
enum { node = 1, name, initializer = 5, input = 11, output };
}
namespace node {
enum { input = 1, output, name, op_type, attribute };
}
namespace attribute {
enum { name = 1, f, i, s, ints = 8, strings = 9, type = 20 };
}
namespace tensor_proto {
enum { dims = 1, data_type, name = 8, raw_data, external_data = 13, data_location };
}
namespace value_info {
enum { name = 1, type };
}
namespace type_proto {
enum { tensor_type = 1 };
}
namespace tensor_type {
enum { elem_type = 1, shape };
}
namespace shape_proto {
enum { dim = 1 };
}
namespace dimension {
enum { dim_value = 1, dim_param };
}
namespace string_entry {
enum { key = 1, value };
}
namespace opset_id {
enum { domain = 1, version };
}
enum AttributeType { kFloatType = 1, kIntType, kStringType, kIntsType = 7, kStringsType };
constexpr int64_t kExternal = 1;  // DataLocation.EXTERNAL

constexpr int64_t kMostBytes = (int64_t(1) << 31) - (int64_t(1) << 20);  // of one message, less room for the rest of it
constexpr int64_t kAlignment = 4096;                                     // of tensors in the separate file, for mapping

ProtoWriter attribute_of(const std::string& name, const OnnxFile::Value& v) {
  ProtoWriter a;
  a.bytes(attribute::name, name);
  if (const auto* i = std::get_if<int64_t>(&v)) a.integer(attribute::i, *i).integer(attribute::type, kIntType);
  if (const auto* f = std::get_if<double>(&v)) a.real(attribute::f, float(*f)).integer(attribute::type, kFloatType);
  if (const auto* s = std::get_if<std::string>(&v)) a.bytes(attribute::s, *s).integer(attribute::type, kStringType);
  if (const auto* l = std::get_if<std::vector<int64_t>>(&v)) {
    for (const int64_t i : *l) a.integer(attribute::ints, i);
    a.integer(attribute::type, kIntsType);
  }
  if (const auto* l = std::get_if<std::vector<std::string>>(&v)) {
    for (const std::string& s : *l) a.bytes(attribute::strings, s);
    a.integer(attribute::type, kStringsType);
  }
  return a;
}

ProtoWriter value_info_of(const std::string& name, DType dtype, const Shape& shape, int batch) {
  ProtoWriter dims;
  for (int d = 0; d < shape.size(); ++d)
    dims.message(shape_proto::dim, d == batch ? ProtoWriter().bytes(dimension::dim_param, "batch")
                                              : ProtoWriter().integer(dimension::dim_value, shape[d]));
  const ProtoWriter type = ProtoWriter().integer(tensor_type::elem_type, onnx_type(dtype)).message(tensor_type::shape, dims);
  return ProtoWriter()
      .bytes(value_info::name, name)
      .message(value_info::type, ProtoWriter().message(type_proto::tensor_type, type));
}

ProtoWriter entry(const std::string& key, const std::string& value) {
  return ProtoWriter().bytes(string_entry::key, key).bytes(string_entry::value, value);
}

std::string_view bytes_of(const Tensor& t) { return {static_cast<const char*>(t.const_data_ptr()), size_t(t.nbytes())}; }

int64_t aligned(int64_t offset) { return (offset + kAlignment - 1) / kAlignment * kAlignment; }

ProtoWriter tensor_head(const std::string& name, const Tensor& value) {
  ProtoWriter out;
  for (const int64_t size : value.shape()) out.integer(tensor_proto::dims, size);
  return out.integer(tensor_proto::data_type, onnx_type(value.dtype())).bytes(tensor_proto::name, name);
}

// Returns a constant's field of the graph without its values, which follow at once.
std::string initializer_head(const std::string& name, const Tensor& value) {
  const auto bytes = uint64_t(value.nbytes());
  const ProtoWriter head = tensor_head(name, value).length(tensor_proto::raw_data, bytes);
  return ProtoWriter().length(graph::initializer, head.str().size() + bytes).str() + head.str();
}

// Returns a constant's field of the graph, with the place of its values in the file `data_file`.
std::string external_initializer(const std::string& name, const Tensor& value, const std::string& data_file, int64_t offset) {
  ProtoWriter head = tensor_head(name, value);
  head.message(tensor_proto::external_data, entry("location", data_file))
      .message(tensor_proto::external_data, entry("offset", std::to_string(offset)))
      .message(tensor_proto::external_data, entry("length", std::to_string(value.nbytes())))
      .integer(tensor_proto::data_location, kExternal);
  return ProtoWriter().message(graph::initializer, head).str();
}

}  // namespace

int64_t onnx_type(DType dtype) {
  switch (dtype) {
    case DType::f32: return 1;
    case DType::u8: return 2;
    case DType::i8: return 3;
    case DType::i16: return 5;
    case DType::i32: return 6;
    case DType::i64: return 7;
    case DType::boolean: return 9;
    case DType::f16: return 10;
    case DType::f64: return 11;
    case DType::bf16: break;
  }
  fail<ExportError>("export", "ONNX runtimes do not compute in bfloat16", Help{"export in float32 or float16"});
}

std::string onnx_tensor(const Tensor& value, const std::string& name) {
  const Tensor t = value.detach().cpu().contiguous();
  ProtoWriter out;
  for (const int64_t d : t.shape()) out.integer(tensor_proto::dims, d);
  out.integer(tensor_proto::data_type, onnx_type(t.dtype())).bytes(tensor_proto::name, name);
  return out.bytes(tensor_proto::raw_data, bytes_of(t)).str();
}

std::string OnnxFile::unused(const std::string& name) {
  const int64_t uses = names_[name]++;
  return uses == 0 ? name : unused(name + '_' + std::to_string(uses));
}

OnnxFile::Names OnnxFile::nodes(const std::string& op, const Names& inputs, const Named& attributes, int outputs) {
  const std::string path = layer_.empty() ? op : layer_ + '/' + op, name = unused(path);
  ProtoWriter node_proto;
  Names made;
  for (const std::string& input : inputs) node_proto.bytes(node::input, input);
  for (int i = 0; i < outputs; ++i) {
    made.push_back(unused(name + (outputs == 1 ? ".out" : ".out" + std::to_string(i))));
    node_proto.bytes(node::output, made.back());
  }
  node_proto.bytes(node::name, name).bytes(node::op_type, op);
  for (const auto& [key, value] : attributes) node_proto.message(node::attribute, attribute_of(key, value));
  nodes_ += ProtoWriter().message(graph::node, node_proto).str();
  ++ops_[op];
  return made;
}

std::string OnnxFile::constant(const Tensor& value, const std::string& name) {
  const NoGrad off;
  (void)onnx_type(value.dtype());  // throws for a dtype that ONNX lacks
  constants_.push_back({unused(name.empty() ? "constant" : name), value.detach().cpu().contiguous()});
  return constants_.back().name;
}

std::string OnnxFile::ints(const std::vector<int64_t>& values) {
  std::string& name = shared_constants_[text(Attributes{{"ints", values}})];
  if (name.empty()) name = constant(from_vector(values, {int64_t(values.size())}), "ints");
  return name;
}

std::string OnnxFile::number(double value, DType dtype) {
  const Tensor t = empty({}, {.dtype = dtype});
  fill(t, value);  // rounds
  std::string& name = shared_constants_[joined(dtype, ' ', std::string(bytes_of(t)))];
  if (name.empty()) name = constant(t, "number");
  return name;
}

void OnnxFile::input(const std::string& name, DType dtype, const Shape& shape, int batch) {
  unused(name);
  inputs_and_outputs_ += ProtoWriter().message(graph::input, value_info_of(name, dtype, shape, batch)).str();
}
void OnnxFile::result(const std::string& value, const std::string& name, DType dtype, const Shape& shape, int batch) {
  check<ExportError>(unused(name) == name, "export", "the output's name is in use: ", name);
  const ProtoWriter identity = ProtoWriter()
                                   .bytes(node::input, value)
                                   .bytes(node::output, name)
                                   .bytes(node::name, name + "/Identity")
                                   .bytes(node::op_type, "Identity");
  nodes_ += ProtoWriter().message(graph::node, identity).str();
  ++ops_["Identity"];
  inputs_and_outputs_ += ProtoWriter().message(graph::output, value_info_of(name, dtype, shape, batch)).str();
}

int64_t OnnxFile::save(const std::filesystem::path& path, const std::map<std::string, std::string>& metadata, bool external) const {
  int64_t total = int64_t(nodes_.size());
  for (const Constant& c : constants_) total += c.value.nbytes();
  external = external || total > kMostBytes;
  const std::filesystem::path data_path = path.string() + ".data";

  // Keeps shapes in the main file: checkers read their values.
  const auto is_external = [&](const Constant& c) { return external && c.value.nbytes() >= kAlignment; };

  // Writes the file in pieces, because weights may be large. Their lengths come first.
  const std::string name = ProtoWriter().bytes(graph::name, "halfstep").str();
  std::vector<std::string> heads;
  uint64_t graph_bytes = nodes_.size() + name.size() + inputs_and_outputs_.size();
  int64_t offset = 0;
  for (const Constant& c : constants_) {
    if (is_external(c)) {
      offset = aligned(offset);
      heads.push_back(external_initializer(c.name, c.value, data_path.filename().string(), offset));
      offset += c.value.nbytes();
    } else {
      heads.push_back(initializer_head(c.name, c.value));
      graph_bytes += uint64_t(c.value.nbytes());
    }
    graph_bytes += heads.back().size();
  }

  ProtoWriter model_head;
  model_head.integer(model::ir_version, kOnnxIrVersion).bytes(model::producer_name, "halfstep");
  model_head.bytes(model::producer_version, HALFSTEP_VERSION).length(model::graph, graph_bytes);
  ProtoWriter model_tail;
  model_tail.message(model::opset_import, ProtoWriter().bytes(opset_id::domain, "").integer(opset_id::version, kOnnxOpset));
  for (const auto& [key, value] : metadata) model_tail.message(model::metadata_props, entry(key, value));

  AtomicFile file(path);
  std::optional<AtomicFile> data;
  if (external) data.emplace(data_path);
  int64_t written = 0, data_bytes = 0;
  const auto write = [&](std::string_view bytes) {
    file.write(bytes.data(), bytes.size());
    written += int64_t(bytes.size());
  };
  write(model_head.str());
  write(nodes_);
  write(name);
  for (size_t i = 0; i < constants_.size(); ++i) {
    const std::string_view bytes = bytes_of(constants_[i].value);
    write(heads[i]);
    if (!is_external(constants_[i])) {
      write(bytes);
      continue;
    }
    const std::string gap(size_t(aligned(data_bytes) - data_bytes), '\0');
    data->write(gap.data(), gap.size());
    data->write(bytes.data(), bytes.size());
    data_bytes += int64_t(gap.size() + bytes.size());
  }
  write(inputs_and_outputs_);
  write(model_tail.str());
  if (data) data->commit();  // first, because the model refers to it
  file.commit();
  return written + data_bytes;
}

}  // namespace halfstep
