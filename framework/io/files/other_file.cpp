// SPDX-License-Identifier: Apache-2.0
#include "framework/io/files/other_file.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <fstream>

#include "framework/base/list_text.h"

namespace halfstep {
namespace {

// Bytes by which a kind of file is recognised.
struct Magic {
  size_t offset;
  std::string_view bytes;
  const char *kind, *remedy;
};

constexpr const char* kUnpack = "unpack it first";
constexpr const char* kPicture = "PNG and JPEG are read; ImageMagick's mogrify -format png converts it";
constexpr const char* kExport = "export it as CSV";

using namespace std::string_view_literals;
constexpr Magic kMagics[] = {
    {0, "\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1"sv, "a document of an older Excel or Word", "save it as CSV"},
    {0, "%PDF-"sv, "a PDF", ""},
    {0, "{\\rtf"sv, "a document in RTF", "save it as plain text"},
    {0, "SQLite format 3\0"sv, "an SQLite database", "sqlite3 -header -csv FILE 'select * from TABLE' > TABLE.csv"},
    {0, "\x89HDF\r\n\x1a\n"sv, "an HDF5 file", "in Python, h5py reads it, and numpy.savez writes its arrays"},
    {0, "ARROW1\0\0"sv, "an Arrow or Feather file", kExport},
    {0, "Obj\1"sv, "an Avro file", kExport},
    {0, "$FL2@(#)"sv, "an SPSS file", kExport},
    {0, "$FL3@(#)"sv, "an SPSS file", kExport},
    {0, "\0\0\0\0\0\0\0\0\0\0\0\0\xc2\xea\x81\x60"sv, "a SAS file", kExport},
    {0, "MATLAB 5.0 MAT-file"sv, "a MATLAB file", "in Python, scipy.io.loadmat reads it, and numpy.savez writes its arrays"},
    {0, "GGUF"sv, "a GGUF file of llama.cpp", "take the .safetensors files of the same model"},
    {0, "\x93NUMPY"sv, "an array of NumPy (.npy)", "\"type\": \"NPY\" reads it"},
    {0, "\x1f\x8b"sv, "packed by gzip", "gunzip it first"},
    {4, "1AY&SY"sv, "packed by bzip2", "bunzip2 it first"},
    {0,
     "\xfd"
     "7zXZ\0"sv,
     "packed by xz", "unxz it first"},
    {0, "\x28\xb5\x2f\xfd"sv, "packed by Zstandard", "unzstd it first"},
    {0, "7z\xbc\xaf\x27\x1c"sv, "a 7-Zip archive", kUnpack},
    {0, "Rar!\x1a\7"sv, "a RAR archive", kUnpack},
    {257, "ustar\0"sv, "a tar archive", "tar xf FILE unpacks it"},
    {257, "ustar  \0"sv, "a tar archive", "tar xf FILE unpacks it"},
    {0, "\x89PNG\r\n\x1a\n"sv, "a PNG picture", "pictures in a folder for each class are \"type\": \"ImageFolder\""},
    {0, "\xff\xd8\xff"sv, "a JPEG picture", "pictures in a folder for each class are \"type\": \"ImageFolder\""},
    {0, "GIF8"sv, "a GIF picture", kPicture},
    {8, "WEBPVP8"sv, "a WebP picture", kPicture},
    {0, "II*\0"sv, "a TIFF picture", kPicture},
    {0, "MM\0*"sv, "a TIFF picture", kPicture},
    {4, "ftypavi"sv, "an AVIF picture", kPicture},
    {4, "ftyphei"sv, "a HEIC picture", kPicture},
    {4, "ftypmif1"sv, "a HEIF picture", kPicture},
    {0, "\0\0\0\x0cjP  "sv, "a JPEG 2000 picture", kPicture},
    {0, "\xff\x4f\xff\x51"sv, "a JPEG 2000 picture", kPicture},
    {0, "\0\0\0\x0cJXL "sv, "a JPEG XL picture", kPicture},
    {0, "8BPS"sv, "a Photoshop picture", kPicture},
    {0, "\0\x05\x16\x07"sv, "macOS's notes on another file", "remove it"},
    {0,
     "\x7f"
     "ELF"sv,
     "a program", ""},
};

// Returns the first characters of a text in lower case, without a byte order mark and blanks before them.
std::string lower_start(std::string_view head) {
  if (head.starts_with("\xef\xbb\xbf")) head.remove_prefix(3);
  head = head.substr(std::min(head.find_first_not_of(" \t\r\n"), head.size()));
  return lower_case(head.substr(0, 40));
}

// Returns the name as part of a shell or Python line; "FILE" for a name that would need quoting.
std::string name_for_shell(const std::filesystem::path& path) {
  const std::string name = path.string();
  const auto plain = [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '/' || c == '.' || c == '_' ||
           c == '-';
  };
  return !name.empty() && name[0] != '-' && std::all_of(name.begin(), name.end(), plain) ? name : "FILE";
}

// Returns a remedy: a command that converts the file by a function of pandas. arguments: its further arguments.
std::string pandas_remedy(const std::filesystem::path& path, const char* reader, const char* arguments = "") {
  const std::string name = name_for_shell(path), to = name_for_shell(std::filesystem::path(path).replace_extension(".csv"));
  return joined("python3 -c \"import pandas; pandas.", reader, "('", name, "'", arguments, ").to_csv('",
                to == name ? to + ".csv" : to, "', index=False)\" converts it to CSV");
}

// Recognises kinds of zip archives by the names of their first entries.
OtherFile zip_kind(std::string_view head, const std::filesystem::path& path) {
  const auto has = [&](std::string_view name) { return head.find(name) != head.npos; };
  const std::string csv = "save it as CSV in the spreadsheet program";
  if (has("opendocument.spreadsheet")) return {"an OpenDocument spreadsheet", csv};
  if (has("opendocument.text")) return {"an OpenDocument text", "save it as plain text"};
  if (has("word/")) return {"a Word document", "save it as plain text"};
  if (has("xl/")) return {"an Excel workbook", csv + ", or " + pandas_remedy(path, "read_excel")};
  if (has("[Content_Types].xml")) return {"an Office document (xlsx, docx)", csv};
  if (has(".npy")) return {"an archive of NumPy's arrays (.npz)", "\"type\": \"NPZ\" reads it"};
  if (has("/data.pkl") || has("/byteorder")) return {"a file of torch.save", ""};
  return {"a zip archive", kUnpack};
}

// Recognises JSON objects, one in the first line or one as the whole text.
std::optional<OtherFile> json_kind(std::string_view head, const std::filesystem::path& path) {
  if (head.starts_with("\xef\xbb\xbf")) head.remove_prefix(3);
  std::string_view line = head.substr(0, head.find('\n'));
  while (!line.empty() && (line.back() == '\r' || line.back() == ' ')) line.remove_suffix(1);
  const auto begins = [&](std::string_view open, std::string_view next) {  // ignores blanks in between
    if (!head.starts_with(open)) return false;
    const size_t at = head.find_first_not_of(" \t\r\n", open.size());
    return at != head.npos && next.find(head[at]) != next.npos;
  };
  const bool object = begins("{", "\"") && head.find("\":") != head.npos;
  const bool cut = line.size() == head.size() && head.size() >= kOtherFileHead;  // whether the line is longer than the visible part
  if (object && (line.ends_with('}') || cut))
    return OtherFile{"JSON lines", pandas_remedy(path, "read_json", ", lines=True"), true};
  if ((object && line == "{") || begins("[", "{[")) return OtherFile{"JSON", pandas_remedy(path, "read_json"), true};
  return {};
}

// Recognises a pickle of Python, which is not run, and older files of Stata, whose second byte is the order of bytes.
std::optional<OtherFile> binary_table(std::string_view head, const std::filesystem::path& path) {
  const auto at = [&](size_t i) { return i < head.size() ? uint8_t(head[i]) : 0xff; };
  if (at(0) == 0x80 && at(1) >= 2 && at(1) <= 5)
    return OtherFile{"a pickle of Python", "if it is a table: " + pandas_remedy(path, "read_pickle") + ", for files you trust"};
  if (at(0) >= 104 && at(0) <= 115 && (at(1) == 1 || at(1) == 2) && at(2) == 1 && at(3) == 0)
    return OtherFile{"a Stata file", pandas_remedy(path, "read_stata")};
  return {};
}

// Recognises a protocol buffer that begins with the format's version, or is named as one.
bool is_onnx(std::string_view head, const std::filesystem::path& path) {
  const bool begins = head.size() > 4 && head[0] == 8 && head[1] >= 3 && head[1] <= 20 && (head[2] == 0x12 || head[2] == 0x3a);
  return begins || path.extension() == ".onnx";
}

}  // namespace

std::optional<OtherFile> other_file(std::string_view head, const std::filesystem::path& path) {
  if (is_onnx(head, path))
    return OtherFile{
        "a model in ONNX, which halfstep export writes and nothing reads",
        "take the weights of the same model from a .safetensors file, or from a .pt, .pth, .bin or .ckpt of torch.save"};
  if (head.starts_with("version https://git-lfs")) {
    const std::filesystem::path folder = path.has_parent_path() ? path.parent_path() : ".";
    return OtherFile{"a pointer of git-lfs in place of the file", joined("git -C ", name_for_shell(folder), " lfs pull fetches it"),
                     true, true};
  }
  if (head.starts_with("PK\3\4")) return zip_kind(head, path);
  if (head.starts_with("PAR1") && head.size() > 4 && head[4] == '\x15')
    return OtherFile{"a Parquet file", pandas_remedy(path, "read_parquet")};
  for (const Magic& magic : kMagics)
    if (head.size() > magic.offset && head.substr(magic.offset).starts_with(magic.bytes))
      return OtherFile{magic.kind, magic.remedy};
  const std::string start = lower_start(head);
  if (start.starts_with("<!doctype html") || start.starts_with("<html"))
    return OtherFile{"a web page (HTML)", "download the file itself, not the page that shows it", true};
  if (head.starts_with("<stata_dta>")) return OtherFile{"a Stata file", pandas_remedy(path, "read_stata")};
  if (start.starts_with("@relation"))
    return OtherFile{"an ARFF file of Weka", "put the names of the columns in place of all lines down to @data", true};
  if (start.starts_with("<?xml")) return OtherFile{"an XML document", "", true};
  if (auto table = binary_table(head, path)) return table;
  return json_kind(head, path);
}

std::string head_of_file(const std::filesystem::path& path) {
  std::ifstream in(path, std::ios::binary);
  std::string out(kOtherFileHead, '\0');
  in.read(out.data(), std::streamsize(out.size()));
  out.resize(size_t(std::max<std::streamsize>(0, in.gcount())));
  return out;
}

}  // namespace halfstep
