// SPDX-License-Identifier: Apache-2.0
// Reports on a GPU's matrix products, as text and as JSON.
#pragma once

#include <ostream>
#include <vector>

#include "apps/schema/json.h"
#include "framework/backend/reports.h"

namespace halfstep::app {

// Returns an object for each kind, with the names of ProductReport's members. "ms" only if measured.
Json products_json(const std::vector<ProductReport>& products);
// Prints a row for each kind.
void print_products(std::ostream& out, const std::vector<ProductReport>& products);
// Counts the calls that ran on halfstep's own kernel although the library should have run them.
int64_t plain_products(const std::vector<ProductReport>& products);

}  // namespace halfstep::app
