// SPDX-License-Identifier: Apache-2.0
#include "apps/run/progress.h"

#include <sys/ioctl.h>
#include <unistd.h>

#include <cmath>
#include <cstdlib>
#include <string_view>

namespace halfstep::app {
namespace {

constexpr double kPlainEverySeconds = 5;  // lines of a log file

template <class... Args>
std::string formatted(const char* format, Args... args) {
  char buffer[256];
  std::snprintf(buffer, sizeof buffer, format, args...);
  return buffer;
}

// As much as fits into a line of the terminal: of one that wraps only the last part could be overdrawn.
std::string fitting(const std::string& text, int terminal) {
  struct winsize size = {};
  if (ioctl(terminal, TIOCGWINSZ, &size) != 0 || size.ws_col == 0 || text.size() < size.ws_col) return text;
  const size_t room = size.ws_col - 1u;
  return room > 3 ? text.substr(0, room - 3) + "..." : text.substr(0, room);
}

}  // namespace

Progress::Progress(const ProgressOptions& options) : options_(options) {
  const char* term = std::getenv("TERM");
  const bool dumb = term && std::string_view(term) == "dumb";  // it knows no escape sequences
  terminal_ = !options.plain && !dumb && isatty(fileno(options.out)) != 0;
  const char* no_color = std::getenv("NO_COLOR");
  color_ = terminal_ && options.color && !(no_color && *no_color);
}

Progress::~Progress() {
  if (drawn_) std::fputc('\n', options_.out);
}

void Progress::clear() {
  if (drawn_) std::fputs("\r\033[K", options_.out);
  drawn_ = false;
}

std::string Progress::paint(const char* code, const std::string& text) const {
  return color_ ? "\033[" + std::string(code) + "m" + text + "\033[0m" : text;
}

void Progress::line(const std::string& text) {
  if (options_.quiet || options_.silent) return;
  clear();
  std::fprintf(options_.out, "%s\n", text.c_str());
  std::fflush(options_.out);
}

void Progress::note(const std::string& text) { line(paint("36", "note: ") + text); }

void Progress::warn(const std::string& text) {
  if (options_.silent) return;
  clear();
  std::fprintf(stderr, "%s%s\n", paint("33", "warning: ").c_str(), text.c_str());
}

void Progress::update(const ProgressView& v) {
  if (options_.quiet || options_.silent) return;
  const auto now = std::chrono::steady_clock::now();
  if (!terminal_) {
    if (std::chrono::duration<double>(now - last_plain_).count() < kPlainEverySeconds) return;
    last_plain_ = now;
  }
  std::string text;
  if (v.epochs > 0) text += formatted("epoch %lld/%lld  ", (long long)v.epoch, (long long)v.epochs);
  text += formatted("step %lld/%lld  loss %s  lr %s  %s samples/s", (long long)v.step, (long long)v.steps,
                    number_text(v.loss, 4).c_str(), number_text(v.lr, 3).c_str(), count_text(v.samples_per_second).c_str());
  if (v.scale) text += formatted("  scale %s  skipped %lld", number_text(*v.scale, 6).c_str(), (long long)v.skipped);
  if (v.grad_norm) text += "  grad norm " + number_text(*v.grad_norm, 3);
  text += formatted("  data wait %.0f %%", 100 * v.loader_wait);
  if (v.rank_wait) text += formatted("  rank wait %.0f %%", 100 * *v.rank_wait);
  text += "  peak " + bytes_text(v.peak_bytes);
  text += "  eta " + duration_text(v.seconds_left);
  if (!terminal_) return line(text);
  std::fprintf(options_.out, "\r\033[K%s", paint("2", fitting(text, fileno(options_.out))).c_str());
  std::fflush(options_.out);
  drawn_ = true;
}

std::string duration_text(double seconds) {
  if (!(std::abs(seconds) < 1e15)) return "?";  // no number, infinity, or what no long holds
  if (seconds < 60) return formatted(seconds < 10 ? "%.1f s" : "%.0f s", seconds);
  const long s = long(seconds + 0.5);
  if (s < 3600) return formatted("%ld:%02ld", s / 60, s % 60);
  return formatted("%ld:%02ld:%02ld", s / 3600, s / 60 % 60, s % 60);
}

std::string bytes_text(double bytes) {
  const char* units[] = {"bytes", "kB", "MB", "GB", "TB"};
  int u = 0;
  while (bytes >= 1000 && u < 4) bytes /= 1000, ++u;
  return formatted(u == 0 ? "%.0f %s" : "%.1f %s", bytes, units[u]);
}

std::string count_text(double n) {
  if (n < 1000) return formatted("%.0f", n);
  return n < 1e6 ? formatted("%.1fk", n / 1e3) : formatted("%.2fM", n / 1e6);
}

std::string number_text(double v, int digits) { return std::isnan(v) ? "nan" : formatted("%.*g", digits, v); }

}  // namespace halfstep::app
