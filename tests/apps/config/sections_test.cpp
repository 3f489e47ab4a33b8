// SPDX-License-Identifier: Apache-2.0
// The values that a run reads.
#include <doctest/doctest.h>

#include "apps/schema/interval.h"
#include "tests/apps/config/load.h"

using namespace halfstep;
using namespace halfstep::app;
using namespace halfstep::app::testing;

TEST_CASE("amp: forms and defaults") {
  TempDir dir;
  const auto file = write(dir / "c.json", kGood);
  const auto with = [&](std::vector<std::string> sets, bool no_amp = false) {
    return load_config(file, {.sets = std::move(sets), .no_amp = no_amp});
  };
  CHECK_FALSE(with({}).low.has_value());
  CHECK(with({"amp=true", "device=cpu"}).low == DType::bf16);
  CHECK(with({"amp.dtype=float16"}).low == DType::f16);
  CHECK(with({"amp=true", "amp.dtype=float16"}).low == DType::f16);
  CHECK_FALSE(with({"amp.enabled=false", "amp.dtype=float16"}).low.has_value());
  CHECK_FALSE(with({"amp.dtype=float16"}, true).low.has_value());
  CHECK(with({"amp.dtype=float16"}).scaler.enabled);
  CHECK_FALSE(with({"amp.dtype=bfloat16"}).scaler.enabled);
  CHECK(with({"amp=true"}).scaler.init_scale == 65536.0);
}

TEST_CASE("what a run reads are the document's values, and the schema's defaults") {
  TempDir dir;
  const auto file = write(dir / "c.json", kGood);
  const Config plain = load_config(file);
  CHECK(plain.name == "c");
  CHECK(plain.output_dir == "runs/c");
  CHECK(plain.seed == 0);
  CHECK(plain.data.loader.batch_size == 16);
  CHECK((plain.data.loader.shuffle && !plain.data.loader.drop_last && plain.data.loader.num_workers == 0 &&
         plain.data.loader.prefetch == 2));
  CHECK((plain.data.has("train") && !plain.data.has("val") && !plain.data.has("test")));
  CHECK((plain.train.epochs == 1 && !plain.train.max_steps && plain.train.accumulate_steps == 1));
  CHECK((!plain.train.clip_grad_norm && !plain.train.clip_grad_value && !plain.train.limit_batches));
  CHECK((plain.train.eval_every.unit == Interval::Unit::epochs && plain.logging.every.count == 50 &&
         plain.logging.sinks.size() == 1));
  CHECK((plain.checkpoint.keep_last == 2 && plain.checkpoint.keep_best == 0 && plain.checkpoint.monitor == "train/loss"));
  CHECK((plain.checkpoint.mode == "min" && !plain.checkpoint.resume));
  CHECK((!plain.performance.tf32 && !plain.performance.cuda_graph && !plain.performance.channels_last.has_value()));
  CHECK((!plain.bench.arms && !plain.bench.warmup && !plain.bench.repeats));
  CHECK(plain.model == plain.json["model"]);

  const Config c = load_config(file, {.sets = {"seed=7",
                                               "device=cpu",
                                               "train.epochs=null",
                                               "train.max_steps=9",
                                               "train.accumulate_steps=2",
                                               "train.clip_grad_norm=1.5",
                                               "train.clip_grad_value=3",
                                               "train.limit_batches=4",
                                               "train.eval_every=10 min",
                                               "data.loader.shuffle=false",
                                               "data.loader.drop_last=true",
                                               "data.loader.num_workers=3",
                                               "data.loader.prefetch=5",
                                               "data.val=Digits",
                                               "checkpoint.every=never",
                                               "checkpoint.keep_last=0",
                                               "checkpoint.resume=auto",
                                               "logging.level=warn",
                                               "logging.every=3",
                                               "logging.sinks=[]",
                                               "performance.tf32=true",
                                               "performance.cuda_graph=false",
                                               "performance.channels_last=true",
                                               "amp.report=true",
                                               "amp.scaler.growth_interval=12",
                                               "bench.arms=[\"tf32\"]",
                                               "bench.warmup=0",
                                               "bench.repeats=2"}});
  CHECK((c.seed == 7 && c.device == Device::cpu));
  CHECK((!c.train.epochs && c.train.max_steps == 9 && c.train.accumulate_steps == 2 && c.train.limit_batches == 4));
  CHECK((c.train.clip_grad_norm == 1.5 && c.train.clip_grad_value == 3.0));
  CHECK((c.train.eval_every.unit == Interval::Unit::seconds && c.train.eval_every.count == 600));
  CHECK((!c.data.loader.shuffle && c.data.loader.drop_last && c.data.loader.num_workers == 3 && c.data.loader.prefetch == 5));
  CHECK((c.data.has("val") && c.data.val["type"] == "Digits"));
  CHECK((c.checkpoint.every.unit == Interval::Unit::never && c.checkpoint.keep_last == 0 && c.checkpoint.keep_best == 1));
  CHECK((c.checkpoint.monitor == "val/accuracy" && c.checkpoint.mode == "max" && c.checkpoint.resume == "auto"));
  CHECK((c.logging.level == "warn" && c.logging.every.count == 3 && c.logging.sinks.empty()));
  CHECK((c.performance.tf32 && c.performance.cuda_graph == false && c.performance.channels_last == true));
  CHECK((c.amp.report && c.amp.scaler.growth.growth_interval == 12));
  CHECK((c.bench.arms == std::vector<std::string>{"tf32"} && c.bench.warmup == 0 && c.bench.repeats == 2));
}
