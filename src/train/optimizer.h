#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "lamina/autograd/tape.h"
#include "lamina/ops/optim/adamw.h"
#include "lamina/ops/optim/muon.h"
#include "lamina/ops/optim/sgd.h"
#include "lamina/tensor/named_tensor.h"

namespace lamina::train {

/// Parameters with the same hyperparameters.
struct ParamGroup {
  NamedTensors params;        ///< the parameters
  double lr = 1e-3;           ///< learning rate
  double weight_decay = 0.0;  ///< decoupled weight decay
  /// Only for Muon: false if the group's matrices are not linear maps (embeddings). AdamW then updates them.
  bool orthogonalize = true;
  /// Only for Muon: the row counts of the matrices packed into a parameter (nn::Module::packed_rows()).
  std::map<std::string, std::vector<int64_t>> parts = {};
};

/// Holds the state of every parameter: moments, update counts, and f32 master weights for bf16 and f16 parameters.
/// Skips parameters without a gradient; their update counts do not change.
class Optimizer {
 public:
  virtual ~Optimizer() = default;
  Optimizer(const Optimizer&) = delete;
  Optimizer& operator=(const Optimizer&) = delete;

  /// Gradients on `tape`, in the order of names(), as clip_grad_norm_ takes them. Undefined for a parameter without a
  /// gradient.
  std::vector<Tensor> gradients(const Tape& tape) const;
  std::vector<std::string> names() const;  ///< names of the parameters, group by group

  /// Runs one update with the gradients on `tape`. Does not clear them.
  void step(const Tape& tape) { step(gradients(tape)); }
  /// Runs one update with these gradients, in the order of names().
  void step(const std::vector<Tensor>& grads);

  /// Counts an update that a CUDA graph replayed from the last captured step().
  void count_repeated_update();
  /// Number of updates so far: the maximum over all parameters.
  int64_t updates() const;

  size_t group_count() const { return groups_.size(); }               ///< number of parameter groups
  double lr(size_t group = 0) const { return groups_.at(group).lr; }  ///< learning rate of a group
  void set_lr(size_t group, double lr);                               ///< sets the learning rate of a group

  /// The state that a checkpoint needs besides the parameters, named `parameter.state`. Except for the update counts,
  /// the tensors are not copies.
  NamedTensors state() const;
  /// Restores a state. Tensors that are the ones returned by state() are not copied. Throws an Error on a missing,
  /// unknown or misshapen entry; then nothing changes.
  void load_state(const NamedTensors& state);

 protected:
  /// A parameter with its state.
  struct Parameter {
    std::string name;            ///< unique
    Tensor param;                ///< updated in place
    Tensor master;               ///< f32 copy of a bf16 or f16 parameter, or undefined
    size_t group = 0;            ///< index of its group
    int64_t updates = 0;         ///< number of its updates
    bool updated = false;        ///< whether the last step updated it
    NamedTensors moments;        ///< state tensors, named by the optimizer
    std::vector<int64_t> parts;  ///< row counts of the matrices packed into it
  };
  /// A parameter to update in this step.
  struct Update {
    const Parameter* parameter;  ///< what to update
    ops::ParamSlot slot;         ///< filled in by the base class
  };
  /// Returns the names of a parameter's state tensors.
  using MomentNames = std::vector<std::string> (*)(const Tensor& param, const ParamGroup& group);

  Optimizer(std::vector<ParamGroup> groups, MomentNames moment_names);  ///< Creates the state of every parameter.
  virtual void apply(const std::vector<Update>& updates) = 0;           ///< Runs one update of these parameters.

  /// The ops::adamw slot for a parameter with moments m and v.
  static ops::AdamWSlot adamw_slot(const Update& update);

 private:
  std::vector<ParamGroup> groups_;
  std::vector<Parameter> parameters_;
};

/// AdamW: Adam with decoupled weight decay (ops::adamw).
class AdamW final : public Optimizer {
 public:
  /// State of all parameters, initially zero.
  explicit AdamW(std::vector<ParamGroup> groups, const ops::AdamWOptions& options = {});
  /// Makes the optimizer read per-step values from device memory. ops::AdamWOptions has the layout.
  void set_dynamics(const Tensor& dynamics) { options_.dynamics = dynamics; }
  const ops::AdamWOptions& options() const { return options_; }  ///< options given to the constructor

 private:
  void apply(const std::vector<Update>& updates) override;
  ops::AdamWOptions options_;
};

/// Gradient descent with momentum (ops::sgd).
class Sgd final : public Optimizer {
 public:
  /// State of all parameters, initially zero.
  explicit Sgd(std::vector<ParamGroup> groups, const ops::SgdOptions& options = {});

 private:
  void apply(const std::vector<Update>& updates) override;
  ops::SgdOptions options_;
};

/// How tensor-parallel ranks, which hold parts of matrices, orthogonalise them. Tensors have the parameter's shape.
struct DividedMatrices {
  std::function<bool(const std::string& name)> divides;  ///< whether ranks hold parts of the parameter
  /// The whole tensor, from all ranks' parts.
  std::function<Tensor(const std::string& name, const Tensor& own)> gather;
  std::function<Tensor(const std::string& name, const Tensor& whole)> own_part;  ///< this rank's part of a whole tensor
  std::map<std::string, std::vector<int64_t>> parts;  ///< ParamGroup::parts for whole parameters
};

/// Muon for matrices, AdamW for everything else. Matrices packed into one parameter are orthogonalised separately.
class Muon final : public Optimizer {
 public:
  /// `others` are the AdamW options for parameters that are not matrices.
  explicit Muon(std::vector<ParamGroup> groups, const ops::MuonOptions& options = {},
                const ops::AdamWOptions& others = {});
  /// All ranks that share matrices must call step() with gradients for the same parameters.
  void set_divided(DividedMatrices divided) { divided_ = std::move(divided); }

 private:
  void apply(const std::vector<Update>& updates) override;
  DividedMatrices divided_;
  ops::MuonOptions options_;
  ops::AdamWOptions others_;
};

}  // namespace lamina::train
