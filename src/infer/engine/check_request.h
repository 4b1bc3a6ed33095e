#pragma once

#include "lamina/infer/engine/engine.h"

namespace lamina::infer {

/// Throws Error if the engine cannot serve a request. Returns the maximum number of tokens of prompt and answer: the
/// context, or less if the cache holds less.
int64_t check_request(const Request& request, const CacheShape& shape, const EngineOptions& options);

}  // namespace lamina::infer
