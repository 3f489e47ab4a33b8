#include "apps/catalog/transforms.h"

namespace halfstep::app {

Catalog<TransformRow>& transform_catalog() {
  static Catalog<TransformRow>& all = *[] {
    auto* const made = new Catalog<TransformRow>("transform", {});
    made->add({{"Normalize",
                "(x - mean) / std",
                {choice("preset", nullptr, {"mnist"}, "mean 0.1307, std 0.3081"), number("mean", 0.0, "subtracted"),
                 number("std", 1.0, "divided by").above(0)}},
               [](const Json& self) {
                 const bool named = !self["preset"].is_null();
                 return std::make_shared<NormalizeTransform>(named ? Normalize::preset(self["preset"].get<std::string>())
                                                                   : Normalize{self["mean"], self["std"]});
               }});
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
