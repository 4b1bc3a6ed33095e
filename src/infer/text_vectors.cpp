#include "lamina/infer/text_vectors.h"

#include <algorithm>
#include <cmath>

#include "lamina/base/files.h"

namespace lamina::infer {
namespace {

constexpr int64_t kVectorBatch = 64;

std::vector<double> probe_of(const LoadedModel& model) {
  const std::vector<std::string> text{search::kProbeText};
  const std::vector<float> vector = text_embedder(model, TextRole::document)(text);
  LAMINA_CHECK(std::all_of(vector.begin(), vector.end(), [](float value) { return std::isfinite(value); }), model.path,
               ": gives vectors that are not finite; check its weights, or train it with a lower learning rate");
  return {vector.begin(), vector.begin() + static_cast<std::ptrdiff_t>(std::min(vector.size(), search::kProbeValues))};
}

}  // namespace

search::Embedder text_embedder(const LoadedModel& model, TextRole role, int64_t* cut) {
  const io::VectorRecipe recipe = vector_recipe(model);
  const TextReader reader(require_tokenizer(model), recipe, model.model->spec().context, prompt_for(recipe, role));
  const int64_t width = vector_width(recipe, model.model->spec().d_model);
  return [&model, recipe, reader, width, cut](std::span<const std::string> texts) {
    std::vector<float> vectors(texts.size() * static_cast<size_t>(width));
    std::vector<std::vector<text::TokenId>> ids;
    std::vector<size_t> which;  // texts with tokens
    for (size_t i = 0; i < texts.size(); ++i) {
      text::UnknownCharacters skipped;  // a few characters that the vocabulary lacks should not stop an index
      ids.push_back(reader.ids(texts[i], &skipped, cut));
      ids.back().empty() ? ids.pop_back() : which.push_back(i);
    }
    const auto made = embed(*model.model, ids, {.recipe = recipe, .batch = kVectorBatch});
    for (size_t i = 0; i < which.size(); ++i) {
      std::copy(made[i].begin(), made[i].end(), &vectors[which[i] * static_cast<size_t>(width)]);
    }
    search::normalize_rows(vectors, width);
    return vectors;
  };
}

LoadedModel load_embedder(const search::VectorSettings& settings, const std::string& given, const Device& device,
                          const std::string& option) {
  LAMINA_CHECK(!given.empty() || path_exists(settings.model), settings.model,
               ": the model that the index was built with does not exist; give its new place with ", option);
  LoadedModel model = load_model(given.empty() ? settings.model : given, device);
  check_embedder(model, settings, option);
  return model;
}

search::VectorSettings vector_settings(const LoadedModel& model, const std::string& path) {
  search::VectorSettings settings;
  settings.model = path;
  settings.dim = vector_width(vector_recipe(model), model.model->spec().d_model);
  settings.probe = probe_of(model);
  return settings;
}

void check_embedder(const LoadedModel& model, const search::VectorSettings& settings, const std::string& option) {
  const std::vector<double> probe = probe_of(model);
  const int64_t width = vector_width(vector_recipe(model), model.model->spec().d_model);
  bool same = width == settings.dim && probe.size() == settings.probe.size();
  for (size_t i = 0; same && i < probe.size(); ++i) same = std::abs(probe[i] - settings.probe[i]) < 0.05;
  LAMINA_CHECK(same, model.path, ": gives other vectors than the model that the index was built with, ", settings.model,
               "; give that model with ", option);
}

}  // namespace lamina::infer
