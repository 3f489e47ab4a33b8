// SPDX-License-Identifier: Apache-2.0
// Encodings, packed files, and files that are something else.
#include "framework/data/formats/text_file.h"

#include <doctest/doctest.h>
#include <signal.h>
#include <sys/resource.h>
#include <zlib.h>

#include <fstream>

#include "framework/base/check.h"
#include "framework/base/sanitizers.h"
#include "framework/data/tables/csv.h"
#include "framework/data/formats/image_file.h"
#include "framework/data/formats/npy.h"
#include "framework/data/sets/text.h"
#include "framework/data/tables/time_series.h"
#include "framework/io/files/gzip.h"
#include "framework/io/weights/safetensors.h"
#include "framework/io/weights/torch_file.h"
#include "tests/data/array_files.h"
#include "tests/io/files.h"
#include "tests/support/environment.h"

using namespace halfstep;
using namespace halfstep::testing;

namespace {

// UTF-16 of code points below 0x10000.
std::string wide(std::u16string_view text, bool little) {
  std::string out;
  for (const char16_t c : text) {
    const char low = char(c & 0xff), high = char(c >> 8);
    out += little ? low : high, out += little ? high : low;
  }
  return out;
}

struct Text {
  TempDir dir;
  std::filesystem::path path = dir / "t.csv";
  DataNotes notes{};
  explicit Text(std::string_view bytes) { write_bytes(path, bytes); }
  std::string read(TextEncoding encoding = TextEncoding::utf8, bool tables = true) {
    return read_text_file(path, encoding, "CSV", tables, notes);
  }
  std::string fault(TextEncoding encoding = TextEncoding::utf8, bool tables = true) {
    return message_of<DataError>([&] { read(encoding, tables); });
  }
};

const std::string kGreen = "gr\xc3\xbcn\n";

}  // namespace

TEST_CASE("text files: four encodings, and marks that decide") {
  CHECK(Text("gr\xfcn\n").read(TextEncoding::latin1) == kGreen);
  CHECK(Text("\x80 \x93\n").read(TextEncoding::windows1252) == "\xe2\x82\xac \xe2\x80\x9c\n");
  CHECK(contains(Text("a\nb\x81").fault(TextEncoding::windows1252),
                 "t.csv:2:2: the text must be windows-1252, which has no byte 129"));
  std::string all;
  for (int c = 1; c < 256; ++c) all += char(c);
  CHECK(Text(all).read(TextEncoding::latin1).size() == 127 + 2 * 128);
  for (const bool little : {true, false}) {
    const std::string bytes = wide(u"gr\u00fcn\n", little), mark = wide(u"\ufeff", little);
    CHECK(Text(bytes).read(TextEncoding::utf16) == kGreen);
    Text marked(mark + bytes);
    CHECK(marked.read() == kGreen);
    CHECK(marked.notes.summary == "read as UTF-16, as its byte-order mark says");
    CHECK(contains(Text(bytes).fault(), "the text is UTF-16, but is to be read as utf-8\nhelp: \"encoding\": \"utf-16\" reads it"));
    CHECK(Text(mark + wide(u"\xd83d\xde00", little)).read() == "\xf0\x9f\x98\x80");
    for (const auto* half : {u"a\n\xd83d", u"a\n\xd83dz", u"a\n\xde00z"})
      CHECK(
          contains(Text(mark + wide(half, little)).fault(), "t.csv:2: the text must be UTF-16, but has half of a surrogate pair"));
    CHECK(contains(Text(mark + bytes + "x").fault(), "has an odd number of bytes"));
  }
  CHECK(Text("\xef\xbb\xbf" + kGreen).read() == kGreen);
  CHECK(Text("\xef\xbb\xbf" + kGreen).read(TextEncoding::latin1) == kGreen);
  CHECK(contains(Text(kGreen).fault(TextEncoding::utf16), "the text is UTF-8, but is to be read as utf-16\nhelp: leave"));
  const std::string four = std::string("\xff\xfe\0\0g\0\0\0", 8), back = std::string("\0\0\xfe\xff\0\0\0g", 8);
  for (const std::string& bytes : {four, back})
    CHECK(contains(Text(bytes).fault(),
                   "t.csv: the text is UTF-32, as its byte-order mark says, which is not read\nhelp: iconv -f "
                   "UTF-32 -t UTF-8 t.csv > new-t.csv"));
  Text mistaken(kGreen);
  mistaken.read(TextEncoding::latin1);
  REQUIRE(mistaken.notes.warnings.size() == 1);
  CHECK(contains(mistaken.notes.warnings[0], "the file is UTF-8, but is read as latin-1"));
}

TEST_CASE("text files: a text in UTF-8 with a few broken places is not taken for an older encoding") {
  const std::string good = "a,caf\xc3\xa9\nb,\xc5\x81\xc3\xb3"
                           "d\xc5\xba\n";  // words in French and Polish
  const std::string cut = good + "c,caf\xc3\nd,\xed\xa0\x80\n";                // the end of a character, a surrogate
  const auto help = [](const std::string& bytes) {
    Text t(bytes);
    return message_of<DataError>([&] { CsvDataset(t.path, {}); });
  };
  CHECK(contains(help(cut), "help: the file is UTF-8 but for 2 places in lines 3, 4: correct it, or leave them out: iconv -f UTF-8 "
                            "-t UTF-8 -c t.csv > new-t.csv"));
  CHECK(!contains(help(cut), "latin-1"));
  CHECK(contains(help("a,caf\xe9\nb,\xfcr\n"), "\"encoding\": \"latin-1\" reads it"));
  for (const TextEncoding encoding : {TextEncoding::latin1, TextEncoding::windows1252}) {
    Text mistaken(encoding == TextEncoding::latin1 ? cut : good.substr(0, 8) + "\nc,caf\xc3\n");
    mistaken.read(encoding);
    REQUIRE(mistaken.notes.warnings.size() == 1);
    CHECK(contains(mistaken.notes.warnings[0], "the file is UTF-8 but for "));
    Text right("a,caf\xe9\nb,\xc9t\xe9 \xab\xbb\n");  // nothing is said of a text in the encoding
    right.read(encoding);
    CHECK(right.notes.warnings.empty());
  }
  CHECK(contains(Text("\xc3\x81\n").fault(TextEncoding::windows1252), "help: the text is UTF-8: leave \"encoding\" out"));
}

TEST_CASE("text files: packed by gzip, whatever the name") {
  const std::string text = "a,b\n1,2\n3,4\n";
  Text one(gzipped(text));
  CHECK(one.read() == text);
  CHECK(one.notes.summary == "unpacked by gzip");
  CHECK(Text(gzipped(text) + gzipped("5,6\n") + std::string(100, '\0')).read() == text + "5,6\n");
  CHECK(Text(gzipped(std::string(3'000'000, 'x'))).read().size() == 3'000'000);
  CHECK(Text(gzipped("")).read().empty());
  CHECK(Text(gzipped(wide(u"\ufeffgr\u00fcn\n", true))).read() == kGreen);
  std::string damaged = gzipped(text);
  damaged[12] = char(damaged[12] ^ 0x55);
  CHECK(contains(Text(damaged).fault(), "t.csv: the file is packed by gzip, but is damaged"));
  for (const size_t cut : {5, 1}) {
    const std::string whole = gzipped(text);
    CHECK(contains(Text(whole.substr(0, whole.size() - cut)).fault(), "is packed by gzip, but is cut off"));
  }
  CHECK(contains(Text(gzipped(text) + "more").fault(), "something else follows the packed data"));
  CHECK(CsvDataset(one.path, {.classification = false}).size() == 2);
  CHECK(TimeSeriesDataset(one.path).size() == 1);
  const TextDataset characters(one.path, {.seq_len = 2});
  CHECK(characters.tokens().size() == 8);
  CHECK(characters.notes().summary == "unpacked by gzip");
  // Bytes are not text: they are unpacked by the name alone.
  CHECK(TextDataset(one.path, {.tokenizer = Tokenizer::byte, .seq_len = 1}).size() == int64_t(gzipped(text).size()) - 1);
  write_bytes(one.dir / "t.gz", gzipped(text));
  CHECK(TextDataset(one.dir / "t.gz", {.tokenizer = Tokenizer::byte, .seq_len = 1}).size() == int64_t(text.size()) - 1);
}

TEST_CASE("text files: what gzip packed of more than a bound lies in a file without a name") {
  const TempDir dir;
  std::string text;
  for (int i = 0; i < 400'000; ++i) text += std::to_string(int64_t(i) * 7919 % 100'003) + '\n';
  const std::string packed = gzipped(text.substr(0, 1'000'000)) + gzipped(text.substr(1'000'000)) + std::string(20, '\0');
  const auto unpack = [](const std::string& bytes) { return unpack_gzip(bytes, false, "CSV", "t.csv", 1 << 20); };
  const auto fault = [&](const std::string& bytes) { return message_of<DataError>([&] { unpack(bytes); }); };
  {
    const Environment folder("TMPDIR", dir.path().string());
    Unpacked out = unpack(packed);
    CHECK(out.mapped);
    CHECK(out.note == "unpacked by gzip into a temporary file of 2 MB in " + dir.path().string());
    CHECK(std::filesystem::is_empty(dir.path()));
    CHECK(out.bytes == text);
    const Unpacked small = unpack_gzip(packed, false, "CSV", "t.csv");
    CHECK_FALSE(small.mapped);
    CHECK(small.bytes == text);
    CHECK(contains(fault(packed + "more"), "t.csv: the file is packed by gzip, but something else follows the packed data"));
    CHECK(contains(fault(packed.substr(0, packed.size() - 25)), "is packed by gzip, but is cut off"));
    std::string damaged = packed;
    damaged[packed.size() - 25] = char(damaged[packed.size() - 25] ^ 0x55);  // of the checksum
    CHECK(contains(fault(damaged), "is packed by gzip, but is damaged"));
    rlimit before{};
    getrlimit(RLIMIT_FSIZE, &before);
    const auto handler = signal(SIGXFSZ, SIG_IGN);
    const rlimit few{1'500'000, before.rlim_max};
    setrlimit(RLIMIT_FSIZE, &few);
    const std::string full = message_of<IoError>([&] { unpack(packed); });
    setrlimit(RLIMIT_FSIZE, &before);
    signal(SIGXFSZ, handler);
    CHECK_MESSAGE(contains(full, "t.csv: what gzip packed has no room in /"), full);
    CHECK_MESSAGE(contains(full, "after 1500000 bytes\nhelp: the variable TMPDIR names another folder"), full);
    CHECK(std::filesystem::is_empty(dir.path()));
  }
  const Environment nowhere("TMPDIR", (dir / "nowhere").string());
  const Unpacked out = unpack(packed);
  CHECK_FALSE(out.mapped);
  CHECK(out.bytes == text);
}

TEST_CASE("text files: packed by gzip and large, they take no memory for their text") {
  const TempDir dir;
  const Environment folder("TMPDIR", dir.path().string());
  const auto own = [] {  // bytes of memory that no file backs
    std::ifstream in("/proc/self/status");
    int64_t kib = 0;
    for (std::string word; in >> word;)
      if (word == "RssAnon:") in >> kib;
    return kib * 1024;
  };
  const std::string line = "0123456789,abcdefghij\n";
  {
    std::string member;
    for (int i = 0; i < 400'000; ++i) member += line;
    const std::string packed = gzipped(member);
    std::string all;
    for (int i = 0; i < 10; ++i) all += packed;
    write_bytes(dir / "t.gz", all);
  }
  [[maybe_unused]] const int64_t before = own();
  const TextDataset bytes(dir / "t.gz", {.tokenizer = Tokenizer::byte, .seq_len = 10});
#ifndef HALFSTEP_ADDRESS_SANITIZER  // which keeps freed memory for a while
  CHECK(own() - before < 30'000'000);
#endif
  CHECK(bytes.notes().summary == "unpacked by gzip into a temporary file of 88 MB in " + dir.path().string());
  const Batch last = bytes.batch(std::vector<int64_t>{bytes.size() - 1});
  CHECK(bytes.size() == 8'799'999);
  CHECK(last.target.to_vector<int>().back() == line[87'999'990 % line.size()]);
}

TEST_CASE("files that are something else are named in every reader") {
  const std::string pointer = "version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 4\n";
  const TempDir dir;
  const auto fault = [&](const char* name, const std::string& bytes, auto&& read) {
    write_bytes(dir / name, bytes);
    try {
      read(dir / name);
    } catch (const Error& e) { return std::string(e.what()); }
    return std::string("no error");
  };
  const auto csv = [](const std::filesystem::path& p) { CsvDataset{p}; };
  const auto series = [](const std::filesystem::path& p) { TimeSeriesDataset{p}; };
  const auto text = [](const std::filesystem::path& p) { TextDataset(p, {.seq_len = 1}); };
  const auto bytes = [](const std::filesystem::path& p) { TextDataset(p, {.tokenizer = Tokenizer::byte, .seq_len = 1}); };
  const auto tensors = [](const std::filesystem::path& p) { load_safetensors(p); };
  const auto torch = [](const std::filesystem::path& p) { load_torch_file(p); };
  const auto npy = [](const std::filesystem::path& p) { map_npy(p); };
  const auto npz = [](const std::filesystem::path& p) { read_npz(p, "x"); };
  const auto size = [](const std::filesystem::path& p) { picture_size(p); };
  for (const std::string& said :
       {fault("t.csv", pointer, csv), fault("s.csv", pointer, series), fault("t.txt", pointer, text),
        fault("b.bin", pointer, bytes), fault("m.safetensors", pointer, tensors), fault("m.pt", pointer, torch),
        fault("a.npy", pointer, npy), fault("a.npz", pointer, npz), fault("a.png", pointer, size)}) {
    CHECK_MESSAGE(contains(said, "the file is a pointer of git-lfs in place of the file\nhelp: git -C /"), said);
    CHECK_MESSAGE(contains(said, " lfs pull fetches it"), said);
  }
  if (reads_pictures())
    CHECK(contains(fault("b.jpg", pointer, [](const auto& p) { read_picture(p, 3); }), "the file is a pointer of git-lfs"));

  const std::string parquet = std::string("PAR1\x15\4\x15\0", 8), page = "\n <!DOCTYPE html>\n<html><body>a, b</body></html>\n";
  CHECK(contains(fault("t.csv", std::string("PK\3\4\x14\0\6\0\10\0xl/workbook.xml", 25), csv),
                 "the file is an Excel workbook\nhelp: save it as CSV"));
  CHECK(contains(fault("t.csv", std::string("PK\3\4\x14\0", 6), csv), "the file is a zip archive\nhelp: unpack it first"));
  CHECK(contains(fault("t.csv", parquet, csv),
                 "the file is a Parquet file\nhelp: python3 -c \"import pandas; pandas.read_parquet('/"));
  CHECK(contains(fault("my t.csv", parquet, csv), "read_parquet('FILE').to_csv('FILE.csv', index=False)\" converts it to CSV"));
  CHECK(contains(fault("t.csv", page, csv), "the file is a web page (HTML)\nhelp: download the file itself"));
  CHECK(contains(fault("t.csv", "{\"a\": 1}\n{\"a\": 2}\n", csv),
                 "the file is JSON lines\nhelp: python3 -c \"import pandas; pandas.read_json("));
  CHECK(contains(fault("t.csv", "[{\"a\": 1},\n{\"a\": 2}]\n", csv), "the file is JSON\nhelp: "));
  CHECK(contains(fault("t.csv", std::string("SQLite format 3\0", 16), csv), "the file is an SQLite database"));
  CHECK(contains(fault("t.csv", "\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1", csv), "the file is a document of an older Excel or Word"));
  CHECK(contains(fault("t.csv", "\x80\4\x95\x10", csv), "the file is a pickle of Python\nhelp: if it is a table: python3 -c"));
  CHECK(contains(fault("t.csv", std::string("\x73\2\1\0", 4), series), "the file is a Stata file\nhelp: python3 -c"));
  CHECK(contains(fault("t.txt", "<stata_dta><header>", text), "the file is a Stata file"));
  CHECK(contains(fault("t.csv", "$FL2@(#) SPSS DATA FILE", csv), "the file is an SPSS file"));
  CHECK(contains(fault("t.csv", "MATLAB 5.0 MAT-file, Platform", csv), "the file is a MATLAB file"));
  CHECK(contains(fault("t.csv", "@RELATION cars\n@attribute a numeric\n@data\n1\n", csv), "the file is an ARFF file of Weka"));
  CHECK(contains(fault("m.safetensors", page, tensors), "the file is a web page (HTML)"));
  CHECK(contains(fault("a.npy", page, npy), "the file is a web page (HTML)"));
  CHECK(contains(fault("a.png", std::string("RIFF\x10\0\0\0WEBPVP8 and more than that", 34), size),
                 "a.png: the file is a WebP picture"));
  CHECK(contains(fault("a.jpg", "<html>and more than twenty-four bytes", size), "the file is a web page"));
  // A web page is a text, which a model of text may be for.
  write_bytes(dir / "page.txt", page);
  const TextDataset read(dir / "page.txt", {.seq_len = 4});
  REQUIRE(read.notes().warnings.size() == 1);
  CHECK(contains(read.notes().warnings[0], "the file is a web page (HTML), which is read as a text, marks and all"));
  // Tables that begin alike.
  for (const char* table : {"PAR1,b\n1,2\n", "{a,b\n1,2\n", "ORC,b\n1,2\n", "version,b\n1,2\n", "GIF,b\n1,2\n"})
    CHECK_MESSAGE(fault("t.csv", table, [](const auto& p) { CsvDataset(p, {.classification = false}); }) == "no error", table);
}

TEST_CASE("text that is not UTF-8, or holds NUL characters, is refused with the place and what to set") {
  const auto csv = [](const std::string& bytes, const CsvOptions& o = {}) {
    Text t(bytes);
    return message_of<DataError>([&] { CsvDataset(t.path, o); });
  };
  const std::string cell = csv("a,kind\n1,\"x\"\"y\"\n2,K\xf6ter\n");
  CHECK(contains(cell, R"(t.csv:3:2: the text must be UTF-8, got "K\xf6ter")"));
  CHECK(contains(
      cell, "help: \"encoding\": \"latin-1\" reads it, if it comes from an older spreadsheet; or convert it: iconv -f ISO-8859-1"));
  CHECK(contains(csv("st\xe4"
                     "dte,b\n1,\x93x\x94\n"),
                 "t.csv:1:1: the text must be UTF-8"));
  CHECK(contains(csv("a,b\n1,\x93x\x94\n"), "help: \"encoding\": \"windows-1252\" reads it"));
  CHECK(contains(csv(std::string("a,b\n1,x\n2,x\0\0\n", 14)),
                 R"(t.csv:3:2: a cell must not hold a NUL character, got "x\u0000\u0000")"));
  Text t(std::string("abc\nde\0f\n", 9));
  CHECK(contains(message_of<DataError>([&] { TextDataset(t.path, {.seq_len = 1}); }),
                 "t.csv:2:3: the text must not hold a NUL character\nhelp: tokenizer \"byte\""));
  CHECK(TextDataset(t.path, {.tokenizer = Tokenizer::byte, .seq_len = 1}).size() == 8);
  const CsvDataset data(Text("a,kind\n1,K\xf6ter\n2,M\xf6we\n").path, {.format = {.encoding = TextEncoding::latin1}});
  CHECK(data.class_names() == std::vector<std::string>{"K\xc3\xb6ter", "M\xc3\xb6we"});
  Text german("gr\xfcn");
  CHECK(TextDataset(german.path, {.seq_len = 1, .encoding = TextEncoding::latin1}).tokens().find("\xc3\xbc") >= 0);
}
