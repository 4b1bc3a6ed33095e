#pragma once

#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "lamina/tensor/tensor.h"

namespace lamina::nn {

/// Tensors by their dotted names, in order of registration.
using StateDict = std::vector<std::pair<std::string, Tensor>>;

/// What load_state_dict did not do; both empty after a strict load.
struct LoadReport {
  std::vector<std::string> missing;     ///< in the module, not in the dictionary: left as they were
  std::vector<std::string> unexpected;  ///< in the dictionary, not in the module: ignored
};

/// Something with named tensors. A class derived from it keeps its tensors and child modules as members and registers
/// them in its constructor; the base reaches them by reference, so a module is neither copied nor moved.
class Module {
 public:
  Module() = default;
  virtual ~Module() = default;
  Module(const Module&) = delete;
  Module& operator=(const Module&) = delete;

  /// Handles of the parameters: watching one on a tape makes the module's own a leaf. A tensor that two names share
  /// (tied weights) comes twice here and once in parameters().
  StateDict named_parameters() const;
  std::vector<Tensor> parameters() const;
  /// All buffers, persistent or not.
  StateDict named_buffers() const;

  /// Parameters and persistent buffers: what a checkpoint holds.
  StateDict state_dict() const;
  /// Copies values into the parameters and persistent buffers, converting type and device. Every problem is found
  /// before the first value is written and all are named in one Error: a wrong shape always; missing and unexpected
  /// names when `strict`.
  LoadReport load_state_dict(const StateDict& values, bool strict = true);

  /// Moves every tensor, buffers included. Gradients do not flow through: watch the parameters afterwards.
  void to(const Device& device);
  /// Converts the parameters and the persistent floating buffers. Non-persistent buffers are tables computed by the
  /// module and keep the type it chose.
  void to(DType dtype);

  /// Gives the parameters their initial values, those of the children included. Constructors of modules with
  /// parameters call it once.
  virtual void reset_parameters();

 protected:
  enum class Persistence : uint8_t { persistent, non_persistent };
  void add_parameter(const std::string& name, Tensor& tensor);
  void add_buffer(const std::string& name, Tensor& tensor, Persistence persistence);
  void add_child(const std::string& name, Module& child);

 private:
  enum class Role : uint8_t { parameter, persistent_buffer, non_persistent_buffer };
  struct Slot {
    std::string name;
    Role role;
    Tensor* tensor;
  };
  /// visit(dotted name, role, tensor) for own tensors, then the children's.
  void visit(const std::string& prefix, const std::function<void(const std::string&, Role, Tensor&)>& body) const;
  void check_name(const std::string& name) const;
  void replace(const std::function<Tensor(Role, const Tensor&)>& convert);

  std::vector<Slot> slots_;
  std::vector<std::pair<std::string, Module*>> children_;
};

}  // namespace lamina::nn
