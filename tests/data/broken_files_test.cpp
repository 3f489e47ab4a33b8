// SPDX-License-Identifier: Apache-2.0
// Damaged and mistaken files of every data set, and what is said of each. A message names the file and the fault, and nothing else
// than a halfstep::Error comes of any.
#include <doctest/doctest.h>
#include <zlib.h>

#include <functional>

#include "framework/base/check.h"
#include "framework/data/formats/idx.h"
#include "framework/data/formats/image_file.h"
#include "framework/data/formats/npy.h"
#include "framework/data/sets/arrays.h"
#include "framework/data/sets/cifar.h"
#include "framework/data/sets/image_folder.h"
#include "framework/data/sets/mnist.h"
#include "framework/data/sets/text.h"
#include "framework/data/tables/csv.h"
#include "framework/data/tables/time_series.h"
#include "framework/io/weights/safetensors.h"
#include "framework/ops/ops.h"
#include "tests/data/array_files.h"
#include "tests/data/picture_files.h"

using namespace halfstep;
using namespace halfstep::testing;
namespace fs = std::filesystem;

namespace {

struct Broken {
  const char* kind;
  const char* file;
  std::string bytes;
  std::function<void(const fs::path&)> read;
  const char* text;  // of the error
};

std::string idx1(const std::string& data) { return std::string("\0\0\x08\x01\0\0\0", 7) + char(data.size()) + data; }

std::string safetensors(const std::string& header, const std::string& data) { return little(header.size(), 8) + header + data; }

std::string changed(std::string bytes, size_t at, char by = 0x55) {
  bytes[at] = char(bytes[at] ^ by);
  return bytes;
}

std::vector<Broken> all() {
  const auto idx = [](const fs::path& p) { read_idx(p, 1); };
  const auto csv = [](const fs::path& p) { CsvDataset{p}; };
  const auto series = [](const fs::path& p) { TimeSeriesDataset(p, {.time = {"t"}}); };
  const auto text = [](const fs::path& p) { TextDataset(p, {.seq_len = 1}); };
  const auto u16 = [](const fs::path& p) { TextDataset(p, {.tokenizer = Tokenizer::u16, .seq_len = 1, .vocab_size = 100}); };
  const auto npy1 = [](const fs::path& p) { read_npy(p); };
  const auto npz = [](const fs::path& p) { ArrayDataset::npz(p); };
  const auto tensors = [](const fs::path& p) { ArrayDataset::safetensors(p); };
  const auto cifar = [](const fs::path& p) { CifarDataset(p.parent_path(), {.files = {p.filename().string()}}); };
  const auto hundred = [](const fs::path& p) {
    CifarDataset(p.parent_path(), {.labels = CifarLabels::fine, .files = {p.filename().string()}});
  };
  const auto picture = [](const fs::path& p) { read_picture(p, 3); };
  const std::string x = npy("<f4", "(2, 1)", std::string(8, '\0')), y = npy("<i8", "(2,)", std::string(16, '\0'));
  const std::string archive = zip({{"x.npy", x}, {"y.npy", y}}, false), packed = gzipped(idx1("abcdefgh"));
  const std::string picture_bytes = png(4, 4, std::string(48, 'x'));
  return {
      {"IDX magic", "f", "\1" + idx1("ab").substr(1), idx, "the magic number must be 2049"},
      {"IDX of floats", "f", changed(idx1("ab"), 2, 5), idx, "the magic number must be 2049 (unsigned bytes, rank 1), got 3329"},
      {"IDX cut off", "f", idx1("abc").substr(0, 10), idx, "[3] needs 11 bytes, the file has 10"},
      {"IDX with a tail", "f", idx1("abc") + "d", idx, "[3] needs 11 bytes, more follow"},
      {"gzip cut off", "f.gz", packed.substr(0, packed.size() - 6), idx, "cut off"},
      {"gzip damaged", "f.gz", changed(packed, packed.size() - 6), idx, "it is damaged or cut off"},
      {"CIFAR records that are not whole", "b.bin", std::string(3072, '\0'), cifar,
       "must be whole records of 3073 bytes, got 3072 bytes"},
      {"CIFAR label out of range", "b.bin", "\x0b" + std::string(3072, '\0'), cifar,
       "labels must be in 0..9, but that of record 0 is 11"},
      {"CIFAR-100 label out of range", "b.bin", std::string("\0\x64", 2) + std::string(3072, '\0'), hundred,
       "labels must be in 0..99"},
      {"an empty file of records", "b.bin", "", cifar, "got 0 bytes"},
      {"ragged CSV", "t.csv", "a,b\n1,2\n3\n", csv, "t.csv:3:1: a row must have 2 fields like the first, got 1"},
      {"CSV with an open quote", "t.csv", "a,b\n1,\"2\n", csv, "t.csv:2:2: a quote is opened but not closed"},
      {"CSV with an empty cell", "t.csv", "a,b\n1,2\n,3\n", csv, "t.csv:3:1: column \"a\" must be a number, but the cell is empty"},
      {"CSV with a word among numbers", "t.csv", "a,b\n1,2\nx,3\n", csv, "must be a number, got \"x\""},
      {"CSV with infinity", "t.csv", "a,b\n1,2\ninf,3\n", csv, "must be finite in float32, got \"inf\""},
      {"CSV without rows", "t.csv", "\n\n", csv, "the file has no rows"},
      {"series with a gap", "s.csv", "t,v\n1,2\n2,\n3,4\n", series, "s.csv:3:2: column \"v\" has no value: the cell is empty"},
      {"series with a word", "s.csv", "t,v\n1,2\n2,?\n", series, "s.csv:3:2: column \"v\" must be a number, got \"?\""},
      {"series out of order", "s.csv", "t,v\n2,2\n1,3\n", series,
       "s.csv:3:1: column \"t\" must grow from row to row, but \"2\" is followed by \"1\""},
      {"series that is too short", "s.csv", "t,v\n1,2\n", series, "too few for a window of 1 and 1 after it"},
      {"text that is not UTF-8", "t.txt", "gr\xfc\xdf", text, "t.txt:1:3: the text must be UTF-8, but this byte is 252"},
      {"text that ends inside a character", "t.txt", "ab\xe2\x82", text, "t.txt:1:3: the text must be UTF-8"},
      {"empty text", "t.txt", "", text, "has 0 of the file's 0 tokens"},
      {"tokens of odd length", "t.bin", "abc", u16, "must have a multiple of 2 bytes, got 3"},
      {"token beyond the vocabulary", "t.bin", std::string("\1\0\x64\0", 4), u16,
       "tokens must be below vocab_size 100, but token 1 is 100"},
      {"NPY of another format", "a.npy", "\x94NUMPY and so on", npy1, "the file is not one of NumPy's"},
      {"NPY cut off", "a.npy", npy("<f4", "(3,)", std::string(8, '\0')), npy1, "an array [3] of <f4 does not fit into the 8 bytes"},
      {"NPY with a tail", "a.npy", npy("<f4", "(1,)", std::string(8, '\0')), npy1, "needs 4 bytes, but 8 follow the header"},
      {"NPY in Fortran order, cut off", "a.npy", npy("<f4", "(2, 2)", std::string(8, '\0'), true), npy1,
       "an array [2, 2] of <f4 does not fit"},
      {"NPY, big endian, of a size that there is not", "a.npy", npy(">f16", "(1,)", std::string(16, '\0')), npy1,
       "the dtype must be a boolean, integer or float of at most 64 bits, got \">f16\""},
      {"NPY of objects", "a.npy", npy("|O", "(1,)", "x"), npy1, "objects would be unpickled, which runs code of the file"},
      {"NPY of records", "a.npy", npy_of("{'descr': [('a', '<f4')], 'fortran_order': False, 'shape': (1,)}", "abcd"), npy1,
       "an array of records has no halfstep dtype"},
      {"NPY with half a header", "a.npy", npy_of("{'descr': '<f4', 'shape': (1", "abcd"), npy1,
       "the header must be a dictionary of descr"},
      {"NPY of a shape beyond memory", "a.npy", npy("<f4", "(99999999999, 99999999999)", "abcd"), npy1,
       "does not fit into the 4 bytes"},
      {"NPZ without the array", "a.npz", zip({{"x.npy", x}}, true), npz, "has no array \"y\"; it has x"},
      {"NPZ that is no archive", "a.npz", "not a zip archive at all, but a text", npz, "the file is no zip archive, or is cut off"},
      {"NPZ cut off", "a.npz", archive.substr(0, archive.size() - 30), npz, "the file is no zip archive, or is cut off"},
      {"NPZ with a wrong checksum", "a.npz", changed(archive, archive.find("NUMPY") + 70), npz,
       "its checksum is not the one that the archive has"},
      {"NPZ with different numbers of rows", "a.npz",
       zip({{"x.npy", x}, {"y.npy", npy("<i8", "(1,)", std::string(8, '\0'))}}, true), npz,
       "input and target must have a row for each sample, got shapes [2, 1] and [1]"},
      {"NPZ with a negative class", "a.npz", zip({{"x.npy", x}, {"y.npy", npy("<i8", "(2,)", std::string(16, '\xff'))}}, true), npz,
       "labels must be in 0..0, or -100, which is ignored, but label 0 is -1"},
      {"safetensors without the tensor", "a.safetensors",
       safetensors(R"({"x":{"dtype":"F32","shape":[1,1],"data_offsets":[0,4]}})", "abcd"), tensors,
       "there is no tensor \"y\"; there are x"},
      {"safetensors with a wrong shape", "a.safetensors",
       safetensors(R"({"x":{"dtype":"F32","shape":[3,1],"data_offsets":[0,4]}})", "abcd"), tensors, "a.safetensors"},
      {"safetensors cut off", "a.safetensors", safetensors(R"({"x":{"dtype":"F32","shape":[2,1],"data_offsets":[0,8]}})", "abcd"),
       tensors, "a.safetensors"},
      {"PNG cut off", "p.png", picture_bytes.substr(0, picture_bytes.size() - 20), picture, "p.png: the PNG is cut off or damaged"},
      {"PNG of a size beyond its bytes", "p.png", png(16000, 16000, std::string(16000, 'x')), picture,
       "16000 x 16000 pixels cannot lie in "},
      {"PNG damaged", "p.png", changed(picture_bytes, 45), picture, "p.png: the PNG is cut off or damaged"},
      {"JPEG cut off", "p.jpg", jpeg().substr(0, jpeg().size() - 12), picture, "p.jpg: the JPEG is cut off or damaged"},
      {"JPEG that is a GIF", "p.jpg", "GIF89a and so on", picture, "p.jpg: the file is a GIF picture\nhelp: PNG and JPEG are read"},
      {"JPEG that is an AVIF", "p.jpeg",
       std::string("\0\0\0\x1c"
                   "ftypavif\0\0\0\0",
                   16),
       picture, "the file is an AVIF picture"},
      {"PNG that is a text", "p.png", "404", picture, "the content is neither PNG nor JPEG\nhelp: it is damaged, or no picture"},
      {"PNG that is a page", "p.png", "<html>404</html>", picture, "p.png: the file is a web page (HTML)"},
      {"PNG that git-lfs keeps", "p.png", "version https://git-lfs.github.com/spec/v1\noid sha256:4d7a\n", picture,
       "the file is a pointer of git-lfs in place of the file\nhelp: git -C "},
      {"empty picture", "p.png", "", picture, "p.png: the file is empty"},
      {"picture of another kind", "p.webp", std::string("RIFF\0\0\0\0WEBPVP8 ", 16), picture, "the file is a WebP picture"},
  };
}

}  // namespace

TEST_CASE("broken files: each kind is refused with its place and its fault") {
  const TempDir dir;
  int kinds = 0;
  for (const Broken& b : all()) {
    CAPTURE(b.kind);
    if (std::string(b.file).starts_with("p.") && !reads_pictures()) continue;
    const fs::path path = dir / b.file;
    write_bytes(path, b.bytes);
    const std::string message = message_of<Error>([&] { b.read(path); });
    CAPTURE(message);
    CHECK(message.starts_with("["));
    CHECK(contains(message, path.string()));
    CHECK(contains(message, b.text));
    // A library's own words are quoted, with its name, or not there at all.
    for (const char* raw : {"json.exception", "filesystem error", "basic_string", "std::"}) CHECK(!contains(message, raw));
    fs::remove(path);
    ++kinds;
  }
  CHECK(kinds >= 30);
}

TEST_CASE("broken folders: what is missing, and where it was looked for") {
  const TempDir dir;
  const auto error = [](const std::function<void()>& read) { return message_of<Error>(read); };
  CHECK(contains(error([&] { ImageFolderDataset(dir / "none"); }),
                 "none must be a folder with a folder for each class, but is no folder"));
  CHECK(contains(error([&] { ImageFolderDataset{dir.path()}; }), "must have a folder for each class, but has none"));
  fs::create_directory(dir / "cats");
  CHECK(contains(error([&] { ImageFolderDataset{dir.path()}; }), "cats must have pictures (PNG or JPEG), but has none"));
  CHECK(contains(error([&] { MnistDataset{dir.path()}; }), "nothing is downloaded here; fetch and check them with"));
  CHECK(contains(error([&] { CifarDataset{dir.path()}; }), "cifar-10-binary.tar.gz    # 170052171 bytes"));
  for (const auto& read : std::vector<std::function<void(const fs::path&)>>{
           [](const fs::path& p) { TextDataset{p}; }, [](const fs::path& p) { TimeSeriesDataset{p}; },
           [](const fs::path& p) { read_npy(p); }, [](const fs::path& p) { read_npz(p, "x"); },
           [](const fs::path& p) { ArrayDataset::safetensors(p); }, [](const fs::path& p) { CsvDataset{p}; },
           [](const fs::path& p) { read_idx(p, 1); }}) {
    for (const fs::path& path : {dir / "none", dir / "cats"}) {
      const std::string message = message_of<IoError>([&] { read(path); });
      CHECK(contains(message, path.string()));
    }
  }
}
