// SPDX-License-Identifier: Apache-2.0
// Draws the bar, prints plain lines, and thins out the lines of epochs.
#include "apps/terminal/progress.h"

#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <string_view>
#include <utility>

#include "apps/terminal/quantity_text.h"
#include "apps/terminal/signals.h"
#include "apps/terminal/terminal.h"
#include "framework/base/number_text.h"

namespace halfstep::app {
namespace {

constexpr double kLineSeconds = 5, kBarSeconds = 0.1;  // least intervals of plain lines, and of drawing the bar
constexpr size_t kLeastBar = 6, kMostBar = 32;         // columns, with brackets
constexpr size_t kUsualColumns = 80;                   // of a terminal whose width is unknown
constexpr size_t kFreeColumns = 3;                     // columns of the terminal left free for typed keys, such as ^C
constexpr double kLongWaitShare = 0.1;                 // share of the time above which waiting is shown

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
bool rewraps_lines() { return !std::getenv("XTERM_VERSION") || std::getenv("TMUX"); }

// Returns the bar alone: "[==>   ]".
std::string bar_of(double share, size_t columns) {
  const size_t room = columns - 2, full = size_t(share * double(room));
  std::string out = "[" + std::string(full, '=') + (full < room ? ">" : "");
  out.resize(columns - 1, ' ');
  return out + "]";
}

// Returns the line for a log file.
std::string plain_text(const ProgressView& view) {
  std::string text;
  if (view.epochs > 0) text += formatted("epoch %lld/%lld  ", (long long)view.epoch, (long long)view.epochs);
  text += formatted("step %lld/%lld  loss %s  lr %s  %s samples/s", (long long)view.step, (long long)view.steps,
                    number_text(view.loss.value_or(NAN), 4).c_str(), number_text(view.lr, 3).c_str(),
                    count_text(view.samples_per_second).c_str());
  if (view.scale) text += formatted("  scale %s  skipped %lld", number_text(*view.scale, 6).c_str(), (long long)view.skipped);
  if (view.grad_norm) text += "  grad norm " + number_text(*view.grad_norm, 3);
  text += "  data wait " + whole_percent(view.loader_wait);
  if (view.rank_wait) text += "  rank wait " + whole_percent(*view.rank_wait);
  return text + "  peak " + bytes_text(view.peak_bytes) + "  eta " + duration_text(view.seconds_left);
}

}  // namespace

std::string bar_text(const ProgressView& view, size_t width) {
  const double share = view.steps > 0 ? std::clamp(double(view.step) / double(view.steps), 0.0, 1.0) : 0;
  const std::string head = view.epochs > 0 ? formatted("epoch %lld/%lld", (long long)view.epoch, (long long)view.epochs)
                                           : formatted("step %lld/%lld", (long long)view.step, (long long)view.steps);
  std::string percent = whole_percent(share);
  constexpr size_t kPercentColumns = 5;  // of "100 %"
  percent.insert(0, std::max(percent.size(), kPercentColumns) - percent.size(), ' ');
  std::string left;
  if (std::isfinite(view.seconds_left)) left = duration_text(std::max(1.0, std::round(view.seconds_left))) + " left";
  if (left.starts_with("1.0 s")) left = "1 s left";  // the least that is shown
  std::vector<std::string> more;  // most important first
  if (view.evaluates) more.emplace_back("evaluating");
  if (view.loss && !view.evaluates) more.push_back("loss " + number_text(*view.loss, 3));
  if (view.skipped > 0) more.push_back(formatted("%lld skipped", (long long)view.skipped));
  if (view.loader_wait >= kLongWaitShare) more.push_back("waits for data " + whole_percent(view.loader_wait));
  if (view.rank_wait && *view.rank_wait >= kLongWaitShare) more.push_back("waits for ranks " + whole_percent(*view.rank_wait));
  if (view.samples_per_second > 0) more.push_back(count_text(view.samples_per_second) + " samples/s");

  const auto joined_parts = [](const std::vector<std::string>& parts) {
    std::string out;
    for (const std::string& p : parts)
      if (!p.empty()) out += (out.empty() ? "" : "  ") + p;
    return out;
  };
  std::vector<std::string> parts = {head, std::string(kLeastBar, ' '), percent, left};
  if (joined_parts(parts).size() > width) {  // omits the bar
    parts.erase(parts.begin() + 1);
    if (joined_parts(parts).size() > width) parts = {percent, left};
    return shortened(joined_parts(parts), width);
  }
  for (const std::string& m : more) {
    parts.insert(parts.end() - 1, m);
    if (joined_parts(parts).size() > width) parts.erase(parts.end() - 2);
  }
  parts[1] = bar_of(share, std::min(kMostBar, kLeastBar + width - joined_parts(parts).size()));
  return joined_parts(parts);
}

std::string line_of_parts(const std::vector<LinePart>& parts, size_t width) {
  const auto line = [&](bool complete, bool brief) {
    std::string out;
    for (const LinePart& p : parts)
      if (complete || !p.is_optional) out += (out.empty() ? "" : "  ") + (brief && !p.brief.empty() ? p.brief : p.text);
    return out.substr(0, out.find_last_not_of(' ') + 1);
  };
  for (const bool complete : {true, false})
    if (const std::string out = line(complete, false); width == 0 || columns_of(out) <= width) return out;
  return line(false, true);
}

Progress::Progress(const ProgressOptions& options) : options_(options) {
  const char* term = std::getenv("TERM");
  const bool dumb = term && std::string_view(term) == "dumb";  // has no escape sequences
  is_terminal_ = !options.plain && !dumb && isatty(fileno(options.out)) != 0;
  const char* no_color = std::getenv("NO_COLOR");
  has_color_ = is_terminal_ && options.color && !(no_color && *no_color);
}

Progress::~Progress() {
  erase_bar();
  std::fflush(options_.out);
}

// Erases the bar, which a terminal that became narrower has wrapped to several lines.
void Progress::erase_bar() {
  if (bar_columns_ == 0) return;
  const size_t now = terminal_width(fileno(options_.out));
  if (now > 0 && bar_columns_ > now && rewraps_lines()) std::fprintf(options_.out, "\033[%zuA", (bar_columns_ - 1) / now);
  std::fputs("\r\033[J", options_.out);
  bar_columns_ = 0;
  last_bar_ = {};
  erase_when_interrupted(-1);
}

std::string Progress::paint(const char* code, const std::string& text) const {
  return has_color_ ? "\033[" + std::string(code) + "m" + text + "\033[0m" : text;
}

size_t Progress::width() const { return is_terminal_ ? terminal_width(fileno(options_.out)) : 0; }

void Progress::line(const std::string& text) {
  if (options_.quiet || options_.silent) return;
  erase_bar();
  std::fprintf(options_.out, "%s\n", wrapped(text, width()).c_str());
  std::fflush(options_.out);
}

void Progress::note(const std::string& text) { line(paint("36", "note:") + " " + text); }

void Progress::warn(const std::string& text) {
  if (options_.silent) return;
  erase_bar();
  std::fflush(options_.out);
  std::fprintf(stderr, "%s\n", wrapped(paint("33", "warning:") + " " + text, terminal_width(STDERR_FILENO)).c_str());
}

bool Progress::is_due() const { return has_bar() && time_since(last_bar_) >= kBarSeconds; }

void Progress::update(const ProgressView& view) {
  if (options_.quiet || options_.silent) return;
  if (!is_terminal_) {
    if (time_since(last_line_) < kLineSeconds) return;
    last_line_ = std::chrono::steady_clock::now();
    return line(plain_text(view));
  }
  const size_t columns = terminal_width(fileno(options_.out));
  const std::string text = bar_text(view, columns == 0 ? kUsualColumns - kFreeColumns : columns - std::min(columns, kFreeColumns));
  erase_bar();
  const size_t begin = text.find('['), end = text.find(']');  // of the bar, which is painted between its brackets
  if (begin == std::string::npos || end == std::string::npos)
    std::fputs(text.c_str(), options_.out);
  else
    std::fprintf(options_.out, "%s%s%s", text.substr(0, begin + 1).c_str(),
                 paint("36", text.substr(begin + 1, end - begin - 1)).c_str(), text.substr(end).c_str());
  std::fflush(options_.out);
  bar_columns_ = text.size();
  last_bar_ = std::chrono::steady_clock::now();
  erase_when_interrupted(fileno(options_.out));
}

EpochLines::EpochLines(Progress& progress, int64_t epochs) : progress_(progress), every_(1) {
  constexpr int64_t kMostLines = 40, kLeastLines = 20;  // kMostLines: of a run that gets all
  if (progress.has_bar() && epochs > kMostLines) every_ = (epochs + kLeastLines - 1) / kLeastLines;
}

void EpochLines::add(int64_t epoch, std::vector<LinePart> parts, bool is_best) {
  if (!progress_.has_bar()) return progress_.line(line_of_parts(parts, 0));
  constexpr double kLongSeconds = 300;  // longest interval between lines
  const bool is_first = printed_ == std::chrono::steady_clock::time_point();
  if (is_best) parts.push_back({"best"}), best_ = PendingLine{epoch, parts};
  last_ = PendingLine{epoch, std::move(parts)};
  if (is_first || epoch % every_ == 0 || time_since(printed_) >= kLongSeconds) print_pending();
}

void EpochLines::print_pending() {
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

}  // namespace halfstep::app
