// SPDX-License-Identifier: Apache-2.0
// An exported model proves itself: it carries three golden inputs with the outputs that it had when it was written. Where it is
// used, it answers them again. A preparation that differs, weights that are not those that were written, and another machine's or
// runtime's drift then show before the first answer.
#pragma once

#include <functional>
#include <string>

#include "apps/schema/json.h"
#include "framework/data/transforms/data_form.h"
#include "framework/tensor/tensor.h"

namespace halfstep::app {

class Predictor;

struct Proof {
  Tensor input;     // [3, ...], before the preparation, as Predictor's operator() takes them
  Tensor output;    // [3, ...] as it returns them; of more than 4096 numbers a sample, every k-th: [3, n]
  Json computed;    // dtypes that its ops compute in: {"linear": ["bfloat16"]}
  Json written_by;  // version, commit, compiler, device, threads: where all are the same, so are the bits
};

// Inputs are drawn as the data has them: pixels in [0, 1), numbers of mean 0 and deviation 1, tokens of the vocabulary.
Proof make_proof(const Predictor& model);
Tensor golden_inputs(const DataForm& form);
using ProofFunction = std::function<Tensor(const Tensor&)>;
Proof make_proof(const Predictor& model, const Tensor& input, const ProofFunction& function);  // of a function around the model

// As text, and back. Reading throws CheckpointError.
std::string to_text(const Proof& proof);
Proof read_proof(const std::string& text, const std::string& path);

// "3 golden samples: to the bit", or how far off the answers are. Throws CheckpointError for answers beyond the bound, with the
// first sample that differs. The bound, relative to 1 + |y|: 0 on the machine and build that wrote it; elsewhere 1e-4, and 3e-2
// where an op computes in 16 bits.
std::string check_proof(const Predictor& model, const Proof& proof);

}  // namespace halfstep::app
