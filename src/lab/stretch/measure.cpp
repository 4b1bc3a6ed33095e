#include "lamina/lab/stretch/measure.h"

#include <algorithm>
#include <filesystem>
#include <memory>

#include "lamina/arch/reach.h"
#include "lamina/base/files.h"
#include "lamina/data/sha256.h"
#include "lamina/io/model_file.h"
#include "lamina/lab/run/format.h"
#include "lamina/lab/run/json_values.h"

namespace lamina::lab {
namespace {

using Clock = std::chrono::steady_clock;
constexpr size_t kKeyDigits = 16;

std::string row_json(const StretchRow& row) {
  Json passkey = Json::array();
  for (const auto& numbers : row.passkey) passkey.push_back(list_json(numbers));
  return Json{{"side_by_side", list_json(row.non_overlapping)},
              {"sliding", list_json(row.sliding)},
              {"passkey", passkey},
              {"cannot", row.cannot},
              {"passkey_cannot", row.passkey_cannot}}
             .dump(1) +
         "\n";
}

std::vector<std::optional<double>> numbers_of(const Json& list) {
  std::vector<std::optional<double>> numbers;
  for (const Json& number : list) {
    numbers.push_back(number.is_null() ? std::nullopt : std::optional(number.get<double>()));
  }
  return numbers;
}

/// Reads a cached row. Returns false if the file is missing or invalid.
bool read_row(const std::string& path, StretchRow& row) {
  if (!path_exists(path)) return false;
  try {
    const Json json = try_parse_json<Json>(read_text(path)).value_or(Json());
    row.non_overlapping = numbers_of(json.at("side_by_side"));
    row.sliding = numbers_of(json.at("sliding"));
    for (const Json& numbers : json.at("passkey")) row.passkey.push_back(numbers_of(numbers));
    row.cannot = json.at("cannot").get<std::string>();
    row.passkey_cannot = json.at("passkey_cannot").get<std::string>();
  } catch (const Json::exception&) {
    return false;
  }
  return true;
}

/// A checkpoint, and the models that read it at each length.
class Checkpoint {
 public:
  Checkpoint(const std::string& path, const ScalingKind* scaling, int64_t trained_length, const Device& device)
      : checkpoint_(io::read_model(path, device)), scaling_(scaling), trained_length_(trained_length) {}

  /// The reason why this length cannot be read. Empty if it can.
  std::string cannot(int64_t length) const {
    const std::optional<int64_t> longest = arch::longest_sequence(checkpoint_.spec);
    return longest && *longest < length ? str("learned positions end at ", *longest) : "";
  }
  std::unique_ptr<nn::Model> at(int64_t length) const {
    const double factor = static_cast<double>(length) / static_cast<double>(trained_length_);
    auto model = std::make_unique<nn::Model>(
        scaling_ == nullptr ? checkpoint_.spec : with_scaling(checkpoint_.spec, scaling_->at(factor, trained_length_)),
        Device::meta());
    model->adopt_state_dict(checkpoint_.tensors);
    return model;
  }

 private:
  io::Checkpoint checkpoint_;
  const ScalingKind* scaling_;
  int64_t trained_length_;
};

class LengthMeter {
 public:
  LengthMeter(const std::vector<MeasuredModel>& models, const MeasureContext& context, StretchResult& result)
      : models_(models), context_(context), result_(result) {
    for (const MeasuredModel& model : models) work_left_ += work_of(model);
  }

  bool run() {
    for (const MeasuredModel& model : models_) {
      StretchRow row;
      row.variant = model.variant;
      const std::string file = cache_file(model);
      if (read_row(file, row)) {
        work_left_ -= work_of(model);
      } else {
        if (!measure(model, row)) return false;
        if (!row.failed) write_text(file, row_json(row));
        if (context_.watcher.on_stage) context_.watcher.on_stage(summary(model, row));
      }
      result_.rows.push_back(std::move(row));
    }
    return true;
  }

 private:
  double text_work(const MeasuredModel& model) const {
    constexpr double kReadings = 1 + 4;  // sliding windows process each token four times
    return kReadings * model.text_flops * static_cast<double>(result_.tokens);
  }
  double passkey_work(const MeasuredModel& model, int64_t length) const {
    return model.passkey_flops * static_cast<double>(length * context_.settings.examples * context_.settings.depths);
  }
  double work_of(const MeasuredModel& model) const {
    double work = 0;
    for (const int64_t length : result_.lengths) work += text_work(model) + passkey_work(model, length);
    return work;
  }

  std::string cache_file(const MeasuredModel& model) const {
    const StretchSettings& settings = context_.settings;
    const std::string key =
        data::sha256_hex(str(model.id, " ", result_.trained_length, " ", settings.times, " ", result_.tokens, " ",
                             settings.passkey, " ", settings.examples, " ", settings.depths));
    return (std::filesystem::path(context_.cache) / (model.variant + "-" + key.substr(0, kKeyDigits) + ".json"))
        .string();
  }

  bool stopped() const { return context_.watcher.stop && context_.watcher.stop(); }

  void report(const std::string& title) const {
    if (!context_.watcher.on_progress) return;
    StudyProgress progress{.done = result_.rows.size(), .all = models_.size(), .seconds_left = {}, .active = {}};
    const double seconds = std::chrono::duration<double>(Clock::now() - start_).count();
    if (work_done_ > 0) progress.seconds_left = seconds * work_left_ / work_done_;
    progress.active.push_back({.title = title, .step = {}, .steps = {}, .loss = {}});
    context_.watcher.on_progress(progress);
  }
  void did(double work) {
    work_done_ += work;
    work_left_ -= work;
  }

  /// Measures a row. Returns false if stopped. An Error of a training or a measurement is stored in the row.
  bool measure(const MeasuredModel& model, StretchRow& row) {
    bool whole = true;
    try {
      LAMINA_CHECK(model.text_failed.empty(), model.text_failed);
      whole = measure_text(model, row);
    } catch (const Error& error) {
      row.failed = true;
      row.cannot = error.what();
      row.non_overlapping.resize(result_.lengths.size());
      row.sliding.resize(result_.lengths.size());
    }
    try {
      LAMINA_CHECK(model.passkey_failed.empty(), model.passkey_failed);
      if (whole && !model.passkey_model.empty()) whole = measure_passkeys(model, row);
    } catch (const Error& error) {
      row.failed = true;
      row.passkey_cannot = error.what();
      row.passkey.clear();
    }
    return whole;
  }

  bool measure_text(const MeasuredModel& model, StretchRow& row) {
    const Checkpoint checkpoint(model.text_model, model.scaling, result_.trained_length, context_.device);
    for (const int64_t length : result_.lengths) {
      const std::string why = checkpoint.cannot(length);
      row.non_overlapping.emplace_back();
      row.sliding.emplace_back();
      if (why.empty()) {
        report(str(model.label, ", perplexity at ", length, " tokens"));
        const std::unique_ptr<nn::Model> read = checkpoint.at(length);
        row.non_overlapping.back() = non_overlapping_perplexity(*read, context_.text, length);
        row.sliding.back() = sliding_perplexity(*read, context_.text, length);
      } else {
        row.cannot = why;
      }
      did(text_work(model));
      if (stopped()) return false;
    }
    return true;
  }

  bool measure_passkeys(const MeasuredModel& model, StretchRow& row) {
    const Checkpoint checkpoint(model.passkey_model, model.scaling, result_.trained_length, context_.device);
    for (const int64_t length : result_.lengths) {
      row.passkey.emplace_back(result_.depths.size());
      row.passkey_cannot = checkpoint.cannot(length);
      if (row.passkey_cannot.empty()) {
        report(str(model.label, ", passkeys at ", length, " tokens"));
        const std::unique_ptr<nn::Model> read = checkpoint.at(length);
        for (size_t i = 0; i < result_.depths.size(); ++i) {
          row.passkey.back()[i] =
              passkey_accuracy(*read, context_.passkeys, length, result_.depths[i], context_.settings.examples);
          if (stopped()) return false;
        }
      }
      did(passkey_work(model, length));
    }
    return true;
  }

  /// For example "3/11  RoPE, YaRN: perplexity 4.29 at 256 tokens, 6.30 at 4096".
  std::string summary(const MeasuredModel& model, const StretchRow& row) const {
    std::string text = str(result_.rows.size() + 1, "/", models_.size(), "  ", model.label, ":");
    if (!row.cannot.empty()) text += " " + row.cannot + ";";
    if (row.failed && row.cannot.empty()) text += " passkeys failed;";
    size_t longest = result_.lengths.size();
    while (longest > 0 && !row.sliding[longest - 1]) --longest;
    if (longest == 0) return text + " not measured";
    text += str(" perplexity ", fixed(*row.sliding[0], 2), " at ", result_.lengths[0], " tokens");
    if (longest == 1) return text;
    return str(text, ", ", fixed(*row.sliding[longest - 1], 2), " at ", result_.lengths[longest - 1]);
  }

  const std::vector<MeasuredModel>& models_;
  const MeasureContext& context_;
  StretchResult& result_;
  Clock::time_point start_ = Clock::now();
  double work_left_ = 0;  ///< in FLOPs
  double work_done_ = 0;  ///< FLOPs in this process
};

}  // namespace

StretchResult stretch_grid(const StretchSettings& settings, int64_t trained_length) {
  StretchResult grid;
  grid.trained_length = trained_length;
  for (int64_t factor = 1; factor <= settings.times; factor *= 2) grid.lengths.push_back(trained_length * factor);
  for (int64_t i = 0; i < settings.depths; ++i) {
    grid.depths.push_back(static_cast<double>(i) / static_cast<double>(settings.depths - 1));
  }
  const int64_t longest = grid.lengths.back();
  const int64_t wanted = settings.tokens > 0 ? settings.tokens : 4 * longest;
  grid.tokens = std::max<int64_t>(1, wanted / longest) * longest;
  return grid;
}

bool measure_lengths(const std::vector<MeasuredModel>& models, const MeasureContext& context, StretchResult& result) {
  return LengthMeter(models, context, result).run();
}

}  // namespace lamina::lab
