// SPDX-License-Identifier: Apache-2.0
// A character LSTM: reads a text, learns to continue it, and writes some of its own. In mixed precision, as a user writes it.
//   char_lstm [--dtype float16|bfloat16|float32] [--hidden 128] [--steps 400] [--text FILE]
// The text is tiny Shakespeare where the environment's HALFSTEP_DATA has it, else the few lines below.
#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <map>
#include <sstream>
#include <string>

#include "examples/claim.h"
#include "halfstep.h"

using namespace halfstep;

namespace {

const char* const kOwnText =
    "Here is a small text that a small net may learn by heart. It says the same few things in a few ways, so that the net has\n"
    "something to find: that a word begins after a space, that a sentence ends with a point, that after a q there comes a u.\n"
    "The net reads one letter after the other. It keeps what it has read in its state, and says which letter may come next.\n"
    "At first it knows nothing, and each letter is as good as any other. Then it finds the letters that come often, then the\n"
    "pairs of letters, then the short words, and then, if the text is as short as this one, the text itself. The quick net\n"
    "reads the text a hundred times. The quiet net says it again, word by word, as if it had something of its own to say.\n";

struct Options {
  DType dtype = DType::f16;
  int64_t hidden = 128, steps = 400, batch = 32, window = 64;
  std::string text;
};

Options parse(int argc, char** argv) {
  Options o;
  const char* data = std::getenv("HALFSTEP_DATA");
  std::string path = data ? std::string(data) + "/tinyshakespeare/input.txt" : "";
  for (int i = 1; i + 1 < argc; i += 2) {
    const std::string key = argv[i], value = argv[i + 1];
    if (key == "--dtype") o.dtype = parse_dtype(value).value();
    if (key == "--hidden") o.hidden = std::stoll(value);
    if (key == "--steps") o.steps = std::stoll(value);
    if (key == "--text") path = value;
  }
  std::stringstream text;
  text << std::ifstream(path).rdbuf();
  o.text = text.str().empty() ? kOwnText : text.str();
  return o;
}

// Characters as numbers, and back.
struct Alphabet {
  std::string characters;
  std::map<char, int64_t> number;
  explicit Alphabet(std::string text) {
    std::sort(text.begin(), text.end());
    text.erase(std::unique(text.begin(), text.end()), text.end());
    characters = text;
    for (size_t i = 0; i < text.size(); ++i) number[text[i]] = int64_t(i);
  }
  int64_t size() const { return int64_t(characters.size()); }
};

struct CharLSTM : ModuleOf<CharLSTM> {
  Part<Embedding> embedding;
  Part<LSTM> lstm;
  Part<Linear> head;
  CharLSTM(int64_t characters, int64_t hidden)
      : embedding(this, "embedding", characters, hidden),
        lstm(this, "lstm", LSTM(hidden, hidden, {.num_layers = 2, .batch_first = true})),
        head(this, "head", hidden, characters) {}

  // x: [N, T] numbers of characters -> logits [N, T, characters] of the ones that follow, and where the LSTM has got to.
  std::pair<Tensor, LSTM::State> forward(const Tensor& x, const LSTM::State& state = {}) {
    const auto [y, next] = lstm(embedding(x), state);
    return {head(y), next};
  }
};

std::string sample(CharLSTM& net, const Alphabet& alphabet, std::string text, int64_t length) {
  const NoGrad quiet;
  net.eval();
  LSTM::State state;
  std::string unread = text;
  for (int64_t i = 0; i < length; ++i) {
    std::vector<int64_t> numbers;
    for (char c : unread) numbers.push_back(alphabet.number.at(c));
    const auto [logits, next] = net(from_vector(numbers, {1, int64_t(numbers.size())}), state);
    state = next;
    const Tensor probabilities = softmax(logits.select(0, 0).select(0, -1).to(DType::f32) / 0.6, -1);
    unread = alphabet.characters[size_t(multinomial(probabilities, 1).item<int64_t>())];
    text += unread;
  }
  return text;
}

}  // namespace

int main(int argc, char** argv) {
  const Options o = parse(argc, argv);
  const Alphabet alphabet(o.text);
  std::vector<int64_t> numbers;
  for (char c : o.text) numbers.push_back(alphabet.number.at(c));
  const Tensor text = from_vector(numbers, {int64_t(numbers.size())});

  manual_seed(0);
  const auto net = make<CharLSTM>(alphabet.size(), o.hidden);
  AdamW optimizer(net->parameters(), {.lr = 0.004});
  GradScaler scaler({.enabled = o.dtype == DType::f16});
  std::cout << o.text.size() << " characters, " << alphabet.size() << " distinct; " << net->parameter_count() << " parameters; "
            << o.dtype << '\n';

  double first = 0, recent = 0;
  int64_t skipped = 0;
  for (int64_t step = 1; step <= o.steps; ++step) {
    Tensors windows;
    for (int64_t begin : randint(0, text.size(0) - o.window, {o.batch}).to_vector<int64_t>())
      windows.push_back(text.narrow(0, begin, o.window + 1));
    const Tensor batch = stack(windows);
    optimizer.zero_grad();
    Tensor loss;
    {
      const Autocast region(Device::cpu, if_half(o.dtype));
      const auto [logits, state] = (*net)(batch.narrow(1, 0, o.window));
      loss = cross_entropy(logits.reshape({-1, alphabet.size()}), batch.narrow(1, 1, o.window).reshape({-1}));
    }
    scaler.scale(loss).backward();
    scaler.unscale_(optimizer);
    clip_grad_norm_(net->parameters(), 1);
    skipped += scaler.step(optimizer).overflow();
    scaler.update();
    const double now = loss.item<double>();
    if (step == 1) first = now;
    recent = step == 1 ? now : 0.9 * recent + 0.1 * now;
    if (step % std::max<int64_t>(1, o.steps / 8) == 0)
      std::cout << "step " << step << ": loss " << now << ", scale " << scaler.get_scale() << '\n';
  }
  std::cout << "loss " << first << " -> " << recent << " nats a character, " << skipped << " steps skipped\n\n"
            << sample(*net, alphabet, o.text.substr(0, 8), 240) << "\n\n";
  claim(recent < 0.75 * first, "the loss falls");
  claim(skipped < o.steps / 4, "few steps are skipped");
  return failed_claims;
}
