#include "lamina/train/layout.h"

#include <algorithm>
#include <bit>

#include "lamina/train/recipe.h"

namespace lamina::train {
namespace {

constexpr int64_t kOrderedParts = 8;  // default number of micro-batches: as many ranks can share an ordered run

int64_t parts_of(int64_t rows, int64_t most) { return (rows + most - 1) / most; }

bool is_power_of_two(int64_t n) { return std::has_single_bit(static_cast<uint64_t>(n)); }

/// Refuses choices that the planner knows and training does not support.
void refuse_missing(const LayoutChoice& layout, const NoteProblem& note) {
  constexpr const char* kHint = "leave it out; dp and zero (1 or 2) divide the work";
  const auto refuse = [&](bool asked, const char* key, const std::string& value) {
    if (asked) note("layout", str("layout.", key), value + " is not supported by training recipes", kHint);
  };
  const std::pair<const char*, int64_t> sizes[] = {
      {"tp", layout.tp}, {"pp", layout.pp}, {"cp", layout.cp}, {"ep", layout.ep}};
  for (const auto& [key, size] : sizes) refuse(size > 1, key, str(size));
  refuse(layout.zero == 3, "zero", "3");
  refuse(layout.sequence, "sequence", "true");
  refuse(layout.schedule == PipelineSchedule::interleaved, "schedule", "interleaved");
  refuse(layout.recompute == Recompute::selective, "recompute", "selective");
  refuse(layout.reduce == ReduceType::bf16, "reduce", "bf16");
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
  const int64_t parts = layout.micro_batch > 0 ? parts_of(rows, layout.micro_batch) : 1;
  for (int64_t i = 0; i < parts; ++i) result.push_back({begin + i * rows / parts, begin + (i + 1) * rows / parts});
  return result;
}

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
  refuse_missing(layout, note);
  if (recipe.batch < 1 || layout.dp < 1 || layout.micro_batch < 0) return;  // reported as out of range
  if (layout.dp > recipe.batch) {
    note("layout", "layout.dp", str(layout.dp, " ranks share a batch of ", recipe.batch, " sequences"),
         "give fewer ranks or a larger batch");
    return;
  }
  if (recipe.data.order == data::Order::packed && !recipe.data.task && layout.is_parallel()) {
    note("layout", "layout.dp", "a packed batch is one row of documents, which ranks and micro-batches cannot share",
         "use data.order=shuffled, or one rank with order fast and no micro_batch");
  }
  check_ordered(layout, recipe.batch, note);
}

}  // namespace lamina::train
