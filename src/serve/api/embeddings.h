#pragma once

#include "lamina/serve/api/fields.h"
#include "lamina/serve/api/served_model.h"
#include "lamina/serve/http/exchange.h"

namespace lamina::serve {

/// POST /v1/embeddings: the mean of the final hidden states, divided by its Euclidean norm. Throws ApiError and
/// QueueFull.
void run_embeddings(const Json& body, const std::shared_ptr<Exchange>& exchange,
                    const std::shared_ptr<ServedModel>& model);

}  // namespace lamina::serve
