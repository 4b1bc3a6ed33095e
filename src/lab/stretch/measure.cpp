#include <algorithm>
#include <cmath>
#include <filesystem>
#include <memory>

#include "lamina/arch/reach.h"
#include "lamina/base/files.h"
#include "lamina/data/sha256.h"
#include "lamina/io/model_file.h"
#include "lamina/lab/run/json_values.h"
#include "lamina/lab/stretch/stretch_work.h"

namespace lamina::lab {
namespace {

using Numbers = std::vector<std::optional<double>>;
constexpr size_t kKeyDigits = 16;

Json to_json(const Numbers& numbers) {
  Json list = Json::array();
  for (const auto& number : numbers) list.push_back(or_null(number));
  return list;
}
Numbers from_json(const Json& list) {
  Numbers numbers;
  for (const Json& number : list) {
    numbers.push_back(number.is_null() ? std::nullopt : std::optional(number.get<double>()));
  }
  return numbers;
}

std::string write_measured(const StretchRow& row) {
  Json passkey = Json::array();
  for (const Numbers& numbers : row.passkey) passkey.push_back(to_json(numbers));
  return Json{{"side_by_side", to_json(row.side_by_side)},
              {"sliding", to_json(row.sliding)},
              {"passkey", passkey},
              {"cannot", row.cannot},
              {"passkey_cannot", row.passkey_cannot}}
             .dump(1) +
         "\n";
}

/// Returns false if the file is missing or invalid.
bool read_measured(const std::string& path, StretchRow& row) {
  if (!path_exists(path)) return false;
  try {
    const Json json = try_parse_json<Json>(read_text(path)).value_or(Json());
    row.side_by_side = from_json(json.at("side_by_side"));
    row.sliding = from_json(json.at("sliding"));
    for (const Json& numbers : json.at("passkey")) row.passkey.push_back(from_json(numbers));
    row.cannot = json.at("cannot").get<std::string>();
    row.passkey_cannot = json.at("passkey_cannot").get<std::string>();
  } catch (const Json::exception&) {
    return false;
  }
  return true;
}

/// A checkpoint and the models that read it at each length.
class Stretched {
 public:
  Stretched(const std::string& path, const StretchPlan& plan, const StretchReading& reading)
      : checkpoint_(io::read_model(path, reading.device)), plan_(plan), reading_(reading) {}

  /// Why this length cannot be read; empty if it can.
  std::string cannot(int64_t length) const {
    const std::optional<int64_t> longest = arch::longest_sequence(checkpoint_.spec);
    return longest && *longest < length ? str("learned positions end at ", *longest) : "";
  }
  std::unique_ptr<nn::Model> at(int64_t length) const {
    auto model = std::make_unique<nn::Model>(spec_at(length), Device::meta());
    model->adopt_state_dict(checkpoint_.tensors);
    return model;
  }
  arch::ArchSpec spec_at(int64_t length) const {
    if (plan_.scaling == nullptr) return checkpoint_.spec;
    const double factor = static_cast<double>(length) / static_cast<double>(reading_.trained_length);
    return with_scaling(checkpoint_.spec, plan_.scaling->at(factor, reading_.trained_length));
  }

 private:
  io::Checkpoint checkpoint_;
  const StretchPlan& plan_;
  const StretchReading& reading_;
};

double text_work(const StretchPlan& plan, const StretchReading& reading) {
  constexpr double kReadings = 1 + 4;  // sliding windows process each token four times
  return kReadings * plan.text_flops * static_cast<double>(reading.options.tokens);
}
double passkey_work(const StretchPlan& plan, int64_t length, const StretchReading& reading) {
  return plan.passkey_flops * static_cast<double>(length * reading.options.examples * reading.options.depths);
}

void read_text_model(StretchPlan& plan, const StretchReading& reading, const ReadingText& text, StretchWork& work) {
  StretchRow& row = plan.row;
  const Stretched stretched(plan.text_model, plan, reading);
  for (const int64_t length : reading.lengths) {
    const std::string why = stretched.cannot(length);
    row.side_by_side.emplace_back();
    row.sliding.emplace_back();
    if (why.empty()) {
      work.say(str("reading ", row.name, " at ", length));
      const std::unique_ptr<nn::Model> model = stretched.at(length);
      row.side_by_side.back() = side_by_side_perplexity(*model, text, length);
      row.sliding.back() = sliding_perplexity(*model, text, length);
    } else {
      row.cannot = why;
    }
    work.did(text_work(plan, reading));
    if (work.stopped()) throw StretchStopped{};
  }
}

void read_passkey_model(StretchPlan& plan, const StretchReading& reading, const PasskeyMaker& passkeys,
                        StretchWork& work) {
  StretchRow& row = plan.row;
  const Stretched stretched(plan.passkey_model, plan, reading);
  for (const int64_t length : reading.lengths) {
    const std::string why = stretched.cannot(length);
    row.passkey.emplace_back(reading.depths.size());
    if (why.empty()) {
      work.say(str("asking ", row.name, " for passkeys at ", length));
      const std::unique_ptr<nn::Model> model = stretched.at(length);
      for (size_t i = 0; i < reading.depths.size(); ++i) {
        row.passkey.back()[i] = passkey_accuracy(*model, passkeys, length, reading.depths[i], reading.options.examples);
        if (work.stopped()) throw StretchStopped{};
      }
    } else {
      row.passkey_cannot = why;
    }
    work.did(passkey_work(plan, length, reading));
  }
}

}  // namespace

bool wanted(const StretchOptions& options, const std::string& name) {
  return options.kinds.empty() || std::find(options.kinds.begin(), options.kinds.end(), name) != options.kinds.end();
}

std::string reading_key(const StretchReading& reading, const std::string& model) {
  const StretchOptions& options = reading.options;
  return data::sha256_hex(str(model, " ", reading.trained_length, " ", options.times, " ", options.tokens, " ",
                              options.passkey, " ", options.examples, " ", options.depths))
      .substr(0, kKeyDigits);
}

double reading_work(const StretchPlan& plan, const StretchReading& reading) {
  double work = 0;
  for (const int64_t length : reading.lengths) work += text_work(plan, reading) + passkey_work(plan, length, reading);
  return work;
}

void measure_row(StretchPlan& plan, const StretchReading& reading, const ReadingText& text,
                 const PasskeyMaker& passkeys, const std::string& measured, StretchWork& work) {
  StretchRow& row = plan.row;
  const std::string file = (std::filesystem::path(measured) / (row.name + "-" + plan.key + ".json")).string();
  if (plan.text_failed.empty()) {
    row.architecture = Stretched(plan.text_model, plan, reading).spec_at(reading.lengths.back());
  }
  if (read_measured(file, row)) return work.found(reading_work(plan, reading));
  try {
    LAMINA_CHECK(plan.text_failed.empty(), plan.text_failed);
    read_text_model(plan, reading, text, work);
  } catch (const Error& error) {
    row.failed = row.cannot = error.what();
    row.side_by_side.resize(reading.lengths.size());
    row.sliding.resize(reading.lengths.size());
  }
  try {
    LAMINA_CHECK(plan.passkey_failed.empty(), plan.passkey_failed);
    if (!plan.passkey_model.empty()) read_passkey_model(plan, reading, passkeys, work);
  } catch (const Error& error) {
    row.failed = row.passkey_cannot = error.what();
    row.passkey.clear();
  }
  if (row.failed.empty()) write_text(file, write_measured(row));
}

}  // namespace lamina::lab
