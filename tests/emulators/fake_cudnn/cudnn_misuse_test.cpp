// SPDX-License-Identifier: Apache-2.0
// Every misuse of cuDNN's graphs that the fake library must find.
#include "tests/emulators/fake_cudnn/cudnn_builder.h"
#include "tests/emulators/source/behaviour.h"
#include "tests/emulators/source/misuse.h"

using namespace halfstep;
using namespace halfstep::testing;

namespace {

Desc tensor_desc() {
  Desc d(CUDNN_BACKEND_TENSOR_DESCRIPTOR);
  d.set(CUDNN_ATTR_TENSOR_DATA_TYPE, kFp16).set(CUDNN_ATTR_TENSOR_DIMENSIONS, kX).set(CUDNN_ATTR_TENSOR_STRIDES, packed(kX));
  d.set(CUDNN_ATTR_TENSOR_UNIQUE_ID, int64_t(1)).set(CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, int64_t(16));
  return d;
}

}  // namespace

TEST_CASE("cudnn: misuse of descriptors is found") {
  find_all({
      {"an attribute is missing", "lacks its attribute 906",
       [] {
         Desc d(CUDNN_BACKEND_TENSOR_DESCRIPTOR);
         d.set(CUDNN_ATTR_TENSOR_DATA_TYPE, kFp16)
             .set(CUDNN_ATTR_TENSOR_DIMENSIONS, kX)
             .set(CUDNN_ATTR_TENSOR_STRIDES, packed(kX))
             .finalize();
       }},
      {"an attribute of a wrong type", "is not of type 4", [] { tensor_desc().set(CUDNN_ATTR_TENSOR_UNIQUE_ID, 1.0f); }},
      {"an attribute of another kind", "has no attribute 1500", [] { tensor_desc().set(CUDNN_ATTR_MATMUL_COMP_TYPE, kFp16); }},
      {"too many elements", "has 9 elements", [] { tensor_desc().set(CUDNN_ATTR_TENSOR_DIMENSIONS, Numbers(9, 1)); }},
      {"set after finalising", "of a finalised tensor",
       [] { tensor_desc().finalize().set(CUDNN_ATTR_TENSOR_UNIQUE_ID, int64_t(2)); }},
      {"finalised twice", "finalised twice", [] { tensor_desc().finalize().finalize(); }},
      {"read before finalising", "not finalised",
       [] { tensor_desc().get<int64_t>(CUDNN_ATTR_TENSOR_UNIQUE_ID, CUDNN_TYPE_INT64, 1); }},
      {"given what is not finalised", "given a tensor that is not finalised",
       [] {
         const Desc t = tensor_desc();
         Desc(CUDNN_BACKEND_OPERATION_RESHAPE_DESCRIPTOR).set(CUDNN_ATTR_OPERATION_RESHAPE_XDESC, t.raw());
       }},
      {"used after it was destroyed", "not a live backend descriptor",
       [] {
         const cudnnBackendDescriptor_t gone = tensor_desc().raw();
         ok(cudnnBackendFinalize(gone));
       }},
      {"fewer strides than dimensions", "as many strides",
       [] {
         tensor_desc().set(CUDNN_ATTR_TENSOR_STRIDES, Numbers{1, 1}).finalize();
       }},
      {"a negative stride", "negative",
       [] {
         tensor_desc().set(CUDNN_ATTR_TENSOR_STRIDES, Numbers{18, -9, 3, 1}).finalize();
       }},
      {"an odd alignment", "power of two", [] { tensor_desc().set(CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, int64_t(6)).finalize(); }},
      {"an alignment below an element", "power of two",
       [] { tensor_desc().set(CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, int64_t(1)).finalize(); }},
      {"several elements by value", "given by value", [] { tensor_desc().set(CUDNN_ATTR_TENSOR_IS_BY_VALUE, true).finalize(); }},
      {"a convolution to another shape", "windows of a convolution",
       [] {
         DnnGraph g;
         conv(g, g.tensor(kX, packed(kX), kFp16), g.tensor(kW, packed(kW), kFp16),
              g.tensor({1, 2, 3, 2}, packed({1, 2, 3, 2}), kFp16));
       }},
      {"a convolution of odd groups", "groups of a convolution",
       [] {
         DnnGraph g;
         conv(g, g.tensor({1, 3, 3, 3}, packed({1, 3, 3, 3}), kFp16), g.tensor(kW, packed(kW), kFp16),
              g.tensor(kX, packed(kX), kFp16));
       }},
      {"a convolution of two types", "of two types",
       [] {
         DnnGraph g;
         conv(g, g.tensor(kX, packed(kX), kFp16), g.tensor(kW, packed(kW), CUDNN_DATA_FLOAT), g.tensor(kX, packed(kX), kFp16));
       }},
      {"a convolution that adds to nothing", "adds to the virtual tensor",
       [] {
         DnnGraph g;
         const auto x = g.tensor(kX, packed(kX), kFp16), w = g.tensor(kW, packed(kW), kFp16);
         g.conv(0, x, w, g.middle(kX), {0, 0}, {1, 1}, {1, 1}, 1, 1);
       }},
      {"padding of one dimension", "has 1 of one parameter",
       [] {
         DnnGraph g;
         g.conv(0, g.tensor(kX, packed(kX), kFp16), g.tensor(kW, packed(kW), kFp16), g.tensor(kX, packed(kX), kFp16), {0, 0}, {1},
                {1, 1});
       }},
      {"a sum of one", "attribute 752",
       [] {
         DnnGraph g;
         g.pointwise_to(CUDNN_POINTWISE_ADD, g.tensor(kX, packed(kX), kFp16), g.tensor(kX, packed(kX), kFp16));
       }},
      {"a bias that does not broadcast", "pointwise operation: the shapes",
       [] {
         DnnGraph g;
         const auto b = g.tensor({1, 1, 2, 1}, {2, 2, 1, 1}, kFp16);
         g.pointwise_to(CUDNN_POINTWISE_ADD, g.tensor(kX, packed(kX), kFp16), g.tensor(kX, packed(kX), kFp16), &b);
       }},
      {"a selection by numbers", "not boolean",
       [] {
         DnnGraph g;
         const auto x = g.tensor(kX, packed(kX), kFp16);
         g.pointwise_to(CUDNN_POINTWISE_BINARY_SELECT, x, g.tensor(kX, packed(kX), kFp16), &x, &x);
       }},
      {"a matmul of other lengths", "matmul: the shapes",
       [] {
         DnnGraph g;
         g.matmul(g.tensor({1, 2, 3}, {6, 3, 1}, kFp16), g.tensor({1, 2, 3}, {6, 3, 1}, kFp16),
                  g.tensor({1, 2, 3}, {6, 3, 1}, kFp16));
       }},
      {"a matmul whose extent is a float", "extent is an int32",
       [] {
         DnnGraph g;
         const auto extent = g.tensor({1, 1, 1}, {1, 1, 1}, CUDNN_DATA_FLOAT);
         g.matmul(g.tensor({1, 2, 3}, {6, 3, 1}, kFp16), g.tensor({1, 3, 2}, {6, 2, 1}, kFp16),
                  g.tensor({1, 2, 2}, {4, 2, 1}, kFp16), &extent);
       }},
      {"a reshape to other places", "reshape: the shapes",
       [] {
         DnnGraph g;
         g.reshape(g.tensor({1, 2, 3}, {6, 3, 1}, kFp16), g.tensor({1, 3, 2}, {8, 3, 1}, kFp16));
       }},
      {"a reduction to other sizes", "reduction: the shapes",
       [] {
         DnnGraph g;
         g.reduce(CUDNN_REDUCE_TENSOR_ADD, g.tensor({1, 2, 3}, {6, 3, 1}, kFp16), g.tensor({1, 2, 2}, {4, 2, 1}, kFp16));
       }},
  });
}

TEST_CASE("cudnn: misuse of graphs is found") {
  const Numbers s = packed(kX);
  find_all({
      {"two tensors of one uid", "two tensors of one uid",
       [&] {
         DnnGraph g;
         auto x = g.tensor(kX, s, kFp16), y = g.tensor(kX, s, kFp16), w = g.tensor(kW, packed(kW), kFp16);
         w.desc = std::make_shared<Desc>(CUDNN_BACKEND_TENSOR_DESCRIPTOR);
         w.desc->set(CUDNN_ATTR_TENSOR_DATA_TYPE, kFp16)
             .set(CUDNN_ATTR_TENSOR_DIMENSIONS, kW)
             .set(CUDNN_ATTR_TENSOR_STRIDES, packed(kW));
         w.desc->set(CUDNN_ATTR_TENSOR_UNIQUE_ID, x.uid).set(CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, int64_t(16)).finalize();
         conv(g, x, w, y);
         g.engines();
       }},
      {"two writers", "two operations write",
       [&] {
         DnnGraph g;
         const auto x = g.tensor(kX, s, kFp16), y = g.tensor(kX, s, kFp16);
         g.pointwise_to(CUDNN_POINTWISE_IDENTITY, x, y);
         g.pointwise_to(CUDNN_POINTWISE_RELU_FWD, x, y);
         g.engines();
       }},
      {"a cycle", "form a cycle",
       [&] {
         DnnGraph g;
         const auto x = g.middle(kX), y = g.middle(kX);
         g.pointwise_to(CUDNN_POINTWISE_IDENTITY, x, y);
         g.pointwise_to(CUDNN_POINTWISE_RELU_FWD, y, x);
         g.engines();
       }},
      {"a virtual tensor from nowhere", "no operation writes the virtual",
       [&] {
         DnnGraph g;
         g.pointwise_to(CUDNN_POINTWISE_IDENTITY, g.middle(kX), g.tensor(kX, s, kFp16));
         g.engines();
       }},
      {"a virtual tensor for nobody", "nothing reads the virtual",
       [&] {
         DnnGraph g;
         g.pointwise_to(CUDNN_POINTWISE_IDENTITY, g.tensor(kX, s, kFp16), g.middle(kX));
         g.engines();
       }},
      {"an output that overlaps itself", "lie in one place",
       [&] {
         DnnGraph g;
         g.pointwise_to(CUDNN_POINTWISE_IDENTITY, g.tensor(kX, s, kFp16), g.tensor(kX, {18, 0, 3, 1}, kFp16));
         g.engines();
       }},
      {"a value that is written", "given by value",
       [&] {
         DnnGraph g;
         g.pointwise_to(CUDNN_POINTWISE_IDENTITY, g.tensor({1, 1}, {1, 1}, kFp16), g.scalar(2, 0));
         g.engines();
       }},
      {"a graph of a tensor", "which is no operation",
       [&] {
         Desc graph(CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR);
         Desc t = tensor_desc();
         t.finalize();
         graph.set(CUDNN_ATTR_OPERATIONGRAPH_OPS, t.raw()).finalize();
       }},
      {"no device", "neither the graph has a handle nor the heuristic a device",
       [&] {
         DnnGraph g;
         g.pointwise_to(CUDNN_POINTWISE_IDENTITY, g.tensor(kX, s, kFp16), g.tensor(kX, s, kFp16));
         Desc graph(CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR), heuristic(CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR);
         graph.set(CUDNN_ATTR_OPERATIONGRAPH_OPS, g.ops[0].raw()).finalize();
         heuristic.set(CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH, graph.raw())
             .set(CUDNN_ATTR_ENGINEHEUR_MODE, CUDNN_HEUR_MODE_A)
             .finalize();
       }},
      {"a plan without a handle", "neither a handle nor a device",
       [&] {
         RunningConv r;
         Desc plan(CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR);
         plan.set(CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG, r.g.engines().back().config.raw()).finalize();
       }},
      {"a pack with one uid twice", "one uid twice",
       [&] {
         Desc pack(CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR);
         pack.set(CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS, Numbers{1, 1})
             .set_pointers(CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS, {&pack, &pack});
         pack.finalize();
       }},
      {"a pack with fewer pointers", "as many pointers",
       [&] {
         Desc pack(CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR);
         pack.set(CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS, Numbers{1, 2}).set_pointers(CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS, {&pack});
         pack.finalize();
       }},
  });
}

TEST_CASE("cudnn: misuse is a status for those who ask for it, as of the real library") {
  const Behaviour as_status("HALFSTEP_FAKE_DNN_MISUSE", "status");
  Desc d = tensor_desc();
  const float wrong = 1;
  CHECK(cudnnBackendSetAttribute(d, CUDNN_ATTR_TENSOR_UNIQUE_ID, CUDNN_TYPE_FLOAT, 1, &wrong) ==
        CUDNN_STATUS_BAD_PARAM_ATTRIBUTE_TYPE);
  char text[200] = {0};
  cudnnGetLastErrorString(text, sizeof text);
  CHECK(std::string(text) == "cudnnBackendSetAttribute: attribute 906 of a tensor is not of type 4");
  CHECK(std::string(cudnnGetErrorString(CUDNN_STATUS_BAD_PARAM_ATTRIBUTE_TYPE)) == "CUDNN_STATUS_BAD_PARAM");
  d.finalize();
  CHECK(cudnnBackendFinalize(d) == CUDNN_STATUS_BAD_PARAM);
}
