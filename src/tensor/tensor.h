#pragma once

#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "lamina/base/dtype.h"
#include "lamina/base/error.h"
#include "lamina/base/shape.h"
#include "lamina/tensor/device.h"

namespace lamina {

class Tensor;

/// Hook through which the tape tracks a tensor's gradient. Views and copies record themselves with it, so that this
/// library need not depend on autograd.
class GradLink {
 public:
  virtual ~GradLink() = default;
  /// Records that `result` was made from this tensor by a view, copy or conversion. `pullback` maps the gradient of the
  /// result to that of the source. Attaches a link to `result` if recording is on.
  virtual void record_view(const char* what, Tensor& result, std::function<Tensor(const Tensor&)> pullback) = 0;
  /// Throws if writing to the tensor now would make a gradient wrong.
  virtual void check_writable(const char* what) const = 0;
};

/// A strided array on a device. Copying a Tensor copies a reference. Views share memory with their source.
class Tensor {
 public:
  Tensor() = default;

  static Tensor empty(const Shape& shape, DType dtype, const Device& device);               ///< uninitialised
  static Tensor zeros(const Shape& shape, DType dtype, const Device& device);               ///< filled with 0
  static Tensor full(const Shape& shape, double value, DType dtype, const Device& device);  ///< filled with `value`
  /// Copies the values, in row-major order. T is an element type.
  template <class T>
  static Tensor from(std::span<const T> values, const Shape& shape, const Device& device);
  /// Copies a vector.
  template <class T>
  static Tensor from(const std::vector<T>& values, const Shape& shape, const Device& device) {
    return from(std::span<const T>(values), shape, device);
  }
  /// Wraps memory without a copy. `owner` keeps it valid, for example a mapped file.
  static Tensor borrow(void* data, const Shape& shape, DType dtype, const Device& device, std::shared_ptr<void> owner);

  /// Whether this handle refers to a tensor. Operators treat an undefined one as "none".
  bool defined() const { return impl_ != nullptr; }
  const Shape& shape() const { return impl().shape; }      ///< extents
  const Shape& strides() const { return impl().strides; }  ///< in elements
  int rank() const { return shape().rank(); }              ///< number of dimensions
  int64_t dim(int axis) const { return shape()[axis]; }    ///< extent of an axis; negative axes count from the end
  int64_t numel() const { return impl().numel; }           ///< number of elements
  DType dtype() const { return impl().dtype; }             ///< type of the elements
  const Device& device() const;                            ///< where the elements are
  bool is_meta() const { return device().kind() == DeviceKind::meta; }  ///< whether there are no elements, only a shape
  bool is_contiguous() const;  ///< whether the elements are dense and in row-major order
  /// Size of this tensor's elements in bytes.
  int64_t nbytes() const { return numel() * static_cast<int64_t>(size_of(dtype())); }

  /// First element; T must match dtype(). Null for a meta tensor.
  template <class T>
  T* data() const;
  void* raw() const;  ///< address of the first element
  /// Copies the elements to the host in row-major order, converted to T.
  template <class T>
  std::vector<T> to_vector() const;
  /// The value of a one-element tensor.
  double item() const;

  // Views. They share memory, and gradients flow through them.
  /// One extent may be -1. Copies if the strides allow no view.
  Tensor reshape(const Shape& shape) const;
  Tensor transpose(int axis_a, int axis_b) const;               ///< swaps two axes
  Tensor slice(int axis, int64_t begin, int64_t length) const;  ///< `length` elements of an axis from `begin` on
  /// The union of slices that are adjacent along an axis of one tensor, as a view. Undefined if they are not adjacent.
  static Tensor adjacent_view(const std::vector<Tensor>& slices, int axis);

  // Copies. Gradients flow through them.
  Tensor contiguous() const;              ///< this tensor if it is contiguous, else a dense copy
  Tensor clone() const;                   ///< always a copy
  Tensor to(DType dtype) const;           ///< this tensor if it has the dtype, else a converted copy
  Tensor to(const Device& device) const;  ///< this tensor if it is there, else a copy

  /// Returns a handle to the same memory that no tape tracks.
  Tensor detach() const;

  // In-place operations. They throw if they would make a gradient wrong.
  Tensor& copy_(const Tensor& source);  ///< converts dtype and device; same shape
  Tensor& fill_(double value);          ///< every element becomes `value`
  /// this += other; computed in f32 (f64 for f64) and rounded to this tensor's dtype.
  Tensor& add_(const Tensor& other);

  /// Number of in-place writes so far; the tape uses it to detect overwritten saved tensors.
  uint64_t version() const;
  /// For operators that write through data(): throws if writing is not allowed now, otherwise increments version().
  void mark_written(const char* what) const;
  bool shares_memory_with(const Tensor& other) const;  ///< whether both use the same storage
  /// Whether no other tensor shares this memory.
  bool owns_memory_alone() const;
  /// Whether both are the same elements of one storage in the same order.
  bool is_same_view(const Tensor& other) const;

  // Memory that is given back temporarily. Shape, views and tape records stay valid; the values must not be used
  // meanwhile.
  /// Frees the memory that this tensor and its views share. Not for borrowed memory.
  void release_memory() const;
  /// Allocates released memory again. `fill` gets an untracked handle of this tensor and must write the values that
  /// were released. This does not count as a write, so tape records stay valid.
  void restore_memory(const std::function<void(Tensor)>& fill) const;
  bool has_memory() const;  ///< false between release_memory() and restore_memory()

  const std::shared_ptr<GradLink>& grad_link() const { return impl().link; }  ///< null if no tape tracks this tensor
  void set_grad_link(std::shared_ptr<GradLink> link) { impl().link = std::move(link); }  ///< for tapes

 private:
  struct Storage;
  struct Impl {
    std::shared_ptr<Storage> storage;
    Shape shape;
    Shape strides;
    int64_t offset = 0;
    int64_t numel = 0;
    DType dtype = DType::f32;
    std::shared_ptr<GradLink> link;
  };

  Impl& impl() const {
    LAMINA_CHECK(impl_ != nullptr, "an undefined tensor was used; assign a tensor first");
    return *impl_;
  }
  Tensor view(const Shape& shape, const Shape& strides, int64_t offset) const;
  void record_view(const char* what, Tensor& result, std::function<Tensor(const Tensor&)> pullback) const;

  std::shared_ptr<Impl> impl_;
};

}  // namespace lamina
