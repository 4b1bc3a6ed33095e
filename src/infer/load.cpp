#include "lamina/infer/load.h"

#include <algorithm>
#include <cctype>
#include <map>

#include "lamina/base/files.h"
#include "lamina/infer/fingerprint.h"
#include "lamina/io/model_file.h"
#include "lamina/text/load.h"

namespace lamina::infer {
namespace {

/// Appends the integers in a JSON number or list of numbers.
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
    // BOS starts a new text, so it ends this one. But an encoder–decoder model may begin its answer with it.
    if (tokenizer->bos() && !checkpoint.spec.encoder) ids.push_back(*tokenizer->bos());
  }
  std::sort(ids.begin(), ids.end());
  ids.erase(std::unique(ids.begin(), ids.end()), ids.end());
  return ids;
}

/// This rank's part of a tensor. A row range stays a view of the mapped file; sections of rows are copied into one
/// tensor.
Tensor own_part(const arch::Shard& shard, const Tensor& whole) {
  if (shard.sections.empty()) return whole.slice(shard.axis, shard.begin, shard.count).contiguous();
  Shape shape = whole.shape();
  shape[0] = shard.count;
  Tensor own = Tensor::empty(shape, whole.dtype(), whole.device());
  int64_t row = 0;
  for (const arch::Shard& section : shard.sections) {
    if (section.count == 0) continue;
    own.slice(0, row, section.count).copy_(whole.slice(0, section.begin, section.count));
    row += section.count;
  }
  return own;
}

/// The recipe of an architecture with pooling.
io::VectorRecipe recipe_of(const arch::Pooling& pooling, const io::Checkpoint& checkpoint) {
  io::VectorRecipe recipe;
  recipe.pooling = pooling.of;
  recipe.normalize = pooling.unit_length;
  if (!pooling.dense) return recipe;
  io::VectorDense& dense = recipe.dense.emplace_back();
  dense.activation = pooling.activation;
  for (const auto& [name, tensor] : checkpoint.tensors) {
    if (name == "pooling.weight") dense.weight = tensor.to(Device::cpu()).to(DType::f32);
    if (name == "pooling.bias") dense.bias = tensor.to(Device::cpu()).to(DType::f32);
  }
  return recipe;
}

/// The tensors of a checkpoint, in the order of the model's state_dict().
nn::StateDict in_order_of_model(const io::Checkpoint& checkpoint) {
  std::map<std::string, Tensor> by_name;
  for (const auto& [name, tensor] : checkpoint.tensors) by_name.emplace(name, tensor);
  nn::StateDict ordered;
  for (const auto& [name, tensor] : nn::Model(checkpoint.spec, Device::meta()).state_dict()) {
    if (const auto found = by_name.find(name); found != by_name.end()) ordered.push_back({name, found->second});
  }
  return ordered;
}

}  // namespace

nn::StateDict own_tensors(const nn::Model& model, const nn::StateDict& whole) {
  if (!model.parallel()) return whole;
  nn::StateDict own;
  for (const auto& [name, tensor] : whole) {
    const auto found = model.shards().find(name);
    if (found == model.shards().end()) {
      own.push_back({name, tensor});  // adopt_state_dict will report the unknown name
      continue;
    }
    const Shape expected{std::span<const int64_t>(found->second.whole_shape)};
    LAMINA_CHECK(tensor.shape() == expected, name, " is ", tensor.shape(), "; expected ", expected);
    if (found->second.count > 0) own.push_back({name, own_part(found->second, tensor)});
  }
  return own;
}

LoadedModel load_model(const std::string& path, const Device& device, const LoadOptions& options) {
  LoadedModel loaded;
  loaded.path = io::model_place(path);
  // Ranks map the file and copy only their own part to the device, which may be too small for the whole model.
  const io::Checkpoint checkpoint = io::read_model(loaded.path, options.parallel ? Device::cpu() : device);
  loaded.model =
      std::make_unique<nn::Model>(checkpoint.spec, Device::meta(), nn::ModelOptions{.parallel = options.parallel});
  nn::StateDict own = own_tensors(*loaded.model, checkpoint.tensors);
  for (NamedTensor& entry : own) entry.tensor = entry.tensor.to(device);
  loaded.model->adopt_state_dict(own);
  const std::string tokenizer = options.tokenizer.empty() ? text::tokenizer_of_model(loaded.path) : options.tokenizer;
  if (!tokenizer.empty()) {
    loaded.tokenizer = text::load_tokenizer(tokenizer);
    loaded.tokenizer_path = tokenizer;
    LAMINA_CHECK(loaded.tokenizer->vocab_size() <= checkpoint.spec.vocab_size, tokenizer, ": has ",
                 loaded.tokenizer->vocab_size(), " tokens, the model ", loaded.path, " has ",
                 checkpoint.spec.vocab_size, "; give the tokenizer that the model was trained with");
  }
  if (options.fingerprint) {  // identifies the whole model, even if this rank holds shards
    const nn::StateDict whole = options.parallel ? in_order_of_model(checkpoint) : loaded.model->state_dict();
    loaded.fingerprint = model_fingerprint(checkpoint.spec, whole, loaded.tokenizer.get(), options.weights);
  }
  loaded.model->store_weights(options.weights);
  loaded.stop_tokens = stop_tokens(checkpoint, loaded.tokenizer.get());
  if (io::is_sentence_transformer(path)) {
    loaded.vectors = io::read_vector_recipe(path, checkpoint.spec.d_model);
  } else if (checkpoint.spec.pooling) {
    loaded.vectors = recipe_of(*checkpoint.spec.pooling, checkpoint);
  }
  return loaded;
}

io::VectorRecipe vector_recipe(const LoadedModel& model) { return model.vectors.value_or(io::VectorRecipe{}); }

void check_draft(const LoadedModel& target, const LoadedModel& draft) {
  if (target.tokenizer && draft.tokenizer) {
    LAMINA_CHECK(tokenizer_fingerprint(*target.tokenizer) == tokenizer_fingerprint(*draft.tokenizer), "draft model ",
                 draft.path, ": its tokenizer (", draft.tokenizer->vocab_size(), " tokens) is not that of ",
                 target.path, " (", target.tokenizer->vocab_size(),
                 " tokens); give a draft model that was trained with the same tokenizer");
    return;
  }
  LAMINA_CHECK(target.model->spec().vocab_size == draft.model->spec().vocab_size, "draft model ", draft.path,
               ": its vocabulary has ", draft.model->spec().vocab_size, " tokens, that of ", target.path, " has ",
               target.model->spec().vocab_size, "; give a draft model with the same tokenizer");
}

const text::Tokenizer& require_tokenizer(const LoadedModel& model) {
  LAMINA_CHECK(
      model.tokenizer != nullptr, model.path,
      ": there is no tokenizer.json, vocab.json or tokenizer.model next to it; give one with --tokenizer PATH");
  return *model.tokenizer;
}

std::vector<text::TokenId> source_ids(const text::Tokenizer& tokenizer, const std::string& text,
                                      text::UnknownCharacters* unknown) {
  std::vector<text::TokenId> ids;
  if (tokenizer.bos()) ids.push_back(*tokenizer.bos());
  tokenizer.encode(text, ids, /*special=*/true, unknown);
  if (tokenizer.eos()) ids.push_back(*tokenizer.eos());
  return ids;
}

std::vector<text::TokenId> prompt_ids(const text::Tokenizer& tokenizer, const std::string& text,
                                      text::UnknownCharacters* unknown) {
  std::vector<text::TokenId> ids;
  if (tokenizer.bos()) ids.push_back(*tokenizer.bos());
  tokenizer.encode(text, ids, /*special=*/false, unknown);
  return ids;
}

}  // namespace lamina::infer
