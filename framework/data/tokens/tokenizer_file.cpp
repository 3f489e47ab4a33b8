// SPDX-License-Identifier: Apache-2.0
#include "framework/data/tokens/tokenizer_file.h"

#include <algorithm>
#include <cstddef>
#include <initializer_list>
#include <nlohmann/json.hpp>
#include <string_view>
#include <utility>

#include "framework/base/check.h"
#include "framework/data/tokens/unicode.h"
#include "framework/io/files/atomic_file.h"
#include "framework/io/files/json.h"
#include "framework/io/files/other_file.h"

namespace halfstep {
namespace {

using Json = nlohmann::json;
constexpr const char* kTokenizer = "BpeTokenizer";
constexpr size_t kMaxFile = size_t(1) << 28;  // bytes; Llama 3's has 9 million
constexpr size_t kMaxRules = 16;              // of a pre-tokenizer

// Returns the beginning of a value as JSON.
std::string shortened(const Json& value) {
  const std::string text = value.dump(-1, ' ', true);
  constexpr size_t kShown = 80;
  return text.size() > kShown ? text.substr(0, kShown) + "..." : text;
}

// A value of the file, with its path for errors.
class JsonPart {
 public:
  JsonPart(const Json& value, std::string place) : value_(value), place_(std::move(place)) {}

  const Json& operator*() const { return value_; }
  template <class... Parts>
  void expect(bool holds, const Parts&... rule) const {
    if (!holds) fail<DataError>(kTokenizer, place_, ' ', rule..., ", got ", shortened(value_));
  }
  bool has(const std::string& key) const { return value_.is_object() && value_.contains(key) && !value_[key].is_null(); }
  JsonPart at(const std::string& key) const {
    static const Json missing;
    expect(value_.is_object(), "must be an object");
    return {value_.contains(key) ? value_[key] : missing, place_ + (place_.ends_with(": ") ? "" : ".") + key};
  }
  JsonPart at(size_t i) const { return {value_[i], joined(place_, '[', i, ']')}; }
  const JsonPart& object() const { return expect(value_.is_object(), "must be an object"), *this; }
  size_t list() const { return expect(value_.is_array(), "must be a list"), value_.size(); }
  const std::string& text() const { return expect(value_.is_string(), "must be a string"), value_.get_ref<const std::string&>(); }
  bool flag() const { return expect(value_.is_boolean(), "must be true or false"), value_.get<bool>(); }
  int64_t number(size_t below) const {
    const bool is_valid = value_.is_number_unsigned() && value_.get<uint64_t>() < below;
    expect(is_valid, "must be an integer in [0, ", below, ')');
    return value_.get<int64_t>();
  }
  // Checks that the object has only these keys: others could change ids in an unknown way.
  void allow_only(std::initializer_list<std::string_view> keys) const {
    object();
    for (const auto& [key, value] : value_.items()) {
      const bool known = std::find(keys.begin(), keys.end(), key) != keys.end();
      if (!known) at(key).expect(false, "is not supported");
    }
  }

 private:
  const Json& value_;
  std::string place_;
};

Json json_of(const std::string& text, const std::string& file) {
  try {
    return read_json<Json>(text);
  } catch (const JsonError& e) {
    fail<DataError>(kTokenizer, file, ':', e.line, ':', e.column, ": the file must be JSON: ", e.what());
  }
}

// Reads the tokens by their string, each with its id in [0, vocabulary's size).
StringMap<uint32_t> read_vocabulary(const JsonPart& part, TokenizerFile& file) {
  const size_t size = (*part.object()).size();
  StringMap<uint32_t> out;
  file.model_size = size;
  file.tokens.assign(size, "");
  std::vector<bool> seen(size);
  for (const auto& [token, value] : (*part).items()) {
    const JsonPart id = part.at(token);
    const size_t i = size_t(id.number(size));
    id.expect(!seen[i], "must be an id that no other token has");
    seen[i] = true;
    file.tokens[i] = token;
    out.emplace(token, uint32_t(i));
  }
  for (int byte = 0; byte < 256; ++byte) {
    std::string letter;
    append_utf8(letter, letter_of_byte(uint8_t(byte)));
    part.expect(out.contains(letter), "must have a token for each byte, and has none for byte ", byte, " (\"", letter, "\")");
  }
  return out;
}

void add_merge(const StringMap<uint32_t>& ids, std::string_view left, std::string_view right, const std::string& place,
               std::vector<BpeMerges::Merge>& out) {
  const auto id_of = [&](const std::string& token) {
    const auto found = ids.find(token);
    check<DataError>(found != ids.end(), kTokenizer, place, " must join two tokens to a third, but the vocabulary has no ",
                     spelled(token.substr(0, 80)));
    return found->second;
  };
  out.push_back({id_of(std::string(left)), id_of(std::string(right)), id_of(std::string(left) + std::string(right))});
}

void check_unique(const std::vector<BpeMerges::Merge>& merges, const std::string& place) {
  std::vector<std::pair<uint32_t, uint32_t>> pairs;
  for (const auto& m : merges) pairs.emplace_back(m.left, m.right);
  std::sort(pairs.begin(), pairs.end());
  const auto twice = std::adjacent_find(pairs.begin(), pairs.end());
  if (twice != pairs.end())
    fail<DataError>(kTokenizer, place, " must have each pair once, but that of tokens ", twice->first, " and ", twice->second,
                    " is there twice");
}

void read_model(const JsonPart& model, const std::string& file, TokenizerFile& out, StringMap<uint32_t>& ids) {
  if (model.has("type")) model.at("type").expect((*model.at("type")) == "BPE", "must be \"BPE\"");
  model.allow_only({"type", "dropout", "unk_token", "continuing_subword_prefix", "end_of_word_suffix", "fuse_unk", "byte_fallback",
                    "ignore_merges", "vocab", "merges"});
  if (model.has("dropout")) model.at("dropout").expect(*model.at("dropout") == 0, "must be null or 0");
  for (const char* key : {"continuing_subword_prefix", "end_of_word_suffix"})
    if (model.has(key)) model.at(key).expect(model.at(key).text().empty(), "must be null or empty");
  if (model.has("byte_fallback")) model.at("byte_fallback").expect(!model.at("byte_fallback").flag(), "must be false");
  if (model.has("ignore_merges")) out.ignore_merges = model.at("ignore_merges").flag();
  ids = read_vocabulary(model.at("vocab"), out);
  const JsonPart merges = model.at("merges");
  for (size_t i = 0, count = merges.list(); i < count; ++i) {
    const JsonPart merge = merges.at(i);
    const std::string place = joined(file, ": model.merges[", i, ']');
    if ((*merge).is_array()) {  // since tokenizers 0.20
      merge.expect(merge.list() == 2, "must be two tokens");
      add_merge(ids, merge.at(0).text(), merge.at(1).text(), place, out.merges);
      continue;
    }
    const std::string& line = merge.text();
    const size_t space = line.find(' ');
    merge.expect(space != line.npos && line.find(' ', space + 1) == line.npos, "must be two tokens with a space between");
    add_merge(ids, std::string_view(line).substr(0, space), std::string_view(line).substr(space + 1), place, out.merges);
  }
  check_unique(out.merges, file + ": model.merges");
}

// Numbers tokens that the model's vocabulary lacks after it, in the order of the file, like `tokenizers`, which only warns if the
// file gives other ids.
void read_added(const JsonPart& all, TokenizerFile& out, StringMap<uint32_t>& ids) {
  StringMap<size_t> seen;
  for (size_t i = 0, count = all.list(); i < count; ++i) {
    const JsonPart part = all.at(i);
    part.allow_only({"id", "content", "single_word", "lstrip", "rstrip", "normalized", "special"});
    AddedToken token;
    token.content = part.at("content").text();
    part.at("content").expect(!token.content.empty(), "must not be empty");
    part.at("content").expect(seen.emplace(token.content, i).second, "must be there once");
    part.at("single_word").expect(!part.at("single_word").flag(), "must be false: it needs to know what a word is");
    token.lstrip = part.at("lstrip").flag();
    token.rstrip = part.at("rstrip").flag();
    token.normalized = part.at("normalized").flag();
    token.special = part.at("special").flag();
    const auto known = ids.find(token.content);
    const size_t id = known == ids.end() ? out.tokens.size() : known->second;
    part.at("id").expect(*part.at("id") == id, "must be ", id,
                         known == ids.end() ? ", the next free id" : ", the token's id in model.vocab");
    if (known == ids.end()) {
      ids.emplace(token.content, uint32_t(id));
      out.tokens.push_back(token.content);
    }
    token.id = int64_t(id);
    out.added.push_back(std::move(token));
  }
}

void read_split(const JsonPart& part, std::vector<SplitRule>& out) {
  part.allow_only({"type", "pattern", "behavior", "invert"});
  const JsonPart pattern = part.at("pattern").at("Regex");
  const auto rule = rule_of_pattern(pattern.text());
  pattern.expect(rule.has_value(), "must be the expression of GPT-2, of Llama 3 or of Qwen 2");
  // The expressions match all of a text, so it makes no difference whether matches are kept, or what is between them is removed.
  const bool invert = part.at("invert").flag();
  part.at("behavior")
      .expect(*part.at("behavior") == (invert ? "Removed" : "Isolated"), "must be \"", invert ? "Removed" : "Isolated",
              "\" with invert ", invert ? "true" : "false");
  out.push_back(*rule);
}

// Adds the rules of a pre-tokenizer. Returns whether the last one is ByteLevel, which turns words into the letters of the
// vocabulary.
bool read_pre_tokenizer(const JsonPart& part, std::vector<SplitRule>& out) {
  part.expect(part.has("type"), "must be an object with a type");
  const std::string& type = part.at("type").text();
  if (type == "ByteLevel") {
    part.allow_only({"type", "add_prefix_space", "trim_offsets", "use_regex"});
    if (part.at("add_prefix_space").flag()) out.push_back(SplitRule::prefix_space);
    if (!part.has("use_regex") || part.at("use_regex").flag()) out.push_back(SplitRule::gpt2);
    return true;
  }
  if (type == "Split") {
    read_split(part, out);
  } else if (type == "Digits") {
    part.allow_only({"type", "individual_digits"});
    out.push_back(part.at("individual_digits").flag() ? SplitRule::each_digit : SplitRule::digits);
  } else {
    part.at("type").expect(type == "Sequence", "must be \"ByteLevel\", \"Split\", \"Digits\" or \"Sequence\" of these");
    part.allow_only({"type", "pretokenizers"});
    const JsonPart list = part.at("pretokenizers");
    bool ends_in_bytes = false;
    for (size_t i = 0, count = list.list(); i < count; ++i) {
      list.at(i).expect(!ends_in_bytes, "must not follow ByteLevel");
      list.at(i).expect(out.size() < kMaxRules, "is one step too many: at most ", kMaxRules, " are read");
      ends_in_bytes = read_pre_tokenizer(list.at(i), out);
    }
    return ends_in_bytes;
  }
  return false;
}

// Returns whether texts are converted to normal form C.
bool read_normalizer(const JsonPart& part) {
  if ((*part).is_null()) return false;
  const std::string& type = part.at("type").text();
  if (type == "NFC") return true;
  part.at("type").expect(type == "Sequence", "must be \"NFC\"; a normalizer may also be null");
  const JsonPart list = part.at("normalizers");
  bool nfc = false;
  for (size_t i = 0, count = list.list(); i < count; ++i) nfc = read_normalizer(list.at(i)) || nfc;
  return nfc;
}

// Reads the tokens that a template puts around a text.
void read_template(const JsonPart& part, size_t size, std::vector<int64_t>& before, std::vector<int64_t>& after) {
  bool past = false;
  const JsonPart single = part.at("single");
  for (size_t i = 0, count = single.list(); i < count; ++i) {
    const JsonPart piece = single.at(i);
    if (piece.has("Sequence")) {
      piece.expect(!past && *piece.at("Sequence").at("id") == "A", "must be the one Sequence A");
      past = true;
      continue;
    }
    const JsonPart ids = part.at("special_tokens").at(piece.at("SpecialToken").at("id").text()).at("ids");
    for (size_t k = 0, n = ids.list(); k < n; ++k) (past ? after : before).push_back(ids.at(k).number(size));
  }
  single.expect(past, "must have a Sequence A");
}

// Reads a sequence of steps; the tokens that a step adds around a text are inside those of the next step.
void read_post_processor(const JsonPart& part, size_t size, TokenizerFile& out) {
  if ((*part).is_null()) return;
  const std::string& type = part.at("type").text();
  if (type == "ByteLevel") return;  // only changes offsets, which are not used here
  if (type == "Sequence") {
    const JsonPart list = part.at("processors");
    for (size_t i = 0, count = list.list(); i < count; ++i) read_post_processor(list.at(i), size, out);
    return;
  }
  std::vector<int64_t> before, after;
  if (type == "TemplateProcessing") {
    read_template(part, size, before, after);
  } else {
    const bool pair = type == "RobertaProcessing" || type == "BertProcessing";
    part.at("type").expect(
        pair, "must be \"ByteLevel\", \"TemplateProcessing\", \"RobertaProcessing\", \"BertProcessing\" or \"Sequence\" of these");
    for (const char* key : {"cls", "sep"}) {
      part.at(key).expect(part.at(key).list() == 2, "must be a token and its id");
      (key[0] == 'c' ? before : after).push_back(part.at(key).at(1).number(size));
    }
  }
  out.before.insert(out.before.begin(), before.begin(), before.end());
  out.after.insert(out.after.end(), after.begin(), after.end());
}

// Returns vocab.json and merges.txt as one file.
std::string as_tokenizer_json(const TokenizerFile& file, bool add_prefix_space) {
  const Json bytes = {{"type", "ByteLevel"}, {"add_prefix_space", add_prefix_space}, {"trim_offsets", true}, {"use_regex", true}};
  Json added = Json::array(), vocabulary = Json::object(), merges = Json::array();
  for (const AddedToken& t : file.added)
    added.push_back({{"id", t.id},
                     {"content", t.content},
                     {"single_word", false},
                     {"lstrip", t.lstrip},
                     {"rstrip", t.rstrip},
                     {"normalized", t.normalized},
                     {"special", t.special}});
  for (size_t id = 0; id < file.tokens.size(); ++id) vocabulary[file.tokens[id]] = id;
  for (const BpeMerges::Merge& m : file.merges) merges.push_back(file.tokens[m.left] + ' ' + file.tokens[m.right]);
  return Json{
      {"version", "1.0"},          {"truncation", nullptr}, {"padding", nullptr},
      {"added_tokens", added},     {"normalizer", nullptr}, {"pre_tokenizer", bytes},
      {"post_processor", nullptr}, {"decoder", bytes},      {"model", {{"type", "BPE"}, {"vocab", vocabulary}, {"merges", merges}}}}
      .dump();
}

}  // namespace

TokenizerFile read_tokenizer_json(const std::filesystem::path& path) {
  std::string text = read_file(path, kMaxFile);
  if (const auto other = other_file(std::string_view(text).substr(0, kOtherFileHead), path); other && other->is_pointer)
    refuse_other_file<DataError>(kTokenizer, path, text);
  return parse_tokenizer_json(std::move(text), path.string());
}

TokenizerFile parse_tokenizer_json(std::string text, const std::string& file) {
  const Json json = json_of(text, file);
  const JsonPart all(json, file + ": ");
  TokenizerFile out;
  out.json = std::move(text);
  StringMap<uint32_t> ids;
  all.object();
  if (all.has("version")) all.at("version").expect(*all.at("version") == "1.0", "must be \"1.0\"");
  all.at("model").object();
  read_model(all.at("model"), file, out, ids);
  if (all.has("added_tokens")) read_added(all.at("added_tokens"), out, ids);
  for (const char* key : {"truncation", "padding"}) all.at(key).expect(!all.has(key), "must be null: all of a text is encoded");
  out.nfc = read_normalizer(all.at("normalizer"));
  const JsonPart words = all.at("pre_tokenizer");
  words.expect(read_pre_tokenizer(words, out.rules), "must end in ByteLevel");
  const JsonPart decoder = all.at("decoder");
  decoder.expect(decoder.has("type") && *decoder.at("type") == "ByteLevel", "must be of type \"ByteLevel\"");
  read_post_processor(all.at("post_processor"), out.tokens.size(), out);
  return out;
}

TokenizerFile read_vocab_and_merges(const std::filesystem::path& vocab, const std::filesystem::path& merges,
                                    const BpePairOptions& options) {
  TokenizerFile out;
  const Json json = json_of(read_file(vocab, kMaxFile), vocab.string());
  const StringMap<uint32_t> ids = read_vocabulary(JsonPart(json, vocab.string() + ": "), out);
  const std::string text = read_file(merges, kMaxFile);
  size_t number = 0;
  for (size_t at = 0, end = 0; at < text.size(); at = end + 1) {
    end = std::min(text.find('\n', at), text.size());
    std::string_view line = std::string_view(text).substr(at, end - at);
    if (line.ends_with('\r')) line.remove_suffix(1);
    const std::string place = joined(merges.string(), ':', ++number, ":");
    if (line.starts_with("#version")) continue;
    const size_t space = line.find(' ');
    check<DataError>(space != line.npos && line.find(' ', space + 1) == line.npos, kTokenizer, place,
                     " a merge must be two tokens with a space between, got \"", line.substr(0, 80), '"');
    add_merge(ids, line.substr(0, space), line.substr(space + 1), place, out.merges);
  }
  check_unique(out.merges, merges.string() + ":");
  for (const std::string& token : options.special_tokens) {
    if (const auto found = ids.find(token); found != ids.end() && !token.empty())
      out.added.push_back({.id = int64_t(found->second), .content = token, .special = true});
  }
  if (options.add_prefix_space) out.rules.push_back(SplitRule::prefix_space);
  out.rules.push_back(SplitRule::gpt2);
  out.json = as_tokenizer_json(out, options.add_prefix_space);
  return out;
}

}  // namespace halfstep
