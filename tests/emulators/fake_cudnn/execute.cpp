// SPDX-License-Identifier: Apache-2.0
// Plans are run here: the caller's arguments are checked and copied, and the work goes to the stream.
#include <algorithm>
#include <bit>

#include "tests/emulators/fake_cudnn/fake_cudnn.h"
#include "tests/emulators/source/hooks.h"

namespace emu::dnn {
namespace {

// All that an execution needs, whatever becomes of the descriptors.
struct Execution {
  std::shared_ptr<const Plan> plan;
  std::map<int64_t, char*> at;                    // by uid, on the device
  std::map<int64_t, std::vector<char>> by_value;  // by uid
  char* workspace = nullptr;
  bool slow = false;
  bool in_graph = false;
};

uint64_t runs = 0;

const char* source(const Execution& e, const Tensor& t) { return t.by_value ? e.by_value.at(t.uid).data() : e.at.at(t.uid); }
Values gathered(const Execution& e, const Tensor& t) {
  Values values;
  values.reserve(size_t(t.elements()));
  const char* const from = source(e, t);
  for_each_offset(t.dims, t.strides, [&](int64_t o) { values.push_back(load(t.type, from, o)); });
  return values;
}
int64_t integer(const Execution& e, const Tensor& t) {
  int64_t value = 0;
  std::memcpy(&value, source(e, t), size_t(size_of(t.type)));  // little endian, not negative where narrower
  return value;
}

std::vector<Range> ranges_of(const Execution& e) {
  std::vector<Range> ranges;
  std::map<int64_t, bool> written;
  for (const Operation& op : e.plan->graph->operations) written[op.out.uid] = true;
  for (const auto& [uid, t] : e.plan->graph->tensors) {
    if (!t.is_virtual && !t.by_value) ranges.push_back({t.text(), e.at.at(uid), t, written[uid]});
  }
  if (const int64_t bytes = e.plan->engine.workspace) {
    const Tensor workspace{.type = CUDNN_DATA_INT8, .dims = {bytes}, .strides = {1}};
    ranges.push_back({"the workspace", e.workspace, workspace, true});
  }
  return ranges;
}

void run(const Execution& e) {
  if (e.in_graph && e.plan->destroyed) fail("cuDNN: a graph runs work of a plan that was destroyed");
  if (e.slow) spend(3000);
  check_ranges(ranges_of(e));
  const OpenDeviceMemory open;
  if (const int64_t bytes = e.plan->engine.workspace) std::memset(e.workspace, 0xFF, size_t(bytes));
  const uint64_t number = ++runs;
  std::map<int64_t, Values> values;
  for (const Operation& op : e.plan->graph->operations) {
    Values out, before;
    if (op.kind == Kind::rng) {
      out = bernoulli(op, op.in.empty() ? op.seed : integer(e, op.in[0]), op.in.empty() ? 0 : integer(e, op.in[1]));
    } else {
      std::vector<const Values*> in;
      for (const Tensor& t : op.in) {
        if (!values.contains(t.uid)) values[t.uid] = gathered(e, t);
        in.push_back(&values[t.uid]);
      }
      if (op.accumulates || (op.family() <= kBackwardFilter && op.beta != 0)) before = gathered(e, op.out);
      out = compute(op, in, before, e.plan->engine.arithmetic, number);
    }
    if (!op.out.is_virtual) {
      size_t i = 0;
      for_each_offset(op.out.dims, op.out.strides, [&](int64_t o) { store(op.out.type, e.at.at(op.out.uid), o, out[i++]); });
    }
    values[op.out.uid] = std::move(out);
  }
}

bool apart(const Range& a, const Range& b) { return a.at + a.tensor.bytes() <= b.at || b.at + b.tensor.bytes() <= a.at; }
// The bytes of one are marked, those of the other looked up: slices of one tensor lie between each other.
bool share_an_element(const Range& a, const Range& b) {
  const char* const begin = std::min(a.at, b.at);
  std::vector<bool> marked(size_t(std::max(a.at + a.tensor.bytes(), b.at + b.tensor.bytes()) - begin));
  bool shared = false;
  for (const Range* r : {&a, &b}) {
    const int64_t size = size_of(r->tensor.type);
    for_each_offset(r->tensor.dims, r->tensor.strides, [&](int64_t o) {
      for (int64_t i = 0; i < size; ++i) {
        const size_t at = size_t(r->at + o * size + i - begin);
        if (r == &a)
          marked[at] = true;
        else
          shared = shared || marked[at];
      }
    });
  }
  return shared;
}

}  // namespace

bool is_device_memory(const void* p) {
  cudaPointerAttributes attributes;
  cudaPointerGetAttributes(&attributes, p);
  return attributes.type == cudaMemoryTypeDevice;
}

void check_aligned(const char* what, const void* p, int64_t alignment) {
  if (reinterpret_cast<uintptr_t>(p) % uint64_t(alignment))
    misuse(CUDNN_STATUS_BAD_PARAM_MISALIGNED_POINTER, "%s is at %p, but an alignment of %ld was promised", what, p,
           long(alignment));
}

void check_ranges(const std::vector<Range>& ranges) {
  for (const Range& r : ranges) check_device_memory(("cuDNN: " + r.what).c_str(), r.at, r.tensor.bytes());
  for (size_t i = 0; i < ranges.size(); ++i) {
    for (size_t j = 0; j < i; ++j) {
      const Range &a = ranges[i], &b = ranges[j];
      if ((a.written || b.written) && !apart(a, b) && share_an_element(a, b)) {
        const Range& written = a.written ? a : b;
        fail("cuDNN: %s, which is written, overlaps %s", written.what.c_str(), (a.written ? b : a).what.c_str());
      }
    }
  }
}

void execute(cudaStream_t stream, const std::shared_ptr<const Plan>& plan, const Descriptor& pack) {
  Execution e;
  e.plan = plan;
  const auto uids = pack.all<int64_t>(CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS);
  const auto pointers = pack.all<void*>(CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS);
  e.workspace = static_cast<char*>(pack.one<void*>(CUDNN_ATTR_VARIANT_PACK_WORKSPACE, nullptr));
  for (size_t i = 0; i < uids.size(); ++i) {
    const auto it = plan->graph->tensors.find(uids[i]);
    if (it == plan->graph->tensors.end())
      misuse(CUDNN_STATUS_BAD_PARAM, "a pointer for uid %ld, which the graph does not have", long(uids[i]));
    const Tensor& t = it->second;
    const std::string text = t.text();
    if (t.is_virtual) misuse(CUDNN_STATUS_BAD_PARAM, "a pointer for the virtual %s", text.c_str());
    if (!pointers[i]) misuse(CUDNN_STATUS_BAD_PARAM_NULL_POINTER, "a null pointer for %s", text.c_str());
    if (t.by_value) {
      if (is_device_memory(pointers[i]))
        misuse(CUDNN_STATUS_BAD_PARAM, "%s is given by value, but its pointer is the device's", text.c_str());
      const char* const from = static_cast<const char*>(pointers[i]);
      e.by_value[uids[i]].assign(from, from + t.bytes());
    } else {
      check_aligned(text.c_str(), pointers[i], t.alignment);
      e.at[uids[i]] = static_cast<char*>(pointers[i]);
    }
  }
  for (const auto& [uid, t] : plan->graph->tensors) {
    if (!t.is_virtual && !e.at.contains(uid) && !e.by_value.contains(uid))
      misuse(CUDNN_STATUS_BAD_PARAM, "no pointer for %s", t.text().c_str());
  }
  if (plan->engine.workspace && !e.workspace)
    misuse(CUDNN_STATUS_BAD_PARAM_NULL_POINTER, "no workspace, but the plan needs %ld bytes", long(plan->engine.workspace));
  if (plan->engine.workspace) check_aligned("the workspace", e.workspace, 256);
  if (plan->engine.index < int64_t(setting("HALFSTEP_FAKE_DNN_FAIL")))
    refuse(CUDNN_STATUS_NOT_SUPPORTED, "as HALFSTEP_FAKE_DNN_FAIL says");
  e.slow = setting("HALFSTEP_FAKE_DNN_SLOW") >> plan->engine.index & 1;
  e.in_graph = stream_of(stream).capture != nullptr;
  const auto work = [e = std::make_shared<const Execution>(std::move(e))] {
    if (counts_only) return;
    try {
      run(*e);
    } catch (const Failure& failure) { fail("cuDNN: %s", failure.text.c_str()); }
  };
  if (submit(stream, {.work = work, .what = "cudnn"}) != cudaSuccess)
    refuse(CUDNN_STATUS_EXECUTION_FAILED_CUDART, "the stream did not take the work");
}

}  // namespace emu::dnn
