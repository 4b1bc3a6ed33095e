#pragma once

#include <list>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "lamina/infer/engine/engine_thread.h"
#include "lamina/io/hf/sentence_transformers.h"
#include "lamina/nn/model.h"
#include "lamina/serve/api/engine_events.h"
#include "lamina/text/grammar/grammar_state.h"
#include "lamina/text/template/chat_template.h"

namespace lamina::serve {

/// Generates answers: an engine on its own thread, or a fake in fuzz targets.
class Backend {
 public:
  Backend() = default;
  virtual ~Backend() = default;
  Backend(const Backend&) = delete;
  Backend& operator=(const Backend&) = delete;
  virtual infer::RequestId submit(infer::Request request, infer::Listener listener) = 0;
  virtual void cancel(infer::RequestId id) = 0;
  /// See infer::EngineThread::post.
  virtual void post(std::function<void()> task) = 0;
  virtual infer::EngineStats stats() const = 0;
  virtual std::vector<infer::RunningAnswer> running() const = 0;
  virtual const infer::CacheShape& shape() const = 0;
};

/// The backend of the server: an engine on its own thread.
class EngineBackend final : public Backend {
 public:
  /// The arguments are those of infer::Engine.
  EngineBackend(std::unique_ptr<infer::StepRunner> runner, const infer::EngineOptions& options,
                std::unique_ptr<infer::StepRunner> draft = {})
      : engine_(std::move(runner), options, std::move(draft)) {}
  infer::RequestId submit(infer::Request request, infer::Listener listener) override {
    return engine_.submit(std::move(request), std::move(listener));
  }
  void cancel(infer::RequestId id) override { engine_.cancel(id); }
  void post(std::function<void()> task) override { engine_.post(std::move(task)); }
  infer::EngineStats stats() const override { return engine_.stats(); }
  std::vector<infer::RunningAnswer> running() const override { return engine_.running(); }
  const infer::CacheShape& shape() const override { return engine_.shape(); }

 private:
  infer::EngineThread engine_;
};

/// A model that the server offers. Several threads use it at once; a mutex protects the grammar cache.
class ServedModel {
 public:
  std::string id;
  int64_t created = 0;  ///< Unix time of loading
  std::vector<text::TokenId> stop_tokens;
  const text::Tokenizer* tokenizer = nullptr;  ///< null: prompts must be token ids
  std::optional<text::ChatTemplate> chat_template;
  bool template_has_bos = true;       ///< false if the template is a default, which does not write BOS
  bool has_own_template = true;       ///< false: chat_template is a default, the model was not trained with one
  std::string fingerprint;            ///< hash of architecture, weights and tokenizer; see infer::model_fingerprint
  std::string tokenizer_fingerprint;  ///< empty without a tokenizer
  io::VectorRecipe vectors;           ///< how texts become vectors; by default the normalized mean
  /// May be used only between two engine steps (Backend::post), and only if runs_tasks(). Null for a backend without a
  /// model.
  nn::Model* model = nullptr;
  std::shared_ptr<void> weights;         ///< owns the tokenizer, the model and everything the backend refers to
  std::shared_ptr<EngineEvents> events;  ///< observer of the backend's engine; null: no events are collected
  std::shared_ptr<Backend> backend;

  /// Whether a task may call the model. If several processes share the model, only the engine may.
  bool runs_tasks() const { return model != nullptr && !model->parallel(); }
  /// Ends an error message: why this model does not run tasks.
  std::string why_no_tasks() const;

  /// The token mask at the start of a text under a grammar. `key` identifies the grammar; recently used grammars stay
  /// compiled.
  std::shared_ptr<const infer::TokenMask> mask(const std::string& key, const std::function<text::Grammar()>& compile);

 private:
  void drop_old_grammars();

  std::mutex mutex_;
  std::shared_ptr<const text::VocabularyIndex> vocabulary_;
  std::list<std::pair<std::string, std::shared_ptr<text::TokenGrammar>>> grammars_;  ///< most recent first
};

}  // namespace lamina::serve
