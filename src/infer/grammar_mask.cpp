#include "lamina/infer/grammar_mask.h"

namespace lamina::infer {
namespace {

/// The position in a text that a grammar constrains.
class GrammarMask final : public TokenMask {
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

std::shared_ptr<const TokenMask> grammar_mask(std::shared_ptr<text::TokenGrammar> grammar,
                                              const text::Tokenizer& tokenizer) {
  return std::make_shared<const GrammarMask>(text::GrammarState(std::move(grammar)), tokenizer);
}

}  // namespace lamina::infer
