#pragma once

#include <cudnn.h>

#include <memory>
#include <vector>

#include "lamina/base/error.h"
#include "lamina/tensor/tensor.h"

namespace lamina::ops::cuda {

/// A descriptor of cuDNN's backend, owned.
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

/// Thrown where cuDNN refuses something; callers then do without it.
class CudnnRefusal : public Error {
 public:
  using Error::Error;
};

/// Four extents, [batch, heads, rows, columns], or strides.
using CudnnExtents = std::vector<int64_t>;

/// A graph of tensor operations that cuDNN turns into one kernel or a few. Tensors are named by number, from 0 in the
/// order of their making; operations are added in the order of the data's flow.
class CudnnGraph {
 public:
  /// In memory of the caller's, whose address is given when the plan runs.
  int64_t tensor(cudnnDataType_t type, const CudnnExtents& extents, const CudnnExtents& strides);
  /// A number that is given when the plan runs.
  int64_t number();
  /// A number that never changes.
  int64_t constant(float value);
  /// Between two operations only.
  int64_t between(const CudnnExtents& extents, cudnnDataType_t type = CUDNN_DATA_FLOAT);
  int64_t between(const CudnnExtents& extents, const CudnnExtents& strides, cudnnDataType_t type);

  void multiply(int64_t a, int64_t b, int64_t c);
  /// y = mode(x), mode(x, b) or, for a choice, mode(x, b, t); −1 for what there is not.
  void pointwise(cudnnPointwiseMode_t mode, int64_t x, int64_t b, int64_t y, int64_t t = -1,
                 cudnnDataType_t precision = CUDNN_DATA_FLOAT);
  /// y = each element's index along an axis of x.
  void index(int64_t x, int64_t axis, int64_t y);
  void reduce(cudnnReduceTensorOp_t mode, int64_t x, int64_t y);
  /// The same elements under other extents.
  void reshape(int64_t x, int64_t y);

 private:
  friend class CudnnPlan;
  int64_t add(cudnnDataType_t type, const CudnnExtents& extents, const CudnnExtents& strides, bool is_virtual,
              bool by_value);
  CudnnDescriptor& operation(cudnnBackendDescriptorType_t type);
  const CudnnDescriptor& at(int64_t tensor) const { return *tensors_[static_cast<size_t>(tensor)]; }

  std::vector<std::unique_ptr<CudnnDescriptor>> tensors_;
  std::vector<std::unique_ptr<CudnnDescriptor>> operations_;
  std::vector<std::unique_ptr<CudnnDescriptor>> modes_;  // that the operations point to
  struct Constant {
    int64_t tensor;
    float value;
  };
  std::vector<Constant> constants_;
};

/// What cuDNN runs for a graph: the first of its proposals that it accepts. Throws CudnnRefusal where it accepts none.
class CudnnPlan {
 public:
  CudnnPlan(CudnnGraph graph, cudnnHandle_t handle);

  struct Binding {
    int64_t tensor;
    void* address;  ///< on the device, or on the host for a number
  };
  /// Where the device chooses by measuring, the fastest of the proposals of the first one's engine is found before the
  /// first run; it is tried on these tensors.
  void run(const Device& device, cudnnHandle_t handle, const std::vector<Binding>& bindings);

 private:
  /// An engine with its settings, ready to run.
  struct Choice {
    std::unique_ptr<CudnnDescriptor> config;
    std::unique_ptr<CudnnDescriptor> plan;
    int64_t workspace_bytes = 0;
  };
  static Choice accepted(std::unique_ptr<CudnnDescriptor> config, cudnnHandle_t handle);
  void choose(const Device& device, cudnnHandle_t handle, const std::vector<Binding>& bindings);
  void run(const Choice& choice, const Device& device, cudnnHandle_t handle,
           const std::vector<Binding>& bindings) const;

  CudnnGraph graph_;
  std::unique_ptr<CudnnDescriptor> operation_graph_;
  Choice choice_;
  bool measured_ = false;
};

}  // namespace lamina::ops::cuda
