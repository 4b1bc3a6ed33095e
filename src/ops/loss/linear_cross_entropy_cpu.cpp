// Processes a chunk of rows at a time: computes its logits, turns them into gradients in place, and multiplies these
// with weight and x.
//
// The logits of a chunk are stored transposed, as [V, rows]. Then weight is the left operand of the GEMM of the logits
// and is read once, in order. The gradient is the left operand of dweight's GEMM. So no vocabulary-sized operand is
// transposed. A SIMD vector holds one class of several positions.
//
// Threads take blocks of classes. The maxima and sums of a block are computed in the GEMM's epilogue, while its logits
// are in that core's cache: reading them from another core's cache would be as slow as a single thread. They are then
// combined in block order.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "lamina/ops/loss/linear_cross_entropy_cpu.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include <vector>

#include "lamina/comm/communicator.h"
#include "lamina/ops/linear/gemm.h"
#include "lamina/ops/loss/cross_entropy_checks.h"
#include "lamina/ops/loss/cross_entropy_kernel.h"
#include "lamina/ops/loss/cross_entropy_row-inl.h"

HWY_BEFORE_NAMESPACE();
namespace lamina::ops::HWY_NAMESPACE {

inline constexpr int64_t kBlockClasses = kGemmBlockRows;

/// State of one chunk: rows [first, first + count), from logits to gradients. Per-position vectors have `count`
/// elements.
template <class A>
struct LossChunk {
  const LinearCrossEntropy* args;
  int64_t first, count;
  int64_t classes, blocks;
  A* chunk;                         // [classes, count]
  std::vector<A> most, sum, total;  // [blocks, count]: per block of classes, maximum, Σ exp, Σ u
  std::vector<A> lse;
  std::vector<A> label_sum;  // Σ u over all classes
  std::vector<A> at_target;  // u of the target
  std::vector<A> scale;      // factor on the position's gradient
  std::vector<A> counted;    // 0 if the target is ignored

  LossChunk(const LinearCrossEntropy& a, int64_t first_row, int64_t rows)
      : args(&a),
        first(first_row),
        count(rows),
        classes(a.weight.dim(0)),
        blocks((classes + kBlockClasses - 1) / kBlockClasses),
        chunk(a.chunk.data<A>()),
        most(static_cast<size_t>(blocks * rows)),
        sum(most.size()),
        total(most.size()),
        lse(static_cast<size_t>(rows)),
        label_sum(lse.size()),
        at_target(lse.size()),
        scale(lse.size()),
        counted(lse.size()) {}

  A* logits(int64_t label) const { return chunk + label * count; }
  int64_t target(int64_t i) const { return args->targets.data<int64_t>()[first + i]; }
  /// Number of classes of all ranks together.
  int64_t all_classes() const { return args->shard.ranks == nullptr ? classes : args->shard.classes; }
  /// Row i's target among the classes of this rank; -1 if another rank holds it or the row is ignored.
  int64_t own_target(int64_t i) const {
    const int64_t label = target(i) - args->shard.first;
    return counted[static_cast<size_t>(i)] != A{0} && label >= 0 && label < classes ? label : -1;
  }
  const void* x() const {
    const int64_t offset = first * args->x.dim(1) * static_cast<int64_t>(size_of(args->x.dtype()));
    return args->x.numel() == 0 ? nullptr : static_cast<const char*>(args->x.raw()) + offset;
  }
  /// Calls body(begin, end) for each block of classes, in parallel.
  template <class F>
  void each_block(const F& body) const {
    args->x.device().threads().ranges(classes, kBlockClasses, body);
  }
  /// Calls body(label, begin, end) for each class and range of positions, in parallel. If there are few classes, only
  /// positions are divided.
  template <class F>
  void each_part(const F& body) const {
    constexpr int64_t kPositions = 256;
    const int64_t ranges = (count + kPositions - 1) / kPositions;
    args->x.device().threads().tasks(blocks * ranges, [&](int64_t task) {
      const int64_t begin = task % ranges * kPositions;
      const int64_t last = std::min(classes, (task / ranges + 1) * kBlockClasses);
      for (int64_t label = task / ranges * kBlockClasses; label < last; ++label) {
        body(label, begin, std::min(count, begin + kPositions));
      }
    });
  }
};

/// u = soft_cap(scale · (logit + bias)) of `count` positions of one class, in place.
template <class A>
void transform_class(const LinearCrossEntropy& args, int64_t label, A* u, int64_t count) {
  if (args.bias.defined()) {
    const hn::ScalableTag<A> d;
    const auto bias = hn::Set(d, args.bias.data<A>()[label]);
    for_vectors(d, count, [&](int64_t i, size_t lanes) HWY_ATTR {
      store_n(d, hn::Add(load_n(d, u + i, lanes), bias), u + i, lanes);
    });
  }
  if (changes_logits(args.options)) transform_row(args.options, u, count, u);
}

/// Maximum, Σ exp(u − maximum) and Σ u over the classes (rows) of a block, for each position (column). Called as the
/// GEMM's epilogue.
template <class A>
void sum_block(LossChunk<A>& c, const GemmBlock& where) {
  const hn::ScalableTag<A> d;
  const auto lowest = hn::Set(d, -std::numeric_limits<A>::infinity());
  const int64_t end = where.row + where.rows;
  for (int64_t label = where.row; label < end; ++label) {
    transform_class(*c.args, label, c.logits(label) + where.column, where.columns);
  }
  const bool smooth = c.args->options.label_smoothing != 0.0;
  for_vectors(d, where.columns, [&](int64_t i, size_t lanes) HWY_ATTR {
    const A* u = c.logits(where.row) + where.column + i;
    auto most = lowest;
    for (int64_t row = 0; row < where.rows; ++row) most = hn::Max(most, load_n(d, u + row * c.count, lanes));
    const auto shift = hn::IfThenZeroElse(hn::Eq(most, lowest), most);
    auto sum = hn::Zero(d);
    auto total = hn::Zero(d);
    for (int64_t row = 0; row < where.rows; ++row) {
      const auto value = load_n(d, u + row * c.count, lanes);
      sum = hn::Add(sum, exp_flushed(d, hn::Sub(value, shift)));
      if (smooth) total = hn::Add(total, value);
    }
    const auto at = static_cast<size_t>(where.row / kBlockClasses * c.count + where.column + i);
    store_n(d, most, &c.most[at], lanes);
    store_n(d, sum, &c.sum[at], lanes);
    store_n(d, total, &c.total[at], lanes);
  });
}

/// logitsᵀ = weight · xᵀ; the epilogue also computes the sums of each block.
template <class A>
void multiply_logits(LossChunk<A>& c) {
  const LinearCrossEntropy& args = *c.args;
  const int64_t width = args.x.dim(1);
  const auto finish = [&](A* /*block*/, int64_t /*ld*/, const GemmBlock& where) { sum_block(c, where); };
  FusedGemm<A> p;
  p.m = c.classes, p.n = c.count, p.k = width;
  p.a = {args.weight.raw(), args.weight.dtype(), width, false};
  p.b = {c.x(), args.x.dtype(), width, true};
  p.kernel = product_kernel(args.x.device(), args.x.dtype());
  p.c = c.logits(0);
  p.ldc = c.count;
  p.finish = finish;
  gemm(args.x.device().threads(), p);
}

/// Combines the sums of all blocks for position i, in block order.
template <class A>
RowSums<A> join_blocks(const LossChunk<A>& c, int64_t i) {
  const auto at = [&](const std::vector<A>& values, int64_t block) {
    return values[static_cast<size_t>(block * c.count + i)];
  };
  A most = -std::numeric_limits<A>::infinity();
  for (int64_t block = 0; block < c.blocks; ++block) most = std::max(most, at(c.most, block));
  A sum = 0;
  A total = 0;
  for (int64_t block = 0; block < c.blocks; ++block) {
    if (at(c.sum, block) != A{0}) sum += at(c.sum, block) * std::exp(at(c.most, block) - most);
    total += at(c.total, block);
  }
  return {most + std::log(sum), total};
}

/// Computes lse, Σ u and u[target] over this rank's classes.
template <class A>
void find_own_sums(LossChunk<A>& c) {
  const LinearCrossEntropy& args = *c.args;
  args.x.device().threads().ranges(c.count, 16, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const auto at = static_cast<size_t>(i);
      const RowSums<A> sums = join_blocks(c, i);
      c.counted[at] = c.target(i) != args.options.ignore_index ? A{1} : A{0};
      c.lse[at] = sums.lse;
      c.label_sum[at] = sums.total;
      const int64_t label = c.own_target(i);
      c.at_target[at] = label >= 0 ? c.logits(label)[i] : A{0};
    }
  });
}

/// Combines the sums of all ranks in rank order, so that every rank gets bit-identical losses.
template <class A>
void join_ranks(LossChunk<A>& c) {
  const LinearCrossEntropy& args = *c.args;
  if (args.shard.ranks == nullptr) return;
  const auto rows = static_cast<size_t>(c.count);
  const Tensor own = Tensor::empty({3 * c.count}, dtype_of<A>(), args.x.device());
  A* values = own.data<A>();
  std::copy(c.lse.begin(), c.lse.end(), values);
  std::copy(c.label_sum.begin(), c.label_sum.end(), values + c.count);
  std::copy(c.at_target.begin(), c.at_target.end(), values + 2 * c.count);
  const Tensor all = exchange_class_sums(args, own);
  const A* of_ranks = all.data<A>();
  const auto ranks = static_cast<size_t>(args.shard.ranks->size());
  for (size_t i = 0; i < rows; ++i) {
    A most = -std::numeric_limits<A>::infinity();
    for (size_t r = 0; r < ranks; ++r) most = std::max(most, of_ranks[3 * r * rows + i]);
    A sum = 0;
    c.label_sum[i] = c.at_target[i] = A{0};
    for (size_t r = 0; r < ranks; ++r) {
      const A* of_rank = of_ranks + 3 * r * rows + i;
      sum += std::exp(of_rank[0] - most);
      c.label_sum[i] += of_rank[rows];
      c.at_target[i] += of_rank[2 * rows];  // 0 on all ranks but one
    }
    c.lse[i] = most + std::log(sum);
  }
}

template <class A>
void find_losses(LossChunk<A>& c, A share) {
  const LinearCrossEntropy& args = *c.args;
  const CrossEntropyOptions& options = args.options;
  find_own_sums(c);
  join_ranks(c);
  for (int64_t i = 0; i < c.count; ++i) {
    const auto at = static_cast<size_t>(i);
    c.scale[at] = share * arriving<A>(options, args.grad, c.first + i) * static_cast<A>(options.logit_scale);
    const RowSums<A> sums{c.lse[at], c.label_sum[at]};
    args.losses.data<A>()[c.first + i] =
        c.counted[at] != A{0} ? row_loss(options, c.at_target[at], c.all_classes(), sums) : A{0};
  }
}

/// Turns the logits of one class at positions [begin, end) into gradients, as if the class were nobody's target. The
/// targets are corrected afterwards.
template <class A>
void turn_class(const LossChunk<A>& c, A* u, int64_t begin, int64_t end) {
  const hn::ScalableTag<A> d;
  const CrossEntropyOptions& options = c.args->options;
  const bool capped = options.soft_cap != 0.0;
  const auto one = hn::Set(d, A{1});
  const auto narrow = hn::Set(d, capped ? A{1} / static_cast<A>(options.soft_cap) : A{0});
  const auto spread = hn::Set(d, static_cast<A>(options.label_smoothing) / static_cast<A>(c.all_classes()));
  const auto pull = hn::Set(d, A{2} * static_cast<A>(options.z_loss));
  for_vectors(d, end - begin, [&](int64_t offset, size_t lanes) HWY_ATTR {
    const int64_t i = begin + offset;
    const auto at = static_cast<size_t>(i);
    const auto value = load_n(d, u + i, lanes);
    const auto lse = load_n(d, &c.lse[at], lanes);
    const auto probability = exp_flushed(d, hn::Sub(value, lse));
    auto grad = hn::MulSub(probability, hn::MulAdd(pull, lse, one), spread);
    grad = hn::Mul(grad, load_n(d, &c.scale[at], lanes));
    if (capped) {
      const auto slope = hn::Mul(value, narrow);
      grad = hn::Mul(grad, hn::NegMulAdd(slope, slope, one));
    }
    const auto counted = hn::Ne(load_n(d, &c.counted[at], lanes), hn::Zero(d));
    store_n(d, hn::IfThenElseZero(counted, grad), u + i, lanes);
  });
}

template <class A>
void turn_logits(const LossChunk<A>& c) {
  c.each_part([&](int64_t label, int64_t begin, int64_t end) { turn_class(c, c.logits(label), begin, end); });
  const CrossEntropyOptions& options = c.args->options;
  const A smoothing = static_cast<A>(options.label_smoothing);
  const A even = smoothing / static_cast<A>(c.all_classes());
  const A inverse_cap = options.soft_cap != 0.0 ? A{1} / static_cast<A>(options.soft_cap) : A{0};
  for (int64_t i = 0; i < c.count; ++i) {
    const auto at = static_cast<size_t>(i);
    const int64_t label = c.own_target(i);
    if (label < 0) continue;
    const A factor = A{1} + A{2} * static_cast<A>(options.z_loss) * c.lse[at];
    const A slope = c.at_target[at] * inverse_cap;
    const A pull = std::exp(c.at_target[at] - c.lse[at]) * factor - even - (A{1} - smoothing);
    c.logits(label)[i] = pull * c.scale[at] * (A{1} - slope * slope);
  }
}

/// dbias += Σ_rows dlogits
template <class A>
void add_bias_gradient(const LossChunk<A>& c) {
  const hn::ScalableTag<A> d;
  const LinearCrossEntropy& args = *c.args;
  A* dbias = args.dbias.data<A>();
  c.each_block([&](int64_t begin, int64_t end) HWY_ATTR {
    for (int64_t label = begin; label < end; ++label) {
      const A* grad = c.logits(label);
      auto sum = hn::Zero(d);
      for_vectors(d, c.count,
                  [&](int64_t i, size_t lanes) HWY_ATTR { sum = hn::Add(sum, load_n(d, grad + i, lanes)); });
      dbias[label] = (c.first == 0 ? A{0} : dbias[label]) + hn::GetLane(hn::SumOfLanes(d, sum));
    }
  });
}

/// Writes dx of the chunk's rows; adds the chunk's contribution to dweight and dbias.
template <class A>
void multiply_gradients(const LossChunk<A>& c) {
  const LinearCrossEntropy& args = *c.args;
  const int64_t width = args.x.dim(1);
  const Threads& threads = args.x.device().threads();
  FusedGemm<A> p;
  p.n = width;
  p.a = {c.logits(0), dtype_of<A>(), c.count, false};
  p.kernel = product_kernel(args.x.device(), args.x.dtype());
  if (args.dweight.defined() && width > 0) {
    p.m = c.classes, p.k = c.count;
    p.b = {c.x(), args.x.dtype(), width, false};
    p.beta = c.first == 0 ? A{0} : A{1};
    gemm_to(threads, p, args.dweight.raw(), args.dweight.dtype(), width);
  }
  if (args.dx.defined() && width > 0) {
    const int64_t offset = c.first * width * static_cast<int64_t>(size_of(args.dx.dtype()));
    p.m = c.count, p.k = c.classes;
    p.a.transpose = true;
    p.b = {args.weight.raw(), args.weight.dtype(), width, false};
    p.beta = A{0};
    gemm_to(threads, p, static_cast<char*>(args.dx.raw()) + offset, args.dx.dtype(), width);
  }
  if (args.dbias.defined()) add_bias_gradient(c);
}

template <class A>
void run_chunks(const LinearCrossEntropy& args) {
  const int64_t rows = args.x.dim(0);
  const int64_t step = args.chunk.dim(1);
  const int64_t classes = args.shard.ranks == nullptr ? args.weight.dim(0) : args.shard.classes;
  const int64_t count =
      count_targets("linear_cross_entropy", args.targets.data<int64_t>(), rows, classes, args.options.ignore_index);
  const A share = share_of<A>(args.options, count);
  const bool gradients = args.dx.defined() || args.dweight.defined() || args.dbias.defined();
  for (int64_t first = 0; first < rows; first += step) {
    LossChunk<A> chunk(args, first, std::min(step, rows - first));
    multiply_logits(chunk);
    find_losses(chunk, share);
    if (!gradients) continue;
    turn_logits(chunk);
    multiply_gradients(chunk);
  }
  add_losses<A>(args.options, args.losses, count, args.loss);
  if (rows > 0) return;
  for (const Tensor& grad : {args.dweight, args.dbias}) {
    if (grad.defined()) std::fill_n(grad.data<A>(), grad.numel(), A{0});
  }
}

void linear_cross_entropy(const LinearCrossEntropy& args) {
  args.x.dtype() == DType::f64 ? run_chunks<double>(args) : run_chunks<float>(args);
}

}  // namespace lamina::ops::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace lamina::ops {
HWY_EXPORT(linear_cross_entropy);

namespace cpu {
void linear_cross_entropy(const LinearCrossEntropy& args) { HWY_DYNAMIC_DISPATCH(linear_cross_entropy)(args); }
}  // namespace cpu
}  // namespace lamina::ops
#endif
