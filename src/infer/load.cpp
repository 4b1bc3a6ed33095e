#include "lamina/infer/load.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <filesystem>

#include "lamina/io/model_file.h"
#include "lamina/text/load.h"

namespace lamina::infer {
namespace {

namespace fs = std::filesystem;

bool is_model(const fs::path& folder) {
  return fs::exists(folder / "architecture.json") || fs::exists(folder / "config.json");
}

/// The checkpoint of a training run, or the path itself.
fs::path weights_of(const fs::path& path) {
  if (!fs::is_directory(path) || is_model(path)) return path;
  for (const char* name : {"best", "last"}) {
    if (is_model(path / name)) return path / name;
  }
  return path;
}

bool holds_tokenizer(const fs::path& folder) {
  constexpr std::array kNames{"tokenizer.json", "vocab.json", "tokenizer.model", "tokenizer.tiktoken"};
  return std::any_of(kNames.begin(), kNames.end(), [&](const char* name) { return fs::exists(folder / name); });
}

/// Where the model's tokenizer lies; empty where nowhere.
fs::path find_tokenizer(const fs::path& given, const fs::path& weights) {
  const fs::path folder = fs::is_directory(weights) ? weights : fs::absolute(weights).parent_path();
  if (!fs::is_directory(weights)) {
    fs::path own = weights;
    own.replace_extension(".tokenizer.json");
    if (fs::exists(own)) return own;
  }
  if (holds_tokenizer(folder)) return folder;
  if (given != weights && holds_tokenizer(given)) return given;
  const std::string name = folder.filename().string();
  const bool of_a_run = name == "best" || name == "last" || name.starts_with("step");
  const fs::path above = fs::absolute(folder).parent_path();
  return of_a_run && holds_tokenizer(above) ? above : fs::path();
}

/// Adds the numbers of a JSON number or list of numbers.
void add_numbers(const std::string& json, std::vector<text::TokenId>& ids) {
  for (size_t i = 0; i < json.size();) {
    if (std::isdigit(static_cast<unsigned char>(json[i])) == 0) {
      ++i;
      continue;
    }
    size_t length = 0;
    ids.push_back(std::stoi(json.substr(i, 9), &length));
    i += length;
  }
}

std::vector<text::TokenId> stop_tokens(const io::Checkpoint& checkpoint, const text::Tokenizer* tokenizer) {
  std::vector<text::TokenId> ids;
  for (const auto& [name, value] : checkpoint.tokens) {
    if (name == "eos_token_id") add_numbers(value, ids);
  }
  if (tokenizer != nullptr) {
    if (tokenizer->eos()) ids.push_back(*tokenizer->eos());
    // A new text begins: this one is over.
    if (tokenizer->bos()) ids.push_back(*tokenizer->bos());
  }
  std::sort(ids.begin(), ids.end());
  ids.erase(std::unique(ids.begin(), ids.end()), ids.end());
  return ids;
}

}  // namespace

LoadedModel load_model(const std::string& path, const Device& device, const LoadOptions& options) {
  LoadedModel loaded;
  const fs::path weights = weights_of(path);
  loaded.path = weights.string();
  const io::Checkpoint checkpoint = io::read_model(loaded.path, device);
  loaded.model = std::make_unique<nn::Model>(checkpoint.spec, Device::meta());
  loaded.model->adopt_state_dict(checkpoint.tensors);
  loaded.model->store_weights(options.weights);
  const std::string tokenizer = options.tokenizer.empty() ? find_tokenizer(path, weights).string() : options.tokenizer;
  if (!tokenizer.empty()) {
    loaded.tokenizer = text::load_tokenizer(tokenizer);
    LAMINA_CHECK(loaded.tokenizer->vocab_size() <= checkpoint.spec.vocab_size, tokenizer, ": has ",
                 loaded.tokenizer->vocab_size(), " tokens, the model ", loaded.path, " has ",
                 checkpoint.spec.vocab_size, "; give the tokenizer that the model was trained with");
  }
  loaded.stop_tokens = stop_tokens(checkpoint, loaded.tokenizer.get());
  return loaded;
}

const text::Tokenizer& require_tokenizer(const LoadedModel& model) {
  LAMINA_CHECK(model.tokenizer != nullptr, model.path,
               ": no tokenizer.json, vocab.json or tokenizer.model lies beside it; give one with --tokenizer PATH");
  return *model.tokenizer;
}

std::vector<text::TokenId> prompt_ids(const text::Tokenizer& tokenizer, const std::string& text) {
  std::vector<text::TokenId> ids;
  if (tokenizer.bos()) ids.push_back(*tokenizer.bos());
  tokenizer.encode(text, ids);
  return ids;
}

}  // namespace lamina::infer
