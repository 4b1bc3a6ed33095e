#include "lamina/infer/generator.h"

#include <algorithm>
#include <numeric>

#include "lamina/infer/device_steps.h"

namespace lamina::infer {
namespace {

using text::TokenId;

/// A prompt in progress.
struct Row {
  size_t index;              ///< index of the prompt
  std::vector<TokenId> ids;  ///< prompt and answer so far
  Sampler sampler;
  Generation answer;
};

/// If padding would enlarge the batch by more than this factor, prompts are read one by one.
constexpr double kPaddingWorth = 1.25;

void check_prompt(const std::vector<TokenId>& ids, size_t index, int64_t vocab, int64_t context) {
  LAMINA_CHECK(!ids.empty(), "generate: prompt ", index,
               " has no tokens; give some text, or a tokenizer that begins with a token of its own");
  for (const TokenId id : ids) {
    LAMINA_CHECK(id >= 0 && id < vocab, "generate: prompt ", index, " holds token ", id, ", the model has ", vocab,
                 "; give the tokenizer that the model was trained with");
  }
  LAMINA_CHECK(static_cast<int64_t>(ids.size()) < context, "generate: prompt ", index, " has ", ids.size(),
               " tokens, the context is ", context, "; shorten the prompt, or give a longer context");
}

/// The rows that advance together.
class Batch {
 public:
  Batch(nn::Model& model, std::vector<Row> rows, const GenerateOptions& options, const OnToken& on_token,
        int64_t context)
      : model_(model), rows_(std::move(rows)), options_(options), on_token_(on_token), context_(context) {}

  /// Reads the ids of each row that are not yet in the KV cache, then generates until all rows have ended.
  std::vector<Row> run(nn::ModelCache* cache) {
    if (cache != nullptr) active_.emplace(cache->rows(0, cache->batch()));
    choose(read_prompts());
    while (true) {
      leave();
      if (rows_.empty()) return std::move(ended_);
      advance();
    }
  }

 private:
  int64_t count() const { return static_cast<int64_t>(rows_.size()); }

  std::vector<float> read_prompts() {
    if (!active_) return full_forwards();
    const std::vector<int64_t> before = active_->lengths();
    std::vector<int64_t> counts;
    for (size_t i = 0; i < rows_.size(); ++i) counts.push_back(static_cast<int64_t>(rows_[i].ids.size()) - before[i]);
    const int64_t width = *std::max_element(counts.begin(), counts.end());
    const auto real = static_cast<double>(std::accumulate(counts.begin(), counts.end(), int64_t{0}));
    if (static_cast<double>(width * count()) <= kPaddingWorth * real) return read(*active_, 0, count(), counts, width);
    std::vector<float> logits;
    for (int64_t row = 0; row < count(); ++row) {
      nn::ModelCache one = active_->rows(row, 1);
      const int64_t length = counts[static_cast<size_t>(row)];
      const std::vector<float> more = read(one, row, 1, {length}, length);
      logits.insert(logits.end(), more.begin(), more.end());
    }
    return logits;
  }

  /// Reads the last counts[i] ids of rows [first, first + n), padded to `width`. Returns the last logits [n, vocab].
  std::vector<float> read(nn::ModelCache& cache, int64_t first, int64_t n, const std::vector<int64_t>& counts,
                          int64_t width) {
    std::vector<int64_t> ids(static_cast<size_t>(n * width), 0);
    for (int64_t i = 0; i < n; ++i) {
      const std::vector<TokenId>& from = rows_[static_cast<size_t>(first + i)].ids;
      std::copy(from.end() - counts[static_cast<size_t>(i)], from.end(), ids.begin() + i * width);
    }
    return model_
        .cached_logits(Tensor::from(ids, {n, width}, model_.device()), cache, {.counts = counts, .last_only = true})
        .to_vector<float>();
  }

  std::vector<float> full_forwards() {
    std::vector<float> logits;
    for (const Row& row : rows_) {
      const auto length = static_cast<int64_t>(row.ids.size());
      const std::vector<int64_t> ids(row.ids.begin(), row.ids.end());
      const Tensor all = model_.logits(Tensor::from(ids, {1, length}, model_.device()));
      const std::vector<float> last = all.slice(1, length - 1, 1).to_vector<float>();
      logits.insert(logits.end(), last.begin(), last.end());
    }
    return logits;
  }

  void advance() {
    if (!active_) return choose(full_forwards());
    if (!DeviceSteps::possible(model_, *active_)) {
      return choose(read(*active_, 0, count(), std::vector<int64_t>(rows_.size(), 1), 1));
    }
    const bool samples = rows_[0].sampler.works_on_device();
    std::vector<int64_t> last;
    for (const Row& row : rows_) last.push_back(row.ids.back());
    if (!steps_) {
      std::vector<const Sampler*> samplers;
      for (const Row& row : rows_) samplers.push_back(&row.sampler);
      steps_.emplace(model_, *active_, samples ? samplers : std::vector<const Sampler*>{});
      steps_->start(last);
    }
    if (!samples) return choose(steps_->logits(last));
    while (steps_->queued() < (can_run_ahead() ? 2 : 1)) steps_->queue();
    const std::vector<int64_t> ids = steps_->chosen();
    done_.assign(rows_.size(), false);
    for (size_t i = 0; i < rows_.size(); ++i) {
      const auto id = static_cast<TokenId>(ids[i]);
      rows_[i].sampler.took(id);
      take(i, id);
    }
  }

  /// Whether one more step may be queued before the next tokens are known. The KV cache must support truncation, to
  /// undo that step, and no row may be certain to end with the next token.
  bool can_run_ahead() const {
    return active_->can_truncate() && std::all_of(rows_.begin(), rows_.end(), [&](const Row& row) {
             return static_cast<int64_t>(row.answer.ids.size()) + 1 < options_.max_tokens &&
                    static_cast<int64_t>(row.ids.size()) + 1 < context_;
           });
  }

  /// Samples one token for every row from logits [rows, vocab], or ends the row.
  void choose(const std::vector<float>& logits) {
    const size_t vocab = logits.size() / rows_.size();
    done_.assign(rows_.size(), false);
    for (size_t i = 0; i < rows_.size(); ++i) {
      take(i, rows_[i].sampler.next(std::span(logits).subspan(i * vocab, vocab)));
    }
  }

  void take(size_t i, TokenId id) {
    Row& row = rows_[i];
    if (std::find(options_.stop_tokens.begin(), options_.stop_tokens.end(), id) != options_.stop_tokens.end()) {
      return end(i, Finish::stop_token);
    }
    row.ids.push_back(id);
    row.answer.ids.push_back(id);
    if (on_token_ && !on_token_(row.index, id)) {
      end(i, Finish::asked);
    } else if (static_cast<int64_t>(row.answer.ids.size()) >= options_.max_tokens) {
      end(i, Finish::max_tokens);
    } else if (static_cast<int64_t>(row.ids.size()) >= context_) {
      end(i, Finish::context);
    }
  }

  void end(size_t row, Finish why) {
    rows_[row].answer.finish = why;
    done_[row] = true;
  }

  /// Drops the CUDA graph, which is valid only for the current rows, and undoes a step that was queued ahead.
  void forget_steps() {
    if (!steps_) return;
    const auto ahead = static_cast<int64_t>(steps_->queued());
    const std::vector<int64_t> lengths = active_->lengths();
    for (int64_t row = 0; row < count(); ++row) active_->truncate(row, lengths[static_cast<size_t>(row)] - ahead);
    steps_.reset();
  }

  /// Removes finished rows. The last row takes the place of each, so that only one row moves.
  void leave() {
    if (std::find(done_.begin(), done_.end(), true) != done_.end()) forget_steps();
    for (size_t i = rows_.size(); i-- > 0;) {
      if (!done_[i]) continue;
      const size_t last = rows_.size() - 1;
      if (i != last) {
        if (active_) {
          std::vector<int64_t> sources(rows_.size());
          std::iota(sources.begin(), sources.end(), int64_t{0});
          sources[i] = static_cast<int64_t>(last);
          active_->reorder(sources);
        }
        std::swap(rows_[i], rows_[last]);
      }
      ended_.push_back(std::move(rows_.back()));
      rows_.pop_back();
      if (active_ && !rows_.empty()) active_.emplace(active_->rows(0, count()));
    }
  }

  nn::Model& model_;
  std::vector<Row> rows_;
  const GenerateOptions& options_;
  const OnToken& on_token_;
  int64_t context_;
  std::optional<nn::ModelCache> active_;  ///< the KV cache of rows_, in their order
  std::optional<DeviceSteps> steps_;      ///< graph decoding over active_, on a GPU that supports it
  std::vector<bool> done_;
  std::vector<Row> ended_;
};

void check_options(const GenerateOptions& options) {
  LAMINA_CHECK(options.max_tokens > 0, "generate: ", options.max_tokens, " tokens asked for; expected at least one");
  LAMINA_CHECK(options.context >= 0, "generate: a context of ", options.context,
               " tokens; expected a positive number, or 0 for the model's own");
}

int64_t context_of(const nn::Model& model, int64_t given) { return given > 0 ? given : model.spec().context; }

}  // namespace

std::vector<Generation> generate(nn::Model& model, const std::vector<std::vector<TokenId>>& prompts,
                                 const GenerateOptions& options, const OnToken& on_token) {
  check_options(options);
  if (prompts.empty()) return {};
  const int64_t context = context_of(model, options.context);
  std::vector<Row> rows;
  int64_t longest = 0;
  for (size_t i = 0; i < prompts.size(); ++i) {
    check_prompt(prompts[i], i, model.spec().vocab_size, context);
    rows.push_back({i, prompts[i], Sampler(options.sampler, i), {}});
    rows.back().sampler.see_prompt(prompts[i]);
    longest = std::max(longest, static_cast<int64_t>(prompts[i].size()));
  }
  std::optional<nn::ModelCache> cache;
  if (options.cache) {
    const int64_t capacity = std::min(context, longest + std::min(options.max_tokens, context));
    cache.emplace(model.make_cache(static_cast<int64_t>(prompts.size()), capacity, options.cache_dtype));
  }
  std::vector<Generation> answers(prompts.size());
  Batch batch(model, std::move(rows), options, on_token, context);
  for (Row& row : batch.run(cache ? &*cache : nullptr)) answers[row.index] = std::move(row.answer);
  return answers;
}

Session::Session(nn::Model& model, int64_t context, std::optional<DType> cache_dtype)
    : model_(model), cache_(model.make_cache(1, context_of(model, context), cache_dtype)) {}

Generation Session::turn(std::span<const TokenId> ids, const GenerateOptions& options, const OnToken& on_token) {
  check_options(options);
  std::vector<TokenId> all = ids_;
  all.insert(all.end(), ids.begin(), ids.end());
  LAMINA_CHECK(!ids.empty() || static_cast<int64_t>(all.size()) > cache_.lengths()[0],
               "generate: nothing new to read; give some text");
  check_prompt(all, 0, model_.spec().vocab_size, context());
  std::vector<Row> rows;
  rows.push_back({0, std::move(all), Sampler(options.sampler, turns_++), {}});
  rows[0].sampler.see_prompt(rows[0].ids);
  Batch batch(model_, std::move(rows), options, on_token, context());
  Row row = std::move(batch.run(&cache_).front());
  ids_ = std::move(row.ids);
  return std::move(row.answer);
}

void Session::clear() {
  cache_.reset(0);
  ids_.clear();
}

}  // namespace lamina::infer
