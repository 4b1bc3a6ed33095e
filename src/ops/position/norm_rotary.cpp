#include "lamina/ops/position/norm_rotary.h"

#include "lamina/autograd/tape.h"
#include "lamina/ops/elementwise/split.h"
#include "lamina/ops/launch.h"
#include "lamina/ops/linear/norm_linear_kernel.h"
#include "lamina/ops/norm/norm_scale.h"
#include "lamina/ops/position/norm_rotary_kernel.h"
#include "lamina/ops/position/rotary_kernel.h"

namespace lamina::ops {
namespace {

constexpr const char* kNormedOp = "norm_rotary";
constexpr int64_t kMostHeadDim = 256;

bool is_aligned(const Tensor& tensor) { return reinterpret_cast<uintptr_t>(tensor.raw()) % 16 == 0; }

/// True if the kernel supports the shape. x may still have to be made contiguous.
bool fits_kernel(const Tensor& x, const RotaryArgs& turn, const RmsNormOptions& norm) {
  const int64_t head_dim = x.dim(3);
  if (x.device().like() != DeviceKind::cuda || x.dtype() == DType::f64 || x.numel() == 0) return false;
  const auto pack = static_cast<int64_t>(16 / size_of(x.dtype()));
  return head_dim <= kMostHeadDim && head_dim % pack == 0 && (norm.group_size == 0 || norm.group_size == head_dim) &&
         turn.rotary_dim % (2 * pack) == 0 && 2 * turn.cos.dim(1) == turn.rotary_dim && turn.cos.dim(0) > 0 &&
         is_aligned(turn.cos) && is_aligned(turn.sin) && x.numel() / head_dim < int64_t{1} << 30;
}

/// True if tokens have a constant stride and heads are 16-byte aligned, as the kernel needs.
bool has_kernel_strides(const Tensor& x) {
  const auto pack = static_cast<int64_t>(16 / size_of(x.dtype()));
  const Shape& strides = x.strides();
  return strides[3] == 1 && strides[2] % pack == 0 && strides[1] % pack == 0 &&
         (x.dim(0) == 1 || strides[0] == x.dim(1) * strides[1]) && is_aligned(x);
}

Tensor with_kernel_strides(const Tensor& x) { return has_kernel_strides(x) ? x.detach() : x.detach().contiguous(); }

/// Heads to be normalized and rotated. `fit` says whether the kernel supports them.
struct Heads {
  Tensor x;
  Tensor weight;
  RotaryArgs turn;  ///< x and y are not set
  bool fit;

  Heads(const Tensor& of, const Tensor& by, const Tensor& cos, const Tensor& sin, const RmsNormOptions& norm,
        const RotaryOptions& rotation)
      : x(of), weight(by), turn(checked_rotary(kNormedOp, of, cos, sin, rotation)) {
    check_row_norm(kNormedOp, x, {}, {RowNorm::Kind::rms, weight, {}, norm});
    fit = fits_kernel(x, turn, norm);
  }
};

/// Writes y. Returns everything that backward needs.
NormRotaryForward run_forward(const Heads& heads, const Tensor& y, const RmsNormOptions& norm) {
  const Tensor& x = heads.x;
  NormRotaryForward args{heads.turn, norm_scale(heads.weight, norm.weight_offset, x.dtype()), norm.eps,
                         Tensor::empty({x.numel() / x.dim(3)}, DType::f32, x.device())};
  if (args.scale.defined() && !is_aligned(args.scale)) args.scale = args.scale.clone();
  args.turn.x = with_kernel_strides(x);
  args.turn.y = y;
  x.device().add_work({7 * x.numel(), 2 * x.nbytes()});
  if (x.device().kind() == DeviceKind::cuda) LAMINA_LAUNCH_CUDA(norm_rotary_forward, args);
  args.turn.y = Tensor();
  return args;
}

/// The tensors that backward reads. The tape then detects if one of them is overwritten.
std::vector<Tensor> saved_of(const NormRotaryForward& done) {
  return {done.turn.x, done.scale, done.turn.cos, done.turn.sin, done.turn.positions};
}

/// Writes dx. Returns the weight's gradient if requested.
Tensor run_backward(const NormRotaryForward& done, const Tensor& dy, const Tensor& dx, bool weight_gradient) {
  NormRotaryBackward args{done.turn, done.scale, done.r, with_kernel_strides(dy), dx, {}};
  if (weight_gradient) args.dweight = Tensor::empty({dx.dim(3)}, DType::f32, dx.device());
  dx.device().add_work({11 * dx.numel(), 3 * dx.nbytes()});
  if (dx.device().kind() == DeviceKind::cuda) LAMINA_LAUNCH_CUDA(norm_rotary_backward, args);
  return args.dweight;
}

/// Writes the gradient of the values, the third output: a copy, or zeros if there is none.
void put_values(Backward& b, Tensor dv) {
  dv.device().add_work({0, 2 * dv.nbytes()});
  b.has_grad(2) ? dv.copy_(b.strided_grad(2)) : dv.fill_(0.0);
}

}  // namespace

Tensor norm_rotary(const Tensor& x, const Tensor& weight, const Tensor& cos, const Tensor& sin,
                   const RmsNormOptions& norm, const RotaryOptions& rotation) {
  const Heads heads(x, weight, cos, sin, norm, rotation);
  if (!heads.fit) return rotary(rms_norm(x, weight, norm), cos, sin, rotation);
  Tensor y = Tensor::empty(x.shape(), x.dtype(), x.device());
  const NormRotaryForward done = run_forward(heads, y, norm);
  record(kNormedOp, {x, weight}, {y}, saved_of(done), [done](Backward& b) {
    const Tensor& from = done.turn.x;
    Tensor dx = Tensor::empty(from.shape(), from.dtype(), from.device());
    Tensor dweight = run_backward(done, b.strided_grad(0), dx, b.needs(1));
    if (b.needs(1)) b.add(1, std::move(dweight));
    b.add(0, std::move(dx));
  });
  return y;
}

NormedHeads norm_rotary_packed(const Tensor& qkv, int64_t n_heads, int64_t n_kv_heads, const Tensor& q_weight,
                               const Tensor& k_weight, const Tensor& cos, const Tensor& sin, const RmsNormOptions& norm,
                               const RotaryOptions& rotation) {
  LAMINA_CHECK(n_heads >= 0 && n_kv_heads >= 0 && qkv.rank() == 4 && n_kv_heads <= qkv.dim(2) &&
                   n_heads == qkv.dim(2) - 2 * n_kv_heads,
               kNormedOp, ": qkv is ", qkv.shape(), "; expected [batch, seq, ", n_heads, " + 2 · ", n_kv_heads,
               ", head_dim]");
  const Tensor all = qkv.detach();
  const Heads queries(all.slice(2, 0, n_heads), q_weight, cos, sin, norm, rotation);
  const Heads keys(all.slice(2, n_heads, n_kv_heads), k_weight, cos, sin, norm, rotation);
  if (!queries.fit || !keys.fit) {
    const std::vector<Tensor> parts = split(qkv, {n_heads, n_kv_heads, n_kv_heads}, 2);
    // Copy v if backward will run: a view would keep the whole packed projection in memory, although q and k are not
    // used.
    return {norm_rotary(parts[0], q_weight, cos, sin, norm, rotation),
            norm_rotary(parts[1], k_weight, cos, sin, norm, rotation),
            is_tracked({qkv}) ? parts[2].contiguous() : parts[2]};
  }
  const Tensor made =
      Tensor::empty({qkv.dim(0), qkv.dim(1), n_heads + n_kv_heads, qkv.dim(3)}, qkv.dtype(), qkv.device());
  NormedHeads heads{made.slice(2, 0, n_heads), made.slice(2, n_heads, n_kv_heads),
                    all.slice(2, n_heads + n_kv_heads, n_kv_heads)};
  const NormRotaryForward of_q = run_forward(queries, heads.q, norm);
  const NormRotaryForward of_k = run_forward(keys, heads.k, norm);
  std::vector<Tensor> saved = saved_of(of_q);
  saved.push_back(of_k.scale);
  record(kNormedOp, {qkv, q_weight, k_weight}, {heads.q, heads.k, heads.v}, saved,
         [of_q, of_k, shape = qkv.shape(), n_heads, n_kv_heads](Backward& b) {
           Tensor dqkv = Tensor::empty(shape, of_q.turn.x.dtype(), of_q.turn.x.device());
           Tensor dq_weight = run_backward(of_q, b.strided_grad(0), dqkv.slice(2, 0, n_heads), b.needs(1));
           Tensor dk_weight = run_backward(of_k, b.strided_grad(1), dqkv.slice(2, n_heads, n_kv_heads), b.needs(2));
           put_values(b, dqkv.slice(2, n_heads + n_kv_heads, n_kv_heads));
           if (b.needs(1)) b.add(1, std::move(dq_weight));
           if (b.needs(2)) b.add(2, std::move(dk_weight));
           b.add(0, std::move(dqkv));
         });
  return heads;
}

}  // namespace lamina::ops
