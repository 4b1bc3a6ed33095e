// Copies iterate over the outer dimensions and convert one innermost run at a time (merged_dims.h). Contiguous runs
// between f32, bf16 and f16, and runs of one type, use SIMD; large f32 and f64 targets use streaming stores.
// Transposing copies of f32 transpose small squares in registers. All other types are converted one element at a time.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "lamina/tensor/copy_cpu.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include <cstring>

#include "lamina/base/simd_stream-inl.h"
#include "lamina/tensor/copy.h"
#include "lamina/tensor/merged_dims.h"
#include "lamina/tensor/transpose_copy-inl.h"

HWY_BEFORE_NAMESPACE();
namespace lamina::cpu::HWY_NAMESPACE {
using namespace lamina::HWY_NAMESPACE;  // NOLINT: SIMD helpers of this target

/// The type in which a conversion computes (see base/dtype.h).
template <class From, class To>
using Between = std::conditional_t<std::is_same_v<From, double> || std::is_same_v<To, double>, double, float>;

/// Whether SIMD can load From and store To by a common compute type.
template <class From, class To>
inline constexpr bool kInVectors = std::is_same_v<Accumulate<From>, Accumulate<To>>;

template <class From, class To>
struct ConvertRun {
  bool large;  ///< the target exceeds the last-level cache: use streaming stores

  void operator()(const From* from, int64_t from_stride, To* to, int64_t to_stride, int64_t count) const {
    if (from_stride != 1 || to_stride != 1 || !kInVectors<From, To>) {
      for (int64_t i = 0; i < count; ++i) to[i * to_stride] = convert<To>(from[i * from_stride]);
      return;
    }
    const bool streaming = large && count >= 1024 && reinterpret_cast<uintptr_t>(to) % 64 == 0;
    if constexpr (std::is_same_v<From, To>) {
      if (!streaming || sizeof(To) != sizeof(Accumulate<To>)) {
        std::memcpy(to, from, static_cast<size_t>(count) * sizeof(To));
        return;
      }
    }
    if constexpr (kInVectors<From, To>) {
      const ComputeTag<To> d;
      for_vectors(d, count,
                  [&](int64_t i, size_t n) HWY_ATTR { put_n(d, load_n(d, from + i, n), to + i, n, streaming); });
    }
    if (streaming) hwy::FlushStream();
  }
};

template <class From, class To>
struct AddRun {
  void operator()(const From* from, int64_t from_stride, To* to, int64_t to_stride, int64_t count) const {
    if constexpr (kInVectors<From, To>) {
      if (from_stride == 1 && to_stride == 1) {
        const ComputeTag<To> d;
        for_vectors(d, count, [&](int64_t i, size_t n) HWY_ATTR {
          store_n(d, hn::Add(load_n(d, to + i, n), load_n(d, from + i, n)), to + i, n);
        });
        return;
      }
    }
    using A = Between<From, To>;
    for (int64_t i = 0; i < count; ++i) {
      to[i * to_stride] = convert<To>(convert<A>(to[i * to_stride]) + convert<A>(from[i * from_stride]));
    }
  }
};

void copy_floating(const Tensor& source, Tensor& target) {
  const MergedDims dims = merge_dimensions(source, target);
  const bool large = exceeds_last_level_cache(target.nbytes());
  const int transposed = transposed_axis(dims);
  if (transposed >= 0 && dims.target_strides[dims.shape.rank() - 1] == 1 && source.dtype() == DType::f32 &&
      target.dtype() == DType::f32) {
    transpose_copy(target.device().threads(), dims, transposed, source.data<float>(), target.data<float>(), large);
    return;
  }
  visit_floating(source.dtype(), [&](auto from) {
    visit_floating(target.dtype(), [&](auto to) {
      using From = typename decltype(from)::type;
      using To = typename decltype(to)::type;
      const ConvertRun<From, To> run{large};
      for_each_run(target.device().threads(), dims, source.raw(), target.raw(), RunRef::of<From, To>(run));
    });
  });
}

void accumulate_floating(const Tensor& source, Tensor& target) {
  const MergedDims dims = merge_dimensions(source, target);
  visit_floating(source.dtype(), [&](auto from) {
    visit_floating(target.dtype(), [&](auto to) {
      using From = typename decltype(from)::type;
      using To = typename decltype(to)::type;
      const AddRun<From, To> run;
      for_each_run(target.device().threads(), dims, source.raw(), target.raw(), RunRef::of<From, To>(run));
    });
  });
}

}  // namespace lamina::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace lamina::cpu {
HWY_EXPORT(copy_floating);
HWY_EXPORT(accumulate_floating);

namespace {

struct ConvertOneByOne {
  template <class From, class To>
  void operator()(const From* from, int64_t from_stride, To* to, int64_t to_stride, int64_t count) const {
    if constexpr (std::is_same_v<From, To>) {
      if (from_stride == 1 && to_stride == 1) {
        std::memcpy(to, from, static_cast<size_t>(count) * sizeof(To));
        return;
      }
    }
    for (int64_t i = 0; i < count; ++i) to[i * to_stride] = convert<To>(from[i * from_stride]);
  }
};

}  // namespace

void copy(const Tensor& source, Tensor& target) {
  if (target.numel() == 0) return;
  if (is_floating(source.dtype()) && is_floating(target.dtype())) {
    HWY_DYNAMIC_DISPATCH(copy_floating)(source, target);
    return;
  }
  const MergedDims dims = merge_dimensions(source, target);
  visit_dtype(source.dtype(), [&](auto from) {
    visit_dtype(target.dtype(), [&](auto to) {
      using From = typename decltype(from)::type;
      using To = typename decltype(to)::type;
      if constexpr (std::is_integral_v<From> || std::is_integral_v<To>) {
        for_each_run(target.device().threads(), dims, source.raw(), target.raw(),
                     RunRef::of<From, To>(ConvertOneByOne{}));
      }
    });
  });
}

void accumulate(const Tensor& source, Tensor& target) {
  if (target.numel() > 0) HWY_DYNAMIC_DISPATCH(accumulate_floating)(source, target);
}

void fill(Tensor& target, double value) {
  if (target.numel() == 0) return;
  visit_dtype(target.dtype(), [&](auto tag) {
    using T = typename decltype(tag)::type;
    T element = convert<T>(value);
    T* first = target.data<T>();
    if (target.is_contiguous()) {
      target.device().threads().ranges(
          target.numel(), 16384, [&](int64_t begin, int64_t end) { std::fill(first + begin, first + end, element); });
      return;
    }
    MergedDims dims = merge_dimensions(target, target);
    for (int axis = 0; axis < dims.shape.rank(); ++axis) dims.source_strides[axis] = 0;
    for_each_run(target.device().threads(), dims, &element, first, RunRef::of<T, T>(ConvertOneByOne{}));
  });
}

}  // namespace lamina::cpu
#endif
