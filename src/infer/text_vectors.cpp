#include "lamina/infer/text_vectors.h"

#include <algorithm>
#include <cmath>
#include <map>

#include "lamina/infer/embed.h"

namespace lamina::infer {
namespace {

constexpr int64_t kVectorBatchTokens = 4096;

/// Appends the mean-pooled hidden states of texts with equal numbers of tokens.
void embed_equal(nn::Model& model, const std::vector<std::vector<text::TokenId>>& ids, const std::vector<size_t>& which,
                 std::vector<float>& vectors) {
  const auto batch = static_cast<int64_t>(which.size());
  const auto length = static_cast<int64_t>(ids[which[0]].size());
  std::vector<int64_t> inputs;
  for (const size_t text : which) inputs.insert(inputs.end(), ids[text].begin(), ids[text].end());
  const Tensor hidden = text_states(model, Tensor::from(inputs, {batch, length}, model.device()));
  const auto width = static_cast<size_t>(hidden.dim(2));
  const std::vector<float> states = hidden.to_vector<float>();
  std::vector<double> sums(width);
  for (size_t row = 0; row < which.size(); ++row) {
    std::fill(sums.begin(), sums.end(), 0.0);
    for (size_t at = 0; at < static_cast<size_t>(length); ++at) {
      const float* state = &states[(row * static_cast<size_t>(length) + at) * width];
      for (size_t i = 0; i < width; ++i) sums[i] += static_cast<double>(state[i]);
    }
    for (size_t i = 0; i < width; ++i)
      vectors[which[row] * width + i] = static_cast<float>(sums[i] / static_cast<double>(length));
  }
}

std::vector<double> probe_of(const LoadedModel& model) {
  const std::vector<std::string> text{search::kProbeText};
  const std::vector<float> vector = text_embedder(model)(text);
  return {vector.begin(), vector.begin() + static_cast<std::ptrdiff_t>(std::min(vector.size(), search::kProbeValues))};
}

}  // namespace

search::Embedder text_embedder(const LoadedModel& model) {
  const text::Tokenizer& tokenizer = require_tokenizer(model);
  return [&model, &tokenizer](std::span<const std::string> texts) {
    const auto context = static_cast<size_t>(model.model->spec().context);
    std::vector<float> vectors(texts.size() * static_cast<size_t>(model.model->spec().d_model));
    std::vector<std::vector<text::TokenId>> ids;
    std::map<size_t, std::vector<size_t>> by_length;  // equal lengths need no padding, which could change the states
    for (const std::string& text : texts) {
      text::UnknownCharacters skipped;  // missing characters should not abort the building of an index
      ids.push_back(prompt_ids(tokenizer, text, &skipped));
      if (ids.back().size() > context) ids.back().resize(context);
      if (!ids.back().empty()) by_length[ids.back().size()].push_back(ids.size() - 1);
    }
    for (const auto& [length, which] : by_length) {
      const size_t most = std::max<size_t>(1, static_cast<size_t>(kVectorBatchTokens) / length);
      for (size_t at = 0; at < which.size(); at += most) {
        const auto begin = which.begin() + static_cast<std::ptrdiff_t>(at);
        embed_equal(*model.model, ids, {begin, begin + static_cast<std::ptrdiff_t>(std::min(most, which.size() - at))},
                    vectors);
      }
    }
    search::normalize_rows(vectors, model.model->spec().d_model);
    return vectors;
  };
}

search::VectorSettings vector_settings(const LoadedModel& model, const std::string& path) {
  search::VectorSettings settings;
  settings.model = path;
  settings.dim = model.model->spec().d_model;
  settings.probe = probe_of(model);
  return settings;
}

void check_embedder(const LoadedModel& model, const search::VectorSettings& settings) {
  const std::vector<double> probe = probe_of(model);
  bool same = model.model->spec().d_model == settings.dim && probe.size() == settings.probe.size();
  for (size_t i = 0; same && i < probe.size(); ++i) same = std::abs(probe[i] - settings.probe[i]) < 0.05;
  LAMINA_CHECK(same, model.path, ": gives other vectors than the model that the index was built with, ", settings.model,
               "; give that model with --model");
}

}  // namespace lamina::infer
