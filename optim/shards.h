// SPDX-License-Identifier: Apache-2.0
// Optimizer states that ranks share (ZeRO, stage 1; Rajbhandari et al. 2020): which elements of the parameters each rank updates,
// and how all ranks get the updated ones. Optimizer::shard (optim/optimizer.h) uses it.
//
// The parameters of one dtype and device form a line, in the order of their memory, each at a multiple of 16 elements; every rank
// owns an equal range of that line. A parameter at a bound belongs to several ranks. For optimizers that need whole tensors,
// bounds lie between parameters only, nearest to equal ranges.
#pragma once

#include <cstdint>
#include <vector>

#include "framework/comm/process_group.h"

namespace halfstep {

struct ShardOptions {
  double stage_mb = 25;  // memory through which the ranks exchange updated parameters
};

class Shards {
 public:
  struct ElementRange {
    int64_t begin = 0, end = 0;
    int64_t size() const { return end - begin; }
  };

  // `group` must outlive it. Throws ValueError if the stage is not positive.
  Shards(ProcessGroup& group, bool whole_tensors, const ShardOptions& options);

  // Appends parameters.
  void add(const std::vector<Tensor>& parameters);
  // Returns the elements of a parameter that belong to a rank, in the order of its memory.
  ElementRange range_of(size_t param, int rank) const;
  ElementRange own_range(size_t param) const { return range_of(param, group_.rank()); }
  // Returns whether this rank updates any of it. A parameter without elements belongs to all ranks.
  bool has(size_t param) const { return places_[param].numel == 0 || own_range(param).size() > 0; }
  // Returns this rank's elements of `t`, which has the parameter's layout: t itself if they are all; else [n], possibly [0]. It
  // shares the memory, without autograd.
  Tensor part(size_t param, const Tensor& t) const { return part(param, t, group_.rank()); }
  Tensor part(size_t param, const Tensor& t, int rank) const;
  // Throws ValueError if the parameter's memory format has changed: ranges follow the memory.
  void check_format(size_t param, const Tensor& parameter) const;

  // Sends the updated elements of all parameters to all ranks, and casts those 16-bit copies again that are declared current. All
  // ranks call it. Throws PeerLostError.
  void gather(const std::vector<Tensor>& parameters);

  ProcessGroup& group() const { return group_; }

 private:
  struct ParameterPlace {
    size_t line;
    int64_t begin, numel;  // in the line
    MemoryFormat format;
  };
  struct ParameterLine {
    DType dtype;
    Device device;
    int64_t length = 0;
    std::vector<size_t> params = {};   // sorted by begin
    std::vector<int64_t> bounds = {};  // of the ranks' ranges: size() + 1
    Tensor sent = {}, received = {};   // buffers
  };
  void set_bounds(ParameterLine& line) const;
  void gather(ParameterLine& line, const std::vector<Tensor>& parameters);

  ProcessGroup& group_;
  bool whole_tensors_;
  double stage_bytes_;
  std::vector<ParameterPlace> places_;  // of each parameter
  std::vector<ParameterLine> lines_;
};

}  // namespace halfstep
