// Backward for the cases that ssd_fused_backward_cuda.cu does not support. All chunks run in parallel, as in forward: a
// small kernel propagates the gradients of the states backwards across chunks; everything else is products of 64 × 64
// tiles.
//
// db and dc are sums over the heads of a group: a block takes a slice of the heads (at most eight slices), adds its
// heads in registers and writes a partial sum. The gradient of the running sum s needs row and column sums of several
// products. The blocks that compute these products write the sums per position; then one thread per chunk and head
// accumulates them backwards in f64.
#include <utility>

#include "lamina/ops/ssm/parts_cuda.h"
#include "lamina/ops/ssm/ssd_scan.cuh"
#include "lamina/ops/ssm/ssd_scan_kernel.h"

namespace lamina::ops::cuda {
namespace {

constexpr const char* kOp = "ssd_scan";
constexpr int kThreads = 128;

/// Sums over a tile, for each position: [tiles, batch, heads, seq]. Row and column sums are f64, because they cancel
/// except for the terms between two positions, and the rounding error would grow with the distance.
struct PositionSums {
  double* rows;     ///< Σ_{s<t} (dy_t · Δx_s) M_ts over a tile of s
  double* columns;  ///< the same terms, summed over a tile of t
  float* from_c;    ///< exp(s_t) dy_t · H c_t over a tile of n
  float* from_b;    ///< exp(s_end − s_s) Δx_s · dH' b_s over a tile of n
  float* with_x;    ///< dΔx · x over a tile of p
  float* dy_x;      ///< dy · x over a tile of p
};

template <class T>
struct Back {
  SsdShape shape;
  SsdSteps steps;
  int64_t slices, per_slice;
  const T *x, *dy;
  const float *a, *b, *c, *d;  // d may be null
  const float* gram;
  const float* states;   // states before each chunk
  const float* dstates;  // gradients after each chunk
  float* dgram;          // [slices, batch, chunks, groups, size, size]
  float *db, *dc;        // [slices, batch, seq, groups, n]
  PositionSums sums;
  T* dx;

  /// The slice and the chunk of a block; blocks are numbered as [batch, chunks, groups, slices].
  __device__ SsdChunkAt of_slice(int64_t block, int64_t& slice) const {
    slice = block % slices;
    return shape.of_group(block / slices);
  }
  __device__ int64_t dgram_at(const SsdChunkAt& at, int64_t slice) const {
    return slice * shape.batch * shape.chunks * shape.groups * shape.size * shape.size + shape.gram_at(at);
  }
  __device__ int64_t mixed_at(const SsdChunkAt& at, int64_t slice) const {
    return slice * shape.batch * shape.seq * shape.groups * shape.n + shape.mixed_at(at);
  }
};

/// The contribution of a chunk to the gradient of the state before it: Σ_t exp(s_t) dy_t ⊗ c_t.
template <class T>
__global__ void __launch_bounds__(kTileThreads) chunk_dstate_kernel(Back<T> k, float* dstates) {
  __shared__ TileMemory memory;
  const SsdShape& shape = k.shape;
  const SsdChunkAt at = shape.of_head(blockIdx.x);
  const int64_t p0 = blockIdx.y * int64_t{kTile};
  const int64_t n0 = blockIdx.z * int64_t{kTile};
  const T* dy = k.dy + shape.x_at(at);
  const float* c = k.c + shape.mixed_at(at);
  const int64_t position = shape.position_at(at);
  float acc[4][4] = {};
  tile_product<false, false>(
      at.q,
      [&](int i, int64_t t) {
        return p0 + i < shape.p ? k.steps.from_start[position + t] * to_float(dy[t * shape.x_stride() + p0 + i]) : 0.0F;
      },
      [&](int64_t t, int j) { return n0 + j < shape.n ? c[t * shape.mixed_stride() + n0 + j] : 0.0F; }, memory, acc);
  float* out = dstates + shape.state_at(at);
  for (int r = 0; r < 4; ++r) {
    const int64_t i = p0 + tile_row() + r;
    for (int col = 0; col < 4; ++col) {
      const int64_t j = n0 + tile_column() + col;
      if (i < shape.p && j < shape.n) out[i * shape.n + j] = acc[r][col];
    }
  }
}

/// Computes the dot product exp(s_end) H · dH' for every chunk and head.
__global__ void __launch_bounds__(kTileThreads)
    state_dot_kernel(int64_t extent, const float* whole, const float* states, const float* dstates, float* dots) {
  __shared__ float scratch[lamina::cuda::kWarp];
  const int64_t first = blockIdx.x * extent;
  float sum = 0;
  for (int64_t i = threadIdx.x; i < extent; i += kTileThreads) sum = fmaf(states[first + i], dstates[first + i], sum);
  sum = lamina::cuda::block_sum(sum, scratch);
  if (threadIdx.x == 0) dots[blockIdx.x] = whole[blockIdx.x] * sum;
}

/// Computes a tile of dy Δxᵀ, on or below the diagonal, for the heads of a slice. Writes the gradient of c·b (dgram),
/// and the row and column sums for s.
template <class T>
__global__ void __launch_bounds__(kTileThreads) pairs_kernel(Back<T> k) {
  __shared__ TileMemory memory;
  __shared__ double columns[16][kTile];
  if (blockIdx.z > blockIdx.y) return;
  const SsdShape& shape = k.shape;
  int64_t slice = 0;
  SsdChunkAt at = k.of_slice(blockIdx.x, slice);
  const int64_t t0 = blockIdx.y * int64_t{kTile};
  const int64_t s0 = blockIdx.z * int64_t{kTile};
  if (t0 >= at.q) return;
  const float* pair = k.gram + shape.gram_at(at);
  const int64_t all = shape.batch * shape.heads * shape.seq;
  float dgram[4][4] = {};
  const int64_t first = at.group * shape.in_group + slice * k.per_slice;
  const int64_t last = min(first + k.per_slice, (at.group + 1) * shape.in_group);
  for (at.head = first; at.head < last; ++at.head) {
    const T* dy = k.dy + shape.x_at(at);
    const T* x = k.x + shape.x_at(at);
    const int64_t position = shape.position_at(at);
    float acc[4][4] = {};
    tile_product<true, true>(
        shape.p, [&](int i, int64_t j) { return t0 + i < at.q ? to_float(dy[(t0 + i) * shape.x_stride() + j]) : 0.0F; },
        [&](int64_t j, int s) {
          if (s0 + s >= at.q) return 0.0F;
          return k.steps.step[position + s0 + s] * to_float(x[(s0 + s) * shape.x_stride() + j]);
        },
        memory, acc);
    double down[4] = {};
#pragma unroll
    for (int r = 0; r < 4; ++r) {
      const int64_t t = t0 + tile_row() + r;
      double across = 0;
#pragma unroll
      for (int col = 0; col < 4; ++col) {
        const int64_t s = s0 + tile_column() + col;
        if (t >= at.q || s > t) continue;
        const float bent = acc[r][col] * k.steps.decay(position, t, s);
        dgram[r][col] += bent;
        if (s == t) continue;  // the decay of a position to itself is always 1, so it has no gradient
        const auto share = static_cast<double>(bent * pair[t * shape.size + s]);
        across += share;
        down[col] += share;
      }
      across = tile_row_sum(across);
      if (tile_column() == 0 && t < at.q) k.sums.rows[blockIdx.z * all + position + t] = across;
    }
    for (int col = 0; col < 4; ++col) columns[tile_row() / 4][tile_column() + col] = down[col];
    __syncthreads();
    if (threadIdx.x < kTile && s0 + threadIdx.x < at.q) {
      double sum = 0;
      for (int row = 0; row < 16; ++row) sum += columns[row][threadIdx.x];
      k.sums.columns[blockIdx.y * all + position + s0 + threadIdx.x] = sum;
    }
    __syncthreads();
  }
  float* out = k.dgram + k.dgram_at(at, slice);
  for (int r = 0; r < 4; ++r) {
    const int64_t t = t0 + tile_row() + r;
    for (int col = 0; col < 4; ++col) {
      const int64_t s = s0 + tile_column() + col;
      if (t < at.q && s < at.q) out[t * shape.size + s] = dgram[r][col];
    }
  }
}

/// Computes dΔx = Mᵀ dy + exp(s_end − s) ∘ (b dH'ᵀ), and from it dx.
template <class T>
__global__ void __launch_bounds__(kTileThreads) input_kernel(Back<T> k) {
  __shared__ TileMemory memory;
  const SsdShape& shape = k.shape;
  const SsdChunkAt at = shape.of_head(blockIdx.x);
  const int64_t s0 = blockIdx.y * int64_t{kTile};
  const int64_t p0 = blockIdx.z * int64_t{kTile};
  if (s0 >= at.q) return;
  const T* x = k.x + shape.x_at(at);
  const T* dy = k.dy + shape.x_at(at);
  const float* pair = k.gram + shape.gram_at(at);
  const int64_t position = shape.position_at(at);
  float acc[4][4] = {};
  tile_product<false, false>(
      at.q - s0,
      [&](int i, int64_t from) {
        const int64_t t = s0 + from;
        const int64_t s = s0 + i;
        return s <= t ? pair[t * shape.size + s] * k.steps.decay(position, t, s) : 0.0F;
      },
      [&](int64_t from, int j) {
        return p0 + j < shape.p ? to_float(dy[(s0 + from) * shape.x_stride() + p0 + j]) : 0.0F;
      },
      memory, acc);
  const float* b = k.b + shape.mixed_at(at);
  const float* dstate = k.dstates + shape.state_at(at);
  tile_product<true, true>(
      shape.n,
      [&](int i, int64_t j) {
        const int64_t s = s0 + i;
        return s < at.q ? k.steps.to_end[position + s] * b[s * shape.mixed_stride() + j] : 0.0F;
      },
      [&](int64_t j, int i) { return p0 + i < shape.p ? dstate[(p0 + i) * shape.n + j] : 0.0F; }, memory, acc);
  const float skip = k.d != nullptr ? k.d[at.head] : 0.0F;
  const int64_t all = shape.batch * shape.heads * shape.seq;
#pragma unroll
  for (int r = 0; r < 4; ++r) {
    const int64_t s = s0 + tile_row() + r;
    float with_x = 0;
    float dy_x = 0;
#pragma unroll
    for (int col = 0; col < 4; ++col) {
      const int64_t j = p0 + tile_column() + col;
      if (s >= at.q || j >= shape.p) continue;
      const int64_t place = s * shape.x_stride() + j;
      const float xv = to_float(x[place]);
      const float dyv = to_float(dy[place]);
      with_x = fmaf(acc[r][col], xv, with_x);
      dy_x = fmaf(dyv, xv, dy_x);
      k.dx[shape.x_at(at) + place] = from_float<T>(fmaf(k.steps.step[position + s], acc[r][col], skip * dyv));
    }
    with_x = tile_row_sum(with_x);
    dy_x = tile_row_sum(dy_x);
    if (tile_column() != 0 || s >= at.q) continue;
    k.sums.with_x[blockIdx.z * all + position + s] = with_x;
    k.sums.dy_x[blockIdx.z * all + position + s] = dy_x;
  }
}

/// total += acc. Also writes the dot products of the rows of acc with the rows of `with` (b or c) to `to`.
__device__ inline void take_head(const float (&acc)[4][4], const float* with, int64_t stride, int64_t t0, int64_t n0,
                                 int64_t q, int64_t n, float* to, float (&total)[4][4]) {
#pragma unroll
  for (int r = 0; r < 4; ++r) {
    const int64_t t = t0 + tile_row() + r;
    float sum = 0;
#pragma unroll
    for (int col = 0; col < 4; ++col) {
      const int64_t j = n0 + tile_column() + col;
      total[r][col] += acc[r][col];
      if (t < q && j < n) sum = fmaf(acc[r][col], with[t * stride + j], sum);
    }
    sum = tile_row_sum(sum);
    if (tile_column() == 0 && t < q) to[t] = sum;
  }
}

__device__ inline void store_mixed(const float (&total)[4][4], int64_t stride, int64_t t0, int64_t n0, int64_t q,
                                   int64_t n, float* to) {
  for (int r = 0; r < 4; ++r) {
    const int64_t t = t0 + tile_row() + r;
    for (int col = 0; col < 4; ++col) {
      const int64_t j = n0 + tile_column() + col;
      if (t < q && j < n) to[t * stride + j] = total[r][col];
    }
  }
}

/// Computes a tile of dc and of db for the heads of a slice.
template <class T>
__global__ void __launch_bounds__(kTileThreads) mixed_kernel(Back<T> k) {
  __shared__ TileMemory memory;
  const SsdShape& shape = k.shape;
  int64_t slice = 0;
  SsdChunkAt at = k.of_slice(blockIdx.x, slice);
  const int64_t t0 = blockIdx.y * int64_t{kTile};
  const int64_t n0 = blockIdx.z * int64_t{kTile};
  if (t0 >= at.q) return;
  const int64_t stride = shape.mixed_stride();
  const float* b = k.b + shape.mixed_at(at);
  const float* c = k.c + shape.mixed_at(at);
  const float* dgram = k.dgram + k.dgram_at(at, slice);
  const int64_t all = shape.batch * shape.heads * shape.seq;
  const int64_t first = at.group * shape.in_group + slice * k.per_slice;
  const int64_t last = min(first + k.per_slice, (at.group + 1) * shape.in_group);
  float dc[4][4] = {};
  float db[4][4] = {};
  for (at.head = first; at.head < last; ++at.head) {
    const T* dy = k.dy + shape.x_at(at);
    const T* x = k.x + shape.x_at(at);
    const float* state = k.states + shape.state_at(at);
    const float* dstate = k.dstates + shape.state_at(at);
    const int64_t position = shape.position_at(at);
    const int64_t sums = blockIdx.z * all + position;
    float acc[4][4] = {};
    tile_product<true, false>(
        shape.p,
        [&](int i, int64_t j) {
          const int64_t t = t0 + i;
          return t < at.q ? k.steps.from_start[position + t] * to_float(dy[t * shape.x_stride() + j]) : 0.0F;
        },
        [&](int64_t j, int i) { return n0 + i < shape.n ? state[j * shape.n + n0 + i] : 0.0F; }, memory, acc);
    take_head(acc, c, stride, t0, n0, at.q, shape.n, k.sums.from_c + sums, dc);
    float other[4][4] = {};
    tile_product<true, false>(
        shape.p,
        [&](int i, int64_t j) {
          const int64_t s = t0 + i;
          if (s >= at.q) return 0.0F;
          return k.steps.to_end[position + s] * k.steps.step[position + s] * to_float(x[s * shape.x_stride() + j]);
        },
        [&](int64_t j, int i) { return n0 + i < shape.n ? dstate[j * shape.n + n0 + i] : 0.0F; }, memory, other);
    take_head(other, b, stride, t0, n0, at.q, shape.n, k.sums.from_b + sums, db);
  }
  tile_product<true, false>(
      min(at.q, t0 + kTile),
      [&](int i, int64_t s) { return t0 + i < at.q && s <= t0 + i ? dgram[(t0 + i) * shape.size + s] : 0.0F; },
      [&](int64_t s, int i) { return n0 + i < shape.n ? b[s * stride + n0 + i] : 0.0F; }, memory, dc);
  tile_product<false, false>(
      at.q - t0, [&](int i, int64_t from) { return i <= from ? dgram[(t0 + from) * shape.size + t0 + i] : 0.0F; },
      [&](int64_t from, int i) { return n0 + i < shape.n ? c[(t0 + from) * stride + n0 + i] : 0.0F; }, memory, db);
  store_mixed(dc, stride, t0, n0, at.q, shape.n, k.dc + k.mixed_at(at, slice));
  store_mixed(db, stride, t0, n0, at.q, shape.n, k.db + k.mixed_at(at, slice));
}

/// Computes the gradients of dt, a, d and the bias from the sums per position; one thread per chunk and head.
template <class T>
__global__ void finish_kernel(Back<T> k, SsdStepSize size, const T* dt, const float* dots, T* ddt, double* parts) {
  const SsdShape& shape = k.shape;
  const int64_t item = blockIdx.x * int64_t{kThreads} + threadIdx.x;
  const int64_t count = shape.batch * shape.chunks * shape.heads;
  if (item >= count) return;
  const SsdChunkAt at = shape.of_head(item);
  const int64_t position = shape.position_at(at);
  const int64_t all = shape.batch * shape.heads * shape.seq;
  const auto total = [&](const auto* from, int64_t t, int64_t begin, int64_t end) {
    double sum = 0;
    for (int64_t tile = begin; tile < end; ++tile) sum += static_cast<double>(from[tile * all + position + t]);
    return sum;
  };
  const int64_t tiles_n = (shape.n + kTile - 1) / kTile;
  const int64_t tiles_p = (shape.p + kTile - 1) / kTile;
  const int64_t tiles_q = (at.q + kTile - 1) / kTile;
  double later = tiles_n > 0 ? static_cast<double>(dots[item]) : 0.0;
  for (int64_t t = 0; t < at.q; ++t) later += total(k.sums.from_b, t, 0, tiles_n);
  const double a = k.a[at.head];
  double da = 0;
  double dd = 0;
  double dbias = 0;
  for (int64_t t = at.q - 1; t >= 0; --t) {
    const int64_t tile = t / kTile;
    later += total(k.sums.rows, t, 0, tile + 1) - total(k.sums.columns, t, tile, tiles_q);
    later += total(k.sums.from_c, t, 0, tiles_n) - total(k.sums.from_b, t, 0, tiles_n);
    const int64_t row = (at.entry * shape.seq + at.first + t) * shape.heads + at.head;
    const float raw = size.raw(to_float(dt[row]), at.head);
    const float soft = size.soft(raw);
    const float step = k.steps.step[position + t];
    da += later * static_cast<double>(step);
    dd += total(k.sums.dy_x, t, 0, tiles_p);
    double dstep = soft == step ? later * a + total(k.sums.with_x, t, 0, tiles_p) : 0.0;
    if (size.with_softplus) dstep /= 1 + exp(-static_cast<double>(raw));
    dbias += dstep;
    ddt[row] = from_float<T>(static_cast<float>(dstep));
  }
  parts[item] = da;
  parts[count + item] = dd;
  parts[2 * count + item] = dbias;
}

template <class T>
void backward(const SsdBackward& args) {
  using D = DeviceType<T>;
  const SsdForward& f = args.forward;
  const SsdShape shape(f);
  const Device& device = f.x.device();
  const cudaStream_t stream = stream_of(device);
  const auto floats = [&](const Shape& extents) { return Tensor::empty(extents, DType::f32, device); };
  const SsdStepBuffers buffers = ssd_steps(f);
  const Tensor gram = ssd_gram(f);
  const int64_t per_slice = std::max<int64_t>(1, (shape.in_group + 7) / 8);
  const int64_t slices = (shape.in_group + per_slice - 1) / per_slice;
  const int64_t tiles_q = SsdShape::tiles(shape.size);
  const int64_t tiles_n = SsdShape::tiles(shape.n);
  const int64_t tiles_p = SsdShape::tiles(shape.p);
  const int64_t all = shape.positions();
  const Tensor dstates = floats({shape.batch, shape.chunks, shape.heads, shape.p, shape.n});
  const Tensor dots = floats({shape.batch, shape.chunks, shape.heads});
  const Tensor dgram = floats({slices, shape.batch, shape.chunks, shape.groups, shape.size * shape.size});
  const Tensor db = floats({slices, shape.batch, shape.seq, shape.groups, shape.n});
  const Tensor dc = floats(db.shape());
  const Tensor sums = floats({2 * (tiles_n + tiles_p), all});
  const Tensor pair_sums = Tensor::empty({2, tiles_q * all}, DType::f64, device);
  const Tensor parts = Tensor::empty({3, shape.batch * shape.chunks, shape.heads}, DType::f64, device);
  Back<D> k{shape,
            buffers.steps(),
            slices,
            per_slice,
            device_data<T>(f.x),
            device_data<T>(args.dy),
            f.a.data<float>(),
            f.b.data<float>(),
            f.c.data<float>(),
            device_data<float>(f.d),
            gram.data<float>(),
            f.states.data<float>(),
            dstates.data<float>(),
            dgram.data<float>(),
            db.data<float>(),
            dc.data<float>(),
            {},
            device_data<T>(args.dx)};
  float* next = sums.data<float>();
  const auto take = [&](int64_t tiles) { return std::exchange(next, next + tiles * all); };
  k.sums.rows = pair_sums.data<double>();
  k.sums.columns = k.sums.rows + tiles_q * all;
  k.sums.from_c = take(tiles_n);
  k.sums.from_b = take(tiles_n);
  k.sums.with_x = take(tiles_p);
  k.sums.dy_x = take(tiles_p);
  if (shape.n > 0) {
    chunk_dstate_kernel<D>
        <<<shape.grid(shape.heads, shape.p, shape.n), kTileThreads, 0, stream>>>(k, dstates.data<float>());
    check_launch(kOp);
    ssd_propagate_states(shape, device, k.steps.whole, true, dstates.data<float>(), args.dstate.data<float>());
    state_dot_kernel<<<static_cast<unsigned>(dots.numel()), kTileThreads, 0, stream>>>(
        shape.p * shape.n, k.steps.whole, k.states, k.dstates, dots.data<float>());
    check_launch(kOp);
  }
  pairs_kernel<D><<<shape.grid(shape.groups * slices, shape.size, shape.size), kTileThreads, 0, stream>>>(k);
  check_launch(kOp);
  input_kernel<D><<<shape.grid(shape.heads, shape.size, shape.p), kTileThreads, 0, stream>>>(k);
  check_launch(kOp);
  if (shape.n > 0) {
    mixed_kernel<D><<<shape.grid(shape.groups * slices, shape.size, shape.n), kTileThreads, 0, stream>>>(k);
    check_launch(kOp);
  }
  finish_kernel<D><<<lamina::cuda::blocks_for(dots.numel(), kThreads), kThreads, 0, stream>>>(
      k, SsdStepSize(f.dt_bias, f.options), device_data<T>(f.dt), dots.data<float>(), device_data<T>(args.ddt),
      parts.data<double>());
  check_launch(kOp);
  add_parts(kOp, db.data<float>(), slices, args.db.numel(), args.db);
  add_parts(kOp, dc.data<float>(), slices, args.dc.numel(), args.dc);
  const int64_t chunks = shape.batch * shape.chunks;
  add_parts(kOp, parts.data<double>(), chunks, shape.heads, args.da);
  add_parts(kOp, parts.data<double>() + dots.numel(), chunks, shape.heads, args.dd);
  add_parts(kOp, parts.data<double>() + 2 * dots.numel(), chunks, shape.heads, args.ddt_bias);
}

}  // namespace

void ssd_backward(const SsdBackward& args) {
  if (args.forward.x.numel() == 0) {
    for (const Tensor& grad : {args.ddt, args.da, args.db, args.dc, args.dd, args.ddt_bias}) clear(kOp, grad);
    return;
  }
  if (ssd_fused_backward(args)) return;
  lamina::cuda::visit_floating(kOp, args.dy.dtype(), [&](auto tag) { backward<typename decltype(tag)::type>(args); });
}

}  // namespace lamina::ops::cuda
