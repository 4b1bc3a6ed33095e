// One chunk of one head on a CPU, shared by forward and backward of ssd_scan. The formulas are in ssd_scan.h. Included
// once per SIMD target.
#if defined(LAMINA_OPS_SSM_SSD_CHUNK_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef LAMINA_OPS_SSM_SSD_CHUNK_INL_H_
#undef LAMINA_OPS_SSM_SSD_CHUNK_INL_H_
#else
#define LAMINA_OPS_SSM_SSD_CHUNK_INL_H_
#endif

#include <algorithm>
#include <cmath>
#include <vector>

#include "lamina/ops/linear/gemm.h"
#include "lamina/ops/ssm/softplus-inl.h"
#include "lamina/ops/ssm/ssd_scan_kernel.h"

HWY_BEFORE_NAMESPACE();
namespace lamina::ops::HWY_NAMESPACE {
using namespace lamina::HWY_NAMESPACE;  // NOLINT: SIMD helpers of this target

/// gemm() that also accepts empty matrices.
template <class Real>
void product(const Threads& threads, const Gemm<Real>& p) {
  if (p.m == 0 || p.n == 0) return;
  if (p.k > 0) {
    gemm(threads, p);
    return;
  }
  for (int64_t i = 0; i < p.m; ++i) {
    for (int64_t j = 0; j < p.n; ++j) p.c[i * p.ldc + j] = p.beta == 0 ? Real{0} : p.beta * p.c[i * p.ldc + j];
  }
}

/// Sizes, and buffers that are reused for every chunk of a head.
template <class T>
struct SsdChunk {
  using Real = Accumulate<T>;

  const SsdForward& args;
  int64_t seq = args.x.dim(1);
  int64_t heads = args.x.dim(2);
  int64_t p = args.x.dim(3);
  int64_t groups = args.b.dim(2);
  int64_t n = args.b.dim(3);
  int64_t size = std::min(args.options.chunk_size, std::max<int64_t>(seq, 1));
  int64_t chunks = (seq + size - 1) / size;
  const Threads& threads = args.x.device().threads();

  // The current chunk: q positions from `first` on.
  int64_t entry = 0, head = 0, first = 0, q = 0;
  std::vector<Real> raw = reals(size);    // dt + bias
  std::vector<Real> soft = reals(size);   // softplus of raw
  std::vector<Real> steps = reals(size);  // Δ
  std::vector<Real> high = reals(size);   // running sum s of Δ · a, as high + low, so that differences are exact
  std::vector<Real> low = reals(size);
  std::vector<Real> from_start = reals(size);     // exp(s_t)
  std::vector<Real> to_end = reals(size);         // exp(s_end − s_t)
  Real whole = 1;                                 // exp(s_end)
  std::vector<Real> dx = reals(size * p);         // Δ · x
  std::vector<Real> decays = reals(size * size);  // exp(s_t − s_s), zero for s > t

  static std::vector<Real> reals(int64_t count) { return std::vector<Real>(static_cast<size_t>(count)); }
  int64_t group() const { return head / (heads / groups); }
  const T* x_row(int64_t t) const { return args.x.template data<T>() + ((entry * seq + first + t) * heads + head) * p; }
  const Real* b_rows() const { return mixed(args.b); }
  const Real* c_rows() const { return mixed(args.c); }
  int64_t mixed_stride() const { return groups * n; }
  const Real* mixed(const Tensor& tensor) const {
    return tensor.data<Real>() + ((entry * seq + first) * groups + group()) * n;
  }
  /// Offset of the products c·b of this chunk and group in a buffer [batch, chunks, groups, size, size].
  int64_t gram_at() const { return ((entry * chunks + first / size) * groups + group()) * size * size; }

  void start(int64_t entry_, int64_t head_, int64_t chunk) {
    entry = entry_;
    head = head_;
    first = chunk * size;
    q = std::min(size, seq - first);
  }

  void compute_steps() {
    const ComputeTag<T> d;
    const Real bias = args.dt_bias.defined() ? args.dt_bias.template data<Real>()[head] : Real{0};
    const T* dt = args.dt.template data<T>() + (entry * seq + first) * heads + head;
    for (int64_t t = 0; t < q; ++t) raw[static_cast<size_t>(t)] = convert<Real>(dt[t * heads]) + bias;
    const auto low_limit = hn::Set(d, static_cast<Real>(args.options.dt_min));
    const auto high_limit = hn::Set(d, static_cast<Real>(args.options.dt_max));
    for_vectors(d, q, [&](int64_t i, size_t count) HWY_ATTR {
      auto step = load_n(d, raw.data() + i, count);
      if (args.options.dt_softplus) step = softplus(d, step);
      store_n(d, step, soft.data() + i, count);
      // This order of min and max propagates NaN.
      store_n(d, hn::Min(high_limit, hn::Max(low_limit, step)), steps.data() + i, count);
    });
    const double a = args.a.template data<Real>()[head];
    double sum = 0;
    for (size_t t = 0; t < static_cast<size_t>(q); ++t) {
      sum += static_cast<double>(steps[t]) * a;
      high[t] = static_cast<Real>(sum);
      low[t] = static_cast<Real>(sum - static_cast<double>(high[t]));
    }
    whole = static_cast<Real>(std::exp(sum));
    const auto end_high = hn::Set(d, high[static_cast<size_t>(q - 1)]);
    const auto end_low = hn::Set(d, low[static_cast<size_t>(q - 1)]);
    for_vectors(d, q, [&](int64_t i, size_t count) HWY_ATTR {
      const auto h = load_n(d, high.data() + i, count);
      const auto l = load_n(d, low.data() + i, count);
      store_n(d, exp(d, hn::Add(h, l)), from_start.data() + i, count);
      store_n(d, exp(d, hn::Add(hn::Sub(end_high, h), hn::Sub(end_low, l))), to_end.data() + i, count);
    });
  }

  void compute_decays() {
    const ComputeTag<T> d;
    for (int64_t t = 0; t < q; ++t) {
      Real* row = decays.data() + t * q;
      const auto h = hn::Set(d, high[static_cast<size_t>(t)]);
      const auto l = hn::Set(d, low[static_cast<size_t>(t)]);
      for_vectors(d, t + 1, [&](int64_t i, size_t count) HWY_ATTR {
        const auto gap =
            hn::Add(hn::Sub(h, load_n(d, high.data() + i, count)), hn::Sub(l, load_n(d, low.data() + i, count)));
        store_n(d, exp(d, gap), row + i, count);
      });
      std::fill(row + t + 1, row + q, Real{0});
    }
  }

  void compute_dx() {
    const ComputeTag<T> d;
    for (int64_t t = 0; t < q; ++t) {
      const auto step = hn::Set(d, steps[static_cast<size_t>(t)]);
      const T* from = x_row(t);
      for_vectors(d, p, [&](int64_t i, size_t count) HWY_ATTR {
        store_n(d, hn::Mul(step, load_n(d, from + i, count)), dx.data() + t * p + i, count);
      });
    }
  }
};

/// to[r] = factor[r] · from[r] for `rows` rows of `width` elements; `stride` is the row stride of `from`.
template <class Real>
void scale_rows(const Real* from, int64_t stride, const Real* factor, int64_t rows, int64_t width, Real* to) {
  const hn::ScalableTag<Real> d;
  for (int64_t r = 0; r < rows; ++r) {
    const auto f = hn::Set(d, factor[r]);
    for_vectors(d, width, [&](int64_t i, size_t count) HWY_ATTR {
      store_n(d, hn::Mul(f, load_n(d, from + r * stride + i, count)), to + r * width + i, count);
    });
  }
}

/// The products c_t · b_s of every chunk and group: [batch, chunks, groups, size, size], in rows of q values.
template <class T>
Tensor gram_matrices(const SsdForward& args) {
  using Real = Accumulate<T>;
  const SsdChunk<T> shape{args};
  const int64_t batch = args.x.dim(0);
  const int64_t chunks = shape.chunks;
  const int64_t groups = shape.groups;
  Tensor gram = Tensor::empty({batch, chunks, groups, shape.size, shape.size}, dtype_of<Real>(), args.x.device());
  if (shape.heads == 0) return gram;
  shape.threads.tasks(batch * chunks * groups, [&](int64_t task) HWY_ATTR {
    SsdChunk<T> k{args};
    k.start(task / (chunks * groups), task % groups * (k.heads / groups), task / groups % chunks);
    product(k.threads, Gemm<Real>{.transpose_b = true,
                                  .m = k.q,
                                  .n = k.q,
                                  .k = k.n,
                                  .a = k.c_rows(),
                                  .lda = k.mixed_stride(),
                                  .b = k.b_rows(),
                                  .ldb = k.mixed_stride(),
                                  .c = gram.data<Real>() + k.gram_at(),
                                  .ldc = k.q});
  });
  return gram;
}

}  // namespace lamina::ops::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
