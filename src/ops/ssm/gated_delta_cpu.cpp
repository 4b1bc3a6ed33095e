// The columns of the state are independent of each other, so a SIMD vector holds adjacent columns. Forward: a task is
// one vector of columns of one head; it runs over the sequence and updates its columns in place.
//
// Backward: a task is one key head with all its value heads, because the gradients of q and k are sums over their
// columns. It processes one vector of columns after the other. First it saves the state before every chunk. Then it
// goes through the chunks from the last to the first, recomputes the states of a chunk and runs backwards over them.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "lamina/ops/ssm/gated_delta_cpu.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "lamina/base/simd-inl.h"
#include "lamina/ops/ssm/gated_delta_kernel.h"

HWY_BEFORE_NAMESPACE();
namespace lamina::ops::HWY_NAMESPACE {
using namespace lamina::HWY_NAMESPACE;  // NOLINT: SIMD helpers of this target

/// One vector of columns of one value head. Args is GatedDeltaForward or GatedDeltaBackward.
template <class Real, class Args>
struct DeltaColumns {
  using D = ComputeTag<Real>;
  using V = hn::Vec<D>;
  const Args& args;
  int64_t entry, head, column;
  int64_t seq = args.v.dim(1);
  int64_t heads = args.v.dim(2);
  int64_t d_v = args.v.dim(3);
  int64_t key_heads = args.q.dim(2);
  int64_t d_k = args.q.dim(3);
  int64_t key_head = head / (heads / key_heads);
  int64_t lanes = static_cast<int64_t>(hn::Lanes(D()));
  size_t count = static_cast<size_t>(std::min(lanes, d_v - column));

  int64_t gate_at(int64_t t) const { return (entry * seq + t) * heads + head; }
  int64_t key_at(int64_t t) const { return ((entry * seq + t) * key_heads + key_head) * d_k; }
  int64_t value_at(int64_t t) const { return gate_at(t) * d_v + column; }
  int64_t state_at(int64_t i) const { return ((entry * heads + head) * d_k + i) * d_v + column; }
  const Real* q(int64_t t) const { return args.q.template data<Real>() + key_at(t); }
  const Real* k(int64_t t) const { return args.k.template data<Real>() + key_at(t); }
  Real decay(int64_t t) const { return std::exp(args.g.template data<Real>()[gate_at(t)]); }
  Real beta(int64_t t) const { return args.beta.template data<Real>()[gate_at(t)]; }
  HWY_INLINE V load(const Tensor& tensor, int64_t at) const { return load_n(D(), tensor.data<Real>() + at, count); }
  HWY_INLINE void store(V value, const Tensor& tensor, int64_t at) const {
    store_n(D(), value, tensor.data<Real>() + at, count);
  }
};

template <class Real>
void forward(const GatedDeltaForward& args) {
  const auto lanes = static_cast<int64_t>(hn::Lanes(ComputeTag<Real>()));
  const int64_t heads = args.v.dim(2);
  const int64_t vectors = (args.v.dim(3) + lanes - 1) / lanes;
  args.v.device().threads().tasks(args.v.dim(0) * heads * vectors, [&](int64_t task) HWY_ATTR {
    const ComputeTag<Real> d;
    const DeltaColumns<Real, GatedDeltaForward> c{args, task / vectors / heads, task / vectors % heads,
                                                  task % vectors * lanes};
    for (int64_t t = 0; t < c.seq; ++t) {
      const Real* q = c.q(t);
      const Real* k = c.k(t);
      const auto decay = hn::Set(d, c.decay(t));
      auto held = hn::Zero(d);
      for (int64_t i = 0; i < c.d_k; ++i) {
        const auto s = hn::Mul(c.load(args.state, c.state_at(i)), decay);
        c.store(s, args.state, c.state_at(i));
        held = hn::MulAdd(s, hn::Set(d, k[i]), held);
      }
      const auto u = hn::Mul(hn::Set(d, c.beta(t)), hn::Sub(c.load(args.v, c.value_at(t)), held));
      auto y = hn::Zero(d);
      for (int64_t i = 0; i < c.d_k; ++i) {
        const auto s = hn::MulAdd(hn::Set(d, k[i]), u, c.load(args.state, c.state_at(i)));
        c.store(s, args.state, c.state_at(i));
        y = hn::MulAdd(s, hn::Set(d, q[i]), y);
      }
      c.store(y, args.y, c.value_at(t));
    }
  });
}

/// Buffers of a backward task. Each element is one vector.
template <class Real>
struct DeltaScratch {
  std::vector<Real> state;   ///< [d_k]
  std::vector<Real> starts;  ///< [chunks, d_k]: the state before each chunk
  std::vector<Real> inner;   ///< [chunk, d_k]: the decayed states S' of one chunk
  std::vector<Real> held;    ///< [chunk]: S'ᵀ k
  std::vector<Real> grad;    ///< [d_k]: G, the gradient of the state
};

/// Runs positions [begin, end), starting from scratch.state. If `keep`, saves S' and S'ᵀ k of each position.
template <class Real, class C>
void run_chunk(const C& c, int64_t begin, int64_t end, bool keep, DeltaScratch<Real>& scratch) {
  const ComputeTag<Real> d;
  for (int64_t t = begin; t < end; ++t) {
    const Real* k = c.k(t);
    const auto decay = hn::Set(d, c.decay(t));
    auto held = hn::Zero(d);
    for (int64_t i = 0; i < c.d_k; ++i) {
      const auto s = hn::Mul(hn::LoadU(d, scratch.state.data() + i * c.lanes), decay);
      hn::StoreU(s, d, scratch.state.data() + i * c.lanes);
      if (keep) hn::StoreU(s, d, scratch.inner.data() + ((t - begin) * c.d_k + i) * c.lanes);
      held = hn::MulAdd(s, hn::Set(d, k[i]), held);
    }
    if (keep) hn::StoreU(held, d, scratch.held.data() + (t - begin) * c.lanes);
    const auto u = hn::Mul(hn::Set(d, c.beta(t)), hn::Sub(c.load(c.args.v, c.value_at(t)), held));
    for (int64_t i = 0; i < c.d_k; ++i) {
      Real* s = scratch.state.data() + i * c.lanes;
      hn::StoreU(hn::MulAdd(hn::Set(d, k[i]), u, hn::LoadU(d, s)), d, s);
    }
  }
}

/// Backward of position t, whose S' and S'ᵀ k are at index `place` of the scratch.
template <class Real, class C>
void step_back(const C& c, int64_t t, int64_t place, DeltaScratch<Real>& scratch) {
  const ComputeTag<Real> d;
  const GatedDeltaBackward& args = c.args;
  const Real* q = c.q(t);
  const Real* k = c.k(t);
  Real* dq = args.dq.template data<Real>() + c.key_at(t);
  Real* dk = args.dk.template data<Real>() + c.key_at(t);
  const Real* inner = scratch.inner.data() + place * c.d_k * c.lanes;
  const auto beta = hn::Set(d, c.beta(t));
  const auto error = hn::Sub(c.load(args.v, c.value_at(t)), hn::LoadU(d, scratch.held.data() + place * c.lanes));
  const auto u = hn::Mul(beta, error);
  const auto dy = c.load(args.dy, c.value_at(t));
  auto du = hn::Zero(d);
  for (int64_t i = 0; i < c.d_k; ++i) {
    Real* grad = scratch.grad.data() + i * c.lanes;
    const auto key = hn::Set(d, k[i]);
    const auto state = hn::MulAdd(key, u, hn::LoadU(d, inner + i * c.lanes));
    dq[i] += hn::GetLane(hn::SumOfLanes(d, hn::Mul(state, dy)));
    const auto ds = hn::MulAdd(hn::Set(d, q[i]), dy, hn::LoadU(d, grad));
    hn::StoreU(ds, d, grad);
    du = hn::MulAdd(ds, key, du);
  }
  const auto dv = hn::Mul(beta, du);
  c.store(dv, args.dv, c.value_at(t));
  args.dbeta.template data<Real>()[c.gate_at(t)] += hn::GetLane(hn::SumOfLanes(d, hn::Mul(du, error)));
  const auto decay = hn::Set(d, c.decay(t));
  auto dg = hn::Zero(d);
  for (int64_t i = 0; i < c.d_k; ++i) {
    Real* grad = scratch.grad.data() + i * c.lanes;
    const auto ds = hn::LoadU(d, grad);
    const auto state = hn::LoadU(d, inner + i * c.lanes);
    dk[i] += hn::GetLane(hn::SumOfLanes(d, hn::NegMulAdd(state, dv, hn::Mul(ds, u))));
    const auto before = hn::NegMulAdd(hn::Set(d, k[i]), dv, ds);
    dg = hn::MulAdd(before, state, dg);
    hn::StoreU(hn::Mul(before, decay), d, grad);
  }
  args.dg.template data<Real>()[c.gate_at(t)] += hn::GetLane(hn::SumOfLanes(d, dg));
}

template <class Real>
void columns_backward(const DeltaColumns<Real, GatedDeltaBackward>& c, DeltaScratch<Real>& scratch) {
  const ComputeTag<Real> d;
  const GatedDeltaBackward& args = c.args;
  const auto row = [&](std::vector<Real>& rows, int64_t i) { return rows.data() + i * c.lanes; };
  const int64_t chunks = (c.seq + args.chunk - 1) / args.chunk;
  for (int64_t i = 0; i < c.d_k; ++i) {
    hn::StoreU(c.load(args.initial_state, c.state_at(i)), d, row(scratch.state, i));
    hn::StoreU(c.load(args.dstate, c.state_at(i)), d, row(scratch.grad, i));
  }
  for (int64_t n = 0; n < chunks; ++n) {
    std::copy(scratch.state.begin(), scratch.state.end(), row(scratch.starts, n * c.d_k));
    if (n + 1 < chunks) run_chunk(c, n * args.chunk, (n + 1) * args.chunk, false, scratch);
  }
  for (int64_t n = chunks - 1; n >= 0; --n) {
    const Real* start = row(scratch.starts, n * c.d_k);
    std::copy(start, start + c.d_k * c.lanes, scratch.state.begin());
    const int64_t begin = n * args.chunk;
    const int64_t end = std::min(c.seq, begin + args.chunk);
    run_chunk(c, begin, end, true, scratch);
    for (int64_t t = end - 1; t >= begin; --t) step_back(c, t, t - begin, scratch);
  }
  for (int64_t i = 0; i < c.d_k; ++i) c.store(hn::LoadU(d, row(scratch.grad, i)), args.dstate, c.state_at(i));
}

template <class Real>
void backward(const GatedDeltaBackward& args) {
  const auto lanes = static_cast<int64_t>(hn::Lanes(ComputeTag<Real>()));
  const int64_t key_heads = args.q.dim(2);
  const int64_t shared = args.v.dim(2) / key_heads;
  const int64_t d_k = args.q.dim(3);
  const int64_t chunks = (args.q.dim(1) + args.chunk - 1) / args.chunk;
  args.v.device().threads().tasks(args.v.dim(0) * key_heads, [&](int64_t task) {
    const auto rows = [&](int64_t n) { return std::vector<Real>(static_cast<size_t>(n * lanes)); };
    DeltaScratch<Real> scratch{rows(d_k), rows(chunks * d_k), rows(args.chunk * d_k), rows(args.chunk), rows(d_k)};
    for (int64_t value_head = 0; value_head < shared; ++value_head) {
      for (int64_t column = 0; column < args.v.dim(3); column += lanes) {
        columns_backward<Real>({args, task / key_heads, task % key_heads * shared + value_head, column}, scratch);
      }
    }
  });
}

void gated_delta_forward(const GatedDeltaForward& args) {
  args.q.dtype() == DType::f64 ? forward<double>(args) : forward<float>(args);
}
void gated_delta_backward(const GatedDeltaBackward& args) {
  args.q.dtype() == DType::f64 ? backward<double>(args) : backward<float>(args);
}

}  // namespace lamina::ops::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace lamina::ops {
HWY_EXPORT(gated_delta_forward);
HWY_EXPORT(gated_delta_backward);

namespace cpu {
void gated_delta_forward(const GatedDeltaForward& args) { HWY_DYNAMIC_DISPATCH(gated_delta_forward)(args); }
void gated_delta_backward(const GatedDeltaBackward& args) { HWY_DYNAMIC_DISPATCH(gated_delta_backward)(args); }
}  // namespace cpu
}  // namespace lamina::ops
#endif
