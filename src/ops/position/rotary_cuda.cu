// A thread takes one pack (16 bytes) of a head's first half and the matching pack of the second half, or one pack of
// whole pairs if they are interleaved. The coefficients come from the tables, which stay in cache. Each element is read
// and written once. Other threads copy the elements after the rotary dimension. Unaligned heads are processed pair by
// pair.
#include "lamina/ops/position/rotary_kernel.h"
#include "lamina/tensor/cuda/vector_access.cuh"

namespace lamina::ops::cuda {
namespace {

using namespace lamina::cuda;  // NOLINT: kernel helpers

constexpr int kThreads = 256;

struct Turn {
  const float* cos;
  const float* sin;
  const int64_t* positions;  ///< optional
  bool per_batch;            ///< positions are [batch, seq]; otherwise [seq]
  int64_t offset, table_rows;
  int64_t batch, seq, heads, head_dim, n;  ///< n: the rotary dimension
  int64_t rest;                            ///< elements of a head after the rotary dimension, which are copied
  int64_t batch_stride, seq_stride, head_stride;
  int64_t y_batch_stride, y_seq_stride, y_head_stride;
  int64_t row;  ///< row length of the tables: n/2 or n
  bool transposed;
  FaultSlot* faults;
};

/// y_a = a·ca + b·sa, y_b = b·cb + a·sb.
struct Pair {
  float ca, cb, sa, sb;
};

/// Coefficients of the pair formed by elements `first` and `second` of a head. The tables, read at row offset `at`,
/// have one angle per pair (index `pair`) or one entry per element of the head.
__device__ inline Pair coefficients(const Turn& args, int64_t at, int64_t pair, int64_t first, int64_t second) {
  const bool per_pair = args.row < args.n;
  const int64_t i = at + (per_pair ? pair : first);
  const int64_t j = at + (per_pair ? pair : second);
  const float sin_first = args.sin[i];
  const float sin_second = args.sin[j];
  return {args.cos[i], args.cos[j], args.transposed ? sin_second : -sin_first,
          args.transposed ? -sin_first : sin_second};
}

template <class T>
__device__ inline void turn(T& a, T& b, const Pair& by) {
  const float x = to_float(a);
  const float y = to_float(b);
  a = from_float<T>(fmaf(x, by.ca, y * by.sa));
  b = from_float<T>(fmaf(y, by.cb, x * by.sb));
}

/// Rotates one unit of a head. kInterleaved with kWidth > 1: a unit is kWidth neighbouring elements, i.e. kWidth/2
/// pairs. Otherwise it is kWidth pairs, whose first and second elements are each neighbours. kFours: the tables have
/// one angle per pair and are read as float4.
template <class T, bool kInterleaved, int kWidth, bool kFours>
__device__ inline void turn_unit(const Turn& args, const T* x, T* y, int64_t unit, int64_t table) {
  using S = Vec<T, kWidth>;
  constexpr bool kOne = kInterleaved && kWidth > 1;
  constexpr int kPairs = kOne ? kWidth / 2 : kWidth;
  const int64_t first = kInterleaved ? unit * (kOne ? kWidth : 2) : unit * kWidth;
  const int64_t second = kInterleaved ? first + 1 : first + args.n / 2;
  S a = load_vector<S>(x + first);
  S b{};
  if constexpr (!kOne) b = load_vector<S>(x + second);
  const auto rotate_pair = [&](int k, const Pair& by) {
    if constexpr (kOne) {
      turn(a.values[2 * k], a.values[2 * k + 1], by);
    } else {
      turn(a.values[k], b.values[k], by);
    }
  };
  if constexpr (kFours) {
    const float sign = args.transposed ? 1.0F : -1.0F;
#pragma unroll
    for (int k = 0; k < kPairs; k += 4) {
      const float4 cos = *reinterpret_cast<const float4*>(args.cos + table + unit * kPairs + k);
      const float4 sin = *reinterpret_cast<const float4*>(args.sin + table + unit * kPairs + k);
      rotate_pair(k, {cos.x, cos.x, sign * sin.x, -sign * sin.x});
      rotate_pair(k + 1, {cos.y, cos.y, sign * sin.y, -sign * sin.y});
      rotate_pair(k + 2, {cos.z, cos.z, sign * sin.z, -sign * sin.z});
      rotate_pair(k + 3, {cos.w, cos.w, sign * sin.w, -sign * sin.w});
    }
  } else {
#pragma unroll
    for (int k = 0; k < kPairs; ++k) {
      const int64_t step = kInterleaved ? 2 * k : k;
      rotate_pair(k, coefficients(args, table, unit * kPairs + k, first + step, second + step));
    }
  }
  store_vector(y + first, a);
  if constexpr (!kOne) store_vector(y + second, b);
}

/// A thread per unit. `Index` is a 32- or 64-bit integer that can hold the number of units.
template <class T, bool kInterleaved, int kWidth, bool kFours, class Index>
__global__ void __launch_bounds__(kThreads)
    rotary_kernel(const T* x, T* y, const __grid_constant__ Turn args, int64_t total) {
  using S = Vec<T, kWidth>;
  constexpr bool kOne = kInterleaved && kWidth > 1;
  grid_dependency_wait();
  const auto turning = static_cast<Index>(kOne ? args.n / kWidth : args.n / 2 / kWidth);
  const auto units = turning + static_cast<Index>(args.rest / kWidth);  // units per head
  const Index at = static_cast<Index>(blockIdx.x) * kThreads + threadIdx.x;
  if (at >= static_cast<Index>(total)) return;
  const Index row = at / units;  // one head of one token
  const Index unit = at - row * units;
  const Index token = row / static_cast<Index>(args.heads);
  const Index head = row - token * static_cast<Index>(args.heads);
  const Index in_batch = token / static_cast<Index>(args.seq);
  const Index in_seq = token - in_batch * static_cast<Index>(args.seq);
  const T* from = x + in_batch * args.batch_stride + in_seq * args.seq_stride + head * args.head_stride;
  T* to = y + in_batch * args.y_batch_stride + in_seq * args.y_seq_stride + head * args.y_head_stride;
  if (unit >= turning) {
    const int64_t column = args.n + static_cast<int64_t>(unit - turning) * kWidth;
    store_vector(to + column, load_vector<S>(from + column));
    return;
  }
  const int64_t place = args.per_batch ? token : in_seq;
  int64_t position = args.positions != nullptr ? args.positions[place] : args.offset + place;
  if (position < 0 || position >= args.table_rows) {
    report(args.faults, Fault::position, position);
    if (args.table_rows == 0) return;
    position = 0;
  }
  turn_unit<T, kInterleaved, kWidth, kFours>(args, from, to, unit, position * args.row);
}

Turn turn_of(const RotaryArgs& args) {
  const Shape& strides = args.x.strides();
  Turn turn{};
  turn.cos = args.cos.data<float>();
  turn.sin = args.sin.data<float>();
  turn.positions = args.positions.defined() ? args.positions.data<int64_t>() : nullptr;
  turn.per_batch = args.positions.defined() && args.positions.rank() == 2;
  turn.offset = args.offset;
  turn.table_rows = args.cos.dim(0);
  turn.batch = args.x.dim(0);
  turn.seq = args.x.dim(1);
  turn.heads = args.x.dim(2);
  turn.head_dim = args.x.dim(3);
  turn.n = args.rotary_dim;
  turn.batch_stride = strides[0];
  turn.seq_stride = strides[1];
  turn.head_stride = strides[2];
  turn.y_batch_stride = args.y.strides()[0];
  turn.y_seq_stride = args.y.strides()[1];
  turn.y_head_stride = args.y.strides()[2];
  turn.rest = args.x.raw() == args.y.raw() ? 0 : turn.head_dim - turn.n;
  turn.row = args.cos.dim(1);
  turn.transposed = args.transposed;
  turn.faults = fault_slot(args.y.device());
  return turn;
}

template <class T, bool kInterleaved, int kWidth>
void launch(const T* x, T* y, const Turn& turn, const Device& device) {
  constexpr int kPairs = kInterleaved && kWidth > 1 ? kWidth / 2 : kWidth;
  const int64_t turning = kInterleaved && kWidth > 1 ? turn.n / kWidth : turn.n / 2 / kWidth;
  const int64_t units = turning + turn.rest / kWidth;
  const int64_t total = turn.batch * turn.seq * turn.heads * units;
  LAMINA_CHECK(total <= kThreads * int64_t{0x7fffffff}, "rotary: ", turn.batch, " rows of ", turn.seq, " tokens and ",
               turn.heads, " heads exceed one kernel launch; use a smaller batch");
  const dim3 blocks(static_cast<unsigned>((total + kThreads - 1) / kThreads));
  const auto start = [&](auto* kernel) {
    launch_dependent(kernel, blocks, dim3(kThreads), 0, device, x, y, turn, total);
  };
  if constexpr (kPairs % 4 == 0) {
    if (turn.row < turn.n && turn.row % 4 == 0 && total < int64_t{1} << 31) {
      start(rotary_kernel<T, kInterleaved, kWidth, true, uint32_t>);
      return check_launch("rotary");
    }
  }
  start(rotary_kernel<T, kInterleaved, kWidth, false, uint64_t>);
  check_launch("rotary");
}

}  // namespace

void rotary(const RotaryArgs& args) {
  if (args.y.numel() == 0) return;
  visit_floating("rotary", args.x.dtype(), [&](auto tag) {
    using E = typename decltype(tag)::type;
    using T = DeviceType<E>;
    constexpr int kSize = Pack<T>::kSize;
    const T* x = device_data<E>(args.x);
    T* y = device_data<E>(args.y);
    const Turn turn = turn_of(args);
    const bool interleaved = args.pairing == RotaryPairing::interleaved;
    const auto whole = [](int64_t count) { return count % kSize == 0; };
    const bool packed = whole(interleaved ? turn.n : turn.n / 2) && is_pack_aligned(x, turn.head_dim) &&
                        is_pack_aligned(y, turn.head_dim) && whole(turn.batch_stride) && whole(turn.seq_stride) &&
                        whole(turn.head_stride) && whole(turn.y_batch_stride) && whole(turn.y_seq_stride) &&
                        whole(turn.y_head_stride);
    const Device& device = args.y.device();
    if (interleaved) {
      packed ? launch<T, true, kSize>(x, y, turn, device) : launch<T, true, 1>(x, y, turn, device);
    } else {
      packed ? launch<T, false, kSize>(x, y, turn, device) : launch<T, false, 1>(x, y, turn, device);
    }
  });
}

}  // namespace lamina::ops::cuda
