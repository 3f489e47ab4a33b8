// SPDX-License-Identifier: Apache-2.0
#include "framework/data/tokens/bpe.h"

#include <array>
#include <cstddef>
#include <mutex>
#include <system_error>
#include <utility>

#include "framework/base/check.h"
#include "framework/data/tokens/unicode.h"

namespace halfstep {
namespace {

constexpr const char* kBpe = "BpeTokenizer";

// Returns the token of each byte. Throws ValueError if one has none.
std::array<uint32_t, 256> byte_tokens(const StringMap<uint32_t>& ids) {
  std::array<uint32_t, 256> out{};
  for (int byte = 0; byte < 256; ++byte) {
    std::string letter;
    append_utf8(letter, letter_of_byte(uint8_t(byte)));
    const auto found = ids.find(letter);
    check<ValueError>(found != ids.end(), kBpe, "a vocabulary must have a token for each byte, and has none for ", byte);
    out[size_t(byte)] = found->second;
  }
  return out;
}

StringMap<uint32_t> ids_of(const std::vector<std::string>& tokens) {
  StringMap<uint32_t> out;
  for (size_t i = 0; i < tokens.size(); ++i) out.emplace(tokens[i], uint32_t(i));
  return out;
}

// Returns the words that need no merges: all tokens of the model, by their bytes.
StringMap<uint32_t> whole_words(const TokenizerFile& file) {
  StringMap<uint32_t> out;
  if (!file.ignore_merges) return out;
  for (size_t i = 0; i < file.model_size; ++i) {
    // Skips tokens with characters that stand for no byte: they cannot be words.
    std::string written_again;
    const std::string bytes = bytes_of_token(file.tokens[i]);
    for (const char c : bytes) append_utf8(written_again, letter_of_byte(uint8_t(c)));
    if (written_again == file.tokens[i] && !bytes.empty()) out.emplace(bytes, uint32_t(i));
  }
  return out;
}

// Returns the finder of the added tokens that are normalized, or of those that are not.
AddedTokenFinder finder_of(const TokenizerFile& file, bool normalized) {
  std::vector<AddedToken> out;
  StringMap<int64_t> seen;
  for (AddedToken token : file.added) {
    if (token.normalized != normalized) continue;
    if (normalized && file.nfc) token.content = normalize_nfc(token.content);
    const bool is_new = seen.emplace(token.content, token.id).second;
    check<DataError>(is_new, kBpe, "added tokens must differ in normal form C, but \"", token.content, "\" is there twice");
    out.push_back(std::move(token));
  }
  return AddedTokenFinder(std::move(out));
}

}  // namespace

// Gives each encoding thread its own scratch memory, so that the lock is taken twice per text and not twice per word.
class BpeTokenizer::ScratchPool {
 public:
  std::unique_ptr<BpeScratch> take() {
    const std::lock_guard lock(mutex_);
    if (free_.empty()) return std::make_unique<BpeScratch>();
    std::unique_ptr<BpeScratch> out = std::move(free_.back());
    free_.pop_back();
    return out;
  }
  void put(std::unique_ptr<BpeScratch> scratch) {
    const std::lock_guard lock(mutex_);
    free_.push_back(std::move(scratch));
  }

 private:
  std::mutex mutex_;
  std::vector<std::unique_ptr<BpeScratch>> free_;
};

struct BpeTokenizer::State {
  explicit State(TokenizerFile f)
      : file(std::move(f)),
        ids(ids_of(file.tokens)),
        merges(byte_tokens(ids), file.merges, whole_words(file)),
        as_written(finder_of(file, false)),
        normalized(finder_of(file, true)),
        special(file.tokens.size()) {
    for (const std::string& token : file.tokens) bytes.push_back(bytes_of_token(token));
    for (const AddedToken& token : file.added) {
      special[size_t(token.id)] = token.special;
      if (token.normalized && file.nfc) bytes[size_t(token.id)] = bytes_of_token(normalize_nfc(token.content));
    }
    file.merges = {};
  }

  size_t index_of(int64_t id) const {
    check<IndexError>(id >= 0 && id < int64_t(bytes.size()), kBpe, "an id must be in [0, ", bytes.size(), "), got ", id);
    return size_t(id);
  }

  TokenizerFile file;
  StringMap<uint32_t> ids;
  BpeMerges merges;
  AddedTokenFinder as_written, normalized;
  std::vector<bool> special;       // by id
  std::vector<std::string> bytes;  // of each token
  mutable ScratchPool scratches;
};

BpeTokenizer::BpeTokenizer(TokenizerFile file) : state_(std::make_shared<const State>(std::move(file))) {}

BpeTokenizer BpeTokenizer::load(const std::filesystem::path& path) {
  std::error_code ignored;  // the reader reports files that cannot be accessed
  if (!std::filesystem::is_directory(path, ignored)) return BpeTokenizer(read_tokenizer_json(path));
  if (std::filesystem::exists(path / "vocab.json", ignored) && !std::filesystem::exists(path / "tokenizer.json", ignored))
    return load(path / "vocab.json", path / "merges.txt");
  return BpeTokenizer(read_tokenizer_json(path / "tokenizer.json"));
}

BpeTokenizer BpeTokenizer::load(const std::filesystem::path& vocab, const std::filesystem::path& merges,
                                const BpePairOptions& options) {
  return BpeTokenizer(read_vocab_and_merges(vocab, merges, options));
}

BpeTokenizer BpeTokenizer::from_json(std::string text) { return BpeTokenizer(parse_tokenizer_json(std::move(text), "tokenizer")); }

const std::string& BpeTokenizer::json() const { return state_->file.json; }

int64_t BpeTokenizer::size() const { return int64_t(state_->bytes.size()); }

std::vector<int64_t> BpeTokenizer::encode(std::string_view text, bool add_special_tokens) const {
  const size_t wrong = find_not_utf8(text);
  if (wrong != text.npos) {
    fail<DataError>(kBpe, "a text must be UTF-8, but byte ", wrong, " is ", int(uint8_t(text[wrong])),
                    Help{"iconv converts a text from another encoding"});
  }
  const TokenizerFile& file = state_->file;
  std::vector<int64_t> out;
  if (add_special_tokens) out = file.before;
  encode_in_pieces(text, [&](std::span<const int64_t> ids) { out.insert(out.end(), ids.begin(), ids.end()); });
  if (add_special_tokens) out.insert(out.end(), file.after.begin(), file.after.end());
  return out;
}

void BpeTokenizer::encode_in_pieces(std::string_view text, const std::function<void(std::span<const int64_t>)>& f) const {
  const State& state = *state_;
  auto scratch = state.scratches.take();
  std::vector<int64_t> out;
  const auto found = [&](int64_t id) { out.push_back(id); };
  const auto encode_part = [&](std::string_view part) {
    for_each_word(state.file.rules, part, [&](std::string_view word) {
      constexpr size_t kIdsPerCall = 1 << 14;
      state.merges.encode(word, *scratch, out);
      if (out.size() < kIdsPerCall) return;
      f(out);
      out.clear();
    });
  };
  state.as_written.split(
      text,
      [&](std::string_view part) {
        const std::string normal = state.file.nfc ? normalize_nfc(part) : std::string();
        state.normalized.split(state.file.nfc ? normal : part, encode_part, found);
      },
      found);
  f(out);
  state.scratches.put(std::move(scratch));
}

std::string BpeTokenizer::bytes(std::span<const int64_t> ids, bool skip_special_tokens) const {
  std::string out;
  for (const int64_t id : ids) {
    const size_t place = state_->index_of(id);
    if (!skip_special_tokens || !state_->special[place]) out += state_->bytes[place];
  }
  return out;
}

std::string BpeTokenizer::decode(std::span<const int64_t> ids, bool skip_special_tokens) const {
  return replace_not_utf8(bytes(ids, skip_special_tokens));
}

const std::string& BpeTokenizer::token(int64_t id) const { return state_->file.tokens[state_->index_of(id)]; }

int64_t BpeTokenizer::id(std::string_view token) const {
  const auto found = state_->ids.find(token);
  return found == state_->ids.end() ? -1 : int64_t(found->second);
}

bool BpeTokenizer::is_special(int64_t id) const { return state_->special[state_->index_of(id)]; }

}  // namespace halfstep
