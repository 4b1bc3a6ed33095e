#include "lamina/infer/engine/request.h"

namespace lamina::infer {

std::string_view name_of(Finish finish) {
  switch (finish) {
    case Finish::max_tokens: return "max_tokens";
    case Finish::stop_token: return "stop_token";
    case Finish::context: return "context";
    case Finish::asked: return "asked";
    case Finish::stop_string: return "stop_string";
    case Finish::cancelled: return "cancelled";
    case Finish::deadline: return "deadline";
    case Finish::error: break;
  }
  return "error";
}

}  // namespace lamina::infer
