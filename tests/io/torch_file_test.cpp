// SPDX-License-Identifier: Apache-2.0
// Files of torch.save. Those of tests/io/torch are PyTorch's own, written by scripts/make_torch_files.py.
#include "framework/io/weights/torch_file.h"

#include <doctest/doctest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "framework/base/check.h"
#include "framework/io/weights/safetensors.h"
#include "tests/io/files.h"
#include "tests/support/source_dir.h"

using namespace halfstep;
using namespace halfstep::testing;

namespace {

std::filesystem::path torch_fixture(const std::string& name) {
  return std::filesystem::path(halfstep_source_dir()) / "tests/io/torch" / name;
}

// Reads a file in both ways, which must give the same.
TorchFile read_torch(const std::filesystem::path& path) {
  const TorchFile out = load_torch_file(path), shown = map_torch_file(path);
  CHECK(out.names == shown.names);
  REQUIRE(out.tensors.size() == shown.tensors.size());
  for (const auto& entry : out.tensors) {
    const std::string& name = entry.first;
    const Tensor &t = entry.second, &other = shown.tensors.at(name);
    CAPTURE(name);
    CHECK((t.is_contiguous() && other.is_contiguous()));
    CHECK(t.dtype() == other.dtype());
    CHECK(t.shape() == other.shape());
    CHECK(t.to_vector<double>() == other.to_vector<double>());
  }
  return out;
}

std::string torch_error(const std::filesystem::path& path) {
  const std::string message = message_of<DataError>([&] { load_torch_file(path); });
  CHECK(message_of<DataError>([&] { map_torch_file(path); }) == message);
  CHECK(contains(message, path.filename().string()));
  return message;
}
std::string torch_error_of(const std::string& bytes) {
  const TempDir dir;
  write_bytes(dir / "hostile.pt", bytes);
  return torch_error(dir / "hostile.pt");
}

std::vector<double> counted(int64_t n) {
  std::vector<double> out;
  for (int64_t i = 0; i < n; ++i) out.push_back(double(i));
  return out;
}

void check_layer(const TorchFile& file) {
  CHECK(file.names == std::vector<std::string>{"0.weight", "0.bias", "1.weight", "1.bias", "1.running_mean", "1.running_var",
                                               "1.num_batches_tracked"});
  REQUIRE(file.tensors.size() == 7);
  CHECK(file.tensors.at("0.weight").shape() == Shape{2, 3});
  CHECK(file.tensors.at("0.weight").to_vector<double>() == counted(6));
  CHECK(file.tensors.at("1.running_var").to_vector<double>() == counted(2));
  CHECK(file.tensors.at("1.num_batches_tracked").shape() == Shape{});
  CHECK(file.tensors.at("1.num_batches_tracked").dtype() == DType::i64);
}

// A file that is written again and again, for which a disk is slow.
class InMemory {
 public:
  InMemory() : fd_(::memfd_create("torch", MFD_CLOEXEC)) { REQUIRE(fd_ >= 0); }
  ~InMemory() { ::close(fd_); }
  InMemory(const InMemory&) = delete;
  void write(const std::string& bytes) {
    const bool done = ::ftruncate(fd_, 0) == 0 && ::pwrite(fd_, bytes.data(), bytes.size(), 0) == ssize_t(bytes.size());
    REQUIRE(done);
  }
  std::filesystem::path path() const { return "/proc/self/fd/" + std::to_string(fd_); }

 private:
  int fd_;
};

// A pickle of the old format's head, and behind it whatever comes: the third pickle of system facts, and the object.
std::string old_file(const std::string& object, const std::string& rest = std::string("\x80\x02].", 4),
                     const std::string& facts = "}") {
  using namespace std::string_literals;
  return "\x80\x02\x8a\x0a\x6c\xfc\x9c\x46\xf9\x20\x6a\xa8\x50\x19.\x80\x02M\xe9\x03."s + "\x80\x02" + facts + ".\x80\x02" +
         object + "." + rest;
}
std::string little32(uint32_t n) {
  std::string out;
  for (int i = 0; i < 4; ++i) out += char(n >> (8 * i));
  return out;
}
std::string unicode(const std::string& text) { return "X" + little32(uint32_t(text.size())) + text; }
// A dictionary with one float32 tensor "w" of a storage of `elements` elements.
std::string one_tensor(const std::string& offset, const std::string& sizes, const std::string& strides,
                       const std::string& elements) {
  return "}" + unicode("w") + "ctorch._utils\n_rebuild_tensor_v2\n((" + unicode("storage") + "ctorch\nFloatStorage\n" +
         unicode("7") + unicode("cpu") + elements + "tQ" + offset + sizes + strides + "\x89}tRs";
}
std::string storage_7(uint64_t elements, size_t bytes) {
  return "\x80\x02]" + unicode("7") + "a." + little32(uint32_t(elements)) + little32(uint32_t(elements >> 32)) +
         std::string(bytes, '\0');
}

}  // namespace

TEST_CASE("torch files: a state_dict in both formats, of protocols 2 and 4, without checksums and of Python 2") {
  for (const char* name : {"layer.pt", "layer.old.pt", "protocol4.pt", "protocol4.old.pt", "no_checksums.pt"}) {
    CAPTURE(name);
    CHECK(is_torch_file(torch_fixture(name)));
    check_layer(read_torch(torch_fixture(name)));
  }
  for (const char* name : {"python2.pt", "python2.old.pt"}) {
    const TorchFile file = read_torch(torch_fixture(name));
    CHECK(file.names == std::vector<std::string>{"b", "a"});
    CHECK(file.tensors.at("a").to_vector<double>() == counted(3));
  }
  for (const char* name : {"many.pt", "many.old.pt"}) {
    const TorchFile file = read_torch(torch_fixture(name));
    REQUIRE(file.names.size() == 60);
    for (int i = 0; i < 60; ++i) {
      CHECK(file.names[size_t(i)] == "layer." + std::to_string(i));
      CHECK(file.tensors.at("layer." + std::to_string(i)).to_vector<float>() == std::vector<float>{float(2 * i), float(2 * i + 1)});
    }
  }
}

TEST_CASE("torch files: every dtype") {
  for (const char* name : {"dtypes.pt", "dtypes.old.pt"}) {
    const TorchFile file = read_torch(torch_fixture(name));
    REQUIRE(file.names.size() == 10);
    const DType order[] = {DType::f32, DType::f64, DType::f16, DType::bf16, DType::i64,
                           DType::i32, DType::i16, DType::i8,  DType::u8,   DType::boolean};
    for (size_t i = 0; i < 10; ++i) {
      const Tensor& t = file.tensors.at(file.names[i]);
      CAPTURE(file.names[i]);
      CHECK(t.dtype() == order[i]);
      CHECK(t.to_vector<double>() == (order[i] == DType::boolean ? std::vector<double>{0, 1, 1, 1} : counted(4)));
    }
  }
}

TEST_CASE("torch files: views become contiguous, tied tensors stay tied, others are independent") {
  for (const char* name : {"views.pt", "views.old.pt"}) {
    const TorchFile file = read_torch(torch_fixture(name));
    const auto values = [&](const char* key) { return file.tensors.at(key).to_vector<double>(); };
    using Values = std::vector<double>;
    CHECK(values("base") == counted(24));
    CHECK(file.tensors.at("transposed").shape() == Shape{6, 4});
    CHECK(values("transposed") == Values{0, 6, 12, 18, 1, 7, 13, 19, 2, 8, 14, 20, 3, 9, 15, 21, 4, 10, 16, 22, 5, 11, 17, 23});
    CHECK(values("row") == Values{12, 13, 14, 15, 16, 17});
    CHECK(values("column") == Values{1, 7, 13, 19});
    CHECK(values("block") == Values{8, 9, 10, 14, 15, 16});
    CHECK(values("steps") == Values{0, 3, 12, 15});
    CHECK(values("expanded") == Values{0, 1, 0, 1, 0, 1});
    CHECK(values("scalar") == Values{7});
    CHECK(file.tensors.at("scalar").shape() == Shape{});
    CHECK(file.tensors.at("empty").shape() == Shape{0, 3});
    CHECK(values("channels_last") == counted(8));
    CHECK(file.tensors.at("tied").shares_memory_with(file.tensors.at("base")));
    CHECK_FALSE(file.tensors.at("row").shares_memory_with(file.tensors.at("base")));
    file.tensors.at("base").data_ptr<float>()[12] = -1;
    CHECK(values("tied")[12] == -1);
    CHECK(values("row")[0] == 12);
    CHECK(load_torch_file(torch_fixture(name)).tensors.at("base").to_vector<double>() == counted(24));
  }
  // Written into memory, not into the file.
  const TorchFile shown = map_torch_file(torch_fixture("views.pt"));
  shown.tensors.at("base").data_ptr<float>()[12] = -1;
  CHECK(shown.tensors.at("tied").to_vector<double>()[12] == -1);
  CHECK(map_torch_file(torch_fixture("views.pt")).tensors.at("base").to_vector<double>() == counted(24));
}

TEST_CASE("torch files: a checkpoint's only state_dict is found, and what is no tensor is left out") {
  for (const char* name : {"checkpoint.pt", "checkpoint.old.pt"}) check_layer(read_torch(torch_fixture(name)));
  for (const char* name : {"parameter.pt", "parameter.old.pt"}) {
    const TorchFile file = read_torch(torch_fixture(name));
    CHECK(file.names == std::vector<std::string>{"w"});
    CHECK(file.tensors.at("w").to_vector<double>() == counted(2));
  }
  for (const char* kind : {".pt", ".old.pt"}) {
    CHECK(contains(torch_error(torch_fixture(std::string("two_models") + kind)),
                   "one of which must be chosen: \"model\" (7 tensors), \"state_dict\" (7 tensors)\nhelp: \"key\": \"model\""));
    CHECK(contains(torch_error(torch_fixture(std::string("tensor") + kind)),
                   "must be or have a dictionary of tensors, got a tensor"));
  }
}

TEST_CASE("torch files: a dictionary of tensors is found by its content, whatever its key") {
  const auto read = [](const std::string& name, const std::string& key = "") {
    return load_torch_file(torch_fixture(name), Device::cpu, {.key = key});
  };
  const auto error = [&](const std::string& name, const std::string& key = "") {
    return message_of<DataError>([&] { read(name, key); });
  };
  for (const std::string kind : {".pt", ".old.pt"}) {
    const TorchFile student = read("student" + kind);
    check_layer(student);
    CHECK(student.key == "student");
    CHECK(read("student" + kind, "student").names == student.names);
    CHECK(read("layer" + kind).key.empty());
    CHECK(read("layer" + kind, "/").names.size() == 7);
    CHECK(read("two_models" + kind, "state_dict").key == "state_dict");
    // Of {"models": {"ema", "net"}, "optim", "best"} neither the optimizer's states nor a scalar.
    CHECK(contains(error("nested" + kind), "\"models/ema\" (2 tensors), \"models/net\" (1 tensor)\nhelp: "));
    CHECK(read("nested" + kind, "models/ema").names == std::vector<std::string>{"w", "b"});
    CHECK(read("nested" + kind, "models/net").tensors.at("w").to_vector<double>() ==
          counted(3));  // of a class that is a dictionary
    CHECK(
        contains(error("nested" + kind, "models"), "must have tensors under the key \"models\"; its dictionaries of tensors are"));
    CHECK(contains(error("student" + kind, "epoch"), "must have tensors under the key \"epoch\""));
    CHECK(
        contains(error("student" + kind, "teacher"), "must have the key \"teacher\"; its dictionaries of tensors are \"student\""));
  }
}

TEST_CASE("torch files: objects beside the tensors are passed over, and those among them are listed") {
  for (const char* name : {"objects.pt", "objects.old.pt", "objects4.pt", "objects4.old.pt"}) {
    CAPTURE(name);
    const TorchFile file = read_torch(torch_fixture(name));
    check_layer(file);
    CHECK(file.key == "model_state");
    CHECK((file.unread.empty() && file.others == 0));
  }
  for (const char* name : {"mixed.pt", "mixed.old.pt"}) {
    CHECK(contains(torch_error(torch_fixture(name)), "\"z\" must be a dense tensor of float32"));
    const TorchFile file = load_torch_file(torch_fixture(name), Device::cpu, {.list_unread = true});
    CHECK(file.names == std::vector<std::string>{"w"});
    CHECK(file.tensors.at("w").to_vector<double>() == counted(3));
    CHECK(file.others == 1);
    REQUIRE(file.unread.size() == 2);
    CHECK((file.unread[0].name == "z" && file.unread[0].shape == Shape{2} && file.unread[0].is_tensor));
    CHECK(contains(file.unread[0].fault,
                   "{k: torch.view_as_real(t) if torch.is_tensor(t) and t.is_complex() else t for k, t in torch.load("));
    CHECK((file.unread[1].name == "array" && !file.unread[1].is_tensor));
    CHECK(contains(file.unread[1].fault, "got the Python object numpy."));
    CHECK(contains(file.unread[1].fault, "{k: torch.as_tensor(t) if type(t).__name__ == \"ndarray\" else t for k, t in"));
    CHECK(contains(file.unread[1].fault, ", weights_only=False).items()}, \"weights.pt\")"));
  }
}

TEST_CASE("torch files: a module that was pickled whole has the tensors of its state_dict") {
  const TorchFile whole = read_torch(torch_fixture("whole_model.pt"));
  check_layer(whole);
  CHECK(whole.model == "torch.nn.modules.container.Sequential");
  for (const char* name : {"module.pt", "module.old.pt"}) {  // {"model": a class of its own, "epoch": 3}
    CAPTURE(name);
    const TorchFile file = read_torch(torch_fixture(name));
    CHECK(file.key == "model");
    CHECK(file.model == "__main__.Net");
    CHECK(file.names == std::vector<std::string>{"scale", "kept", "body.0.weight", "body.0.bias", "again.weight", "again.bias"});
    CHECK(file.tensors.at("again.weight").shares_memory_with(file.tensors.at("body.0.weight")));
  }
  using namespace std::string_literals;
  // A module whose only child is itself.
  const std::string loop =
      "c__main__\nNet\n)\x81q\x01}("s + unicode("_parameters") + "}" + unicode("_modules") + "}" + unicode("a") + "h\x01sub";
  CHECK(contains(torch_error_of(old_file(loop)), "modules may be 100 inside one another"));
}

TEST_CASE("torch files: a program of TorchScript has the tensors of its state_dict, and is not run") {
  const TorchFile whole = read_torch(torch_fixture("script_layer.pt"));
  check_layer(whole);
  CHECK(whole.model == "__torch__.torch.nn.modules.container.Sequential");
  const TorchFile traced = read_torch(torch_fixture("script_net.pt"));  // has a module under two names, as Net of module.pt has
  CHECK(traced.model.ends_with(".Net"));
  CHECK(traced.names == std::vector<std::string>{"scale", "kept", "left_out", "body.0.weight", "body.0.bias", "again.weight",
                                                 "again.bias"});
  CHECK(traced.tensors.at("again.weight").shares_memory_with(traced.tensors.at("body.0.weight")));
}

TEST_CASE("torch files: other Python objects are refused by name, and nothing is run") {
  const TempDir dir;
  const auto before = std::filesystem::current_path();
  std::filesystem::current_path(dir.path());
  for (const char* name : {"command.pt", "command.old.pt"}) {
    const std::string message = torch_error(torch_fixture(name));
    CHECK(contains(message, "got the keys w; \"w\" is the Python object posix.system, which is not loaded and not run\nhelp: "));
  }
  CHECK(std::filesystem::is_empty(dir.path()));
  std::filesystem::current_path(before);
  CHECK(contains(torch_error(torch_fixture("script.pt")),
                 "got the Python object __torch__.torch.nn.modules.activation.ReLU, which is not loaded and not run"));
  CHECK(contains(torch_error(torch_fixture("plain_pickle.pt")), "got a pickle of another program"));
  CHECK(contains(torch_error_of(old_file("(i__main__\nNet\n")), "got the Python object __main__.Net, which"));
  CHECK(contains(torch_error_of(old_file("\xf7")), "2 to 5, got 247"));
}

TEST_CASE("torch files: tensors that halfstep does not have are refused by name") {
  for (const char* kind : {".pt", ".old.pt"}) {
    CHECK(contains(torch_error(torch_fixture(std::string("complex") + kind)), "\"w\" must be a dense tensor of float32"));
    CHECK(contains(
        torch_error(torch_fixture(std::string("sparse") + kind)),
        "got a sparse tensor\nhelp: in Python, import torch; torch.save({k: t.to_dense() if torch.is_tensor(t) and t.is_sparse"));
    CHECK(contains(torch_error(torch_fixture(std::string("uint16") + kind)), "bool, got uint16\nhelp: "));
  }
  CHECK(contains(torch_error_of(old_file("}", "\x80\x02].", "}" + unicode("little_endian") + "\x89s")), "got a big-endian one"));
  std::string big = read_bytes(torch_fixture("no_checksums.pt"));
  const size_t at = big.find("little");
  REQUIRE(at != std::string::npos);
  CHECK(contains(torch_error_of(big.replace(at, 6, "bigbig")), "little-endian machine, got byteorder \"bigbig\""));
}

TEST_CASE("torch files: a tensor whose metadata says that its sign is the other one is refused") {
  using namespace std::string_literals;
  const std::string one = "K\x01\x85"s, end = "\x89}tRs"s;
  const auto with = [&](const std::string& metadata) {
    const std::string object = one_tensor("K\x00"s, "K\x02\x85"s, one, "K\x02"s);
    return old_file(object.substr(0, object.size() - end.size()) + "\x89}" + metadata + "tRs", storage_7(2, 8));
  };
  const std::string error = torch_error_of(with("}" + unicode("neg") + "\x88s"));
  CHECK(contains(error, "got a tensor that is stored with the other sign\nhelp: in Python, "));
  CHECK(contains(error, "t.resolve_neg()"));
  const TempDir dir;
  for (const std::string& metadata : {"}"s, "N"s, "}" + unicode("neg") + "\x89s", "}" + unicode("device") + "\x88s"}) {
    write_bytes(dir / "good.pt", with(metadata));
    CHECK(read_torch(dir / "good.pt").tensors.at("w").to_vector<float>() == std::vector<float>{0, 0});
  }
}

TEST_CASE("torch files: what is no file of torch.save") {
  const TempDir dir;
  CHECK_FALSE(is_torch_file(dir / "absent.pt"));
  CHECK_FALSE(is_torch_file(dir.path()));
  CHECK(contains(message_of<IoError>([&] { load_torch_file(dir / "absent.pt"); }), "absent.pt: cannot read"));
  CHECK(contains(message_of<IoError>([&] { load_torch_file(dir.path()); }), "cannot read"));
  CHECK(contains(torch_error_of(""), "hostile.pt: is empty"));
  CHECK(contains(torch_error_of("<html>404"), "the file is a web page (HTML)"));
  CHECK(contains(torch_error_of("<htm>404!"), "begins as a zip archive or a pickle, got \"<htm>404!\""));
  save_safetensors(dir / "a",
                   {{std::string(580, 'x'), Tensor::empty({1})}});  // its header's length reads as a pickle of protocol 2
  CHECK(read_bytes(dir / "a").starts_with("\x80\x02"));
  CHECK_FALSE(is_torch_file(dir / "a"));
  CHECK(contains(torch_error_of("PK\3\4 and no directory"), "[zip] "));
}

TEST_CASE("torch files: tensors must lie in their storage, and sizes are checked before memory is allocated") {
  const auto error = [](const std::string& object, uint64_t elements, size_t bytes) {
    return torch_error_of(old_file(object, storage_7(elements, bytes)));
  };
  using namespace std::string_literals;
  const std::string one = "K\x01\x85"s, none = "K\x00"s, huge = "\x8a\x08\xff\xff\xff\xff\xff\xff\xff\x7f"s;
  {
    const TempDir dir;
    write_bytes(dir / "good.pt", old_file(one_tensor(none, "K\x02\x85"s, one, "K\x02"s), storage_7(2, 8)));
    CHECK(read_torch(dir / "good.pt").tensors.at("w").to_vector<float>() == std::vector<float>{0, 0});
  }
  CHECK(contains(error(one_tensor("K\x01"s, "K\x02\x85"s, one, "K\x02"s), 2, 8), "must lie in its storage of 2 elements"));
  CHECK(contains(error(one_tensor(none, "K\x02\x85"s, huge + "\x85", "K\x02"s), 2, 8), "must lie in its storage of 2 elements"));
  CHECK(contains(error(one_tensor(huge, huge + "\x85", huge + "\x85", "K\x02"s), 2, 8), "must lie in its storage of 2 elements"));
  CHECK(contains(error(one_tensor("J\xff\xff\xff\xff"s, one, one, "K\x02"s), 2, 8), "integers of at least 0, got -1"));
  CHECK(contains(error(one_tensor(none, "N"s, one, "K\x02"s), 2, 8), "tuple of sizes and one of strides, got None"));
  CHECK(contains(error(one_tensor(none, one, ")"s, "K\x02"s), 2, 8), "has 1 sizes, but 0 strides"));
  CHECK(contains(error(one_tensor(none, one, one, "K\x03"s), 2, 8), "has a storage of 3 elements, for which the file has 8 bytes"));
  CHECK(contains(error(one_tensor(none, one, one, "K\x02"s), 3, 8), "is cut off: a storage must have 3 elements, but 8 bytes"));
  CHECK(contains(error(one_tensor(none, one, one, "K\x02"s), ~uint64_t(0), 8), "is cut off: a storage must have"));
  // Four bytes that would become 2^40.
  const std::string wide = "\x8a\x06\x00\x00\x00\x00\x00\x01"s, zero = "K\x00\x85"s;
  CHECK(contains(error(one_tensor(none, wide + "\x85", zero, "K\x01"s), 1, 4), "bytes is too much"));
  std::string long_key = one_tensor(none, one, one, "K\x02"s);
  long_key.replace(long_key.find(unicode("7")), unicode("7").size(), unicode(std::string(201, '7')));
  CHECK(contains(error(long_key, 2, 8), "the key of a storage may have 200 bytes, got 201"));
  // Nine dimensions.
  CHECK(contains(error(one_tensor(none, "(K\1K\1K\1K\1K\1K\1K\1K\1K\1t", one, "K\x02"s), 2, 8), "may have 8 dimensions, got 9"));
}

TEST_CASE("torch files: pickles that are damaged, deep, or contain themselves") {
  using namespace std::string_literals;
  CHECK(contains(torch_error_of(old_file(std::string(200000, ']') + std::string(199999, 'a'))), "got a list"));
  CHECK(contains(torch_error_of(old_file("]q\x01h\x01"s + "a")), "got a list"));
  CHECK(contains(torch_error_of(old_file(std::string(4000001, ']'))), "a pickle may have 4000000 values"));
  CHECK(contains(torch_error_of(old_file("h\x05"s)), "it refers to a value that it does not have"));
  CHECK(contains(torch_error_of(old_file("s")), "an opcode lacks its values"));
  CHECK(contains(torch_error_of(old_file("}(K\1u")), "a key has no value"));
  CHECK(contains(torch_error_of(old_file("t")), "an opcode lacks its mark"));
  CHECK(contains(torch_error_of(old_file("K\1)R")), "what is called is no function"));
  CHECK(contains(torch_error_of(old_file("}Nr\xff\xff\xff\xff"s)), "too large a number"));
  CHECK(contains(torch_error_of(old_file("X\xff\xff\xff\xff"s)), "it is cut off"));
  const std::string call = "ccollections\nOrderedDict\nq\x02("s;
  std::string many, twice;  // one list of 1000 pairs, for 200 dictionaries
  for (int i = 0; i < 1000; ++i) many += "h\x03";
  for (int i = 0; i < 200; ++i) twice += "h\x02(h\x01tR";
  CHECK(
      contains(torch_error_of(old_file(call + "](K\1K\1\x86q\x03" + many + "eq\x01tR" + twice)), "it copies lists more than once"));
  CHECK(contains(torch_error_of("\x80\x02}.\x80\x07........"), "got a pickle of another program"));
}

TEST_CASE("torch files: cut off at any byte, and with any byte changed, a file is refused or read") {
  for (const char* name : {"views.pt", "views.old.pt", "checkpoint.old.pt"}) {
    const std::string whole = read_bytes(torch_fixture(name));
    const size_t tensors = load_torch_file(torch_fixture(name)).tensors.size();
    InMemory file;
    for (size_t n = 0; n < whole.size(); ++n) {
      file.write(whole.substr(0, n));
      CAPTURE(n);
      CHECK_THROWS_AS(load_torch_file(file.path()), DataError);
    }
    size_t read = 0;
    for (size_t n = 0; n < whole.size(); ++n) {
      for (const char change : {'\x01', '\x80', '\xff'}) {
        std::string damaged = whole;
        damaged[n] = char(damaged[n] ^ change);
        file.write(damaged);
        try {
          read += load_torch_file(file.path()).tensors.size() <= tensors;
        } catch (const DataError&) {}
      }
    }
    CHECK(read > 0);
  }
}
