// SPDX-License-Identifier: Apache-2.0
// How a GPU did its matrix products, for people and for programs.
#pragma once

#include <ostream>
#include <vector>

#include "apps/schema/json.h"
#include "framework/backend/reports.h"

namespace halfstep::app {

// An object for each kind, with the names of ProductReport's members. "ms" only where it was measured.
Json products_json(const std::vector<ProductReport>& products);
// A row for each kind.
void print_products(std::ostream& out, const std::vector<ProductReport>& products);
// Calls that ran on a kernel of halfstep's own though the library was to do them.
int64_t plain_products(const std::vector<ProductReport>& products);

}  // namespace halfstep::app
