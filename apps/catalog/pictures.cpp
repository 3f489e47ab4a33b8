// SPDX-License-Identifier: Apache-2.0
#include "apps/catalog/pictures.h"

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>

#include "apps/catalog/datasets.h"
#include "framework/data/formats/image_file.h"
#include "framework/data/sets/image_folder.h"
#include "framework/data/tokens/unicode.h"

namespace halfstep::app {
namespace {

namespace fs = std::filesystem;
constexpr size_t kShownFaults = 10;
constexpr int64_t kPicturesPerRemark = 10;  // fewer of a kind may be blank or dark by nature
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

// Returns "./a.png with values up to 120 of 65535".
std::string dark_text(const fs::path& picture) {
  const std::vector<uint16_t> values = read_picture(picture, 3).fine;
  return joined(replace_not_utf8(picture.string()), " with values up to ",
                values.empty() ? 0 : *std::max_element(values.begin(), values.end()), " of 65535");
}

// Adds pictures whose content does not reach the model as `train`, a split of the config, reads them.
void add_losses(PictureReport& out, const PictureCheck& found, const std::vector<fs::path>& pictures, const Json& train) {
  const Json background = train.is_object() ? train.value("background", Json("none")) : Json();
  for (const PictureCheck::Hidden& h : found.hidden) {
    if ((background == "black" && h.on_black) || (background == "white" && h.on_white)) continue;
    ++out.hidden, out.shown_on_white += h.on_white;
    if (out.hidden_picture.empty()) out.hidden_picture = replace_not_utf8(pictures[h.index].string());
  }
  const Json transforms = train.is_object() ? train.value("transforms", Json::array()) : Json::array();
  const bool normalizes = std::any_of(transforms.begin(), transforms.end(), [](const Json& t) {
    if (!t.is_object() || t.value("type", Json()) != "Normalize") return false;
    const Json std = t.value("std", Json());
    const Json& first = std.is_array() && !std.empty() ? std[0] : std;
    constexpr double kScales = 0.1;  // a deviation that is made for dark pictures
    return t.value("from", Json()) == "data" || (first.is_number() && first.get<double>() < kScales);
  });
  const bool are_all = std::ssize(found.dark) == found.checked;
  if (found.dark.empty() || (are_all && normalizes)) return;
  out.dark = std::ssize(found.dark), out.dark_picture = dark_text(pictures[found.dark[0]]);
}

}  // namespace

void PictureReport::add(const PictureReport& more) {
  pictures += more.pictures, checked += more.checked, bad += more.bad, flawed += more.flawed;
  faults.insert(faults.end(), more.faults.begin(), more.faults.end());
  std::sort(faults.begin(), faults.end());
  if (faults.size() > kShownFaults) faults.resize(kShownFaults);
  hidden += more.hidden, shown_on_white += more.shown_on_white, dark += more.dark;
  if (flaw.empty()) flaw = more.flaw;
  if (hidden_picture.empty()) hidden_picture = more.hidden_picture;
  if (dark_picture.empty()) dark_picture = more.dark_picture;
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

std::vector<std::string> PictureReport::warnings() const {
  std::vector<std::string> out;
  if (flawed > 0)
    out.push_back(joined(flawed, flawed == 1 ? " JPEG lacks its end or has" : " JPEGs lack their end or have",
                         " bytes that belong to nothing, and no pixel is missing: ", flawed == 1 ? "it is" : "they are",
                         " used, such as ", flaw));
  if (kPicturesPerRemark * hidden >= checked && hidden > 0)
    out.push_back(joined(hidden, " of ", checked, " pictures have one color all over, and their shapes in their transparency, ",
                         "which is lost, such as ", hidden_picture, ": \"background\": \"",
                         2 * shown_on_white >= hidden ? "white" : "black", "\" beside \"path\" shows them"));
  if (kPicturesPerRemark * dark >= checked && dark > 0)
    out.push_back(joined(dark, " of ", checked, " pictures have 16 bits and use less than 1/16 of their range, which becomes 0 to ",
                         "1, such as ", dark_picture,
                         dark < checked ? ": beside the others they are nearly black; scale them in their files"
                                        : R"(: {"type": "Normalize", "from": "data"} in "transforms" scales them)"));
  return out;
}

std::string PictureReport::opened(double seconds) const {
  if (checked == pictures) return joined("all ", pictures, " pictures were opened");
  return joined(checked, " of ", pictures, " pictures were opened within ", seconds, " s (halfstep train opens all)");
}

Json to_json(const PictureReport& r) {
  return {{"pictures", r.pictures},
          {"checked", r.checked},
          {"bad", r.bad},
          {"flawed", r.flawed},
          {"faults", r.faults},
          {"flaw", r.flaw},
          {"hidden", {r.hidden, r.shown_on_white, r.hidden_picture}},
          {"dark", {r.dark, r.dark_picture}}};
}

PictureReport read_report(const Json& j) {
  const Json &hidden = j["hidden"], &dark = j["dark"];
  return {j["pictures"], j["checked"], j["bad"], j["flawed"], j["faults"].get<std::vector<std::string>>(), j["flaw"], hidden[0],
          hidden[1],     hidden[2],    dark[0],  dark[1]};
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
  add_losses(out, found, own, config["data"]["train"]);
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
