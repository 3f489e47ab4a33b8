// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

// Returns the folder of the sources. It is a function, since a macro would put this path into every object of the tests, and then a
// compiler cache could not serve a second clone.
const std::string& halfstep_source_dir();
