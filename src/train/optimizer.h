#pragma once

#include <memory>
#include <string>
#include <vector>

#include "lamina/autograd/tape.h"
#include "lamina/ops/optim/adamw.h"
#include "lamina/ops/optim/muon.h"
#include "lamina/ops/optim/sgd.h"

namespace lamina::train {

struct NamedTensor {
  std::string name;
  Tensor tensor;
};

/// Parameters that share their settings.
struct ParamGroup {
  std::vector<NamedTensor> params;
  double lr = 1e-3;
  double weight_decay = 0.0;
  /// Muon only: false sends matrices that are no linear maps, such as embeddings, to AdamW.
  bool orthogonalize = true;
};

/// Owns the state of every parameter: moments, update counts, and an f32 master copy for bf16 and f16 parameters.
/// A parameter without a gradient is left alone, and its update count with it.
class Optimizer {
 public:
  virtual ~Optimizer() = default;
  Optimizer(const Optimizer&) = delete;
  Optimizer& operator=(const Optimizer&) = delete;

  /// The parameters' gradients on `tape`, in the order of names(), undefined where there is none: also what
  /// clip_grad_norm_ takes.
  std::vector<Tensor> gradients(const Tape& tape) const;
  std::vector<std::string> names() const;

  /// One update from the gradients on `tape`, which stay there.
  void step(const Tape& tape) { step(gradients(tape)); }
  /// One update from given gradients, in the order of names().
  void step(const std::vector<Tensor>& grads);

  /// Counts an update that a device repeated from a record of the last step().
  void count_repeated_update();
  /// Updates made so far, of the parameter that has had most.
  int64_t updates() const;

  size_t group_count() const { return groups_.size(); }
  double lr(size_t group = 0) const { return groups_.at(group).lr; }
  void set_lr(size_t group, double lr);

  /// Everything a checkpoint must hold besides the parameters, named <parameter>.<state>. The tensors are the
  /// optimizer's own, but for the update counts.
  std::vector<NamedTensor> state() const;
  /// Copies the values back. A missing, unknown or misshapen entry is an error, and nothing is changed then.
  void load_state(const std::vector<NamedTensor>& state);

 protected:
  struct Parameter {
    std::string name;
    Tensor param;
    Tensor master;
    size_t group = 0;
    int64_t updates = 0;
    bool updated = false;  ///< in the last step
    std::vector<NamedTensor> moments;
  };
  /// A parameter to update now; `slot` is filled in.
  struct Update {
    const Parameter* parameter;
    ops::ParamSlot slot;
  };
  using MomentNames = std::vector<std::string> (*)(const Tensor& param, const ParamGroup& group);

  Optimizer(std::vector<ParamGroup> groups, MomentNames moment_names);
  virtual void apply(const std::vector<Update>& updates) = 0;

  static ops::AdamWSlot adamw_slot(const Update& update);

 private:
  std::vector<ParamGroup> groups_;
  std::vector<Parameter> parameters_;
};

class AdamW final : public Optimizer {
 public:
  explicit AdamW(std::vector<ParamGroup> groups, const ops::AdamWOptions& options = {});
  /// What changes from step to step is read on the device, as ops::AdamWOptions says.
  void set_dynamics(const Tensor& dynamics) { options_.dynamics = dynamics; }
  const ops::AdamWOptions& options() const { return options_; }

 private:
  void apply(const std::vector<Update>& updates) override;
  ops::AdamWOptions options_;
};

class Sgd final : public Optimizer {
 public:
  explicit Sgd(std::vector<ParamGroup> groups, const ops::SgdOptions& options = {});

 private:
  void apply(const std::vector<Update>& updates) override;
  ops::SgdOptions options_;
};

/// Muon for matrices, AdamW for everything else.
class Muon final : public Optimizer {
 public:
  explicit Muon(std::vector<ParamGroup> groups, const ops::MuonOptions& options = {},
                const ops::AdamWOptions& others = {});

 private:
  void apply(const std::vector<Update>& updates) override;
  ops::MuonOptions options_;
  ops::AdamWOptions others_;
};

}  // namespace lamina::train
