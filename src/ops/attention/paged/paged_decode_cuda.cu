// Decoding over pages: the kernel arguments, the choice of a kernel, and a simple kernel for all types and widths that
// the tensor-core kernel (paged_decode_item.cuh) does not support: f32 caches, odd widths, widths above 256. The simple
// kernel has one block per query and head, one warp per key for the scores, and one thread per column for the sums.
#include "lamina/ops/attention/paged/paged_decode.cuh"

namespace lamina::ops::cuda {
namespace {

using lamina::cuda::device_data;
using paged::Params;

constexpr const char* kPagedDecodeName = "paged_attention";
constexpr int kSimpleThreads = 256;

template <class C>
__device__ float cached_number(C value) {
  if constexpr (std::is_same_v<C, uint8_t>) {
    return static_cast<float>(static_cast<int>(value) - 128);
  } else {
    return to_float(value);
  }
}

/// The simple kernel. Grid: heads, queries per row, rows. Dynamic shared memory: d_v sums.
template <class C>
__global__ void __launch_bounds__(kSimpleThreads) paged_simple_kernel(const __grid_constant__ Params p) {
  extern __shared__ float sums[];
  __shared__ float s[kSimpleThreads];
  __shared__ int64_t entries[kSimpleThreads];
  __shared__ float scratch[32];
  lamina::cuda::grid_dependency_wait();
  const int head = static_cast<int>(blockIdx.x);
  const int query = static_cast<int>(blockIdx.y);
  const int row = static_cast<int>(blockIdx.z);
  const paged::RowWork work(p, row, 8);
  if (head == 0 && query == 0 && threadIdx.x == 0) work.report_fault(p);
  if (query >= work.count) return;
  const int kv_head = head / p.group;
  const int token = work.first_token + query;
  const int64_t q_at = token * p.q_stride + static_cast<int64_t>(head) * p.d_qk;
  const C* keys = static_cast<const C*>(p.k);
  const C* values = static_cast<const C*>(p.v != nullptr ? p.v : p.k);
  const int v_width = p.v != nullptr ? p.d_v : p.d_qk;
  const float* v_scales = p.v != nullptr ? p.v_scales : p.k_scales;
  const int t = static_cast<int>(threadIdx.x);
  for (int c = t; c < p.d_v; c += kSimpleThreads) sums[c] = 0;
  float most = kMinusLarge;
  float sum = 0;
  for (int first = work.begin; first < work.end; first += kSimpleThreads) {
    const int count = min(kSimpleThreads, work.end - first);
    if (t < count) {
      const int page = p.rows.page_of(row, first + t);
      const bool seen = work.mask.allows(query, work.mask.keys(query), first + t);
      if (page < 0 && seen) lamina::cuda::report(p.faults, lamina::cuda::Fault::cache_length, first + t);
      entries[t] = page < 0 || !seen ? -1 : p.rows.entry(page, kv_head, first + t);
    }
    __syncthreads();
    for (int n = t / lamina::cuda::kWarp; n < count; n += kSimpleThreads / lamina::cuda::kWarp) {
      const int64_t entry = entries[n];
      float dot = 0;
      for (int c = t % lamina::cuda::kWarp; entry >= 0 && c < p.d_qk; c += lamina::cuda::kWarp) {
        dot = fmaf(paged::load_number(p.q, p.q_type, q_at + c), cached_number(keys[entry * p.d_qk + c]), dot);
      }
      dot = lamina::cuda::warp_sum(dot);
      if (p.k_scales != nullptr && entry >= 0) dot *= p.k_scales[entry];
      if (t % lamina::cuda::kWarp == 0) {
        s[n] = entry < 0 ? -INFINITY : paged::paged_score(p, work.count, work.length, dot, head, query, first + n);
      }
    }
    __syncthreads();
    const float own = t < count ? s[t] : -INFINITY;
    const float row_max = fmaxf(most, lamina::cuda::block_max(own, scratch));
    const float weight = fast_exp2(own - row_max);
    const float shrink = fast_exp2(most - row_max);
    sum = sum * shrink + lamina::cuda::block_sum(weight, scratch);
    most = row_max;
    const bool scaled = v_scales != nullptr && t < count && entries[t] >= 0;
    s[t] = scaled ? weight * v_scales[entries[t]] : weight;
    __syncthreads();
    for (int c = t; c < p.d_v; c += kSimpleThreads) {
      float value = sums[c] * shrink;
      for (int n = 0; n < count; ++n) {
        if (entries[n] >= 0) value = fmaf(s[n], cached_number(values[entries[n] * v_width + c]), value);
      }
      sums[c] = value;
    }
    __syncthreads();
  }
  const float sink = p.sinks == nullptr ? kMinusLarge : p.sinks[head] * kLog2E;
  const float row_max = fmaxf(most, sink);
  const float shrink = fast_exp2(most - row_max);
  sum *= shrink;
  if (sink > kMinusLarge) sum += fast_exp2(sink - row_max);
  const int64_t y_at = (static_cast<int64_t>(token) * p.n_heads + head) * p.d_v;
  for (int c = t; c < p.d_v; c += kSimpleThreads) {
    paged::store_number(p.y, p.q_type, y_at + c, work.length > 0 && sum != 0 ? sums[c] * shrink / sum : 0.0F);
  }
}

template <class C>
void simple_decode(const PagedDecode& args, const Params& p) {
  int64_t queries = 1;
  for (size_t r = 0; r + 1 < args.rows.host_starts.size(); ++r) {
    const int64_t count = args.rows.host_starts[r + 1] - args.rows.host_starts[r];
    if (count <= kMostPagedQueries) queries = std::max(queries, count);
  }
  const size_t shared = sizeof(float) * static_cast<size_t>(p.d_v);
  LAMINA_CHECK(p.rows.rows < 65536 && shared <= 32768, kPagedDecodeName, ": ", p.rows.rows, " rows with values of ",
               p.d_v, " columns exceed the limits of the kernel, 65535 rows and 8192 columns; use a smaller batch");
  const dim3 grid(static_cast<unsigned>(p.n_heads), static_cast<unsigned>(queries), static_cast<unsigned>(p.rows.rows));
  lamina::cuda::launch_dependent(paged_simple_kernel<C>, grid, dim3(kSimpleThreads), shared, args.q.device(), p);
  lamina::cuda::check_launch(kPagedDecodeName);
}

Params params_of(const PagedDecode& args) {
  const AttentionExtras& extras = args.extras;
  Params p{};
  p.rows = page_rows(args.cache, args.rows);
  p.n_heads = narrow(args.q.dim(1));
  p.group = p.n_heads / p.rows.n_kv_heads;
  p.d_qk = narrow(args.q.dim(2));
  p.d_v = narrow(args.y.dim(2));
  p.q_type = args.q.dtype();
  p.q = args.q.raw();
  p.q_stride = args.q.dim(0) == 1 ? 0 : args.q.strides()[0];
  p.k = args.cache.k.raw();
  p.v = args.cache.v.defined() ? args.cache.v.raw() : nullptr;
  p.k_scales = device_data<float>(args.cache.scales.k);
  p.v_scales = device_data<float>(args.cache.scales.v);
  p.scale = static_cast<float>(args.options.scale);
  p.soft_cap = static_cast<float>(args.options.soft_cap);
  p.mask = device_mask(args.options, 1, args.rows.capacity(args.cache.page_size()));
  p.slopes = device_data<float>(extras.alibi_slopes);
  p.t5_bias = device_data<float>(extras.t5_bias);
  p.t5_buckets = p.t5_bias == nullptr ? 0 : narrow(extras.t5_bias.dim(0));
  p.t5_max_distance = narrow(args.options.t5_max_distance);
  p.sinks = device_data<float>(extras.sinks);
  p.plain = p.mask.is_contiguous_range && p.soft_cap == 0 && p.slopes == nullptr && p.t5_bias == nullptr;
  p.y = args.y.raw();
  p.faults = lamina::cuda::fault_slot(args.q.device());
  return p;
}

bool on_tensor_cores(const PagedDecode& args, const Params& p) {
  switch (args.cache.k.dtype()) {
    case DType::bf16: return paged::decode_on_tensor_cores<__nv_bfloat16>(args, p);
    case DType::f16: return paged::decode_on_tensor_cores<__half>(args, p);
    case DType::u8: return paged::decode_on_tensor_cores<uint8_t>(args, p);
    default: return false;
  }
}

}  // namespace

void paged_decode(const PagedDecode& args) {
  if (args.y.numel() == 0 || args.rows.rows() == 0) return;
  const Params p = params_of(args);
  if (on_tensor_cores(args, p)) return;
  if (args.cache.k.dtype() == DType::u8) return simple_decode<uint8_t>(args, p);
  lamina::cuda::visit_floating(kPagedDecodeName, args.cache.k.dtype(),
                               [&](auto tag) { simple_decode<DeviceType<typename decltype(tag)::type>>(args, p); });
}

void paged_attention_step(const PagedStep& args, bool& done) {
  constexpr int kColumns = 8;
  const StepRotation& rotation = args.rotation;
  Params p = params_of(args.decode);
  p.step = true;
  p.settled = args.settled;
  p.rows.one_each = true;
  if (rotation.cos.defined()) {
    const bool split = rotation.pairing == RotaryPairing::half_split;
    if (rotation.rotary_dim % (split ? 2 * kColumns : kColumns) != 0 || rotation.cos.dim(0) == 0) return;
    p.interleaved = !split;
    p.rotary_dim = static_cast<int>(rotation.rotary_dim);
    p.table_row = static_cast<int>(rotation.cos.dim(1));
    p.table_rows = static_cast<int>(std::min(rotation.cos.dim(0), kMostDevicePositions));
    p.cos = rotation.cos.data<float>();
    p.sin = rotation.sin.data<float>();
    p.positions = rotation.positions.data<int64_t>();
  }
  done = on_tensor_cores(args.decode, p);
}

}  // namespace lamina::ops::cuda
