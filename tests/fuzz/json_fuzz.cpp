// Any bytes as JSON: a tree or an Error. A tree is the one that the library's own parser makes, and can be copied and
// written. And any bytes as a results file and a run's log: a value or an Error.
#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>

#include "lamina/base/error.h"
#include "lamina/base/json.h"
#include "lamina/lab/report/report.h"
#include "lamina/train/run_log.h"

namespace {

template <class F>
void read_with(const F& read) {
  try {
    read();
  } catch (const lamina::Error&) {
  }
}

template <class Json>
void check_tree(const std::string& text) {
  read_with([&] {
    const Json tree = lamina::parse_json<Json>(text, "fuzz");
    if (tree != Json::parse(text)) __builtin_trap();
    if (lamina::parse_json<Json>(tree.dump(), "written") != tree) __builtin_trap();
  });
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string text(reinterpret_cast<const char*>(data), size);
  check_tree<nlohmann::json>(text);
  check_tree<nlohmann::ordered_json>(text);
  read_with([&] { lamina::lab::report_csv(text, "fuzz"); });
  read_with([&] { lamina::lab::report_text(text, "fuzz"); });
  read_with([&] { lamina::train::parse_run_log(text, "fuzz"); });
  return 0;
}
