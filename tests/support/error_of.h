#pragma once

#include <gtest/gtest.h>

#include <string>

#include "lamina/base/error.h"

namespace lamina::testing {

/// Message of the Error that body() throws; empty if it throws none.
template <class F>
std::string error_of(const F& body) {
  try {
    body();
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

/// Expects body() to throw an Error whose message contains `part`.
template <class F>
void expect_error(const F& body, const std::string& part) {
  const std::string message = error_of(body);
  EXPECT_TRUE(!message.empty() && message.find(part) != std::string::npos)
      << "expected \"" << part << "\", the message is: " << message;
}

}  // namespace lamina::testing
