#include "lamina/serve/api/failure.h"

#include "lamina/infer/engine/request.h"
#include "lamina/serve/api/fields.h"
#include "lamina/serve/http/policy.h"

namespace lamina::serve {

HttpResponse failure_response(const std::exception_ptr& exception) {
  try {
    std::rethrow_exception(exception);
  } catch (const ApiError& error) {
    return error_response(error.status(), error.what(), error.param(), error.code());
  } catch (const infer::QueueFull& error) {
    return error_response(429, error.what(), "", "queue_full");
  } catch (const Error& error) {  // the engine rejected the request, for example because the prompt exceeds the context
    return error_response(400, error.what());
  } catch (const std::exception& error) {
    return error_response(500, str("internal error, please report it: ", error.what()));
  }
}

}  // namespace lamina::serve
