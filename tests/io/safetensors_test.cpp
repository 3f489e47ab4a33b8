// SPDX-License-Identifier: Apache-2.0
#include "framework/io/weights/safetensors.h"

#include <doctest/doctest.h>

#include <cstring>

#include "framework/base/check.h"
#include "tests/io/files.h"

using namespace halfstep;
using namespace halfstep::testing;

namespace {

// A file of `json` as the header and `data` zero bytes.
std::string file_of(const std::string& json, size_t data = 0) {
  const uint64_t length = json.size();
  std::string out(8, '\0');
  std::memcpy(out.data(), &length, 8);
  return out + json + std::string(data, '\0');
}

std::string load_error(const std::string& bytes) {
  const TempDir dir;
  write_bytes(dir / "hostile.safetensors", bytes);
  const std::string message = message_of<IoError>([&] { load_safetensors(dir / "hostile.safetensors"); });
  CHECK(message_of<IoError>([&] { map_safetensors(dir / "hostile.safetensors"); }) == message);
  CHECK(contains(message, "hostile.safetensors"));
  return message;
}

std::string entry(const std::string& body) { return "{\"t\":{" + body + "}}"; }

}  // namespace

TEST_CASE("safetensors: every dtype survives a round trip") {
  const TempDir dir;
  TensorMap tensors;
  for (int d = 0; d < kDTypeCount; ++d) {
    const DType dtype = DType(d);
    const Tensor t = Tensor::empty({3, 5}, {.dtype = dtype});
    auto* bytes = static_cast<unsigned char*>(t.data_ptr());
    for (size_t i = 0; i < t.nbytes(); ++i) bytes[i] = dtype == DType::boolean ? (i % 2) : static_cast<unsigned char>(37 * i + 1);
    tensors["x." + std::string(name(dtype))] = t;
  }
  tensors["scalar"] = Tensor::empty({});
  tensors["scalar"].data_ptr<float>()[0] = 2.5f;
  tensors["none"] = Tensor::empty({2, 0, 3}, {.dtype = DType::i64});
  save_safetensors(dir / "f", tensors, {{"format", "pt"}, {"quote\"\n", "\xc3\xa4"}});

  const TensorFile back = load_safetensors(dir / "f");
  CHECK(back.metadata == std::map<std::string, std::string>{{"format", "pt"}, {"quote\"\n", "\xc3\xa4"}});
  REQUIRE(back.tensors.size() == tensors.size());
  for (const auto& [key, t] : tensors) {
    const Tensor& b = back.tensors.at(key);
    CHECK(b.dtype() == t.dtype());
    CHECK(b.shape() == t.shape());
    CHECK((t.nbytes() == 0 || std::memcmp(b.data_ptr(), t.data_ptr(), t.nbytes()) == 0));
  }
}

TEST_CASE("safetensors: data is aligned, largest dtypes first; views are packed") {
  const TempDir dir;
  const Tensor wide = Tensor::empty({2, 3});
  for (int i = 0; i < 6; ++i) wide.data_ptr<float>()[i] = float(i);
  save_safetensors(dir / "f", {{"a", Tensor::empty({3}, {.dtype = DType::u8})},
                               {"b", wide.alias({3, 2}, {1, 3})},
                               {"c", Tensor::empty({1}, {.dtype = DType::f64})},
                               {"d", Tensor::empty({1}, {.dtype = DType::i64})}});
  const SafetensorsHeader header = read_safetensors_header(dir / "f");
  CHECK(header.data_offset % 8 == 0);
  std::string order;
  for (const TensorEntry& e : header.entries) order += e.name;
  CHECK(order == "cdba");
  CHECK(load_safetensors(dir / "f").tensors.at("b").to_vector<float>() == std::vector<float>{0, 3, 1, 4, 2, 5});
}

TEST_CASE("safetensors: a mapped file gives what reading it gives, and is not written to") {
  const TempDir dir;
  TensorMap tensors;
  for (DType dtype : {DType::f64, DType::f32, DType::bf16, DType::i64, DType::i8, DType::boolean}) {
    const Tensor t = Tensor::empty({3, 5}, {.dtype = dtype});
    for (size_t i = 0; i < t.nbytes(); ++i)
      static_cast<unsigned char*>(t.data_ptr())[i] = dtype == DType::boolean ? i % 2 : 3 * i + 1;
    tensors[std::string(name(dtype))] = t;
  }
  tensors["none"] = Tensor::empty({0, 3});
  save_safetensors(dir / "f", tensors, {{"format", "pt"}});
  const TensorFile read = load_safetensors(dir / "f");
  TensorFile shown = map_safetensors(dir / "f");
  CHECK(shown.metadata == read.metadata);
  REQUIRE(shown.tensors.size() == read.tensors.size());
  for (const auto& [key, t] : read.tensors) {
    const Tensor& m = shown.tensors.at(key);
    CHECK(m.dtype() == t.dtype());
    CHECK(m.shape() == t.shape());
    CHECK((t.nbytes() == 0 || std::memcmp(m.data_ptr(), t.data_ptr(), t.nbytes()) == 0));
  }
  shown.tensors.at("float32").fill_(7);
  CHECK(shown.tensors.at("float32").to_vector<float>()[14] == 7);
  CHECK(load_safetensors(dir / "f").tensors.at("float32").to_vector<float>() == tensors.at("float32").to_vector<float>());
  // The tensors outlive the file's name and each other.
  const Tensor kept = shown.tensors.at("float64");
  shown = {};
  std::filesystem::remove(dir / "f");
  CHECK(kept.to_vector<double>() == tensors.at("float64").to_vector<double>());
}

TEST_CASE("safetensors: a mapped tensor that lies askew is read") {
  const TempDir dir;
  std::string json =
      R"({"a":{"dtype":"I8","shape":[1],"data_offsets":[0,1]},"b":{"dtype":"F32","shape":[2],"data_offsets":[1,9]}})";
  json.resize((json.size() + 7) / 8 * 8, ' ');
  std::string bytes = file_of(json, 9);
  const float two[2] = {1.5f, -2};
  std::memcpy(bytes.data() + bytes.size() - 8, two, 8);
  write_bytes(dir / "f", bytes);
  const TensorFile shown = map_safetensors(dir / "f");
  CHECK(shown.tensors.at("b").to_vector<float>() == std::vector<float>{1.5f, -2});
  CHECK(reinterpret_cast<uintptr_t>(shown.tensors.at("b").data_ptr()) % 4 == 0);
}

TEST_CASE("safetensors: an empty file of no tensors") {
  const TempDir dir;
  save_safetensors(dir / "f", {});
  CHECK(load_safetensors(dir / "f").tensors.empty());
  save_safetensors(dir / "f", {}, {{"a", "b"}});
  CHECK(load_safetensors(dir / "f").metadata.at("a") == "b");
}

TEST_CASE("safetensors: what cannot be saved") {
  const TempDir dir;
  CHECK(contains(message_of<ValueError>([&] { save_safetensors(dir / "f", {{"w", Tensor()}}); }), "tensor \"w\" is undefined"));
  CHECK(contains(message_of<ValueError>([&] {
                   save_safetensors(dir / "f", {{"__metadata__", Tensor::empty({1})}});
                 }),
                 "__metadata__"));
  CHECK(contains(message_of<ValueError>([&] { save_safetensors(dir / "f", {{"\xff", Tensor::empty({1})}}); }), "UTF-8"));
  CHECK(!std::filesystem::exists(dir / "f"));
  CHECK(contains(message_of<IoError>([&] { load_safetensors(dir / "f"); }), "No such file"));
}

TEST_CASE("safetensors: hostile headers are refused with the fault") {
  CHECK(contains(load_error("abc"), "it has 3 bytes"));
  CHECK(contains(load_error(std::string(8, '\xff') + "{}"), "may have 100000000 bytes, this one says 18446744073709551615"));
  CHECK(contains(load_error(file_of("")), "not valid JSON"));
  CHECK(contains(load_error(file_of("[]")), "must be a JSON object, got an array"));
  CHECK(contains(load_error(file_of("{} {}")), "not valid JSON"));
  CHECK(contains(load_error(file_of("{\"a\":3}")), "entry \"a\" must be an object, got a number"));
  CHECK(contains(load_error(file_of("{\"\xff\":{}}")), "UTF-8"));
  CHECK(contains(load_error(file_of(std::string(1000000, '['))), "must be a JSON object"));
  CHECK(
      contains(load_error(file_of(entry("\"dtype\":\"F32\",\"shape\":[1],\"shape\":[1],\"data_offsets\":[0,4]"), 4)), "two keys"));
  CHECK(contains(load_error(file_of("{\"t\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1]},"
                                    "\"t\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[1,2]}}",
                                    2)),
                 "two entries are named \"t\""));
  CHECK(contains(load_error(file_of(entry("\"dtype\":\"F32\",\"shape\":[1]"), 4)), "lacks the key \"data_offsets\""));
  CHECK(contains(load_error(file_of(entry("\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4],\"x\":1"), 4)),
                 "unknown key \"x\""));
  CHECK(contains(load_error(file_of(entry("\"dtype\":\"Q7\",\"shape\":[1],\"data_offsets\":[0,4]"), 4)), "dtype \"Q7\""));
  CHECK(contains(load_error(file_of(entry("\"dtype\":7,\"shape\":[1],\"data_offsets\":[0,4]"), 4)), "got a number"));
  CHECK(contains(load_error(file_of(entry("\"dtype\":\"F32\",\"shape\":[-1],\"data_offsets\":[0,4]"), 4)), "negative number -1"));
  CHECK(contains(load_error(file_of(entry("\"dtype\":\"F32\",\"shape\":[1.5],\"data_offsets\":[0,4]"), 4)), "the number 1.5"));
  CHECK(contains(load_error(file_of(entry("\"dtype\":\"F32\",\"shape\":[[1]],\"data_offsets\":[0,4]"), 4)), "got an array"));
  CHECK(contains(load_error(file_of(entry("\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4,8]"), 4)), "not two numbers"));
  CHECK(contains(load_error(file_of(entry("\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[4,0]"), 4)), "needs 4 bytes"));
  CHECK(contains(load_error(file_of(entry("\"dtype\":\"F32\",\"shape\":[1,1,1,1,1,1,1,1,1],\"data_offsets\":[0,4]"), 4)),
                 "more than 8 dimensions"));
  CHECK(contains(load_error(file_of(entry("\"dtype\":\"F32\",\"shape\":[0,18446744073709551615],\"data_offsets\":[0,0]"))),
                 "overflows"));
  CHECK(contains(
      load_error(file_of(entry("\"dtype\":\"U8\",\"shape\":[4611686018427387904],\"data_offsets\":[0,4611686018427387904]"))),
      "the file is cut off"));
  CHECK(contains(load_error(file_of(entry("\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[1,2]"), 2)), "without gap or overlap"));
  CHECK(contains(load_error(file_of("{\"__metadata__\":{\"a\":1}}")), "must have strings"));
}

// As the reference reader does, safetensors 0.8.0 of Python.
TEST_CASE("safetensors: white space may surround a header, and nothing else") {
  const TempDir dir;
  for (const char* good : {"{}      ", "{}\n", "{}\t\r\n ", "  {}", "\n{}"}) {
    CAPTURE(good);
    write_bytes(dir / "f", file_of(good));
    CHECK(load_safetensors(dir / "f").tensors.empty());
  }
  CHECK(contains(load_error(file_of(std::string("{}\0garbage", 10))), "not valid JSON (a NUL byte)"));
  CHECK(contains(load_error(file_of(std::string("{}\0", 3))), "not valid JSON (a NUL byte)"));
  CHECK(contains(load_error(file_of("\xef\xbb\xbf{}")), "not valid JSON (a byte order mark)"));
  for (const char* broken : {"{}x", "{} {", "{}\v", "{}\xc2\xa0", "{}//", "{,}", "{]}", "{\"a\"}", "{\"\xff\":1}"}) {
    CAPTURE(broken);
    const std::string error = load_error(file_of(broken));
    CHECK(contains(error, "not valid JSON ("));
    CHECK_FALSE(contains(error, "json.exception"));
    CHECK_FALSE(contains(error, "parse error"));
  }
}

TEST_CASE("safetensors: unsigned types become larger signed ones, bytes of bool become true") {
  const TempDir dir;
  const std::string json =
      "{\"q\":{\"dtype\":\"U64\",\"shape\":[1],\"data_offsets\":[0,8]},\"b\":{\"dtype\":\"BOOL\",\"shape\":[2],\"data_offsets\":[8,"
      "10]}}";
  std::string bytes = file_of(json, 10);
  bytes[bytes.size() - 1] = 2;
  bytes[8 + json.size()] = 5;
  write_bytes(dir / "f", bytes);
  const TensorFile file = load_safetensors(dir / "f");
  CHECK(file.tensors.at("q").to_vector<int64_t>() == std::vector<int64_t>{5});
  CHECK(file.tensors.at("b").dtype() == DType::boolean);
  CHECK(file.tensors.at("b").to_vector<int>() == std::vector<int>{0, 1});
  bytes[8 + json.size() + 7] = char(0x80);
  CHECK(contains(load_error(bytes), "does not fit int64: 9223372036854775813"));
}

TEST_SUITE("data") {
  TEST_CASE("safetensors: real files are read") {
    const auto root = data_root();
    if (!root) return;
    const auto valid = *root / "safetensors" / "valid";
    int files = 0;
    for (const auto& file : std::filesystem::directory_iterator(valid)) {
      CAPTURE(file.path());
      CHECK_NOTHROW(load_safetensors(file.path()));
      ++files;
    }
    CHECK(files == 18);

    const TensorFile all = load_safetensors(valid / "dtypes-all.safetensors");
    CHECK(all.metadata == std::map<std::string, std::string>{{"test", "a"}});
    CHECK(all.tensors.size() == 9);
    const std::vector<double> wanted{-3, -2, -1, 0, 1, 2};
    for (const char* key : {"b", "d", "e", "f", "h", "i"}) CHECK(all.tensors.at(key).to_vector<double>() == wanted);
    CHECK(all.tensors.at("B").to_vector<int64_t>() == std::vector<int64_t>{253, 254, 255, 0, 1, 2});
    CHECK(all.tensors.at("H").to_vector<int64_t>() == std::vector<int64_t>{65533, 65534, 65535, 0, 1, 2});
    CHECK(all.tensors.at("I").to_vector<int64_t>() == std::vector<int64_t>{4294967293, 4294967294, 4294967295, 0, 1, 2});
    CHECK(all.tensors.at("H").dtype() == DType::i32);
    CHECK(all.tensors.at("I").dtype() == DType::i64);

    const TensorFile mlp = load_safetensors(valid / "mnist-mlp-784-128-10.safetensors");
    CHECK(mlp.tensors.at("l1.weight").shape() == Shape{128, 784});
    CHECK(mlp.tensors.at("l2.weight").shape() == Shape{10, 128});
    const Tensor scalar = load_safetensors(valid / "scalar-i32.safetensors").tensors.at("test");
    CHECK(scalar.shape() == Shape{});
    CHECK(scalar.item<int>() == 0);
    for (int64_t code : load_safetensors(valid / "jfk-codes-i64.safetensors").tensors.at("codes").to_vector<int64_t>()) {
      if (code < 0 || code > 1023) FAIL_CHECK("code out of range: " << code);
    }
  }

  TEST_CASE("safetensors: malformed files are refused") {
    const auto root = data_root();
    if (!root) return;
    const std::map<std::string, std::string> faults = {{"header-length-past-end", "the header says 1000 bytes, but 80 follow"},
                                                       {"buffer-two-bytes-short", "the file is cut off"},
                                                       {"trailing-bytes", "34 bytes follow the last tensor"},
                                                       {"empty-file", "it has 0 bytes"},
                                                       {"header-missing", "the header says 60 bytes, but 0 follow"},
                                                       {"header-too-large", "a header may have 100000000 bytes"},
                                                       {"header-not-utf8", "not valid JSON"},
                                                       {"header-not-json", "not valid JSON"},
                                                       {"offsets-disagree-with-shape", "needs 16 bytes"},
                                                       {"shape-product-overflow", "overflows"},
                                                       {"shape-bytes-overflow", "overflows"},
                                                       {"overlapping-offsets", "without gap or overlap"}};
    for (const auto& each : faults) {
      const std::string &file = each.first, &fault = each.second;
      CAPTURE(file);
      const auto path = *root / "safetensors" / "invalid" / (file + ".safetensors");
      const std::string message = message_of<IoError>([&] { load_safetensors(path); });
      CAPTURE(message);
      CHECK(contains(message, path.string()));
      CHECK(contains(message, fault));
    }
  }
}
