#pragma once

#include <functional>
#include <string>
#include <vector>

#include "lamina/io/safetensors.h"
#include "lamina/nn/model.h"

namespace lamina::infer {

/// The difference between one quantity and its golden value.
struct Comparison {
  std::string name;   ///< "logits", "encoder", "loss", "grad.<parameter>", "greedy"
  double absolute;    ///< largest absolute difference; for "greedy": the number of different tokens
  double relative;    ///< `absolute` / largest magnitude of the golden values
  double tolerance;   ///< largest allowed value of `relative`
  std::string error;  ///< why the comparison was impossible; empty if it was possible
  bool ok() const { return error.empty() && relative <= tolerance; }
};

/// Tolerances of compare_with_golden().
struct GoldenOptions {
  double logits_tolerance = 1e-4;
  double gradient_tolerance = 1e-3;
  /// Smallest denominator for relative errors of gradients, as a fraction of the largest gradient: smaller ones are
  /// mostly rounding errors.
  double smallest_share = 1e-4;
  /// A different greedy token also passes if the two tokens' logits differ by at most this fraction of the largest
  /// logit.
  double tie = 0;
};

/// Sets the number of global tokens to the number that the golden file's global_attention_mask marks, because
/// configurations of such models do not fix it. Returns the architecture unchanged if the file has no such mask.
arch::ArchSpec with_global_tokens(arch::ArchSpec spec, const io::SafetensorsFile& golden);

/// Renames gradients from the names of state_dict() to the names in the golden file.
using NameGradients = std::function<NamedTensors(const nn::StateDict& gradients)>;

/// Compares a model with the results of another implementation for the same weights. Golden tensors that are compared:
///   input_ids [batch, seq], logits [batch, seq, vocab]
///   loss [1]: mean next-token cross entropy over positions 0 … seq − 2; grad.<parameter>: its gradients
///   prompt [1, n], greedy [1, m]: greedy tokens after the prompt, decoded one by one with the KV cache
/// Padded batches and encoders:
///   attention_mask [batch, seq]: 1 for tokens, 0 for the padding after them, which is not compared
///   labels [batch, seq]: the loss is the mean cross entropy of the logits against them, without those of -100
///   global_attention_mask [batch, seq]: 1 for the global tokens; they must be those of the architecture
/// Encoder–decoders: input_ids and attention_mask are the source; decoder_input_ids and labels [batch, m];
///   encoder [batch, seq, d_model]: the encoder's output; greedy [1, m]: tokens for the first row of the source
std::vector<Comparison> compare_with_golden(nn::Model& model, const io::SafetensorsFile& golden,
                                            const NameGradients& name_gradients, const GoldenOptions& options = {});

/// Tolerances for a bf16 model: twice the effect of shifting each parameter of an f32 model by the largest bf16
/// rounding error, randomly up or down. Restores the parameters afterwards.
GoldenOptions bf16_tolerances(nn::Model& model, const io::SafetensorsFile& golden, const NameGradients& name_gradients);

}  // namespace lamina::infer
