// SPDX-License-Identifier: Apache-2.0
#include "framework/base/draw_log.h"

#include <algorithm>

#include "framework/base/check.h"

namespace halfstep {
namespace {

thread_local constinit DrawLog* written = nullptr;              // the innermost
thread_local constinit DrawLog::Repeating* repeated = nullptr;  // the innermost

}  // namespace

// A generator that draws in place of another one.
struct DrawLog::Repeating::StandIn {
  const Entry* entry;
  std::unique_ptr<Generator> generator = std::make_unique<Generator>();
  uint64_t draws = 0;
  size_t next_start = 0;
};

DrawLog::Writing::Writing(DrawLog& into) : outer_(written) {
  into.first_own_ = Generator::made();
  into.outer_ = written;
  written = &into;
}
DrawLog::Writing::~Writing() { written = outer_; }

DrawLog::Repeating::Repeating(const DrawLog& log) : outer_(repeated) {
  for (const Entry& entry : log.entries_) {
    const bool is_gone = entry.generator.expired();
    check<ValueError>(!is_gone || entry.is_own, "checkpoint",
                      "a generator is gone from which the forward drew, so backward cannot draw the same numbers again",
                      Help{"let the generator live until backward"});
    if (is_gone) continue;
    StandIn& made = stand_ins_.emplace_back(StandIn{&entry});
    made.generator->set_state(entry.starts.front().state);
  }
  repeated = this;
}
DrawLog::Repeating::~Repeating() { repeated = outer_; }

DrawLog::Repeating::StandIn* DrawLog::stand_in_of(const Generator& generator) {
  for (Repeating* r = repeated; r; r = r->outer_)
    for (auto& stand_in : r->stand_ins_)
      if (stand_in.entry->number == generator.number_) return &stand_in;
  return nullptr;
}

DrawLog::Entry& DrawLog::entry_of(Generator& generator) {
  for (Entry& entry : entries_)
    if (entry.number == generator.number_) return entry;
  if (!generator.alive_) generator.alive_ = std::shared_ptr<Generator>(&generator, [](Generator*) {});
  return entries_.emplace_back(
      Entry{.number = generator.number_, .generator = generator.alive_, .is_own = generator.number_ >= first_own_});
}

void DrawLog::begin(Generator& generator, const Generator& from) {
  Entry& entry = entry_of(generator);
  const Generator::State now{from.seed_, from.twister_ ? from.twister_->count() : from.offset_};
  const bool was_twister = !entry.starts.empty() && entry.starts.back().state.twister != nullptr;
  const bool goes_on = !entry.starts.empty() && now == entry.next && was_twister == (from.twister_ != nullptr);
  if (!goes_on) entry.starts.push_back({entry.draws, from.locked_state()});
}

void DrawLog::end(Generator& generator, const Generator& from, bool draws) {
  Entry& entry = entry_of(generator);
  entry.draws += draws;
  entry.next = {from.seed_, from.twister_ ? from.twister_->count() : from.offset_};
}

DrawLog::Use::Use(Generator& generator, bool draws)
    : generator_(generator),
      stand_in_(repeated ? stand_in_of(generator) : nullptr),
      from_(stand_in_ ? *stand_in_->generator : generator),
      lock_(Generator::mutex()),
      draws_(draws) {
  if (stand_in_) {
    const std::vector<Start>& starts = stand_in_->entry->starts;
    for (size_t& i = stand_in_->next_start; i < starts.size() && starts[i].draws <= stand_in_->draws && draws; ++i)
      from_.put(starts[i].state);
    stand_in_->draws += draws;
  }
  for (DrawLog* log = written; log; log = log->outer_) log->begin(generator, from_);
}

DrawLog::Use::~Use() {
  for (DrawLog* log = written; log; log = log->outer_) log->end(generator_, from_, draws_);
}

}  // namespace halfstep
