// SPDX-License-Identifier: Apache-2.0
// Exports a model with its preparation as an ONNX file, so that programs need not repeat the preparation of the training data.
#include "amp/autocast/autocast.h"
#include "apps/catalog/losses.h"
#include "apps/export/exporter.h"
#include "apps/export/layer_code.h"
#include "apps/export/preparation.h"
#include "framework/autograd/grad_mode.h"
#include "framework/interchange/onnx_file.h"
#include "framework/io/files/atomic_file.h"
#include "layers/module/export.h"

namespace halfstep::app {
namespace {

namespace fs = std::filesystem;

Tensor output_of(const ExportSource& source, const ExportOptions& o, const Preparation& prepare, const Tensor& x) {
  const ModelParts& parts = source.model.parts();
  const DataForm& form = source.model.form();
  Tensor y = prepare(x);
  {
    AutocastOptions options = parts.region;
    options.dtype = DType::f16;
    options.enabled = o.dtype == DType::f16;
    const Autocast region(Device::cpu, options);
    y = (*parts.model)(y).to(DType::f32);
  }
  if (form.classes == 0 && !o.raw) y = y.to(answer_dtype(form));
  return o.probabilities || (form.classes == 0 && !o.raw) ? answers_of(y, source.model.config().loss, form) : y;
}

void write_test_data(const fs::path& folder, const OnnxFunction& f, const Proof& proof, int64_t sets, bool replace) {
  for (int64_t i = 0; i < sets; ++i) {
    const fs::path at = folder / joined("test_data_set_", i);
    check<ConfigError>(replace || !fs::exists(at), "export", at.string(), " exists", Help{"--replace, or another folder"});
    fs::create_directories(at);
    const Tensor x = proof.input.roll(i, 0).narrow(0, 0, 1 + i % proof.input.size(0)).contiguous();
    atomic_write(at / "input_0.pb", onnx_tensor(x, "input"));
    atomic_write(at / "output_0.pb", onnx_tensor(f({x})[0], "output"));
  }
}

}  // namespace

Exported export_onnx_model(const ExportSource& source, const ExportOptions& o) {
  const NoGrad off;
  const Predictor& model = source.model;
  const Json& loss = model.config().loss;
  check<ConfigError>(!o.probabilities || (model.form().classes > 0 && gives_probabilities(loss)), "export",
                     "--probabilities is for models of classes whose loss gives probabilities, not for ",
                     loss["type"].get<std::string>());
  const Preparation prepare(model, o.raw);
  Module& module = *model.parts().model;
  const OnnxFunction f = [&](const Tensors& in) {
    const FreshStates begin(module);
    return Tensors{output_of(source, o, prepare, in[0])};
  };
  const Proof proof = make_proof(model, golden_inputs(model, prepare), [&](const Tensor& x) { return f({x})[0]; });
  OnnxOptions options{.external = o.external};
  options.metadata = metadata_of(source.as_file(), proof);
  options.metadata.erase("format");
  std::vector<std::string> classes;
  for (int64_t i = 0; i < model.form().classes; ++i) classes.push_back(model.form().class_name(i));
  if (!classes.empty()) options.metadata["classes"] = Json(classes).dump();
  options.metadata["preparation"] = Json{{"inside", !prepare.is_empty()}, {"outside", prepare.outside}}.dump();

  const std::string tokenizer = tokenizer_file(model.form());
  fs::path tokenizer_path = o.out;
  tokenizer_path.replace_extension(".tokenizer.json");
  check<ConfigError>(tokenizer.empty() || o.replace || !fs::exists(tokenizer_path), "export", tokenizer_path.string(), " exists",
                     Help{"--replace, or another --out"});
  Exported out{.path = o.out};
  out.bytes = export_onnx(o.out, module, f, {proof.input}, options).bytes;
  if (!tokenizer.empty()) {
    atomic_write(tokenizer_path, tokenizer);
    out.notes +=
        "note: the inputs are tokens; " + tokenizer_path.string() + " makes them of texts, by the package tokenizers on PyPI\n";
  }
  if (o.test_data > 0) write_test_data(o.out.parent_path(), f, proof, o.test_data, o.replace);
  for (const Json& t : prepare.outside) out.notes += "note: " + transform_text(t) + " is not in the file: prepare inputs with it\n";
  if (o.raw && !Preparation(model).units.mean.empty())
    out.notes += "note: inputs and answers are in the model's units, not in those of the file (halfstep.data in the metadata)\n";
  if (!prepare.wide.empty())
    out.notes += "note: the input is float64, since float32 does not have the digits of " + prepare.wide + '\n';
  if (!o.raw && answer_dtype(model.form()) == DType::f64)
    out.notes += "note: the output is float64, since the target's deviation is small against its mean\n";
  if (o.dtype == DType::f16) out.notes += "note: float16 halves the file; on a CPU runtimes are not faster with it\n";
  std::string shape = "1";
  for (const int64_t n : without_batch(proof.input.shape())) shape += ", " + std::to_string(n);
  if (!tokenizer.empty()) {
    out.use = "python -c " +
              shell_word("import numpy, onnxruntime, tokenizers; x = numpy.array([tokenizers.Tokenizer.from_file(" +
                         Json(tokenizer_path.string()).dump() + ").encode(\"a text\").ids]); print(onnxruntime.InferenceSession(" +
                         Json(o.out.string()).dump() + ").run(None, {\"input\": x}))");
    return out;
  }
  out.use =
      "python -c " + shell_word("import numpy, onnxruntime; x = numpy.zeros((" + shape + "), numpy." +
                                joined(proof.input.dtype()) + "); print(onnxruntime.InferenceSession(" +
                                Json(o.out.string()).dump() + ").run(None, {\"input\": x}))");
  return out;
}

}  // namespace halfstep::app
