// SPDX-License-Identifier: Apache-2.0
// A fingerprint depends on the samples alone, and reads a bounded number of them.
#include "framework/data/loading/fingerprint.h"

#include <doctest/doctest.h>

#include <filesystem>
#include <memory>
#include <string>

#include "framework/data/sets/tensor_dataset.h"
#include "framework/data/transforms/transforms.h"
#include "framework/ops/ops.h"
#include "tests/io/files.h"

using namespace halfstep;
using namespace halfstep::testing;

namespace {

// Counts the samples that it is asked for.
class Counted : public Dataset {
 public:
  explicit Counted(int64_t size) : size_(size) {}
  int64_t size() const override { return size_; }
  Shape input_shape() const override { return {1024}; }
  Shape target_shape() const override { return {}; }
  int64_t classes() const override { return 2; }
  Batch batch(std::span<const int64_t> indices) const override {
    asked += std::ssize(indices);
    last = indices.back();
    return {zeros({std::ssize(indices), 1024}), zeros({std::ssize(indices)}, {.dtype = DType::i64})};
  }
  std::string describe() const override { return "Counted"; }
  mutable int64_t asked = 0, last = 0;

 private:
  int64_t size_;
};

}  // namespace

TEST_CASE("fingerprint: any value of a small data set counts, and nothing else does") {
  Generator g(3);
  const Tensor x = randn({300, 5}, {}, &g), y = zeros({300}, {.dtype = DType::i64});
  const std::string first = fingerprint(TensorDataset(x, y));
  CHECK(first == fingerprint(TensorDataset(x.clone(), y.clone())));
  const auto shown = std::make_shared<TensorDataset<>>(x, y);
  CHECK(first == fingerprint(*transformed(
                     shown, {std::make_shared<NormalizeTransform>(std::vector<double>{2}, std::vector<double>{3})}, 7)));
  for (const int64_t row : {0, 1, 150, 299}) {
    CAPTURE(row);
    const Tensor other = x.clone(), label = y.clone();
    other.select(0, row).select(0, 4).fill_(9);
    label.select(0, row).fill_(1);
    CHECK(first != fingerprint(TensorDataset(other, y)));
    CHECK(first != fingerprint(TensorDataset(x, label)));
  }
  CHECK(first != fingerprint(TensorDataset(x.narrow(0, 0, 299), y.narrow(0, 0, 299))));
  std::vector<int64_t> reversed;
  for (int64_t i = 299; i >= 0; --i) reversed.push_back(i);
  CHECK(first != fingerprint(*subset(shown, reversed)));
}

TEST_CASE("fingerprint: of a large data set no more is read than of a smaller one, spread over all of it") {
  const Counted few(1000), many(1'000'000);
  CHECK(fingerprint(few) != fingerprint(many));
  CHECK(few.asked == 1001);  // all, and the first one for its size
  CHECK(many.asked < 2100);
  CHECK(many.last > 999'000);
}

TEST_CASE("fingerprint: files and folders of pictures are the same by their content, not by their names") {
  const TempDir dir;
  const auto file = [&](const char* name, const std::string& bytes) {
    write_bytes(dir / name, bytes);
    return dir / name;
  };
  // A file of which a part is compared, that differs in a compared byte, its last, and in one that is not.
  std::string large(size_t(12) << 20, 'a');
  const auto a = file("a", large), same = file("same", large);
  large.back() = 'b';
  const auto end = file("end", large);
  large.back() = 'a', large[(size_t(1) << 20) + 1] = 'b';
  const auto between = file("between", large);
  CHECK(fingerprint(a) == fingerprint(same));
  CHECK(have_same_content(a, same));
  CHECK(fingerprint(a) != fingerprint(end));
  CHECK(!have_same_content(a, end));
  CHECK(fingerprint(a) == fingerprint(between));
  CHECK(have_same_content(a, between));
  CHECK(!have_same_content(file("empty", ""), file("none", "")));
  CHECK(!have_same_content(a, dir / "absent"));
  CHECK(fingerprint(dir / "absent").empty());
  for (const char* folder : {"x", "y"}) {
    std::filesystem::create_directories(dir / folder / "cat");
    write_bytes(dir / folder / "cat/1.png", "picture");
  }
  CHECK(fingerprint(dir / "x") == fingerprint(dir / "y"));
  CHECK(have_same_content(dir / "x", dir / "y"));
  write_bytes(dir / "y/cat/1.png", "Picture");
  CHECK(!have_same_content(dir / "x", dir / "y"));
  write_bytes(dir / "y/cat/2.png", "picture");
  CHECK(fingerprint(dir / "x") != fingerprint(dir / "y"));
  CHECK(!have_same_content(dir / "x", dir / "y"));
}
