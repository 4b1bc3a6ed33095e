// A task is a block of rows of one expert (for the weight gradient, a block of output features). One thread computes it
// as one GEMM. So experts of any size keep all threads busy, and the blocks depend only on the offsets.
#include <algorithm>
#include <vector>

#include "lamina/ops/linear/gemm.h"
#include "lamina/ops/moe/grouped_linear_kernel.h"

namespace lamina::ops {
namespace {

constexpr int64_t kRows = 256;

struct Block {
  int64_t expert, begin, end;
};

/// Splits the rows of all experts into blocks of at most kRows rows.
std::vector<Block> row_blocks(const int64_t* offsets, int64_t experts) {
  std::vector<Block> blocks;
  for (int64_t e = 0; e < experts; ++e) {
    for (int64_t at = offsets[e]; at < offsets[e + 1]; at += kRows) {
      blocks.push_back({e, at, std::min(at + kRows, offsets[e + 1])});
    }
  }
  return blocks;
}

std::vector<Block> feature_blocks(int64_t experts, int64_t out) {
  std::vector<Block> blocks;
  for (int64_t e = 0; e < experts; ++e) {
    for (int64_t at = 0; at < out; at += kRows) blocks.push_back({e, at, std::min(at + kRows, out)});
  }
  return blocks;
}

template <class T>
void clear_outside(const int64_t* offsets, int64_t experts, int64_t slots, int64_t width, T* y) {
  std::fill(y, y + offsets[0] * width, T{});
  std::fill(y + offsets[experts] * width, y + slots * width, T{});
}

/// A product of matrices of type T, accumulated in A.
template <class T, class A = Accumulate<T>>
FusedGemm<A> product(const Device& device, int64_t m, int64_t n, int64_t k, const T* a, int64_t lda, const T* b,
                     int64_t ldb) {
  FusedGemm<A> p;
  p.m = m, p.n = n, p.k = k;
  p.a = {a, dtype_of<T>(), lda, false};
  p.b = {b, dtype_of<T>(), ldb, false};
  p.kernel = product_kernel(device, dtype_of<T>());
  return p;
}

template <class T, class A = Accumulate<T>>
void forward(const GroupedLinearForward& args) {
  const int64_t experts = args.weight.dim(0);
  const int64_t out = args.weight.dim(1);
  const int64_t in = args.weight.dim(2);
  const int64_t* offsets = args.offsets.data<int64_t>();
  const T* x = args.x.data<T>();
  const T* weight = args.weight.data<T>();
  const A* bias = args.bias.defined() ? args.bias.data<A>() : nullptr;
  T* y = args.y.data<T>();
  if (args.y.numel() == 0) return;
  clear_outside(offsets, experts, args.x.dim(0), out, y);
  const std::vector<Block> blocks = row_blocks(offsets, experts);
  const Threads& threads = args.x.device().threads();
  threads.tasks(static_cast<int64_t>(blocks.size()), [&](int64_t task) {
    const Block& block = blocks[static_cast<size_t>(task)];
    T* rows = y + block.begin * out;
    FusedGemm<A> p = product(args.x.device(), block.end - block.begin, out, in, x + block.begin * in, in,
                             weight + block.expert * out * in, in);
    p.b.transpose = true;
    if (bias == nullptr) {
      gemm_to(threads, p, rows, dtype_of<T>(), out);
      return;
    }
    const A* added = bias + block.expert * out;
    if constexpr (std::is_same_v<T, A>) {  // start from the bias
      for (int64_t r = 0; r < p.m; ++r) std::copy_n(added, out, rows + r * out);
      p.beta = A{1};
      gemm_to(threads, p, rows, dtype_of<T>(), out);
    } else {
      const auto finish = [&](A* sums, int64_t ld, const GemmBlock& at) {
        for (int64_t r = 0; r < at.rows; ++r) {
          T* to = rows + (at.row + r) * out + at.column;
          for (int64_t c = 0; c < at.columns; ++c) to[c] = convert<T>(sums[r * ld + c] + added[at.column + c]);
        }
      };
      p.finish = finish;
      gemm(threads, p);
    }
  });
}

template <class T>
void input_gradient(const GroupedLinearBackward& args) {
  const int64_t experts = args.weight.dim(0);
  const int64_t out = args.weight.dim(1);
  const int64_t in = args.weight.dim(2);
  const int64_t* offsets = args.offsets.data<int64_t>();
  const T* weight = args.weight.data<T>();
  const T* dy = args.dy.data<T>();
  T* dx = args.dx.data<T>();
  if (args.dx.numel() == 0) return;
  clear_outside(offsets, experts, args.x.dim(0), in, dx);
  const std::vector<Block> blocks = row_blocks(offsets, experts);
  const Threads& threads = args.x.device().threads();
  threads.tasks(static_cast<int64_t>(blocks.size()), [&](int64_t task) {
    const Block& block = blocks[static_cast<size_t>(task)];
    const auto p = product(args.x.device(), block.end - block.begin, in, out, dy + block.begin * out, out,
                           weight + block.expert * out * in, in);
    gemm_to(threads, p, dx + block.begin * in, dtype_of<T>(), in);
  });
}

template <class T, class A = Accumulate<T>>
void weight_gradient(const GroupedLinearBackward& args) {
  const int64_t out = args.weight.dim(1);
  const int64_t in = args.weight.dim(2);
  const int64_t* offsets = args.offsets.data<int64_t>();
  const T* x = args.x.data<T>();
  const T* dy = args.dy.data<T>();
  A* dweight = args.dweight.data<A>();
  if (args.dweight.numel() == 0) return;
  const std::vector<Block> blocks = feature_blocks(args.weight.dim(0), out);
  const Threads& threads = args.x.device().threads();
  threads.tasks(static_cast<int64_t>(blocks.size()), [&](int64_t task) {
    const Block& block = blocks[static_cast<size_t>(task)];
    const int64_t first = offsets[block.expert];
    const int64_t rows = offsets[block.expert + 1] - first;
    A* target = dweight + (block.expert * out + block.begin) * in;
    FusedGemm<A> p = product(args.x.device(), block.end - block.begin, in, rows, dy + first * out + block.begin, out,
                             x + first * in, in);
    p.a.transpose = true;
    p.beta = args.accumulate ? A{1} : A{0};
    gemm_to(threads, p, target, dtype_of<A>(), in);
  });
}

template <class T, class A = Accumulate<T>>
void bias_gradient(const GroupedLinearBackward& args) {
  const int64_t out = args.weight.dim(1);
  const int64_t* offsets = args.offsets.data<int64_t>();
  const T* dy = args.dy.data<T>();
  A* dbias = args.dbias.data<A>();
  const std::vector<Block> blocks = feature_blocks(args.weight.dim(0), out);
  args.x.device().threads().tasks(static_cast<int64_t>(blocks.size()), [&](int64_t task) {
    const Block& block = blocks[static_cast<size_t>(task)];
    A* target = dbias + block.expert * out;
    std::fill(target + block.begin, target + block.end, A{0});
    for (int64_t r = offsets[block.expert]; r < offsets[block.expert + 1]; ++r) {
      for (int64_t i = block.begin; i < block.end; ++i) target[i] += convert<A>(dy[r * out + i]);
    }
  });
}

/// Calls body(TypeTag<T>) with x's element type: f32, f64 or bf16.
template <class F>
void with_type(const Tensor& x, const F& body) {
  switch (x.dtype()) {
    case DType::f64: return body(TypeTag<double>{});
    case DType::bf16: return body(TypeTag<bf16>{});
    default: return body(TypeTag<float>{});
  }
}

}  // namespace

void cpu::check_offsets(const Tensor& offsets, int64_t slots) {
  const int64_t* at = offsets.data<int64_t>();
  int64_t before = 0;
  for (int64_t i = 0; i < offsets.numel(); ++i) {
    LAMINA_CHECK(at[i] >= before && at[i] <= slots, "grouped_linear: offsets[", i, "] is ", at[i], " after ", before,
                 "; expected ascending numbers from 0 to at most the ", slots, " rows of x");
    before = at[i];
  }
}

void cpu::grouped_linear_forward(const GroupedLinearForward& args) {
  with_type(args.x, [&](auto tag) { forward<typename decltype(tag)::type>(args); });
}

void cpu::grouped_linear_backward(const GroupedLinearBackward& args) {
  with_type(args.x, [&](auto tag) {
    using T = typename decltype(tag)::type;
    if (args.dx.defined()) input_gradient<T>(args);
    if (args.dweight.defined()) weight_gradient<T>(args);
    if (args.dbias.defined()) bias_gradient<T>(args);
  });
}

}  // namespace lamina::ops
