#include "lamina/train/data_record.h"

#include <filesystem>
#include <nlohmann/json.hpp>

#include "lamina/base/files.h"
#include "lamina/base/json.h"

namespace lamina::train {
namespace {

using Json = nlohmann::ordered_json;

constexpr const char* kTokenizerKey = "tokenizer";

std::string hexadecimal(uint64_t value, int digits) {
  char text[17];
  std::snprintf(text, sizeof text, "%0*llx", digits, static_cast<unsigned long long>(value));
  return text;
}

Json record_of(const data::TokenFile& file, const CheckProgress& progress) {
  const uint32_t checksum = file.checked_checksum([&](int64_t done, int64_t total) {
    if (progress) progress(file.name(), done, total);
  });
  Json record{{"tokens", file.size()}, {"checksum", hexadecimal(checksum, 8)}};
  if (file.tokenizer_hash() != 0) record[kTokenizerKey] = hexadecimal(file.tokenizer_hash(), 16);
  return record;
}

std::string described(const Json& record) {
  if (!record.is_object()) return "none";
  return str(record.value("tokens", int64_t{0}), " tokens (checksum ", record.value("checksum", "unknown"),
             ", tokenizer ", record.value(kTokenizerKey, "unknown"), ")");
}

void compare(const std::string& run_folder, const char* part, const Json& before, const Json& now, bool accept_new) {
  if (before == now) return;
  const auto tokenizer = [](const Json& record) {
    return record.is_object() ? record.value(kTokenizerKey, std::string()) : std::string();
  };
  const std::string changed =
      str(run_folder, ": its ", part, " data changed: it was ", described(before), ", now it is ", described(now));
  const bool same_tokenizer =
      tokenizer(before).empty() || tokenizer(now).empty() || tokenizer(before) == tokenizer(now);
  LAMINA_CHECK(same_tokenizer, changed,
               ". A run keeps its tokenizer; put the old file back, or prepare the new data with the run's tokenizer "
               "(lamina data prepare TEXT --out FOLDER --tokenizer ",
               run_folder, ")");
  LAMINA_CHECK(accept_new, changed,
               "; put the old file back, resume with the new one anyway (--accept-new-data), or start a new run "
               "from this one's weights (lamina train --from ",
               run_folder, ")");
}

}  // namespace

void check_run_data(const std::string& run_folder, const RunData& data, bool accept_new,
                    const CheckProgress& progress) {
  if (!data.train_tokens) return;  // synthetic tasks have no token files
  Json now{{"train", record_of(*data.train_tokens, progress)}, {"validation", nullptr}};
  if (data.train_neighbours) now["neighbours"] = record_of(*data.train_neighbours, progress);
  if (data.validation_tokens) now["validation"] = record_of(*data.validation_tokens, progress);
  const std::string path = (std::filesystem::path(run_folder) / "data.json").string();
  if (std::filesystem::exists(path)) {
    const Json before = try_parse_json<Json>(read_text(path)).value_or(Json());
    LAMINA_CHECK(before.is_object(), path, ": is damaged; delete it if the run's data is unchanged");
    if (before == now) return;
    compare(run_folder, "training", before.value("train", Json()), now["train"], accept_new);
    compare(run_folder, "neighbour", before.value("neighbours", Json()), now.value("neighbours", Json()), accept_new);
    compare(run_folder, "validation", before.value("validation", Json()), now["validation"], accept_new);
  }
  write_text(path, now.dump(2) + "\n");
}

}  // namespace lamina::train
