// SIMD vectors run over channels, which are contiguous. Four positions are computed together, so that a tap is loaded
// once for all of them. Rows are accessed by pointers; those of rows before the first position point into the state, or
// to zeros.
//
// Backward works on blocks of positions × channels. It recomputes the sum inside the activation, keeps g = dy · act' of
// the block and of the kernel − 1 rows after it, and computes from g dx and partial sums of dweight and dbias. The
// blocks form at most 64 groups with one partial sum each; these are added in order.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "lamina/ops/ssm/causal_conv1d_cpu.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include <algorithm>
#include <vector>

#include "lamina/base/simd-inl.h"
#include "lamina/base/simd_math-inl.h"
#include "lamina/ops/ssm/causal_conv1d_kernel.h"

HWY_BEFORE_NAMESPACE();
namespace lamina::ops::HWY_NAMESPACE {
using namespace lamina::HWY_NAMESPACE;  // NOLINT: SIMD helpers of this target

constexpr int64_t kTile = 4;        // positions that are computed together
constexpr int64_t kPositions = 64;  // positions per backward block
constexpr int64_t kChannels = 256;  // channels per backward block

/// Calls emit(r, i, count, sum) for R consecutive positions r and vectors of channels i, with sum = Σ_j taps[j] ·
/// rows[r + j][i…].
template <int R, class D, class Row, class A, class Emit>
HWY_INLINE void convolve(D d, const Row* const* rows, const A* taps, int64_t tap_step, int64_t kernel, const A* bias,
                         int64_t n, const Emit& emit) {
  for_vectors(d, n, [&](int64_t i, size_t count) HWY_ATTR {
    hn::Vec<D> sum[R];
#pragma GCC unroll 4
    for (int r = 0; r < R; ++r) sum[r] = bias != nullptr ? load_n(d, bias + i, count) : hn::Zero(d);
    for (int64_t j = 0; j < kernel; ++j) {
      const auto tap = load_n(d, taps + j * tap_step + i, count);
#pragma GCC unroll 4
      for (int r = 0; r < R; ++r) sum[r] = hn::MulAdd(tap, load_n(d, rows[r + j] + i, count), sum[r]);
    }
#pragma GCC unroll 4
    for (int r = 0; r < R; ++r) emit(r, i, count, sum[r]);
  });
}

/// convolve() for a number of positions that is only known at run time, at most kTile.
template <class D, class Row, class A, class Emit>
HWY_INLINE void convolve_tile(D d, int64_t positions, const Row* const* rows, const A* taps, int64_t tap_step,
                              int64_t kernel, const A* bias, int64_t n, const Emit& emit) {
  if (positions == kTile) {
    convolve<kTile>(d, rows, taps, tap_step, kernel, bias, n, emit);
    return;
  }
  for (int64_t p = 0; p < positions; ++p) {
    convolve<1>(d, rows + p, taps, tap_step, kernel, bias, n,
                [&](int, int64_t i, size_t count, auto sum) HWY_ATTR { emit(static_cast<int>(p), i, count, sum); });
  }
}

/// The rows of x of one batch entry, including those before the first position.
template <class T>
struct Rows {
  const T* x;
  const T* state;
  const T* zeros;
  int64_t channels, kernel;

  Rows(const CausalConv1dForward& args, const std::vector<T>& zero, int64_t batch)
      : x(args.x.data<T>() + batch * args.x.dim(1) * args.x.dim(2)),
        state(args.state.defined() ? args.state.data<T>() + batch * args.state.dim(1) * args.state.dim(2) : nullptr),
        zeros(zero.data()),
        channels(args.x.dim(2)),
        kernel(args.taps.dim(0)) {}
  const T* at(int64_t t) const {
    if (t >= 0) return x + t * channels;
    return state != nullptr ? state + (kernel - 1 + t) * channels : zeros;
  }
};

template <class T>
void forward(const CausalConv1dForward& args) {
  using A = Accumulate<T>;
  const int64_t batch = args.x.dim(0);
  const int64_t seq = args.x.dim(1);
  const int64_t channels = args.x.dim(2);
  if (args.x.numel() == 0) return;
  const int64_t kernel = args.taps.dim(0);
  const A* taps = args.taps.data<A>();
  const A* bias = args.bias.defined() ? args.bias.data<A>() : nullptr;
  T* y = args.y.data<T>();
  const std::vector<T> zeros(static_cast<size_t>(channels));
  const int64_t tiles = (seq + kTile - 1) / kTile;
  args.x.device().threads().ranges(batch * tiles, rows_per_range(kTile * channels),
                                   [&](int64_t begin, int64_t end) HWY_ATTR {
                                     const ComputeTag<T> d;
                                     std::vector<const T*> pointers(static_cast<size_t>(kernel + kTile - 1));
                                     for (int64_t tile = begin; tile < end; ++tile) {
                                       const Rows<T> rows(args, zeros, tile / tiles);
                                       const int64_t t = tile % tiles * kTile;
                                       const int64_t positions = std::min(kTile, seq - t);
                                       for (int64_t j = 0; j < kernel + positions - 1; ++j) {
                                         pointers[static_cast<size_t>(j)] = rows.at(t + j - kernel + 1);
                                       }
                                       T* out = y + (tile / tiles * seq + t) * channels;
                                       convolve_tile(d, positions, pointers.data(), taps, channels, kernel, bias,
                                                     channels, [&](int r, int64_t i, size_t count, auto sum) HWY_ATTR {
                                                       if (args.silu) sum = hn::Mul(sum, sigmoid(d, sum));
                                                       store_n(d, sum, out + r * channels + i, count);
                                                     });
                                     }
                                   });
}

/// One task of the backward pass: blocks of positions at channels [channel, channel + width).
template <class T>
struct BackwardBlock {
  using A = Accumulate<T>;
  const CausalConv1dBackward& args;
  const std::vector<T>& zeros;
  int64_t channel, width;
  A* dtaps;  // this group's partial sum at `channel`, or null, as is dbias
  A* dbias;
  int64_t channels = args.forward.x.dim(2);
  int64_t seq = args.forward.x.dim(1);
  int64_t kernel = args.forward.taps.dim(0);
  const A* taps = args.forward.taps.template data<A>() + channel;
  std::vector<A> g = std::vector<A>(static_cast<size_t>((kPositions + kernel - 1) * width));
  std::vector<A> zero_g = std::vector<A>(static_cast<size_t>(width));
  std::vector<const T*> rows = std::vector<const T*>(static_cast<size_t>(kPositions + 2 * kernel));
  std::vector<const A*> g_rows = std::vector<const A*>(static_cast<size_t>(kernel + kTile));

  void run(int64_t batch, int64_t begin) {
    const int64_t end = std::min(begin + kPositions, seq);
    const int64_t g_end = std::min(end + kernel - 1, seq);
    const Rows<T> source(args.forward, zeros, batch);
    // rows[r] belongs to position begin − kernel + 1 + r
    for (int64_t r = 0; r < g_end - begin + kernel - 1; ++r) {
      rows[static_cast<size_t>(r)] = source.at(begin - kernel + 1 + r) + channel;
    }
    make_g(batch, begin, g_end);
    T* dx = args.dx.template data<T>() + batch * seq * channels + channel;
    for (int64_t t = begin; t < end; t += kTile) pull(begin, g_end, t, std::min(kTile, end - t), dx + t * channels);
    if (begin == 0 && args.dstate.defined()) {
      T* dstate = args.dstate.template data<T>() + batch * (kernel - 1) * channels + channel;
      for (int64_t t = 1 - kernel; t < 0; ++t) pull(begin, g_end, t, 1, dstate + (t + kernel - 1) * channels);
    }
    if (dtaps != nullptr) add_taps(end - begin);
    if (dbias != nullptr) add_bias(end - begin);
  }

  void make_g(int64_t batch, int64_t begin, int64_t end) {
    const ComputeTag<T> d;
    const T* dy = args.dy.template data<T>() + (batch * seq + begin) * channels + channel;
    const A* bias = args.forward.bias.defined() ? args.forward.bias.template data<A>() + channel : nullptr;
    if (!args.forward.silu) {
      for (int64_t t = 0; t < end - begin; ++t) {
        for_vectors(d, width, [&](int64_t i, size_t count) HWY_ATTR {
          store_n(d, load_n(d, dy + t * channels + i, count), g.data() + t * width + i, count);
        });
      }
      return;
    }
    for (int64_t t = 0; t < end - begin; t += kTile) {
      convolve_tile(d, std::min(kTile, end - begin - t), rows.data() + t, taps, channels, kernel, bias, width,
                    [&](int r, int64_t i, size_t count, auto sum) HWY_ATTR {
                      const auto slope = silu_slope(d, sum, sigmoid(d, sum));
                      const auto dyv = load_n(d, dy + (t + r) * channels + i, count);
                      store_n(d, hn::Mul(dyv, slope), g.data() + (t + r) * width + i, count);
                    });
    }
  }

  /// Computes dx of positions [t, t + positions) from g of positions [begin, end).
  void pull(int64_t begin, int64_t end, int64_t t, int64_t positions, T* dx) {
    const ComputeTag<T> d;
    for (int64_t m = 0; m < kernel + positions - 1; ++m) {
      const bool inside = t + m >= begin && t + m < end;
      g_rows[static_cast<size_t>(m)] = inside ? g.data() + (t + m - begin) * width : zero_g.data();
    }
    convolve_tile(d, positions, g_rows.data(), taps + (kernel - 1) * channels, -channels, kernel,
                  static_cast<const A*>(nullptr), width, [&](int r, int64_t i, size_t count, auto sum) HWY_ATTR {
                    store_n(d, sum, dx + r * channels + i, count);
                  });
  }

  template <int J>
  void add_some_taps(int64_t positions, int64_t first) {
    const ComputeTag<T> d;
    for_vectors(d, width, [&](int64_t i, size_t count) HWY_ATTR {
      hn::Vec<ComputeTag<T>> sum[J];
#pragma GCC unroll 4
      for (int j = 0; j < J; ++j) sum[j] = load_n(d, dtaps + (first + j) * channels + i, count);
      for (int64_t t = 0; t < positions; ++t) {
        const auto gv = load_n(d, g.data() + t * width + i, count);
#pragma GCC unroll 4
        for (int j = 0; j < J; ++j) {
          sum[j] = hn::MulAdd(gv, load_n(d, rows[static_cast<size_t>(t + first + j)] + i, count), sum[j]);
        }
      }
#pragma GCC unroll 4
      for (int j = 0; j < J; ++j) store_n(d, sum[j], dtaps + (first + j) * channels + i, count);
    });
  }

  void add_taps(int64_t positions) {
    int64_t j = 0;
    for (; j + 4 <= kernel; j += 4) add_some_taps<4>(positions, j);
    for (; j < kernel; ++j) add_some_taps<1>(positions, j);
  }

  void add_bias(int64_t positions) {
    const ComputeTag<T> d;
    for_vectors(d, width, [&](int64_t i, size_t count) HWY_ATTR {
      auto sum = load_n(d, dbias + i, count);
      for (int64_t t = 0; t < positions; ++t) sum = hn::Add(sum, load_n(d, g.data() + t * width + i, count));
      store_n(d, sum, dbias + i, count);
    });
  }
};

template <class A>
void add_groups(const std::vector<A>& partial, int64_t groups, int64_t stride, int64_t offset, const Tensor& total) {
  if (!total.defined()) return;
  A* to = total.data<A>();
  std::fill_n(to, total.numel(), A{0});
  for (int64_t group = 0; group < groups; ++group) {
    const A* from = partial.data() + group * stride + offset;
    for (int64_t i = 0; i < total.numel(); ++i) to[i] += from[i];
  }
}

template <class T>
void backward(const CausalConv1dBackward& args) {
  using A = Accumulate<T>;
  const int64_t channels = args.forward.x.dim(2);
  const int64_t kernel = args.forward.taps.dim(0);
  const int64_t blocks = (args.forward.x.dim(1) + kPositions - 1) / kPositions;
  const int64_t items = args.forward.x.numel() == 0 ? 0 : args.forward.x.dim(0) * blocks;
  if (args.dstate.defined() && items == 0) {
    std::fill_n(args.dstate.data<T>(), args.dstate.numel(), T{});
  }
  const int64_t per_group = std::max<int64_t>(1, (items + 63) / 64);
  const int64_t groups = (items + per_group - 1) / per_group;
  const int64_t slices = (channels + kChannels - 1) / kChannels;
  const int64_t stride = (kernel + 1) * channels;
  std::vector<A> partial(static_cast<size_t>(groups * stride), A{0});
  const std::vector<T> zeros(static_cast<size_t>(channels));
  args.forward.x.device().threads().tasks(groups * slices, [&](int64_t task) HWY_ATTR {
    const int64_t group = task / slices;
    const int64_t channel = task % slices * kChannels;
    A* share = partial.data() + group * stride + channel;
    BackwardBlock<T> block{args,
                           zeros,
                           channel,
                           std::min(kChannels, channels - channel),
                           args.dtaps.defined() ? share : nullptr,
                           args.dbias.defined() ? share + kernel * channels : nullptr};
    for (int64_t item = group * per_group; item < std::min(items, (group + 1) * per_group); ++item) {
      block.run(item / blocks, item % blocks * kPositions);
    }
  });
  add_groups(partial, groups, stride, 0, args.dtaps);
  add_groups(partial, groups, stride, kernel * channels, args.dbias);
}

template <class T>
void step(const CausalConv1dStep& args) {
  using A = Accumulate<T>;
  const int64_t channels = args.x.dim(1);
  const int64_t kernel = args.weight.dim(1);
  const T* x = args.x.data<T>();
  T* state = args.state.data<T>();
  const A* weight = args.weight.data<A>();
  const A* bias = args.bias.defined() ? args.bias.data<A>() : nullptr;
  T* y = args.y.data<T>();
  args.x.device().threads().ranges(args.x.numel(), rows_per_range(kernel), [&](int64_t begin, int64_t end) HWY_ATTR {
    const ComputeTag<T> d;
    std::vector<A> sums(static_cast<size_t>(end - begin));
    for (int64_t i = begin; i < end; ++i) {
      const A* w = weight + i % channels * kernel;
      T* past = state + i * (kernel - 1);
      A sum = bias != nullptr ? bias[i % channels] : A{0};
      for (int64_t j = 0; j + 1 < kernel; ++j) sum += w[j] * convert<A>(past[j]);
      sums[static_cast<size_t>(i - begin)] = sum + w[kernel - 1] * convert<A>(x[i]);
      for (int64_t j = 0; j + 2 < kernel; ++j) past[j] = past[j + 1];
      if (kernel > 1) past[kernel - 2] = x[i];
    }
    for_vectors(d, end - begin, [&](int64_t i, size_t count) HWY_ATTR {
      const auto v = load_n(d, sums.data() + i, count);
      store_n(d, args.silu ? hn::Mul(v, sigmoid(d, v)) : v, y + begin + i, count);
    });
  });
}

void causal_conv1d_forward(const CausalConv1dForward& args) {
  visit_floating(args.x.dtype(), [&](auto tag) { forward<typename decltype(tag)::type>(args); });
}
void causal_conv1d_backward(const CausalConv1dBackward& args) {
  visit_floating(args.dy.dtype(), [&](auto tag) { backward<typename decltype(tag)::type>(args); });
}
void causal_conv1d_step(const CausalConv1dStep& args) {
  visit_floating(args.x.dtype(), [&](auto tag) { step<typename decltype(tag)::type>(args); });
}

}  // namespace lamina::ops::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace lamina::ops {
HWY_EXPORT(causal_conv1d_forward);
HWY_EXPORT(causal_conv1d_backward);
HWY_EXPORT(causal_conv1d_step);

namespace cpu {
void causal_conv1d_forward(const CausalConv1dForward& args) { HWY_DYNAMIC_DISPATCH(causal_conv1d_forward)(args); }
void causal_conv1d_backward(const CausalConv1dBackward& args) { HWY_DYNAMIC_DISPATCH(causal_conv1d_backward)(args); }
void causal_conv1d_step(const CausalConv1dStep& args) { HWY_DYNAMIC_DISPATCH(causal_conv1d_step)(args); }

void causal_conv1d_state(const Tensor& x, const Tensor& initial_state, const Tensor& state) {
  const int64_t seq = x.dim(1);
  const int64_t channels = x.dim(2);
  const int64_t past = state.dim(2);
  visit_floating(x.dtype(), [&](auto tag) {
    using T = typename decltype(tag)::type;
    const T* before = initial_state.defined() ? initial_state.data<T>() : nullptr;
    for (int64_t row = 0; row < state.dim(0) * channels; ++row) {
      for (int64_t j = 0; j < past; ++j) {
        const int64_t t = seq - past + j;
        T value{};
        if (t >= 0) {
          value = x.data<T>()[(row / channels * seq + t) * channels + row % channels];
        } else if (before != nullptr) {
          value = before[row * past + past + t];
        }
        state.data<T>()[row * past + j] = value;
      }
    }
  });
}
}  // namespace cpu
}  // namespace lamina::ops
#endif
