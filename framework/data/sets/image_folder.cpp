// SPDX-License-Identifier: Apache-2.0
#include "framework/data/sets/image_folder.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <new>
#include <utility>

#include "framework/autograd/grad_mode.h"
#include "framework/base/check.h"
#include "framework/base/list_text.h"
#include "framework/data/formats/image_file.h"
#include "framework/data/loading/subsets.h"
#include "framework/data/sets/class_folders.h"
#include "framework/data/tables/labels.h"
#include "framework/data/tokens/unicode.h"
#include "framework/data/transforms/data_form.h"
#include "framework/ops/window/resample.h"
#include "framework/tensor/storage.h"

namespace halfstep {
namespace {

namespace fs = std::filesystem;
constexpr const char* kFolder = "ImageFolder";

// Throws the error "must have pictures ..., but has none".
[[noreturn]] void fail_empty(const fs::path& folder, const PassedOver& passed) {
  const std::vector<std::string> warnings = passed.warnings();
  fail<DataError>(kFolder, folder.string(), " must have pictures (PNG or JPEG), but has none",
                  warnings.empty() ? "" : ": " + warnings[0],
                  Help{passed.other_pictures.empty() ? "each class has a folder of its own"
                                                     : "convert them, e.g. with ImageMagick's mogrify -format png"});
}

}  // namespace

void to_planes(const Picture& picture, float* to) {
  const auto copy = [&](const auto& pixels, float white) {
    for (int64_t c = 0; c < picture.channels; ++c)
      for (int64_t i = 0; i < picture.height * picture.width; ++i) *to++ = float(pixels[size_t(i * picture.channels + c)]) / white;
  };
  if (picture.fine.empty())
    copy(picture.pixels, 255);
  else
    copy(picture.fine, 65535);
}

void fit_picture(const Picture& picture, int64_t size, PictureFit fit, Background background, float* to) {
  const NoGrad off;
  const int64_t reference =
      fit == PictureFit::pad ? std::max(picture.height, picture.width) : std::min(picture.height, picture.width);
  const auto resized = [&](int64_t length) {
    return fit == PictureFit::squash ? size : std::max<int64_t>(1, size * length / reference);
  };
  const int64_t height = resized(picture.height), width = resized(picture.width);
  Tensor image = Tensor::empty({1, picture.channels, picture.height, picture.width}, {.device = Device::cpu});
  to_planes(picture, image.data_ptr<float>());
  if (height != picture.height || width != picture.width)
    image = interpolate(image, {.size = {height, width}, .mode = "bilinear", .antialias = true}).contiguous();
  // Start of the square in the picture; negative if there is padding.
  const auto margin = [&](int64_t length) { return int64_t(std::nearbyint(double(length - size) / 2)); };
  const int64_t top = margin(height), left = margin(width), first = std::max<int64_t>(0, -left);
  const int64_t columns = std::min(size - first, width - std::max<int64_t>(0, left));
  std::fill_n(to, picture.channels * size * size, background == Background::white ? 1.f : 0.f);
  for (int64_t c = 0; c < picture.channels; ++c) {
    for (int64_t y = std::max<int64_t>(0, -top); y < std::min(size, height - top); ++y)
      std::copy_n(image.data_ptr<float>() + (c * height + top + y) * width + left + first, columns,
                  to + (c * size + y) * size + first);
  }
}

HALFSTEP_OPTIONS(
    ImageFolderOptions,
    option("size", &O::size, "side of the square that each picture is resized to; 0: all pictures have one size")
        .at_least(0)
        .at_most(1 << 14),
    option("fit", &O::fit,
           "\"crop\": resize the shorter side and crop the middle; \"squash\": resize both sides; \"pad\": resize the longer "
           "side and fill the rest with the background"),
    option("background", &O::background,
           "\"none\": transparent pixels keep their own color, as by PIL and torchvision; else the color behind them"),
    option("grayscale", &O::grayscale, "gray pictures: [1, H, W] instead of [3, H, W]"),
    option("exif", &O::exif, "turn pictures as EXIF says, which cameras and phones write; false: as they are stored"),
    in_words("on_error", &O::skip_bad, "fail", "skip",
             "what happens if a picture cannot be read: \"fail\": the run ends before the first step, and lists all of them; "
             "\"skip\": they are left out, with a warning that counts them"))

ImageFolderDataset::ImageFolderDataset(const fs::path& root, const ImageFolderOptions& options)
    : label_("ImageFolder " + root.string()), options_(options), class_names_(options.classes) {
  check_options(kFolder, options);
  const std::vector<std::string> folders = folders_in(root, passed_over_, &unclassified_);
  check<DataError>(!folders.empty(), kFolder, root.string(), " must have a folder for each class, but has none");
  const std::vector<int64_t> labels = classes_of_folders(kFolder, root, folders, class_names_, notes_);
  std::vector<std::string> unknown;
  size_t unknown_pictures = 0;
  std::vector<ClassFolder> where;
  for (size_t i = 0; i < folders.size(); ++i) {
    PassedOver passed;
    std::vector<fs::path> found = pictures_in(root / folders[i], passed);
    if (labels[i] < 0) {
      unknown.push_back(joined(spelled(folders[i]), " (", found.size(), ')'));
      unknown_pictures += found.size();
      continue;
    }
    if (found.empty()) fail_empty(root / folders[i], passed);
    passed_over_.add(passed);
    where.push_back(class_folder(root / folders[i], found));
    for (fs::path& path : found) files_.push_back({std::move(path), labels[i]});
  }
  if (!unknown.empty())
    notes_.warnings.push_back(joined(unknown_pictures, unknown_pictures == 1 ? " picture is" : " pictures are",
                                     " left out, in folders that are no classes of the training data: ", list_text(unknown)));
  if (const std::string doubt = options.classes.empty() ? doubt_of_classes(where) : ""; !doubt.empty())
    notes_.warnings.push_back(doubt);
  if (options_.skip_bad) remove_bad(root);
  options_.check = {};
  const int channels = options_.grayscale ? 1 : 3;
  std::optional<PictureSize> size = PictureSize{options_.size, options_.size};
  if (options_.size == 0)
    for (first_ = 0; !(size = size_of(files_[first_]));) {
      if (++first_ < files_.size()) continue;
      first_ = 0;
      picture_size(files_[0].path);  // throws
    }
  shape_ = {channels, size->height, size->width};
}

void ImageFolderDataset::remove_bad(const fs::path& root) {
  std::vector<fs::path> all;
  for (const File& f : files_) all.push_back(f.path);
  const PictureCheck found = check_pictures(all, options_.check);
  if (found.faults.empty()) return;
  check<DataError>(found.faults.size() < files_.size(), kFolder, "none of the ", files_.size(), " pictures in ", root.string(),
                   " can be read: ", found.faults[0].text);
  bad_pictures_ = joined(found.faults.size(), " of ", files_.size(), found.faults.size() == 1 ? " pictures is" : " pictures are",
                         " left out, since they cannot be read: ", found.faults[0].text);
  bad_pictures_ = replace_not_utf8(bad_pictures_);
  std::replace(bad_pictures_.begin(), bad_pictures_.end(), '\n', ' ');
  for (size_t i = found.faults.size(); i-- > 0;) files_.erase(files_.begin() + std::ptrdiff_t(found.faults[i].index));
  for (size_t c = 0; c < class_names_.size(); ++c) {
    const auto is_of = [&](int64_t label) { return label == int64_t(c); };
    check<DataError>(std::any_of(files_.begin(), files_.end(), [&](const File& f) { return is_of(f.label); }) ||
                         !fs::exists(root / class_names_[c]),
                     kFolder, "no picture of the class ", class_names_[c], " in ", root.string(), " can be read");
  }
}

std::optional<PictureSize> ImageFolderDataset::size_of(const File& file) const {
  try {
    return picture_size(file.path, options_.exif);
  } catch (const DataError&) { return {}; }
}

void ImageFolderDataset::read(const File& file, float* to) const {
  const Picture picture = read_picture(file.path, options_.grayscale ? 1 : 3, options_.background, options_.exif);
  try {
    if (options_.size > 0) return fit_picture(picture, options_.size, options_.fit, options_.background, to);
  } catch (const MemoryError&) { picture_too_large(file.path, picture.width, picture.height); } catch (const std::bad_alloc&) {
    picture_too_large(file.path, picture.width, picture.height);
  }
  check<DataError>(picture.height == shape_[1] && picture.width == shape_[2], kFolder, file.path.string(), ": a picture must be ",
                   shape_[2], " x ", shape_[1], " pixels as the first one, ", files_[first_].path.string(), ", got ", picture.width,
                   " x ", picture.height, Help{"set \"size\" to resize all to one size"});
  to_planes(picture, to);
}

Batch ImageFolderDataset::batch(std::span<const int64_t> indices) const {
  const MemoryScope scope(MemoryTag::data);
  const int64_t n = int64_t(indices.size());
  const Batch out{Tensor::empty(with_batch(n, shape_), {.device = Device::cpu}),
                  Tensor::empty({n}, {.dtype = DType::i64, .device = Device::cpu})};
  for (int64_t k = 0; k < n; ++k) {
    const int64_t i = indices[size_t(k)];
    check<IndexError>(i >= 0 && i < size(), kFolder, "a sample index must be in [0, ", size(), "), got ", i);
    read(files_[size_t(i)], out.input.data_ptr<float>() + k * numel(shape_));
    out.target.data_ptr<int64_t>()[k] = files_[size_t(i)].label;
  }
  return out;
}

int64_t ImageFolderDataset::check_sizes(double seconds) const {
  if (options_.size > 0) return size();
  using Clock = std::chrono::steady_clock;
  const auto end = Clock::now() + std::chrono::duration<double>(seconds);
  const PictureSize wanted{shape_[2], shape_[1]};
  int64_t read = 0, wrong = 0;
  size_t example = 0;
  for (; read < size() && Clock::now() < end; ++read) {
    const std::optional<PictureSize> actual = size_of(files_[size_t(read)]);
    if (!actual || *actual == wanted) continue;
    if (wrong++ == 0) example = size_t(read);
  }
  if (wrong == 0) return read;
  const PictureSize other = picture_size(files_[example].path, options_.exif);
  fail<DataError>(kFolder, "all pictures must have one size, but ", wrong, " of ", read, " are not ", wanted.width, " x ",
                  wanted.height, " as the first one, ", files_[first_].path.string(), ": ", files_[example].path.string(), " has ",
                  other.width, " x ", other.height, Help{"set \"size\" to resize all to one size"});
}

std::vector<int64_t> ImageFolderDataset::labels() const {
  std::vector<int64_t> out;
  for (const File& f : files_) out.push_back(f.label);
  return out;
}

DataForm ImageFolderDataset::form() const {
  DataForm out = Dataset::form();
  out.names = class_names_;
  ImageForm image{.background = options_.background, .exif = options_.exif};
  if (options_.size > 0) image.fit = options_.fit;
  out.source = image;
  return out;
}

DataNotes ImageFolderDataset::notes() const {
  DataNotes out = notes_;
  if (const std::string passed = passed_over_.text(); !passed.empty())
    out.summary += joined(out.summary.empty() ? "" : "; ", "left out: ", passed);
  const std::vector<std::string> of_files = passed_over_.warnings();
  out.warnings.insert(out.warnings.end(), of_files.begin(), of_files.end());
  if (!bad_pictures_.empty()) out.warnings.push_back(bad_pictures_);
  if (!unclassified_.empty())
    out.warnings.push_back(joined(unclassified_.size(), unclassified_.size() == 1 ? " picture is" : " pictures are",
                                  " left out, since they lie beside the folders of the classes, such as ",
                                  replace_not_utf8(unclassified_[0].string())));
  return out;
}

std::string ImageFolderDataset::describe() const {
  return joined(label_, ": ", size(), " pictures, input ", shape_, ", ", classes(), " classes");
}

std::vector<fs::path> picture_files(const Dataset& data) {
  const Dataset& given = data.untransformed();
  std::vector<fs::path> out;
  if (const auto* part = dynamic_cast<const Subset<Dataset>*>(&given)) {
    const std::vector<fs::path> all = picture_files(part->dataset());
    for (const int64_t i : all.empty() ? std::vector<int64_t>() : part->indices()) out.push_back(all[size_t(i)]);
  } else if (const auto* folder = dynamic_cast<const ImageFolderDataset*>(&given)) {
    for (int64_t i = 0; i < folder->size(); ++i) out.push_back(folder->file(i));
  }
  return out;
}

}  // namespace halfstep
