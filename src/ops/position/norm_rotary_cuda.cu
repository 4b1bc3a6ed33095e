// Normalizes and rotates heads in registers. A team of up to 32 lanes of a warp processes a head. Each lane holds two
// packs (16 bytes each) of it that form whole pairs: the same pack of both halves, or neighbouring packs if pairs are
// interleaved or nothing is rotated. The pairs of a lane use kSize consecutive angles of the tables.
//
// Forward reads x and writes y: 65,536 × 16 heads of 128 in bf16 are 0.54 GB, 0.13 ms at 4.2 TB/s (H200); backward
// moves 1.5 times as much. As in norm_backward.cuh, the kernel is persistent, and each thread prefetches its packs of
// the next heads with cp.async. The scale and the partial weight gradient stay in registers, as do the angles while a
// team processes several heads of one token. Two blocks per SM suffice; three are 8 % slower in forward. The blocks'
// partial weight gradients are summed in a fixed order (slot_sums.cuh).

#include "lamina/ops/elementwise/slot_sums.cuh"
#include "lamina/ops/norm/norm_backward.cuh"
#include "lamina/ops/position/norm_rotary_kernel.h"
#include "lamina/ops/position/rotary_kernel.h"
#include "lamina/tensor/cuda/async_copy.cuh"
#include "lamina/tensor/cuda/vector_access.cuh"

namespace lamina::ops::cuda {
namespace {

using namespace lamina::cuda;  // NOLINT: kernel helpers
using norm::load_floats;
using norm::Parameters;
using norm::store_floats;

constexpr int kNormedThreads = 256;
constexpr int kRun = 4;            // consecutive heads that a team processes, if there are many
constexpr int kForwardStages = 8;  // pipeline stages in shared memory: heads per team, including the current one
constexpr int kBackwardStages = 4;

/// Identifies one head of one token, which is one row of the norm.
struct HeadAt {
  int row, token, head;

  __device__ HeadAt(int given, int heads) { go_to(given, heads); }
  __device__ void go_to(int given, int heads) {
    row = given;
    token = row / heads;
    head = row - token * heads;
  }
  __device__ void next(int heads) {
    ++row;
    if (++head == heads) head = 0, ++token;
  }
};

/// The heads of a tensor, which may be a slice of a packed tensor.
template <class T>
struct HeadsIn {
  T* first;
  int64_t token_stride, head_stride;

  __device__ T* at(const HeadAt& head) const { return first + head.token * token_stride + head.head * head_stride; }
};

template <class T>
struct NormedRows {
  HeadsIn<const T> x;
  Parameters<T> scale;  ///< [head_dim], optional
  const float* cos;
  const float* sin;
  const int64_t* positions;  ///< optional
  bool per_batch;            ///< positions are [batch, seq]; otherwise [seq]
  int64_t offset, table_rows;
  int rows, heads, seq, head_dim;
  int turning;  ///< lanes of a team whose packs are rotated; the tables have kSize angles per lane
  int lanes;    ///< lanes of a team, a power of two
  int run;      ///< consecutive heads that a team processes
  bool interleaved;
  float* r;  ///< [rows]
  FaultSlot* faults;
};
template <class T>
struct NormedForward {
  NormedRows<T> of;
  HeadsIn<T> y;
  float eps;
};
template <class T>
struct NormedBackward {
  NormedRows<T> of;
  HeadsIn<const T> dy;
  HeadsIn<T> dx;
  float* dscale;  ///< [blocks, head_dim], optional
};

/// A lane's two packs of a head, converted to float.
template <class T>
using Numbers = float[2][Pack<T>::kSize];

/// Offsets of a lane's two packs in a head; `there` is false for packs outside the head.
struct LaneSlot {
  int team, lane;
  int column[2];
  bool there[2];

  template <class T>
  __device__ explicit LaneSlot(const NormedRows<T>& of) {
    constexpr int kSize = Pack<T>::kSize;
    team = threadIdx.x / of.lanes;
    lane = threadIdx.x & (of.lanes - 1);
    const bool apart = !of.interleaved && lane < of.turning;
    column[0] = (apart ? lane : 2 * lane) * kSize;
    column[1] = column[0] + (apart ? of.turning : 1) * kSize;
    there[0] = column[0] < of.head_dim;
    there[1] = column[1] < of.head_dim;
  }
};

/// A lane's cos and sin for one token: cos 1 and sin 0 if its packs are not rotated. Lanes without a row have zeros for
/// both, so they add nothing to the weight gradient.
template <class T>
struct Angles {
  static constexpr int kSize = Pack<T>::kSize;
  int token = -1;
  float cos[kSize] = {};
  float sin[kSize] = {};

  __device__ void load(const NormedRows<T>& of, const LaneSlot& slot, int at) {
    if (token == at) return;
    token = at;
    if (slot.lane >= of.turning) {
#pragma unroll
      for (int k = 0; k < kSize; ++k) cos[k] = 1.0F, sin[k] = 0.0F;
      return;
    }
    const int place = of.per_batch ? at : at % of.seq;
    int64_t position = of.positions != nullptr ? of.positions[place] : of.offset + place;
    if (position < 0 || position >= of.table_rows) {
      report(of.faults, Fault::position, position);
      position = 0;
    }
    const int64_t from = (position * of.turning + slot.lane) * kSize;
    load_floats(of.cos + from, cos);
    load_floats(of.sin + from, sin);
  }
  /// Rotates by +angle (direction 1) or −angle (direction −1).
  __device__ void turn(Numbers<T>& v, bool interleaved, float direction) const {
    const auto pair = [&](float& a, float& b, int k) {
      const float s = direction * sin[k];
      const float x = a;
      a = fmaf(x, cos[k], -b * s);
      b = fmaf(b, cos[k], x * s);
    };
    if (interleaved) {
#pragma unroll
      for (int k = 0; k < kSize; ++k) pair(v[2 * k / kSize][2 * k % kSize], v[2 * k / kSize][2 * k % kSize + 1], k);
    } else {
#pragma unroll
      for (int k = 0; k < kSize; ++k) pair(v[0][k], v[1][k], k);
    }
  }
};

template <class T>
__device__ inline void load_scale(const NormedRows<T>& of, const LaneSlot& slot, Numbers<T>& scale) {
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    if (of.scale != nullptr && slot.there[i]) {
      load_floats(of.scale + slot.column[i], scale[i]);
    } else {
#pragma unroll
      for (int j = 0; j < Pack<T>::kSize; ++j) scale[i][j] = 1.0F;
    }
  }
}

template <class T>
__device__ inline void store_rounded(const LaneSlot& slot, const Numbers<T>& v, T* row) {
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    Pack<T> pack;
#pragma unroll
    for (int j = 0; j < Pack<T>::kSize; ++j) pack.values[j] = from_float<T>(v[i][j]);
    if (slot.there[i]) store_vector(row + slot.column[i], pack);
  }
}

/// Shared-memory stages of a thread's packs of kStreams tensors: [kStages][kStreams][2 packs][threads].
template <class T, int kStreams, int kStages>
struct StagedHeads {
  static constexpr int kBytes = kStages * kStreams * 2 * kNormedThreads * 16;
  Pack<T>* room;

  __device__ Pack<T>* at(int stage, int stream, int i) const {
    return room + ((stage * kStreams + stream) * 2 + i) * kNormedThreads + threadIdx.x;
  }
  /// Starts the asynchronous copy of a thread's packs of one head. Packs that do not exist are filled with zeros.
  __device__ void copy(const HeadsIn<const T> (&from)[kStreams], const LaneSlot& slot, const HeadAt& head, bool inside,
                       int stage) const {
    __syncwarp();
#pragma unroll
    for (int stream = 0; stream < kStreams; ++stream) {
      const T* row = inside ? from[stream].at(head) : from[stream].first;
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        const bool there = inside && slot.there[i];
        cp_async_16(shared_address(at(stage, stream, i)), row + (there ? slot.column[i] : 0), there);
      }
    }
    cp_async_commit();
  }
  __device__ void read(int stage, int stream, Numbers<T>& to) const {
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const auto pack = load_vector<Pack<T>>(at(stage, stream, i));
#pragma unroll
      for (int j = 0; j < Pack<T>::kSize; ++j) to[i][j] = to_float(pack.values[j]);
    }
  }
};

/// Iterates over the rows of a team: runs of `run` consecutive rows, with a grid-wide stride between runs.
struct TeamRows {
  HeadAt at;
  int in_run = 0;
  int run;
  int skip;  ///< rows from the end of one run to the start of the next

  template <class T>
  __device__ TeamRows(const NormedRows<T>& of, const LaneSlot& slot)
      : at((static_cast<int>(blockIdx.x) * (kNormedThreads / of.lanes) + slot.team) * of.run, of.heads),
        run(of.run),
        skip((static_cast<int>(gridDim.x) * (kNormedThreads / of.lanes) - 1) * of.run) {}

  __device__ void next(int heads) {
    if (++in_run < run) return at.next(heads);
    in_run = 0;
    at.go_to(at.row + 1 + skip, heads);
  }
};

/// Loops over a team's rows with prefetch: calls turn(at, next row, stage) for each. All lanes of a warp loop until
/// none has a row left, so `at` may be out of range.
template <class T, int kStreams, int kStages, class F>
__device__ inline void each_row(const NormedRows<T>& of, const LaneSlot& slot,
                                const StagedHeads<T, kStreams, kStages>& staged,
                                const HeadsIn<const T> (&from)[kStreams], const F& turn) {
  TeamRows now(of, slot);
  TeamRows ahead = now;
  for (int n = 0; n < kStages - 1; ++n) {
    staged.copy(from, slot, ahead.at, ahead.at.row < of.rows, n);
    ahead.next(of.heads);
  }
  int stage = 0;
  while (__any_sync(kAllLanes, now.at.row < of.rows)) {
    staged.copy(from, slot, ahead.at, ahead.at.row < of.rows, stage == 0 ? kStages - 1 : stage - 1);
    ahead.next(of.heads);
    const HeadAt at = now.at;
    now.next(of.heads);
    turn(at, now.at.row, stage);
    stage = stage == kStages - 1 ? 0 : stage + 1;
  }
  cp_async_wait();
}

/// Sum over a team, returned in every lane.
__device__ inline float team_sum(float sum, int lanes) {
  for (int step = lanes / 2; step > 0; step /= 2) sum += __shfl_xor_sync(kAllLanes, sum, step);
  return sum;
}

template <class T>
__global__ void __launch_bounds__(kNormedThreads, 2) norm_rotary_kernel(const __grid_constant__ NormedForward<T> args) {
  constexpr int kSize = Pack<T>::kSize;
  extern __shared__ uint4 room[];
  grid_dependency_wait();
  const NormedRows<T>& of = args.of;
  const LaneSlot slot(of);
  const StagedHeads<T, 1, kForwardStages> staged{reinterpret_cast<Pack<T>*>(room)};
  Numbers<T> scale;
  load_scale(of, slot, scale);
  Angles<T> angles;
  each_row(of, slot, staged, {of.x}, [&](const HeadAt& at, int /*next*/, int stage) {
    const bool inside = at.row < of.rows;
    if (inside) angles.load(of, slot, at.token);
    cp_async_wait<kForwardStages - 1>();
    Numbers<T> v;
    staged.read(stage, 0, v);
    float squares = 0.0F;
#pragma unroll
    for (int i = 0; i < 2; ++i) {
#pragma unroll
      for (int j = 0; j < kSize; ++j) squares = fmaf(v[i][j], v[i][j], squares);
    }
    const float r = 1.0F / sqrtf(team_sum(squares, of.lanes) / static_cast<float>(of.head_dim) + args.eps);
    if (inside && slot.lane == 0) of.r[at.row] = r;
#pragma unroll
    for (int i = 0; i < 2; ++i) {
#pragma unroll
      for (int j = 0; j < kSize; ++j) v[i][j] *= r * scale[i][j];
    }
    angles.turn(v, of.interleaved, 1.0F);
    if (inside) store_rounded(slot, v, args.y.at(at));
  });
}

/// Sums the weight gradients of the block's teams, in order, into one row of `to`. All threads must be done with
/// `fold`.
template <class T>
__device__ inline void put_partial(const NormedRows<T>& of, const LaneSlot& slot, const Numbers<T>& sums, float* fold,
                                   float* to) {
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    if (slot.there[i]) store_floats(sums[i], fold + slot.team * of.head_dim + slot.column[i]);
  }
  __syncthreads();
  for (int c = threadIdx.x; c < of.head_dim; c += kNormedThreads) {
    float sum = 0.0F;
    for (int t = 0; t < kNormedThreads / of.lanes; ++t) sum += fold[t * of.head_dim + c];
    to[c] = sum;
  }
}

template <class T>
__global__ void __launch_bounds__(kNormedThreads, 2)
    norm_rotary_gradient_kernel(const __grid_constant__ NormedBackward<T> args) {
  constexpr int kSize = Pack<T>::kSize;
  extern __shared__ uint4 room[];
  grid_dependency_wait();
  const NormedRows<T>& of = args.of;
  const LaneSlot slot(of);
  const StagedHeads<T, 2, kBackwardStages> staged{reinterpret_cast<Pack<T>*>(room)};
  Numbers<T> scale;
  load_scale(of, slot, scale);
  Angles<T> angles;
  Numbers<T> dscale = {};
  const auto kept = [&](int row) { return row < of.rows ? of.r[row] : 0.0F; };
  float next_r = kept(TeamRows(of, slot).at.row);
  each_row(of, slot, staged, {of.x, args.dy}, [&](const HeadAt& at, int next, int stage) {
    const bool inside = at.row < of.rows;
    const float r = next_r;
    next_r = kept(next);
    if (inside) angles.load(of, slot, at.token);
    cp_async_wait<kBackwardStages - 1>();
    Numbers<T> x;
    Numbers<T> g;
    staged.read(stage, 0, x);
    staged.read(stage, 1, g);
    angles.turn(g, of.interleaved, -1.0F);
    float sum = 0.0F;
#pragma unroll
    for (int i = 0; i < 2; ++i) {
#pragma unroll
      for (int j = 0; j < kSize; ++j) {
        dscale[i][j] = fmaf(g[i][j] * x[i][j], r, dscale[i][j]);
        g[i][j] *= scale[i][j];
        sum = fmaf(g[i][j], x[i][j], sum);
      }
    }
    const float c = team_sum(sum, of.lanes) * r * r / static_cast<float>(of.head_dim);
#pragma unroll
    for (int i = 0; i < 2; ++i) {
#pragma unroll
      for (int j = 0; j < kSize; ++j) g[i][j] = fmaf(-c, x[i][j], g[i][j]) * r;
    }
    if (inside) store_rounded(slot, g, args.dx.at(at));
  });
  __syncthreads();  // the staged heads are consumed: their memory is reused for the teams' sums
  if (args.dscale == nullptr) return;
  put_partial(of, slot, dscale, reinterpret_cast<float*>(room),
              args.dscale + static_cast<int64_t>(blockIdx.x) * of.head_dim);
}

template <class E>
HeadsIn<DeviceType<E>> heads_in(const Tensor& tensor) {
  return {device_data<E>(tensor), tensor.strides()[1], tensor.strides()[2]};
}
template <class T>
HeadsIn<const T> read_only(const HeadsIn<T>& heads) {
  return {heads.first, heads.token_stride, heads.head_stride};
}

template <class E>
NormedRows<DeviceType<E>> rows_of(const RotaryArgs& turn, const Tensor& scale, const Tensor& r) {
  using T = DeviceType<E>;
  constexpr int kSize = Pack<T>::kSize;
  const Tensor& x = turn.x;
  NormedRows<T> of{};
  of.x = read_only(heads_in<E>(x));
  of.scale = norm::parameters<E>(scale);
  of.cos = turn.cos.data<float>();
  of.sin = turn.sin.data<float>();
  of.positions = turn.positions.defined() ? turn.positions.data<int64_t>() : nullptr;
  of.per_batch = turn.positions.defined() && turn.positions.rank() == 2;
  of.offset = turn.offset;
  of.table_rows = turn.cos.dim(0);
  of.rows = static_cast<int>(r.numel());
  of.heads = static_cast<int>(x.dim(2));
  of.seq = static_cast<int>(x.dim(1));
  of.head_dim = static_cast<int>(x.dim(3));
  of.turning = static_cast<int>(turn.rotary_dim) / (2 * kSize);
  const unsigned packs = static_cast<unsigned>(of.head_dim / kSize);
  of.lanes = static_cast<int>(std::bit_ceil((packs + 1) / 2));
  const int teams = kNormedThreads / of.lanes * sm_count(x.device());
  of.run = of.rows < 2 * kRun * teams ? 1 : kRun;
  of.interleaved = turn.pairing == RotaryPairing::interleaved;
  of.r = r.data<float>();
  of.faults = fault_slot(x.device());
  return of;
}

/// Number of blocks: one wave (all resident at once), or fewer if there are few heads.
template <class T, class Kernel>
int64_t blocks_of(Kernel kernel, int shared, const NormedRows<T>& of, const Device& device) {
  LAMINA_CUDA(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, shared), "norm_rotary");
  const int of_block = kNormedThreads / of.lanes * of.run;
  return norm::slots_for(kernel, kNormedThreads, static_cast<size_t>(shared), device, 1,
                         (of.rows + of_block - 1) / of_block);
}

}  // namespace

void norm_rotary_forward(const NormRotaryForward& args) {
  visit_floating("norm_rotary", args.turn.x.dtype(), [&](auto tag) {
    using E = typename decltype(tag)::type;
    using T = DeviceType<E>;
    const Device& device = args.turn.x.device();
    const NormedForward<T> given{rows_of<E>(args.turn, args.scale, args.r), heads_in<E>(args.turn.y),
                                 static_cast<float>(args.eps)};
    constexpr int kShared = StagedHeads<T, 1, kForwardStages>::kBytes;
    const auto kernel = norm_rotary_kernel<T>;
    const int64_t blocks = blocks_of(kernel, kShared, given.of, device);
    launch_dependent(kernel, dim3(static_cast<unsigned>(blocks)), dim3(kNormedThreads), kShared, device, given);
  });
  check_launch("norm_rotary");
}

void norm_rotary_backward(const NormRotaryBackward& args) {
  visit_floating("norm_rotary", args.turn.x.dtype(), [&](auto tag) {
    using E = typename decltype(tag)::type;
    using T = DeviceType<E>;
    const Device& device = args.turn.x.device();
    NormedBackward<T> given{rows_of<E>(args.turn, args.scale, args.r), read_only(heads_in<E>(args.dy)),
                            heads_in<E>(args.dx), nullptr};
    constexpr int kShared = StagedHeads<T, 2, kBackwardStages>::kBytes;
    const auto kernel = norm_rotary_gradient_kernel<T>;
    const int64_t slots = blocks_of(kernel, kShared, given.of, device);
    const Tensor dscale = norm::partial_sums(args.dweight, slots);
    given.dscale = device_data<float>(dscale);
    launch_dependent(kernel, dim3(static_cast<unsigned>(slots)), dim3(kNormedThreads), kShared, device, given);
    if (slots == 1 || !dscale.defined()) return;
    sum_partials(device, {device_data<float>(dscale), device_data<float>(args.dweight)}, {}, slots, given.of.head_dim,
                 1.0F);
  });
  check_launch("norm_rotary");
}

}  // namespace lamina::ops::cuda
