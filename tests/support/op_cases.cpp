#include "support/op_case.h"

namespace lamina::testing {

std::vector<OpCase>& op_cases() {
  static std::vector<OpCase> cases;
  return cases;
}

}  // namespace lamina::testing
