#pragma once

#include "lamina/infer/engine/engine.h"

namespace lamina::infer {

/// Throws an Error if the engine cannot serve a request. Returns the maximum length of prompt and answer together: the
/// context, or what the cache holds if that is less.
int64_t check_request(const Request& request, const CacheShape& shape, const EngineOptions& options);

}  // namespace lamina::infer
