// SPDX-License-Identifier: Apache-2.0
// Reads pictures in the form of the training data.
#include <new>

#include "framework/base/check.h"
#include "framework/data/formats/image_file.h"
#include "framework/data/transforms/data_form.h"
#include "framework/tensor/storage.h"

namespace halfstep {

Tensor read_input_picture(const std::filesystem::path& path, const DataForm& form, bool invert) {
  const ImageForm& image = std::get<ImageForm>(form.source);
  const int64_t channels = form.input[0], height = form.input[1], width = form.input[2];
  Picture picture = read_picture(path, int(channels), image.background, image.exif);
  if (invert) {  // before anything is padded
    for (uint8_t& v : picture.pixels) v = uint8_t(255 - v);
    for (uint16_t& v : picture.fine) v = uint16_t(65535 - v);
  }
  const MemoryScope scope(MemoryTag::data);
  Tensor out = Tensor::empty(form.input, {.device = Device::cpu});
  if (image.fit && height == width) {
    try {
      fit_picture(picture, height, *image.fit, image.background, out.data_ptr<float>());
    } catch (const MemoryError&) { picture_too_large(path, picture.width, picture.height); } catch (const std::bad_alloc&) {
      picture_too_large(path, picture.width, picture.height);
    }
  } else {
    check<DataError>(picture.height == height && picture.width == width, "picture", path.string(), ": the model takes pictures of ",
                     width, " x ", height, " pixels, got ", picture.width, " x ", picture.height,
                     Help{"a model trained with \"size\" takes pictures of any size"});
    to_planes(picture, out.data_ptr<float>());
  }
  return image.on_side ? out.transpose(1, 2).contiguous() : out;
}

}  // namespace halfstep
