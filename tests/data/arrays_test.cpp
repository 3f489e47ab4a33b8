// SPDX-License-Identifier: Apache-2.0
#include "framework/data/sets/arrays.h"

#include <doctest/doctest.h>

#include <cmath>
#include <fstream>
#include <string>

#include "framework/base/check.h"
#include "framework/data/formats/npy.h"
#include "framework/data/transforms/data_form.h"
#include "framework/io/files/zip.h"
#include "framework/io/weights/safetensors.h"
#include "framework/ops/ops.h"
#include "tests/data/array_files.h"

using namespace halfstep;
using namespace halfstep::testing;

namespace {

template <class T>
std::string raw(std::initializer_list<T> values) {
  return {reinterpret_cast<const char*>(values.begin()), sizeof(T) * values.size()};
}

}  // namespace

TEST_CASE("npy: dtypes, orders of bytes and of indices") {
  const TempDir dir;
  const auto read = [&](const std::string& bytes) {
    write_bytes(dir / "a.npy", bytes);
    return read_npy(dir / "a.npy");
  };
  const Tensor f = read(npy("<f4", "(2, 3)", raw<float>({1, 2, 3, 4, 5, 6})));
  CHECK(f.dtype() == DType::f32);
  CHECK(f.shape() == Shape{2, 3});
  CHECK(f.to_vector<int>() == std::vector<int>{1, 2, 3, 4, 5, 6});
  CHECK(read(npy("<f4", "(2, 3)", raw<float>({1, 4, 2, 5, 3, 6}), true)).to_vector<int>() == std::vector<int>{1, 2, 3, 4, 5, 6});
  CHECK(read(npy(">i4", "(2,)", std::string("\0\0\1\2\xff\xff\xff\xfe", 8))).to_vector<int>() == std::vector<int>{258, -2});
  CHECK(read(npy("|u1", "(3,)", "\1\2\xff")).dtype() == DType::u8);
  CHECK(read(npy("|b1", "(2,)", std::string("\1\0", 2))).dtype() == DType::boolean);
  CHECK(read(npy("<i2", "()", raw<int16_t>({-7}))).item<int>() == -7);
  CHECK(read(npy("<u2", "(1,)", raw<uint16_t>({65535}))).item<int>() == 65535);
  CHECK(read(npy("<u8", "(1,)", raw<uint64_t>({1ull << 62}))).item<int64_t>() == int64_t(1) << 62);
  CHECK(read(npy("<f8", "(0, 4)", "")).shape() == Shape{0, 4});
  CHECK(read(npy("<f2", "(1,)", std::string("\0\x3c", 2))).item<float>() == 1);
  std::string second = npy("<f8", "(1,)", raw<double>({2.5}));
  second[6] = 2, second.insert(10, std::string(2, '\0'));  // version 2: four bytes of length
  CHECK(read(second).item<double>() == 2.5);
}

TEST_CASE("npz: stored and deflated arrays by name") {
  const TempDir dir;
  write_bytes(
      dir / "a.npz",
      zip({{"x.npy", npy("<f4", "(2, 2)", raw<float>({1, 2, 3, 4}))}, {"y.npy", npy("<i8", "(2,)", raw<int64_t>({1, 0}))}}, true));
  CHECK(read_npz(dir / "a.npz", "x").to_vector<int>() == std::vector<int>{1, 2, 3, 4});
  write_bytes(dir / "b.npz", zip({{"y.npy", npy("<i8", "(2,)", raw<int64_t>({1, 0}))}}, false));
  CHECK(read_npz(dir / "b.npz", "y").to_vector<int>() == std::vector<int>{1, 0});
  // A large one is mapped while it is read.
  const std::string large(3'000'000, '\7'), values = npy("<i4", "(750000,)", large);
  for (const bool deflated : {false, true}) {
    write_bytes(dir / "c.npz", zip({{"w.npy", values}, {"x.npy", values}}, deflated));
    const Tensor x = read_npz(dir / "c.npz", "x");
    write_bytes(dir / "c.npz", "");
    CHECK(x.data_ptr<int32_t>()[749'999] == 0x07070707);
  }
  const ArrayDataset data = ArrayDataset::npz(dir / "a.npz");
  CHECK(data.describe() == "NPZ " + (dir / "a.npz").string() + ": 2 samples, input [2], 2 classes");
  CHECK(data.batch(std::vector<int64_t>{1}).input.to_vector<int>() == std::vector<int>{3, 4});
}

TEST_CASE("arrays: what targets and inputs become") {
  const TempDir dir;
  write_bytes(dir / "x", npy("<f8", "(2, 2)", raw<double>({0.5, 1, 2, 3})));
  write_bytes(dir / "t", npy("<i4", "(2, 3)", raw<int32_t>({0, 1, 2, 3, 4, 5})));
  write_bytes(dir / "y", npy("<f4", "(2, 1)", raw<float>({7, 8})));
  const ArrayDataset numbers = ArrayDataset::npy(dir / "x", dir / "y");
  CHECK(numbers.classes() == 0);
  CHECK(numbers.input().dtype() == DType::f32);
  CHECK(numbers.target_shape() == Shape{1});
  write_bytes(dir / "flat", npy("<f4", "(2,)", raw<float>({7, 8})));
  const ArrayDataset flat = ArrayDataset::npy(dir / "x", dir / "flat");
  CHECK(flat.target_shape() == Shape{1});
  CHECK(flat.batch(std::vector<int64_t>{1, 0}).target.to_vector<float>() == std::vector<float>{8, 7});
  const ArrayDataset tokens = ArrayDataset::npy(dir / "t", dir / "t", {.tokens = true, .vocabulary = 9});
  CHECK(tokens.input_dtype() == DType::i64);
  CHECK(tokens.vocabulary() == 9);
  CHECK(tokens.classes() == 6);
  CHECK(tokens.target_shape() == Shape{3});
  CHECK(ArrayDataset::npy(dir / "t", dir / "t", {.classification = false}).classes() == 0);
  CHECK(ArrayDataset::npy(dir / "x", dir / "t", {.classes = 8}).classes() == 8);
}

TEST_CASE("arrays: what bytes mean") {
  const TempDir dir;
  save_safetensors(dir / "d",
                   {{"x", (arange(0, 24).reshape({2, 3, 4}) * 11).to(DType::u8)}, {"y", from_vector<int64_t>({0, 1}, {2})}});
  const auto largest = [&](ByteMeaning bytes) {
    const ArrayDataset data = ArrayDataset::safetensors(dir / "d", {.bytes = bytes});
    return amax(data.batch(std::vector<int64_t>{1}).input).item<float>();
  };
  CHECK(largest(ByteMeaning::automatic) == 253 * (1.f / 255));
  CHECK(largest(ByteMeaning::pixels) == 253 * (1.f / 255));
  CHECK(largest(ByteMeaning::numbers) == 253);
  const ArrayDataset pixels = ArrayDataset::safetensors(dir / "d");
  CHECK(pixels.notes().summary == "inputs are bytes, read as pixels in [0, 1] (\"bytes\": \"numbers\" leaves them as they are)");
  const TensorForm form = std::get<TensorForm>(read_form(to_json(pixels.form())).source);
  CHECK((form.bytes == ByteMeaning::pixels && form.low == 0 && form.high == 253 * (1.f / 255)));
  // What all transforms and the other data sets have.
  const auto plain = std::make_shared<ArrayDataset>(pixels);
  const auto normalized = transformed(plain, {std::make_shared<NormalizeTransform>(Normalize{.mean = 0.5, .std = 0.25})});
  CHECK(normalized->batch(std::vector<int64_t>{1}).input.to_vector<float>().back() == doctest::Approx((253.0 / 255 - 0.5) / 0.25));
  // Bytes of 0 and 1 are no pixels, whatever their shape.
  const auto bits = [&](const Shape& shape, ByteMeaning bytes = ByteMeaning::automatic) {
    save_safetensors(dir / "bits", {{"x", remainder(arange(0, numel(shape)), 2).reshape(shape).to(DType::u8)},
                                    {"y", from_vector<int64_t>({0, 1}, {2})}});
    const ArrayDataset data = ArrayDataset::safetensors(dir / "bits", {.bytes = bytes});
    return std::pair(amax(data.batch(std::vector<int64_t>{1}).input).item<float>(), data.notes().summary);
  };
  CHECK(bits({2, 3, 300, 200}) == std::pair(1.f, std::string("inputs are bytes of 0 and 1, read as these numbers (\"bytes\": "
                                                             "\"pixels\" divides them by 255)")));
  CHECK(bits({2, 6}) == bits({2, 2, 2}));
  CHECK(bits({2, 3, 4}, ByteMeaning::pixels) == std::pair(1.f / 255, std::string("inputs are bytes, read as pixels in [0, 1]")));
  save_safetensors(dir / "flat",
                   {{"x", (arange(0, 8).reshape({2, 4}) * 30).to(DType::u8)}, {"y", from_vector<int64_t>({0, 1}, {2})}});
  const ArrayDataset flat = ArrayDataset::safetensors(dir / "flat");
  CHECK(amax(flat.batch(std::vector<int64_t>{1}).input).item<float>() == 210);
  CHECK(flat.notes().summary == "inputs are bytes, read as numbers from 0 to 255 (\"bytes\": \"pixels\" divides them by 255)");
}

TEST_CASE("arrays: channels that are last are read as the first") {
  const TempDir dir;
  const Tensor x = arange(0, 2 * 6 * 5 * 3).reshape({2, 6, 5, 3}).to(DType::u8);
  save_safetensors(dir / "d", {{"x", x}, {"y", from_vector<int64_t>({0, 1}, {2})}});
  const ArrayDataset data = ArrayDataset::safetensors(dir / "d", {.bytes = ByteMeaning::numbers, .channels_last = true});
  CHECK(data.input_shape() == Shape{3, 6, 5});
  CHECK(data.batch(std::vector<int64_t>{1}).input.to_vector<float>() ==
        x.narrow(0, 1, 1).permute({0, 3, 1, 2}).to(DType::f32).contiguous().to_vector<float>());
  CHECK(data.notes().summary.starts_with(
      "inputs are bytes, read as numbers from 0 to 255; inputs have their channels last, read as "));
  const DataForm form = read_form(to_json(data.form()));
  CHECK((std::get<TensorForm>(form.source).channels_last && form.input == Shape{3, 6, 5}));
  save_safetensors(dir / "d", {{"x", rand({2, 9, 4})}, {"y", randint(0, 2, {2, 9})}});
  CHECK(ArrayDataset::safetensors(dir / "d", {.channels_last = true}).input_shape() == Shape{4, 9});
  save_safetensors(dir / "d", {{"x", rand({2, 9})}, {"y", randint(0, 2, {2})}});
  CHECK(contains(message_of<DataError>([&] { ArrayDataset::safetensors(dir / "d", {.channels_last = true}); }),
                 "of three dimensions or more, got [2, 9]"));
  CHECK((looks_channels_last({32, 32, 3}) && looks_channels_last({28, 30, 1}) && !looks_channels_last({3, 32, 32})));
  CHECK((!looks_channels_last({3, 8, 3}) && !looks_channels_last({16, 3, 3}) && !looks_channels_last({32, 3})));
}

TEST_CASE("arrays: classes in other forms") {
  const TempDir dir;
  const Tensor kinds = from_vector<int64_t>({2, 0, 1, 1}, {4}), x = rand({4, 5});
  const auto read = [&](const Tensor& y, const ArrayOptions& options = {}, const Tensor& input = {}) {
    save_safetensors(dir / "d", {{"x", input.defined() ? input : x}, {"y", y}});
    return ArrayDataset::safetensors(dir / "d", options);
  };
  const auto is = [&](const ArrayDataset& data, int64_t classes, const Tensor& wanted, const std::string& note) {
    CHECK(data.classes() == classes);
    CHECK(data.target_shape().empty());
    CHECK(data.target().to_vector<int64_t>() == wanted.to_vector<int64_t>());
    CHECK(data.notes().summary == note);
  };
  is(read(one_hot(kinds, 4)), 4, kinds, "targets [4, 4] are one-hot, read as 4 classes");
  is(read(one_hot(kinds, 3).to(DType::f32)), 3, kinds, "targets [4, 3] are one-hot, read as 3 classes");
  is(read(one_hot(kinds, 3).to(DType::boolean)), 3, kinds, "targets [4, 3] are one-hot, read as 3 classes");
  is(read(kinds.unsqueeze(1)), 3, kinds, "targets [4, 1] are read as [4]");
  const Tensor yes = from_vector<int64_t>({1, 0, 1, 1}, {4});
  is(read(yes.to(DType::boolean)), 2, yes, "targets are booleans, read as classes 0 and 1");
  is(read(kinds.to(DType::f32).unsqueeze(1), {.classification = true}), 3, kinds,
     "targets [4, 1] are read as [4]; targets are float32, all whole, read as classes");
  // What may mean something else stays as it is.
  CHECK(read(kinds.to(DType::f32)).classes() == 0);
  CHECK(read(one_hot(kinds, 3), {.classification = false}).target_shape() == Shape{3});
  CHECK(read(one_hot(kinds, 3) + one_hot(yes, 3)).target_shape() == Shape{3});
  CHECK(read(one_hot(kinds, 3), {.tokens = true}, one_hot(kinds, 3)).target_shape() == Shape{3});
  CHECK(read(one_hot(kinds, 3), {}, rand({4, 2, 3})).target_shape() == Shape{3});
  CHECK(contains(message_of<DataError>([&] { read(one_hot(kinds, 3), {.classes = 4}); }),
                 "must have 4 classes, got [4, 3], one-hot"));
  CHECK(contains(message_of<DataError>([&] { read(x.select(1, 0), {.classification = true}); }), "classes must be whole numbers"));
  CHECK(contains(message_of<DataError>([&] { read(from_vector<int64_t>({3}, {})); }), "must have a row for each sample"));
}

TEST_CASE("arrays: a safetensors file is mapped, not copied") {
  const TempDir dir;
  save_safetensors(dir / "d", {{"images", randn({6, 4})}, {"labels", from_vector<int64_t>({0, 1, 2, 0, 1, 2}, {6})}});
  const ArrayDataset data = ArrayDataset::safetensors(dir / "d", {.input = "images", .target = "labels"});
  CHECK(data.size() == 6);
  CHECK(data.classes() == 3);
  const Batch batch = data.batch(std::vector<int64_t>{2, 3});
  CHECK(batch.input.data_ptr() == static_cast<const void*>(data.input().data_ptr<float>() + 8));  // a view of it
  CHECK(batch.target.to_vector<int>() == std::vector<int>{2, 0});
}

TEST_CASE("npy: mapped where nothing is converted, and read where it is") {
  const TempDir dir;
  const std::string data = raw<float>({1, 2, 3, 4});
  const auto map = [&](const std::string& bytes) {
    write_bytes(dir / "m.npy", bytes);
    return map_npy(dir / "m.npy");
  };
  // A header of NumPy's length: the values begin at a multiple of 64.
  const auto padded = [](const std::string& dtype, const std::string& shape, const std::string& values, bool fortran = false) {
    std::string header =
        "{'descr': '" + dtype + "', 'fortran_order': " + (fortran ? "True" : "False") + ", 'shape': " + shape + ", }";
    header.resize(128 - 10 - 1, ' ');
    return npy_of(header + '\n', values);
  };
  const auto is_mapped = [&](const Tensor& t) {
    const auto at = reinterpret_cast<uintptr_t>(t.data_ptr());
    std::ifstream maps("/proc/self/maps");
    for (std::string line; std::getline(maps, line);) {
      const uintptr_t first = std::stoull(line, nullptr, 16), last = std::stoull(line.substr(line.find('-') + 1), nullptr, 16);
      if (first <= at && at < last) return line.find(dir.path().string()) != std::string::npos;
    }
    return false;
  };
  const Tensor mapped = map(padded("<f4", "(2, 2)", data));
  CHECK(is_mapped(mapped));
  CHECK(mapped.to_vector<int>() == std::vector<int>{1, 2, 3, 4});
  mapped.data_ptr<float>()[0] = 9;  // in memory alone
  CHECK(map_npy(dir / "m.npy").to_vector<int>()[0] == 1);
  CHECK(is_mapped(map(padded("|u1", "(3,)", "abc"))));
  const Tensor fortran = map(padded("<f4", "(2, 2)", data, true));
  CHECK(!is_mapped(fortran));
  CHECK(fortran.to_vector<int>() == std::vector<int>{1, 3, 2, 4});
  CHECK(map(padded(">i4", "(1,)", std::string("\0\0\1\2", 4))).item<int>() == 258);
  CHECK(map(padded("<u2", "(1,)", raw<uint16_t>({65535}))).item<int>() == 65535);
  CHECK(map(padded("|b1", "(1,)", std::string("\1", 1))).dtype() == DType::boolean);
  CHECK(map(npy("<f4", "(1,)", raw<float>({5}))).item<int>() == 5);  // wherever its header ends
  CHECK(map(padded("<f4", "(0, 3)", "")).shape() == Shape{0, 3});
  CHECK(contains(message_of<DataError>([&] { map(padded("<f4", "(2, 3)", data)); }), "does not fit into the 16 bytes"));
  CHECK(contains(message_of<DataError>([&] { map("\x93NUM"); }), "it does not begin with"));
  CHECK(contains(message_of<IoError>([&] { map_npy(dir / "none.npy"); }), "none.npy"));
  write_bytes(dir / "x.npy", padded("<f4", "(2, 2)", data));
  write_bytes(dir / "y.npy", padded("<i8", "(2,)", raw<int64_t>({0, 1})));
  const auto set = ArrayDataset::npy(dir / "x.npy", dir / "y.npy");
  CHECK(is_mapped(set.input()));
  CHECK(is_mapped(set.target()));
}

TEST_CASE("arrays: numbers that float32 does not hold are warned of") {
  const TempDir dir;
  const Tensor x = tensor(std::vector<double>{1, -1e39, 3e38, NAN, 5, 6}).view({3, 2}),
               y = tensor(std::vector<double>{1, 2, 1e300});
  save_safetensors(dir / "a.safetensors", {{"x", x}, {"y", y}});
  const auto data = ArrayDataset::safetensors(dir / "a.safetensors");
  CHECK(data.notes().warnings ==
        std::vector<std::string>{"inputs have 1 of 6 values beyond float32's range, such as -1e+39, which become infinite",
                                 "targets have 1 of 3 values beyond float32's range, such as 1e+300, which become infinite"});
}
