// SPDX-License-Identifier: Apache-2.0
// Draws the bar, prints plain lines, thins out the lines of epochs, and formats their numbers.
#include "apps/terminal/progress.h"

#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <string_view>
#include <utility>

#include "apps/terminal/signals.h"
#include "apps/terminal/terminal.h"
#include "framework/base/number_text.h"

namespace halfstep::app {
namespace {

constexpr double kPlainEverySeconds = 5, kBarEverySeconds = 0.1;
constexpr size_t kLeastBar = 6, kMostBar = 32;  // columns, with brackets
constexpr size_t kSpared = 3;                   // columns of the terminal left free for typed keys, such as ^C
constexpr double kLongWait = 0.1;               // share of the time above which waiting is shown

// Formats integers and texts; printf would format other types by the locale.
template <class... Args>
std::string formatted(const char* format, Args... args) {
  char buffer[256];
  std::snprintf(buffer, sizeof buffer, format, args...);
  return buffer;
}

std::string whole_percent(double share) { return fixed_text(100 * share, 0) + " %"; }

double time_since(std::chrono::steady_clock::time_point then) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - then).count();
}

// Returns whether the terminal rewraps lines when its width changes; xterm truncates them.
bool breaks_anew() { return !std::getenv("XTERM_VERSION") || std::getenv("TMUX"); }

std::string bar_of(double share, size_t columns) {
  const size_t room = columns - 2, full = size_t(share * double(room));
  std::string out = "[" + std::string(full, '=') + (full < room ? ">" : "");
  out.resize(columns - 1, ' ');
  return out + "]";
}

// Returns the line for a log file.
std::string plain_text(const ProgressView& v) {
  std::string text;
  if (v.epochs > 0) text += formatted("epoch %lld/%lld  ", (long long)v.epoch, (long long)v.epochs);
  text += formatted("step %lld/%lld  loss %s  lr %s  %s samples/s", (long long)v.step, (long long)v.steps,
                    number_text(v.loss.value_or(NAN), 4).c_str(), number_text(v.lr, 3).c_str(),
                    count_text(v.samples_per_second).c_str());
  if (v.scale) text += formatted("  scale %s  skipped %lld", number_text(*v.scale, 6).c_str(), (long long)v.skipped);
  if (v.grad_norm) text += "  grad norm " + number_text(*v.grad_norm, 3);
  text += "  data wait " + whole_percent(v.loader_wait);
  if (v.rank_wait) text += "  rank wait " + whole_percent(*v.rank_wait);
  return text + "  peak " + bytes_text(v.peak_bytes) + "  eta " + duration_text(v.seconds_left);
}

}  // namespace

std::string bar_text(const ProgressView& v, size_t width) {
  const double share = v.steps > 0 ? std::clamp(double(v.step) / double(v.steps), 0.0, 1.0) : 0;
  const std::string head = v.epochs > 0 ? formatted("epoch %lld/%lld", (long long)v.epoch, (long long)v.epochs)
                                        : formatted("step %lld/%lld", (long long)v.step, (long long)v.steps);
  std::string percent = whole_percent(share);
  percent.insert(0, std::max<size_t>(percent.size(), 5) - percent.size(), ' ');
  std::string left;
  if (std::isfinite(v.seconds_left)) left = duration_text(std::max(1.0, std::round(v.seconds_left))) + " left";
  if (left.starts_with("1.0 s")) left = "1 s left";
  std::vector<std::string> more;  // most important first
  if (v.evaluates) more.emplace_back("evaluating");
  if (v.loss && !v.evaluates) more.push_back("loss " + number_text(*v.loss, 3));
  if (v.skipped > 0) more.push_back(formatted("%lld skipped", (long long)v.skipped));
  if (v.loader_wait >= kLongWait) more.push_back("waits for data " + whole_percent(v.loader_wait));
  if (v.rank_wait && *v.rank_wait >= kLongWait) more.push_back("waits for ranks " + whole_percent(*v.rank_wait));
  if (v.samples_per_second > 0) more.push_back(count_text(v.samples_per_second) + " samples/s");

  const auto joint = [](const std::vector<std::string>& parts) {
    std::string out;
    for (const std::string& p : parts)
      if (!p.empty()) out += (out.empty() ? "" : "  ") + p;
    return out;
  };
  std::vector<std::string> parts = {head, std::string(kLeastBar, ' '), percent, left};
  if (joint(parts).size() > width) {  // omits the bar
    parts.erase(parts.begin() + 1);
    if (joint(parts).size() > width) parts = {percent, left};
    return shortened(joint(parts), width);
  }
  for (const std::string& m : more) {
    parts.insert(parts.end() - 1, m);
    if (joint(parts).size() > width) parts.erase(parts.end() - 2);
  }
  parts[1] = bar_of(share, std::min(kMostBar, kLeastBar + width - joint(parts).size()));
  return joint(parts);
}

std::string line_of_parts(const std::vector<LinePart>& parts, size_t width) {
  const auto line = [&](bool all, bool brief) {
    std::string out;
    for (const LinePart& p : parts)
      if (all || !p.goes_first) out += (out.empty() ? "" : "  ") + (brief && !p.brief.empty() ? p.brief : p.text);
    return out.substr(0, out.find_last_not_of(' ') + 1);
  };
  for (const auto& [all, brief] : {std::pair{true, false}, std::pair{false, false}})
    if (const std::string out = line(all, brief); width == 0 || columns_of(out) <= width) return out;
  return line(false, true);
}

Progress::Progress(const ProgressOptions& options) : options_(options) {
  const char* term = std::getenv("TERM");
  const bool dumb = term && std::string_view(term) == "dumb";  // has no escape sequences
  terminal_ = !options.plain && !dumb && isatty(fileno(options.out)) != 0;
  const char* no_color = std::getenv("NO_COLOR");
  color_ = terminal_ && options.color && !(no_color && *no_color);
}

Progress::~Progress() {
  clear();
  std::fflush(options_.out);
}

// Erases the bar, which a terminal that became narrower has wrapped to several lines.
void Progress::clear() {
  if (drawn_ == 0) return;
  const size_t now = terminal_width(fileno(options_.out));
  if (now > 0 && drawn_ > now && breaks_anew()) std::fprintf(options_.out, "\033[%zuA", (drawn_ - 1) / now);
  std::fputs("\r\033[J", options_.out);
  drawn_ = 0;
  last_bar_ = {};
  erase_when_interrupted(-1);
}

std::string Progress::paint(const char* code, const std::string& text) const {
  return color_ ? "\033[" + std::string(code) + "m" + text + "\033[0m" : text;
}

size_t Progress::width() const { return terminal_ ? terminal_width(fileno(options_.out)) : 0; }

void Progress::line(const std::string& text) {
  if (options_.quiet || options_.silent) return;
  clear();
  std::fprintf(options_.out, "%s\n", wrapped(text, width()).c_str());
  std::fflush(options_.out);
}

void Progress::note(const std::string& text) { line(paint("36", "note:") + " " + text); }

void Progress::warn(const std::string& text) {
  if (options_.silent) return;
  clear();
  std::fflush(options_.out);
  std::fprintf(stderr, "%s\n", wrapped(paint("33", "warning:") + " " + text, terminal_width(STDERR_FILENO)).c_str());
}

bool Progress::is_due() const { return has_bar() && time_since(last_bar_) >= kBarEverySeconds; }

void Progress::update(const ProgressView& v) {
  if (options_.quiet || options_.silent) return;
  if (!terminal_) {
    if (time_since(last_plain_) < kPlainEverySeconds) return;
    last_plain_ = std::chrono::steady_clock::now();
    return line(plain_text(v));
  }
  const size_t columns = terminal_width(fileno(options_.out));
  const std::string text = bar_text(v, columns == 0 ? 80 - kSpared : columns - std::min(columns, kSpared));
  clear();
  const size_t begin = text.find('['), end = text.find(']');  // of the bar, which is painted between its brackets
  if (begin == std::string::npos || end == std::string::npos)
    std::fputs(text.c_str(), options_.out);
  else
    std::fprintf(options_.out, "%s%s%s", text.substr(0, begin + 1).c_str(),
                 paint("36", text.substr(begin + 1, end - begin - 1)).c_str(), text.substr(end).c_str());
  std::fflush(options_.out);
  drawn_ = text.size();
  last_bar_ = std::chrono::steady_clock::now();
  erase_when_interrupted(fileno(options_.out));
}

EpochLines::EpochLines(Progress& progress, int64_t epochs) : progress_(progress), every_(1) {
  constexpr int64_t kAll = 40, kSome = 20;
  if (progress.has_bar() && epochs > kAll) every_ = (epochs + kSome - 1) / kSome;
}

void EpochLines::add(int64_t epoch, std::vector<LinePart> parts, bool is_best) {
  if (!progress_.has_bar()) return progress_.line(line_of_parts(parts, 0));
  constexpr double kLongSeconds = 300;  // longest interval between lines
  const bool first = printed_ == std::chrono::steady_clock::time_point();
  if (is_best) parts.push_back({"best"}), best_ = PendingLine{epoch, parts};
  last_ = PendingLine{epoch, std::move(parts)};
  if (first || epoch % every_ == 0 || time_since(printed_) >= kLongSeconds) end();
}

void EpochLines::end() {
  if (best_ && last_ && best_->epoch < last_->epoch) print(std::move(best_->parts));
  if (last_) print(std::move(last_->parts));
  best_.reset(), last_.reset();
  printed_ = std::chrono::steady_clock::now();
}

void EpochLines::print(std::vector<LinePart> parts) {
  widths_.resize(std::max(widths_.size(), parts.size()));
  for (size_t i = 0; i < parts.size(); ++i) {
    widths_[i] = std::max(widths_[i], parts[i].text.size());
    if (!parts[i].brief.empty()) parts[i].brief.resize(parts[i].brief.size() + widths_[i] - parts[i].text.size(), ' ');
    parts[i].text.resize(widths_[i], ' ');
  }
  progress_.line(line_of_parts(parts, progress_.width()));
}

std::string duration_text(double seconds) {
  if (!(std::abs(seconds) < 1e15)) return "?";  // not a number, infinite, or beyond the range of long
  if (seconds < 60) return fixed_text(seconds, seconds < 10 ? 1 : 0) + " s";
  const long s = long(seconds + 0.5);
  if (s < 3600) return formatted("%ld:%02ld", s / 60, s % 60);
  return formatted("%ld:%02ld:%02ld", s / 3600, s / 60 % 60, s % 60);
}

std::string bytes_text(double bytes) {
  const char* units[] = {"bytes", "kB", "MB", "GB", "TB"};
  int u = 0;
  while (bytes >= 1000 && u < 4) bytes /= 1000, ++u;
  return fixed_text(bytes, u == 0 ? 0 : 1) + ' ' + units[u];
}

std::string count_text(double n) {
  if (n < 1000) return fixed_text(n, 0);
  return n < 1e6 ? fixed_text(n / 1e3, 1) + 'k' : fixed_text(n / 1e6, 2) + 'M';
}

std::string number_text(double v, int digits) { return std::isnan(v) ? "nan" : general_text(v, digits); }

}  // namespace halfstep::app
