// Builds cuDNN graphs from backend descriptors and runs their execution plans; graph_cudnn.h documents the classes.
#include "lamina/ops/attention/cuda/cudnn/graph_cudnn.h"

#include <algorithm>

#include "lamina/tensor/cuda/runtime.h"
#include "lamina/tensor/cuda/stream_timer.h"

namespace lamina::ops::cuda {
namespace {

void require(cudnnStatus_t status, const char* what) {
  if (status == CUDNN_STATUS_SUCCESS) return;
  throw CudnnUnsupported(str("cuDNN: ", what, ": ", cudnn().GetErrorString(status)));
}

CudnnExtents dense(const CudnnExtents& extents) {
  CudnnExtents strides(extents.size(), 1);
  for (size_t i = extents.size() - 1; i > 0; --i) strides[i - 1] = strides[i] * extents[i];
  return strides;
}

/// The engine configurations that cuDNN's heuristics propose for a graph, best first.
std::vector<std::unique_ptr<CudnnDescriptor>> proposals(const CudnnDescriptor& operation_graph) {
  CudnnDescriptor heuristic(CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR);
  heuristic.set(CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH, operation_graph);
  heuristic.set(CUDNN_ATTR_ENGINEHEUR_MODE, CUDNN_TYPE_HEUR_MODE, CUDNN_HEUR_MODE_A);
  heuristic.finalize();
  int64_t count = 0;
  require(cudnn().BackendGetAttribute(heuristic.get(), CUDNN_ATTR_ENGINEHEUR_RESULTS, CUDNN_TYPE_BACKEND_DESCRIPTOR, 0,
                                      &count, nullptr),
          "querying the engines");
  std::vector<std::unique_ptr<CudnnDescriptor>> configs;
  std::vector<cudnnBackendDescriptor_t> raw;
  for (int64_t i = 0; i < count; ++i) {
    configs.push_back(std::make_unique<CudnnDescriptor>(CUDNN_BACKEND_ENGINECFG_DESCRIPTOR));
    raw.push_back(configs.back()->get());
  }
  int64_t given = 0;
  require(cudnn().BackendGetAttribute(heuristic.get(), CUDNN_ATTR_ENGINEHEUR_RESULTS, CUDNN_TYPE_BACKEND_DESCRIPTOR,
                                      count, &given, raw.data()),
          "querying the engines");
  configs.resize(static_cast<size_t>(given));
  return configs;
}

int64_t engine_of(const CudnnDescriptor& config) {
  const CudnnDescriptor engine(CUDNN_BACKEND_ENGINE_DESCRIPTOR);
  cudnnBackendDescriptor_t raw = engine.get();
  int64_t count = 0;
  int64_t number = -1;
  require(cudnn().BackendGetAttribute(config.get(), CUDNN_ATTR_ENGINECFG_ENGINE, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1,
                                      &count, &raw),
          "asking for an engine");
  require(cudnn().BackendGetAttribute(raw, CUDNN_ATTR_ENGINE_GLOBAL_INDEX, CUDNN_TYPE_INT64, 1, &count, &number),
          "asking for an engine's number");
  return number;
}

}  // namespace

CudnnDescriptor::CudnnDescriptor(cudnnBackendDescriptorType_t type) {
  require(cudnn().BackendCreateDescriptor(type, &descriptor_), "making a descriptor");
}

CudnnDescriptor::~CudnnDescriptor() { cudnn().BackendDestroyDescriptor(descriptor_); }

void CudnnDescriptor::set(cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type, int64_t count,
                          const void* values) {
  require(cudnn().BackendSetAttribute(descriptor_, name, type, count, values), "describing an operation");
}

void CudnnDescriptor::finalize() { require(cudnn().BackendFinalize(descriptor_), "checking a description"); }

int64_t CudnnGraph::add(cudnnDataType_t type, const CudnnExtents& extents, const CudnnExtents& strides, bool is_virtual,
                        bool by_value) {
  const auto number = static_cast<int64_t>(tensors_.size());
  const auto rank = static_cast<int64_t>(extents.size());
  const int64_t alignment = 16;
  auto tensor = std::make_unique<CudnnDescriptor>(CUDNN_BACKEND_TENSOR_DESCRIPTOR);
  tensor->set(CUDNN_ATTR_TENSOR_DATA_TYPE, CUDNN_TYPE_DATA_TYPE, type);
  tensor->set(CUDNN_ATTR_TENSOR_DIMENSIONS, CUDNN_TYPE_INT64, rank, extents.data());
  tensor->set(CUDNN_ATTR_TENSOR_STRIDES, CUDNN_TYPE_INT64, rank, strides.data());
  tensor->set(CUDNN_ATTR_TENSOR_UNIQUE_ID, CUDNN_TYPE_INT64, number);
  tensor->set(CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, CUDNN_TYPE_INT64, alignment);
  if (is_virtual) tensor->set(CUDNN_ATTR_TENSOR_IS_VIRTUAL, CUDNN_TYPE_BOOLEAN, is_virtual);
  if (by_value) tensor->set(CUDNN_ATTR_TENSOR_IS_BY_VALUE, CUDNN_TYPE_BOOLEAN, by_value);
  tensor->finalize();
  tensors_.push_back(std::move(tensor));
  return number;
}

int64_t CudnnGraph::tensor(cudnnDataType_t type, const CudnnExtents& extents, const CudnnExtents& strides) {
  return add(type, extents, strides, false, false);
}
int64_t CudnnGraph::scalar() { return add(CUDNN_DATA_FLOAT, {1, 1, 1, 1}, {1, 1, 1, 1}, false, true); }
int64_t CudnnGraph::constant(float value) {
  constants_.push_back({scalar(), value});
  return constants_.back().tensor;
}
int64_t CudnnGraph::virtual_tensor(const CudnnExtents& extents, cudnnDataType_t type) {
  return add(type, extents, dense(extents), true, false);
}
int64_t CudnnGraph::virtual_tensor(const CudnnExtents& extents, const CudnnExtents& strides, cudnnDataType_t type) {
  return add(type, extents, strides, true, false);
}

CudnnDescriptor& CudnnGraph::operation(cudnnBackendDescriptorType_t type) {
  operations_.push_back(std::make_unique<CudnnDescriptor>(type));
  return *operations_.back();
}

void CudnnGraph::multiply(int64_t a, int64_t b, int64_t c) {
  auto mode = std::make_unique<CudnnDescriptor>(CUDNN_BACKEND_MATMUL_DESCRIPTOR);
  mode->set(CUDNN_ATTR_MATMUL_COMP_TYPE, CUDNN_TYPE_DATA_TYPE, CUDNN_DATA_FLOAT);
  mode->finalize();
  CudnnDescriptor& product = operation(CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR);
  product.set(CUDNN_ATTR_OPERATION_MATMUL_ADESC, at(a));
  product.set(CUDNN_ATTR_OPERATION_MATMUL_BDESC, at(b));
  product.set(CUDNN_ATTR_OPERATION_MATMUL_CDESC, at(c));
  product.set(CUDNN_ATTR_OPERATION_MATMUL_DESC, *mode);
  product.finalize();
  modes_.push_back(std::move(mode));
}

void CudnnGraph::pointwise(cudnnPointwiseMode_t how, int64_t x, int64_t b, int64_t y, int64_t t,
                           cudnnDataType_t precision) {
  auto mode = std::make_unique<CudnnDescriptor>(CUDNN_BACKEND_POINTWISE_DESCRIPTOR);
  mode->set(CUDNN_ATTR_POINTWISE_MODE, CUDNN_TYPE_POINTWISE_MODE, how);
  mode->set(CUDNN_ATTR_POINTWISE_MATH_PREC, CUDNN_TYPE_DATA_TYPE, precision);
  mode->finalize();
  CudnnDescriptor& each = operation(CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR);
  each.set(CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR, *mode);
  each.set(CUDNN_ATTR_OPERATION_POINTWISE_XDESC, at(x));
  if (b >= 0) each.set(CUDNN_ATTR_OPERATION_POINTWISE_BDESC, at(b));
  if (t >= 0) each.set(CUDNN_ATTR_OPERATION_POINTWISE_TDESC, at(t));
  each.set(CUDNN_ATTR_OPERATION_POINTWISE_YDESC, at(y));
  each.finalize();
  modes_.push_back(std::move(mode));
}

void CudnnGraph::index(int64_t x, int64_t axis, int64_t y) {
  auto mode = std::make_unique<CudnnDescriptor>(CUDNN_BACKEND_POINTWISE_DESCRIPTOR);
  mode->set(CUDNN_ATTR_POINTWISE_MODE, CUDNN_TYPE_POINTWISE_MODE, CUDNN_POINTWISE_GEN_INDEX);
  mode->set(CUDNN_ATTR_POINTWISE_MATH_PREC, CUDNN_TYPE_DATA_TYPE, CUDNN_DATA_FLOAT);
  mode->set(CUDNN_ATTR_POINTWISE_AXIS, CUDNN_TYPE_INT64, axis);
  mode->finalize();
  CudnnDescriptor& each = operation(CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR);
  each.set(CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR, *mode);
  each.set(CUDNN_ATTR_OPERATION_POINTWISE_XDESC, at(x));
  each.set(CUDNN_ATTR_OPERATION_POINTWISE_YDESC, at(y));
  each.finalize();
  modes_.push_back(std::move(mode));
}

void CudnnGraph::reduce(cudnnReduceTensorOp_t how, int64_t x, int64_t y) {
  auto mode = std::make_unique<CudnnDescriptor>(CUDNN_BACKEND_REDUCTION_DESCRIPTOR);
  mode->set(CUDNN_ATTR_REDUCTION_COMP_TYPE, CUDNN_TYPE_DATA_TYPE, CUDNN_DATA_FLOAT);
  mode->set(CUDNN_ATTR_REDUCTION_OPERATOR, CUDNN_TYPE_REDUCTION_OPERATOR_TYPE, how);
  mode->finalize();
  CudnnDescriptor& reduction = operation(CUDNN_BACKEND_OPERATION_REDUCTION_DESCRIPTOR);
  reduction.set(CUDNN_ATTR_OPERATION_REDUCTION_DESC, *mode);
  reduction.set(CUDNN_ATTR_OPERATION_REDUCTION_XDESC, at(x));
  reduction.set(CUDNN_ATTR_OPERATION_REDUCTION_YDESC, at(y));
  reduction.finalize();
  modes_.push_back(std::move(mode));
}

void CudnnGraph::reshape(int64_t x, int64_t y) {
  CudnnDescriptor& view = operation(CUDNN_BACKEND_OPERATION_RESHAPE_DESCRIPTOR);
  view.set(CUDNN_ATTR_OPERATION_RESHAPE_XDESC, at(x));
  view.set(CUDNN_ATTR_OPERATION_RESHAPE_YDESC, at(y));
  view.finalize();
}

CudnnPlan::CudnnPlan(CudnnGraph graph, cudnnHandle_t handle) : graph_(std::move(graph)) {
  std::vector<cudnnBackendDescriptor_t> operations;
  for (const auto& operation : graph_.operations_) operations.push_back(operation->get());
  operation_graph_ = std::make_unique<CudnnDescriptor>(CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR);
  operation_graph_->set(CUDNN_ATTR_OPERATIONGRAPH_HANDLE, CUDNN_TYPE_HANDLE, handle);
  operation_graph_->set(CUDNN_ATTR_OPERATIONGRAPH_OPS, CUDNN_TYPE_BACKEND_DESCRIPTOR,
                        static_cast<int64_t>(operations.size()), operations.data());
  operation_graph_->finalize();
  for (auto& config : proposals(*operation_graph_)) {
    try {
      choice_ = accepted(std::move(config), handle);
      return;
    } catch (const CudnnUnsupported&) {
      continue;  // try the next configuration
    }
  }
  throw CudnnUnsupported("cuDNN: no engine supports this graph");
}

CudnnPlan::Choice CudnnPlan::accepted(std::unique_ptr<CudnnDescriptor> config, cudnnHandle_t handle) {
  Choice choice;
  choice.plan = std::make_unique<CudnnDescriptor>(CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR);
  choice.plan->set(CUDNN_ATTR_EXECUTION_PLAN_HANDLE, CUDNN_TYPE_HANDLE, handle);
  choice.plan->set(CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG, *config);
  choice.plan->finalize();
  int64_t count = 0;
  require(cudnn().BackendGetAttribute(choice.plan->get(), CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE, CUDNN_TYPE_INT64, 1,
                                      &count, &choice.workspace_bytes),
          "querying the workspace size");
  choice.config = std::move(config);
  return choice;
}

void CudnnPlan::autotune(const Device& device, cudnnHandle_t handle, const std::vector<Binding>& bindings) {
  constexpr int kTrials = 3;
  constexpr double kWorth = 0.98;  // factor on the time: a later proposal must be at least 2 % faster
  measured_ = true;
  const int64_t engine = engine_of(*choice_.config);
  const lamina::cuda::StreamTimer timer(lamina::cuda::stream_of(device));
  double best = 0;
  for (auto& config : proposals(*operation_graph_)) {
    if (engine_of(*config) != engine) continue;
    try {
      Choice choice = accepted(std::move(config), handle);
      run(choice, device, handle, bindings);
      const double seconds = timer.min_seconds(kTrials, [&] { run(choice, device, handle, bindings); });
      if (best != 0 && seconds > kWorth * best) continue;
      best = seconds;
      choice_ = std::move(choice);
    } catch (const CudnnUnsupported&) {
      continue;
    }
  }
}

void CudnnPlan::run(const Device& device, cudnnHandle_t handle, const std::vector<Binding>& bindings) {
  if (!measured_ && lamina::cuda::autotunes(device)) autotune(device, handle, bindings);
  run(choice_, device, handle, bindings);
}

void CudnnPlan::run(const Choice& choice, const Device& device, cudnnHandle_t handle,
                    const std::vector<Binding>& bindings) const {
  const Tensor workspace = Tensor::empty({std::max<int64_t>(choice.workspace_bytes, 1)}, DType::u8, device);
  std::vector<int64_t> numbers;
  std::vector<void*> addresses;
  for (const Binding& binding : bindings) {
    numbers.push_back(binding.tensor);
    addresses.push_back(binding.address);
  }
  for (const CudnnGraph::Constant& constant : graph_.constants_) {
    numbers.push_back(constant.tensor);
    addresses.push_back(const_cast<float*>(&constant.value));
  }
  const auto count = static_cast<int64_t>(numbers.size());
  CudnnDescriptor pack(CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR);
  pack.set(CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS, CUDNN_TYPE_INT64, count, numbers.data());
  pack.set(CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS, CUDNN_TYPE_VOID_PTR, count, addresses.data());
  pack.set(CUDNN_ATTR_VARIANT_PACK_WORKSPACE, CUDNN_TYPE_VOID_PTR, workspace.raw());
  pack.finalize();
  require(cudnn().BackendExecute(handle, choice.plan->get(), pack.get()), "running a plan");
}

}  // namespace lamina::ops::cuda
