#include "lamina/data/prepare.h"

#include <algorithm>
#include <array>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <utility>

#include "lamina/base/error.h"
#include "lamina/base/files.h"
#include "lamina/text/load.h"

namespace lamina::data {
namespace {

namespace fs = std::filesystem;

constexpr std::array<std::pair<Split, const char*>, 3> kSplits{
    {{Split::tail, "tail"}, {Split::each, "each"}, {Split::documents, "documents"}}};
constexpr std::array<const char*, 5> kFiles{"train.bin", "validation.bin", "tokenizer.json", "tokenizer_config.json",
                                            "data.json"};

/// Throws an Error if the folder contains anything but the files of an earlier preparation, because replacing would
/// delete it.
void check_replaceable(const std::string& folder) {
  std::error_code error;
  for (const fs::directory_entry& entry : fs::directory_iterator(folder, error)) {
    const std::string name = entry.path().filename().string();
    const bool ours = std::find(kFiles.begin(), kFiles.end(), name) != kFiles.end();
    LAMINA_CHECK(ours, folder, ": holds ", name, ", which `lamina data prepare` did not write; choose another folder");
  }
}

void make_parents(const std::string& folder) {
  const fs::path path(folder);
  const fs::path parent = (path.has_filename() ? path : path.parent_path()).parent_path();
  if (parent.empty()) return;
  std::error_code error;
  fs::create_directories(parent, error);
  LAMINA_CHECK(!error, parent.string(), ": cannot be created: ", error.message(), "; check the permissions");
}

nlohmann::ordered_json part_json(const PreparedPart& part) {
  return {{"tokens", part.tokens}, {"documents", part.documents}, {"bytes", part.bytes}};
}

std::string manifest(const PrepareOptions& options, const Prepared& prepared) {
  nlohmann::ordered_json json{{"sources", options.sources},
                              {"tokenizer", options.tokenizer},
                              {"vocab_size", prepared.vocab_size},
                              {"split", kSplits[static_cast<size_t>(options.split)].second},
                              {"validation_fraction", options.validation_fraction},
                              {"train", part_json(prepared.train)},
                              {"validation", part_json(prepared.validation)}};
  // File names may contain invalid UTF-8.
  return json.dump(2, ' ', false, nlohmann::ordered_json::error_handler_t::replace) + "\n";
}

}  // namespace

Split split_of(const std::string& name) {
  for (const auto& [split, known] : kSplits) {
    if (name == known) return split;
  }
  throw Error(str("split \"", name, "\": expected tail, each or documents"));
}

Prepared prepare(const PrepareOptions& options) {
  LAMINA_CHECK(!options.folder.empty(), "no folder for the prepared data was named");
  if (options.replace) check_replaceable(options.folder);
  make_parents(options.folder);
  NewFolder folder(options.folder, options.replace);
  SourceOptions reading = options.reading;
  reading.spool = folder.path("");
  if (options.watch) reading.on_pipe = [&](int64_t bytes) { options.watch({"reading a pipe", bytes, 0, 0}); };
  auto sources = std::make_unique<Sources>(options.sources, reading);
  const auto tokenizer = tokenizer_for(options.tokenizer, *sources, options.watch, options.specials);
  const Prepared prepared =
      encode_sources(*sources, *tokenizer, folder.path("train.bin"), folder.path("validation.bin"),
                     options.validation_fraction, options.split, options.watch);
  text::save_tokenizer(*tokenizer, folder.path(""));
  write_text(folder.path("data.json"), manifest(options, prepared));
  sources.reset();  // removes the temporary copies of pipes from the folder
  folder.publish();
  return prepared;
}

}  // namespace lamina::data
