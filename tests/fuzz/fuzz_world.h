#pragma once

#include <cstdlib>

#include "fuzz_bytes.h"
#include "lamina/autograd/tape.h"

namespace lamina::fuzz {

/// Rejects blocks above 256 KB: keeps runs fast, and huge sizes fail as on a real device without killing the fuzzer.
class SmallMemory final : public Allocator {
 public:
  void* allocate(size_t bytes) override {
    LAMINA_CHECK(bytes <= kMost, "out of memory: ", bytes, " bytes wanted");
    void* block = std::aligned_alloc(64, (bytes + 63) / 64 * 64);
    LAMINA_CHECK(block != nullptr, "out of memory");
    return block;
  }
  void deallocate(void* block, size_t /*bytes*/) noexcept override { std::free(block); }  // NOLINT
  void trim() override {}
  MemoryCounters counters() const override { return {}; }
  void reset_peak() override {}

 private:
  static constexpr size_t kMost = size_t{256} << 10;
};

/// State shared by the calls of one input: a few tensors (the newest replaces the oldest) and a tape.
class World {
 public:
  World(Bytes& bytes, const Device& cpu, const Device& meta) : bytes_(bytes), cpu_(cpu), meta_(meta) {
    for (const Shape& shape : {Shape{3, 4}, Shape{4}, Shape{2, 3, 4}}) keep(fresh(shape, DType::f32, cpu));
  }

  Bytes& bytes() { return bytes_; }
  Tape& tape() { return tape_; }
  const Device& device() { return bytes_.below(8) == 0 ? meta_ : cpu_; }

  /// An existing tensor, a new one, or (rarely) an undefined one.
  Tensor tensor() {
    const int choice = bytes_.below(16);
    if (choice == 0) return {};
    if (choice < 10) return kept_[static_cast<size_t>(choice) % kKept];
    return fresh(bytes_.shape(), bytes_.mostly_floating());
  }
  /// A tensor that mostly fits `like`, so that calls pass the first checks.
  Tensor like(const Tensor& like) {
    if (!like.defined() || bytes_.below(4) == 0) return tensor();
    return fresh(like.shape(), bytes_.below(4) == 0 ? bytes_.dtype() : like.dtype(), like.device());
  }
  Tensor vector_like(const Tensor& like) {
    if (!like.defined() || like.rank() == 0 || bytes_.below(4) == 0) return tensor();
    return fresh({like.dim(-1)}, bytes_.mostly_floating(), like.device());
  }
  /// Mostly a new tensor of the given shape and type on the CPU.
  Tensor fits(const Shape& shape, DType dtype = DType::f32) {
    return bytes_.below(12) == 0 ? tensor() : fresh(shape, dtype, cpu_);
  }
  Tensor fits_or_none(const Shape& shape, DType dtype = DType::f32) {
    return bytes_.flag() ? Tensor() : fits(shape, dtype);
  }
  Tensor fresh(const Shape& shape, DType dtype) { return fresh(shape, dtype, device()); }
  Tensor fresh(const Shape& shape, DType dtype, const Device& device) {
    return Tensor::full(shape, bytes_.number(), dtype, device);
  }

  void keep(const Tensor& tensor) { kept_[next_++ % kKept] = tensor; }

 private:
  static constexpr size_t kKept = 6;
  Bytes& bytes_;
  const Device& cpu_;
  const Device& meta_;
  Tape tape_;
  Tensor kept_[kKept];
  size_t next_ = 0;
};

}  // namespace lamina::fuzz
