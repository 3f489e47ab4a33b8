// SPDX-License-Identifier: Apache-2.0
// A picture: the first byte is even for a PNG, odd for a JPEG, and says whether it is read in color, and what is behind it.
#include "framework/data/image_file.h"
#include "tests/fuzz/fuzz.h"

HALFSTEP_FUZZ_HARNESS(picture) {
  using namespace halfstep;
  if (size < 1) return 0;
  const int channels = data[0] & 2 ? 1 : 3;
  const auto path = fuzz::folder() / (data[0] % 2 == 0 ? "p.png" : "p.jpg");
  fuzz::put(path, fuzz::text_of(data + 1, size - 1));
  fuzz::typed([&] {
    const Picture p = read_picture(path, channels, Background(data[0] / 4 % 3));
    if (picture_size(path) != PictureSize{p.width, p.height}) fuzz::found("a size that is another before decoding");
    if (int64_t(p.pixels.size()) != p.height * p.width * channels) fuzz::found("a picture that does not hold");
  });
  fuzz::typed([&] { picture_size(path); });
  return 0;
}
