#pragma once

#include <string>

#include "lamina/base/error.h"

namespace lamina::testing {

/// The message of the Error that body() throws; empty when it throws none.
template <class F>
std::string error_of(const F& body) {
  try {
    body();
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

}  // namespace lamina::testing
