// SPDX-License-Identifier: Apache-2.0
#include "framework/data/image_folder.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <map>

#include "framework/autograd/grad_mode.h"
#include "framework/base/check.h"
#include "framework/data/form.h"
#include "framework/data/image_file.h"
#include "framework/data/labels.h"
#include "framework/ops/window/resample.h"
#include "framework/tensor/storage.h"

namespace halfstep {
namespace {

namespace fs = std::filesystem;
constexpr const char* kFolder = "ImageFolder";

std::vector<std::string> folders_in(const fs::path& root) {
  std::vector<std::string> out;
  std::error_code failed;
  check<DataError>(fs::is_directory(root, failed), kFolder, root.string(),
                   " must be a folder with a folder for each class, but is no folder");
  for (fs::directory_iterator it(root, failed), end; !failed && it != end; it.increment(failed)) {
    std::error_code none;
    if (it->is_directory(none)) out.push_back(it->path().filename().string());
  }
  check<DataError>(!failed, kFolder, "cannot read the folder ", root.string());
  check<DataError>(!out.empty(), kFolder, root.string(), " must have a folder for each class, but has none");
  std::sort(out.begin(), out.end());
  return out;
}

// "10 .webp, 2 .gif"
std::string endings_of(const std::vector<fs::path>& paths) {
  std::map<std::string, int64_t> counts;
  for (const fs::path& p : paths) ++counts[p.extension().string()];
  std::string out;
  for (const auto& [end, n] : counts) out += joined(out.empty() ? "" : ", ", n, ' ', end);
  return out;
}

// unread: gets the pictures of other formats.
std::vector<fs::path> pictures_in(const fs::path& folder, std::vector<fs::path>& unread) {
  const size_t before = unread.size();
  std::vector<fs::path> out;
  std::error_code failed;
  const auto links = fs::directory_options::follow_directory_symlink;
  for (fs::recursive_directory_iterator it(folder, links, failed), end; !failed && it != end; it.increment(failed)) {
    std::error_code none;
    if (!it->is_regular_file(none)) continue;
    if (is_picture_name(it->path())) out.push_back(it->path());
    if (is_other_picture_name(it->path())) unread.push_back(it->path());
  }
  check<DataError>(!failed, kFolder, "cannot read the folder ", folder.string());
  const std::vector<fs::path> others(unread.begin() + std::ptrdiff_t(before), unread.end());
  check<DataError>(
      !out.empty(), kFolder, folder.string(), " must have pictures (.png, .jpg or .jpeg), but has ",
      others.empty() ? "none" : "only " + endings_of(others),
      Help{others.empty() ? "each class has a folder of its own" : "convert them, e.g. with ImageMagick's mogrify -format png"});
  std::sort(out.begin(), out.end());
  return out;
}

}  // namespace

void to_planes(const Picture& p, float* to) {
  for (int64_t c = 0; c < p.channels; ++c)
    for (int64_t i = 0; i < p.height * p.width; ++i) *to++ = float(p.pixels[size_t(i * p.channels + c)]) / 255;
}

void fit_picture(const Picture& p, int64_t size, PictureFit fit, Background background, float* to) {
  const NoGrad off;
  const int64_t side = fit == PictureFit::pad ? std::max(p.height, p.width) : std::min(p.height, p.width);
  const auto resized = [&](int64_t length) {
    return fit == PictureFit::squash ? size : std::max<int64_t>(1, size * length / side);
  };
  const int64_t height = resized(p.height), width = resized(p.width);
  Tensor image = Tensor::empty({1, p.channels, p.height, p.width}, {.device = Device::cpu});
  to_planes(p, image.data_ptr<float>());
  if (height != p.height || width != p.width)
    image = interpolate(image, {.size = {height, width}, .mode = "bilinear", .antialias = true}).contiguous();
  // Where the square begins in the picture; before it, where there is padding.
  const auto margin = [&](int64_t length) { return int64_t(std::nearbyint(double(length - size) / 2)); };
  const int64_t top = margin(height), left = margin(width), first = std::max<int64_t>(0, -left);
  const int64_t there = std::min(size - first, width - std::max<int64_t>(0, left));
  std::fill_n(to, p.channels * size * size, background == Background::white ? 1.f : 0.f);
  for (int64_t c = 0; c < p.channels; ++c) {
    for (int64_t y = std::max<int64_t>(0, -top); y < std::min(size, height - top); ++y)
      std::copy_n(image.data_ptr<float>() + (c * height + top + y) * width + left + first, there,
                  to + (c * size + y) * size + first);
  }
}

ImageFolderDataset::ImageFolderDataset(const fs::path& root, const ImageFolderOptions& options)
    : label_("ImageFolder " + root.string()), options_(options), class_names_(options.classes) {
  check<ValueError>(options.size >= 0 && options.size <= 1 << 14, kFolder, "size must be in 0..2^14, got ", options.size);
  const std::vector<std::string> there = folders_in(root);
  const std::vector<int64_t> labels = classes_of_folders(kFolder, root, there, class_names_, notes_);
  for (size_t i = 0; i < there.size(); ++i) {
    for (fs::path& path : pictures_in(root / there[i], unread_)) files_.push_back({std::move(path), labels[i]});
  }
  const int channels = options_.grayscale ? 1 : 3;
  if (options_.size > 0) {
    shape_ = {channels, options_.size, options_.size};
  } else {
    const Picture first = read_picture(files_[0].path, channels, options_.background);
    shape_ = {channels, first.height, first.width};
  }
}

void ImageFolderDataset::read(const File& file, float* to) const {
  const Picture p = read_picture(file.path, options_.grayscale ? 1 : 3, options_.background);
  if (options_.size > 0) return fit_picture(p, options_.size, options_.fit, options_.background, to);
  check<DataError>(p.height == shape_[1] && p.width == shape_[2], kFolder, file.path.string(), ": a picture must be ", shape_[2],
                   " x ", shape_[1], " pixels as the first one, ", files_[0].path.string(), ", got ", p.width, " x ", p.height,
                   Help{"set \"size\" to resize all to one size"});
  to_planes(p, to);
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
    if (picture_size(files_[size_t(read)].path) == wanted) continue;
    if (wrong++ == 0) example = size_t(read);
  }
  if (wrong == 0) return read;
  const PictureSize other = picture_size(files_[example].path);
  fail<DataError>(kFolder, "all pictures must have one size, but ", wrong, " of ", read, " are not ", wanted.width, " x ",
                  wanted.height, " as the first one, ", files_[0].path.string(), ": ", files_[example].path.string(), " has ",
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
  ImageForm image{.background = options_.background};
  if (options_.size > 0) image.fit = options_.fit;
  out.source = image;
  return out;
}

DataNotes ImageFolderDataset::notes() const {
  DataNotes out = notes_;
  if (!unread_.empty())
    out.warnings.push_back(joined(unread_.size(), unread_.size() == 1 ? " picture is" : " pictures are",
                                  " left out, since only PNG and JPEG are read: ", endings_of(unread_), ", such as ",
                                  unread_[0].string()));
  return out;
}

std::string ImageFolderDataset::describe() const {
  return joined(label_, ": ", size(), " pictures, input ", shape_, ", ", classes(), " classes");
}

}  // namespace halfstep
