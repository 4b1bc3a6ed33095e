#pragma once

#include <array>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "lamina/arch/cluster/layout.h"
#include "lamina/arch/fields.h"

namespace lamina::train {

struct Recipe;

using arch::PipelineSchedule;
using arch::Recompute;

/// Data type of gradients when they are sent between ranks.
enum class ReduceType { f32, bf16 };
constexpr std::array<std::string_view, 2> names_of(ReduceType) { return {"f32", "bf16"}; }

/// Order in which gradients are summed over ranks and micro-batches.
enum class SumOrder { fast, ordered };
constexpr std::array<std::string_view, 2> names_of(SumOrder) { return {"fast", "ordered"}; }

inline constexpr arch::Limits kParallelism{1, 1 << 20};  ///< Limits of a number of ranks.

/// How a run is divided among ranks.
struct LayoutChoice {
  int64_t dp = 1;
  int64_t tp = 1;
  int64_t pp = 1;
  int64_t cp = 1;
  int64_t ep = 1;
  int64_t zero = 0;
  bool sequence = false;
  PipelineSchedule schedule = PipelineSchedule::one_forward_one_backward;
  int64_t interleave = 1;
  int64_t micro_batch = 0;
  Recompute recompute = Recompute::none;
  ReduceType reduce = ReduceType::f32;
  SumOrder order = SumOrder::fast;
  static void visit_fields(auto& self, auto&& field) {
    field("dp", self.dp, "data parallel: ranks that share the batch's sequences", kParallelism);
    field("tp", self.tp,
          "tensor parallel: ranks that share the heads, feed-forward columns and vocabulary of the model",
          kParallelism);
    field("pp", self.pp, "pipeline parallel: stages of consecutive layers (arXiv:2104.04473)", kParallelism);
    field("cp", self.cp, "context parallel: ranks that share the positions of every sequence (arXiv:2310.01889)",
          kParallelism);
    field("ep", self.ep, "expert parallel: data-parallel ranks that share the experts (arXiv:2006.16668)",
          kParallelism);
    field("zero", self.zero,
          "what data- and context-parallel ranks divide instead of repeating: 1 optimizer state, 2 also gradients, "
          "3 also weights (arXiv:1910.02054)",
          arch::Limits{0, 3});
    field("sequence", self.sequence,
          "sequence parallel: tensor-parallel ranks also share the tokens between sublayers (arXiv:2205.05198)");
    field("schedule", self.schedule, "order of a pipeline's passes; interleaved needs interleave > 1");
    field("interleave", self.interleave, "chunks of layers per pipeline stage (arXiv:2104.04473)",
          arch::Limits{1, 1024});
    field(
        "micro_batch", self.micro_batch,
        "most sequences that a rank computes at once; default 0: its share of the batch, with order ordered an eighth "
        "of the batch",
        arch::kCount);
    field("recompute", self.recompute,
          "activations computed again in backward: none; selective: outputs of norms and of feed-forward activations; "
          "full: every layer, as checkpointing does");
    field("reduce", self.reduce,
          "type in which gradients travel between data- and context-parallel ranks; bf16 halves the bytes");
    field("order", self.order,
          "fast: the communicator's own order of sums; ordered: bit-identical for 1, 2, 4 and 8 ranks");
  }
  bool operator==(const LayoutChoice&) const = default;

  /// Number of chunks of layers per pipeline stage.
  int64_t chunks() const { return schedule == PipelineSchedule::interleaved ? interleave : 1; }
  int64_t ranks() const { return dp * tp * pp * cp; }  ///< number of processes
  /// Whether updates go through ParallelUpdate instead of the single-device path.
  bool is_parallel() const { return ranks() > 1 || order == SumOrder::ordered || micro_batch > 0; }
  /// Whether data-parallel ranks need each other's tokens or weights within a pass. Then all must run equally many
  /// passes.
  bool passes_together() const { return ep > 1 || zero == 3; }
};

/// Rows [begin, end) of a batch.
struct RowRange {
  int64_t begin = 0;
  int64_t end = 0;
};

/// Number of micro-batches of an `ordered` run: a power of two, so that the summation tree is the same for 1, 2, 4, …
/// ranks.
int64_t ordered_micro_batches(const LayoutChoice& layout, int64_t batch);
/// The micro-batches of a batch that a data-parallel rank computes, in order. Their sizes differ by at most one row: in
/// the whole batch if the run is `ordered`, otherwise within the rank's share. With passes_together() all ranks have
/// equally many.
std::vector<RowRange> micro_batches(const LayoutChoice& layout, int64_t batch, int rank);

/// Whether a batch is a single row of packed documents with batch · length tokens.
bool is_packed(const Recipe& recipe);
/// Number of rows in a batch of the recipe's data.
int64_t rows_per_batch(const Recipe& recipe);

/// Fills in derived values: micro_batch of an `ordered` run, and recompute, to and from Recipe::checkpointing.
void resolve_layout(Recipe& recipe);
/// Called for every rule that the layout breaks.
using NoteProblem =
    std::function<void(const char* rule, const std::string& path, const std::string& message, const std::string& hint)>;
void check_layout(const Recipe& recipe, const NoteProblem& note);  ///< see NoteProblem

}  // namespace lamina::train
