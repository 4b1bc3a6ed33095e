#include "lamina/serve/api/served_model.h"

#include <algorithm>

#include "lamina/infer/grammar_mask.h"
#include "lamina/serve/api/fields.h"

namespace lamina::serve {
namespace {

constexpr size_t kKeptGrammars = 32;
constexpr size_t kKeptGrammarBytes = size_t{64} << 20;  ///< one compiled grammar with 500 properties takes 30 MB

}  // namespace

std::string ServedModel::why_no_tasks() const {
  const bool divided = model != nullptr && model->parallel();
  return divided ? ": several processes share it; serve it in one process for this" : "";
}

std::shared_ptr<const infer::TokenMask> ServedModel::mask(const std::string& key,
                                                          const std::function<text::Grammar()>& compile) {
  if (tokenizer == nullptr) throw ApiError(400, "structured output needs a tokenizer, but this model has none");
  if (stop_tokens.empty()) throw ApiError(400, "structured output needs an end-of-text token, but this model has none");
  const std::lock_guard lock(mutex_);
  if (!vocabulary_) {
    vocabulary_ = std::make_shared<const text::VocabularyIndex>(*tokenizer, stop_tokens, backend->shape().vocab_size);
  }
  auto found = std::find_if(grammars_.begin(), grammars_.end(), [&](const auto& entry) { return entry.first == key; });
  if (found == grammars_.end()) {
    grammars_.emplace_front(key, std::make_shared<text::TokenGrammar>(compile(), vocabulary_));
  } else {
    grammars_.splice(grammars_.begin(), grammars_, found);
  }
  const std::shared_ptr<text::TokenGrammar> grammar = grammars_.front().second;
  drop_old_grammars();
  return infer::grammar_mask(grammar, *tokenizer);
}

/// Drops the least recently used grammars above the limit. Measures all of them again, because grammars grow during
/// use.
void ServedModel::drop_old_grammars() {
  size_t count = 0;
  size_t bytes = 0;
  for (auto entry = grammars_.begin(); entry != grammars_.end();) {
    bytes += entry->first.size() + entry->second->bytes();
    const bool keeps = ++count <= kKeptGrammars && bytes <= kKeptGrammarBytes;
    entry = keeps ? std::next(entry) : grammars_.erase(entry);
  }
}

}  // namespace lamina::serve
