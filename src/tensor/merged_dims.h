#pragma once

#include "lamina/tensor/tensor.h"

namespace lamina::cpu {

/// Two tensors of equal shape for element-wise iteration, after merging dimensions.
struct MergedDims {
  Shape shape;
  Shape source_strides;
  Shape target_strides;
};

/// Drops dimensions of extent 1 and merges neighbours that are contiguous in both tensors.
MergedDims merge_dimensions(const Tensor& source, const Tensor& target);

/// For a transposing copy: the outer dimension along which the source is contiguous. −1 for any other copy.
int transposed_axis(const MergedDims& dims);

/// Offsets in elements, in both tensors.
struct Offsets {
  int64_t source = 0;
  int64_t target = 0;
};

/// Offsets of position number `index` when counting over all dimensions except `skipped` and the innermost.
Offsets outer_offsets(const MergedDims& dims, int64_t index, int skipped);

/// A function that converts `count` elements of one dtype to another; strides are in elements. Refers to a callable
/// (const From*, int64_t, To*, int64_t, int64_t), which must outlive it.
class RunRef {
 public:
  template <class From, class To, class F>
  static RunRef of(const F& run) {
    return {&run, sizeof(From), sizeof(To),
            [](const void* object, const void* from, int64_t from_stride, void* to, int64_t to_stride, int64_t count) {
              (*static_cast<const F*>(object))(static_cast<const From*>(from), from_stride, static_cast<To*>(to),
                                               to_stride, count);
            }};
  }

  size_t from_size() const { return from_size_; }
  size_t to_size() const { return to_size_; }
  void operator()(const void* from, int64_t from_stride, void* to, int64_t to_stride, int64_t count) const {
    call_(object_, from, from_stride, to, to_stride, count);
  }

 private:
  using Call = void (*)(const void*, const void*, int64_t, void*, int64_t, int64_t);
  RunRef(const void* object, size_t from_size, size_t to_size, Call call)
      : object_(object), from_size_(from_size), to_size_(to_size), call_(call) {}

  const void* object_;
  size_t from_size_;
  size_t to_size_;
  Call call_;
};

/// Calls run(from, from_stride, to, to_stride, count) for every run along the innermost dimension, in parallel.
void for_each_run(const Threads& threads, const MergedDims& dims, const void* source, void* target, const RunRef& run);

}  // namespace lamina::cpu
