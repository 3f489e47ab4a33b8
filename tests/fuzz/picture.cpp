// SPDX-License-Identifier: Apache-2.0
// A picture: the first byte says whether it is read in color, turned as EXIF says, and what is behind it. The same bytes are an
// EXIF block.
#include "framework/data/formats/image_file.h"
#include "framework/data/formats/picture_header.h"
#include "tests/fuzz/fuzz.h"

HALFSTEP_FUZZ_HARNESS(picture) {
  using namespace halfstep;
  if (size < 1) return 0;
  const int channels = data[0] & 2 ? 1 : 3;
  const bool exif = !(data[0] & 16);
  const auto path = fuzz::folder() / "p.png";
  fuzz::put(path, fuzz::text_of(data + 1, size - 1));
  fuzz::typed([&] {
    std::string flaw;
    const Picture p = read_picture(path, channels, Background(data[0] / 4 % 3), exif, &flaw);
    if (picture_size(path, exif) != PictureSize{p.width, p.height}) fuzz::found("a size that is another before decoding");
    if (int64_t(p.pixels.size()) != p.height * p.width * channels) fuzz::found("a picture that does not hold");
  });
  fuzz::typed([&] { picture_size(path); });
  const int orientation = exif_orientation(fuzz::text_of(data + 1, size - 1));
  if (orientation < 1 || orientation > 8) fuzz::found("an orientation that there is not");
  return 0;
}
