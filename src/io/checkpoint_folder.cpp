#include "lamina/io/checkpoint_folder.h"

#include <algorithm>
#include <array>
#include <filesystem>
#include <set>
#include <string_view>

#include "lamina/base/error.h"
#include "lamina/io/hf/sentence_transformers.h"
#include "lamina/io/safetensors.h"

namespace lamina::io {
namespace {

namespace fs = std::filesystem;

constexpr std::array<std::string_view, 15> kCompanions{"tokenizer.json",
                                                       "tokenizer_config.json",
                                                       "special_tokens_map.json",
                                                       "added_tokens.json",
                                                       "tokenizer.model",
                                                       "tokenizer.bin",
                                                       "vocab.json",
                                                       "merges.txt",
                                                       "encoder.json",
                                                       "vocab.bpe",
                                                       "vocab.txt",
                                                       "spiece.model",
                                                       "chat_template.jinja",
                                                       "chat_template.json",
                                                       "generation_config.json"};
constexpr std::array<std::string_view, 3> kConfigurations{"config.json", "architecture.json",
                                                          "model.safetensors.index.json"};

bool is_weights_name(const std::string& name) {
  return name == "model.safetensors" || (name.starts_with("model-") && name.ends_with(".safetensors"));
}

bool holds_our_weights(const fs::path& file) {
  try {
    const Metadata metadata = SafetensorsFile::open(file.string(), Device::cpu(1)).metadata();
    const auto has = [&](const char* key) {
      const auto found = metadata.find(key);
      return found != metadata.end() && found->second == "lamina";
    };
    return has(kWrittenBy) || has("format");  // "format" marks Lamina's own layout
  } catch (const Error&) {
    return false;
  }
}

/// The entries of a folder, sorted, so that messages do not depend on the file system.
std::set<fs::path> entries_of(const fs::path& folder) {
  std::set<fs::path> entries;
  std::error_code error;
  for (fs::directory_iterator at(folder, error), end; !error && at != end; at.increment(error)) {
    entries.insert(at->path());
  }
  LAMINA_CHECK(!error, folder.string(), ": cannot be listed: ", error.message(), "; check the permissions");
  return entries;
}

/// The first file that is not part of a checkpoint of this program. Empty if there is none.
std::string first_foreign_file(const std::set<fs::path>& entries) {
  bool ours = false;
  for (const fs::path& entry : entries) {
    const std::string name = entry.filename().string();
    const bool weights = is_weights_name(name) && file_exists(entry) && holds_our_weights(entry);
    const bool beside = std::ranges::find(kConfigurations, name) != kConfigurations.end() || is_companion_file(name);
    if (!weights && !(beside && file_exists(entry)) && !is_recipe_entry(entry.string())) return name;
    ours = ours || weights;
  }
  return ours ? "" : entries.begin()->filename().string();
}

/// Checks the target and resolves links: replacing a link to a folder means replacing that folder.
std::string checked_target(const std::string& target, bool replace) {
  CheckpointFolder::check_target(target, replace);
  std::error_code error;
  const fs::path real = folder_exists(target) ? fs::canonical(target, error) : fs::path(target);
  return error ? target : real.string();
}

}  // namespace

bool is_companion_file(const std::string& name) {
  return std::ranges::find(kCompanions, name) != kCompanions.end() || name.ends_with(".tiktoken");
}

void CheckpointFolder::check_target(const std::string& target, bool replace) {
  std::error_code error;
  if (!fs::exists(fs::symlink_status(target, error))) return;
  LAMINA_CHECK(folder_exists(target), target, ": is a file, expected the name of a folder");
  const std::set<fs::path> entries = entries_of(target);
  if (entries.empty()) return;
  LAMINA_CHECK(
      replace, target,
      ": already exists and is not empty; choose another name, or replace a converted checkpoint with --force");
  const std::string foreign = first_foreign_file(entries);
  LAMINA_CHECK(foreign.empty(), target, ": holds '", foreign,
               "', which no conversion wrote; --force replaces converted checkpoints only. Choose another name, or "
               "remove the folder yourself");
}

CheckpointFolder::CheckpointFolder(const std::string& target, bool replace)
    : target_(checked_target(target, replace)), replace_(replace), folder_(target_, replace) {}

void CheckpointFolder::publish() {
  check_target(target_, replace_);  // check again: files may have been added while the weights were written
  folder_.publish();
}

}  // namespace lamina::io
