// SPDX-License-Identifier: Apache-2.0
// Compares a run that continues with its checkpoint: what the model's numbers mean, and what the values measure that its best
// checkpoint, its early stopping and its schedule have seen.
#pragma once

#include <string>

#include "apps/schema/json.h"
#include "apps/session/session.h"
#include "framework/io/checkpoint/checkpoint.h"

namespace halfstep::app {

// Throws ConfigError if a class, a token or an input of data.train has another name than that number had for the checkpoint's
// model. Returns a warning of another scale; empty: there is none.
std::string check_meanings(const CheckpointContents& contents, const Session& session, const Json& config);

// What later values are not compared with.
struct ForgottenValues {
  std::string reason;   // "the loss is another one than before"; empty: the values measure the same
  std::string warning;  // with what begins anew; empty: nothing does
};
// Removes from a checkpoint the values that later ones must not be compared with, since the config or data.val measures something
// else: the best ones, that of early stopping, and that of ReduceLROnPlateau. Also lifts the end by early stopping if the config
// would not have ended there. group: all ranks call it together.
ForgottenValues forget_other_values(CheckpointContents& contents, const Session& session, const Json& config, ProcessGroup* group);

}  // namespace halfstep::app
