// SPDX-License-Identifier: Apache-2.0
// Golden samples: an exported model contains three inputs with the outputs that it had when it was written, and its user computes
// them again. This detects, before the first answer, a wrong preparation, wrong weights, and deviations of another machine or
// runtime.
#pragma once

#include <functional>
#include <string>

#include "apps/schema/json.h"
#include "framework/data/transforms/data_form.h"
#include "framework/tensor/tensor.h"

namespace halfstep::app {

class Predictor;

// Golden samples, and facts about their computation.
struct Proof {
  Tensor input;     // [3, ...], before the preparation, as for Predictor's operator()
  Tensor output;    // [3, ...] as it returns them; if more than 4096 numbers for each sample, every k-th: [3, n]
  Json computed;    // dtypes in which its ops compute: {"linear": ["bfloat16"]}
  Json written_by;  // version, commit, compiler, device, threads: if all are equal, so are the bits
};

// Draws inputs like the data: pixels in [0, 1), numbers of mean 0 and deviation 1, tokens of the vocabulary.
Tensor golden_inputs(const DataForm& form);
// Computes golden_inputs.
Proof make_proof(const Predictor& model);
// Computes `input` by a function around the model.
using ProofFunction = std::function<Tensor(const Tensor&)>;
Proof make_proof(const Predictor& model, const Tensor& input, const ProofFunction& function);

// Convert to text and back. Reading throws CheckpointError.
std::string to_text(const Proof& proof);
Proof read_proof(const std::string& text, const std::string& path);

// Returns "3 golden samples: to the bit", or the largest deviation of the answers. Throws CheckpointError, with the first sample
// that differs, for deviations beyond the bound. The bound, relative to 1 + |y|, is 0 on the machine and build that wrote it;
// elsewhere 1e-4, or 3e-2 if an op computes in 16 bits.
std::string check_proof(const Predictor& model, const Proof& proof);

}  // namespace halfstep::app
