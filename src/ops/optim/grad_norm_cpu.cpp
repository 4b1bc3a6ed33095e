// Each chunk sums its squares in f64, and the chunks' sums are added in order. f64 holds the square of any f32, so f32,
// bf16 and f16 never overflow. NaN and infinity are searched for only if a sum is not finite.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "lamina/ops/optim/grad_norm_cpu.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include <cmath>

#include "lamina/base/simd-inl.h"
#include "lamina/ops/optim/grad_norm_kernel.h"
#include "lamina/ops/optim/slots_kernel.h"

HWY_BEFORE_NAMESPACE();
namespace lamina::ops::HWY_NAMESPACE {
using namespace lamina::HWY_NAMESPACE;  // NOLINT: SIMD helpers of this target

inline double squares_of_piece(const double* x, int64_t n) {
  const hn::ScalableTag<double> d;
  auto sum = hn::Zero(d);
  for_vectors(d, n, [&](int64_t i, size_t count) HWY_ATTR {
    const auto v = load_n(d, x + i, count);
    sum = hn::MulAdd(v, v, sum);
  });
  return hn::GetLane(hn::SumOfLanes(d, sum));
}

/// Σ x² of n elements of f32, bf16 or f16. Each f32 vector is squared as two f64 vectors; two f32 vectors are in
/// flight.
template <class T>
double squares_of_piece(const T* x, int64_t n) {
  const hn::ScalableTag<float> d;
  const hn::Repartition<double, decltype(d)> wide;
  const hn::Half<decltype(d)> half;
  auto sum0 = hn::Zero(wide);
  auto sum1 = hn::Zero(wide);
  auto sum2 = hn::Zero(wide);
  auto sum3 = hn::Zero(wide);
  const auto add = [&](hn::Vec<decltype(d)> v, auto& low, auto& high) HWY_ATTR {
    const auto a = hn::PromoteTo(wide, hn::LowerHalf(half, v));
    const auto b = hn::PromoteTo(wide, hn::UpperHalf(half, v));
    low = hn::MulAdd(a, a, low);
    high = hn::MulAdd(b, b, high);
  };
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  int64_t i = 0;
  for (; i + 2 * lanes <= n; i += 2 * lanes) {
    add(load(d, x + i), sum0, sum1);
    add(load(d, x + i + lanes), sum2, sum3);
  }
  for_vectors(d, n - i, [&](int64_t j, size_t count) HWY_ATTR { add(load_n(d, x + i + j, count), sum0, sum1); });
  return hn::GetLane(hn::SumOfLanes(wide, hn::Add(hn::Add(sum0, sum1), hn::Add(sum2, sum3))));
}

template <class T>
void scale_piece(T* x, double factor, int64_t n) {
  const ComputeTag<T> d;
  const auto scale = hn::Set(d, static_cast<Accumulate<T>>(factor));
  for_vectors(d, n, [&](int64_t i, size_t count) HWY_ATTR {
    store_n(d, hn::Mul(load_n(d, x + i, count), scale), x + i, count);
  });
}

inline Chunks chunks_of(const std::vector<Tensor>& tensors) {
  std::vector<int64_t> sizes;
  sizes.reserve(tensors.size());
  for (const Tensor& tensor : tensors) sizes.push_back(tensor.numel());
  return Chunks(sizes);
}

/// The first NaN or infinity of this chunk, if any.
inline std::optional<BadElement> find_bad(const std::vector<Tensor>& tensors, const Chunks& chunks, int64_t chunk) {
  std::optional<BadElement> bad;
  chunks.each_piece(chunk, [&](size_t index, int64_t begin, int64_t end) {
    visit_floating(tensors[index].dtype(), [&](auto tag) {
      const auto* x = tensors[index].data<typename decltype(tag)::type>();
      for (int64_t i = begin; i < end && !bad; ++i) {
        const auto value = convert<double>(x[i]);
        if (!std::isfinite(value)) bad = BadElement{index, i, value};
      }
    });
  });
  return bad;
}

void sum_of_squares(const std::vector<Tensor>& tensors, GradNorm& result) {
  const Chunks chunks = chunks_of(tensors);
  std::vector<double> partial(static_cast<size_t>(chunks.count()));
  tensors[0].device().threads().tasks(chunks.count(), [&](int64_t chunk) HWY_ATTR {
    double sum = 0;
    chunks.each_piece(chunk, [&](size_t index, int64_t begin, int64_t end) HWY_ATTR {
      visit_floating(tensors[index].dtype(), [&](auto tag) HWY_ATTR {
        sum += squares_of_piece(tensors[index].data<typename decltype(tag)::type>() + begin, end - begin);
      });
    });
    partial[static_cast<size_t>(chunk)] = sum;
  });
  double total = 0;
  for (size_t chunk = 0; chunk < partial.size(); ++chunk) {
    if (!std::isfinite(partial[chunk]) && !result.bad) {
      result.bad = find_bad(tensors, chunks, static_cast<int64_t>(chunk));
    }
    total += partial[chunk];
  }
  result.norm = std::sqrt(total);
}

void chunk_squares(ChunkSquares& args) {
  int64_t first = 0;  // number of the tensor's first chunk
  for (const Tensor& tensor : args.tensors) {
    const int64_t elements = tensor.numel();
    const int64_t count = (elements + args.chunk - 1) / args.chunk;
    visit_floating(tensor.dtype(), [&](auto tag) HWY_ATTR {
      const auto* x = tensor.data<typename decltype(tag)::type>();
      tensor.device().threads().tasks(count, [&](int64_t i) HWY_ATTR {
        const int64_t begin = i * args.chunk;
        args.sums[static_cast<size_t>(first + i)] = squares_of_piece(x + begin, std::min(args.chunk, elements - begin));
      });
    });
    first += count;
  }
}

void scale_tensors(const std::vector<Tensor>& tensors, double factor) {
  const auto piece = [&](size_t index, int64_t begin, int64_t end) HWY_ATTR {
    visit_floating(tensors[index].dtype(), [&](auto tag) HWY_ATTR {
      scale_piece(tensors[index].data<typename decltype(tag)::type>() + begin, factor, end - begin);
    });
  };
  chunks_of(tensors).run(tensors[0].device().threads(), piece);
}

}  // namespace lamina::ops::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace lamina::ops {
HWY_EXPORT(sum_of_squares);
HWY_EXPORT(chunk_squares);
HWY_EXPORT(scale_tensors);

namespace cpu {
void chunk_squares(ChunkSquares& args) { HWY_DYNAMIC_DISPATCH(chunk_squares)(args); }
void sum_of_squares(const std::vector<Tensor>& tensors, GradNorm& result) {
  HWY_DYNAMIC_DISPATCH(sum_of_squares)(tensors, result);
}
void scale_tensors(const std::vector<Tensor>& tensors, double factor) {
  HWY_DYNAMIC_DISPATCH(scale_tensors)(tensors, factor);
}
}  // namespace cpu
}  // namespace lamina::ops
#endif
