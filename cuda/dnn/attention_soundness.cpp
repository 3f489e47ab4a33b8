// SPDX-License-Identifier: Apache-2.0
// Decides which attention the library may compute, by a table of versions: it also plans and runs graphs whose results are wrong.
// Needs no GPU: the test cudnn_plans compares the table with what several versions of the library accept.
//
// Sources: NVIDIA's cudnn-frontend 1.32, which refuses such calls or works around them (node/sdpa_support_surface.h, forward;
// node/scaled_dot_product_flash_attention.h, CompositeSDPABackwardNode::pre_validate_node, backward), and reports of defects.
#include <limits>

#include "cuda/dnn/attention.h"

namespace halfstep::cuda::dnn {
namespace {

constexpr size_t kAny = std::numeric_limits<size_t>::max();
constexpr int kAnyGpu = std::numeric_limits<int>::max();
constexpr const char* kInstallLater = "install a later cuDNN (pip install -U nvidia-cudnn-cu13), or name one in HALFSTEP_CUDNN";

bool always(const AttentionCase&) { return true; }
bool is_wide(const AttentionCase& c) { return c.width > 128; }
bool leaves_64(const AttentionCase& c) { return c.keys % 128 == 64; }

// first and last version, lowest and highest capability, backward only, calls concerned, text, remedy
constexpr AttentionDefect kDefects[] = {
    // One query or one key crashes, or gives NaN (cudnn-frontend 1071, 1072; release notes of 9.18.1, known issues).
    {0, kAny, 0, kAnyGpu, false, [](const AttentionCase& c) { return c.queries < 2 || c.keys < 2; },
     "is not sound for one query or one key", nullptr},
    // cudnn-frontend: "not supported on cuDNN 9.10.0/9.10.1 due to known bugs", in both directions.
    {91000, 91001, 0, kAnyGpu, false, always, "has known defects in attention (9.10.0 and 9.10.1)", kInstallLater},
    // See padded_keys(). What dropout leaves out depends on the number of keys, which forward does not pad.
    {0, kAny, 90, kAnyGpu, true, [](const AttentionCase& c) { return leaves_64(c) && c.drops; },
     "can give NaN where the number of keys is 64 more than a multiple of 128 and there is dropout",
     "pad the keys to a multiple of 128, or leave dropout out of attention"},
    // cudnn-frontend: the deterministic variant on Blackwell.
    {0, 91799, 100, 109, true, always, "has no gradient of a fixed order of sums on this GPU (before 9.18.0)", kInstallLater},
    {0, kAny, 100, 109, true, [](const AttentionCase& c) { return c.drops; },
     "has no gradient of a fixed order of sums with dropout on this GPU", "leave dropout out of attention"},
    // cudnn-frontend refuses heads of more than 128 here.
    {0, 90900, 80, 89, false, is_wide, "does not take heads of more than 128 on this GPU (up to 9.9.0)", kInstallLater},
    {0, 90899, 100, 109, false, is_wide, "does not take heads of more than 128 on this GPU (before 9.9.0)", kInstallLater},
    {0, kAny, 80, 89, true, is_wide, "has no gradient for heads of more than 128 on this GPU", "use heads of at most 128"},
    {0, 92299, 100, 109, true, is_wide, "has no gradient for heads of more than 128 on this GPU (before 9.23.0)", kInstallLater},
    {0, kAny, 100, 109, true, [](const AttentionCase& c) { return is_wide(c) && c.width != 256; },
     "has no gradient for heads of more than 128, but for 256, on this GPU", "use heads of at most 128, or of 256"},
    {0, kAny, 110, kAnyGpu, true, is_wide, "has no gradient for heads of more than 128 on this GPU", "use heads of at most 128"},
};

}  // namespace

const AttentionDefect* defect_of(const AttentionCase& c) {
  for (const AttentionDefect& d : kDefects) {
    if (c.version < d.first || c.version > d.last || c.capability < d.lowest || c.capability > d.highest) continue;
    if ((c.backward || !d.backward_only) && d.concerns(c)) return &d;
  }
  return nullptr;
}

// Adds 64 keys to 64 more than a multiple of 128: without them the gradient of queries is NaN if a row's logarithm is below -88
// (pytorch 196678, trl 7181, cudnn-frontend 628). Newer versions are reported to be free of it, which no release note confirms.
int64_t padded_keys(const AttentionCase& c) {
  return c.backward && c.capability >= 90 && !c.drops && leaves_64(c) ? c.keys + 64 : c.keys;
}

// Masks as cudnn-frontend does on every GPU: up to 9.15.0 the gradient is NaN if the number of keys is not a multiple of 128
// (cudnn-frontend, issue 160); before 9.10.0 it masks the scores once more.
PaddingMask padding_mask(const AttentionCase& c) {
  const bool reads_beyond = c.version <= 91500 && c.keys % 128 != 0;
  if (!c.backward || (!reads_beyond && padded_keys(c) == c.keys)) return PaddingMask::none;
  return c.version < 91000 ? PaddingMask::twice : PaddingMask::once;
}

}  // namespace halfstep::cuda::dnn
