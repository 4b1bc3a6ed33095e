#pragma once

#include "lamina/tensor/tensor.h"

namespace lamina::ops {

constexpr int64_t round_up(int64_t n, int64_t step) { return (n + step - 1) / step * step; }

/// Scratch memory of one task, from the device's allocator, in pieces aligned to 64 bytes. Call take() for all pieces
/// twice in the same order: first to add up the sizes and then, after allocate(), to get the addresses.
template <class A>
class TileScratch {
 public:
  A* take(int64_t count) {
    A* piece = base_ == nullptr ? nullptr : base_ + used_;
    used_ += round_up(count, 64 / static_cast<int64_t>(sizeof(A)));
    return piece;
  }
  void allocate(const Device& device) {
    memory_ = Tensor::empty({used_}, dtype_of<A>(), device);
    base_ = memory_.template data<A>();
    used_ = 0;
  }

 private:
  Tensor memory_;
  A* base_ = nullptr;
  int64_t used_ = 0;
};

}  // namespace lamina::ops
