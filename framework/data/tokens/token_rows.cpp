// SPDX-License-Identifier: Apache-2.0
#include "framework/data/tokens/token_rows.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <numeric>
#include <unordered_map>
#include <utility>

#include "framework/base/check.h"
#include "framework/data/tokens/bpe.h"
#include "framework/data/tokens/unicode.h"

namespace halfstep {
namespace {

constexpr const char* kTokenRows = "tokens";
const std::vector<std::string>& first_tokens() {
  static const auto& all = *new std::vector<std::string>{"<pad>", "<unk>", "<sep>"};
  return all;
}
constexpr int64_t kUnknownToken = 1, kSeparatorToken = 2;  // places in first_tokens()

// The ranges of is_ideograph as a regular expression, for tokenizer_json().
constexpr const char* kIdeographs = R"(\x{3400}-\x{4dbf}\x{4e00}-\x{9fff}\x{f900}-\x{faff}\x{20000}-\x{323af})";

// Calls f(word) for each word of a text in lower case.
template <class F>
void for_each_word_in(std::string_view text, F&& f) {
  size_t begin = 0, at = 0;  // of the word that is being read: [begin, at)
  const auto end_word = [&] {
    if (begin < at) f(text.substr(begin, at - begin));
  };
  for (size_t bytes = 0; at < text.size(); at += bytes) {
    bytes = utf8_length(text, at);
    const char32_t point = utf8_at(text, at, bytes);
    if (is_word_point(point) && !is_ideograph(point)) continue;
    end_word();
    if (class_of(point) != PointClass::space) f(text.substr(at, bytes));
    begin = at + bytes;
  }
  end_word();
}

std::string lower_case_of(std::string_view text) {
  std::string out;
  for (size_t at = 0, bytes = 0; at < text.size(); at += bytes) {
    bytes = utf8_length(text, at);
    append_lower_case(out, utf8_at(text, at, bytes));
  }
  return out;
}

// Removes white space at both ends, which cells of a table have lost as well.
std::string_view stripped(std::string_view text) {
  const auto space_bytes = [&](size_t at) {  // 0: no white space
    const size_t bytes = utf8_length(text, at);
    return bytes > 0 && class_of(utf8_at(text, at, bytes)) == PointClass::space ? bytes : size_t(0);
  };
  for (size_t bytes = 0; !text.empty() && (bytes = space_bytes(0)) > 0;) text.remove_prefix(bytes);
  while (!text.empty()) {
    size_t last = text.size() - 1;
    while (last > 0 && (uint8_t(text[last]) & 0xc0) == 0x80) --last;
    if (space_bytes(last) == 0) break;
    text.remove_suffix(text.size() - last);
  }
  return text;
}

// Calls f(token) for each word or character of a text, in normal form C. Throws DataError for a text that is not UTF-8.
template <class F>
void for_each_token_in(std::string_view text, Tokenizer tokenizer, F&& f) {
  check<DataError>(find_not_utf8(text) == text.npos, kTokenRows, "a text must be UTF-8, got ", spelled(text.substr(0, 60)));
  const std::string form = normalize_nfc(text);
  if (tokenizer == Tokenizer::word) return for_each_word_in(lower_case_of(form), f);
  for (size_t at = 0, bytes = 0; at < form.size(); at += bytes) {
    bytes = utf8_length(form, at);
    f(std::string_view(form).substr(at, bytes));
  }
}

// Learns a vocabulary: the most frequent first; equally frequent ones by code point.
Vocabulary learn_vocabulary(const TokenRowOptions& o, const TextColumns& texts, std::span<const int64_t> rows) {
  std::unordered_map<std::string, int64_t> counts;
  for (const auto& column : texts)
    for (const int64_t row : rows)
      for_each_token_in(stripped(column.at(size_t(row))), o.tokenizer,
                        [&](std::string_view token) { ++counts[std::string(token)]; });
  check<DataError>(!counts.empty(), kTokenRows, "the texts have no words");
  std::vector<std::pair<std::string, int64_t>> sorted;
  for (const auto& token : counts)
    if (token.second >= o.min_count) sorted.push_back(token);
  check<DataError>(!sorted.empty(), kTokenRows, "no word is in the texts ", o.min_count, " times, so none is a token",
                   Help{"\"min_count\": 1 takes all"});
  std::sort(sorted.begin(), sorted.end(),
            [](const auto& a, const auto& b) { return a.second != b.second ? a.second > b.second : a.first < b.first; });
  if (int64_t(sorted.size()) > o.max_tokens) sorted.resize(size_t(o.max_tokens));
  std::vector<std::string> tokens = first_tokens();
  for (auto& [token, times] : sorted) tokens.push_back(std::move(token));
  return Vocabulary(std::move(tokens));
}

}  // namespace

TokenRows::TokenRows(const TokenRowOptions& options, const TextColumns& texts, std::span<const int64_t> rows) : options_(options) {
  check_options(texts.size());
  const bool bpe = options_.tokenizer == Tokenizer::bpe;
  vocabulary_ = std::make_shared<const Vocabulary>(bpe ? Vocabulary() : learn_vocabulary(options_, texts, rows));
  find_special_tokens();
}

TokenRows::TokenRows(const TokenRowOptions& options, const Vocabulary& vocabulary)
    : options_(options), vocabulary_(std::make_shared<const Vocabulary>(vocabulary)) {
  check_options(1);
  const std::vector<std::string>&first = first_tokens(), &tokens = vocabulary.tokens();
  const bool begins = tokens.size() >= first.size() && std::equal(first.begin(), first.end(), tokens.begin());
  check<ValueError>(options_.tokenizer == Tokenizer::bpe ? tokens.empty() : begins, kTokenRows,
                    "a vocabulary must begin with <pad>, <unk> and <sep>, and that of bpe be empty, got ", tokens.size(),
                    " tokens");
  find_special_tokens();
}

HALFSTEP_OPTIONS(
    TokenRowOptions,
    option("tokenizer", &O::tokenizer,
           "of texts: words in small letters, signs and ideographs by themselves; characters; or those of "
           "tokenizer_file")
        .one_of({"word", "char", "bpe"}),
    option("seq_len", &O::length, "tokens of a row of texts").at_least(1).at_most(1 << 20),
    option("max_words", &O::max_tokens, "of texts: number of words or characters that are tokens, the most frequent").at_least(1),
    option("min_count", &O::min_count, "of texts: what the training data has less often is no token, but <unk>")
        .at_least(1)
        .at_most(1e9))

void TokenRows::check_options(size_t columns) const {
  const TokenRowOptions& o = options_;
  halfstep::check_options(kTokenRows, o);
  check<ValueError>(o.tokenizer != Tokenizer::bpe || o.bpe, kTokenRows, "tokenizer \"bpe\" needs a tokenizer");
  check<ValueError>(o.length >= int64_t(2 * columns - 1), kTokenRows, "seq_len must leave a token for each of ", columns,
                    " texts and of what is between them, got ", o.length);
}

void TokenRows::find_special_tokens() {
  if (options_.tokenizer != Tokenizer::bpe) return void(separator_ = kSeparatorToken);
  const auto first_id_of = [&](std::initializer_list<const char*> names) {
    int64_t found = -1;
    for (const char* n : names) found = found < 0 ? options_.bpe->id(n) : found;
    return found;
  };
  padding_ = first_id_of({"<pad>", "[PAD]", "<|pad|>", "<|padding|>"});
  if (padding_ < 0) padding_ = options_.bpe->size();
  separator_ = first_id_of({"</s>", "[SEP]", "<|endoftext|>", "<|end_of_text|>"});
}

int64_t TokenRows::size() const {
  if (options_.tokenizer != Tokenizer::bpe) return vocabulary_->size();
  return std::max(options_.bpe->size(), padding_ + 1);
}

std::vector<int64_t> TokenRows::numbers_of(std::string_view given, Counts& counts) const {
  const std::string_view text = stripped(given);
  if (options_.tokenizer == Tokenizer::bpe) return options_.bpe->encode(text, /*add_special_tokens=*/false);
  std::vector<int64_t> out;
  for_each_token_in(text, options_.tokenizer, [&](std::string_view token) {
    const int64_t number = vocabulary_->find(token);
    if (number < 0 && counts.unknown++ == 0) counts.example = token;
    out.push_back(number < 0 ? kUnknownToken : number);
  });
  return out;
}

void TokenRows::encode(std::span<const std::string_view> texts, int64_t* to, Counts& counts) const {
  check_options(texts.size());
  std::vector<std::vector<int64_t>> rows;
  for (const std::string_view text : texts) rows.push_back(numbers_of(text, counts));
  // Gives the shorter texts what they need, but at most an equal share of the rest.
  std::vector<size_t> order(rows.size());
  std::iota(order.begin(), order.end(), size_t(0));
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) { return rows[a].size() < rows[b].size(); });
  const size_t length = size_t(options_.length), gaps = separator_ < 0 ? 0 : rows.size() - 1;
  size_t left = length - gaps;
  bool cut = false;
  for (size_t i = 0; i < order.size(); ++i) {
    std::vector<int64_t>& row = rows[order[i]];
    counts.tokens += int64_t(row.size());
    const size_t kept = std::min(row.size(), left / (order.size() - i));
    cut |= kept < row.size();
    row.resize(kept);
    left -= kept;
  }
  ++counts.rows;
  counts.cut += cut;
  int64_t* at = to;
  for (size_t i = 0; i < rows.size(); ++i) {
    if (i > 0 && gaps > 0) *at++ = separator_;
    at = std::copy(rows[i].begin(), rows[i].end(), at);
  }
  std::fill(at, to + length, padding_);
}

int64_t TokenRows::tokens_in(std::string_view text, Tokenizer tokenizer) {
  int64_t out = 0;
  for_each_token_in(text, tokenizer, [&](std::string_view) { ++out; });
  return out;
}

std::string TokenRows::decode(std::span<const int64_t> row) const {
  while (!row.empty() && row.back() == padding_) row = row.first(row.size() - 1);
  if (options_.tokenizer == Tokenizer::bpe) return options_.bpe->decode(row, /*skip_special_tokens=*/false);
  std::string out;
  for (const int64_t token : row) {
    check<IndexError>(token >= 0 && token < size(), kTokenRows, "a token must be in [0, ", size(), "), got ", token);
    out += (options_.tokenizer == Tokenizer::word && !out.empty() ? " " : "") + vocabulary_->tokens()[size_t(token)];
  }
  return out;
}

std::string TokenRows::describe(const Counts& c) const {
  std::string out;
  if (c.cut > 0) out = joined(c.cut, " of ", c.rows, c.cut == 1 ? " texts is longer and is cut" : " texts are longer and are cut");
  if (c.unknown == 0) return out;
  const bool words = options_.tokenizer == Tokenizer::word;
  return joined(out, out.empty() ? "" : "; ", c.unknown, " of ", c.tokens, words ? " words are" : " characters are",
                " not among them, such as ", spelled(std::string_view(c.example).substr(0, 60)));
}

std::string TokenRows::tokenizer_json() const {
  using nlohmann::json;
  const bool bpe = options_.tokenizer == Tokenizer::bpe, words = options_.tokenizer == Tokenizer::word;
  json out =
      bpe ? json::parse(options_.bpe->json()) : json{{"version", "1.0"}, {"added_tokens", json::array()}, {"decoder", nullptr}};
  const auto token = [&](int64_t id) {
    if (!bpe) return vocabulary_->tokens()[size_t(id)];
    return id < options_.bpe->size() ? options_.bpe->token(id) : first_tokens()[0];
  };
  out["truncation"] = {{"direction", "Right"}, {"max_length", options_.length}, {"strategy", "LongestFirst"}, {"stride", 0}};
  out["padding"] = {{"strategy", {{"Fixed", options_.length}}},
                    {"direction", "Right"},
                    {"pad_to_multiple_of", nullptr},
                    {"pad_id", padding_},
                    {"pad_type_id", 0},
                    {"pad_token", token(padding_)}};
  const auto text = [](const char* which) { return json{{"Sequence", {{"id", which}, {"type_id", 0}}}}; };
  json pair = json::array({text("A")}), special = json::object();
  if (separator_ >= 0) {
    const std::string name = token(separator_);
    pair.push_back({{"SpecialToken", {{"id", name}, {"type_id", 0}}}});
    special[name] = {{"id", name}, {"ids", json::array({separator_})}, {"tokens", json::array({name})}};
  }
  pair.push_back(text("B"));
  out["post_processor"] = {
      {"type", "TemplateProcessing"}, {"single", json::array({text("A")})}, {"pair", pair}, {"special_tokens", special}};
  json forms = json::array({{{"type", "Strip"}, {"strip_left", true}, {"strip_right", true}}});
  if (bpe) {
    if (out.contains("normalizer") && !out["normalizer"].is_null()) forms.push_back(out["normalizer"]);
    out["normalizer"] = {{"type", "Sequence"}, {"normalizers", forms}};
    return out.dump();
  }
  forms.push_back({{"type", "NFC"}});
  if (words) forms.push_back({{"type", "Lowercase"}});
  out["normalizer"] = {{"type", "Sequence"}, {"normalizers", forms}};
  const std::string points = R"(\p{L}\p{M}\p{N})", han = kIdeographs;
  const std::string pattern = words ? "[" + han + "]|(?:(?![" + han + "])[" + points + "])+|[^\\s" + points + "]" : R"([\s\S])";
  out["pre_tokenizer"] = {{"type", "Split"}, {"pattern", {{"Regex", pattern}}}, {"behavior", "Removed"}, {"invert", true}};
  json vocabulary = json::object();
  for (int64_t id = 0; id < size(); ++id) vocabulary[token(id)] = id;
  out["model"] = {{"type", "WordLevel"}, {"vocab", vocabulary}, {"unk_token", first_tokens()[1]}};
  return out.dump();
}

bool operator==(const TokenRows& a, const TokenRows& b) {
  const TokenRowOptions &x = a.options_, &y = b.options_;
  const bool same_bpe = x.bpe == y.bpe || (x.bpe && y.bpe && x.bpe->json() == y.bpe->json());
  return x.tokenizer == y.tokenizer && x.length == y.length && same_bpe && a.vocabulary_->tokens() == b.vocabulary_->tokens();
}

}  // namespace halfstep
