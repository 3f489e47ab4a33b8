// SPDX-License-Identifier: Apache-2.0
#include "apps/catalog/pictures.h"

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>

#include "apps/catalog/datasets.h"
#include "framework/data/sets/image_folder.h"
#include "framework/data/tokens/unicode.h"

namespace halfstep::app {
namespace {

namespace fs = std::filesystem;
constexpr size_t kShownFaults = 10;
constexpr double kQuickSeconds = 0.5;  // longest check that prints no line

double seconds_now() { return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count(); }

std::vector<fs::path> pictures_of(const Json& config) {
  std::vector<fs::path> out;
  for (const std::string split : {"train", "val", "test"}) {
    if (config["data"][split].is_null() || config["data"][split]["type"] != "ImageFolder") continue;
    Json raw = config;
    raw["data"][split]["transforms"] = Json::array();  // may need statistics of all samples
    try {
      const std::vector<fs::path> more = picture_files(*build_dataset(raw, split));
      out.insert(out.end(), more.begin(), more.end());
    } catch (const DataError&) {}  // such as a missing folder, which is reported when the data is read
  }
  std::sort(out.begin(), out.end());
  out.erase(std::unique(out.begin(), out.end()), out.end());
  return out;
}

}  // namespace

void PictureReport::add(const PictureReport& more) {
  pictures += more.pictures, checked += more.checked, bad += more.bad, flawed += more.flawed;
  faults.insert(faults.end(), more.faults.begin(), more.faults.end());
  std::sort(faults.begin(), faults.end());
  if (faults.size() > kShownFaults) faults.resize(kShownFaults);
  if (flaw.empty()) flaw = more.flaw;
}

std::string PictureReport::error() const {
  if (bad == 0) return "";
  std::string out =
      joined("[ImageFolder] all pictures must be readable, but ", bad, " of ", checked,
             checked < pictures ? joined(" that were opened, of ", pictures, ',') : "", bad == 1 ? " is not:" : " are not:");
  for (const std::string& fault : faults) out += "\n  " + fault;
  if (bad > int64_t(faults.size())) out += joined("\n  and ", bad - int64_t(faults.size()), " more");
  return out + "\nhelp: mend or remove them; with \"on_error\": \"skip\" beside \"path\" they are left out";
}

std::string PictureReport::warning() const {
  if (flawed == 0) return "";
  return joined(flawed, flawed == 1 ? " JPEG lacks its end or has" : " JPEGs lack their end or have",
                " bytes that belong to nothing, and no pixel is missing: ", flawed == 1 ? "it is" : "they are", " used, such as ",
                flaw);
}

std::string PictureReport::opened(double seconds) const {
  if (checked == pictures) return joined("all ", pictures, " pictures were opened");
  return joined(checked, " of ", pictures, " pictures were opened within ", seconds, " s (halfstep train opens all)");
}

Json to_json(const PictureReport& r) {
  return {{"pictures", r.pictures}, {"checked", r.checked}, {"bad", r.bad},
          {"flawed", r.flawed},     {"faults", r.faults},   {"flaw", r.flaw}};
}

PictureReport read_report(const Json& j) {
  return {j["pictures"], j["checked"], j["bad"], j["flawed"], j["faults"].get<std::vector<std::string>>(), j["flaw"]};
}

PictureReport examine_pictures(const Json& config, const ExamineOptions& o) {
  const std::vector<fs::path> pictures = pictures_of(config);
  std::vector<fs::path> own;  // this rank's
  for (size_t i = size_t(o.rank); i < pictures.size(); i += size_t(o.ranks)) own.push_back(pictures[i]);
  PicturesLine line("opening pictures", o.draws && o.rank == 0);
  const PictureCheck found = check_pictures(own, {o.seconds, [&](int64_t done, int64_t total) {
                                                    line.show(done * o.ranks, total * o.ranks);
                                                    return !o.stopped || !o.stopped();
                                                  }});
  PictureReport out{.pictures = int64_t(own.size()),
                    .checked = found.checked,
                    .bad = std::ssize(found.faults),
                    .flawed = std::ssize(found.flaws)};
  for (const auto& fault : found.faults) {
    if (out.faults.size() == kShownFaults) break;
    constexpr std::string_view kHelp = "\nhelp: ", kTag = "[image] ";
    std::string text = replace_not_utf8(fault.text);
    if (const size_t help = text.find(kHelp); help != std::string::npos) text = text.replace(help, kHelp.size(), " (") + ")";
    out.faults.push_back(text.starts_with(kTag) ? text.substr(kTag.size()) : text);
  }
  if (!found.flaws.empty()) out.flaw = replace_not_utf8(own[found.flaws[0].index].string());
  return out;
}

PicturesLine::PicturesLine(const char* what, bool draws)
    : what_(what), draws_(draws && isatty(STDERR_FILENO) != 0), begun_(seconds_now()) {}

PicturesLine::~PicturesLine() {
  if (drawn_) std::fputs("\r\033[K", stderr);
}

void PicturesLine::show(int64_t done, int64_t total) {
  if (!draws_ || seconds_now() - begun_ < kQuickSeconds) return;
  std::fprintf(stderr, "\r\033[K%s: %lld of %lld", what_, (long long)done, (long long)total);
  std::fflush(stderr);
  drawn_ = true;
}

}  // namespace halfstep::app
