// A task is a slice of the heads of one group and batch entry, with at most eight slices per group. It processes the
// chunks from the last to the first. db and dc are sums over the heads of a group: every slice has partial sums, which
// are added in order at the end. The formulas are in ssd_scan.h.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "lamina/ops/ssm/ssd_scan_backward_cpu.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "lamina/base/simd-inl.h"
#include "lamina/ops/ssm/ssd_chunk-inl.h"
#include "lamina/ops/ssm/ssd_scan_kernel.h"

HWY_BEFORE_NAMESPACE();
namespace lamina::ops::HWY_NAMESPACE {

template <class Real>
Real dot(const Real* a, const Real* b, int64_t n) {
  const hn::ScalableTag<Real> d;
  auto sum = hn::Zero(d);
  for_vectors(d, n, [&](int64_t i, size_t count) HWY_ATTR {
    sum = hn::MulAdd(load_n(d, a + i, count), load_n(d, b + i, count), sum);
  });
  return hn::GetLane(hn::SumOfLanes(d, sum));
}

/// to[i] += factor · from[i]
template <class Real>
void add_scaled(Real factor, const Real* from, int64_t n, Real* to) {
  const hn::ScalableTag<Real> d;
  const auto f = hn::Set(d, factor);
  for_vectors(d, n, [&](int64_t i, size_t count) HWY_ATTR {
    store_n(d, hn::MulAdd(f, load_n(d, from + i, count), load_n(d, to + i, count)), to + i, count);
  });
}

/// Sums over all positions of one head and batch entry: gradients of a, d and dt_bias.
struct HeadSums {
  double a = 0, d = 0, dt_bias = 0;
};

template <class T>
struct BackwardSlice {
  using Real = Accumulate<T>;
  const SsdBackward& args;
  const Real* gram;
  Real* db;  // [seq, groups, n] of this slice and batch entry
  Real* dc;
  SsdChunk<T> k{args.forward};
  std::vector<Real> dy = k.reals(k.size * k.p);
  std::vector<Real> dy_start = k.reals(k.size * k.p);  // exp(s) ∘ dy
  std::vector<Real> ddx = k.reals(k.size * k.p);
  std::vector<Real> masked = k.reals(k.size * k.size);  // M, then (dy Δxᵀ) ∘ M
  std::vector<Real> outer = k.reals(k.size * k.size);   // dy Δxᵀ
  std::vector<Real> dgram = k.reals(k.size * k.size);   // gradient of c·b, summed over the heads of the slice
  std::vector<Real> mixed = k.reals(k.size * k.n);
  std::vector<double> ds = std::vector<double>(static_cast<size_t>(k.size));  // gradient of the running sum s

  Real* row_of(Real* from, int64_t t) const { return from + ((k.first + t) * k.groups + k.group()) * k.n; }

  void load_dy() {
    const ComputeTag<T> d;
    for (int64_t t = 0; t < k.q; ++t) {
      const T* from = args.dy.template data<T>() + ((k.entry * k.seq + k.first + t) * k.heads + k.head) * k.p;
      for_vectors(d, k.p, [&](int64_t i, size_t count) HWY_ATTR {
        store_n(d, load_n(d, from + i, count), dy.data() + t * k.p + i, count);
      });
    }
    scale_rows(dy.data(), k.p, k.from_start.data(), k.q, k.p, dy_start.data());
  }

  /// Terms within the chunk: adds Mᵀ dy to ddx, and computes the contributions to dgram and ds.
  void inner() {
    const ComputeTag<T> d;
    const int64_t q = k.q;
    const Real* pair = gram + k.gram_at();
    for_vectors(d, q * q, [&](int64_t i, size_t count) HWY_ATTR {
      store_n(d, hn::Mul(load_n(d, k.decays.data() + i, count), load_n(d, pair + i, count)), masked.data() + i, count);
    });
    product(k.threads, Gemm<Real>{.transpose_a = true,
                                  .m = q,
                                  .n = k.p,
                                  .k = q,
                                  .a = masked.data(),
                                  .lda = q,
                                  .b = dy.data(),
                                  .ldb = k.p,
                                  .beta = 1,
                                  .c = ddx.data(),
                                  .ldc = k.p});
    product(k.threads, Gemm<Real>{.transpose_b = true,
                                  .m = q,
                                  .n = q,
                                  .k = k.p,
                                  .a = dy.data(),
                                  .lda = k.p,
                                  .b = k.dx.data(),
                                  .ldb = k.p,
                                  .c = outer.data(),
                                  .ldc = q});
    for_vectors(d, q * q, [&](int64_t i, size_t count) HWY_ATTR {
      const auto o = load_n(d, outer.data() + i, count);
      store_n(d, hn::Mul(o, load_n(d, masked.data() + i, count)), masked.data() + i, count);
      const auto g = load_n(d, dgram.data() + i, count);
      store_n(d, hn::MulAdd(o, load_n(d, k.decays.data() + i, count), g), dgram.data() + i, count);
    });
    for (int64_t t = 0; t < q; ++t) {
      const Real* row = masked.data() + t * q;
      for (int64_t s = 0; s < t; ++s) {
        ds[static_cast<size_t>(t)] += row[s];
        ds[static_cast<size_t>(s)] -= row[s];
      }
    }
  }

  /// Terms across the chunk's boundary: adds to ddx, db, dc and ds. dstate, the gradient after the chunk, becomes the
  /// one before it.
  void across(const Real* state, Real* dstate) {
    const int64_t q = k.q;
    const int64_t p = k.p;
    const int64_t n = k.n;
    scale_rows(k.b_rows(), k.mixed_stride(), k.to_end.data(), q, n, mixed.data());
    product(k.threads, Gemm<Real>{.transpose_b = true,
                                  .m = q,
                                  .n = p,
                                  .k = n,
                                  .a = mixed.data(),
                                  .lda = n,
                                  .b = dstate,
                                  .ldb = n,
                                  .c = ddx.data(),
                                  .ldc = p});
    product(
        k.threads,
        Gemm<Real>{
            .m = q, .n = n, .k = p, .a = k.dx.data(), .lda = p, .b = dstate, .ldb = n, .c = mixed.data(), .ldc = n});
    double end = static_cast<double>(k.whole) * dot(state, dstate, p * n);
    for (int64_t t = 0; t < q; ++t) {
      const Real factor = k.to_end[static_cast<size_t>(t)];
      const Real share = factor * dot(mixed.data() + t * n, k.b_rows() + t * k.mixed_stride(), n);
      end += share;
      ds[static_cast<size_t>(t)] -= share;
      add_scaled(factor, mixed.data() + t * n, n, row_of(db, t));
    }
    ds[static_cast<size_t>(q - 1)] += end;
    product(
        k.threads,
        Gemm<Real>{
            .m = q, .n = n, .k = p, .a = dy_start.data(), .lda = p, .b = state, .ldb = n, .c = mixed.data(), .ldc = n});
    for (int64_t t = 0; t < q; ++t) {
      ds[static_cast<size_t>(t)] += dot(mixed.data() + t * n, k.c_rows() + t * k.mixed_stride(), n);
      add_scaled(Real{1}, mixed.data() + t * n, n, row_of(dc, t));
    }
    product(k.threads, Gemm<Real>{.transpose_a = true,
                                  .m = p,
                                  .n = n,
                                  .k = q,
                                  .a = dy_start.data(),
                                  .lda = p,
                                  .b = k.c_rows(),
                                  .ldb = k.mixed_stride(),
                                  .beta = k.whole,
                                  .c = dstate,
                                  .ldc = n});
  }

  /// Computes the gradients of x, dt, a, d and the bias from ddx and ds.
  void finish_positions(HeadSums& sums) {
    const ComputeTag<T> d;
    const auto a = static_cast<double>(args.forward.a.template data<Real>()[k.head]);
    const bool skip = args.forward.d.defined();
    const auto dv = hn::Set(d, skip ? args.forward.d.template data<Real>()[k.head] : Real{0});
    double later = 0;
    for (int64_t t = k.q - 1; t >= 0; --t) {
      const auto i = static_cast<size_t>(t);
      later += ds[i];
      const T* x = k.x_row(t);
      T* out = args.dx.template data<T>() + (x - args.forward.x.template data<T>());
      auto with_x = hn::Zero(d);
      auto dy_x = hn::Zero(d);
      const auto step = hn::Set(d, k.steps[i]);
      for_vectors(d, k.p, [&](int64_t j, size_t count) HWY_ATTR {
        const auto xv = load_n(d, x + j, count);
        const auto g = load_n(d, ddx.data() + t * k.p + j, count);
        const auto dyv = load_n(d, dy.data() + t * k.p + j, count);
        with_x = hn::MulAdd(g, xv, with_x);
        dy_x = hn::MulAdd(dyv, xv, dy_x);
        store_n(d, hn::MulAdd(step, g, hn::Mul(dv, dyv)), out + j, count);
      });
      sums.d += hn::GetLane(hn::SumOfLanes(d, dy_x));
      sums.a += later * static_cast<double>(k.steps[i]);
      const bool inside = k.soft[i] == k.steps[i];
      double dstep = inside ? later * a + static_cast<double>(hn::GetLane(hn::SumOfLanes(d, with_x))) : 0.0;
      if (args.forward.options.dt_softplus) dstep /= 1 + std::exp(-static_cast<double>(k.raw[i]));
      sums.dt_bias += dstep;
      args.ddt.template data<T>()[(k.entry * k.seq + k.first + t) * k.heads + k.head] =
          convert<T>(static_cast<Real>(dstep));
    }
  }

  void run_head(int64_t entry, int64_t head, int64_t chunk, HeadSums& sums) {
    k.start(entry, head, chunk);
    k.compute_steps();
    k.compute_decays();
    k.compute_dx();
    load_dy();
    std::fill(ds.begin(), ds.end(), 0.0);
    const int64_t extent = k.p * k.n;
    across(args.forward.states.template data<Real>() + ((entry * k.chunks + chunk) * k.heads + head) * extent,
           args.dstate.template data<Real>() + (entry * k.heads + head) * extent);
    inner();
    finish_positions(sums);
  }

  /// Adds to db and dc the products that the heads of the slice share.
  void finish_chunk() {
    const int64_t stride = k.mixed_stride();
    product(k.threads, Gemm<Real>{.m = k.q,
                                  .n = k.n,
                                  .k = k.q,
                                  .a = dgram.data(),
                                  .lda = k.q,
                                  .b = k.b_rows(),
                                  .ldb = stride,
                                  .beta = 1,
                                  .c = row_of(dc, 0),
                                  .ldc = stride});
    product(k.threads, Gemm<Real>{.transpose_a = true,
                                  .m = k.q,
                                  .n = k.n,
                                  .k = k.q,
                                  .a = dgram.data(),
                                  .lda = k.q,
                                  .b = k.c_rows(),
                                  .ldb = stride,
                                  .beta = 1,
                                  .c = row_of(db, 0),
                                  .ldc = stride});
    std::fill(dgram.begin(), dgram.end(), Real{0});
  }
};

template <class Real>
void add_slices(const Threads& threads, const Tensor& parts, const Tensor& total) {
  Real* to = total.data<Real>();
  const Real* from = parts.data<Real>();
  const int64_t size = total.numel();
  threads.ranges(size, 16384, [&](int64_t begin, int64_t end) {
    std::fill(to + begin, to + end, Real{0});
    for (int64_t part = 0; part < parts.dim(0); ++part) {
      for (int64_t i = begin; i < end; ++i) to[i] += from[part * size + i];
    }
  });
}

template <class Real>
void add_heads(const std::vector<HeadSums>& sums, int64_t heads, double HeadSums::*member, const Tensor& total) {
  if (!total.defined()) return;
  for (int64_t head = 0; head < heads; ++head) {
    double sum = 0;
    for (size_t i = static_cast<size_t>(head); i < sums.size(); i += static_cast<size_t>(heads)) sum += sums[i].*member;
    total.data<Real>()[head] = static_cast<Real>(sum);
  }
}

template <class T>
void backward(const SsdBackward& args) {
  using Real = Accumulate<T>;
  const SsdForward& f = args.forward;
  const Device& device = f.x.device();
  const int64_t batch = f.x.dim(0);
  const int64_t heads = f.x.dim(2);
  const int64_t groups = f.b.dim(2);
  const int64_t in_group = heads / groups;
  const int64_t per_slice = std::max<int64_t>(1, (in_group + 7) / 8);
  const int64_t slices = (in_group + per_slice - 1) / per_slice;
  const Tensor gram = gram_matrices<T>(f);
  const Tensor db = Tensor::zeros({slices, batch, f.x.dim(1), groups, f.b.dim(3)}, dtype_of<Real>(), device);
  const Tensor dc = Tensor::zeros(db.shape(), dtype_of<Real>(), device);
  std::vector<HeadSums> sums(static_cast<size_t>(batch * heads));
  device.threads().tasks(batch * groups * slices, [&](int64_t task) HWY_ATTR {
    const int64_t entry = task / (groups * slices);
    const int64_t group = task / slices % groups;
    const int64_t slice = task % slices;
    const int64_t at = (slice * batch + entry) * f.x.dim(1) * groups * f.b.dim(3);
    BackwardSlice<T> work{args, gram.data<Real>(), db.data<Real>() + at, dc.data<Real>() + at};
    for (int64_t chunk = work.k.chunks - 1; chunk >= 0; --chunk) {
      for (int64_t i = slice * per_slice; i < std::min(in_group, (slice + 1) * per_slice); ++i) {
        const int64_t head = group * in_group + i;
        work.run_head(entry, head, chunk, sums[static_cast<size_t>(entry * heads + head)]);
      }
      work.finish_chunk();
    }
  });
  add_slices<Real>(device.threads(), db, args.db);
  add_slices<Real>(device.threads(), dc, args.dc);
  add_heads<Real>(sums, heads, &HeadSums::a, args.da);
  add_heads<Real>(sums, heads, &HeadSums::d, args.dd);
  add_heads<Real>(sums, heads, &HeadSums::dt_bias, args.ddt_bias);
}

void ssd_backward(const SsdBackward& args) {
  visit_floating(args.dy.dtype(), [&](auto tag) { backward<typename decltype(tag)::type>(args); });
}

}  // namespace lamina::ops::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace lamina::ops {
HWY_EXPORT(ssd_backward);

namespace cpu {
void ssd_backward(const SsdBackward& args) { HWY_DYNAMIC_DISPATCH(ssd_backward)(args); }
}  // namespace cpu
}  // namespace lamina::ops
#endif
