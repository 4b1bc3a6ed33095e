#pragma once

#include "lamina/serve/api/answer_job.h"
#include "lamina/serve/api/response_store.h"

namespace lamina::serve {

/// POST /v1/responses: generates an answer to `input`; a stored conversation may precede it. Throws ApiError and
/// QueueFull.
void run_response(const Json& body, const std::shared_ptr<Exchange>& exchange,
                  const std::shared_ptr<ServedModel>& model, Metrics& metrics,
                  const std::shared_ptr<ResponseStore>& store);

/// A response by its id. Throws ApiError 404.
StoredResponse stored_response(const std::string& id, const ResponseStore& store);
/// POST /v1/responses/ID/cancel: ends a response in progress and returns it. Throws ApiError.
Json cancel_response(const std::string& id, ResponseStore& store);

}  // namespace lamina::serve
