#include "lamina/text/grammar/grammar_state.h"

#include <algorithm>
#include <mutex>
#include <utility>

#include "lamina/base/error.h"
#include "lamina/text/grammar/token_masks.h"

namespace lamina::text {

using grammar::Config;
using grammar::Frames;
using grammar::LazyDfa;
using grammar::Machine;

struct TokenGrammar::Data {
  Data(Grammar g, std::shared_ptr<const VocabularyIndex> v)
      : grammar(std::move(g)), vocabulary(std::move(v)), dfa(*grammar.program()), masks(dfa, *vocabulary) {}

  Grammar grammar;
  std::shared_ptr<const VocabularyIndex> vocabulary;
  const size_t program_bytes = grammar.program()->bytes();
  std::mutex mutex;  // guards all members below, and the stacks of every state
  LazyDfa dfa;
  grammar::TokenMasks masks;
};

struct GrammarState::Stacks {
  Frames frames;
};

TokenGrammar::TokenGrammar(Grammar grammar, std::shared_ptr<const VocabularyIndex> vocabulary)
    : data_(std::make_unique<Data>(std::move(grammar), std::move(vocabulary))) {}
TokenGrammar::~TokenGrammar() = default;

const VocabularyIndex& TokenGrammar::vocabulary() const { return *data_->vocabulary; }

void TokenGrammar::prepare(uint64_t work) {
  const std::lock_guard lock(data_->mutex);
  data_->masks.prepare(work);
}

size_t TokenGrammar::bytes() const {
  const std::lock_guard lock(data_->mutex);
  return data_->program_bytes + data_->dfa.bytes() + data_->masks.bytes();
}

GrammarState::GrammarState(std::shared_ptr<TokenGrammar> grammar)
    : grammar_(std::move(grammar)), stacks_(std::make_shared<Stacks>()) {
  TokenGrammar::Data& data = *grammar_->data_;
  const std::lock_guard lock(data.mutex);
  Machine machine(data.dfa, stacks_->frames);
  std::vector<Config> set;
  machine.closure({data.dfa.start(0), 0}, set, 0);
  for (const Config& config : set) positions_.push_back({config.state, config.frame});
  can_end_ = !machine.returns.empty();
}

void GrammarState::mask(std::span<uint32_t> words) const {
  TokenGrammar::Data& data = *grammar_->data_;
  LAMINA_CHECK(words.size() == data.vocabulary->words(), "a mask over ", data.vocabulary->size(), " tokens has ",
               data.vocabulary->words(), " words, given ", words.size());
  std::fill(words.begin(), words.end(), 0U);
  if (ended_) return;
  const std::lock_guard lock(data.mutex);
  for (const Position& position : positions_) {
    data.masks.add({position.state, position.frame}, stacks_->frames, words);
  }
  if (!can_end_) return;
  for (const TokenId id : data.vocabulary->end_tokens()) words[static_cast<size_t>(id) / 32] |= 1U << (id % 32);
}

bool GrammarState::allows(TokenId token) const { return GrammarState(*this).accept(token); }

bool GrammarState::accept(TokenId token) {
  const VocabularyIndex& vocabulary = grammar_->vocabulary();
  if (ended_ || token < 0 || token >= vocabulary.size()) return false;
  if (vocabulary.is_end(token)) {
    ended_ = can_end_;
    return can_end_;
  }
  return !vocabulary.bytes(token).empty() && accept_bytes(vocabulary.bytes(token));
}

bool GrammarState::accept_bytes(std::string_view bytes) {
  if (ended_) return false;
  const std::lock_guard lock(grammar_->data_->mutex);
  return advance(bytes);
}

bool GrammarState::advance(std::string_view bytes) {
  Machine machine(grammar_->data_->dfa, stacks_->frames);
  std::vector<Config> set;
  for (const Position& position : positions_) set.push_back({position.state, position.frame});
  bool can_end = can_end_;
  for (const char byte : bytes) {
    const size_t size = set.size();
    if (!machine.step(set, 0, size, static_cast<uint8_t>(byte))) return false;
    set.erase(set.begin(), set.begin() + static_cast<std::ptrdiff_t>(size));
    can_end = !machine.returns.empty();
  }
  positions_.clear();
  for (const Config& config : set) positions_.push_back({config.state, config.frame});
  can_end_ = can_end;
  return true;
}

std::string GrammarState::forced_bytes(size_t limit) const {
  std::string forced;
  if (ended_) return forced;
  const std::lock_guard lock(grammar_->data_->mutex);
  GrammarState ahead = *this;
  while (forced.size() < limit && !ahead.can_end_ && !ahead.positions_.empty()) {
    grammar::ByteSet bytes;
    for (const Position& position : ahead.positions_) bytes |= grammar_->data_->dfa.first_bytes(position.state);
    if (bytes.count() != 1) break;
    const char byte = static_cast<char>(bytes._Find_first());
    if (!ahead.advance({&byte, 1})) break;
    forced += byte;
  }
  return forced;
}

std::vector<TokenId> GrammarState::forced_tokens(const Tokenizer& tokenizer) const {
  const std::string forced = forced_bytes();
  if (forced.empty()) return {};
  const VocabularyIndex& vocabulary = grammar_->vocabulary();
  std::vector<TokenId> tokens;
  try {
    tokens = tokenizer.encode(forced);
  } catch (const Error&) {
    return {};  // the vocabulary lacks a needed character
  }
  size_t end = 0;
  for (const TokenId id : tokens) {
    const std::string_view bytes = id < vocabulary.size() ? vocabulary.bytes(id) : std::string_view();
    if (bytes.empty() || !std::string_view(forced).substr(end).starts_with(bytes)) return {};
    end += bytes.size();
  }
  // Find the first position from which a token could reach beyond the forced bytes.
  GrammarState after = *this;
  if (end != forced.size() || !after.accept_bytes(forced)) return {};
  size_t safe = forced.size();
  {
    TokenGrammar::Data& data = *grammar_->data_;
    const std::lock_guard lock(data.mutex);
    std::vector<Config> set;
    for (const Position& position : after.positions_) set.push_back({position.state, position.frame});
    Machine machine(data.dfa, stacks_->frames);
    for (size_t begin = 0; begin < forced.size(); ++begin) {
      const uint32_t node = vocabulary.find(std::string_view(forced).substr(begin));
      if (node == 0 || !data.masks.add_below(node, machine, set, {})) continue;
      safe = begin;
      break;
    }
  }
  size_t length = 0;
  size_t kept = 0;
  while (kept < tokens.size() && length + vocabulary.bytes(tokens[kept]).size() <= safe) {
    length += vocabulary.bytes(tokens[kept++]).size();
  }
  tokens.resize(kept);
  return tokens;
}

}  // namespace lamina::text
