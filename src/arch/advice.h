#pragma once

#include <string>
#include <vector>

#include "lamina/arch/spec.h"

namespace lamina::arch {

/// One rule of thumb applied to an architecture.
struct Advice {
  enum class Verdict { usual, look };  ///< look: outside the usual range, which may be on purpose
  Verdict verdict = Verdict::usual;
  std::string subject;  ///< for example "feed-forward ratio"
  std::string found;    ///< for example "d_ff/d_model = 2.67"
  std::string reason;   ///< the rule and its reason
};

/// Rules of thumb for the shape of a resolved architecture.
std::vector<Advice> advise(const ArchSpec& spec);

}  // namespace lamina::arch
