// SPDX-License-Identifier: Apache-2.0
#include "framework/base/guard.h"

#include "framework/base/log.h"
#include "framework/base/text_stream.h"

namespace halfstep {

void warn_of_other_thread(const char* guard) {
  TextWriter text;
  text << '[' << guard << "] ended on another thread than it began on, whose state therefore stays: begin and end it in one block";
  logging::warn(text.str());
}

}  // namespace halfstep
