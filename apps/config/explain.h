// SPDX-License-Identifier: Apache-2.0
// What a key of configs, or a type, means: the text of `halfstep explain`.
#pragma once

#include <string>
#include <vector>

namespace halfstep::app {

// `what`: a key by its path ("optimizer.momentum", "model.layers.0.bias"), of which parts may be left out ("data.missing") or be
// types
// ("optimizer.AdamW.lr"), a type ("Conv2d"), a type's key ("Conv2d.padding"), or a key alone ("momentum"), which is explained
// wherever it occurs; "" gives the sections of a config. Several words are parts of one name ("early stopping") or path. Other
// programs' names are understood. Throws ConfigError with the nearest names for anything else.
std::string explain(const std::string& what);

// The path of the key that somebody means by `word`, such as "train.epochs" by "epochs" or "num-epochs"; "" if there is none. Keys
// of layers are left out, since a model has many.
std::string setting_named(std::string word);

// For completion: the paths of all keys but those of layers and data sets' types, and what `explain` takes besides.
std::vector<std::string> setting_paths();
std::vector<std::string> type_names();
// The words that a key takes: "auto", "float16" and "bfloat16" of "amp.dtype"; types of a component; true and false.
std::vector<std::string> words_of_setting(const std::string& path);

}  // namespace halfstep::app
