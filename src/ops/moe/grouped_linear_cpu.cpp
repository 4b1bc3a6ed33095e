// A task is a block of rows of one expert (of output features for the weight gradient), computed as one GEMM by one
// thread. So experts of any size keep all threads busy, and the blocks depend only on the offsets.
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

/// Splits the slices of all experts into blocks of at most kRows rows.
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

template <class A>
void clear_outside(const int64_t* offsets, int64_t experts, int64_t slots, int64_t width, A* y) {
  std::fill(y, y + offsets[0] * width, A{0});
  std::fill(y + offsets[experts] * width, y + slots * width, A{0});
}

template <class A>
void forward(const GroupedLinearForward& args) {
  const int64_t experts = args.weight.dim(0);
  const int64_t out = args.weight.dim(1);
  const int64_t in = args.weight.dim(2);
  const int64_t* offsets = args.offsets.data<int64_t>();
  const A* x = args.x.data<A>();
  const A* weight = args.weight.data<A>();
  const A* bias = args.bias.defined() ? args.bias.data<A>() : nullptr;
  A* y = args.y.data<A>();
  if (args.y.numel() == 0) return;
  clear_outside(offsets, experts, args.x.dim(0), out, y);
  const std::vector<Block> blocks = row_blocks(offsets, experts);
  const Threads& threads = args.x.device().threads();
  threads.tasks(static_cast<int64_t>(blocks.size()), [&](int64_t task) {
    const Block& block = blocks[static_cast<size_t>(task)];
    A* rows = y + block.begin * out;
    const bool start = bias != nullptr || in == 0;
    for (int64_t r = 0; start && r < block.end - block.begin; ++r) {
      if (bias != nullptr) {
        std::copy_n(bias + block.expert * out, out, rows + r * out);
      } else {
        std::fill_n(rows + r * out, out, A{0});
      }
    }
    if (in == 0) return;
    gemm(threads, Gemm<A>{.transpose_b = true,
                          .m = block.end - block.begin,
                          .n = out,
                          .k = in,
                          .a = x + block.begin * in,
                          .lda = in,
                          .b = weight + block.expert * out * in,
                          .ldb = in,
                          .beta = start ? A{1} : A{0},
                          .c = rows,
                          .ldc = out});
  });
}

template <class A>
void input_gradient(const GroupedLinearBackward& args) {
  const int64_t experts = args.weight.dim(0);
  const int64_t out = args.weight.dim(1);
  const int64_t in = args.weight.dim(2);
  const int64_t* offsets = args.offsets.data<int64_t>();
  const A* weight = args.weight.data<A>();
  const A* dy = args.dy.data<A>();
  A* dx = args.dx.data<A>();
  if (args.dx.numel() == 0) return;
  if (out == 0) {
    std::fill_n(dx, args.dx.numel(), A{0});
    return;
  }
  clear_outside(offsets, experts, args.x.dim(0), in, dx);
  const std::vector<Block> blocks = row_blocks(offsets, experts);
  const Threads& threads = args.x.device().threads();
  threads.tasks(static_cast<int64_t>(blocks.size()), [&](int64_t task) {
    const Block& block = blocks[static_cast<size_t>(task)];
    gemm(threads, Gemm<A>{.m = block.end - block.begin,
                          .n = in,
                          .k = out,
                          .a = dy + block.begin * out,
                          .lda = out,
                          .b = weight + block.expert * out * in,
                          .ldb = in,
                          .c = dx + block.begin * in,
                          .ldc = in});
  });
}

template <class A>
void weight_gradient(const GroupedLinearBackward& args) {
  const int64_t out = args.weight.dim(1);
  const int64_t in = args.weight.dim(2);
  const int64_t* offsets = args.offsets.data<int64_t>();
  const A* x = args.x.data<A>();
  const A* dy = args.dy.data<A>();
  A* dweight = args.dweight.data<A>();
  if (args.dweight.numel() == 0) return;
  const std::vector<Block> blocks = feature_blocks(args.weight.dim(0), out);
  const Threads& threads = args.x.device().threads();
  threads.tasks(static_cast<int64_t>(blocks.size()), [&](int64_t task) {
    const Block& block = blocks[static_cast<size_t>(task)];
    const int64_t first = offsets[block.expert];
    const int64_t rows = offsets[block.expert + 1] - first;
    A* target = dweight + (block.expert * out + block.begin) * in;
    if (rows == 0) {
      if (!args.accumulate) std::fill_n(target, (block.end - block.begin) * in, A{0});
      return;
    }
    gemm(threads, Gemm<A>{.transpose_a = true,
                          .m = block.end - block.begin,
                          .n = in,
                          .k = rows,
                          .a = dy + first * out + block.begin,
                          .lda = out,
                          .b = x + first * in,
                          .ldb = in,
                          .beta = args.accumulate ? A{1} : A{0},
                          .c = target,
                          .ldc = in});
  });
}

template <class A>
void bias_gradient(const GroupedLinearBackward& args) {
  const int64_t out = args.weight.dim(1);
  const int64_t* offsets = args.offsets.data<int64_t>();
  const A* dy = args.dy.data<A>();
  A* dbias = args.dbias.data<A>();
  const std::vector<Block> blocks = feature_blocks(args.weight.dim(0), out);
  args.x.device().threads().tasks(static_cast<int64_t>(blocks.size()), [&](int64_t task) {
    const Block& block = blocks[static_cast<size_t>(task)];
    A* target = dbias + block.expert * out;
    std::fill(target + block.begin, target + block.end, A{0});
    for (int64_t r = offsets[block.expert]; r < offsets[block.expert + 1]; ++r) {
      for (int64_t i = block.begin; i < block.end; ++i) target[i] += dy[r * out + i];
    }
  });
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
  args.x.dtype() == DType::f64 ? forward<double>(args) : forward<float>(args);
}

void cpu::grouped_linear_backward(const GroupedLinearBackward& args) {
  const auto run = [&](auto tag) {
    using A = typename decltype(tag)::type;
    if (args.dx.defined()) input_gradient<A>(args);
    if (args.dweight.defined()) weight_gradient<A>(args);
    if (args.dbias.defined()) bias_gradient<A>(args);
  };
  args.x.dtype() == DType::f64 ? run(TypeTag<double>{}) : run(TypeTag<float>{});
}

}  // namespace lamina::ops
