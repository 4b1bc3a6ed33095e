#pragma once

#include <functional>
#include <string>

#include "lamina/text/json_document.h"

namespace lamina::text {

// Shared by the readers of the sections of a tokenizer.json. `name` names the file and section in messages.

/// Calls body for the node, or for each node of a "Sequence" (whose list has the key `list`).
void for_each_step(const json& node, const char* list, const std::string& name,
                   const std::function<void(const json&, const std::string& type)>& body);

[[noreturn]] void not_understood(const std::string& name, const std::string& type);

/// The pattern {"String": …} or {"Regex": …} of a step.
struct StepPattern {
  std::string text;
  bool literal = false;
};
StepPattern pattern_of(const json& node, const std::string& name);

}  // namespace lamina::text
