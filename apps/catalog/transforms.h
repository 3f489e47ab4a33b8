// SPDX-License-Identifier: Apache-2.0
// The catalogue of transforms, which are applied to the batches of a data set.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <utility>

#include "apps/catalog/catalog.h"
#include "framework/data/sets/dataset.h"

namespace halfstep::app {

struct TransformRow {
  Component component;
  std::function<std::shared_ptr<const Transform>(const Json& self)> make;
  bool softens_targets = false;  // turns classes into shares of classes
};
Catalog<TransformRow>& transform_catalog();
inline const Family& transform_family() { return transform_catalog().family(); }

// Makes the row of a class whose constructor takes the values of its fields, in order.
template <class T, class... Ts>
TransformRow transform_row(std::string type, std::string doc, Arg<Ts>... args) {
  return {{std::move(type), std::move(doc), {args.field...}},
          [args...](const Json& self) -> std::shared_ptr<const Transform> { return std::make_shared<T>(value_of(self, args)...); }};
}

Transforms build_transforms(const Json& list);

}  // namespace halfstep::app

// Registers a class derived from Transform, as HALFSTEP_REGISTER_MODULE does.
#define HALFSTEP_REGISTER_TRANSFORM(Class, ...) HALFSTEP_REGISTER(transform, Class __VA_OPT__(, ) __VA_ARGS__)
