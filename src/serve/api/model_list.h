#pragma once

#include "lamina/serve/api/fields.h"
#include "lamina/serve/api/served_model.h"

namespace lamina::serve {

/// An entry of GET /v1/models.
Json describe_model(const ServedModel& model);
/// GET /v1/models/ID/architecture: block diagram, specification and parameter counts. Throws ApiError.
Json describe_architecture(const ServedModel& model);
/// GET /v1/scheduler: queue and row counts of every model's engine. They reveal no texts and no clients.
Json describe_scheduler(const std::vector<std::shared_ptr<ServedModel>>& models);

}  // namespace lamina::serve
