#include "lamina/serve/api/served_model.h"

#include <algorithm>

#include "lamina/serve/api/fields.h"

namespace lamina::serve {
namespace {

constexpr size_t kKeptGrammars = 32;

/// A grammar's position as the engine's token mask.
class GrammarMask final : public infer::TokenMask {
 public:
  GrammarMask(text::GrammarState state, const text::Tokenizer& tokenizer)
      : state_(std::move(state)), tokenizer_(tokenizer) {}

  void mask(std::span<uint32_t> bits) const override { state_.mask(bits); }
  bool accept(text::TokenId id) override { return state_.accept(id); }
  std::vector<text::TokenId> forced() const override { return state_.forced_tokens(tokenizer_); }
  bool can_end() const override { return state_.can_end(); }
  std::unique_ptr<TokenMask> clone() const override { return std::make_unique<GrammarMask>(state_, tokenizer_); }

 private:
  text::GrammarState state_;
  const text::Tokenizer& tokenizer_;
};

}  // namespace

std::shared_ptr<const infer::TokenMask> ServedModel::mask(const std::string& key,
                                                          const std::function<text::Grammar()>& compile) {
  if (tokenizer == nullptr) throw ApiError(400, "structured output needs a tokenizer, which this model has not");
  if (stop_tokens.empty())
    throw ApiError(400, "structured output needs an end-of-text token, which this model has not");
  const std::lock_guard lock(mutex_);
  if (!vocabulary_) {
    vocabulary_ = std::make_shared<const text::VocabularyIndex>(*tokenizer, stop_tokens, backend->shape().vocab_size);
  }
  auto found = std::find_if(grammars_.begin(), grammars_.end(), [&](const auto& entry) { return entry.first == key; });
  if (found == grammars_.end()) {
    grammars_.emplace_front(key, std::make_shared<text::TokenGrammar>(compile(), vocabulary_));
    if (grammars_.size() > kKeptGrammars) grammars_.pop_back();
  } else {
    grammars_.splice(grammars_.begin(), grammars_, found);
  }
  return std::make_shared<const GrammarMask>(text::GrammarState(grammars_.front().second), *tokenizer);
}

}  // namespace lamina::serve
