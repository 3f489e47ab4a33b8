// The whole config.
#pragma once

#include "apps/schema/schema.h"

namespace halfstep::app {

const Section& root_schema();

}  // namespace halfstep::app
