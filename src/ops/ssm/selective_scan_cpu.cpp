// SIMD vectors run over channels, so u, delta, z and y need no transpose. The state of a block of channels stays in the
// L1 cache during the pass over the sequence. Blocks and batch entries are independent.
//
// Backward takes each block from the last chunk of positions to the first: it recomputes the states and decays of the
// chunk into a buffer that fits the L2 cache and runs backwards over them. db and dc are sums over channels: at most 16
// groups of blocks have partial sums, which are added in order. da, dd and ddelta_bias are summed in the same way per
// batch entry.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "lamina/ops/ssm/selective_scan_cpu.cpp"
#include <hwy/cache_control.h>
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include <algorithm>
#include <vector>

#include "lamina/base/simd-inl.h"
#include "lamina/ops/ssm/selective_scan_kernel.h"
#include "lamina/ops/ssm/softplus-inl.h"

HWY_BEFORE_NAMESPACE();
namespace lamina::ops::HWY_NAMESPACE {
using namespace lamina::HWY_NAMESPACE;  // NOLINT: SIMD helpers of this target

/// Vectors of channels per block: as many as fill cache lines while the states of a chunk still fit the CPU cache.
inline int64_t vectors_per_block(int64_t n) { return n <= 16 ? 4 : n <= 32 ? 2 : 1; }

/// A block of channels of one batch entry. Per-channel buffers are [vector][n][lanes], padded with zeros.
template <class T>
struct Block {
  using Real = Accumulate<T>;
  using D = ComputeTag<T>;
  using V = hn::Vec<D>;
  static constexpr D kTag{};

  const SelectiveScanForward& args;
  int64_t batch, channel, width;
  int64_t seq = args.u.dim(1);
  int64_t channels = args.u.dim(2);
  int64_t n = args.a.dim(0);
  int64_t lanes = static_cast<int64_t>(hn::Lanes(kTag));
  int64_t vectors = (width + lanes - 1) / lanes;
  const T* u = args.u.template data<T>() + batch * seq * channels + channel;
  const T* delta = args.delta.template data<T>() + batch * seq * channels + channel;
  const T* z = args.z.defined() ? args.z.template data<T>() + batch * seq * channels + channel : nullptr;
  const Real* b = args.b.template data<Real>() + batch * seq * n;
  const Real* c = args.c.template data<Real>() + batch * seq * n;
  const Real* d = args.d.defined() ? args.d.template data<Real>() + channel : nullptr;
  const Real* bias = args.delta_bias.defined() ? args.delta_bias.template data<Real>() + channel : nullptr;
  std::vector<Real> a = pack(args.a.template data<Real>() + channel);
  std::vector<Real> rate = scaled(a);  // a / ln 2, because decays are computed as powers of two

  size_t buffer() const { return static_cast<size_t>(vectors * n * lanes); }
  size_t count(int64_t v) const { return static_cast<size_t>(std::min(lanes, width - v * lanes)); }

  /// Copies [n, channels] of this block to [vector][n][lanes].
  std::vector<Real> pack(const Real* from) const {
    std::vector<Real> to(buffer(), Real{0});
    each(to.data(), [&](int64_t v, int64_t i, Real* at)
                        HWY_ATTR { store(kTag, load_n(kTag, from + i * channels + v * lanes, count(v)), at); });
    return to;
  }
  static std::vector<Real> scaled(std::vector<Real> values) {
    for (Real& value : values) value *= static_cast<Real>(1.44269504088896340736);
    return values;
  }
  void unpack(const Real* from, Real* to) const {
    each(from, [&](int64_t v, int64_t i, const Real* at)
                   HWY_ATTR { store_n(kTag, load(kTag, at), to + i * channels + v * lanes, count(v)); });
  }
  template <class P, class F>
  void each(P* first, const F& body) const {
    for (int64_t v = 0; v < vectors; ++v) {
      for (int64_t i = 0; i < n; ++i) body(v, i, first + (v * n + i) * lanes);
    }
  }
  /// Converts states [batch, channels, n] to and from [vector][n][lanes].
  std::vector<Real> gather(const Tensor& state) const {
    std::vector<Real> to(buffer(), Real{0});
    if (!state.defined()) return to;
    const Real* from = state.data<Real>() + (batch * channels + channel) * n;
    for (int64_t ch = 0; ch < width; ++ch) {
      for (int64_t i = 0; i < n; ++i)
        to[static_cast<size_t>((ch / lanes * n + i) * lanes + ch % lanes)] = from[ch * n + i];
    }
    return to;
  }
  void scatter(const std::vector<Real>& from, const Tensor& state) const {
    if (!state.defined()) return;
    Real* to = state.data<Real>() + (batch * channels + channel) * n;
    for (int64_t ch = 0; ch < width; ++ch) {
      for (int64_t i = 0; i < n; ++i)
        to[ch * n + i] = from[static_cast<size_t>((ch / lanes * n + i) * lanes + ch % lanes)];
    }
  }
  Real* state_at(int64_t chunk) const {
    const int64_t chunks = args.states.dim(1);
    return args.states.template data<Real>() + (batch * chunks + chunk) * n * channels + channel;
  }

  /// Prefetches the inputs of position t. The hardware prefetcher does not, because rows are too far apart.
  void prefetch(int64_t t, int64_t v) const {
    if (t >= seq) return;
    const int64_t at = t * channels + v * lanes;
    hwy::Prefetch(u + at);
    hwy::Prefetch(delta + at);
    if (z != nullptr) hwy::Prefetch(z + at);
  }
  V raw_step(int64_t t, int64_t v) const {
    const V raw = load_n(kTag, delta + t * channels + v * lanes, count(v));
    return bias != nullptr ? hn::Add(raw, load_n(kTag, bias + v * lanes, count(v))) : raw;
  }
  V step_size(V raw) const { return args.delta_softplus ? softplus(kTag, raw) : raw; }
};

template <class T>
void scan_forward(Block<T>& k, T* y) {
  using Real = typename Block<T>::Real;
  const ComputeTag<T> d;
  std::vector<Real> h = k.gather(k.args.initial_state);
  const int64_t n = k.n;
  const int64_t lanes = k.lanes;
  for (int64_t t = 0; t < k.seq; ++t) {
    if (k.args.states.defined() && t % kScanChunk == 0) k.unpack(h.data(), k.state_at(t / kScanChunk));
    const Real* b = k.b + t * k.n;
    const Real* c = k.c + t * k.n;
    for (int64_t v = 0; v < k.vectors; ++v) {
      const size_t count = k.count(v);
      const int64_t at = t * k.channels + v * k.lanes;
      k.prefetch(t + 8, v);
      const auto u = load_n(d, k.u + at, count);
      const auto step = k.step_size(k.raw_step(t, v));
      const auto push = hn::Mul(step, u);
      const Real* rate = k.rate.data() + v * k.n * k.lanes;
      Real* state = h.data() + v * k.n * k.lanes;
      auto sum = k.d != nullptr ? hn::Mul(load_n(d, k.d + v * k.lanes, count), u) : hn::Zero(d);
      for (int64_t i = 0, j = 0; i < n; ++i, j += lanes) {
        const auto decay = exp2(d, hn::Mul(step, load(d, rate + j)));
        const auto next = hn::MulAdd(decay, load(d, state + j), hn::Mul(push, hn::Set(d, b[i])));
        store(d, next, state + j);
        sum = hn::MulAdd(next, hn::Set(d, c[i]), sum);
      }
      if (k.z != nullptr) {
        const auto z = load_n(d, k.z + at, count);
        sum = hn::Mul(sum, hn::Mul(z, sigmoid(d, z)));
      }
      store_n(d, sum, y + at, count);
    }
  }
  k.scatter(h, k.args.last_state);
}

template <class T>
void forward(const SelectiveScanForward& args) {
  const int64_t channels = args.u.dim(2);
  const int64_t width = static_cast<int64_t>(hn::Lanes(ComputeTag<T>())) * vectors_per_block(args.a.dim(0));
  const int64_t blocks = (channels + width - 1) / width;
  args.u.device().threads().tasks(args.u.dim(0) * blocks, [&](int64_t task) HWY_ATTR {
    const int64_t channel = task % blocks * width;
    Block<T> block{args, task / blocks, channel, std::min(width, channels - channel)};
    scan_forward<T>(block, args.y.data<T>() + block.batch * block.seq * channels + channel);
  });
}

/// Buffers of a backward task for one chunk of one block.
template <class T>
struct Chunk {
  using Real = Accumulate<T>;
  std::vector<Real> states;  // [kScanChunk + 1][vector][n][lanes], before each position
  std::vector<Real> decays;  // [kScanChunk][vector][n][lanes]
  std::vector<Real> steps;   // [kScanChunk][vector][lanes]
  std::vector<Real> db, dc;  // [n][lanes] of one position
};

template <class T>
void recompute(const Block<T>& k, int64_t begin, int64_t end, Chunk<T>& chunk) {
  using Real = typename Block<T>::Real;
  const ComputeTag<T> d;
  const std::vector<Real> start = k.pack(k.state_at(begin / kScanChunk));
  std::copy(start.begin(), start.end(), chunk.states.begin());
  const auto size = static_cast<int64_t>(k.buffer());
  const int64_t n = k.n;
  const int64_t lanes = k.lanes;
  for (int64_t t = begin; t < end; ++t) {
    for (int64_t v = 0; v < k.vectors; ++v) {
      const auto u = load_n(d, k.u + t * k.channels + v * k.lanes, k.count(v));
      const auto step = k.step_size(k.raw_step(t, v));
      store(d, step, chunk.steps.data() + ((t - begin) * k.vectors + v) * k.lanes);
      const auto push = hn::Mul(step, u);
      const int64_t first = v * n * lanes;
      const Real* rate = k.rate.data() + first;
      const Real* b = k.b + t * n;
      const Real* before = chunk.states.data() + (t - begin) * size + first;
      Real* after = chunk.states.data() + (t - begin + 1) * size + first;
      Real* decays = chunk.decays.data() + (t - begin) * size + first;
      for (int64_t i = 0, j = 0; i < n; ++i, j += lanes) {
        const auto decay = exp2(d, hn::Mul(step, load(d, rate + j)));
        store(d, decay, decays + j);
        store(d, hn::MulAdd(decay, load(d, before + j), hn::Mul(push, hn::Set(d, b[i]))), after + j);
      }
    }
  }
}

/// The gradients that are summed during a block's pass.
template <class T>
struct BlockGradients {
  using Real = Accumulate<T>;
  std::vector<Real> dh, da;           // [vector][n][lanes]
  std::vector<Real> dd, ddelta_bias;  // [vector][lanes]
  Real* db;                           // [seq, n] of this group of blocks; added to
  Real* dc;
};

/// Returns the gradient before the gate at one position, for one vector. If there is a gate, also writes dz.
template <class T>
hn::Vec<ComputeTag<T>> ungate(const SelectiveScanBackward& args, const Block<T>& k, int64_t t, int64_t v,
                              const Accumulate<T>* state, hn::Vec<ComputeTag<T>> u) {
  const ComputeTag<T> d;
  const int64_t at = (k.batch * k.seq + t) * k.channels + k.channel + v * k.lanes;
  const size_t count = k.count(v);
  const auto dy = load_n(d, args.dy.data<T>() + at, count);
  if (k.z == nullptr) return dy;
  auto sum = k.d != nullptr ? hn::Mul(load_n(d, k.d + v * k.lanes, count), u) : hn::Zero(d);
  for (int64_t i = 0; i < k.n; ++i) {
    sum = hn::MulAdd(load(d, state + i * k.lanes), hn::Set(d, k.c[t * k.n + i]), sum);
  }
  const auto z = load_n(d, k.z + t * k.channels + v * k.lanes, count);
  const auto s = sigmoid(d, z);
  store_n(d, hn::Mul(hn::Mul(dy, sum), silu_slope(d, z, s)), args.dz.data<T>() + at, count);
  return hn::Mul(dy, hn::Mul(z, s));
}

/// Backward of one position for one vector of channels.
template <class T>
void step_back(const SelectiveScanBackward& args, const Block<T>& k, int64_t t, int64_t v, Chunk<T>& chunk, int64_t row,
               BlockGradients<T>& grads) {
  using Real = typename Block<T>::Real;
  const ComputeTag<T> d;
  const auto size = static_cast<int64_t>(k.buffer());
  const int64_t at = (k.batch * k.seq + t) * k.channels + k.channel + v * k.lanes;
  const size_t count = k.count(v);
  const int64_t first = v * k.n * k.lanes;
  const Real* before = chunk.states.data() + row * size + first;
  const Real* after = before + size;
  const Real* decays = chunk.decays.data() + row * size + first;
  const Real* a = k.a.data() + first;
  Real* dh = grads.dh.data() + first;
  Real* da = grads.da.data() + first;
  const Real* b = k.b + t * k.n;
  const Real* c = k.c + t * k.n;
  const auto u = load_n(d, k.u + t * k.channels + v * k.lanes, count);
  const auto step = load(d, chunk.steps.data() + (row * k.vectors + v) * k.lanes);
  const auto push = hn::Mul(step, u);
  const auto dy = ungate<T>(args, k, t, v, after, u);
  Real* db = chunk.db.data();
  Real* dc = chunk.dc.data();
  const int64_t n = k.n;
  const int64_t lanes = k.lanes;
  auto pushed = hn::Zero(d);
  auto dstep = hn::Zero(d);
  for (int64_t i = 0, j = 0; i < n; ++i, j += lanes) {
    const auto g = hn::MulAdd(dy, hn::Set(d, c[i]), load(d, dh + j));
    store(d, hn::MulAdd(dy, load(d, after + j), load(d, dc + j)), dc + j);
    store(d, hn::MulAdd(g, push, load(d, db + j)), db + j);
    pushed = hn::MulAdd(g, hn::Set(d, b[i]), pushed);
    const auto carried = hn::Mul(g, load(d, decays + j));
    store(d, carried, dh + j);
    const auto bent = hn::Mul(carried, load(d, before + j));
    dstep = hn::MulAdd(bent, load(d, a + j), dstep);
    store(d, hn::MulAdd(bent, step, load(d, da + j)), da + j);
  }
  auto du = hn::Mul(step, pushed);
  if (k.d != nullptr) {
    du = hn::MulAdd(load_n(d, k.d + v * k.lanes, count), dy, du);
    Real* dd = grads.dd.data() + v * k.lanes;
    store(d, hn::MulAdd(dy, u, load(d, dd)), dd);
  }
  store_n(d, du, args.du.data<T>() + at, count);
  dstep = hn::MulAdd(u, pushed, dstep);
  if (k.args.delta_softplus) dstep = hn::Mul(dstep, sigmoid(d, k.raw_step(t, v)));
  Real* bias = grads.ddelta_bias.data() + v * k.lanes;
  store(d, hn::Add(dstep, load(d, bias)), bias);
  store_n(d, dstep, args.ddelta.data<T>() + at, count);
}

template <class T>
void scan_backward(const SelectiveScanBackward& args, const Block<T>& k, Chunk<T>& chunk, BlockGradients<T>& grads) {
  using Real = typename Block<T>::Real;
  const ComputeTag<T> d;
  const int64_t chunks = args.forward.states.dim(1);
  for (int64_t index = chunks - 1; index >= 0; --index) {
    const int64_t begin = index * kScanChunk;
    const int64_t end = std::min(begin + kScanChunk, k.seq);
    recompute<T>(k, begin, end, chunk);
    for (int64_t t = end - 1; t >= begin; --t) {
      std::fill(chunk.db.begin(), chunk.db.end(), Real{0});
      std::fill(chunk.dc.begin(), chunk.dc.end(), Real{0});
      for (int64_t v = 0; v < k.vectors; ++v) step_back<T>(args, k, t, v, chunk, t - begin, grads);
      for (int64_t i = 0; i < k.n; ++i) {
        grads.db[t * k.n + i] += hn::GetLane(hn::SumOfLanes(d, load(d, chunk.db.data() + i * k.lanes)));
        grads.dc[t * k.n + i] += hn::GetLane(hn::SumOfLanes(d, load(d, chunk.dc.data() + i * k.lanes)));
      }
    }
  }
}

/// total = Σ of `count` consecutive tensors, in order.
template <class Real>
void add_parts(const Threads& threads, const Real* parts, int64_t count, const Tensor& total) {
  if (!total.defined()) return;
  Real* to = total.data<Real>();
  const int64_t size = total.numel();
  threads.ranges(size, 16384, [&](int64_t begin, int64_t end) {
    std::fill(to + begin, to + end, Real{0});
    for (int64_t part = 0; part < count; ++part) {
      for (int64_t i = begin; i < end; ++i) to[i] += parts[part * size + i];
    }
  });
}

template <class T>
void backward(const SelectiveScanBackward& args) {
  using Real = Accumulate<T>;
  const SelectiveScanForward& f = args.forward;
  const Device& device = f.u.device();
  const DType dtype = dtype_of<Real>();
  const int64_t batch = f.u.dim(0);
  const int64_t seq = f.u.dim(1);
  const int64_t channels = f.u.dim(2);
  const int64_t n = f.a.dim(0);
  const auto lanes = static_cast<int64_t>(hn::Lanes(ComputeTag<T>()));
  const int64_t width = lanes * vectors_per_block(n);
  const int64_t blocks = (channels + width - 1) / width;
  const int64_t per_group = std::max<int64_t>(1, (blocks + 15) / 16);
  const int64_t groups = (blocks + per_group - 1) / per_group;
  const Tensor db = Tensor::zeros({groups, batch, seq, n}, dtype, device);
  const Tensor dc = Tensor::zeros({groups, batch, seq, n}, dtype, device);
  const Tensor da = Tensor::empty({batch, n, channels}, dtype, device);
  const Tensor dd = Tensor::empty({batch, channels}, dtype, device);
  const Tensor dbias = Tensor::empty({batch, channels}, dtype, device);
  device.threads().tasks(batch * groups, [&](int64_t task) HWY_ATTR {
    const int64_t entry = task / groups;
    const int64_t group = task % groups;
    Chunk<T> chunk;
    chunk.states.resize(static_cast<size_t>((kScanChunk + 1) * width * n));
    chunk.decays.resize(static_cast<size_t>(kScanChunk * width * n));
    chunk.steps.resize(static_cast<size_t>(kScanChunk * width));
    chunk.db.resize(static_cast<size_t>(n * lanes));
    chunk.dc.resize(static_cast<size_t>(n * lanes));
    for (int64_t index = group * per_group; index < std::min(blocks, (group + 1) * per_group); ++index) {
      const int64_t channel = index * width;
      const Block<T> k{f, entry, channel, std::min(width, channels - channel)};
      const int64_t at = (group * batch + entry) * seq * n;
      BlockGradients<T> grads{k.gather(args.dlast_state),
                              std::vector<Real>(k.buffer(), Real{0}),
                              std::vector<Real>(static_cast<size_t>(k.vectors * lanes), Real{0}),
                              std::vector<Real>(static_cast<size_t>(k.vectors * lanes), Real{0}),
                              db.data<Real>() + at,
                              dc.data<Real>() + at};
      scan_backward<T>(args, k, chunk, grads);
      k.scatter(grads.dh, args.dinitial_state);
      k.unpack(grads.da.data(), da.data<Real>() + entry * n * channels + channel);
      std::copy_n(grads.dd.data(), k.width, dd.data<Real>() + entry * channels + channel);
      std::copy_n(grads.ddelta_bias.data(), k.width, dbias.data<Real>() + entry * channels + channel);
    }
  });
  add_parts(device.threads(), db.data<Real>(), groups, args.db);
  add_parts(device.threads(), dc.data<Real>(), groups, args.dc);
  add_parts(device.threads(), da.data<Real>(), batch, args.da);
  add_parts(device.threads(), dd.data<Real>(), batch, args.dd);
  add_parts(device.threads(), dbias.data<Real>(), batch, args.ddelta_bias);
}

void selective_scan_forward(const SelectiveScanForward& args) {
  visit_floating(args.u.dtype(), [&](auto tag) { forward<typename decltype(tag)::type>(args); });
}
void selective_scan_backward(const SelectiveScanBackward& args) {
  visit_floating(args.dy.dtype(), [&](auto tag) { backward<typename decltype(tag)::type>(args); });
}

}  // namespace lamina::ops::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace lamina::ops {
HWY_EXPORT(selective_scan_forward);
HWY_EXPORT(selective_scan_backward);

namespace cpu {
void selective_scan_forward(const SelectiveScanForward& args) { HWY_DYNAMIC_DISPATCH(selective_scan_forward)(args); }
void selective_scan_backward(const SelectiveScanBackward& args) { HWY_DYNAMIC_DISPATCH(selective_scan_backward)(args); }
}  // namespace cpu
}  // namespace lamina::ops
#endif
