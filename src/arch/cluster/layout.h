#pragma once

#include <string>
#include <vector>

#include "lamina/arch/fields.h"
#include "lamina/arch/schema.h"

namespace lamina::arch {

/// Which activations backward recomputes instead of storing them.
enum class Recompute : uint8_t { none, selective, full };
constexpr auto names_of(Recompute) { return std::array<std::string_view, 3>{"none", "selective", "full"}; }

/// Order of forward and backward passes in a pipeline.
enum class PipelineSchedule : uint8_t { one_forward_one_backward, interleaved };
constexpr auto names_of(PipelineSchedule) { return std::array<std::string_view, 2>{"1f1b", "interleaved"}; }

/// How a model and its batch are divided among devices: dp · tp · pp · cp of them.
struct Layout {
  int64_t dp = 1;
  int64_t tp = 1;
  int64_t pp = 1;
  int64_t cp = 1;
  int64_t ep = 1;
  int64_t zero = 0;
  bool sequence = false;
  PipelineSchedule schedule = PipelineSchedule::one_forward_one_backward;
  int64_t interleave = 1;
  int64_t micro_batch = 1;
  Recompute recompute = Recompute::none;
  static void visit_fields(auto& self, auto&& field) {
    field("dp", self.dp, "data parallel: replicas of the model, each with its own part of the batch");
    field("tp", self.tp, "tensor parallel: devices that share every matrix (arXiv:1909.08053)");
    field("pp", self.pp, "pipeline parallel: stages of consecutive layers (arXiv:2104.04473)");
    field("cp", self.cp, "context parallel: devices that share every sequence (arXiv:2310.01889)");
    field("ep", self.ep, "expert parallel: devices of the dp and cp groups that share the experts (arXiv:2006.16668)");
    field("zero", self.zero,
          "what the dp and cp groups share instead of copying (arXiv:1910.02054): 0 nothing, 1 optimizer state, "
          "2 gradients too, 3 weights too",
          Limits{0, 3});
    field("sequence", self.sequence, "norms and residual stream are divided among the tp group (arXiv:2205.05198)");
    field("schedule", self.schedule, "order of passes in the pipeline; interleaved needs interleave > 1");
    field("interleave", self.interleave, "chunks of layers per stage (arXiv:2104.04473)", Limits{1, 1024});
    field("micro_batch", self.micro_batch, "sequences per forward pass of a replica");
    field(
        "recompute", self.recompute,
        "activations computed again in backward: none; selective: attention scores if they are stored, else outputs of "
        "norms and of feed-forward activations; full: every layer");
  }
  bool operator==(const Layout&) const = default;

  int64_t devices() const { return dp * tp * pp * cp; }  ///< Number of devices of the layout.
};

/// Type of weights and activations in a plan for a cluster.
enum class SetupDtype : uint8_t { bf16, f16, f32 };
constexpr auto names_of(SetupDtype) { return std::array<std::string_view, 3>{"bf16", "f16", "f32"}; }
/// Type in which gradients are accumulated and reduced: f32, or the type of the weights.
enum class GradientDtype : uint8_t { f32, same };
constexpr auto names_of(GradientDtype) { return std::array<std::string_view, 2>{"f32", "same"}; }
/// Whether attention stores the length × length scores, as was usual before FlashAttention (arXiv:2205.14135).
enum class AttentionKernel : uint8_t { fused, stored };
constexpr auto names_of(AttentionKernel) { return std::array<std::string_view, 2>{"fused", "stored"}; }
/// Whether the product that computes a weight's gradient also adds it to the accumulated gradient.
enum class Accumulation : uint8_t { fused, separate };
constexpr auto names_of(Accumulation) { return std::array<std::string_view, 2>{"fused", "separate"}; }
/// The weights that one collective of ZeRO-3 gathers.
enum class GatherUnit : uint8_t { layer, weight };
constexpr auto names_of(GatherUnit) { return std::array<std::string_view, 2>{"layer", "weight"}; }

/// The training step to plan: its batch, and software properties that affect memory or time.
struct TrainingSetup {
  int64_t batch = 1;
  int64_t length = 2048;
  SetupDtype dtype = SetupDtype::bf16;
  GradientDtype gradients = GradientDtype::f32;
  AttentionKernel attention = AttentionKernel::fused;
  bool dropout = false;
  Accumulation accumulation = Accumulation::fused;
  GatherUnit gather = GatherUnit::layer;
  bool overlap = true;
  static void visit_fields(auto& self, auto&& field) {
    field("batch", self.batch, "sequences per step, over all devices");
    field("length", self.length, "tokens per sequence");
    field("dtype", self.dtype, "type of weights and activations");
    field("gradients", self.gradients, "type in which gradients are accumulated and reduced");
    field("attention", self.attention, "fused (scores stay on the chip) or stored (scores in memory)");
    field("dropout", self.dropout, "dropout of attention weights and branches: its masks are kept");
    field("accumulation", self.accumulation,
          "fused: the product adds to the gradient; separate: a kernel of its own adds");
    field("gather", self.gather, "what one collective of ZeRO-3 gathers");
    field("overlap", self.overlap, "data-parallel, pipeline and context communication overlap with computation");
  }
  bool operator==(const TrainingSetup&) const = default;

  double bytes() const { return dtype == SetupDtype::f32 ? 4 : 2; }  ///< Bytes of a weight or activation.
  /// Bytes of a gradient.
  double gradient_bytes() const { return gradients == GradientDtype::f32 ? 4 : bytes(); }
  /// Bytes of AdamW state per weight: two f32 moments, and an f32 copy of a weight in another type.
  double optimizer_bytes() const { return dtype == SetupDtype::f32 ? 8 : 12; }
};

const SchemaNode& layout_schema();  ///< The schema of a layout.
const SchemaNode& setup_schema();   ///< The schema of a training setup.

/// For example "dp 8 · tp 4 · pp 2 · zero 1": the sizes above 1, and everything else that is switched on.
std::string to_text(const Layout& layout);

}  // namespace lamina::arch
