// SPDX-License-Identifier: Apache-2.0
#include "framework/data/sets/cifar.h"

#include <fstream>

#include "framework/base/check.h"
#include "framework/data/sets/published.h"
#include "framework/data/transforms/data_form.h"
#include "framework/io/files/other_file.h"

namespace halfstep {
namespace {

namespace fs = std::filesystem;
constexpr int64_t kPixels = 3 * 32 * 32;  // bytes of an image

// The files of a data set, whose records are labels and pixels.
struct Layout {
  const char *label, *folder, *unpacked;  // unpacked: folder in the archive
  int64_t label_bytes, label_at;          // labels of a record, and the index of the one to read
  int64_t classes;
  PublishedFile archive;
};

Layout layout_of(CifarLabels labels) {
  const std::string site = "https://www.cs.toronto.edu/~kriz/";
  if (labels == CifarLabels::ten) {
    return {"CIFAR10",
            "cifar10",
            "cifar-10-batches-bin",
            1,
            0,
            10,
            {"cifar-10-binary.tar.gz", 170052171, "sha256 c4a38c50a1bc5f3a1c5537f2155ab9d68f9f25eb1ed8d9ddda3db29a59bca1dd",
             site + "cifar-10-binary.tar.gz"}};
  }
  const bool coarse = labels == CifarLabels::coarse;
  return {"CIFAR100",
          "cifar100",
          "cifar-100-binary",
          2,
          coarse ? 0 : 1,
          coarse ? 20 : 100,
          {"cifar-100-binary.tar.gz", 168513733, "sha256 58a81ae192c23a4be8b1804d68e518ed807d710a4eb253b1f2a199162a40d8ec",
           site + "cifar-100-binary.tar.gz"}};
}

// A file to read.
struct WantedFile {
  std::string name;
  int64_t records;  // 0: any number
};

std::vector<WantedFile> files_of(const CifarOptions& o) {
  std::vector<WantedFile> out;
  for (const std::string& name : o.files) out.push_back({name, 0});
  if (!out.empty()) return out;
  const bool train = o.split == Split::train;
  if (o.labels != CifarLabels::ten) return {{train ? "train.bin" : "test.bin", train ? 50000 : 10000}};
  if (!train) return {{"test_batch.bin", 10000}};
  for (int i = 1; i <= 5; ++i) out.push_back({joined("data_batch_", i, ".bin"), 10000});
  return out;
}

// Returns the number of records in a file.
int64_t count_records(const Layout& layout, const fs::path& path, const WantedFile& wanted) {
  std::error_code failed;
  const auto bytes = fs::file_size(path, failed);
  check<IoError>(!failed, layout.label, "cannot read ", path.string());
  const uint64_t record = uint64_t(layout.label_bytes + kPixels);
  if (bytes % record != 0) refuse_other_file<DataError>(layout.label, path, head_of_file(path));
  if (wanted.records > 0) {
    check<DataError>(bytes == uint64_t(wanted.records) * record, layout.label, path.string(), " must have ",
                     wanted.records * int64_t(record), " bytes (", wanted.records, " records of ", record, "), got ", bytes,
                     Help{"it is cut off, or a part of the data set; a part of whole records can be read by naming it in files"});
  }
  check<DataError>(bytes > 0 && bytes % record == 0, layout.label, path.string(), " must be whole records of ", record,
                   " bytes, got ", bytes, " bytes");
  return int64_t(bytes / record);
}

std::vector<fs::path> folders_of(const fs::path& root, const Layout& layout) {
  return {root, root / layout.folder, root / layout.unpacked, root / layout.folder / layout.unpacked};
}

// Finds and reads the files.
TensorDataset<> load(const fs::path& root, const CifarOptions& o) {
  const Layout layout = layout_of(o.labels);
  const std::vector<fs::path> folders = folders_of(root, layout);
  const std::vector<WantedFile> wanted = files_of(o);
  std::vector<fs::path> paths;
  std::vector<std::string> missing;
  int64_t record_count = 0;
  for (const WantedFile& file : wanted) {
    paths.push_back(find_file(folders, file.name));
    if (paths.back().empty()) missing.push_back(file.name);
  }
  if (!missing.empty()) fail_missing(layout.label, missing, folders, root, {layout.archive}, "tar xf " + layout.archive.name);
  for (size_t i = 0; i < paths.size(); ++i) record_count += count_records(layout, paths[i], wanted[i]);

  const MemoryScope scope(MemoryTag::data);
  const Tensor images = Tensor::empty({record_count, 3, 32, 32}, {.dtype = DType::u8, .device = Device::cpu});
  const Tensor labels = Tensor::empty({record_count}, {.dtype = DType::u8, .device = Device::cpu});
  auto* pixels = images.data_ptr<uint8_t>();
  auto* label = labels.data_ptr<uint8_t>();
  for (size_t f = 0; f < paths.size(); ++f) {
    std::ifstream in(paths[f], std::ios::binary);
    const int64_t records = count_records(layout, paths[f], wanted[f]);
    for (int64_t i = 0; i < records; ++i, pixels += kPixels, ++label) {
      char record_labels[2] = {};
      in.read(record_labels, layout.label_bytes);
      in.read(reinterpret_cast<char*>(pixels), kPixels);
      check<IoError>(bool(in), layout.label, "cannot read ", paths[f].string());
      *label = uint8_t(record_labels[layout.label_at]);
      check<DataError>(*label < layout.classes, layout.label, paths[f].string(), ": labels must be in 0..", layout.classes - 1,
                       ", but that of record ", i, " is ", int(*label));
    }
  }
  return TensorDataset(images, labels, layout.classes, o.normalize.value_or(Normalize()).for_u8(),
                       joined(layout.label, o.labels == CifarLabels::coarse ? " coarse " : " ",
                              o.files.empty() ? std::string(name(o.split))
                                              : joined("of ", o.files.size(), o.files.size() == 1 ? " file" : " files")));
}

}  // namespace

HALFSTEP_OPTIONS(CifarOptions,
                 option("files", &O::files, "files to read instead of the split; each has whole records").of("a file"),
                 option("labels", &O::labels, "100 classes or 20"))

CifarDataset::CifarDataset(const fs::path& root, const CifarOptions& options)
    : TensorDataset(load(root, options)), labels_(options.labels) {}

std::vector<fs::path> cifar_files(const fs::path& root, const CifarOptions& o) {
  std::vector<fs::path> out;
  for (const WantedFile& file : files_of(o)) {
    const fs::path found = find_file(folders_of(root, layout_of(o.labels)), file.name);
    out.push_back(found.empty() ? root / file.name : found);
  }
  return out;
}

DataForm CifarDataset::form() const {
  DataForm out = Dataset::form();
  if (labels_ == CifarLabels::ten)
    out.names = {"airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck"};
  out.source = ImageForm{.fit = PictureFit::pad};
  return out;
}

}  // namespace halfstep
