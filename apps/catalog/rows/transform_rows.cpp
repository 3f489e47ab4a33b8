// SPDX-License-Identifier: Apache-2.0
// Rows of transforms.
#include "apps/catalog/transforms.h"

#include "apps/catalog/option_fields.h"
#include "framework/data/transforms/image_transforms.h"

namespace halfstep::app {
namespace {

// Makes the row of a transform of this library, with a field for each option.
template <class T>
TransformRow listed_transform(std::string doc) {
  return {{T::kName, std::move(doc), fields_of<typename T::Options>()}, [](const Json& self) -> std::shared_ptr<const Transform> {
            typename T::Options options;
            read_options(self, options);
            return std::make_shared<T>(options);
          }};
}

std::vector<std::string> preset_names() {
  const auto names = normalize_presets();
  return {names.begin(), names.end()};
}

// Makes the row of Normalize, whose numbers may be named in place of given.
TransformRow normalize_row() {
  TransformRow row = listed_transform<NormalizeTransform>("(x - mean) / std");
  const std::vector<Field> more = {
      choice("preset", nullptr, preset_names(), "the mean and deviation that are usual for this data"),
      choice("from", nullptr, {"data"},
             "mean and deviation of each channel of data.train before its transforms, of pictures in files from at most 4096")};
  row.component.fields.insert(row.component.fields.begin(), more.begin(), more.end());
  row.make = [given = row.make](const Json& self) -> std::shared_ptr<const Transform> {
    const bool plain = self["mean"] == 0.0 && self["std"] == 1.0, named = !self["preset"].is_null();
    check<ValueError>(int(named) + int(!self["from"].is_null()) + int(!plain) <= 1, "Normalize",
                      "takes one of preset, from, and mean with std");
    if (!named) return given(self);
    return std::make_shared<NormalizeTransform>(NormalizeTransform::preset(self["preset"].get<std::string>()));
  };
  return row;
}

TransformRow erasing_row() {
  TransformRow row = listed_transform<RandomErasing>("a rectangle overwritten");
  Field& scale = field_of(row.component, "scale");
  scale.item = std::make_shared<const Field>(scale.item->above(0));
  return row;
}

}  // namespace

Catalog<TransformRow>& transform_catalog() {
  static Catalog<TransformRow>& catalog = *[] {
    auto* const made = new Catalog<TransformRow>("transform", {});
    const auto add_mix = [&](TransformRow row) {
      row.softens_targets = true;
      made->add(std::move(row));
    };
    made->add(normalize_row());
    made->add(transform_row<ToTensor>("ToTensor",
                                      "does nothing: data sets already convert pixels to float32 in [0, 1], also bytes in arrays, "
                                      "unless \"bytes\" says that they are "
                                      "numbers"));
    made->add(listed_transform<RandomCrop>("a window at a random place of the padded image"));
    made->add(listed_transform<CenterCrop>("the window in the middle; zeros around a smaller image"));
    made->add(listed_transform<Pad>("a larger image"));
    made->add(listed_transform<RandomHorizontalFlip>("mirrored, left to right"));
    made->add(listed_transform<RandomVerticalFlip>("mirrored, top to bottom"));
    made->add(listed_transform<RandomRotation>("rotated about its middle, counter-clockwise"));
    made->add(listed_transform<RandomAffine>("rotated, translated, scaled and sheared about its middle"));
    made->add(listed_transform<Resize>("another size"));
    made->add(erasing_row());
    made->add(listed_transform<ColorJitter>(
        "brightness, contrast, saturation and hue by random factors, in a random order; pixels in [0, 1]"));
    add_mix(listed_transform<Mixup>("each sample mixed with another of the batch, targets too; for CrossEntropyLoss"));
    add_mix(listed_transform<CutMix>(
        "replaces a rectangle by that of another sample of the batch, and mixes the targets by its size; for CrossEntropyLoss"));
    return made;
  }();
  return catalog;
}

Transforms build_transforms(const Json& list) {
  Transforms out;
  for (const Json& self : list) out.push_back(transform_catalog().row(self).make(self));
  return out;
}

}  // namespace halfstep::app
