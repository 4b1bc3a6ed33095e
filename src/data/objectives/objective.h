#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "lamina/data/batches.h"
#include "lamina/data/dice.h"
#include "lamina/text/tokenizer.h"

namespace lamina::data {

// Training objectives on text: how a window of tokens becomes inputs and targets. Each struct lists its parameters once
// (visit_fields); recipes use the same names.

/// Every token is predicted from the tokens before it.
struct CausalObjective {
  static constexpr std::string_view kKind = "causal";
  static constexpr std::string_view kDoc = "predict every token from those before it";
  static void visit_fields(auto&, auto&&) {}
  bool operator==(const CausalObjective&) const = default;
};

/// Prefix language model: a prefix of random length is given, and the rest is predicted.
struct PrefixObjective {
  static constexpr std::string_view kKind = "prefix";
  static constexpr std::string_view kDoc = "a prefix of random length is given; only the rest is predicted";
  double shortest = 0.1;
  double longest = 0.9;
  static void visit_fields(auto& self, auto&& field) {
    field("shortest", self.shortest, "smallest share of a sequence that is given", {0, 1});
    field("longest", self.longest, "largest share of a sequence that is given", {0, 1});
  }
  bool operator==(const PrefixObjective&) const = default;
};

/// Fill in the middle (Bavarian et al. 2022, arXiv:2207.14255): a sequence is cut at two random places and its middle
/// is moved to the end. So a decoder learns to continue from text on both sides.
struct FimObjective {
  static constexpr std::string_view kKind = "fim";
  static constexpr std::string_view kDoc =
      "fill in the middle (arXiv:2207.14255): the middle of a sequence moves to its end";
  double rate = 0.5;
  double spm_share = 0.5;
  std::string prefix_token = "<|fim_prefix|>";
  std::string suffix_token = "<|fim_suffix|>";
  std::string middle_token = "<|fim_middle|>";
  static void visit_fields(auto& self, auto&& field) {
    field("rate", self.rate, "share of the sequences that are rearranged; the others are causal", {0, 1});
    field("spm_share", self.spm_share,
          "share of those in the order suffix, prefix, middle (SPM); the others: prefix, suffix, middle (PSM)", {0, 1});
    field("prefix_token", self.prefix_token, "special token before the prefix");
    field("suffix_token", self.suffix_token, "special token before the suffix");
    field("middle_token", self.middle_token, "special token before the middle");
  }
  bool operator==(const FimObjective&) const = default;
};

/// Masked language model (BERT, arXiv:1810.04805): randomly chosen tokens are hidden, and predicted at their own
/// position.
struct MaskedObjective {
  static constexpr std::string_view kKind = "masked";
  static constexpr std::string_view kDoc =
      "masked language model (arXiv:1810.04805): predict hidden tokens at their own positions";
  double rate = 0.15;
  double mask_share = 0.8;
  double random_share = 0.1;
  std::string mask_token = "[MASK]";
  static void visit_fields(auto& self, auto&& field) {
    field("rate", self.rate, "share of the tokens that are predicted; special tokens never are", {0, 1});
    field("mask_share", self.mask_share, "share of those that become the mask token", {0, 1});
    field("random_share", self.random_share, "share of those that become a random token; the rest stays as it is",
          {0, 1});
    field("mask_token", self.mask_token, "special token that hides another");
  }
  bool operator==(const MaskedObjective&) const = default;
};

/// Span corruption (T5, arXiv:1910.10683): each of several random spans is replaced by a sentinel. The target lists
/// each sentinel, followed by its span.
struct SpanObjective {
  static constexpr std::string_view kKind = "span";
  static constexpr std::string_view kDoc =
      "span corruption (arXiv:1910.10683): sentinels replace spans, which are predicted";
  double density = 0.15;
  double mean_length = 3.0;
  int64_t sentinels = 100;
  std::string sentinel_token = "<extra_id_{}>";
  static void visit_fields(auto& self, auto&& field) {
    field("density", self.density, "share of the tokens within spans", {0, 0.9});
    field("mean_length", self.mean_length, "mean tokens of a span", {1, 1e6});
    field("sentinels", self.sentinels, "sentinel tokens in the vocabulary; a sequence with more spans is an error");
    field("sentinel_token", self.sentinel_token, "name of a sentinel, with its number for {}");
  }
  bool operator==(const SpanObjective&) const = default;
};

/// Denoising (BART, arXiv:1910.13461): text infilling, where a mask token replaces a span of Poisson-distributed
/// length, and permuted sentences. The target is the original text.
struct DenoiseObjective {
  static constexpr std::string_view kKind = "denoise";
  static constexpr std::string_view kDoc =
      "denoising (arXiv:1910.13461): restore text with masked spans and permuted sentences";
  double rate = 0.3;
  double mean_length = 3.0;
  bool permute_sentences = true;
  std::string mask_token = "<mask>";
  std::string start_token = "<s>";
  static void visit_fields(auto& self, auto&& field) {
    field("rate", self.rate, "share of the tokens within masked spans", {0, 0.9});
    field("mean_length", self.mean_length, "mean of the Poisson distribution of span lengths; 0 inserts a mask",
          {0, 100});
    field("permute_sentences", self.permute_sentences, "sentences come in random order");
    field("mask_token", self.mask_token, "special token that replaces a span");
    field("start_token", self.start_token, "special token before the restored text");
  }
  bool operator==(const DenoiseObjective&) const = default;
};

/// How a window of text becomes inputs and targets.
using Objective =
    std::variant<CausalObjective, PrefixObjective, FimObjective, MaskedObjective, SpanObjective, DenoiseObjective>;

/// The objective's kind, as it is named in recipes.
std::string_view objective_name(const Objective& objective);
/// Whether every token is predicted from the tokens before it.
bool is_causal(const Objective& objective);

/// Names of the special tokens that the objective needs. The order is fixed.
std::vector<std::string> objective_tokens(const Objective& objective);

/// Throws an Error if the parameters contradict each other, or if rows of this length are too short.
void check_objective(const Objective& objective, int64_t length);

/// The ids of an objective's special tokens, and the properties of ids that it needs.
struct ObjectiveVocabulary {
  std::vector<int64_t> tokens;  ///< ids of objective_tokens()
  /// Ids of text tokens, neither special nor unused; random tokens are chosen from these.
  std::vector<int64_t> texts;
  std::vector<bool> is_special;     ///< indexed by id
  std::vector<bool> ends_sentence;  ///< indexed by id; whether its text ends with . ! ? or a line break
  int64_t padding = 0;              ///< fills the rest of a row; never a target
  /// First token of an encoder–decoder model's source, if the tokenizer has such a token.
  std::optional<int64_t> begin;
  std::optional<int64_t> end;  ///< last token of its source and target, if the tokenizer has such a token
};
/// Throws an Error that names the missing token if the tokenizer lacks one.
ObjectiveVocabulary vocabulary_for(const Objective& objective, const text::Tokenizer& tokenizer);

/// A training example. `input` is corrupted text. `target` is the sequence to generate (span, denoise) or, for masked,
/// the label of each position; kIgnoreIndex if it has none.
struct CorruptedText {
  std::vector<int64_t> input;   ///< what the model sees
  std::vector<int64_t> target;  ///< what it has to predict
};
/// Hides exactly round(rate · n) of the n tokens that are not special, but at least one.
CorruptedText mask_tokens(const MaskedObjective& objective, const ObjectiveVocabulary& vocabulary,
                          const std::vector<int64_t>& tokens, Dice& dice);
/// Replaces spans by sentinels, in order. Text and spans alternate, beginning with text.
CorruptedText corrupt_spans(const SpanObjective& objective, const ObjectiveVocabulary& vocabulary,
                            const std::vector<int64_t>& tokens, Dice& dice);
/// Replaces spans by masks. The target is the start token, followed by the tokens. Span lengths are
/// Poisson-distributed, conditioned on their sum. The number of spans is fixed, so all inputs have the same length,
/// which is at most that of the tokens.
CorruptedText add_noise(const DenoiseObjective& objective, const ObjectiveVocabulary& vocabulary,
                        const std::vector<int64_t>& tokens, Dice& dice);
/// Moves the middle to the end and adds three sentinels. Returns the tokens unchanged with probability 1 − rate.
std::vector<int64_t> fill_in_middle(const FimObjective& objective, const ObjectiveVocabulary& vocabulary,
                                    const std::vector<int64_t>& tokens, Dice& dice);

/// Number of noise tokens and spans in `tokens` tokens. Both are fixed, so that all rows have the same length.
struct SpanCounts {
  int64_t noise = 0;  ///< tokens within spans
  int64_t spans = 0;  ///< number of spans
};
/// round(density · tokens) noise tokens, in spans of the objective's mean length.
SpanCounts span_counts(const SpanObjective& objective, int64_t tokens);
/// round(rate · tokens) masked tokens, in spans of the objective's mean length.
SpanCounts span_counts(const DenoiseObjective& objective, int64_t tokens);

}  // namespace lamina::data
