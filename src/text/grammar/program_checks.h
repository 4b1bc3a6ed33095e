#pragma once

#include <string>

#include "lamina/text/grammar/program.h"

namespace lamina::text::grammar {

/// Removes edges into states from which the end of the rule cannot be reached. Returns false if the root has no other.
bool remove_dead_ends(Program& program);

/// Throws an Error that names the cycle if a rule can call itself before it reads a byte.
void check_left_recursion(const Program& program, const std::string& name);

/// Fills byte_class and n_classes.
void find_byte_classes(Program& program);

}  // namespace lamina::text::grammar
