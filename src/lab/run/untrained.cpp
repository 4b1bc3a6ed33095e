#include "lamina/lab/run/untrained.h"

#include <algorithm>

#include "lamina/arch/plan.h"
#include "lamina/base/philox.h"
#include "lamina/lab/run/format.h"
#include "lamina/lab/run/plan.h"
#include "lamina/nn/model.h"

namespace lamina::lab {
namespace {

/// `length` random tokens, and the next token of each.
std::pair<Tensor, Tensor> random_tokens(int64_t length, int64_t vocabulary, const Device& device) {
  std::vector<int64_t> ids;
  for (int64_t i = 0; i <= length; ++i) {
    ids.push_back(static_cast<int64_t>(philox_word({1, 0}, static_cast<uint64_t>(i))) % vocabulary);
  }
  const Shape shape{1, length};
  return {Tensor::from(std::vector(ids.begin(), ids.end() - 1), shape, device),
          Tensor::from(std::vector(ids.begin() + 1, ids.end()), shape, device)};
}

UntrainedLoss loss_at(nn::Model& model, int64_t length, int64_t vocabulary, const Device& device) {
  const auto [ids, targets] = random_tokens(length, vocabulary, device);
  try {
    return {model.loss(ids, targets).cross_entropy.item(), ""};
  } catch (const Error& error) {
    return {{}, error.what()};
  }
}

std::string padded_right(const std::string& text, size_t width) {
  return std::string(text.size() < width ? width - text.size() : 0, ' ') + text;
}

}  // namespace

std::vector<UntrainedVariant> run_untrained(const Study& study, const std::vector<int64_t>& lengths, int64_t vocabulary,
                                            const Device& device) {
  LAMINA_CHECK(!lengths.empty() && *std::min_element(lengths.begin(), lengths.end()) > 0,
               "lengths of forward passes: expected one or more positive numbers of tokens");
  StudyData data;
  data.choice = study.recipe.data;
  data.vocab_size = vocabulary;
  const Planner planner(study, data, /*threads=*/1, /*runs=*/"");
  std::vector<UntrainedVariant> variants;
  for (const Variant& variant : variants_of(study)) {
    const VariantResult built = planner.build(variant);
    nn::Model model(built.architecture, device, {.seed = static_cast<uint64_t>(study.seeds.front())});
    UntrainedVariant row{variant.name, built.parameters, {}};
    for (const int64_t length : lengths) {
      row.losses.push_back(loss_at(model, length, built.architecture.vocab_size, device));
    }
    variants.push_back(std::move(row));
  }
  return variants;
}

std::string untrained_text(const std::vector<UntrainedVariant>& variants, const std::vector<int64_t>& lengths) {
  size_t width = 12;
  for (const UntrainedVariant& variant : variants) width = std::max(width, variant.name.size() + 2);
  std::string text = std::string("architecture") + std::string(width - 12, ' ') + "       parameters     to the first";
  for (const int64_t length : lengths) text += padded_right(str("loss at ", length), 16);
  text += "\n";
  std::string reasons;
  for (const UntrainedVariant& variant : variants) {
    const int64_t difference = variant.parameters - variants.front().parameters;
    text += variant.name + std::string(width - variant.name.size(), ' ');
    text += padded_right(arch::with_commas(variant.parameters), 17);
    text += padded_right(difference == 0 ? "" : (difference > 0 ? "+" : "") + arch::with_commas(difference), 17);
    for (size_t i = 0; i < lengths.size(); ++i) {
      const UntrainedLoss& at = variant.losses[i];
      text += padded_right(at.loss ? fixed(*at.loss, 4) : "cannot", 16);
      if (!at.loss) reasons += str(variant.name, " at ", lengths[i], " tokens: ", at.cannot, "\n");
    }
    text += "\n";
  }
  return text + reasons;
}

}  // namespace lamina::lab
