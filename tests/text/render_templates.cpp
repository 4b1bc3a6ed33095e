// Renders templates for tests/text/check_templates: each line of standard input is a JSON object with "source",
// "variables" and perhaps "now" (seconds since 1970, UTC); each line of standard output is {"text": …} or
// {"error": …, "raised": …}.
#include <ctime>
#include <iostream>
#include <nlohmann/json.hpp>
#include <string>

#include "lamina/base/json.h"
#include "lamina/text/template/template.h"

namespace {

using nlohmann::ordered_json;
namespace jinja = lamina::text::jinja;

ordered_json rendered(const ordered_json& request) {
  jinja::RenderOptions options;
  if (request.contains("now")) {
    const auto seconds = request["now"].get<std::time_t>();
    options.now.emplace();
    gmtime_r(&seconds, &*options.now);
  }
  try {
    const auto parsed = jinja::Template::parse(request["source"].get<std::string>(), "template");
    return {{"text", parsed.render(request["variables"], options)}};
  } catch (const jinja::TemplateError& error) {
    return {{"error", error.what()}, {"raised", error.raised()}};
  }
}

}  // namespace

int main() {
  for (std::string line; std::getline(std::cin, line);) {
    std::cout << rendered(lamina::parse_json<ordered_json>(line, "standard input")).dump() << "\n";
  }
}
