// A task is one head of one batch entry; it runs through the chunks with its state. The products c·b, which the heads
// of a group share, are computed first. The GEMMs of a task run on the task's own thread.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "lamina/ops/ssm/ssd_scan_cpu.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "lamina/base/simd-inl.h"
#include "lamina/ops/ssm/ssd_chunk-inl.h"
#include "lamina/ops/ssm/ssd_scan_kernel.h"

HWY_BEFORE_NAMESPACE();
namespace lamina::ops::HWY_NAMESPACE {

/// Computes y of one chunk, and replaces `state` by the state after it.
template <class T>
void forward_chunk(SsdChunk<T>& k, const Accumulate<T>* gram, Accumulate<T>* state, std::vector<Accumulate<T>>& y,
                   std::vector<Accumulate<T>>& mixed) {
  using Real = Accumulate<T>;
  const ComputeTag<T> d;
  k.compute_steps();
  k.compute_decays();
  k.compute_dx();
  for_vectors(d, k.q * k.q, [&](int64_t i, size_t count) HWY_ATTR {
    Real* at = k.decays.data() + i;
    store_n(d, hn::Mul(load_n(d, at, count), load_n(d, gram + i, count)), at, count);
  });
  const int64_t q = k.q;
  const int64_t p = k.p;
  const int64_t n = k.n;
  product(
      k.threads,
      Gemm<Real>{
          .m = q, .n = p, .k = q, .a = k.decays.data(), .lda = q, .b = k.dx.data(), .ldb = p, .c = y.data(), .ldc = p});
  scale_rows(k.c_rows(), k.mixed_stride(), k.from_start.data(), q, n, mixed.data());
  product(k.threads, Gemm<Real>{.transpose_b = true,
                                .m = q,
                                .n = p,
                                .k = n,
                                .a = mixed.data(),
                                .lda = n,
                                .b = state,
                                .ldb = n,
                                .beta = 1,
                                .c = y.data(),
                                .ldc = p});
  scale_rows(k.b_rows(), k.mixed_stride(), k.to_end.data(), q, n, mixed.data());
  product(k.threads, Gemm<Real>{.transpose_a = true,
                                .m = p,
                                .n = n,
                                .k = q,
                                .a = k.dx.data(),
                                .lda = p,
                                .b = mixed.data(),
                                .ldb = n,
                                .beta = k.whole,
                                .c = state,
                                .ldc = n});
}

template <class T>
void store_y(const SsdChunk<T>& k, const std::vector<Accumulate<T>>& y, T* out) {
  const ComputeTag<T> d;
  const auto skip = hn::Set(d, k.args.d.defined() ? k.args.d.template data<Accumulate<T>>()[k.head] : Accumulate<T>{0});
  for (int64_t t = 0; t < k.q; ++t) {
    T* to = out + ((k.entry * k.seq + k.first + t) * k.heads + k.head) * k.p;
    for_vectors(d, k.p, [&](int64_t i, size_t count) HWY_ATTR {
      auto v = load_n(d, y.data() + t * k.p + i, count);
      if (k.args.d.defined()) v = hn::MulAdd(skip, load_n(d, k.x_row(t) + i, count), v);
      store_n(d, v, to + i, count);
    });
  }
}

template <class T>
void forward(const SsdForward& args) {
  using Real = Accumulate<T>;
  const int64_t heads = args.x.dim(2);
  if (args.x.dim(0) * args.x.dim(1) * heads == 0) return;
  const Tensor gram = gram_matrices<T>(args);
  args.x.device().threads().tasks(args.x.dim(0) * heads, [&](int64_t task) HWY_ATTR {
    SsdChunk<T> k{args};
    std::vector<Real> y = k.reals(k.size * k.p);
    std::vector<Real> mixed = k.reals(k.size * k.n);
    const int64_t extent = k.p * k.n;
    Real* state = args.state.data<Real>() + task * extent;
    for (int64_t chunk = 0; chunk < k.chunks; ++chunk) {
      k.start(task / heads, task % heads, chunk);
      if (args.states.defined()) {
        std::copy_n(state, extent, args.states.data<Real>() + ((k.entry * k.chunks + chunk) * heads + k.head) * extent);
      }
      forward_chunk<T>(k, gram.data<Real>() + k.gram_at(), state, y, mixed);
      store_y<T>(k, y, args.y.data<T>());
    }
  });
}

void ssd_forward(const SsdForward& args) {
  visit_floating(args.x.dtype(), [&](auto tag) { forward<typename decltype(tag)::type>(args); });
}

}  // namespace lamina::ops::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace lamina::ops {
HWY_EXPORT(ssd_forward);

namespace cpu {
void ssd_forward(const SsdForward& args) { HWY_DYNAMIC_DISPATCH(ssd_forward)(args); }
}  // namespace cpu
}  // namespace lamina::ops
#endif
