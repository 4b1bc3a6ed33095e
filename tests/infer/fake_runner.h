#pragma once

#include <array>
#include <deque>
#include <functional>
#include <set>
#include <unordered_map>

#include "lamina/infer/engine/engine.h"

namespace lamina::infer {

inline uint64_t fake_mix(uint64_t hash, uint64_t value) {
  hash = (hash ^ value) * 0x9E3779B97F4A7C15U;
  return hash ^ (hash >> 31);
}

/// The logits of a model that does not exist: a hash of all tokens that each kind of layer sees. A wrong page, offset
/// or state changes it.
struct FakeModel {
  CacheShape shape;
  bool repetitive = false;  ///< the next token mostly depends on the last three only, so that prompt lookup pays
  uint64_t salt = 1;        ///< models with other salts have other logits, except for repetitive text

  static uint64_t next_state(uint64_t state, TokenId token) {
    return fake_mix(state + 1, static_cast<uint64_t>(token));
  }

  /// Hash of the tokens that a group's query at the end of `tokens` sees. token_at(p) is the token at position p.
  template <class TokenAt>
  uint64_t see(uint64_t hash, size_t group, int64_t length, const TokenAt& token_at) const {
    const int64_t window = shape.groups[group].window;
    for (int64_t p = window > 0 ? std::max<int64_t>(0, length - window) : 0; p < length; ++p) {
      hash = fake_mix(hash, static_cast<uint64_t>(token_at(p)) * 1000003U + static_cast<uint64_t>(p));
    }
    return hash;
  }

  /// Samples from `logits`, the hash of what is seen. `history` are all tokens so far.
  ScoredToken sample(uint64_t logits, const SamplingState& s, int64_t drawn, std::span<const TokenId> history,
                     std::span<const TokenId> last, std::span<const uint32_t> mask) const {
    uint64_t hash = fake_mix(logits, fake_mix(fake_mix(s.options.seed, s.stream), static_cast<uint64_t>(drawn)));
    hash = fake_mix(hash, static_cast<uint64_t>(s.options.temperature * 1000) + static_cast<uint64_t>(s.softcap * 100));
    if (s.penalises()) {
      uint64_t counts = static_cast<uint64_t>(s.prompt_length);
      for (const TokenId id : history) counts += fake_mix(7, static_cast<uint64_t>(id));
      hash = fake_mix(hash, counts);
    }
    if (repetitive && hash % 16 != 0) {
      hash = 5;
      for (const TokenId id : last) hash = fake_mix(hash, static_cast<uint64_t>(id));
    }
    auto id = static_cast<TokenId>((hash >> 8) % static_cast<uint64_t>(shape.vocab_size));
    for (const auto& [token, bias] : s.bias) {
      if (bias >= 100) id = token;
    }
    const auto banned = [&] {
      const bool ends = std::find(s.end_tokens.begin(), s.end_tokens.end(), id) != s.end_tokens.end();
      const bool masked = !mask.empty() && (mask[static_cast<size_t>(id) / 32] >> (id % 32) & 1U) == 0;
      return masked || (ends && drawn < s.min_tokens);
    };
    while (banned()) id = (id + 1) % static_cast<TokenId>(shape.vocab_size);
    return s.top_logprobs < 0 ? ScoredToken{id, 0, {}} : score(logits, id, s.top_logprobs);
  }

  ScoredToken score(uint64_t logits, TokenId id, int64_t top) const {
    ScoredToken result{id, -static_cast<float>(fake_mix(logits, static_cast<uint64_t>(id)) % 1000), {}};
    for (int64_t i = 0; i < top; ++i)
      result.top.emplace_back(static_cast<TokenId>(i), -static_cast<float>(logits % 97));
    return result;
  }

  /// Logits after `tokens`, computed without pages.
  uint64_t logits(std::span<const TokenId> tokens) const {
    uint64_t hash = salt;
    for (size_t group = 0; group < shape.groups.size(); ++group) {
      hash = see(hash, group, static_cast<int64_t>(tokens.size()),
                 [&](int64_t p) { return tokens[static_cast<size_t>(p)]; });
    }
    if (shape.state_slots > 0) {
      uint64_t state = 0;
      for (const TokenId id : tokens) state = next_state(state, id);
      hash = fake_mix(hash, state);
    }
    return hash;
  }

  /// Oracle: answer `index` of a request served alone, one token at a time.
  std::vector<ScoredToken> answer(const Request& r, int64_t index) const {
    SamplingState s;
    s.options = r.sampler;
    s.stream = r.stream + static_cast<uint64_t>(index);
    s.softcap = r.softcap;
    s.bias = r.bias;
    s.end_tokens = r.stop_tokens;
    s.min_tokens = r.min_tokens;
    s.top_logprobs = r.logprobs;
    s.prompt_length = static_cast<int64_t>(r.prompt.size());
    std::vector<TokenId> tokens = r.prompt;
    std::vector<ScoredToken> result;
    std::unique_ptr<TokenMask> grammar = r.mask ? r.mask->clone() : nullptr;
    std::vector<uint32_t> bits(grammar ? static_cast<size_t>(shape.vocab_size + 31) / 32 : 0);
    const int64_t context = r.context > 0 ? r.context : shape.context;
    while (static_cast<int64_t>(result.size()) < r.max_tokens && static_cast<int64_t>(tokens.size()) < context) {
      if (grammar) grammar->mask(bits);
      const auto last = std::span<const TokenId>(tokens).last(std::min<size_t>(3, tokens.size()));
      ScoredToken next = sample(logits(tokens), s, static_cast<int64_t>(result.size()), tokens, last, bits);
      const bool stops = std::find(r.stop_tokens.begin(), r.stop_tokens.end(), next.id) != r.stop_tokens.end();
      if (stops && !r.ignore_eos && static_cast<int64_t>(result.size()) >= r.min_tokens) break;
      if (grammar) grammar->accept(next.id);
      tokens.push_back(next.id);
      result.push_back(std::move(next));
    }
    return result;
  }
};

/// Runs steps of a FakeModel with real page tables: tokens are written to pages and read back from them.
class FakeRunner : public StepRunner {
 public:
  explicit FakeRunner(FakeModel model) : model_(std::move(model)) {
    const CacheShape& shape = model_.shape;
    for (const CacheGroup& group : shape.groups) {
      cells_.emplace_back(static_cast<size_t>(group.pages * shape.page_size));
    }
    states_.assign(static_cast<size_t>(shape.state_slots), {0xdead, {}});
  }

  const CacheShape& shape() const override { return model_.shape; }

  void run(const StepPlan& plan) override {
    LAMINA_CHECK(results_.size() < (model_.shape.pipelined ? 2U : 1U), "fake runner: too many steps in flight");
    LAMINA_CHECK(!plan.rows.empty() && static_cast<int64_t>(plan.rows.size()) <= model_.shape.rows,
                 "fake runner: a step of ", plan.rows.size(), " rows");
    if (fail_at == steps) {
      fail_at = -1;
      fail();
    }
    ++steps;
    most_tokens = std::max(most_tokens, plan.tokens());
    std::set<std::pair<size_t, int32_t>> written;
    std::set<int32_t> slots;
    StepResult result;
    for (const StepRow& row : plan.rows) {
      LAMINA_CHECK(slots.insert(row.slot).second, "fake runner: two rows have slot ", row.slot);
      result.rows.push_back(run_row(row, written));
    }
    last_ = result;
    results_.push_back(std::move(result));
  }

  StepResult wait() override {
    LAMINA_CHECK(!results_.empty(), "fake runner: nothing is in flight");
    StepResult result = std::move(results_.front());
    results_.pop_front();
    return result;
  }

  void copy_page(int64_t group, int32_t from, int32_t to) override {
    auto& cells = cells_[static_cast<size_t>(group)];
    const auto size = static_cast<size_t>(model_.shape.page_size);
    std::copy_n(cells.begin() + static_cast<int64_t>(size) * from, size,
                cells.begin() + static_cast<int64_t>(size) * to);
  }
  void copy_state(int32_t from, int32_t to) override {
    states_.at(static_cast<size_t>(to)) = states_.at(static_cast<size_t>(from));
  }
  void clear_state(int32_t slot) override { states_.at(static_cast<size_t>(slot)) = {}; }

  int64_t steps = 0, most_tokens = 0, fail_at = -1;
  std::function<void()> fail = [] { throw Error("fake runner: failed as asked"); };

 private:
  struct Cell {
    TokenId token = -1;
    int64_t position = -1;
  };

  /// The state after some tokens, and the last three of them.
  struct State {
    uint64_t hash = 0;
    std::array<TokenId, 3> last{};
  };

  size_t cell(const StepRow& row, size_t group, int64_t position) const {
    const int64_t size = model_.shape.page_size;
    const int32_t page = row.pages[group][static_cast<size_t>(position / size)];
    LAMINA_CHECK(page >= 0, "fake runner: position ", position, " has no page");
    return static_cast<size_t>(page * size + position % size);
  }

  RowResult run_row(const StepRow& row, std::set<std::pair<size_t, int32_t>>& written) {
    std::vector<TokenId> tokens(row.tokens.begin(), row.tokens.end());
    if (row.previous >= 0) {
      LAMINA_CHECK(tokens[0] == kUnknownToken && model_.shape.pipelined,
                   "fake runner: a known token of a step in flight");
      tokens[0] = last_.rows.at(static_cast<size_t>(row.previous)).sampled.back().id;
    }
    const size_t groups = model_.shape.groups.size();
    const auto count = static_cast<int64_t>(tokens.size());
    for (size_t group = 0; group < groups; ++group) {
      for (int64_t i = 0; i < count; ++i) {
        const size_t at = cell(row, group, row.offset + i);
        cells_[group][at] = {tokens[static_cast<size_t>(i)], row.offset + i};
        if (i == 0 || (row.offset + i) % model_.shape.page_size == 0) {
          const auto page = static_cast<int32_t>(at / static_cast<size_t>(model_.shape.page_size));
          LAMINA_CHECK(written.emplace(group, page).second, "fake runner: two rows write page ", page);
        }
      }
    }
    RowResult result;
    std::vector<TokenId> history(row.history.begin(), row.history.end());
    for (int64_t i = 0; i < count; ++i) {
      const TokenId token = tokens[static_cast<size_t>(i)];
      LAMINA_CHECK(token >= 0 && token < model_.shape.vocab_size, "fake runner: token ", token);
      if (row.state_slot >= 0) {
        State& state = states_.at(static_cast<size_t>(row.state_slot));
        state = {FakeModel::next_state(state.hash, token), {state.last[1], state.last[2], token}};
      }
      const int64_t scored = i - row.scored_begin;
      const bool scores = scored >= 0 && scored < static_cast<int64_t>(row.scored.size());
      const int64_t sample = i - (count - row.samples);
      if (!scores && sample < 0) continue;
      const uint64_t logits = read(row, row.offset + i + 1);
      if (scores) {
        result.scored.push_back(model_.score(logits, row.scored[static_cast<size_t>(scored)], row.scored_top));
      }
      if (sample >= 0) result.sampled.push_back(sample_at(row, logits, sample, i, tokens, history));
    }
    return result;
  }

  ScoredToken sample_at(const StepRow& row, uint64_t logits, int64_t sample, int64_t i,
                        const std::vector<TokenId>& tokens, const std::vector<TokenId>& history) {
    const auto words = static_cast<size_t>(model_.shape.vocab_size + 31) / 32;
    const auto mask = row.mask.empty() ? row.mask : row.mask.subspan(static_cast<size_t>(sample) * words, words);
    std::vector<TokenId> last;
    for (int64_t p = std::max<int64_t>(0, row.offset + i - 2); p <= row.offset + i && model_.repetitive; ++p) {
      if (cells_.empty()) {
        last.push_back(
            states_.at(static_cast<size_t>(row.state_slot)).last[static_cast<size_t>(2 + p - row.offset - i)]);
      } else {
        const bool is_new = p >= row.offset;
        last.push_back(is_new ? tokens[static_cast<size_t>(p - row.offset)] : cells_[0][cell(row, 0, p)].token);
      }
    }
    return model_.sample(logits, *row.sampling, row.drawn + sample, history, last, mask);
  }

  uint64_t read(const StepRow& row, int64_t length) const {
    uint64_t hash = model_.salt;
    for (size_t group = 0; group < model_.shape.groups.size(); ++group) {
      hash = model_.see(hash, group, length, [&](int64_t p) {
        const Cell& found = cells_[group][cell(row, group, p)];
        LAMINA_CHECK(found.position == p, "fake runner: a page holds position ", found.position, " instead of ", p);
        return found.token;
      });
    }
    if (row.state_slot >= 0) hash = fake_mix(hash, states_[static_cast<size_t>(row.state_slot)].hash);
    return hash;
  }

  FakeModel model_;
  std::vector<std::vector<Cell>> cells_;
  std::vector<State> states_;
  std::deque<StepResult> results_;
  StepResult last_;
};

/// Every fifth token is the only one allowed; the others follow a pattern. May end after a multiple of four tokens.
class FakeMask : public TokenMask {
 public:
  explicit FakeMask(int64_t vocab) : vocab_(vocab) {}
  bool permits(text::TokenId id) const {
    return count_ % 5 >= 3 ? id == (last_ * 7 + 1) % vocab_ : (id + count_) % 3 == 0 || (id == 0 && can_end());
  }
  void mask(std::span<uint32_t> bits) const override {
    std::fill(bits.begin(), bits.end(), 0);
    for (text::TokenId id = 0; id < vocab_; ++id) {
      if (permits(id)) bits[static_cast<size_t>(id) / 32] |= 1U << (id % 32);
    }
  }
  bool accept(text::TokenId id) override {
    if (!permits(id)) return false;
    last_ = id;
    ++count_;
    return true;
  }
  std::vector<text::TokenId> forced() const override {
    std::vector<text::TokenId> result;
    FakeMask next = *this;
    while (next.count_ % 5 >= 3) {
      result.push_back(static_cast<text::TokenId>((next.last_ * 7 + 1) % vocab_));
      next.accept(result.back());
    }
    return result;
  }
  bool can_end() const override { return count_ % 4 == 0; }
  std::unique_ptr<TokenMask> clone() const override { return std::make_unique<FakeMask>(*this); }

 private:
  int64_t vocab_;
  int64_t count_ = 0;
  text::TokenId last_ = 0;
};

}  // namespace lamina::infer
