// SPDX-License-Identifier: Apache-2.0
// Executions of cuDNN's graphs by the fake library: when they read their tensors, and inputs that it must refuse.
#include "tests/emulators/fake_cudnn/cudnn_builder.h"
#include "tests/emulators/source/behaviour.h"
#include "tests/emulators/source/misuse.h"

using namespace halfstep;
using namespace halfstep::testing;

TEST_CASE("cudnn: values are read when a graph is executed, and the workspace is poisoned") {
  RunningConv r;
  const Buffer result = poisoned(DType::f16, {1, 2, 3, 3}), work = make(DType::u8, {1 << 13});
  const OnDevice y(result), workspace(work);
  DnnGraph g;
  const auto x = g.tensor(r.x), to = g.tensor(y), scale = g.scalar(4, 0);
  g.pointwise_to(CUDNN_POINTWISE_MUL, x, to, &scale);
  cudaStream_t stream;
  REQUIRE(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking) == cudaSuccess);
  const DnnPlan plan = g.plan(kWithWorkspace);
  REQUIRE(plan.workspace() == 4096);
  cudaGraph_t graph;
  cudaGraphExec_t executable;
  REQUIRE(cudaStreamBeginCapture(stream, cudaStreamCaptureModeRelaxed) == cudaSuccess);
  ok(plan.execute(g.pointers, workspace.view.data, stream));
  REQUIRE(cudaStreamEndCapture(stream, &graph) == cudaSuccess);
  *static_cast<float*>(g.pointers[scale.uid]) = 5;
  REQUIRE(cudaGraphInstantiate(&executable, graph, 0) == cudaSuccess);
  REQUIRE(cudaGraphLaunch(executable, stream) == cudaSuccess);
  REQUIRE(cudaStreamSynchronize(stream) == cudaSuccess);
  y.fetch();
  workspace.fetch();
  CHECK(result.values() == std::vector<double>(18, 0));
  CHECK(work[4095] == 255);
  CHECK(work[4096] == 0xA5);
  cudaGraphExecDestroy(executable);
  cudaGraphDestroy(graph);
  cudaStreamDestroy(stream);
}

TEST_CASE("cudnn: neither a plan nor a handle is made while a stream is captured") {
  RunningConv r;
  const std::vector<DnnEngine> engines = r.g.engines();
  cudaStream_t stream;
  cudaGraph_t graph;
  REQUIRE(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking) == cudaSuccess);
  for (int what : {0, 1}) {
    REQUIRE(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal) == cudaSuccess);
    cudnnHandle_t handle;
    if (what == 0)
      CHECK(DnnPlan(engines.back().config, 0).status != CUDNN_STATUS_SUCCESS);
    else
      CHECK(cudnnCreate(&handle) != CUDNN_STATUS_SUCCESS);
    CHECK(cudaStreamEndCapture(stream, &graph) == cudaErrorStreamCaptureInvalidated);
  }
  cudaGetLastError();
  cudaStreamDestroy(stream);
}

TEST_CASE("cudnn: executions that are refused, and slow ones") {
  RunningConv r;
  const DnnPlan plan = r.g.plan(r.g.engines().back().index);
  {
    const Behaviour refuses("HALFSTEP_FAKE_DNN_FAIL", std::to_string(plan.index + 1));
    CHECK(plan.execute(r.g.pointers, nullptr) == CUDNN_STATUS_NOT_SUPPORTED);
  }
  cudaEvent_t before, after;
  REQUIRE(cudaEventCreate(&before) == cudaSuccess);
  REQUIRE(cudaEventCreate(&after) == cudaSuccess);
  const auto milliseconds = [&] {
    float ms = 0;
    REQUIRE(cudaEventRecord(before, nullptr) == cudaSuccess);
    ok(plan.execute(r.g.pointers, nullptr));
    REQUIRE(cudaEventRecord(after, nullptr) == cudaSuccess);
    REQUIRE(cudaEventSynchronize(after) == cudaSuccess);
    REQUIRE(cudaEventElapsedTime(&ms, before, after) == cudaSuccess);
    return ms;
  };
  CHECK(milliseconds() < 1);
  const Behaviour slow("HALFSTEP_FAKE_DNN_SLOW", std::to_string(1 << plan.index));
  CHECK(milliseconds() > 1);
  cudaEventDestroy(before);
  cudaEventDestroy(after);
}

TEST_CASE("cudnn: an execution waits for its stream, is captured, and outlives all of its descriptors but the plan") {
  const Buffer result = poisoned(DType::f16, {1, 2, 3, 3});
  const OnDevice x(uniform(DType::f16, {1, 2, 3, 3}, 1)), w(uniform(DType::f16, {2, 2, 1, 1}, 2)), y(result);
  cudaStream_t stream;
  REQUIRE(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking) == cudaSuccess);
  cudaGraph_t graph;
  const DnnPlan plan = [&] {
    DnnGraph g;
    conv(g, g.tensor(x), g.tensor(w), g.tensor(y));
    DnnPlan made = g.plan(g.engines().back().index);
    REQUIRE(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal) == cudaSuccess);
    ok(made.execute(g.pointers, nullptr, stream));
    REQUIRE(cudaStreamEndCapture(stream, &graph) == cudaSuccess);
    return made;
  }();
  y.fetch();
  CHECK(std::isnan(result[0]));
  cudaGraphExec_t executable;
  REQUIRE(cudaGraphInstantiate(&executable, graph, 0) == cudaSuccess);
  REQUIRE(cudaGraphLaunch(executable, stream) == cudaSuccess);
  REQUIRE(cudaStreamSynchronize(stream) == cudaSuccess);
  y.fetch();
  for (int64_t i = 0; i < result.numel(); ++i) CHECK(!std::isnan(result[i]));
  cudaGraphExecDestroy(executable);
  cudaGraphDestroy(graph);
  cudaStreamDestroy(stream);
}

TEST_CASE("cudnn: misuse of executions is found") {
  find_all({
      {"a tensor without a pointer", "no pointer for tensor 2",
       [] {
         RunningConv r;
         r.g.pointers.erase(r.tw.uid);
         r.run();
       }},
      {"a pointer without a tensor", "which the graph does not have",
       [] {
         RunningConv r;
         r.g.pointers[99] = r.x.view.data;
         r.run();
       }},
      {"a null pointer", "a null pointer for tensor 1",
       [] {
         RunningConv r;
         r.g.pointers[r.tx.uid] = nullptr;
         r.run();
       }},
      {"a pointer less aligned than promised", "an alignment of 16 was promised",
       [] {
         RunningConv r;
         const OnDevice shifted(uniform(DType::f16, {1, 2, 3, 3}, 1), 1);
         DnnGraph g;
         const auto aligned = g.tensor(kX, packed(kX), kFp16), y = g.tensor(r.y);
         g.pointwise_to(CUDNN_POINTWISE_IDENTITY, aligned, y);
         g.pointers[aligned.uid] = shifted.view.data;
         g.run();
       }},
      {"a value from the device", "its pointer is the device's",
       [] {
         RunningConv r;
         DnnGraph g;
         const auto x = g.tensor(r.x), y = g.tensor(r.y), scale = g.scalar(4, 2);
         g.pointers[scale.uid] = r.w.view.data;
         g.pointwise_to(CUDNN_POINTWISE_MUL, x, y, &scale);
         g.run();
       }},
      {"no workspace", "no workspace, but the plan needs",
       [] {
         RunningConv r;
         r.run(kWithWorkspace);
       }},
      {"a workspace off its alignment", "an alignment of 256 was promised",
       [] {
         RunningConv r;
         const OnDevice workspace(make(DType::u8, {1 << 16}), 8);
         r.run(kWithWorkspace, workspace.view.data);
       }},
      {"a workspace that is too small", "overrun an allocation",
       [] {
         RunningConv r;
         const OnDevice workspace(make(DType::u8, {1000}));
         r.run(kWithWorkspace, workspace.view.data);
       }},
      {"a workspace on a tensor", "overlaps",
       [] {
         RunningConv r;
         const OnDevice workspace(make(DType::u8, {1 << 16}));
         r.g.pointers[r.tx.uid] = workspace.view.data;
         r.run(kWithWorkspace, workspace.view.data);
       }},
      {"a plan that was not built", "is not finalised",
       [] {
         RunningConv r;
         const DnnPlan broken = r.g.plan(0);
         ok(broken.execute(r.g.pointers, nullptr));
       }},
      {"a tensor beyond its memory", "overrun an allocation",
       [] {
         RunningConv r;
         r.g.pointers[r.tx.uid] = static_cast<char*>(r.x.view.data) + 16;
         r.run();
       }},
      {"strides beyond the memory", "overrun an allocation",
       [] {
         RunningConv r;
         TensorView x = r.x;
         x.strides = {18, 10, 3, 1};
         DnnGraph g;
         conv(g, g.tensor(x), g.tensor(r.w), g.tensor(r.y));
         g.run();
       }},
      {"memory of the host", "is not in device memory",
       [] {
         RunningConv r;
         const Buffer host = make(DType::f16, {1, 2, 3, 3});
         r.g.pointers[r.tx.uid] = host.view.data;
         r.run();
       }},
      {"memory that was freed", "is not in a live allocation",
       [] {
         RunningConv r;
         void* gone = nullptr;
         REQUIRE(cudaMalloc(&gone, 64) == cudaSuccess);
         cudaFree(gone);
         r.g.pointers[r.ty.uid] = gone;
         r.run();
       }},
      {"an output on an input", "which is written, overlaps tensor",
       [] {
         RunningConv r;
         r.g.pointers[r.ty.uid] = r.x.view.data;
         r.run();
       }},
      {"memory freed before its graph is launched", "is not in a live allocation",
       [] {
         auto r = std::make_unique<RunningConv>();
         const DnnPlan plan = r->g.plan(r->g.engines().back().index);
         cudaStream_t stream;
         cudaGraph_t graph;
         cudaGraphExec_t executable;
         REQUIRE(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking) == cudaSuccess);
         REQUIRE(cudaStreamBeginCapture(stream, cudaStreamCaptureModeRelaxed) == cudaSuccess);
         ok(plan.execute(r->g.pointers, nullptr, stream));
         REQUIRE(cudaStreamEndCapture(stream, &graph) == cudaSuccess);
         REQUIRE(cudaGraphInstantiate(&executable, graph, 0) == cudaSuccess);
         r.reset();
         REQUIRE(cudaGraphLaunch(executable, stream) == cudaSuccess);
         REQUIRE(cudaStreamSynchronize(stream) == cudaSuccess);
       }},
      {"a plan destroyed before its graph is launched", "a graph runs work of a plan that was destroyed",
       [] {
         RunningConv r;
         cudaStream_t stream;
         cudaGraph_t graph;
         cudaGraphExec_t executable;
         REQUIRE(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking) == cudaSuccess);
         {
           const DnnPlan plan = r.g.plan(r.g.engines().back().index);
           REQUIRE(cudaStreamBeginCapture(stream, cudaStreamCaptureModeRelaxed) == cudaSuccess);
           ok(plan.execute(r.g.pointers, nullptr, stream));
           REQUIRE(cudaStreamEndCapture(stream, &graph) == cudaSuccess);
         }
         REQUIRE(cudaGraphInstantiate(&executable, graph, 0) == cudaSuccess);
         REQUIRE(cudaGraphLaunch(executable, stream) == cudaSuccess);
       }},
  });
}
