#include "lamina/infer/embed.h"

#include <algorithm>
#include <cmath>
#include <map>

#include "lamina/base/error.h"
#include "lamina/ops/linear/linear.h"
#include "lamina/text/unicode_steps.h"

namespace lamina::infer {
namespace {

using arch::PoolingKind;

/// White space as Python's str.strip() removes it, without the separators that no keyboard has.
constexpr std::string_view kSpaces[] = {" ", "\t", "\n", "\r", "\v", "\f", "\u00A0", "\u2028", "\u2029", "\u3000"};

std::string_view trimmed(std::string_view text) {
  for (bool found = true; found;) {
    found = false;
    for (const std::string_view space : kSpaces) {
      if (text.starts_with(space)) {
        text.remove_prefix(space.size());
        found = true;
      }
      if (text.ends_with(space)) {
        text.remove_suffix(space.size());
        found = true;
      }
    }
  }
  return text;
}

std::string list_of(const std::map<std::string, std::string>& prompts) {
  std::string list;
  for (const auto& [name, prompt] : prompts) list += (list.empty() ? "" : ", ") + name;
  return list;
}

}  // namespace

PoolingKind pooling_named(const std::string& name) {
  constexpr auto kNames = names_of(PoolingKind{});
  const auto found = std::find(kNames.begin(), kNames.end(), name);
  LAMINA_CHECK(found != kNames.end(), "pooling \"", name, "\": expected mean, first, last or max");
  return static_cast<PoolingKind>(found - kNames.begin());
}

std::string prompt_for(const io::VectorRecipe& recipe, TextRole role) {
  std::vector<std::string> names;
  if (role == TextRole::query) names = {"query"};
  if (role == TextRole::document) names = {"document", "passage", "corpus"};
  for (const std::string& name : names) {
    if (const auto found = recipe.prompts.find(name); found != recipe.prompts.end()) return found->second;
  }
  return recipe.default_prompt.empty() ? "" : recipe.prompts.at(recipe.default_prompt);
}

std::string prompt_named(const io::VectorRecipe& recipe, const std::string& name) {
  const auto found = recipe.prompts.find(name);
  LAMINA_CHECK(found != recipe.prompts.end(), "prompt \"", name, "\": the model has ",
               recipe.prompts.empty() ? "no prompts" : list_of(recipe.prompts));
  return found->second;
}

TextReader::TextReader(const text::Tokenizer& tokenizer, const io::VectorRecipe& recipe, int64_t context,
                       std::string prompt)
    : tokenizer_(tokenizer),
      prompt_(std::move(prompt)),
      context_(std::min(context, recipe.max_tokens.value_or(context))),
      trim_(recipe.trim),
      lowercase_(recipe.lowercase) {
  LAMINA_CHECK(recipe.pool_prompt || prompt_.empty(),
               "the model does not pool the tokens of its prompt (include_prompt: false), which is not supported; "
               "compute vectors without a prompt");
}

std::vector<text::TokenId> TextReader::ids(const std::string& text, text::UnknownCharacters* unknown,
                                           int64_t* cut) const {
  std::string input = prompt_ + text;
  if (trim_) input = trimmed(input);
  if (lowercase_) {
    std::string lower;
    text::append_lowercase(input, lower);
    input = std::move(lower);
  }
  return embedding_ids(tokenizer_, input, context_, unknown, cut);
}

std::vector<double> pooled_states(std::span<const float> hidden, int64_t width, PoolingKind pooling) {
  const auto columns = static_cast<size_t>(width);
  const size_t seq = hidden.size() / columns;
  const size_t from = pooling == PoolingKind::last ? seq - 1 : 0;
  const size_t to = pooling == PoolingKind::first ? 1 : seq;
  const auto row = hidden.subspan(from * columns, columns);
  std::vector<double> result(row.begin(), row.end());
  for (size_t t = from + 1; t < to; ++t) {
    for (size_t i = 0; i < columns; ++i) {
      const auto value = static_cast<double>(hidden[t * columns + i]);
      result[i] = pooling == PoolingKind::max ? std::max(result[i], value) : result[i] + value;
    }
  }
  if (pooling == PoolingKind::mean) {
    for (double& value : result) value /= static_cast<double>(to - from);
  }
  return result;
}

std::vector<std::vector<float>> finished_vectors(const std::vector<std::vector<double>>& pooled,
                                                 const io::VectorRecipe& recipe) {
  if (pooled.empty()) return {};
  std::vector<double> all;
  for (const std::vector<double>& vector : pooled) all.insert(all.end(), vector.begin(), vector.end());
  const auto rows = static_cast<int64_t>(pooled.size());
  if (!recipe.dense.empty()) {
    Tensor x = Tensor::from(all, {rows, static_cast<int64_t>(pooled[0].size())}, Device::cpu()).to(DType::f32);
    for (const io::VectorDense& dense : recipe.dense) x = ops::linear(x, dense.weight, dense.bias, dense.activation);
    all = x.to_vector<double>();
  }
  const size_t width = all.size() / pooled.size();
  std::vector<std::vector<float>> vectors(pooled.size());
  for (size_t row = 0; row < pooled.size(); ++row) {
    const std::span<const double> vector = std::span(all).subspan(row * width, width);
    double square = 0;
    for (const double value : vector) square += value * value;
    const double scale = recipe.normalize && square > 0 ? 1 / std::sqrt(square) : 1;
    for (const double value : vector) vectors[row].push_back(static_cast<float>(value * scale));
  }
  return vectors;
}

int64_t vector_width(const io::VectorRecipe& recipe, int64_t d_model) {
  return recipe.dense.empty() ? d_model : recipe.dense.back().weight.dim(0);
}

Tensor text_states(nn::Model& model, const Tensor& ids) {
  if (!model.spec().encoder) return model.hidden(ids);
  nn::RunOptions run;
  run.source = ids;
  return model.encoded(run);
}

std::vector<text::TokenId> embedding_ids(const text::Tokenizer& tokenizer, const std::string& text, int64_t context,
                                         text::UnknownCharacters* unknown, int64_t* cut) {
  std::vector<text::TokenId> ids;
  if (tokenizer.bos()) ids.push_back(*tokenizer.bos());
  tokenizer.encode(text, ids, /*special=*/false, unknown);
  const int64_t room = std::max<int64_t>(context - (tokenizer.appended() ? 1 : 0), 1);
  if (static_cast<int64_t>(ids.size()) > room) {
    ids.resize(static_cast<size_t>(room));
    if (cut != nullptr) ++*cut;
  }
  if (tokenizer.appended() && static_cast<int64_t>(ids.size()) < context) ids.push_back(*tokenizer.appended());
  return ids;
}

std::vector<std::vector<float>> embed(nn::Model& model, const std::vector<std::vector<text::TokenId>>& texts,
                                      const EmbedOptions& options) {
  LAMINA_CHECK(options.batch > 0, "embed: batches of ", options.batch, " texts; expected at least 1");
  std::map<size_t, std::vector<size_t>> by_length;
  int64_t total = 0;
  int64_t done = 0;
  for (size_t i = 0; i < texts.size(); ++i) {
    LAMINA_CHECK(!texts[i].empty(), "embed: text ", i + 1, " has no tokens; leave it out");
    for (const text::TokenId id : texts[i]) {
      LAMINA_CHECK(id >= 0 && id < model.spec().vocab_size, "embed: text ", i + 1, " holds token ", id,
                   ", the model has ", model.spec().vocab_size, "; give the tokenizer that it was trained with");
    }
    by_length[texts[i].size()].push_back(i);
    total += static_cast<int64_t>(texts[i].size());
  }
  std::vector<std::vector<float>> vectors(texts.size());
  for (const auto& [length, members] : by_length) {
    const int64_t fitting = std::max<int64_t>(1, options.batch_tokens / static_cast<int64_t>(length));
    const auto most = static_cast<size_t>(std::min(options.batch, fitting));
    for (size_t begin = 0; begin < members.size(); begin += most) {
      const size_t rows = std::min(members.size() - begin, most);
      std::vector<int64_t> ids;
      for (size_t r = 0; r < rows; ++r) {
        const std::vector<text::TokenId>& text = texts[members[begin + r]];
        ids.insert(ids.end(), text.begin(), text.end());
      }
      const Tensor hidden = text_states(
          model, Tensor::from(ids, {static_cast<int64_t>(rows), static_cast<int64_t>(length)}, model.device()));
      const int64_t width = hidden.dim(2);
      const std::vector<float> values = hidden.to(DType::f32).to_vector<float>();
      const size_t size = length * static_cast<size_t>(width);
      std::vector<std::vector<double>> pooled;
      for (size_t r = 0; r < rows; ++r) {
        pooled.push_back(pooled_states(std::span(values).subspan(r * size, size), width, options.recipe.pooling));
      }
      std::vector<std::vector<float>> finished = finished_vectors(pooled, options.recipe);
      for (size_t r = 0; r < rows; ++r) vectors[members[begin + r]] = std::move(finished[r]);
      done += static_cast<int64_t>(rows * length);
      if (options.progress) options.progress(done, total);
    }
  }
  return vectors;
}

std::vector<std::vector<float>> embed_together(nn::Model& model, std::span<const std::vector<text::TokenId>> texts,
                                               const io::VectorRecipe& recipe) {
  if (texts.empty()) return {};
  nn::RunOptions options;
  size_t longest = 0;
  for (const auto& ids : texts) {
    LAMINA_CHECK(!ids.empty(), "embed: a text without tokens; expected at least one");
    options.lengths.push_back(static_cast<int64_t>(ids.size()));
    longest = std::max(longest, ids.size());
  }
  std::vector<int64_t> padded(texts.size() * longest);
  for (size_t row = 0; row < texts.size(); ++row) {
    std::copy(texts[row].begin(), texts[row].end(), padded.begin() + static_cast<int64_t>(row * longest));
  }
  const Shape shape{static_cast<int64_t>(texts.size()), static_cast<int64_t>(longest)};
  const Tensor hidden = model.hidden(Tensor::from(padded, shape, model.device()), options);
  const std::vector<float> values = hidden.to(DType::f32).to_vector<float>();
  const auto width = static_cast<size_t>(hidden.dim(2));
  std::vector<std::vector<double>> pooled;
  for (size_t row = 0; row < texts.size(); ++row) {
    const auto states = std::span(values).subspan(row * longest * width, texts[row].size() * width);
    pooled.push_back(pooled_states(states, static_cast<int64_t>(width), recipe.pooling));
  }
  return finished_vectors(pooled, recipe);
}

std::string npy_of(const std::vector<std::vector<float>>& vectors, int64_t width) {
  std::string header = str("{'descr': '<f4', 'fortran_order': False, 'shape': (", vectors.size(), ", ", width, "), }");
  constexpr size_t kPrelude = 10;  // magic (6 bytes), version (2), header length (2)
  header.append(63 - (kPrelude + header.size()) % 64, ' ');
  header += '\n';
  std::string file("\x93NUMPY\x01\x00", 8);
  file += static_cast<char>(header.size() & 0xFF);
  file += static_cast<char>(header.size() >> 8);
  file += header;
  for (const std::vector<float>& vector : vectors) {
    file.append(reinterpret_cast<const char*>(vector.data()), vector.size() * sizeof(float));
  }
  return file;
}

}  // namespace lamina::infer
