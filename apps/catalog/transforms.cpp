// SPDX-License-Identifier: Apache-2.0
#include "apps/catalog/transforms.h"

#include <algorithm>
#include <cmath>

#include "framework/data/transforms/image_transforms.h"

namespace halfstep::app {
namespace {

std::vector<double> numbers_of(const Json& value) {
  return value.is_array() ? value.get<std::vector<double>>() : std::vector<double>{value.get<double>()};
}
std::vector<int64_t> integers_of(const Json& value) {
  return value.is_array() ? value.get<std::vector<int64_t>>() : std::vector<int64_t>{value.get<int64_t>()};
}

Field some_numbers(std::string key, Json fallback, int least, int most, std::string doc) {
  return list(std::move(key), std::move(fallback), number("", nullptr, "number"), std::move(doc)).items(least, most).or_one();
}
Field size_field(const char* doc) {
  return list("size", nullptr, integer("", nullptr, "pixels").at_least(1).at_most(1 << 24), doc).items(1, 2).or_one().required();
}
Field padding_field(Json fallback) {
  return list("padding", std::move(fallback), integer("", nullptr, "pixels").at_least(0).at_most(1 << 24),
              "on all sides; or left and right, above and below; or left, above, right, below")
      .items(1, 4)
      .or_one();
}
Field pad_mode() { return choice("padding_mode", "constant", {"constant", "edge", "reflect", "symmetric"}, "kind of padding"); }
Field fill_field(const char* doc) { return number("fill", 0.0, doc); }
Field p_field() { return number("p", 0.5, "probability").at_least(0).at_most(1); }
Field interpolation(const char* fallback) {
  return choice("interpolation", fallback, {"nearest", "bilinear"}, "interpolation between pixels");
}

ImageSize size_of(const Json& self) {
  const auto size = integers_of(self["size"]);
  return {size[0], size.back()};
}
// Reads a padding as torchvision does.
std::array<int64_t, 4> crop_padding(const Json& self) {
  if (self["padding"].is_null()) return {};
  const auto p = integers_of(self["padding"]);
  check<ValueError>(p.size() != 3, self["type"].get<std::string>(), "padding must have 1, 2 or 4 numbers, got 3");
  if (p.size() == 4) return {p[0], p[1], p[2], p[3]};
  return {p[0], p.back(), p[0], p.back()};
}
PadOptions pad_of(const Json& self) { return {self["fill"], parse_pad_mode(self["padding_mode"].get<std::string>())}; }
Sampling sampling_of(const Json& self) { return self["interpolation"] == "nearest" ? Sampling::nearest : Sampling::bilinear; }
WarpOptions warp_of(const Json& self) { return {sampling_of(self), self["fill"]}; }

// Reads a range; a number d means [middle - d, middle + d].
std::optional<std::array<double, 2>> range_about(double middle, const Json& value, double least) {
  if (value.is_null()) return {};
  const auto given = numbers_of(value);
  if (given.size() == 2) return {{given[0], given[1]}};
  if (given[0] == 0 && middle == 1) return {};
  return {{std::max(least, middle - given[0]), middle + given[0]}};
}

std::shared_ptr<const Transform> make_normalize(const Json& self) {
  const bool plain = self["mean"] == 0.0 && self["std"] == 1.0;
  check<ValueError>(int(!self["preset"].is_null()) + int(!self["from"].is_null()) + int(!plain) <= 1, "Normalize",
                    "takes one of preset, from, and mean with std");
  if (!self["preset"].is_null())
    return std::make_shared<NormalizeTransform>(NormalizeTransform::preset(self["preset"].get<std::string>()));
  return std::make_shared<NormalizeTransform>(numbers_of(self["mean"]), numbers_of(self["std"]));
}

std::shared_ptr<const Transform> make_affine(const Json& self) {
  RandomAffineOptions o;
  o.degrees = *range_about(0, self["degrees"], -HUGE_VAL);
  const auto pair_of = [&](const char* key) -> std::optional<std::array<double, 2>> {
    if (self[key].is_null()) return {};
    return {{self[key][0], self[key][1]}};
  };
  o.translate = pair_of("translate");
  o.scale = pair_of("scale");
  if (!self["shear"].is_null()) {
    o.shear = numbers_of(self["shear"]);
    if (o.shear.size() == 1) o.shear = {-o.shear[0], o.shear[0]};
  }
  o.warp = warp_of(self);
  return std::make_shared<RandomAffine>(o);
}

std::shared_ptr<const Transform> make_erasing(const Json& self) {
  RandomErasingOptions o{
      .p = self["p"], .scale = {self["scale"][0], self["scale"][1]}, .ratio = {self["ratio"][0], self["ratio"][1]}};
  o.value = self["value"] == "random" ? std::vector<double>{} : numbers_of(self["value"]);
  return std::make_shared<RandomErasing>(o);
}

std::vector<std::string> preset_names() {
  const auto names = normalize_presets();
  return {names.begin(), names.end()};
}

void add_moves(Catalog<TransformRow>& all) {
  const Field crop_size = size_field("of the crop: one number, or height and width");
  all.add({{"RandomCrop",
            "a window at a random place of the padded image",
            {crop_size, padding_field(nullptr), boolean("pad_if_needed", false, "pad images that are smaller than the window"),
             fill_field("of padding_mode constant"), pad_mode()}},
           [](const Json& self) {
             return std::make_shared<RandomCrop>(size_of(self),
                                                 RandomCropOptions{crop_padding(self), self["pad_if_needed"], pad_of(self)});
           }});
  all.add({{"CenterCrop", "the window in the middle; zeros around a smaller image", {crop_size}},
           [](const Json& self) { return std::make_shared<CenterCrop>(size_of(self)); }});
  all.add({{"Pad", "a larger image", {padding_field(nullptr).required(), fill_field("of padding_mode constant"), pad_mode()}},
           [](const Json& self) { return std::make_shared<Pad>(crop_padding(self), pad_of(self)); }});
  all.add(transform_row<RandomHorizontalFlip>("RandomHorizontalFlip", "mirrored, left to right", arg<double>(p_field())));
  all.add(transform_row<RandomVerticalFlip>("RandomVerticalFlip", "mirrored, top to bottom", arg<double>(p_field())));
}

void add_warps(Catalog<TransformRow>& all) {
  const Field degrees = some_numbers("degrees", nullptr, 1, 2, "from [from, to], or [-d, d] for one number d").required();
  all.add({{"RandomRotation",
            "rotated about its middle, counter-clockwise",
            {degrees, interpolation("nearest"), fill_field("of pixels from outside")}},
           [](const Json& self) {
             return std::make_shared<RandomRotation>(*range_about(0, self["degrees"], -HUGE_VAL), warp_of(self));
           }});
  const auto pair = [](const char* key, const char* doc) {
    return list(key, nullptr, number("", nullptr, "number").at_least(0), doc).items(2, 2);
  };
  all.add({{"RandomAffine",
            "rotated, translated, scaled and sheared about its middle",
            {degrees, pair("translate", "at most these shares of width and height"), pair("scale", "a factor from [from, to]"),
             some_numbers("shear", nullptr, 1, 4, "degrees: along x from [from, to], or [-d, d] for one number d; then along y"),
             interpolation("nearest"), fill_field("of pixels from outside")}},
           make_affine});
  all.add({{"Resize",
            "another size",
            {size_field("height and width; one number: of the shorter edge"), interpolation("bilinear"),
             boolean("antialias", true, "use all pixels when the image shrinks")}},
           [](const Json& self) {
             return std::make_shared<Resize>(integers_of(self["size"]), sampling_of(self), self["antialias"].get<bool>());
           }});
  const auto share = [](const char* key, Json fallback, const char* doc) {
    return list(key, std::move(fallback), number("", nullptr, "number").above(0), doc).items(2, 2);
  };
  all.add(
      {{"RandomErasing",
        "a rectangle overwritten",
        {p_field(), share("scale", Json{0.02, 0.33}, "share of the image, from [from, to]"),
         share("ratio", Json{0.3, 3.3}, "height over width, from [from, to]"),
         some_numbers("value", 0.0, 1, 1 << 16, "values to write: one number, or one for each channel; \"random\": normal noise")
             .or_word("random")}},
       make_erasing});
}

}  // namespace

Catalog<TransformRow>& transform_catalog() {
  static Catalog<TransformRow>& all = *[] {
    auto* const made = new Catalog<TransformRow>("transform", {});
    made->add(
        {{"Normalize",
          "(x - mean) / std",
          {choice("preset", nullptr, preset_names(), "the mean and deviation that are usual for this data"),
           choice("from", nullptr, {"data"},
                  "mean and deviation of each channel of data.train before its transforms, of pictures in files from at most 4096"),
           some_numbers("mean", 0.0, 1, 1 << 16, "subtracted: one number, or one for each channel (dimension 1 of a batch)"),
           list("std", 1.0, number("", nullptr, "number").above(0), "divided by").items(1, 1 << 16).or_one()}},
         make_normalize});
    made->add(transform_row<ToTensor>("ToTensor",
                                      "does nothing: data sets already convert pixels to float32 in [0, 1], also bytes in arrays, "
                                      "unless \"bytes\" says that they are "
                                      "numbers"));
    add_moves(*made);
    add_warps(*made);
    made->add({{"ColorJitter",
                "brightness, contrast, saturation and hue by random factors, in a random order; pixels in [0, 1]",
                {some_numbers("brightness", 0.0, 1, 2, "a factor from [from, to], or [max(0, 1 - d), 1 + d] for one number d"),
                 some_numbers("contrast", 0.0, 1, 2, "the same"), some_numbers("saturation", 0.0, 1, 2, "the same"),
                 some_numbers("hue", 0.0, 1, 2, "turned by [from, to] of the circle, or [-d, d]; in [-0.5, 0.5]")}},
               [](const Json& self) {
                 const auto hue = self["hue"] == 0.0 ? std::nullopt : range_about(0, self["hue"], -1);
                 return std::make_shared<ColorJitter>(ColorJitterOptions{range_about(1, self["brightness"], 0),
                                                                         range_about(1, self["contrast"], 0),
                                                                         range_about(1, self["saturation"], 0), hue});
               }});
    const auto alpha = arg<double>(number("alpha", 1.0, "of the Beta distribution").above(0));
    const auto add_mix = [&](TransformRow row) {
      row.softens_targets = true;
      made->add(std::move(row));
    };
    add_mix(transform_row<Mixup>("Mixup", "each sample mixed with another of the batch, targets too; for CrossEntropyLoss", alpha));
    add_mix(transform_row<CutMix>(
        "CutMix",
        "replaces a rectangle by that of another sample of the batch, and mixes the targets by its size; for CrossEntropyLoss",
        alpha));
    return made;
  }();
  return all;
}

Transforms build_transforms(const Json& list) {
  Transforms out;
  for (const Json& self : list) out.push_back(transform_catalog().row(self).make(self));
  return out;
}

}  // namespace halfstep::app
