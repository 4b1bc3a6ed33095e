#include "lamina/infer/load.h"

#include <algorithm>
#include <cctype>

#include "lamina/base/files.h"
#include "lamina/infer/fingerprint.h"
#include "lamina/io/model_file.h"
#include "lamina/text/load.h"

namespace lamina::infer {
namespace {

/// Adds the numbers of a JSON number or of a list of numbers.
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
    // BOS starts a new text, so it ends this one.
    if (tokenizer->bos()) ids.push_back(*tokenizer->bos());
  }
  std::sort(ids.begin(), ids.end());
  ids.erase(std::unique(ids.begin(), ids.end()), ids.end());
  return ids;
}

}  // namespace

LoadedModel load_model(const std::string& path, const Device& device, const LoadOptions& options) {
  LoadedModel loaded;
  loaded.path = io::model_place(path);
  const io::Checkpoint checkpoint = io::read_model(loaded.path, device);
  loaded.model = std::make_unique<nn::Model>(checkpoint.spec, Device::meta());
  loaded.model->adopt_state_dict(checkpoint.tensors);
  const std::string tokenizer = options.tokenizer.empty() ? text::tokenizer_of_model(loaded.path) : options.tokenizer;
  if (!tokenizer.empty()) {
    loaded.tokenizer = text::load_tokenizer(tokenizer);
    loaded.tokenizer_path = tokenizer;
    LAMINA_CHECK(loaded.tokenizer->vocab_size() <= checkpoint.spec.vocab_size, tokenizer, ": has ",
                 loaded.tokenizer->vocab_size(), " tokens, the model ", loaded.path, " has ",
                 checkpoint.spec.vocab_size, "; give the tokenizer that the model was trained with");
  }
  if (options.fingerprint) {
    loaded.fingerprint = model_fingerprint(*loaded.model, loaded.tokenizer.get(), options.weights);
  }
  loaded.model->store_weights(options.weights);
  loaded.stop_tokens = stop_tokens(checkpoint, loaded.tokenizer.get());
  return loaded;
}

const text::Tokenizer& require_tokenizer(const LoadedModel& model) {
  LAMINA_CHECK(model.tokenizer != nullptr, model.path,
               ": no tokenizer.json, vocab.json or tokenizer.model lies beside it; give one with --tokenizer PATH");
  return *model.tokenizer;
}

std::vector<text::TokenId> prompt_ids(const text::Tokenizer& tokenizer, const std::string& text,
                                      text::UnknownCharacters* unknown) {
  std::vector<text::TokenId> ids;
  if (tokenizer.bos()) ids.push_back(*tokenizer.bos());
  tokenizer.encode(text, ids, /*special=*/false, unknown);
  return ids;
}

}  // namespace lamina::infer
