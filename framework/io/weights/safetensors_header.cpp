// SPDX-License-Identifier: Apache-2.0
#include "framework/io/weights/safetensors_header.h"

#include <algorithm>
#include <limits>
#include <nlohmann/json.hpp>
#include <set>
#include <utility>

#include "framework/base/check.h"
#include "framework/io/files/json.h"
#include "framework/io/files/printable.h"

namespace halfstep {
namespace {

constexpr SafetensorsType kTypes[] = {
    {"F16", 2, DType::f16}, {"BF16", 2, DType::bf16}, {"F32", 4, DType::f32}, {"F64", 8, DType::f64}, {"U8", 1, DType::u8},
    {"I8", 1, DType::i8},   {"I16", 2, DType::i16},   {"I32", 4, DType::i32}, {"I64", 8, DType::i64}, {"BOOL", 1, DType::boolean},
    {"U16", 2, DType::i32}, {"U32", 4, DType::i64},   {"U64", 8, DType::i64},
};

// Receives the parts of the header while it is parsed, and refuses all but its few legal forms at once: a hostile header cannot
// make the parser build a tree that is larger than the header.
class HeaderReader : public nlohmann::json_sax<nlohmann::json> {
 public:
  HeaderReader(const std::string& file, SafetensorsHeader& out) : file_(file), out_(out) {}

  bool null() override { fail_unexpected("null"); }
  bool boolean(bool) override { fail_unexpected("a boolean"); }
  bool binary(binary_t&) override { fail_unexpected("binary data"); }
  bool number_float(number_float_t, const string_t& text) override { fail_unexpected("the number " + printable(text, 40)); }
  bool number_integer(number_integer_t value) override { fail_unexpected("the negative number " + std::to_string(value)); }

  bool number_unsigned(number_unsigned_t value) override {
    if (depth_ != 3) fail_unexpected("a number");
    if (field_ == "shape") {
      if (shape_.size() == size_t(kMaxDims)) fail_tensor("has more than ", kMaxDims, " dimensions");
      shape_.push_back(value);
    } else {
      if (offsets_.size() == 2) fail_tensor("has data_offsets that are not two numbers");
      offsets_.push_back(value);
    }
    return true;
  }

  bool string(string_t& value) override {
    if (depth_ != 2) fail_unexpected("a string");
    if (in_metadata_) {
      out_.metadata[field_] = value;
    } else {
      if (field_ != "dtype") fail_unexpected("a string");
      dtype_ = value;
    }
    return true;
  }

  bool start_object(size_t) override {
    if (depth_ > 1) fail_unexpected("an object");
    ++depth_;
    return true;
  }

  bool key(string_t& value) override {
    if (depth_ == 1) {
      tensor_ = value;
      in_metadata_ = value == "__metadata__";
      if (!names_.insert(value).second) fail_file("two entries are named \"", printable(value), '"');
      dtype_.reset();
      shape_.clear();
      offsets_.clear();
    } else if (!in_metadata_ && value != "dtype" && value != "shape" && value != "data_offsets") {
      fail_tensor("has an unknown key \"", printable(value), '"');
    }
    if (depth_ == 2 && !fields_.insert(value).second) fail_tensor("has two keys \"", printable(value), '"');
    field_ = value;
    return true;
  }

  bool end_object() override {
    if (depth_-- == 2) {
      if (!in_metadata_) add_entry();
      fields_.clear();
    }
    return true;
  }

  bool start_array(size_t) override {
    if (depth_ != 2 || in_metadata_ || field_ == "dtype") fail_unexpected("an array");
    ++depth_;
    return true;
  }
  bool end_array() override {
    --depth_;
    return true;
  }

  bool parse_error(size_t, const std::string&, const nlohmann::json::exception& e) override {
    fail_file("the header is not valid JSON (", printable(parser_message(e)), ')');
  }

 private:
  template <class... Parts>
  [[noreturn]] void fail_file(const Parts&... parts) {
    fail<IoError>("safetensors", file_, ": ", parts...);
  }
  template <class... Parts>
  [[noreturn]] void fail_tensor(const Parts&... parts) {
    fail_file("tensor \"", printable(tensor_), "\" ", parts...);
  }
  [[noreturn]] void fail_unexpected(const std::string& what) {
    if (depth_ == 0) fail_file("the header must be a JSON object, got ", what);
    if (depth_ == 1) fail_file("entry \"", printable(tensor_), "\" must be an object, got ", what);
    fail_tensor("must have ", in_metadata_ ? "strings" : "dtype (a string), shape and data_offsets (arrays of unsigned numbers)",
                ", got ", what, " in \"", printable(field_), '"');
  }

  // Checks the entry that has ended, and adds it.
  void add_entry() {
    for (const char* field : {"dtype", "shape", "data_offsets"}) {
      if (!fields_.count(field)) fail_tensor("lacks the key \"", field, '"');
    }
    if (offsets_.size() != 2) fail_tensor("has data_offsets that are not two numbers");
    const SafetensorsType* type = find_safetensors_type(*dtype_);
    uint64_t bytes = 1;
    bool overflow = false;
    for (uint64_t n : shape_) overflow |= __builtin_mul_overflow(bytes, n, &bytes);
    overflow |= __builtin_mul_overflow(bytes, type ? type->bytes : 1, &bytes);
    for (uint64_t n : shape_) overflow |= n > uint64_t(std::numeric_limits<int64_t>::max());
    if (overflow) fail_tensor("has a shape whose size in bytes overflows");
    const auto [begin, end] = std::pair(offsets_[0], offsets_[1]);
    if (!type && begin <= end && bytes / 8 <= end - begin) bytes = end - begin;  // elements have at least one bit
    if (begin > end || end - begin != bytes) {
      fail_tensor("needs ", bytes, " bytes for its shape and dtype, but its data_offsets are [", begin, ", ", end, ']');
    }
    out_.entries.push_back({tensor_, *dtype_, {shape_.begin(), shape_.end()}, begin, end});
  }

  const std::string& file_;
  SafetensorsHeader& out_;
  int depth_ = 0;  // 1: among entries, 2: inside one, 3: inside its shape or data_offsets
  bool in_metadata_ = false;
  std::string tensor_, field_;  // names of the entry and of its key that are being read
  std::set<std::string> names_, fields_;
  std::optional<std::string> dtype_;
  std::vector<uint64_t> shape_, offsets_;
};

}  // namespace

const SafetensorsType* find_safetensors_type(std::string_view name) {
  for (const SafetensorsType& type : kTypes) {
    if (type.name == name) return &type;
  }
  return nullptr;
}

std::string_view safetensors_name(DType dtype) {
  for (const SafetensorsType& type : kTypes) {
    if (type.dtype == dtype) return type.name;
  }
  return {};
}

SafetensorsHeader parse_safetensors_header(std::string_view json, uint64_t data_bytes, const std::string& file) {
  // The parser would take a NUL byte as the end and skip a byte order mark; the reference reader accepts neither.
  check<IoError>(json.find('\0') == std::string_view::npos, "safetensors", file, ": the header is not valid JSON (a NUL byte)");
  check<IoError>(!json.starts_with("\xef\xbb\xbf"), "safetensors", file, ": the header is not valid JSON (a byte order mark)");
  SafetensorsHeader out;
  HeaderReader reader(file, out);
  nlohmann::json::sax_parse(json.begin(), json.end(), &reader);

  std::sort(out.entries.begin(), out.entries.end(),
            [](const TensorEntry& a, const TensorEntry& b) { return std::pair(a.begin, a.end) < std::pair(b.begin, b.end); });
  uint64_t at = 0;
  for (const TensorEntry& e : out.entries) {
    check<IoError>(e.begin == at, "safetensors", file, ": tensors must follow each other without gap or overlap, but \"",
                   printable(e.name), "\" begins at byte ", e.begin, " of the data and the one before ends at ", at);
    at = e.end;
  }
  check<IoError>(at <= data_bytes, "safetensors", file, ": the file is cut off: its tensors need ", at, " bytes, it holds ",
                 data_bytes);
  check<IoError>(at >= data_bytes, "safetensors", file, ": ", data_bytes - at, " bytes follow the last tensor");
  return out;
}

}  // namespace halfstep
