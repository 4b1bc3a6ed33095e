#include "lamina/train/layout.h"

#include <algorithm>
#include <bit>

#include "lamina/train/recipe.h"

namespace lamina::train {
namespace {

// Default number of micro-batches; also the maximum number of ranks of an ordered run.
constexpr int64_t kOrderedParts = 8;

int64_t parts_of(int64_t rows, int64_t most) { return (rows + most - 1) / most; }

bool is_power_of_two(int64_t n) { return std::has_single_bit(static_cast<uint64_t>(n)); }

void check_recompute(const Recipe& recipe, const NoteProblem& note) {
  if (recipe.layout.recompute == Recompute::selective && recipe.checkpointing) {
    note("layout", "layout.recompute", "selective with checkpointing, which computes whole layers again",
         "leave one of them out");
  }
}

void check_reduce(const LayoutChoice& layout, const NoteProblem& note) {
  if (layout.reduce == ReduceType::bf16 && layout.order == SumOrder::ordered) {
    note("layout", "layout.reduce", "bf16 with order ordered: a rank's sum is rounded, so bits depend on the ranks",
         "use reduce f32, or order fast");
  }
}

/// Reports every choice that an interleaved pipeline does not support.
void check_interleaved(const LayoutChoice& layout, const NoteProblem& note) {
  const bool interleaved = layout.schedule == PipelineSchedule::interleaved;
  if (interleaved != (layout.interleave > 1)) {
    note("layout", "layout.interleave",
         str(layout.interleave, " chunks per stage with schedule ", interleaved ? "interleaved" : "1f1b"),
         "give schedule interleaved and interleave 2 or more, or neither");
  }
  if (!interleaved) return;
  if (layout.pp == 1) note("layout", "layout.schedule", "interleaved, but pp is 1", "give pp, or leave schedule out");
}

/// Reports every choice that tensor parallelism does not support.
void check_tensor_parallel(const Recipe& recipe, const NoteProblem& note) {
  const LayoutChoice& layout = recipe.layout;
  if (layout.tp == 1 && layout.sequence) {
    note("layout", "layout.sequence", "true, but tp is 1", "give tp, or leave sequence out");
  }
  if (layout.tp > 1 && recipe.dropout.attention > 0) {
    note("layout", "dropout.attention",
         str(recipe.dropout.attention, " with tensor-parallel ranks, which is not supported"),
         "use dropout.residual and dropout.embedding, or tp 1");
  }
}

/// Reports every choice that context parallelism does not support.
void check_context_parallel(const Recipe& recipe, const NoteProblem& note) {
  const LayoutChoice& layout = recipe.layout;
  if (layout.cp <= 1) return;
  if (recipe.dropout.attention > 0) {
    note("layout", "dropout.attention",
         str(recipe.dropout.attention, " with context-parallel ranks, which is not supported"),
         "use dropout.residual and dropout.embedding, or cp 1");
  }
  if (recipe.length < 2 * layout.cp) {
    note("layout", "layout.cp", str(layout.cp, " ranks share sequences of ", recipe.length, " positions"),
         "each rank computes two chunks of a sequence: give at most length / 2 ranks");
  }
}

/// Number of micro-batches of the data-parallel rank with the most rows.
int64_t most_micro_batches(const LayoutChoice& layout, int64_t batch) {
  return layout.micro_batch > 0 ? parts_of(parts_of(batch, layout.dp), layout.micro_batch) : 1;
}

/// Ranks that exchange tokens or gather weights within passes must run equally many passes.
void check_passes_together(const Recipe& recipe, const NoteProblem& note) {
  const LayoutChoice& layout = recipe.layout;
  if (!layout.passes_together() || layout.order == SumOrder::ordered) return;
  if (most_micro_batches(layout, recipe.batch) > recipe.batch / layout.dp) {
    note("layout", "layout.micro_batch",
         str(layout.micro_batch, " sequences make ", most_micro_batches(layout, recipe.batch),
             " micro-batches, but some of the ", layout.dp, " ranks have ", recipe.batch / layout.dp, " sequences"),
         "give a batch that is a multiple of dp, or a larger micro_batch");
  }
}

/// Reports every choice that expert parallelism does not support.
void check_expert_parallel(const Recipe& recipe, const NoteProblem& note) {
  const LayoutChoice& layout = recipe.layout;
  if (layout.ep <= 1) return;
  if (layout.dp % layout.ep != 0) {
    note("layout", "layout.ep", str(layout.ep, " does not divide dp = ", layout.dp),
         "give dp as a multiple of ep: data-parallel ranks share the experts");
  }
  if (layout.order == SumOrder::ordered) {
    note("layout", "layout.order",
         str("ordered with ep ", layout.ep, ", where experts sum over the tokens of all ranks"),
         "use order fast, or ep 1");
  }
}

void check_ordered(const LayoutChoice& layout, int64_t batch, const NoteProblem& note) {
  if (layout.order != SumOrder::ordered) return;
  const int64_t parts = ordered_micro_batches(layout, batch);
  if (!is_power_of_two(layout.dp)) {
    note("layout", "layout.dp", str(layout.dp, " ranks with order ordered, which sums in a binary tree"),
         "give a power of two, or order fast");
  } else if (parts < layout.dp || parts > batch) {
    note("layout", "layout.micro_batch",
         str(layout.micro_batch, " sequences make ", parts, " micro-batches of a batch of ", batch, " for ", layout.dp,
             " ranks; order ordered needs a power of two from dp to batch"),
         "give another micro_batch, fewer ranks or a larger batch");
  }
}

}  // namespace

int64_t ordered_micro_batches(const LayoutChoice& layout, int64_t batch) {
  const auto parts = parts_of(batch, std::max<int64_t>(layout.micro_batch, 1));
  return static_cast<int64_t>(std::bit_ceil(static_cast<uint64_t>(std::max<int64_t>(parts, 1))));
}

std::vector<RowRange> micro_batches(const LayoutChoice& layout, int64_t batch, int rank) {
  std::vector<RowRange> result;
  if (layout.order == SumOrder::ordered) {
    const int64_t parts = ordered_micro_batches(layout, batch);
    const int64_t own = parts / layout.dp;
    for (int64_t i = rank * own; i < (rank + 1) * own; ++i) {
      result.push_back({i * batch / parts, (i + 1) * batch / parts});
    }
    return result;
  }
  const int64_t begin = rank * batch / layout.dp;
  const int64_t rows = (rank + 1) * batch / layout.dp - begin;
  int64_t parts = layout.micro_batch > 0 ? parts_of(rows, layout.micro_batch) : 1;
  if (layout.passes_together()) parts = most_micro_batches(layout, batch);
  for (int64_t i = 0; i < parts; ++i) result.push_back({begin + i * rows / parts, begin + (i + 1) * rows / parts});
  return result;
}

bool is_packed(const Recipe& recipe) { return recipe.data.order == data::Order::packed && !recipe.data.task; }

int64_t rows_per_batch(const Recipe& recipe) { return is_packed(recipe) ? 1 : recipe.batch; }

void resolve_layout(Recipe& recipe) {
  LayoutChoice& layout = recipe.layout;
  if (layout.recompute == Recompute::full) recipe.checkpointing = true;
  if (layout.order == SumOrder::ordered && layout.micro_batch == 0 && recipe.batch > 0) {
    const auto largest = static_cast<int64_t>(std::bit_floor(static_cast<uint64_t>(recipe.batch)));
    layout.micro_batch = parts_of(recipe.batch, std::min(kOrderedParts, largest));
  }
}

void check_layout(const Recipe& recipe, const NoteProblem& note) {
  const LayoutChoice& layout = recipe.layout;
  check_recompute(recipe, note);
  check_reduce(layout, note);
  check_tensor_parallel(recipe, note);
  check_context_parallel(recipe, note);
  check_interleaved(layout, note);
  if (recipe.batch < 1 || layout.dp < 1 || layout.micro_batch < 0) return;  // already reported as out of range
  if (layout.dp > recipe.batch) {
    note("layout", "layout.dp", str(layout.dp, " ranks share a batch of ", recipe.batch, " sequences"),
         "give fewer ranks or a larger batch");
    return;
  }
  const bool divides_rows = layout.dp > 1 || layout.order == SumOrder::ordered || layout.micro_batch > 0;
  if (is_packed(recipe) && divides_rows) {
    note("layout", "layout.dp",
         "a packed batch is one row of documents, which data-parallel ranks and micro-batches cannot share",
         "use data.order=shuffled, or dp 1 with order fast and no micro_batch; cp, tp and pp divide a packed batch");
  }
  check_ordered(layout, recipe.batch, note);
  check_expert_parallel(recipe, note);
  check_passes_together(recipe, note);
}

}  // namespace lamina::train
