// Attention by cuDNN. cuDNN recognizes attention in a graph of elementary operations and runs one fused kernel for it.
// These graphs implement attention.h in the order that cuDNN expects. Forward: scaled scores, soft cap, ALiBi bias;
// softmax as max, exp, sum and division, with log Σ exp as second output. Backward: the chain rule with recomputed
// weights; dq accumulates in f32. An execution plan is built once per shape and cached with the device.
#include "lamina/ops/attention/cuda/cudnn/attention_cudnn.h"

#include <bit>
#include <cmath>
#include <limits>
#include <map>
#include <mutex>
#include <optional>

#include "lamina/ops/attention/attention_kernel.h"
#include "lamina/ops/attention/cuda/cudnn/graph_cudnn.h"
#include "lamina/tensor/cuda/runtime.h"

namespace lamina::ops::cuda {
namespace {

using Key = std::vector<int64_t>;

/// An execution plan, and the tensor ids in its graph.
struct ForwardPlan {
  int64_t q, k, v, scale, slopes, y, log_sum;  ///< slopes is −1 if there is no ALiBi
  std::unique_ptr<CudnnPlan> plan;
};
struct BackwardPlan {
  int64_t q, k, v, y, dy, log_sum, scale, slopes, dq, dk, dv, dq_sum, delta;
  std::unique_ptr<CudnnPlan> plan;
};

/// The plans of a device by shape. A plan is empty if cuDNN supports none for the shape.
class Plans {
 public:
  explicit Plans(int index) {
    LAMINA_CUDA(cudaSetDevice(index), "cuDNN");
    if (find_cudnn() == nullptr || cudnn().Create(&handle_) != CUDNN_STATUS_SUCCESS) handle_ = nullptr;
  }
  ~Plans() {
    forward_.clear();
    backward_.clear();
    if (handle_ != nullptr) cudnn().Destroy(handle_);
  }
  Plans(const Plans&) = delete;
  Plans& operator=(const Plans&) = delete;

  cudnnHandle_t handle(cudaStream_t stream) {
    cudnn().SetStream(handle_, stream);
    return handle_;
  }
  template <class Make>
  const ForwardPlan* forward(const Key& key, const Make& make) {
    return find(forward_, key, make);
  }
  template <class Make>
  const BackwardPlan* backward(const Key& key, const Make& make) {
    return find(backward_, key, make);
  }

 private:
  template <class Plan, class Make>
  const Plan* find(std::map<Key, std::optional<Plan>>& plans, const Key& key, const Make& make) {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (handle_ == nullptr) return nullptr;
    const auto [place, is_new] = plans.try_emplace(key);
    if (is_new) {
      try {
        place->second.emplace(make(handle_));
      } catch (const CudnnUnsupported&) {
        place->second.reset();
      }
    }
    return place->second ? &*place->second : nullptr;
  }

  std::mutex mutex_;
  cudnnHandle_t handle_ = nullptr;
  std::map<Key, std::optional<ForwardPlan>> forward_;
  std::map<Key, std::optional<BackwardPlan>> backward_;
};

bool is_16_byte_aligned(const Tensor& tensor) {
  bool fits = reinterpret_cast<uintptr_t>(tensor.raw()) % 16 == 0;
  for (int axis = 0; axis < 3; ++axis) fits &= tensor.strides()[axis] % 8 == 0;
  return fits;
}

void append(Key& key, std::initializer_list<Tensor> tensors) {
  for (const Tensor& tensor : tensors) {
    key.insert(key.end(), tensor.shape().begin(), tensor.shape().end());
    key.insert(key.end(), tensor.strides().begin(), tensor.strides().end());
  }
}

Key key_of(const AttentionForward& args) {
  const double cap = args.options.soft_cap;
  Key key{static_cast<int64_t>(args.q.dtype()), args.options.causal, args.extras.alibi_slopes.defined(),
          std::bit_cast<int64_t>(cap)};
  append(key, {args.q, args.k, args.v});
  return key;
}

Key key_of(const AttentionBackward& args) {
  Key key = key_of(args.forward);
  append(key, {args.dq, args.dk, args.dv});
  return key;
}

/// Builds the graph of one shape.
struct Builder {
  CudnnGraph graph;
  cudnnDataType_t type;
  AttentionSizes sizes;
  CudnnExtents square;   // [batch, n_heads, seq_q, seq_k]
  CudnnExtents columns;  // [batch, n_heads, seq_q, 1]

  explicit Builder(const AttentionForward& args)
      : type(args.q.dtype() == DType::bf16 ? CUDNN_DATA_BFLOAT16 : CUDNN_DATA_HALF),
        sizes(attention_sizes(args)),
        square{sizes.batch, sizes.n_heads, sizes.seq_q, sizes.seq_k},
        columns{sizes.batch, sizes.n_heads, sizes.seq_q, 1} {}

  /// Adds a tensor [batch, seq, heads, d] to the graph as [batch, heads, seq, d], or with the last two dimensions
  /// transposed.
  int64_t heads(const Shape& shape, const Shape& strides, bool transposed) {
    CudnnExtents extents{shape[0], shape[2], shape[1], shape[3]};
    CudnnExtents steps{strides[0], strides[2], strides[1], strides[3]};
    if (transposed) {
      std::swap(extents[2], extents[3]);
      std::swap(steps[2], steps[3]);
    }
    return graph.tensor(type, extents, steps);
  }
  int64_t heads(const Tensor& tensor, bool transposed = false) {
    return heads(tensor.shape(), tensor.strides(), transposed);
  }
  int64_t statistics() {
    return graph.tensor(CUDNN_DATA_FLOAT, columns, {sizes.n_heads * sizes.seq_q, sizes.seq_q, 1, 1});
  }
  int64_t apply(cudnnPointwiseMode_t mode, int64_t x, int64_t b, const CudnnExtents& extents) {
    const int64_t y = graph.virtual_tensor(extents);
    graph.pointwise(mode, x, b, y);
    return y;
  }
  /// tanh(scores / cap), for cap != 0.
  int64_t squashed(int64_t scores, double cap) {
    const int64_t small = apply(CUDNN_POINTWISE_MUL, scores, graph.constant(static_cast<float>(1.0 / cap)), square);
    return apply(CUDNN_POINTWISE_TANH_FWD, small, -1, square);
  }
  int64_t slopes() { return graph.tensor(CUDNN_DATA_FLOAT, {1, sizes.n_heads, 1, 1}, {sizes.n_heads, 1, 1, 1}); }
  /// scores + slope · (key − query): ALiBi. Valid for causal masks only, where key <= query.
  int64_t with_alibi(int64_t scores, int64_t slopes_of_heads) {
    const int64_t row = graph.virtual_tensor(square, CUDNN_DATA_INT32);
    const int64_t column = graph.virtual_tensor(square, CUDNN_DATA_INT32);
    graph.index(scores, 2, row);
    graph.index(scores, 3, column);
    const int64_t distance = graph.virtual_tensor(square, CUDNN_DATA_INT32);
    graph.pointwise(CUDNN_POINTWISE_SUB, column, row, distance, -1, CUDNN_DATA_INT32);
    const int64_t bias = apply(CUDNN_POINTWISE_MUL, distance, slopes_of_heads, square);
    return apply(CUDNN_POINTWISE_ADD, scores, bias, square);
  }
  /// Sets the scores of keys after the query to −inf.
  int64_t causal(int64_t scores) {
    const int64_t row = graph.virtual_tensor(square, CUDNN_DATA_INT32);
    const int64_t column = graph.virtual_tensor(square, CUDNN_DATA_INT32);
    const int64_t seen = graph.virtual_tensor(square, CUDNN_DATA_BOOLEAN);
    const int64_t result = graph.virtual_tensor(square);
    const int64_t never = graph.constant(-std::numeric_limits<float>::infinity());
    graph.index(scores, 2, row);
    graph.index(scores, 3, column);
    graph.pointwise(CUDNN_POINTWISE_CMP_GE, row, column, seen, -1, CUDNN_DATA_BOOLEAN);
    graph.pointwise(CUDNN_POINTWISE_BINARY_SELECT, scores, never, result, seen);
    return result;
  }
  /// Transposes a [seq_q, seq_k] matrix per head; the result has the tensors' dtype.
  int64_t transposed(int64_t from) {
    const int64_t n = sizes.seq_q * sizes.seq_k;
    const int64_t to = graph.virtual_tensor({sizes.batch, sizes.n_heads, sizes.seq_k, sizes.seq_q},
                                            {sizes.n_heads * n, n, 1, sizes.seq_k}, type);
    graph.reshape(from, to);
    return to;
  }
  /// c = a · b for dk or dv. If several query heads share a KV head: one product per query head, then a sum over the
  /// group.
  void multiply_grouped(int64_t a, int64_t b, int64_t width, int64_t c) {
    if (sizes.group == 1) {
      graph.multiply(a, b, c);
      return;
    }
    const int64_t all = graph.virtual_tensor({sizes.batch, sizes.n_heads, sizes.seq_k, width}, type);
    graph.multiply(a, b, all);
    graph.reduce(CUDNN_REDUCE_TENSOR_ADD, all, c);
  }
};

ForwardPlan make_forward(const AttentionForward& args, cudnnHandle_t handle) {
  Builder b(args);
  CudnnGraph& g = b.graph;
  ForwardPlan result{};
  result.q = b.heads(args.q);
  result.k = b.heads(args.k, true);
  result.v = b.heads(args.v);
  result.scale = g.scalar();
  result.slopes = args.extras.alibi_slopes.defined() ? b.slopes() : -1;
  result.y = b.heads(args.y);
  result.log_sum = b.statistics();
  const int64_t product = g.virtual_tensor(b.square);
  g.multiply(result.q, result.k, product);
  int64_t scores = b.apply(CUDNN_POINTWISE_MUL, product, result.scale, b.square);
  if (const double cap = args.options.soft_cap; cap != 0) {
    scores = b.apply(CUDNN_POINTWISE_MUL, b.squashed(scores, cap), g.constant(static_cast<float>(cap)), b.square);
  }
  if (result.slopes >= 0) scores = b.with_alibi(scores, result.slopes);
  if (args.options.causal) scores = b.causal(scores);
  const int64_t most = g.virtual_tensor(b.columns);
  g.reduce(CUDNN_REDUCE_TENSOR_MAX, scores, most);
  const int64_t below = b.apply(CUDNN_POINTWISE_SUB, scores, most, b.square);
  const int64_t power = b.apply(CUDNN_POINTWISE_EXP, below, -1, b.square);
  const int64_t sum = g.virtual_tensor(b.columns);
  g.reduce(CUDNN_REDUCE_TENSOR_ADD, power, sum);
  const int64_t log = b.apply(CUDNN_POINTWISE_LOG, sum, -1, b.columns);
  g.pointwise(CUDNN_POINTWISE_ADD, most, log, result.log_sum);
  const int64_t weights = g.virtual_tensor(b.square, b.type);
  g.pointwise(CUDNN_POINTWISE_DIV, power, sum, weights);
  g.multiply(weights, result.v, result.y);
  result.plan = std::make_unique<CudnnPlan>(std::move(g), handle);
  return result;
}

BackwardPlan make_backward(const AttentionBackward& args, cudnnHandle_t handle) {
  const AttentionForward& in = args.forward;
  Builder b(in);
  CudnnGraph& g = b.graph;
  const AttentionSizes& s = b.sizes;
  BackwardPlan result{};
  result.q = b.heads(in.q);
  result.k = b.heads(in.k, true);
  result.v = b.heads(in.v, true);
  result.y = b.heads(in.y);
  result.dy = b.heads(args.dy);
  result.log_sum = b.statistics();
  result.scale = g.scalar();
  result.slopes = in.extras.alibi_slopes.defined() ? b.slopes() : -1;
  result.dq = b.heads(args.dq);
  result.dk = b.heads(args.dk);
  result.dv = b.heads(args.dv);
  result.delta = b.statistics();
  const CudnnExtents queries{s.batch, s.n_heads, s.seq_q, s.d_qk};
  result.dq_sum = g.tensor(CUDNN_DATA_FLOAT, queries, {s.n_heads * s.seq_q * s.d_qk, s.seq_q * s.d_qk, s.d_qk, 1});
  // delta = Σ_d dy · y
  const int64_t dots = b.apply(CUDNN_POINTWISE_MUL, result.dy, result.y, {s.batch, s.n_heads, s.seq_q, s.d_v});
  const int64_t dot = g.virtual_tensor(b.columns);
  g.reduce(CUDNN_REDUCE_TENSOR_ADD, dots, dot);
  g.pointwise(CUDNN_POINTWISE_MUL, dot, g.constant(1.0F), result.delta);
  // dv = pᵀ dy
  const int64_t product = g.virtual_tensor(b.square);
  g.multiply(result.q, result.k, product);
  int64_t scores = b.apply(CUDNN_POINTWISE_MUL, product, result.scale, b.square);
  int64_t tanh = -1;
  if (const double cap = in.options.soft_cap; cap != 0) {
    tanh = b.squashed(scores, cap);
    scores = b.apply(CUDNN_POINTWISE_MUL, tanh, g.constant(static_cast<float>(cap)), b.square);
  }
  if (result.slopes >= 0) scores = b.with_alibi(scores, result.slopes);
  int64_t below = b.apply(CUDNN_POINTWISE_SUB, scores, result.log_sum, b.square);
  if (in.options.causal) below = b.causal(below);
  const int64_t weights = b.apply(CUDNN_POINTWISE_EXP, below, -1, b.square);
  b.multiply_grouped(b.transposed(weights), result.dy, s.d_v, result.dv);
  // ds = scale · p · (dy vᵀ − delta), times 1 − tanh² if capped; dk = dsᵀ q
  const int64_t dp = g.virtual_tensor(b.square);
  g.multiply(result.dy, result.v, dp);
  const int64_t centered = b.apply(CUDNN_POINTWISE_SUB, dp, result.delta, b.square);
  int64_t weighted = b.apply(CUDNN_POINTWISE_MUL, centered, weights, b.square);
  if (tanh >= 0) {
    const int64_t squared = b.apply(CUDNN_POINTWISE_MUL, tanh, tanh, b.square);
    const int64_t minus = b.apply(CUDNN_POINTWISE_MUL, squared, g.constant(-1.0F), b.square);
    const int64_t slope = b.apply(CUDNN_POINTWISE_ADD, minus, g.constant(1.0F), b.square);
    weighted = b.apply(CUDNN_POINTWISE_MUL, weighted, slope, b.square);
  }
  const int64_t ds = b.apply(CUDNN_POINTWISE_MUL, weighted, result.scale, b.square);
  b.multiply_grouped(b.transposed(ds), result.q, s.d_qk, result.dk);
  // dq = ds k
  const Shape& steps = in.k.strides();
  const int64_t keys =
      g.virtual_tensor({s.batch, s.n_kv_heads, s.seq_k, s.d_qk}, {steps[0], steps[2], steps[1], 1}, b.type);
  g.reshape(result.k, keys);
  g.multiply(ds, keys, result.dq_sum);
  g.pointwise(CUDNN_POINTWISE_IDENTITY, result.dq_sum, -1, result.dq);
  result.plan = std::make_unique<CudnnPlan>(std::move(g), handle);
  return result;
}

}  // namespace

bool supports_cudnn(const AttentionForward& args) {
  const AttentionSizes sizes = attention_sizes(args);
  const AttentionOptions& o = args.options;
  const AttentionExtras& e = args.extras;
  const bool type = args.q.dtype() == DType::bf16 || args.q.dtype() == DType::f16;
  const bool options = o.pattern.kind == AttentionPattern::Kind::full && o.dropout == 0 &&
                       o.scale > 0;  // cuDNN takes the row maximum before scaling, so the scale must be positive
  const bool extras = (e.alibi_slopes.defined() && !o.causal) || e.t5_bias.defined() || e.sinks.defined() ||
                      (e.document_starts.defined() && e.document_starts.numel() > 2);
  const auto width = [](int64_t d) { return d % 8 == 0 && d >= 16 && d <= 256; };
  return type && options && !extras && width(sizes.d_qk) && width(sizes.d_v) && args.y.numel() > 0 &&
         sizes.seq_k >= 64 && (sizes.seq_q == sizes.seq_k || (!o.causal && sizes.seq_q >= 64)) &&
         is_16_byte_aligned(args.q) && is_16_byte_aligned(args.k) && is_16_byte_aligned(args.v);
}

bool forward_by_cudnn(const AttentionForward& args) {
  const Device& device = args.q.device();
  Plans& plans = lamina::cuda::attached<Plans>(device);
  const ForwardPlan* found =
      plans.forward(key_of(args), [&](cudnnHandle_t handle) { return make_forward(args, handle); });
  if (found == nullptr) return false;
  auto scale = static_cast<float>(args.options.scale);
  std::vector<CudnnPlan::Binding> bindings{{found->q, args.q.raw()}, {found->k, args.k.raw()},
                                           {found->v, args.v.raw()}, {found->scale, &scale},
                                           {found->y, args.y.raw()}, {found->log_sum, args.row_max.raw()}};
  if (found->slopes >= 0) bindings.push_back({found->slopes, args.extras.alibi_slopes.raw()});
  found->plan->run(device, plans.handle(lamina::cuda::stream_of(device)), bindings);
  return true;
}

bool backward_by_cudnn(const AttentionBackward& args) {
  const AttentionForward& in = args.forward;
  const Device& device = in.q.device();
  Plans& plans = lamina::cuda::attached<Plans>(device);
  const BackwardPlan* found =
      plans.backward(key_of(args), [&](cudnnHandle_t handle) { return make_backward(args, handle); });
  if (found == nullptr) return false;
  auto scale = static_cast<float>(in.options.scale);
  const AttentionSizes sizes = attention_sizes(in);
  const Tensor log_sum = in.saved_log_sum_exp ? in.row_max : log_sum_exp(in);
  const Tensor delta = Tensor::empty({sizes.batch, sizes.n_heads, sizes.seq_q}, DType::f32, device);
  const Tensor dq_sum = Tensor::empty({sizes.batch, sizes.n_heads, sizes.seq_q, sizes.d_qk}, DType::f32, device);
  std::vector<CudnnPlan::Binding> bindings{
      {found->q, in.q.raw()},     {found->k, in.k.raw()},        {found->v, in.v.raw()},
      {found->y, in.y.raw()},     {found->dy, args.dy.raw()},    {found->log_sum, log_sum.raw()},
      {found->scale, &scale},     {found->dq, args.dq.raw()},    {found->dk, args.dk.raw()},
      {found->dv, args.dv.raw()}, {found->dq_sum, dq_sum.raw()}, {found->delta, delta.raw()}};
  if (found->slopes >= 0) bindings.push_back({found->slopes, in.extras.alibi_slopes.raw()});
  found->plan->run(device, plans.handle(lamina::cuda::stream_of(device)), bindings);
  return true;
}

}  // namespace lamina::ops::cuda
