#pragma once

#include <string>
#include <vector>

#include "lamina/arch/spec.h"

namespace lamina::arch {

/// One rule of thumb, held against an architecture.
struct Advice {
  enum class Verdict { usual, look };  ///< look: outside the usual range, which may be meant
  Verdict verdict = Verdict::usual;
  std::string subject;  ///< "feed-forward ratio"
  std::string found;    ///< "d_ff/d_model = 2.67"
  std::string reason;   ///< the rule, and why
};

/// What experience says about a resolved architecture's shape.
std::vector<Advice> advise(const ArchSpec& spec);

}  // namespace lamina::arch
