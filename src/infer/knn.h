#pragma once

#include <memory>
#include <span>
#include <vector>

#include "lamina/infer/evaluate.h"
#include "lamina/search/state_store.h"

namespace lamina::infer {

/// How neighbours change a model's predictions (kNN-LM, Khandelwal et al. 2020):
///   p(w) = (1 − λ) p_model(w) + λ Σ over neighbours with next token w of exp(−d / T) / Σ over all neighbours,
/// with d the squared distance of hidden states.
struct KnnOptions {
  int64_t neighbors = 64;    ///< maximum number of neighbours
  double lambda = 0.25;      ///< weight of the neighbours, 0 to 1
  double temperature = 0;    ///< T; 0: the store's scale (search::StateStore::scale)
  bool by_distance = false;  ///< λ · exp(−d₁ / T) instead of λ, with d₁ the distance of the nearest neighbour
  int64_t beam = 0;          ///< 0: exact search; otherwise approximate, with this beam
};

/// The neighbours of a model's hidden states. Read-only, so it can be shared.
class KnnLm {
 public:
  /// Throws an Error if an option is out of range, or if another model computed the store. The weight formats may
  /// differ.
  KnnLm(std::shared_ptr<const search::StateStore> store, const KnnOptions& options, nn::Model& model);

  /// Prediction from the neighbours of one state.
  struct Prediction {
    double lambda = 0;                                     ///< weight of the neighbours
    std::vector<std::pair<text::TokenId, double>> tokens;  ///< each token once with its probability, ordered by token
    double probability(text::TokenId token) const;         ///< 0 if no neighbour has it
  };
  /// Predictions for states [n, d_model].
  std::vector<Prediction> predict(std::span<const float> states, const Threads& threads) const;
  /// Replaces the logits [vocab] of one state by the logarithms of the interpolated probabilities.
  void interpolate(std::span<const float> state, std::span<float> logits, const Threads& threads) const;

 private:
  std::shared_ptr<const search::StateStore> store_;
  KnnOptions options_;
};

/// Collects the hidden states of a decoder over `ids`, divided into windows as in evaluate(): one state for each
/// predicted token.
search::StateStoreBuilder collect_states(nn::Model& model, std::span<const text::TokenId> ids, DType dtype,
                                         const EvaluateOptions& options = {});

}  // namespace lamina::infer
