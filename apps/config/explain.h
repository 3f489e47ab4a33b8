// SPDX-License-Identifier: Apache-2.0
// Explains config keys and types, the text of `halfstep explain`, and completes them (completions.cpp).
#pragma once

#include <string>
#include <vector>

namespace halfstep::app {

// Explains `what`: a key by its path ("optimizer.momentum", "model.layers.0.bias"), with parts omitted ("data.missing") or
// replaced by types ("optimizer.AdamW.lr"), a type ("Conv2d"), a type's key ("Conv2d.padding"), or a key alone ("momentum"), which
// is explained wherever it occurs; "" explains the sections of a config. Several words are parts of one name ("early stopping") or
// path. Other programs' names are understood. Throws ConfigError with the nearest names for anything else.
std::string explain(const std::string& what);

// Returns the path of the key that `word` probably means, such as "train.epochs" for "epochs" or "num-epochs"; "" if there is
// none. Ignores keys of layers, since a model has many.
std::string setting_named(std::string word);

// Returns completions: the paths of all keys except those of layers and of data sets' types, and the other arguments of `explain`.
std::vector<std::string> setting_paths();
std::vector<std::string> type_names();
// Returns the words that a key takes: "auto", "float16" and "bfloat16" of "amp.dtype"; types of a component; true and false.
std::vector<std::string> words_of_setting(const std::string& path);

}  // namespace halfstep::app
