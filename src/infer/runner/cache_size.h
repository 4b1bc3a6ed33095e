#pragma once

#include "lamina/infer/runner/model_runner.h"

namespace lamina::infer {

/// Number of recent tokens whose pages a sequence must keep; 0: all. A model that recomputes its cache when its RoPE
/// frequencies change writes every token again. So it keeps all pages, even if its attention has a window.
int64_t kept_window(const nn::Model& model, const nn::SequenceCache& cache, int64_t group);

/// Divides options.cache_bytes among the page groups and states of a model. All groups that see every token hold the
/// same number of tokens. The group of a window holds at most what all rows can use. Ranks that hold a model together
/// agree on the smallest numbers among them. Throws an Error if not even one sequence of one page fits.
nn::SequenceCacheOptions size_caches(const nn::Model& model, const ModelRunnerOptions& options);

/// The caches of a model, with the sizes of size_caches(). On a GPU unused pages are cleared: tensor cores multiply
/// whole tiles, so a masked key has weight 0, but its value must not be NaN. The CPU does not read unused memory, and
/// clearing would make it resident.
std::unique_ptr<nn::SequenceCache> make_caches(const nn::Model& model, const ModelRunnerOptions& options);

/// Fills in the data types that a GPU's tensor cores need, and the model's context. Throws an Error if the engine
/// cannot run the model.
ModelRunnerOptions checked_options(ModelRunnerOptions options, const nn::Model& model);

}  // namespace lamina::infer
