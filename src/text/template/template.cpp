#include "lamina/text/template/template.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "lamina/text/template/lexer.h"
#include "lamina/text/template/parser.h"
#include "lamina/text/utf8.h"

namespace lamina::text::jinja {
namespace {

[[noreturn]] void fail_at(const std::string& name, size_t line, const std::string& message, bool raised = false) {
  throw TemplateError(str(name, ": line ", line, ": ", message), line, raised);
}

std::tm local_time() {
  const std::time_t seconds = std::time(nullptr);
  std::tm now{};
  localtime_r(&seconds, &now);
  return now;
}

}  // namespace

Template Template::parse(std::string_view source, const std::string& name) {
  if (source.size() > kMaxTemplateSize) {
    fail_at(name, 1, str("the template has ", source.size(), " bytes; expected at most ", kMaxTemplateSize));
  }
  const size_t valid = valid_prefix(source);
  if (valid != source.size()) {
    const auto line = 1 + std::count(source.begin(), source.begin() + static_cast<std::ptrdiff_t>(valid), '\n');
    fail_at(name, static_cast<size_t>(line), "the template is not UTF-8");
  }
  try {
    return {name, Parser(tokenize(source)).parse()};
  } catch (const SyntaxError& error) {
    fail_at(name, error.line(), error.what());
  }
}

std::string Template::render(const nlohmann::ordered_json& variables, const RenderOptions& options) const {
  if (!variables.is_object()) fail_at(name_, 1, "the variables must be a JSON object");
  Interpreter interpreter(options.limits, options.now ? *options.now : local_time());
  try {
    Interpreter::Variables values;
    for (const auto& [key, value] : variables.items()) values.emplace_back(key, Value::from_json(value));
    return interpreter.run(*block_, values);
  } catch (const Raised& raised) {
    fail_at(name_, interpreter.line(), raised.what(), true);
  } catch (const Failure& failure) {
    fail_at(name_, interpreter.line(), failure.what());
  }
}

}  // namespace lamina::text::jinja
