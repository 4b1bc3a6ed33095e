#include "lamina/train/run_log.h"

#include <cmath>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <optional>

#include "lamina/base/error.h"
#include "lamina/base/files.h"
#include "lamina/base/json.h"

namespace lamina::train {
namespace {

namespace fs = std::filesystem;
std::optional<double> number(const nlohmann::json& row, const char* key) {
  const auto found = row.find(key);
  if (found == row.end() || !found->is_number()) return {};
  const double value = found->get<double>();
  return std::isfinite(value) ? std::optional(value) : std::nullopt;
}

void add(std::vector<RunPoint>& points, const RunPoint& point) {
  while (!points.empty() && points.back().step >= point.step) points.pop_back();
  points.push_back(point);
}

void add_row(const nlohmann::json& row, RunLog& log, RunPoint& last) {
  last.step = *number(row, "step");
  last.tokens = number(row, "tokens").value_or(last.tokens);
  last.seconds = number(row, "seconds").value_or(last.seconds);
  const auto add_loss = [&](const char* key, std::vector<RunPoint>& points) {
    const std::optional<double> loss = number(row, key);
    if (!loss) return;
    RunPoint point = last;
    point.loss = *loss;
    add(points, point);
  };
  add_loss("loss", log.train);
  add_loss("validation_loss", log.validation);
  add_loss("val_loss", log.validation);
}

}  // namespace

RunLog parse_run_log(const std::string& text, const std::string& name) {
  RunLog log;
  log.name = name;
  RunPoint last;
  size_t line = 1;
  for (size_t at = 0; at < text.size(); ++line) {
    const size_t end = text.find('\n', at);
    const std::string_view row_text = std::string_view(text).substr(at, end - at);
    const auto row = try_parse_json<nlohmann::json>(row_text).value_or(nlohmann::json());
    const bool whole = row.is_object() && number(row, "step").has_value();
    if (end == std::string::npos && !whole) break;
    LAMINA_CHECK(whole, name, ":", line, ": is not a line of a run's log; expected {\"step\": …, \"loss\": …}");
    add_row(row, log, last);
    at = end == std::string::npos ? text.size() : end + 1;
  }
  LAMINA_CHECK(!log.train.empty() || !log.validation.empty(), name,
               ": holds no loss yet; expected lines {\"step\": …, \"loss\": …}");
  return log;
}

RunLog read_run_log(const std::string& path) {
  std::error_code error;
  const bool folder = fs::is_directory(path, error);
  const fs::path file = folder ? fs::path(path) / "log.jsonl" : fs::path(path);
  LAMINA_CHECK(fs::is_regular_file(file, error), file.string(),
               ": does not exist; expected a run's folder as `lamina train` leaves it, or its log.jsonl");
  RunLog log = parse_run_log(read_text(file.string()), file.string());
  const fs::path shown = folder ? fs::path(path) : file;
  log.name = (shown.has_filename() ? shown.filename() : shown.parent_path().filename()).string();
  return log;
}

}  // namespace lamina::train
