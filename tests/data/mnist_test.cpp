// SPDX-License-Identifier: Apache-2.0
#include "framework/data/sets/mnist.h"

#include <doctest/doctest.h>
#include <zlib.h>

#include <cmath>

#include "framework/base/check.h"
#include "framework/data/formats/idx.h"
#include "framework/io/files/checksum.h"
#include "tests/io/files.h"

using namespace halfstep;
using namespace halfstep::testing;

namespace {

std::string idx(const std::vector<uint32_t>& sizes, const std::string& data, char dtype = 8) {
  std::string out{0, 0, dtype, char(sizes.size())};
  for (uint32_t n : sizes) {
    for (int shift = 24; shift >= 0; shift -= 8) out += char(n >> shift);
  }
  return out + data;
}

void write_gz(const std::filesystem::path& path, const std::string& bytes) {
  gzFile file = gzopen(path.c_str(), "wb");
  gzwrite(file, bytes.data(), unsigned(bytes.size()));
  gzclose(file);
}

std::string idx_error(const std::filesystem::path& path, int rank) {
  const std::string message = message_of<DataError>([&] { read_idx(path, rank); });
  CHECK(contains(message, path.string()));
  return message;
}

// Text without a pattern, which gzip cannot shorten much.
std::string noise(size_t n) {
  std::string out;
  uint32_t x = 1;
  for (size_t i = 0; i < n; ++i) out += char((x = x * 1664525u + 1013904223u) >> 24);
  return out;
}

}  // namespace

TEST_CASE("idx: plain and compressed files read alike") {
  const TempDir dir;
  const std::string bytes = idx({2, 3}, "abcdef");
  write_bytes(dir / "plain", bytes);
  write_gz(dir / "packed", bytes);
  for (const char* file : {"plain", "packed"}) {
    const Tensor t = read_idx(dir / file, 2);
    CHECK(t.dtype() == DType::u8);
    CHECK(t.shape() == Shape{2, 3});
    CHECK(t.to_vector<int>() == std::vector<int>{'a', 'b', 'c', 'd', 'e', 'f'});
  }
  write_bytes(dir / "none", idx({0}, ""));
  CHECK(read_idx(dir / "none", 1).numel() == 0);
}

TEST_CASE("idx: damaged files are refused with what was expected") {
  const TempDir dir;
  CHECK(contains(message_of<IoError>([&] { read_idx(dir / "none", 1); }), "cannot read"));
  write_bytes(dir / "empty", "");
  CHECK(contains(idx_error(dir / "empty", 1), "the header must have 8 bytes, the file has 0"));
  write_bytes(dir / "magic", idx({2}, "ab"));
  CHECK(contains(idx_error(dir / "magic", 3), "the magic number must be 2051 (unsigned bytes, rank 3), got 2049"));
  write_bytes(dir / "floats", idx({2}, "abcdefgh", 13));
  CHECK(contains(idx_error(dir / "floats", 1), "must be 2049 (unsigned bytes, rank 1), got 3329"));
  write_bytes(dir / "head", idx({2, 3}, "").substr(0, 9));
  CHECK(contains(idx_error(dir / "head", 2), "the header must have 12 bytes, the file has 9"));
  write_bytes(dir / "short", idx({2, 3}, "abcde"));
  CHECK(contains(idx_error(dir / "short", 2), "[2, 3] needs 18 bytes, the file has 17"));
  write_bytes(dir / "long", idx({2, 3}, "abcdefg"));
  CHECK(contains(idx_error(dir / "long", 2), "[2, 3] needs 18 bytes, more follow"));
  write_bytes(dir / "huge", idx({4000000000u, 50000}, "abc"));
  CHECK(contains(idx_error(dir / "huge", 2), "the file has 15"));
  write_bytes(dir / "huger", idx({4000000000u, 4000000000u, 4000000000u}, "abc"));
  CHECK(contains(idx_error(dir / "huger", 3), "not plausible"));
}

TEST_CASE("idx: damaged gzip files") {
  const TempDir dir;
  write_gz(dir / "whole", idx({5000}, noise(5000)));
  const std::string packed = read_bytes(dir / "whole");
  REQUIRE(packed.size() > 4000);
  write_bytes(dir / "cut", packed.substr(0, 3000));
  const std::string cut = idx_error(dir / "cut", 1);
  CAPTURE(cut);
  CHECK((contains(cut, "[5000] needs 5008 bytes, the file has ") || contains(cut, "it is damaged or cut off")));
  write_bytes(dir / "tail", packed.substr(0, packed.size() - 4));
  CHECK(contains(idx_error(dir / "tail", 1), "the compressed file is cut off"));
  std::string flipped = packed;
  flipped[2000] ^= 0x10;
  write_bytes(dir / "flipped", flipped);
  CHECK(contains(idx_error(dir / "flipped", 1), "it is damaged or cut off"));
  // Sizes that no file of this length may hold, and those that this one does not.
  for (const uint32_t size : {4'000'000'000u, 90'000u}) {
    write_gz(dir / "promises", idx({size}, noise(500)));
    CHECK(contains(idx_error(dir / "promises", 1), joined('[', size, "] needs ", size + 8ull, " bytes, the file has 508")));
  }
  write_gz(dir / "more", idx({400}, noise(500)));
  CHECK(contains(idx_error(dir / "more", 1), "[400] needs 408 bytes, more follow"));
}

TEST_CASE("mnist: small files in its format") {
  const TempDir dir;
  write_bytes(dir / "t10k-images-idx3-ubyte", idx({2, 28, 28}, std::string(784, '\0') + std::string(784, '\xff')));
  write_gz(dir / "t10k-labels-idx1-ubyte.gz", idx({2}, {3, 9}));
  const MnistDataset data(dir.path(), Split::test);
  CHECK(data.describe() == "MNIST test: 2 samples, input [1, 28, 28], 10 classes");
  const Batch batch = data.batch(std::vector<int64_t>{1, 0});
  CHECK(batch.input.data_ptr<float>()[0] == doctest::Approx(1));
  CHECK(batch.input.data_ptr<float>()[784] == 0);
  CHECK(batch.target.to_vector<int>() == std::vector<int>{9, 3});
  const MnistDataset scaled(dir.path(), Split::test, Normalize::preset("mnist"));
  CHECK(scaled.batch(std::vector<int64_t>{0}).input.data_ptr<float>()[5] == doctest::Approx(-0.1307 / 0.3081));

  std::string cut = read_bytes(dir / "t10k-labels-idx1-ubyte.gz");
  write_bytes(dir / "t10k-labels-idx1-ubyte.gz", cut.substr(0, cut.size() - 4));
  CHECK(contains(message_of<DataError>([&] { MnistDataset bad(dir.path(), Split::test); }),
                 "cut off\nhelp: the published file has 4542 bytes and the sha256 f7ae60f92e00ec6d"));
  write_gz(dir / "t10k-labels-idx1-ubyte.gz", idx({2}, {3, 10}));
  const auto load = [&] { MnistDataset bad(dir.path(), Split::test); };
  CHECK(contains(message_of<DataError>(load), "t10k-labels-idx1-ubyte.gz: labels must be in 0..9, but label 1 is 10"));
  write_gz(dir / "t10k-labels-idx1-ubyte.gz", idx({3}, {1, 2, 3}));
  CHECK(contains(message_of<DataError>(load), "has 2 images, "));
  write_bytes(dir / "t10k-images-idx3-ubyte", idx({1, 2, 2}, "abcd"));
  CHECK(contains(message_of<DataError>(load), "images must be 28 x 28, got [1, 2, 2]"));
}

TEST_CASE("mnist: a label that the loss ignores") {
  const TempDir dir;
  write_bytes(dir / "train-images-idx3-ubyte", idx({2, 28, 28}, std::string(2 * 784, '\1')));
  write_bytes(dir / "train-labels-idx1-ubyte", idx({2}, std::string("\xff\3", 2)));
  const MnistDataset data(dir.path(), MnistOptions{.ignored = 255});
  CHECK(data.classes() == 10);
  CHECK(data.labels() == std::vector<int64_t>{255, 3});
  CHECK(data.notes().ignored == "1 of 2 labels are 255, which loss and metrics leave out");
  CHECK(contains(message_of<DataError>([&] { MnistDataset other(dir.path()); }), "labels must be in 0..9, but label 0 is 255"));
}

TEST_CASE("mnist: the family in its format, and where torchvision puts it") {
  const TempDir dir;
  const auto put = [&](const std::string& folder, const std::string& prefix, char label) {
    std::filesystem::create_directories(dir / folder);
    write_bytes(dir / (folder + "/" + prefix + "-images-idx3-ubyte"), idx({1, 28, 28}, std::string(784, 'x')));
    write_bytes(dir / (folder + "/" + prefix + "-labels-idx1-ubyte"), idx({1}, std::string(1, label)));
  };
  put("FashionMNIST/raw", "train", 9);
  put("kmnist", "t10k", 3);
  put("emnist", "emnist-letters-test", 26);
  const MnistDataset fashion(dir.path(), {.kind = MnistKind::fashion});
  CHECK(fashion.describe() == "FashionMNIST train: 1 samples, input [1, 28, 28], 10 classes");
  CHECK(MnistDataset(dir.path(), {.split = Split::test, .kind = MnistKind::kmnist}).target().item<int>() == 3);
  const MnistDataset letters(dir.path(), {.split = Split::test, .kind = MnistKind::letters});
  CHECK(letters.classes() == 26);
  CHECK(letters.target().item<int>() == 25);
  put("emnist", "emnist-letters-test", 0);
  CHECK(contains(message_of<DataError>([&] { MnistDataset(dir.path(), {.split = Split::test, .kind = MnistKind::letters}); }),
                 "labels must be in 1..26, but label 0 is 0"));
  const std::string message = message_of<DataError>([&] { MnistDataset(dir.path(), {.kind = MnistKind::balanced}); });
  CHECK(contains(message, "[EMNIST balanced] files are missing, looked for " +
                              (dir / "emnist-balanced-train-images-idx3-ubyte").string() + "[.gz], "));
  CHECK(contains(message, "gzip.zip    # 561753746 bytes"));
  CHECK(contains(message, "58c8d27c78d21e728a6bc7b3cc06412e  gzip.zip\" | md5sum -c\n  unzip -j gzip.zip"));
}

TEST_CASE("mnist: missing files, and how to get them") {
  const TempDir dir;
  std::filesystem::create_directory(dir / "mnist");
  write_bytes(dir / "mnist/train-labels-idx1-ubyte", idx({1}, {1}));
  const std::string message = message_of<DataError>([&] { MnistDataset data(dir.path()); });
  CHECK(contains(message, "[MNIST] files are missing, looked for " + (dir / "train-images-idx3-ubyte").string() + "[.gz]"));
  CHECK(contains(message, "\nhelp: "));
  CHECK(contains(message, "curl -LO https://ossci-datasets.s3.amazonaws.com/mnist/train-images-idx3-ubyte.gz"));
  CHECK(contains(message, "train-images-idx3-ubyte.gz    # 9912422 bytes"));
  CHECK(contains(message, "440fcabf73cc546fa21475e81ea370265605f56be210a4024d2ca8f203523609"));
  CHECK(!contains(message, "train-labels-idx1-ubyte.gz"));
}

TEST_SUITE("data") {
  TEST_CASE("mnist: the real files") {
    const auto root = data_root();
    if (!root) return;
    const MnistDataset test(*root, Split::test);
    CHECK(test.size() == 10000);
    std::vector<int> count(10);
    for (int label : test.target().to_vector<int>()) ++count[size_t(label)];
    CHECK(count == std::vector<int>{980, 1135, 1032, 1010, 982, 892, 958, 1028, 974, 1009});
    CHECK(test.batch(std::vector<int64_t>{0}).target.item<int>() == 7);

    const MnistDataset train(*root / "mnist", Split::train);
    CHECK(train.size() == 60000);
    const uint8_t* pixels = train.input().data_ptr<uint8_t>();
    double sum = 0, squares = 0;
    for (int64_t i = 0; i < train.input().numel(); ++i) sum += pixels[i], squares += double(pixels[i]) * pixels[i];
    const double n = 255.0 * double(train.input().numel()), mean = sum / n;
    CHECK(mean == doctest::Approx(0.13066).epsilon(1e-4));
    CHECK(std::sqrt(squares / n / 255 - mean * mean) == doctest::Approx(0.30811).epsilon(1e-4));
    CHECK(sha256_file(*root / "mnist/t10k-labels-idx1-ubyte.gz") ==
          "f7ae60f92e00ec6debd23a6088c31dbd2371eca3ffa0defaefb259924204aec6");
  }
}
