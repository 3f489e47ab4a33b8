// SPDX-License-Identifier: Apache-2.0
#include "framework/interchange/onnx_file.h"

#include "framework/autograd/grad_mode.h"
#include "framework/backend/export_error.h"
#include "framework/base/attributes.h"
#include "framework/io/files/atomic_file.h"
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
enum AttributeType { kFloatType = 1, kIntType, kString, kInts = 7, kStrings };

constexpr int64_t kMostBytes = (int64_t(1) << 31) - (int64_t(1) << 20);  // of one message, less room for the rest of it
constexpr int64_t kAlignment = 4096;                                     // of tensors in the separate file, for mapping

ProtoWriter attribute_of(const std::string& name, const OnnxFile::Value& v) {
  ProtoWriter a;
  a.bytes(attribute::name, name);
  if (const auto* i = std::get_if<int64_t>(&v)) a.integer(attribute::i, *i).integer(attribute::type, kIntType);
  if (const auto* f = std::get_if<double>(&v)) a.real(attribute::f, float(*f)).integer(attribute::type, kFloatType);
  if (const auto* s = std::get_if<std::string>(&v)) a.bytes(attribute::s, *s).integer(attribute::type, kString);
  if (const auto* l = std::get_if<std::vector<int64_t>>(&v)) {
    for (const int64_t i : *l) a.integer(attribute::ints, i);
    a.integer(attribute::type, kInts);
  }
  if (const auto* l = std::get_if<std::vector<std::string>>(&v)) {
    for (const std::string& s : *l) a.bytes(attribute::strings, s);
    a.integer(attribute::type, kStrings);
  }
  return a;
}

ProtoWriter value_info_of(const std::string& name, DType dtype, const Shape& shape, int batch) {
  ProtoWriter dims;
  for (int d = 0; d < shape.size(); ++d)
    dims.message(1, d == batch ? ProtoWriter().bytes(2, "batch") : ProtoWriter().integer(1, shape[d]));
  const ProtoWriter type = ProtoWriter().integer(1, onnx_type(dtype)).message(2, dims);
  return ProtoWriter().bytes(value_info::name, name).message(value_info::type, ProtoWriter().message(1, type));
}

ProtoWriter entry(const std::string& key, const std::string& value) { return ProtoWriter().bytes(1, key).bytes(2, value); }

std::string_view bytes_of(const Tensor& t) { return {static_cast<const char*>(t.const_data_ptr()), size_t(t.nbytes())}; }

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
  const int64_t before = names_[name]++;
  return before == 0 ? name : unused(name + '_' + std::to_string(before));
}

OnnxFile::Names OnnxFile::nodes(const std::string& op, const Names& inputs, const Named& attributes, int outputs) {
  const std::string path = layer_.empty() ? op : layer_ + '/' + op, name = unused(path);
  ProtoWriter n;
  Names made;
  for (const std::string& i : inputs) n.bytes(node::input, i);
  for (int i = 0; i < outputs; ++i) {
    made.push_back(unused(name + (outputs == 1 ? ".out" : ".out" + std::to_string(i))));
    n.bytes(node::output, made.back());
  }
  n.bytes(node::name, name).bytes(node::op_type, op);
  for (const auto& [key, value] : attributes) n.message(node::attribute, attribute_of(key, value));
  graph_ += ProtoWriter().message(graph::node, n).str();
  ++ops_[op];
  return made;
}

std::string OnnxFile::constant(const Tensor& value, const std::string& name) {
  const NoGrad off;
  (void)onnx_type(value.dtype());
  constants_.push_back({unused(name.empty() ? "constant" : name), value.detach().cpu().contiguous()});
  return constants_.back().name;
}

std::string OnnxFile::ints(const std::vector<int64_t>& values) {
  std::string& name = small_[text(Attributes{{"ints", values}})];
  if (name.empty()) name = constant(from_vector(values, {int64_t(values.size())}), "ints");
  return name;
}

std::string OnnxFile::number(double value, DType dtype) {
  const Tensor t = full({}, value, {.dtype = dtype});
  std::string& name = small_[joined(dtype, ' ', std::string(bytes_of(t)))];
  if (name.empty()) name = constant(t, "number");
  return name;
}

void OnnxFile::input(const std::string& name, DType dtype, const Shape& shape, int batch) {
  unused(name);
  ends_ += ProtoWriter().message(graph::input, value_info_of(name, dtype, shape, batch)).str();
}
void OnnxFile::result(const std::string& value, const std::string& name, DType dtype, const Shape& shape, int batch) {
  check<ExportError>(unused(name) == name, "export", "the output's name is in use: ", name);
  const ProtoWriter identity = ProtoWriter()
                                   .bytes(node::input, value)
                                   .bytes(node::output, name)
                                   .bytes(node::name, name + "/Identity")
                                   .bytes(node::op_type, "Identity");
  graph_ += ProtoWriter().message(graph::node, identity).str();
  ++ops_["Identity"];
  ends_ += ProtoWriter().message(graph::output, value_info_of(name, dtype, shape, batch)).str();
}

int64_t OnnxFile::save(const std::filesystem::path& path, const std::map<std::string, std::string>& metadata, bool external) const {
  int64_t total = int64_t(graph_.size());
  for (const Constant& c : constants_) total += c.value.nbytes();
  external = external || total > kMostBytes;
  const std::filesystem::path beside = path.string() + ".data";

  // Writes the file in pieces, because weights may be large. Their lengths come first.
  const std::string name = ProtoWriter().bytes(graph::name, "halfstep").str();
  std::vector<std::string> heads;
  uint64_t graph_bytes = graph_.size() + name.size() + ends_.size();
  int64_t offset = 0;
  for (const Constant& c : constants_) {
    ProtoWriter head;
    for (const int64_t d : c.value.shape()) head.integer(tensor_proto::dims, d);
    head.integer(tensor_proto::data_type, onnx_type(c.value.dtype())).bytes(tensor_proto::name, c.name);
    // Keeps shapes in the main file: checkers read their values.
    const bool out = external && c.value.nbytes() >= kAlignment;
    const uint64_t inside = out ? 0 : uint64_t(c.value.nbytes());
    if (out) {
      offset = (offset + kAlignment - 1) / kAlignment * kAlignment;
      head.message(tensor_proto::external_data, entry("location", beside.filename().string()))
          .message(tensor_proto::external_data, entry("offset", std::to_string(offset)))
          .message(tensor_proto::external_data, entry("length", std::to_string(c.value.nbytes())))
          .integer(tensor_proto::data_location, 1);
      offset += c.value.nbytes();
    } else {
      head.length(tensor_proto::raw_data, inside);
    }
    heads.push_back(ProtoWriter().length(graph::initializer, head.str().size() + inside).str() + head.str());
    graph_bytes += heads.back().size() + inside;
  }

  ProtoWriter m;
  m.integer(model::ir_version, kOnnxIrVersion).bytes(model::producer_name, "halfstep");
  m.bytes(model::producer_version, HALFSTEP_VERSION).length(model::graph, graph_bytes);
  ProtoWriter tail;
  tail.message(model::opset_import, ProtoWriter().bytes(1, "").integer(2, kOnnxOpset));
  for (const auto& [key, value] : metadata) tail.message(model::metadata_props, entry(key, value));

  AtomicFile file(path);
  std::optional<AtomicFile> data;
  if (external) data.emplace(beside);
  int64_t written = 0, at = 0;
  const auto write = [&](std::string_view bytes) {
    file.write(bytes.data(), bytes.size());
    written += int64_t(bytes.size());
  };
  write(m.str());
  write(graph_);
  write(name);
  for (size_t i = 0; i < constants_.size(); ++i) {
    const std::string_view bytes = bytes_of(constants_[i].value);
    write(heads[i]);
    if (!external || int64_t(bytes.size()) < kAlignment) {
      write(bytes);
      continue;
    }
    const std::string gap(size_t((kAlignment - at % kAlignment) % kAlignment), '\0');
    data->write(gap.data(), gap.size());
    data->write(bytes.data(), bytes.size());
    at += int64_t(gap.size() + bytes.size());
  }
  write(ends_);
  write(tail.str());
  if (data) data->commit();  // first, because the model refers to it
  file.commit();
  return written + at;
}

}  // namespace halfstep
