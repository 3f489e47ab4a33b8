// SPDX-License-Identifier: Apache-2.0
// First configs for tables whose input is a text.
#include <algorithm>

#include "apps/start/init_columns.h"
#include "apps/start/init_config.h"
#include "framework/base/check.h"
#include "framework/data/tokens/token_rows.h"

namespace halfstep::app {
namespace {

constexpr double kLongText = 8;                              // words of a text, with which other columns add little
constexpr size_t kFewOthers = 3;                             // most columns that a long text replaces
constexpr int64_t kMostWords = 1024, kMostCharacters = 256;  // of a text; the rest is cut

bool is_index(const CsvSheet& sheet, const InitColumn& c) {
  const std::string reason = reason_to_leave_out(sheet, c);
  return reason == "is an id" || reason == "is an index without a name";
}

// Returns the tokens of the longest row, or the number that 95 % of the rows do not exceed if the longest is far longer.
int64_t usual_length(const CsvSheet& sheet, const std::vector<const InitColumn*>& texts, Tokenizer tokenizer) {
  std::vector<int64_t> lengths;
  for (size_t row = 0; row < sheet.rows(); ++row) {
    int64_t all = int64_t(texts.size()) - 1;
    for (const InitColumn* c : texts) all += TokenRows::tokens_in(sheet.cell(row, c->index), tokenizer);
    lengths.push_back(all);
  }
  std::sort(lengths.begin(), lengths.end());
  const int64_t longest = lengths.back(), usual = lengths[lengths.size() * 95 / 100],
                most = tokenizer == Tokenizer::word ? kMostWords : kMostCharacters;
  const bool alike = longest <= std::max<int64_t>(128, 2 * usual);  // a single long text would make all rows as long
  return std::clamp<int64_t>(alike ? longest : usual, int64_t(2 * texts.size()), most);
}

}  // namespace

std::vector<const InitColumn*> choose_texts(const CsvSheet& sheet, const std::vector<InitColumn>& all, const InitColumn& target,
                                            bool classes, const InitWishes& wishes) {
  if (!wishes.text.empty()) {
    const InitColumn& wished = all[sheet.find(wishes.text)];
    check<ConfigError>(&wished != &target, "init", "--text must not be the target, ", phrase(sheet, target));
    check<ConfigError>(wished.kind == ColumnKind::text || wished.kind == ColumnKind::mixed, "init",
                       "--text must be a column of texts, but ", phrase(sheet, wished), " has ",
                       wished.kind == ColumnKind::number ? "numbers"
                       : wished.kind == ColumnKind::date ? "dates"
                                                         : "nothing");
    return {&wished};
  }
  std::vector<const InitColumn*> free, differ;
  size_t others = 0;
  bool long_ones = false;
  for (const InitColumn& c : all) {
    if (&c == &target || is_index(sheet, c)) continue;
    others += reason_to_leave_out(sheet, c).empty();
    if (!c.has_many_texts() || !c.hint.what.empty()) continue;
    (c.is_free_text() ? free : differ).push_back(&c);
    long_ones |= c.words_of_cell >= kLongText;
  }
  if (!free.empty() && (others == 0 || (classes && long_ones && others <= kFewOthers))) return free;
  if (others == 0 && differ.size() == 1) return differ;  // with several, one must be requested
  return {};
}

void add_texts(InitParts& out, const CsvSheet& sheet, const std::vector<const InitColumn*>& texts, const std::string& others) {
  std::vector<std::string> names, phrases;
  bool few_words = true;
  for (const InitColumn* c : texts) {
    names.push_back(reference(sheet, *c)), phrases.push_back(phrase(sheet, *c));
    few_words = few_words && c->has_few_words();
  }
  std::string list, said;
  for (size_t i = 0; i < names.size(); ++i) list += (i ? ", " : "") + names[i], said += (i ? " and " : "") + phrases[i];
  const Tokenizer tokenizer = few_words ? Tokenizer::character : Tokenizer::word;
  const int64_t length = usual_length(sheet, texts, tokenizer);
  const auto add = [&](const std::string& code, const std::string& comment) {
    out.data.insert(out.data.end() - 2, {code, comment});  // before the parts
  };
  add("\"texts\": [" + list + "]", "the input is the words of these texts alone");
  if (few_words) add(R"("tokenizer": "char")", "characters: the texts are of one word, or of a language without blanks");
  add(joined(R"("seq_len": )", length), few_words ? "characters of a text" : "words and signs of a text; longer ones are cut");
  out.notes.push_back(
      joined("the input is the text of ", said, others.empty() ? "" : ", and not " + others,
             others.empty() ? "" : "; without \"texts\" the other columns are the input, --text COLUMN takes another text"));
  const std::string last = out.layers.back().comment;
  const std::string table = R"("num_embeddings": "auto", "embedding_dim": 64, "padding_idx": 0)";
  if (few_words)
    out.layers = {{joined(R"({"type": "Embedding", )", table, "}"), "\"auto\": the tokens of the texts; 0 is the padding"},
                  {R"({"type": "Permute", "dims": [0, 2, 1]})", "Conv1d has channels first"},
                  {R"({"type": "Conv1d", "out_channels": 128, "kernel_size": 5, "padding": 2, "bias": false}, "ReLU")",
                   "without a bias, padding stays 0"},
                  {R"({"type": "AdaptiveMaxPool1d", "output_size": 1}, "Flatten", {"type": "Dropout", "p": 0.3})", ""}};
  else
    out.layers = {
        {joined(R"({"type": "EmbeddingBag", )", table, "}"), "the mean over the words of a text, without the padding, which is 0"},
        {R"({"type": "Dropout", "p": 0.5})", ""}};
  out.layers.push_back({R"({"type": "Linear", "out_features": "auto"})", last});
  out.steps = 1500, out.lr = few_words ? 0.003 : 0.01;
}

}  // namespace halfstep::app
