#pragma once

#include "lamina/serve/api/fields.h"
#include "lamina/serve/api/served_model.h"
#include "lamina/serve/api/worker_pool.h"
#include "lamina/serve/http/exchange.h"

namespace lamina::serve {

/// POST /v1/inspect: predictions, attention maps and norms of a prompt. `other` is the model to compare with, or null.
/// A worker writes the response. Throws ApiError and QueueFull.
void run_inspect(const Json& body, const std::shared_ptr<Exchange>& exchange, const std::shared_ptr<ServedModel>& model,
                 const std::shared_ptr<ServedModel>& other, const PostToWorker& post);

}  // namespace lamina::serve
