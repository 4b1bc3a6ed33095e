// Fused backward of the chunked bf16 scan, the counterpart of ssd_fused_cuda.cu. A block takes a head backwards through
// the sequence, in pieces of 64 positions, with the gradient of the state in f32 registers. Forward saved the state H
// before each piece. With L the decays from s to t, all products run on tensor cores from shared memory. Their bf16
// operands are x, dy, b and c, the state and its gradient dH' (rounded), and two triangular matrices that are computed
// first:
//   M = (b cᵀ) ∘ L and D = (x dyᵀ) ∘ L · Δ, rows s, columns t
//   V = M dy + to_end ∘ (b dH'ᵀ), dx = Δ V + d dy
//   db = D c + Δ to_end ∘ (x dH'), dc = Dᵀ b + from_start ∘ (dy H)
// The gradient of the running sum s_t needs sums over D ∘ (b cᵀ), which equal c·dc and b·db; a warp accumulates them
// from the end. db and dc of a head, and the sums for a, d and the bias, are partial sums that a small kernel adds in
// order.
#include "lamina/ops/ssm/parts_cuda.h"
#include "lamina/ops/ssm/ssd_fused_backward.cuh"
#include "lamina/ops/ssm/ssd_scan_kernel.h"

namespace lamina::ops::cuda {
namespace {

using namespace ssd_piece;  // NOLINT: kernel helpers

/// The gradients of dt at positions `lane` and `lane` + 32 of a piece, held by a lane of the first warp, and that
/// lane's sums over all pieces.
struct StepGradients {
  float raw[2], step[2];
  double da = 0, dbias = 0;

  __device__ void load(const SsdBackwardArgs& args, int64_t entry, int64_t head, int64_t first, int lane) {
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const int64_t t = first + lane + i * kWarp;
      raw[i] = step[i] = 0.0F;
      if (t < 0 || t >= args.shape.seq) continue;
      raw[i] = args.size.raw(to_float(args.dt[(entry * args.shape.seq + t) * args.shape.heads + head]), head);
      step[i] = args.size.clamped(args.size.soft(raw[i]));
    }
  }
  /// Computes and writes the gradients of dt from the partial sums of the piece.
  __device__ void put(const SsdBackwardArgs& args, const GradientSums& of, float whole, int64_t entry, int64_t head,
                      int64_t first, int lane) {
    const auto both = [](float(*gradient_sums)[kPiece], int t) { return gradient_sums[0][t] + gradient_sums[1][t]; };
    float change[2];
    float carried = 0;
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const int t = lane + i * kWarp;
      change[i] = both(of.with_c, t) - both(of.with_b, t);
      carried += both(of.carried, t);
    }
    float dot = 0;
#pragma unroll
    for (int i = 0; i < kBackwardWarps; ++i) dot += of.dots[i];
    const float after_piece = fmaf(whole, dot, warp_sum(carried));
    float later[2];
    later[1] = inclusive_sum(change[1], lane, true) + after_piece;
    later[0] = inclusive_sum(change[0], lane, true) + __shfl_sync(kAllLanes, later[1], 0);
    const float a = args.a[head];
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const int64_t t = first + lane + i * kWarp;
      if (t >= args.shape.seq) continue;
      const bool free = args.size.soft(raw[i]) == step[i];
      float dstep = free ? fmaf(later[i], a, both(of.with_x, lane + i * kWarp)) : 0.0F;
      if (args.size.with_softplus) dstep *= sigmoid(raw[i]);
      da += static_cast<double>(later[i]) * static_cast<double>(step[i]);
      dbias += static_cast<double>(dstep);
      args.ddt[(entry * args.shape.seq + t) * args.shape.heads + head] = from_float<Half>(dstep);
    }
    __syncwarp();  // all lanes have read what this warp overwrites next
  }
};

__device__ inline double warp_sum_of(double value) {
  for (int step = kWarp / 2; step > 0; step /= 2) value += __shfl_xor_sync(kAllLanes, value, step);
  return value;
}

template <int kN>
__global__ void __launch_bounds__(kBackwardThreads, 2)
    ssd_fused_backward_kernel(const __grid_constant__ SsdBackwardArgs args) {
  using Memory = BackwardMemory<kN>;
  extern __shared__ __align__(16) unsigned char back_memory[];
  __shared__ float scratch[kWarp];
  const SsdShape& shape = args.shape;
  const int64_t entry = blockIdx.x / shape.heads;
  const int64_t head = blockIdx.x - entry * shape.heads;
  const int warp = static_cast<int>(threadIdx.x) / kWarp;
  const FusedBackwardBlock<kN> block{args,
                                     entry,
                                     head,
                                     head / shape.in_group,
                                     back_memory,
                                     shared_address(back_memory),
                                     static_cast<int>(threadIdx.x) % kWarp,
                                     warp % 4,
                                     warp / 4};
  for (int i = threadIdx.x; i < Memory::kDecays / 16; i += kBackwardThreads) {
    // Copies never overwrite the padding; it stays zero.
    reinterpret_cast<uint4*>(back_memory)[i] = make_uint4(0, 0, 0, 0);
  }
  __syncthreads();
  const int lane = block.lane;
  float* dstate = args.dstate + blockIdx.x * shape.p * shape.n;
  typename FusedBackwardBlock<kN>::Columns dh = {};
  block.each_pair([&](int j, int i, int feature, int column) {
    if (feature >= shape.p || column >= shape.n) return;
    const float2 two = *reinterpret_cast<const float2*>(dstate + feature * shape.n + column);
    dh[j][i] = two.x, dh[j][i + 1] = two.y;
  });
  StepGradients steps;
  float dy_x = 0;
  const int64_t last = (shape.seq - 1) / kPiece * kPiece;
  for (int64_t first = last; first >= 0; first -= kPiece) {
    block.copy(first);
    block.take_state(first);
    block.each_pair([&](int j, int i, int feature, int column) {
      *reinterpret_cast<uint32_t*>(back_memory + Memory::kDstate + feature * Memory::kMixedPitch + column * 2) =
          rounded_pair(dh[j][i], dh[j][i + 1]);
    });
    if (warp == 0) {
      steps.load(args, entry, head, first, lane);
      compute_decays(block.decays(), steps.step[0], steps.step[1], args.a[head], lane);
    }
    cp_async_wait();
    __syncthreads();
    block.find_triangles();
    __syncthreads();
    dy_x += block.put_dx(first);
    block.put_db(first);
    block.put_dc(first);
    block.move_gradient(dh);
    __syncthreads();
    if (warp == 0) steps.put(args, block.gradient_sums(), *block.decays().whole, entry, head, first, lane);
  }
  block.each_pair([&](int j, int i, int feature, int column) {
    if (feature >= shape.p || column >= shape.n) return;
    *reinterpret_cast<float2*>(dstate + feature * shape.n + column) = make_float2(dh[j][i], dh[j][i + 1]);
  });
  const float dd = block_sum(dy_x, scratch);
  if (warp != 0) return;
  const double da = warp_sum_of(steps.da);
  const double dbias = warp_sum_of(steps.dbias);
  if (lane != 0) return;
  const int64_t count = shape.batch * shape.heads;
  args.parts[blockIdx.x] = da;
  args.parts[count + blockIdx.x] = dd;
  args.parts[2 * count + blockIdx.x] = dbias;
}

template <int kN>
void launch_fused_backward(const Device& device, const SsdBackwardArgs& args) {
  constexpr int kBytes = BackwardMemory<kN>::kBytes;
  LAMINA_CUDA(cudaFuncSetAttribute(ssd_fused_backward_kernel<kN>, cudaFuncAttributeMaxDynamicSharedMemorySize, kBytes),
              "ssd_scan");
  const auto blocks = static_cast<unsigned>(args.shape.batch * args.shape.heads);
  ssd_fused_backward_kernel<kN><<<blocks, kBackwardThreads, kBytes, stream_of(device)>>>(args);
  check_launch("ssd_scan");
}

}  // namespace

bool ssd_fused_backward(const SsdBackward& args) {
  const SsdForward& f = args.forward;
  const SsdShape shape(f);
  const auto aligned = [](const Tensor& tensor) { return reinterpret_cast<uintptr_t>(tensor.raw()) % 16 == 0; };
  const bool fits = f.x.dtype() == DType::bf16 && args.dy.dtype() == DType::bf16 && shape.n > 0 && shape.n <= 128 &&
                    shape.n % 8 == 0 && shape.p <= kFeatures && shape.p % 8 == 0 && aligned(f.x) && aligned(args.dy);
  if (!fits || (shape.size != kPiece && shape.seq > kPiece)) return false;
  const Device& device = f.x.device();
  int most = 0;  // limit of dynamic shared memory; the kernel also has a little static shared memory
  LAMINA_CUDA(cudaDeviceGetAttribute(&most, cudaDevAttrMaxSharedMemoryPerBlockOptin, device.index()), "ssd_scan");
  if ((shape.n <= 64 ? BackwardMemory<64>::kBytes : BackwardMemory<128>::kBytes) > most - 1024) return false;
  const Tensor b = f.b.detach().to(DType::bf16);  // b was bf16 originally, so this is lossless
  const Tensor c = f.c.detach().to(DType::bf16);
  const Tensor db = Tensor::empty({shape.in_group, f.b.numel()}, DType::f32, device);
  const Tensor dc = Tensor::empty(db.shape(), DType::f32, device);
  const Tensor parts = Tensor::empty({3, shape.batch, shape.heads}, DType::f64, device);
  const SsdBackwardArgs kernel_args{shape,
                                    SsdStepSize(f.dt_bias, f.options),
                                    device_data<bf16>(f.x),
                                    device_data<bf16>(f.dt),
                                    device_data<bf16>(b),
                                    device_data<bf16>(c),
                                    device_data<bf16>(args.dy),
                                    device_data<float>(f.a),
                                    device_data<float>(f.d),
                                    device_data<float>(f.states),
                                    args.dstate.data<float>(),
                                    device_data<bf16>(args.dx),
                                    device_data<bf16>(args.ddt),
                                    db.data<float>(),
                                    dc.data<float>(),
                                    parts.data<double>()};
  shape.n <= 64 ? launch_fused_backward<64>(device, kernel_args) : launch_fused_backward<128>(device, kernel_args);
  add_parts("ssd_scan", db.data<float>(), shape.in_group, args.db.numel(), args.db);
  add_parts("ssd_scan", dc.data<float>(), shape.in_group, args.dc.numel(), args.dc);
  const int64_t count = shape.batch * shape.heads;
  add_parts("ssd_scan", parts.data<double>(), shape.batch, shape.heads, args.da);
  add_parts("ssd_scan", parts.data<double>() + count, shape.batch, shape.heads, args.dd);
  add_parts("ssd_scan", parts.data<double>() + 2 * count, shape.batch, shape.heads, args.ddt_bias);
  return true;
}

}  // namespace lamina::ops::cuda
