#pragma once

#include "lamina/serve/api/fields.h"
#include "lamina/serve/api/served_model.h"
#include "lamina/serve/http/exchange.h"

namespace lamina::serve {

/// POST /v1/embeddings: vectors of texts by the recipe of the model. Throws ApiError and QueueFull.
void run_embeddings(const Json& body, const std::shared_ptr<Exchange>& exchange,
                    const std::shared_ptr<ServedModel>& model);

}  // namespace lamina::serve
