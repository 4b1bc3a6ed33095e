#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>

#include "lamina/autograd/tape.h"
#include "lamina/nn/layer_weights.h"
#include "lamina/nn/model.h"
#include "lamina/train/held_piece.h"
#include "lamina/train/rank_groups.h"
#include "lamina/train/recipe.h"
#include "lamina/train/shard_plan.h"

namespace lamina::train {

/// ZeRO-3 (arXiv:1910.02054): each data-parallel rank keeps only its pieces of the weights. The weights of a layer are
/// gathered before its forward and again before its backward, and freed when the next layer needs its weights. The
/// weights outside of layers (embedding, head) are gathered once for an update or evaluation.
///
/// All ranks run the same passes in the same order, and therefore gather in the same order.
class DividedWeights final : public nn::LayerWeights {
 public:
  /// `shapes` is a model on the meta device with the parameters of this rank's model.
  DividedWeights(const nn::Model& shapes, const Recipe& recipe, const RankGroups& groups);

  /// Sets the tape of the passes. `complete` is called in backward when all gradients of a layer's parameters are
  /// complete.
  void attach(Tape& tape, std::function<void(int64_t layer)> complete);

  void created(const NamedTensors& parameters) override;
  void before_forward(int64_t layer) override;
  void after_forward(int64_t layer) override;

  /// Whether ranks hold different pieces of the tensor, which is a parameter or a matrix packed into one.
  bool divides(const std::string& name) const;
  /// This rank's piece of a parameter. It is flat or, if the rank owns all of it, has the parameter's shape. Undefined
  /// if it owns nothing.
  Tensor piece(const std::string& parameter) const;
  /// The boxes of a tensor (see divides()) that this rank holds, as views of its pieces.
  std::vector<TensorBox> boxes(const std::string& name) const;

  /// RAII: gathers the weights outside of layers and, with `all`, those of all layers. The destructor frees everything.
  class Use {
   public:
    explicit Use(DividedWeights* weights, bool all = false);  ///< null: does nothing
    ~Use();
    Use(const Use&) = delete;
    Use& operator=(const Use&) = delete;

   private:
    DividedWeights* weights_;
  };

 private:
  /// Parameters that are divided among the same ranks.
  struct Set {
    NamedTensors parameters;
    std::shared_ptr<comm::Communicator> ranks;
    ShardPlan plan;
    std::vector<Tensor> pieces;  ///< pieces of this rank
    bool divided() const { return ranks->size() > 1; }
  };
  struct Place {
    size_t set = 0;
    size_t parameter = 0;
  };
  /// The position of a matrix in a packed parameter: rows [begin, begin + rows) along `axis`.
  struct PackedRows {
    std::string parameter;
    int axis = 0;
    int64_t begin = 0;
    int64_t rows = 0;
  };
  void gather(int64_t layer);
  void gather(Set& set, const Bucket& bucket);
  void free(int64_t layer);
  void free_all();
  /// Frees the previously gathered layer and gathers this one, unless it is already gathered.
  void need(int64_t layer);
  const std::string& parameter_of(const std::string& name) const;

  std::vector<Set> sets_;  ///< parameters that data-parallel ranks divide, and experts if different ranks divide those
  std::map<std::string, Place> places_;
  std::map<std::string, PackedRows> packed_;  ///< matrices in packed parameters, by name in state_dict()
  Tape* tape_ = nullptr;
  std::function<void(int64_t)> complete_;
  std::optional<int64_t> layer_;  ///< the layer whose weights are gathered now
};

/// Creates the divided weights for a recipe with ZeRO-3 over several ranks, and sets them in `options` of the model to
/// create. Otherwise returns null.
std::shared_ptr<DividedWeights> divide_weights(const Recipe& recipe, const RankGroups& groups,
                                               nn::ModelOptions& options);

/// Index of the layer that a parameter belongs to; kOuter if it is outside of layers.
int64_t layer_of(const std::string& parameter);
inline constexpr int64_t kOuter = -1;  ///< see layer_of()

}  // namespace lamina::train
