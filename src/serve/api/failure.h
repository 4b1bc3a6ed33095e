#pragma once

#include <exception>

#include "lamina/serve/http/exchange.h"

namespace lamina::serve {

/// The response for an exception: ApiError its own status, QueueFull 429, other Errors 400, anything else 500.
HttpResponse failure_response(const std::exception_ptr& exception);

}  // namespace lamina::serve
