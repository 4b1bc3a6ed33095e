#include <algorithm>
#include <utility>

#include "lamina/autograd/tape.h"
#include "lamina/comm/communicator.h"
#include "lamina/ops/launch.h"
#include "lamina/ops/loss/cross_entropy_checks.h"
#include "lamina/ops/loss/cross_entropy_kernel.h"

namespace lamina::ops {
namespace {

constexpr const char* kName = "linear_cross_entropy";

void check_arguments(const Tensor& x, const Tensor& weight, const Tensor& targets, const Tensor& bias) {
  check_floating(kName, "x", x);
  check_floating(kName, "weight", weight);
  check_rank_at_least(kName, "x", x, 1);
  LAMINA_CHECK(weight.rank() == 2 && weight.dim(1) == x.dim(-1), kName, ": weight is ", weight.shape(),
               "; expected [vocabulary, ", x.dim(-1), "] for x ", x.shape());
  LAMINA_CHECK((x.dtype() == DType::f64) == (weight.dtype() == DType::f64), kName, ": x is ", x.dtype(),
               " and weight is ", weight.dtype(), "; f64 works only with f64; convert one with to(dtype)");
  check_targets(kName, targets, x);
  if (bias.defined()) {
    check_floating(kName, "bias", bias);
    check_shape(kName, "bias", bias, {weight.dim(0)});
  }
  check_same_device(kName, {x, weight, targets, bias});
}

void check_shard(const Tensor& weight, const CrossEntropyOptions& options, const ClassShard& shard) {
  if (shard.ranks == nullptr) return;
  LAMINA_CHECK(options.reduction != Reduction::none, kName,
               ": classes divided over ranks give a mean or sum; Reduction::none is not supported");
  LAMINA_CHECK(shard.first >= 0 && shard.first + weight.dim(0) <= shard.classes, kName, ": classes from ", shard.first,
               " on with a weight of ", weight.shape(), "; expected a part of ", shard.classes, " classes");
}

/// Rows per chunk on a CPU, in whole GEMM tiles: less than an eighth of all rows (with a margin for the allocator's
/// rounding). Each chunk reads the weight twice and updates its gradient, so chunks may be larger if their logits are
/// few.
int64_t rows_per_chunk(int64_t rows, int64_t classes) {
  constexpr int64_t kTile = 48;
  constexpr int64_t kLittle = 4 << 20;  // logits of a chunk that count as few
  const int64_t share = rows * 15 / 128 / kTile * kTile;
  const int64_t little = std::min(kLittle / std::max<int64_t>(classes, 1) / kTile, int64_t{5}) * kTile;
  return std::min(std::max<int64_t>(rows, 1), std::clamp<int64_t>(std::max(share, little), kTile, 10 * kTile));
}

void run(LinearCrossEntropy& args) {
  const int64_t rows = args.x.dim(0);
  const int64_t classes = args.weight.dim(0);
  const DType type = accumulation_type(args.x.dtype());
  const Device& device = args.x.device();
  if (device.like() != DeviceKind::cuda) {
    const int64_t all_classes =
        args.shard.ranks == nullptr ? classes : args.shard.classes;  // all ranks need equal chunks
    args.chunk = Tensor::empty({classes, rows_per_chunk(rows, all_classes)}, type, device);
  } else if (device.kind() == DeviceKind::meta) {  // counts the memory that the CUDA kernel allocates
    args.chunk = Tensor::empty({std::min(rows, kLossRowsOnGpu), classes}, args.x.dtype(), device);
  }
  const int64_t products = 1 + (args.dx.defined() ? 1 : 0) + (args.dweight.defined() ? 1 : 0);
  const Work work{products * 2 * rows * classes * args.x.dim(1) + 8 * rows * classes,
                  products * args.weight.nbytes() + 2 * args.x.nbytes()};
  LAMINA_LAUNCH(args.x.device(), work, linear_cross_entropy, args);
  if (args.shard.ranks != nullptr && device.kind() == DeviceKind::meta) {  // counts the kernel's communication
    const int64_t step = args.chunk.dim(device.like() == DeviceKind::cuda ? 0 : 1);
    for (int64_t first = 0; first < rows; first += step) {
      exchange_class_sums(args, Tensor::empty({3 * std::min(step, rows - first)}, type, device));
    }
  }
  args.chunk = {};
}

void allocate_gradients(LinearCrossEntropy& args, bool x, bool weight, bool bias) {
  const DType type = accumulation_type(args.x.dtype());
  const Device& device = args.x.device();
  if (x) args.dx = Tensor::empty(args.x.shape(), args.x.dtype(), device);
  if (weight) args.dweight = Tensor::empty(args.weight.shape(), type, device);
  if (bias) args.dbias = Tensor::empty({args.weight.dim(0)}, type, device);
}

/// The gradients for an incoming gradient of 1, computed in forward and kept until backward.
struct PrecomputedGradients {
  Tensor dx;
  Tensor dweight;
  Tensor dbias;
  bool there = false;
};

void scale(const Tensor& values, const Tensor& factor) {
  if (!values.defined()) return;
  const ScaleByTensor args{values, factor};
  LAMINA_LAUNCH(values.device(), (Work{values.numel(), 2 * values.nbytes()}), scale_by_tensor, args);
}

void run_backward(Backward& b, const std::shared_ptr<PrecomputedGradients>& held, const CrossEntropyOptions& options,
                  const Shape& x_shape) {
  const Tensor& x = b.saved(0);
  const int64_t rows = x.dim(0);
  const Tensor grad = b.grad(0).reshape({options.reduction == Reduction::none ? rows : 1});
  if (!held->there) {
    LinearCrossEntropy recomputed;
    recomputed.x = x;
    recomputed.weight = b.saved(1);
    recomputed.targets = b.saved(2);
    recomputed.bias = b.saved(3);
    recomputed.options = options;
    recomputed.grad = grad;
    recomputed.losses = Tensor::empty({rows}, accumulation_type(x.dtype()), x.device());
    allocate_gradients(recomputed, b.needs(0), b.needs(1), b.needs(2));
    run(recomputed);
    *held = {recomputed.dx, recomputed.dweight, recomputed.dbias, true};
  } else {
    scale(held->dx, grad);
    scale(held->dweight, grad);
    scale(held->dbias, grad);
  }
  PrecomputedGradients mine;
  std::swap(mine, *held);
  if (b.needs(0)) {
    Tensor dx = std::exchange(mine.dx, Tensor()).reshape(x_shape);  // sole owner, so add() does not copy
    b.add(0, std::move(dx));
  }
  mine.dx = {};
  if (b.needs(1)) b.add(1, std::move(mine.dweight));
  if (b.needs(2)) b.add(2, std::move(mine.dbias));
}

}  // namespace

Tensor exchange_class_sums(const LinearCrossEntropy& args, const Tensor& values) {
  comm::Communicator& ranks = *args.shard.ranks;
  Tensor all = Tensor::empty({ranks.size() * values.numel()}, values.dtype(), values.device());
  const std::vector<int64_t> counts(static_cast<size_t>(ranks.size()), values.numel());
  ranks.all_gather(values, all, counts, {.label = "loss"});
  return all;
}

Tensor linear_cross_entropy(const Tensor& x, const Tensor& weight, const Tensor& targets,
                            const CrossEntropyOptions& options, const Tensor& bias, const ClassShard& shard) {
  check_arguments(x, weight, targets, bias);
  check_shard(weight, options, shard);
  check_cross_entropy_options(kName, options);
  const int64_t rows = targets.numel();
  const DType type = accumulation_type(x.dtype());
  LinearCrossEntropy args;
  args.x = x.detach().contiguous().reshape({rows, x.dim(-1)});
  args.weight = weight.detach().contiguous();
  if (bias.defined()) args.bias = as_accumulation(bias, x.dtype());
  args.targets = targets.contiguous().reshape({rows});
  args.options = options;
  args.shard = shard;
  args.losses = Tensor::empty({rows}, type, x.device());
  auto held = std::make_shared<PrecomputedGradients>();
  if (options.reduction != Reduction::none) {
    args.loss = Tensor::empty({}, type, x.device());
    allocate_gradients(args, is_tracked({x}), is_tracked({weight}), is_tracked({bias}));
  }
  run(args);
  if (args.loss.defined()) *held = {args.dx, args.dweight, args.dbias, true};
  Tensor loss = args.loss.defined() ? args.loss : args.losses.reshape(targets.shape());
  record(kName, {x, weight, bias}, {loss}, {args.x, args.weight, args.targets, args.bias},
         [held, options, shape = x.shape()](Backward& b) { run_backward(b, held, options, shape); });
  return loss;
}

}  // namespace lamina::ops
