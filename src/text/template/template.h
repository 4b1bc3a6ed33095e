#pragma once

#include <ctime>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <string_view>

#include "lamina/base/error.h"
#include "lamina/text/template/interpreter.h"

namespace lamina::text::jinja {

inline constexpr size_t kMaxTemplateSize = size_t{1} << 20;

/// Thrown if a template cannot be parsed or rendered. The message gives the template's name and the line.
class TemplateError : public Error {
 public:
  TemplateError(const std::string& message, size_t line, bool raised) : Error(message), line_(line), raised_(raised) {}
  size_t line() const { return line_; }
  /// Whether the template called raise_exception because it does not accept this conversation.
  bool raised() const { return raised_; }

 private:
  size_t line_;
  bool raised_;
};

/// Options of a rendering.
struct RenderOptions {
  Limits limits;
  std::optional<std::tm> now;  ///< time that strftime_now formats; unset: the system's local time
};

/// A parsed Jinja template, in the dialect of transformers: jinja2 with trim_blocks, lstrip_blocks, loop controls and
/// the immutable sandbox. Immutable: threads share one without locks.
class Template {
 public:
  /// `name` is the template's name in messages. Throws TemplateError.
  static Template parse(std::string_view source, const std::string& name);

  /// `variables` must be a JSON object. Throws TemplateError.
  std::string render(const nlohmann::ordered_json& variables, const RenderOptions& options = {}) const;

 private:
  Template(std::string name, Block block)
      : name_(std::move(name)), block_(std::make_shared<const Block>(std::move(block))) {}

  std::string name_;
  std::shared_ptr<const Block> block_;
};

}  // namespace lamina::text::jinja
