#pragma once

#include <functional>
#include <string>

#include "lamina/text/json_document.h"

namespace lamina::text {

// Shared by the readers of tokenizer.json sections. `name` is the name of the file and section in messages.

/// Calls `body` for the node or, if it is a "Sequence", for each node in its list `list`.
void for_each_step(const json& node, const char* list, const std::string& name,
                   const std::function<void(const json&, const std::string& type)>& body);

[[noreturn]] void not_understood(const std::string& name, const std::string& type);

/// The pattern of a step: {"String": …} or {"Regex": …}.
struct StepPattern {
  std::string text;
  bool literal = false;
};
StepPattern pattern_of(const json& node, const std::string& name);

}  // namespace lamina::text
