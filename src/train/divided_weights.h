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

/// ZeRO-3 (arXiv:1910.02054): each data-parallel rank keeps its pieces of the weights only. The weights of a layer are
/// gathered before its forward and again before its backward, and freed when the next layer needs its own. The weights
/// outside of layers (embedding, head) are gathered once for an update or evaluation.
///
/// All ranks run the same passes in the same order, so they gather in the same order.
class DividedWeights final : public nn::LayerWeights {
 public:
  /// `shapes` has the parameters of this rank's model, on a meta device.
  DividedWeights(const nn::Model& shapes, const Recipe& recipe, const RankGroups& groups);

  /// The tape of the passes. `complete` is called in backward when all gradients of a layer's parameters are there.
  void attach(Tape& tape, std::function<void(int64_t layer)> complete);

  void created(const NamedTensors& parameters) override;
  void before_forward(int64_t layer) override;
  void after_forward(int64_t layer) override;

  /// Whether ranks hold different pieces of the tensor: a parameter, or a matrix packed into one.
  bool divides(const std::string& name) const;
  /// This rank's piece of a parameter: flat, or with its shape if the rank owns all of it; undefined: none.
  Tensor piece(const std::string& parameter) const;
  /// Boxes of a tensor (see divides()) that this rank holds, as views of the pieces.
  std::vector<TensorBox> boxes(const std::string& name) const;

  /// RAII: the weights outside of layers are there, with `all` also those of all layers. Then everything is freed.
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
  /// Parameters that the same ranks divide.
  struct Set {
    NamedTensors parameters;
    std::shared_ptr<comm::Communicator> ranks;
    ShardPlan plan;
    std::vector<Tensor> pieces;  ///< of this rank
    bool divided() const { return ranks->size() > 1; }
  };
  struct Place {
    size_t set = 0;
    size_t parameter = 0;
  };
  /// Rows [begin, begin + rows) along `axis` of a packed parameter.
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
  /// Gathers a layer if it is not there, after the one before it is freed.
  void need(int64_t layer);
  const std::string& parameter_of(const std::string& name) const;

  std::vector<Set> sets_;  ///< what data-parallel ranks divide; experts, if other ranks do
  std::map<std::string, Place> places_;
  std::map<std::string, PackedRows> packed_;  ///< matrices in packed parameters, by their names in state_dict()
  Tape* tape_ = nullptr;
  std::function<void(int64_t)> complete_;
  std::optional<int64_t> layer_;  ///< that is there
};

/// The weights of a recipe with ZeRO-3 over several ranks, set in `options` of the model to create; null otherwise.
std::shared_ptr<DividedWeights> divide_weights(const Recipe& recipe, const RankGroups& groups,
                                               nn::ModelOptions& options);

/// Number of the layer of a parameter; kOuter if it is outside of layers.
int64_t layer_of(const std::string& parameter);
inline constexpr int64_t kOuter = -1;  ///< see layer_of()

}  // namespace lamina::train
