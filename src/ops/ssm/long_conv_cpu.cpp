// A task is one vector of channels of one batch entry (for gradients, of a group of entries). Its data is copied into
// buffers [positions][lanes] with zero padding. One routine computes all three products. Eight results stay in
// registers while it runs over the taps, so each tap and each new input feeds eight FMAs. du is the same convolution of
// the kernel with the reversed dy, and the reversed dK is the convolution of u with the reversed dy.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "lamina/ops/ssm/long_conv_cpu.cpp"
#include <hwy/aligned_allocator.h>
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include <algorithm>
#include <vector>

#include "lamina/base/simd-inl.h"
#include "lamina/ops/ssm/long_conv_kernel.h"

HWY_BEFORE_NAMESPACE();
namespace lamina::ops::HWY_NAMESPACE {
using namespace lamina::HWY_NAMESPACE;  // NOLINT: SIMD helpers of this target

constexpr int64_t kTile = 8;

/// A buffer [rows][lanes] with kTile rows of zeros before and after.
template <class Real>
class Column {
 public:
  explicit Column(int64_t rows)
      : rows_(rows),
        lanes_(static_cast<int64_t>(hn::Lanes(hn::ScalableTag<Real>()))),
        memory_(hwy::AllocateAligned<Real>(static_cast<size_t>((rows + 2 * kTile) * lanes_))) {
    clear();
  }
  Real* row(int64_t t) const { return memory_.get() + (t + kTile) * lanes_; }
  void clear() { std::fill_n(memory_.get(), (rows_ + 2 * kTile) * lanes_, Real{0}); }
  int64_t rows() const { return rows_; }
  int64_t lanes() const { return lanes_; }

 private:
  int64_t rows_, lanes_;
  hwy::AlignedFreeUniquePtr<Real[]> memory_;
};

/// out[t] += Σ_{s ≤ t, s < taps.rows} taps[s] · in[t − s], for t from `begin`, rounded down to a multiple of the tile,
/// on.
template <class Real>
void convolve(const Column<Real>& in, const Column<Real>& taps, int64_t begin, const Column<Real>& out) {
  const hn::ScalableTag<Real> d;
  const int64_t lanes = in.lanes();
  for (int64_t t = begin / kTile * kTile; t < out.rows(); t += kTile) {
    hn::Vec<hn::ScalableTag<Real>> sum[kTile];
#pragma GCC unroll 8
    for (int64_t r = 0; r < kTile; ++r) sum[r] = hn::Load(d, out.row(t + r));
    const int64_t end = std::min(taps.rows(), t + kTile);
    const Real* tap = taps.row(0);
    const Real* from = in.row(t);
    for (int64_t s = 0; s < end; ++s) {
      const auto k = hn::Load(d, tap);
#pragma GCC unroll 8
      for (int64_t r = 0; r < kTile; ++r) sum[r] = hn::MulAdd(k, hn::Load(d, from + r * lanes), sum[r]);
      tap += lanes;
      from -= lanes;
    }
#pragma GCC unroll 8
    for (int64_t r = 0; r < kTile; ++r) hn::Store(sum[r], d, out.row(t + r));
  }
  // The last tile may have written to the padding rows; clear them.
  for (int64_t t = out.rows(); t < out.rows() + kTile; ++t) hn::Store(hn::Zero(d), d, out.row(t));
}

/// Copies `count` channels of a matrix [seq, channels] into a column, in the order of time or reversed.
template <class T>
void copy_in(const T* from, int64_t channels, size_t count, bool reversed, const Column<Accumulate<T>>& to) {
  const ComputeTag<T> d;
  for (int64_t t = 0; t < to.rows(); ++t) {
    store(d, load_n(d, from + t * channels, count), to.row(reversed ? to.rows() - 1 - t : t));
  }
}

/// Copies `count` channels of a kernel [channels, taps] into a column, as many taps as the column has rows.
template <class Real>
void copy_taps(const Real* kernel, int64_t taps, size_t count, const Column<Real>& to) {
  for (int64_t s = 0; s < to.rows(); ++s) {
    for (size_t lane = 0; lane < count; ++lane) to.row(s)[lane] = kernel[static_cast<int64_t>(lane) * taps + s];
  }
}

template <class T>
void forward(const LongConvForward& args) {
  using Real = Accumulate<T>;
  const int64_t seq = args.u.dim(1);
  const int64_t channels = args.u.dim(2);
  const int64_t taps = args.kernel.dim(1);
  const auto lanes = static_cast<int64_t>(hn::Lanes(ComputeTag<T>()));
  const int64_t vectors = (channels + lanes - 1) / lanes;
  args.u.device().threads().tasks(args.u.dim(0) * vectors, [&](int64_t task) HWY_ATTR {
    const ComputeTag<T> d;
    const int64_t channel = task % vectors * lanes;
    const auto count = static_cast<size_t>(std::min(lanes, channels - channel));
    const int64_t at = task / vectors * seq * channels + channel;
    const Column<Real> in(seq);
    const Column<Real> kernel(std::min(taps, seq));
    const Column<Real> out(seq);
    copy_in<T>(args.u.data<T>() + at, channels, count, false, in);
    copy_taps(args.kernel.data<Real>() + channel * taps, taps, count, kernel);
    convolve(in, kernel, 0, out);
    const auto skip = args.d.defined() ? load_n(d, args.d.data<Real>() + channel, count) : hn::Zero(d);
    for (int64_t t = 0; t < seq; ++t) {
      const auto sum = hn::MulAdd(skip, load(d, in.row(t)), load(d, out.row(t)));
      store_n(d, sum, args.y.data<T>() + at + t * channels, count);
    }
  });
}

/// Partial sums of a backward task over its batch entries. The kernel gradient has only the taps that are used.
template <class Real>
struct Share {
  std::vector<Real> dkernel;  // [used taps][lanes]
  std::vector<Real> dd;       // [lanes]
};

template <class T>
void backward_task(const LongConvBackward& args, int64_t channel, int64_t first, int64_t last,
                   Share<Accumulate<T>>& share) {
  using Real = Accumulate<T>;
  const ComputeTag<T> d;
  const Tensor& u = args.forward.u;
  const int64_t seq = u.dim(1);
  const int64_t channels = u.dim(2);
  const int64_t taps = args.forward.kernel.dim(1);
  const int64_t used = std::min(taps, seq);
  const Column<Real> in(seq);
  const Column<Real> back(seq);
  const Column<Real> kernel(used);
  Column<Real> du(seq);
  const Column<Real> dkernel(seq);
  const int64_t lanes = in.lanes();
  const auto count = static_cast<size_t>(std::min(lanes, channels - channel));
  copy_taps(args.forward.kernel.data<Real>() + channel * taps, taps, count, kernel);
  const auto skip = args.forward.d.defined() ? load_n(d, args.forward.d.data<Real>() + channel, count) : hn::Zero(d);
  auto dd = hn::Zero(d);
  for (int64_t entry = first; entry < last; ++entry) {
    const int64_t at = entry * seq * channels + channel;
    copy_in<T>(u.data<T>() + at, channels, count, false, in);
    copy_in<T>(args.dy.data<T>() + at, channels, count, true, back);
    if (args.dkernel.defined()) convolve(in, back, seq - used, dkernel);
    if (args.dd.defined()) {
      for (int64_t t = 0; t < seq; ++t) dd = hn::MulAdd(load(d, in.row(t)), load(d, back.row(seq - 1 - t)), dd);
    }
    if (!args.du.defined()) continue;
    du.clear();
    convolve(back, kernel, 0, du);
    for (int64_t t = 0; t < seq; ++t) {
      const int64_t r = seq - 1 - t;
      store_n(d, hn::MulAdd(skip, load(d, back.row(r)), load(d, du.row(r))), args.du.data<T>() + at + t * channels,
              count);
    }
  }
  store(d, dd, share.dd.data());
  for (int64_t j = 0; j < used; ++j) store(d, load(d, dkernel.row(seq - 1 - j)), share.dkernel.data() + j * lanes);
}

/// Adds the partial sums of all groups of batch entries, in order.
template <class Real>
void add_partial_sums(const std::vector<Share<Real>>& shares, int64_t vectors, int64_t lanes,
                      const LongConvBackward& args) {
  const int64_t channels = args.forward.u.dim(2);
  const int64_t taps = args.forward.kernel.dim(1);
  const int64_t used = std::min(taps, args.forward.u.dim(1));
  args.forward.u.device().threads().ranges(channels, 4, [&](int64_t begin, int64_t end) {
    for (int64_t channel = begin; channel < end; ++channel) {
      const auto total = [&](auto member, int64_t index) {
        Real sum = 0;
        for (auto i = static_cast<size_t>(channel / lanes); i < shares.size(); i += static_cast<size_t>(vectors)) {
          sum += (shares[i].*member)[static_cast<size_t>(index * lanes + channel % lanes)];
        }
        return sum;
      };
      if (args.dd.defined()) args.dd.data<Real>()[channel] = total(&Share<Real>::dd, 0);
      if (!args.dkernel.defined()) continue;
      Real* dkernel = args.dkernel.data<Real>() + channel * taps;
      for (int64_t j = 0; j < used; ++j) dkernel[j] = total(&Share<Real>::dkernel, j);
      std::fill(dkernel + used, dkernel + taps, Real{0});
    }
  });
}

template <class T>
void backward(const LongConvBackward& args) {
  using Real = Accumulate<T>;
  const Tensor& u = args.forward.u;
  const int64_t batch = u.dim(0);
  const auto lanes = static_cast<int64_t>(hn::Lanes(ComputeTag<T>()));
  const int64_t vectors = (u.dim(2) + lanes - 1) / lanes;
  const int64_t per_group = std::max<int64_t>(1, (batch + 7) / 8);
  const int64_t groups = (batch + per_group - 1) / per_group;
  const int64_t used = std::min(args.forward.kernel.dim(1), u.dim(1));
  std::vector<Share<Real>> shares(static_cast<size_t>(groups * vectors));
  u.device().threads().tasks(groups * vectors, [&](int64_t task) HWY_ATTR {
    Share<Real>& share = shares[static_cast<size_t>(task)];
    share.dkernel.assign(static_cast<size_t>(used * lanes), Real{0});
    share.dd.assign(static_cast<size_t>(lanes), Real{0});
    const int64_t first = task / vectors * per_group;
    backward_task<T>(args, task % vectors * lanes, first, std::min(batch, first + per_group), share);
  });
  add_partial_sums(shares, vectors, lanes, args);
}

void long_conv_forward(const LongConvForward& args) {
  visit_floating(args.u.dtype(), [&](auto tag) { forward<typename decltype(tag)::type>(args); });
}
void long_conv_backward(const LongConvBackward& args) {
  visit_floating(args.dy.dtype(), [&](auto tag) { backward<typename decltype(tag)::type>(args); });
}

}  // namespace lamina::ops::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace lamina::ops {
HWY_EXPORT(long_conv_forward);
HWY_EXPORT(long_conv_backward);

namespace cpu {
void long_conv_forward(const LongConvForward& args) { HWY_DYNAMIC_DISPATCH(long_conv_forward)(args); }
void long_conv_backward(const LongConvBackward& args) { HWY_DYNAMIC_DISPATCH(long_conv_backward)(args); }
}  // namespace cpu
}  // namespace lamina::ops
#endif
