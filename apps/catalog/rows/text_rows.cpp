// SPDX-License-Identifier: Apache-2.0
// Rows of data sets of tokens in files.
#include "apps/catalog/rows/dataset_rows.h"
#include "framework/base/check.h"
#include "framework/data/sets/text.h"
#include "framework/data/tokens/bpe.h"

namespace halfstep::app {
namespace {

// Returns the training data's tokens, with which held-out text is read: those that its config stores, or those of its whole file.
Vocabulary vocabulary_of(const SplitRequest& r) {
  TextOptions own;
  read_options(r.self(), own);
  if (own.vocabulary.size() > 0) return own.vocabulary;
  if (const TextForm* known = r.form ? std::get_if<TextForm>(&r.form->source) : nullptr;
      known && known->options.tokenizer == own.tokenizer)
    return known->options.vocabulary;
  if (r.split != "train" && train_of(r).self()["type"] == "Text" && train_of(r).self()["tokenizer"] == r.self()["tokenizer"])
    return vocabulary_of(train_of(r));
  return Vocabulary::of_file(data_path(r), own.tokenizer, own.max_words, own.encoding);
}

bool is_bpe(const SplitRequest& r) { return r.self()["type"] == "Text" && r.self()["tokenizer"] == "bpe"; }

// Returns the training data's tokenizer, with which held-out text is read unless it has its own.
std::shared_ptr<const BpeTokenizer> bpe_of(const SplitRequest& r) {
  if (const TextForm* known = r.form ? std::get_if<TextForm>(&r.form->source) : nullptr; known && known->options.bpe)
    return known->options.bpe;
  const bool own = !r.self()["tokenizer_file"].is_null();
  return !own && r.split != "train" && is_bpe(train_of(r)) ? bpe_of(train_of(r)) : own_tokenizer(r);
}

TextOptions options_of(const SplitRequest& r) {
  const Json &self = r.self(), &loader = r.config["data"]["loader"];
  TextOptions o;
  read_options(self, o);
  if (loader["stateful"] == true) o.streams = loader["batch_size"];
  o.vocabulary = vocabulary_of(r);
  if (o.tokenizer == Tokenizer::bpe) o.bpe = bpe_of(r);
  return o;
}

std::shared_ptr<TextDataset> make_text(const SplitRequest& r) {
  TextOptions options = options_of(r);
  const SplitRequest train = train_of(r);
  const bool tokens =
      options.tokenizer == Tokenizer::u16 || options.tokenizer == Tokenizer::u32 || options.tokenizer == Tokenizer::bpe;
  if (tokens && options.vocab_size == 0 && r.form)
    options.vocab_size = r.form->vocabulary;
  else if (tokens && options.vocab_size == 0 && r.split != "train" && train.self()["type"] == "Text")
    options.vocab_size =
        train.self()["vocab_size"].is_null() ? make_text(train)->vocabulary() : train.self()["vocab_size"].get<int64_t>();
  return std::make_shared<TextDataset>(data_path(r), options);
}

}  // namespace

Field tokenizer_field(const char* if_left_out) {
  return text("tokenizer_file", nullptr,
              joined("of bpe: a tokenizer.json, or a folder with it or with vocab.json and merges.txt, relative to data.root",
                     if_left_out));
}

std::shared_ptr<const BpeTokenizer> own_tokenizer(const SplitRequest& r) {
  check<ConfigError>(!r.self()["tokenizer_file"].is_null(), joined("data.", r.split, ".tokenizer"), "\"bpe\" needs tokenizer_file",
                     Help{"the tokenizer.json of the model, or a folder with vocab.json and merges.txt"});
  return std::make_shared<const BpeTokenizer>(BpeTokenizer::load(data_path(r, "tokenizer_file")));
}

void add_text_rows(Catalog<DatasetRow>& catalog) {
  catalog.add({{"Text", "pieces [seq_len] of a text as tokens; targets are the tokens that follow",
                joined_fields({{path_field("the file"), root_field("folder of path")},
                               fields_of<TextOptions>(),
                               {tokenizer_field("; left out: that of the training data")}})},
               make_text,
               [](const SplitRequest& r) { return facts_of_file(data_path(r), [&] { return make_text(r); }); },
               file_at(),
               /*takes_range=*/true,
               /*normalizes=*/false,
               /*streams=*/true});
}

Json stored_vocabulary(const Json& config) {
  static const std::string train = "train";
  const SplitRequest r{config, train};
  if (r.self()["type"] != "Text") return {};
  const Vocabulary found = vocabulary_of(r);
  return found.size() > 0 ? Json(found.tokens()) : Json();
}

}  // namespace halfstep::app
