// SPDX-License-Identifier: Apache-2.0
// Data sets that are read in chunks, and stateful data sets with workers.
#include <doctest/doctest.h>

#include <set>

#include "tests/torch/support.h"

namespace data = torch::data;
namespace datasets = torch::data::datasets;
namespace samplers = torch::data::samplers;

namespace {

// Chunk i holds the numbers 10 i, 10 i + 1, ..., of which there are sizes[i].
struct Tens : datasets::ChunkDataReader<int> {
  std::vector<int> read_chunk(size_t i) override {
    if (sizes[i] < 0) throw std::runtime_error("chunk " + std::to_string(i) + " cannot be read");
    std::vector<int> out;
    for (int k = 0; k < sizes[i]; ++k) out.push_back(int(i) * 10 + k);
    return out;
  }
  size_t chunk_count() override { return sizes.size(); }
  void reset() override {}
  std::vector<int> sizes{4, 0, 7, 5};
};
using InOrder = datasets::ChunkDataset<Tens, samplers::SequentialSampler, samplers::SequentialSampler>;
using Shuffled = datasets::ChunkDataset<Tens>;

template <class Set>
std::vector<std::vector<int>> batches_of(Set& set) {
  set.reset();
  std::vector<std::vector<int>> out;
  while (auto batch = set.get_batch()) out.push_back(*batch);
  return out;
}
const std::vector<int> kAll{0, 1, 2, 3, 20, 21, 22, 23, 24, 25, 26, 30, 31, 32, 33, 34};

}  // namespace

TEST_CASE("chunks in order: batches go across chunks, the last one is short, and a second pass gives the same") {
  InOrder set(Tens(), samplers::SequentialSampler(0), samplers::SequentialSampler(0), datasets::ChunkDatasetOptions(1, 5));
  CHECK(has(message_of([&] { set.get_batch(); }), "reset() before calling get_batch()"));
  for (int pass = 0; pass < 2; ++pass)
    CHECK(batches_of(set) == std::vector<std::vector<int>>{{0, 1, 2, 3, 20}, {21, 22, 23, 24, 25}, {26, 30, 31, 32, 33}, {34}});
  CHECK(!set.size().has_value());
  CHECK(has(message_of([&] { set.get_batch(4); }),
            "requested batch size is 4, while the dataset is created with batch size equal to 5"));
}

TEST_CASE("any number of threads, a small cache and random orders give each example once") {
  for (const size_t threads : {1, 3}) {
    for (const size_t together : {1, 4}) {
      Shuffled set(Tens(), samplers::RandomSampler(0), samplers::RandomSampler(0),
                   datasets::ChunkDatasetOptions(threads, 3, 4, together));
      std::vector<int> all;
      for (const auto& batch : batches_of(set)) all.insert(all.end(), batch.begin(), batch.end());
      CHECK(all != kAll);
      std::sort(all.begin(), all.end());
      CHECK(all == kAll);
    }
  }
}

TEST_CASE(
    "preprocessing sees the examples that were read at once; an error of the reader is thrown once, and later chunks are read") {
  std::mutex mutex;
  std::multiset<size_t> sizes;
  Shuffled counted(Tens(), samplers::RandomSampler(0), samplers::RandomSampler(0), datasets::ChunkDatasetOptions(2, 4),
                   [&](std::vector<int>& examples) {
                     const std::lock_guard<std::mutex> lock(mutex);
                     sizes.insert(examples.size());
                   });
  batches_of(counted);
  CHECK(sizes == std::multiset<size_t>{0, 4, 5, 7});

  Tens broken;
  broken.sizes[1] = -1;
  InOrder set(broken, samplers::SequentialSampler(0), samplers::SequentialSampler(0), datasets::ChunkDatasetOptions(1, 4));
  set.reset();
  CHECK(*set.get_batch() == std::vector<int>{0, 1, 2, 3});
  CHECK(has(message_of([&] { set.get_batch(); }), "chunk 1 cannot be read"));
  CHECK(*set.get_batch() == std::vector<int>{20, 21, 22, 23});
}

TEST_CASE("a pass continues after save and load; a data set that is destroyed within a pass ends its threads") {
  InOrder set(Tens(), samplers::SequentialSampler(0), samplers::SequentialSampler(0), datasets::ChunkDatasetOptions(1, 4));
  set.chunk_sampler().reset(4);
  set.chunk_sampler().next(3);
  torch::serialize::OutputArchive out;
  set.save(out);
  const torch::TempFile file = torch::make_tempfile();
  out.save_to(file.name);
  torch::serialize::InputArchive in;
  in.load_from(file.name);
  InOrder again(Tens(), samplers::SequentialSampler(4), samplers::SequentialSampler(0), datasets::ChunkDatasetOptions(1, 4));
  again.load(in);
  CHECK(batches_of(again) == std::vector<std::vector<int>>{{30, 31, 32, 33}, {34}});
  CHECK(batches_of(again).size() == 4);  // from the first chunk
  Shuffled left(Tens(), samplers::RandomSampler(0), samplers::RandomSampler(0), datasets::ChunkDatasetOptions(2, 1, 1));
  left.reset();
  CHECK(left.get_batch().has_value());
}

TEST_CASE("options of chunks are checked") {
  using O = datasets::ChunkDatasetOptions;
  CHECK(has(message_of([] { O(0, 1); }), "Preloader count is 0"));
  CHECK(has(message_of([] { O(1, 0); }), "Batch size is 0"));
  CHECK(has(message_of([] { O(1, 1, 0); }), "Cache size is 0"));
  CHECK(has(message_of([] { O(1, 5, 4); }), "Cache size is less than batch size"));
  CHECK(has(message_of([] { O(1, 1, 1, 0); }), "cross_chunk_shuffle_count needs to be greater than 0"));
}

TEST_CASE("a loader of chunks with workers gives each example once, and so again") {
  for (const size_t workers : {0, 1, 3}) {
    auto set = datasets::make_shared_dataset<Shuffled>(Tens(), samplers::RandomSampler(0), samplers::RandomSampler(0),
                                                       datasets::ChunkDatasetOptions(2, 3));
    auto loader = data::make_data_loader(set, data::DataLoaderOptions(3).workers(workers));
    for (int pass = 0; pass < 2; ++pass) {
      std::vector<int> all;
      for (const std::vector<int>& batch : *loader) all.insert(all.end(), batch.begin(), batch.end());
      std::sort(all.begin(), all.end());
      CHECK(all == kAll);
    }
  }
}
