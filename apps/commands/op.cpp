// SPDX-License-Identifier: Apache-2.0
#include <CLI/CLI.hpp>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <memory>

#include "apps/commands/commands.h"
#include "apps/commands/options.h"
#include "apps/examine/op_call.h"
#include "apps/exit_codes.h"
#include "framework/base/check.h"

namespace halfstep::app {
namespace {

constexpr size_t kMostLineBytes = size_t(16) << 20;
constexpr int64_t kMostElements = 64;  // of a result that is printed

struct OpArguments {
  std::string op, in, out, batch, autocast, device = "cpu";
  std::string attrs = "{}";
  std::optional<int> threads;
  bool grad = false, json = false;
};

int run_one_call(const OpArguments& arguments) {
  OpCall call{.op = arguments.op, .in = arguments.in, .grad = arguments.grad, .out = arguments.out};
  call.attrs = read_attributes(arguments.attrs);
  if (!arguments.autocast.empty()) call.autocast = autocast_dtype(arguments.autocast);
  call.device = parse_device(arguments.device);
  const TensorMap outputs = run_op_call(call);
  const Json described = describe_outputs(outputs);
  if (arguments.json) {
    std::cout << described.dump() << '\n';
    return kDone;
  }
  for (const Json& t : described["outputs"]) {
    const std::string name = t["name"];
    std::cout << name << "  " << t["dtype"].get<std::string>() << "  " << t["shape"].dump() << '\n';
    const Tensor& values = outputs.at(name);
    if (values.numel() <= kMostElements) std::cout << values.detach().to(Device::cpu) << '\n';
  }
  return kDone;
}

// Runs the call of a line, and describes its results or its error.
Json answer_to(const std::string& line) {
  try {
    return describe_outputs(run_op_call(read_op_call(line)));
  } catch (...) { return describe_exception(); }
}

// Reads the next line; returns false at the end.
bool next_line(std::istream& in, std::string& line) {
  using Traits = std::char_traits<char>;
  line.clear();
  for (auto c = in.get(); c != Traits::eof(); c = in.get()) {
    if (c == '\n') return true;
    check<DataError>(line.size() < kMostLineBytes, "op", "a line of a batch must not have more than ", kMostLineBytes, " bytes");
    line += Traits::to_char_type(c);
  }
  return !line.empty();
}

int run_batch(const std::string& path) {
  std::ifstream file;
  if (path != "-") {
    std::error_code ignored;
    file.open(path);
    check<DataError>(file.is_open() && !std::filesystem::is_directory(path, ignored), "op", "cannot read ", path);
  }
  std::istream& lines = path == "-" ? std::cin : file;
  for (std::string line; next_line(lines, line);) {
    if (line.find_first_not_of(" \t\r") == std::string::npos) continue;
    std::cout << line_of(answer_to(line)) << std::endl;
  }
  return kDone;
}

}  // namespace

void add_op(CLI::App& program, Action& chosen) {
  auto arguments = std::make_shared<OpArguments>();
  CLI::App* command = program.add_subcommand("op", "Run one op on tensors from a file: a reproducer");
  command->footer(
      "Input tensors are named 0, 1, ... in call order (1.0, 1.1, ... for a list); a missing name is an argument that is left "
      "out. The output holds out (or out.0, ...), and with --grad the gradients grad.0, ... of the sum of w * out (w.0, ... for "
      "several; 1 if absent). Results of at most 64 elements are printed.\n"
      "A line of a batch; the program prints one line of JSON for each:\n"
      "  {\"op\": \"conv2d\", \"in\": \"i.safetensors\", \"attrs\": {\"stride\": 2}, \"autocast\": null,\n"
      "   \"device\": \"cpu\", \"grad\": true, \"out\": \"o.safetensors\"}");
  CLI::Option* name = command->add_option("name", arguments->op, "as in `halfstep ops`");
  command->add_option("--in", arguments->in, "safetensors file with the tensor arguments")->type_name("FILE");
  command->add_option("--attrs", arguments->attrs, "the other arguments, a JSON object under PyTorch's names")->type_name("JSON");
  command->add_option("--autocast", arguments->autocast, "run inside an autocast region: float16 or bfloat16")->type_name("DTYPE");
  command->add_option("--device", arguments->device, "cpu, cuda or cuda:N")->type_name("DEVICE")->capture_default_str();
  command->add_flag("--grad", arguments->grad, "gradients of all floating inputs, too");
  command->add_option("--out", arguments->out, "safetensors file for the results")->type_name("FILE");
  CLI::Option* batch =
      command->add_option("--batch", arguments->batch, "run the calls of a JSON-lines file (-: stdin) in one process")
          ->type_name("FILE");
  name->excludes(batch);
  add_threads(*command, arguments->threads);
  command->add_flag("--json", arguments->json, "one JSON object");
  command->callback([arguments, &chosen] {
    chosen = [arguments] {
      check<ConfigError>(!arguments->op.empty() || !arguments->batch.empty(), "op", "name an op, or give --batch FILE",
                         Help{"`halfstep ops` lists them"});
      apply_threads(arguments->threads);
      return arguments->batch.empty() ? run_one_call(*arguments) : run_batch(arguments->batch);
    };
  });
}

}  // namespace halfstep::app
