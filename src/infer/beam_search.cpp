#include "lamina/infer/beam_search.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "lamina/base/error.h"

namespace lamina::infer {
namespace {

using text::TokenId;

struct Beam {
  std::vector<TokenId> ids;  // tokens of the answer
  double score = 0;          // sum of log-probabilities
};

/// A beam, and a token that would extend it.
struct Extension {
  double score = 0;
  size_t beam = 0;
  TokenId id = 0;
  bool operator<(const Extension& other) const {  // orders the best first
    if (score != other.score) return score > other.score;
    return beam != other.beam ? beam < other.beam : id < other.id;
  }
};

class BeamSearch {
 public:
  BeamSearch(nn::Model& model, std::span<const TokenId> prompt, const BeamOptions& options)
      : model_(model),
        options_(options),
        source_(model.spec().encoder ? prompt : std::span<const TokenId>()),
        prompt_(decoder_prompt(model, prompt)),
        room_(std::min(options.max_tokens, (options.context > 0 ? options.context : model.spec().context) -
                                               static_cast<int64_t>(prompt_.size()))),
        vocab_(options.vocab_size > 0 ? std::min(options.vocab_size, model.spec().vocab_size)
                                      : model.spec().vocab_size),
        cache_(model.make_cache(options.beams, static_cast<int64_t>(prompt_.size()) + room_, options.cache_dtype)) {}

  std::vector<BeamAnswer> run() {
    // The first step extends a single beam, the prompt. The other cache rows start as copies of it and have no beam
    // yet.
    beams_.push_back({});
    std::vector<float> logits = prompt_logits();
    for (int64_t length = 1; length <= room_; ++length) {
      const bool done = advance(logits, length);
      if (done || beams_.empty() || length == room_) break;
      logits = next_logits();
    }
    if (!done_) {
      for (const Beam& beam : beams_) {
        finish(beam, static_cast<int64_t>(beam.ids.size()),
               options_.max_tokens > room_ ? Finish::context : Finish::max_tokens);
      }
    }
    answers_.resize(std::min(answers_.size(), static_cast<size_t>(options_.answers)));
    return std::move(answers_);
  }

 private:
  /// The decoder's first tokens: the prompt or, if an encoder reads the prompt, the start token.
  static std::vector<TokenId> decoder_prompt(const nn::Model& model, std::span<const TokenId> prompt) {
    if (model.spec().encoder) return {static_cast<TokenId>(model.spec().encoder->start_token)};
    return {prompt.begin(), prompt.end()};
  }

  std::vector<float> prompt_logits() {
    if (!source_.empty()) {
      const std::vector<int64_t> source(source_.begin(), source_.end());
      model_.read_source(Tensor::from(source, {1, static_cast<int64_t>(source.size())}, model_.device()), cache_);
    }
    const std::vector<int64_t> ids(prompt_.begin(), prompt_.end());
    nn::ModelCache first = cache_.rows(0, 1);
    const Tensor logits =
        model_.cached_logits(Tensor::from(ids, {1, static_cast<int64_t>(ids.size())}, model_.device()), first,
                             {.counts = {}, .last_only = true});
    return logits.to(DType::f32).to_vector<float>();
  }

  std::vector<float> next_logits() {
    cache_.reorder(sources_);
    // Rows without an open beam repeat the last beam, so that the batch keeps its shape.
    std::vector<int64_t> ids;
    for (int64_t row = 0; row < options_.beams; ++row) {
      ids.push_back(beams_[std::min(static_cast<size_t>(row), beams_.size() - 1)].ids.back());
    }
    const Tensor logits = model_.cached_logits(Tensor::from(ids, {options_.beams, 1}, model_.device()), cache_,
                                               {.counts = {}, .last_only = true});
    return logits.to(DType::f32).to_vector<float>();
  }

  /// Extends every beam by one token, to `length` tokens. Returns true if the search is over.
  bool advance(std::vector<float>& logits, int64_t length) {
    const auto beams = static_cast<size_t>(options_.beams);
    const size_t stops = options_.stop_tokens.size();
    // Enough extensions that at least `beams` of them do not end in a stop token.
    const std::vector<Extension> best = extensions(logits, std::max<size_t>(2, 1 + stops) * beams);
    std::vector<Beam> next;
    sources_.clear();
    for (size_t rank = 0; rank < best.size() && next.size() < beams; ++rank) {
      const Extension& one = best[rank];
      const bool stop = std::ranges::find(options_.stop_tokens, one.id) != options_.stop_tokens.end();
      if (stop) {
        if (rank < beams) finish({beams_[one.beam].ids, one.score}, length, Finish::stop_token);
        continue;
      }
      Beam beam{beams_[one.beam].ids, one.score};
      beam.ids.push_back(one.id);
      next.push_back(std::move(beam));
      sources_.push_back(static_cast<int64_t>(one.beam));
    }
    beams_ = std::move(next);
    sources_.resize(beams, sources_.empty() ? 0 : sources_.back());
    done_ = !best.empty() && is_done(best[0].score, length);
    return done_;
  }

  /// The `count` best extensions of all beams, best first.
  std::vector<Extension> extensions(std::vector<float>& logits, size_t count) const {
    std::vector<Extension> all;
    const auto width = static_cast<size_t>(model_.spec().vocab_size);
    for (size_t beam = 0; beam < beams_.size(); ++beam) {
      const std::span<float> row = std::span(logits).subspan(beam * width, static_cast<size_t>(vocab_));
      if (options_.logit_cap > 0) cap_logits(row, options_.logit_cap);
      double greatest = -std::numeric_limits<double>::infinity();
      for (const float logit : row) {
        LAMINA_CHECK(!std::isnan(logit), "generate: the model's logits are not numbers; its weights are damaged");
        greatest = std::max(greatest, static_cast<double>(logit));
      }
      double sum = 0;
      for (const float logit : row) sum += std::exp(static_cast<double>(logit) - greatest);
      const double normalizer = greatest + std::log(sum);
      std::vector<Extension> own;
      own.reserve(row.size());
      for (size_t id = 0; id < row.size(); ++id) {
        own.push_back({beams_[beam].score + static_cast<double>(row[id]) - normalizer, beam, static_cast<TokenId>(id)});
      }
      const size_t kept = std::min(count, own.size());
      std::partial_sort(own.begin(), own.begin() + static_cast<std::ptrdiff_t>(kept), own.end());
      all.insert(all.end(), own.begin(), own.begin() + static_cast<std::ptrdiff_t>(kept));
    }
    std::sort(all.begin(), all.end());
    all.resize(std::min(count, all.size()));
    return all;
  }

  double final_score(double sum, int64_t length) const {
    return sum / std::pow(static_cast<double>(length), options_.length_penalty);
  }

  /// Adds a finished answer. Keeps the `beams` best ones, best first.
  void finish(const Beam& beam, int64_t length, Finish why) {
    const BeamAnswer answer{beam.ids, final_score(beam.score, std::max<int64_t>(length, 1)), why};
    const auto place = std::ranges::find_if(answers_, [&](const BeamAnswer& a) { return a.score < answer.score; });
    answers_.insert(place, answer);
    if (answers_.size() > static_cast<size_t>(options_.beams)) answers_.pop_back();
  }

  bool is_done(double best_sum, int64_t length) const {
    if (answers_.size() < static_cast<size_t>(options_.beams)) return false;
    if (options_.early_stopping == EarlyStopping::first) return true;
    const bool longer_is_better = options_.early_stopping == EarlyStopping::never && options_.length_penalty > 0;
    return answers_.back().score >= final_score(best_sum, longer_is_better ? room_ : length);
  }

  nn::Model& model_;
  const BeamOptions& options_;
  std::span<const TokenId> source_;  // input of the encoder; empty: no encoder
  std::vector<TokenId> prompt_;      // first tokens of the decoder
  int64_t room_;
  int64_t vocab_;
  nn::ModelCache cache_;
  std::vector<Beam> beams_;       // open beams, best first
  std::vector<int64_t> sources_;  // cache row that each beam continues
  std::vector<BeamAnswer> answers_;
  bool done_ = false;
};

}  // namespace

void cap_logits(std::span<float> logits, double cap) {
  for (float& logit : logits) logit = static_cast<float>(cap * std::tanh(static_cast<double>(logit) / cap));
}

std::vector<BeamAnswer> beam_search(nn::Model& model, std::span<const TokenId> prompt, const BeamOptions& options) {
  LAMINA_CHECK(options.beams > 0 && options.beams <= 4096, "generate: ", options.beams, " beams; expected 1 to 4096");
  LAMINA_CHECK(options.answers > 0 && options.answers <= options.beams, "generate: ", options.answers, " answers of ",
               options.beams, " beams; expected 1 to the number of beams");
  LAMINA_CHECK(std::isfinite(options.length_penalty), "generate: a length penalty of ", options.length_penalty,
               "; expected a number");
  LAMINA_CHECK(options.logit_cap >= 0, "generate: a logit cap of ", options.logit_cap,
               "; expected a positive number, or 0 for none");
  LAMINA_CHECK(options.max_tokens > 0, "generate: ", options.max_tokens, " tokens asked for; expected at least one");
  LAMINA_CHECK(!prompt.empty(), "generate: the prompt has no tokens; give some text");
  const int64_t context = options.context > 0 ? options.context : model.spec().context;
  LAMINA_CHECK(static_cast<int64_t>(prompt.size()) < context, "generate: the prompt has ", prompt.size(),
               " tokens, the context is ", context, "; shorten the prompt, or give a longer context");
  for (const TokenId id : prompt) {
    LAMINA_CHECK(id >= 0 && id < model.spec().vocab_size, "generate: the prompt holds token ", id, ", the model has ",
                 model.spec().vocab_size, "; give the tokenizer that the model was trained with");
  }
  return BeamSearch(model, prompt, options).run();
}

}  // namespace lamina::infer
