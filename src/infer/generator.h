#pragma once

#include <functional>
#include <optional>
#include <string_view>
#include <vector>

#include "lamina/infer/sampler.h"
#include "lamina/nn/model.h"

namespace lamina::infer {

struct GenerateOptions {
  int64_t max_tokens = 256;  ///< of each row's answer
  SamplerOptions sampler;
  std::vector<text::TokenId> stop_tokens;  ///< end a row and are not part of its answer
  /// Most tokens of prompt and answer together; 0: the architecture's context.
  int64_t context = 0;
  /// Off: every token from a forward over all before it, for comparison.
  bool cache = true;
  /// Of Model::make_cache; nothing: the weights' type. A session has its own.
  std::optional<DType> cache_dtype;
};

/// Why a row ended.
enum class Finish : uint8_t { max_tokens, stop_token, context, asked };
std::string_view name_of(Finish finish);

struct Generation {
  std::vector<text::TokenId> ids;  ///< the answer
  Finish finish = Finish::max_tokens;
};

/// Called with each token of an answer as it is chosen; false ends that row, the token being its last.
using OnToken = std::function<bool(size_t row, text::TokenId id)>;

/// Continues every prompt. All rows advance together, whatever their lengths: the prompts are read in one pass (row by
/// row where padding would cost more than it saves), and a row that has ended leaves the batch. Row i draws from stream
/// i of the seed, so its answer is the same whatever else is in the batch (up to rounding of the products).
/// An Error where a prompt is empty, holds a token beyond the vocabulary, or leaves no room within the context.
std::vector<Generation> generate(nn::Model& model, const std::vector<std::vector<text::TokenId>>& prompts,
                                 const GenerateOptions& options, const OnToken& on_token = {});

/// A single row whose cache is kept between turns.
class Session {
 public:
  /// `options.cache` must be on. `context` 0: the architecture's. `cache_dtype` as in GenerateOptions.
  explicit Session(nn::Model& model, int64_t context = 0, std::optional<DType> cache_dtype = {});

  /// Reads `ids` behind everything so far and answers.
  Generation turn(std::span<const text::TokenId> ids, const GenerateOptions& options, const OnToken& on_token = {});
  /// Tokens so far, answers included.
  int64_t length() const { return static_cast<int64_t>(ids_.size()); }
  int64_t context() const { return cache_.capacity(); }
  void clear();

 private:
  nn::Model& model_;
  nn::ModelCache cache_;
  std::vector<text::TokenId> ids_;
  uint64_t turns_ = 0;
};

}  // namespace lamina::infer
