#pragma once

#include <cudnn.h>

#include <memory>
#include <vector>

#include "lamina/base/error.h"
#include "lamina/ops/attention/cuda/cudnn/cudnn_functions.h"
#include "lamina/tensor/tensor.h"

namespace lamina::ops::cuda {

/// RAII wrapper of a cuDNN backend descriptor.
class CudnnDescriptor {
 public:
  explicit CudnnDescriptor(cudnnBackendDescriptorType_t type);
  ~CudnnDescriptor();
  CudnnDescriptor(const CudnnDescriptor&) = delete;
  CudnnDescriptor& operator=(const CudnnDescriptor&) = delete;

  cudnnBackendDescriptor_t get() const { return descriptor_; }
  void set(cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type, int64_t count, const void* values);
  template <class T>
  void set(cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type, const T& value) {
    set(name, type, 1, &value);
  }
  void set(cudnnBackendAttributeName_t name, const CudnnDescriptor& other) {
    set(name, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &other.descriptor_);
  }
  void finalize();

 private:
  cudnnBackendDescriptor_t descriptor_ = nullptr;
};

/// Thrown if cuDNN does not support something; callers then fall back to other kernels.
class CudnnUnsupported : public Error {
 public:
  using Error::Error;
};

/// Four sizes or strides, of [batch, heads, rows, columns].
using CudnnExtents = std::vector<int64_t>;

/// A graph of tensor operations that cuDNN compiles into one or a few kernels. Tensors are numbered from 0 in the order
/// of creation. Operations must be added in topological order.
class CudnnGraph {
 public:
  /// Adds a tensor in the caller's memory. Its address is given when the plan runs.
  int64_t tensor(cudnnDataType_t type, const CudnnExtents& extents, const CudnnExtents& strides);
  /// Adds a scalar whose value is given when the plan runs.
  int64_t scalar();
  /// Adds a constant scalar.
  int64_t constant(float value);
  /// Adds a virtual tensor: an intermediate result that is not stored.
  int64_t virtual_tensor(const CudnnExtents& extents, cudnnDataType_t type = CUDNN_DATA_FLOAT);
  int64_t virtual_tensor(const CudnnExtents& extents, const CudnnExtents& strides, cudnnDataType_t type);

  void multiply(int64_t a, int64_t b, int64_t c);
  /// y = mode(x), mode(x, b) or, for a select, mode(x, b, t). Operands that do not exist are −1.
  void pointwise(cudnnPointwiseMode_t mode, int64_t x, int64_t b, int64_t y, int64_t t = -1,
                 cudnnDataType_t precision = CUDNN_DATA_FLOAT);
  /// y = the index of each element along an axis of x.
  void index(int64_t x, int64_t axis, int64_t y);
  void reduce(cudnnReduceTensorOp_t mode, int64_t x, int64_t y);
  /// y = x with a different shape.
  void reshape(int64_t x, int64_t y);

 private:
  friend class CudnnPlan;
  int64_t add(cudnnDataType_t type, const CudnnExtents& extents, const CudnnExtents& strides, bool is_virtual,
              bool by_value);
  CudnnDescriptor& operation(cudnnBackendDescriptorType_t type);
  const CudnnDescriptor& at(int64_t tensor) const { return *tensors_[static_cast<size_t>(tensor)]; }

  std::vector<std::unique_ptr<CudnnDescriptor>> tensors_;
  std::vector<std::unique_ptr<CudnnDescriptor>> operations_;
  std::vector<std::unique_ptr<CudnnDescriptor>> modes_;  // referenced by the operations
  struct Constant {
    int64_t tensor;
    float value;
  };
  std::vector<Constant> constants_;
};

/// An execution plan for a graph: the first engine configuration that cuDNN accepts. Throws CudnnUnsupported if there
/// is none.
class CudnnPlan {
 public:
  CudnnPlan(CudnnGraph graph, cudnnHandle_t handle);

  struct Binding {
    int64_t tensor;
    void* address;  ///< in device memory; for a scalar, in host memory
  };
  /// Runs the plan. If the device autotunes, the first run times the configurations of the chosen engine on these
  /// tensors and keeps the fastest.
  void run(const Device& device, cudnnHandle_t handle, const std::vector<Binding>& bindings);

 private:
  /// An engine configuration, ready to run.
  struct Choice {
    std::unique_ptr<CudnnDescriptor> config;
    std::unique_ptr<CudnnDescriptor> plan;
    int64_t workspace_bytes = 0;
  };
  static Choice accepted(std::unique_ptr<CudnnDescriptor> config, cudnnHandle_t handle);
  void autotune(const Device& device, cudnnHandle_t handle, const std::vector<Binding>& bindings);
  void run(const Choice& choice, const Device& device, cudnnHandle_t handle,
           const std::vector<Binding>& bindings) const;

  CudnnGraph graph_;
  std::unique_ptr<CudnnDescriptor> operation_graph_;
  Choice choice_;
  bool measured_ = false;
};

}  // namespace lamina::ops::cuda
