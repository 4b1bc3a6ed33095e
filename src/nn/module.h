#pragma once

#include <functional>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "lamina/tensor/tensor.h"

namespace lamina {
class Tape;
}

namespace lamina::nn {

/// Tensors by their dotted names, in order of registration.
using StateDict = std::vector<std::pair<std::string, Tensor>>;

/// What load_state_dict did not do; both empty after a strict load.
struct LoadReport {
  std::vector<std::string> missing;     ///< in the module, not in the dictionary: left as they were
  std::vector<std::string> unexpected;  ///< in the dictionary, not in the module: ignored
};

/// A parameter that is several, one behind the other along the rows of its matrices, so that one product serves all of
/// them (q, k and v; gate and up; gate and up of every expert). It is `whole`, or, once a checkpoint's tensors were
/// adopted in place, in `parts`.
struct JoinedTensor {
  struct Part {
    std::string name;  ///< dotted path under the owner: "q.weight"
    int64_t rows = 0;
  };
  std::vector<Part> layout;
  Tensor whole;               ///< [Σ rows, …]; undefined while apart
  std::vector<Tensor> parts;  ///< [rows, …] each while apart; else empty
  int axis = 0;               ///< which dimension the rows are; 1 behind a dimension of experts

  bool joined() const { return whole.defined(); }
  /// Part i: a view of `whole`, or the tensor itself.
  Tensor part(size_t i) const;
};

struct WeightFormats;

/// Something with named tensors. A class derived from it keeps its tensors and child modules as members and registers
/// them in its constructor; the base reaches them by reference, so a module is neither copied nor moved.
class Module {
 public:
  Module() = default;
  virtual ~Module() = default;
  Module(const Module&) = delete;
  Module& operator=(const Module&) = delete;

  /// Handles of the parameters: watching one on a tape makes the module's own a leaf. A tensor that two names share
  /// (tied weights) comes twice here and once in parameters(). A joined parameter is one tensor, under its joint name,
  /// unless it is apart.
  StateDict named_parameters() const;
  /// Of every parameter that is joined, by its name there: the rows of its parts.
  std::map<std::string, std::vector<int64_t>> joined_rows() const;
  std::vector<Tensor> parameters() const;
  /// All buffers, persistent or not.
  StateDict named_buffers() const;

  /// Parameters and persistent buffers: what a checkpoint holds. The parts of joined parameters come as views under
  /// their own names.
  StateDict state_dict() const;
  /// The gradients of the parameters on `tape` under the names of state_dict(), undefined where none has arrived.
  StateDict named_gradients(const Tape& tape) const;
  /// Copies values into the parameters and persistent buffers, converting type and device. Every problem is found
  /// before the first value is written and all are named in one Error: a wrong shape always; missing and unexpected
  /// names when `strict`.
  LoadReport load_state_dict(const StateDict& values, bool strict = true);
  /// The module's tensors become the given ones, without a copy: how a memory-mapped checkpoint is used in place. Every
  /// name must be given, shapes must agree; types and device are taken over as they are. Works on a module built on
  /// meta. Joined parameters are apart afterwards.
  void adopt_state_dict(const StateDict& values);

  /// Moves every tensor, buffers included. Gradients do not flow through: watch the parameters afterwards.
  void to(const Device& device);
  /// Converts the parameters and the persistent floating buffers. Non-persistent buffers are tables computed by the
  /// module and keep the type it chose.
  void to(DType dtype);

  /// Gives the parameters their initial values, those of the children included. Constructors of modules with
  /// parameters call it once.
  virtual void reset_parameters();

  /// Weights of projections take the formats given, for generation: rounded ones have no gradient, and their tensors
  /// stay behind as shapes on meta. `prefix` is this module's name with a dot, empty for the outermost.
  virtual void store_weights(const WeightFormats& formats, const std::string& prefix = "");

 protected:
  enum class Persistence : uint8_t { persistent, non_persistent };
  void add_parameter(const std::string& name, Tensor& tensor);
  void add_buffer(const std::string& name, Tensor& tensor, Persistence persistence);
  /// The names of `joined`'s layout are those of the state dictionary; `name` is the joint one.
  void add_joined_parameter(const std::string& name, JoinedTensor& joined);
  /// With an empty name the child's tensors stand directly under this module's own prefix.
  void add_child(const std::string& name, Module& child);

 private:
  enum class Role : uint8_t { parameter, persistent_buffer, non_persistent_buffer };
  struct Slot {
    std::string name;
    Role role;
    Tensor* tensor;        ///< null for a joined parameter
    JoinedTensor* joined;  ///< else null
  };
  /// body(prefix, slot) for own slots, then the children's.
  void visit_slots(const std::string& prefix, const std::function<void(const std::string&, const Slot&)>& body) const;
  /// body(dotted name, role, tensor) for every tensor there is: a joined one once, one that is apart by its parts.
  void visit(const std::function<void(const std::string&, Role, Tensor&)>& body) const;
  void check_name(const std::string& name) const;
  void replace(const std::function<Tensor(Role, const Tensor&)>& convert);

  std::vector<Slot> slots_;
  std::vector<std::pair<std::string, Module*>> children_;
};

}  // namespace lamina::nn
