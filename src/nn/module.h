#pragma once

#include <functional>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "lamina/tensor/named_tensor.h"

namespace lamina {
class Tape;
}

namespace lamina::nn {

/// Tensors with their dotted names, in registration order.
using StateDict = NamedTensors;

/// Names that load_state_dict skipped; both lists are empty after a strict load.
struct LoadReport {
  std::vector<std::string> missing;     ///< in the module but not in the dictionary; their values are unchanged
  std::vector<std::string> unexpected;  ///< in the dictionary but not in the module; ignored
};

/// A packed parameter: several matrices, concatenated along their rows so that one GEMM computes all of them (q, k, v;
/// gate and up; gate and up of every expert). The data is in `whole` or, if tensors of a checkpoint were adopted
/// without a copy, in `parts`.
struct PackedTensor {
  /// One matrix of a packed parameter.
  struct Part {
    std::string name;  ///< dotted path under the owner: "q.weight"
    int64_t rows = 0;  ///< rows of this matrix
  };
  std::vector<Part> layout;   ///< the matrices, in order
  Tensor whole;               ///< [Σ rows, …]; undefined if unpacked
  std::vector<Tensor> parts;  ///< one tensor [rows, …] per matrix, if unpacked; empty otherwise
  int axis = 0;               ///< the row dimension; 1 if an expert dimension precedes it

  bool is_packed() const { return whole.defined(); }  ///< whether the data is in `whole`
  /// Part i: a view of `whole`, or parts[i].
  Tensor part(size_t i) const;
};

struct WeightFormats;

/// Base class of everything with named tensors, like torch.nn.Module. A derived class has its tensors and child modules
/// as members and registers them in its constructor. The base class stores pointers to them, so modules cannot be
/// copied or moved.
class Module {
 public:
  Module() = default;
  virtual ~Module() = default;
  Module(const Module&) = delete;
  Module& operator=(const Module&) = delete;

  /// Handles of the parameters, with names. Watching one on a tape makes it a leaf. A tensor with two names (tied
  /// weights) appears twice here and once in parameters(). A packed parameter is one tensor under its packed name,
  /// unless it is unpacked.
  StateDict named_parameters() const;
  /// The number of rows of each part, for every packed parameter, by its packed name.
  std::map<std::string, std::vector<int64_t>> packed_rows() const;
  /// How a packed parameter is divided.
  struct PackedLayout {
    std::vector<PackedTensor::Part> parts;  ///< the parts, with their names in state_dict()
    int axis = 0;                           ///< dimension along which the parts follow each other
  };
  std::map<std::string, PackedLayout> packed_layouts() const;  ///< layouts of all packed parameters, by name
  std::vector<Tensor> parameters() const;                      ///< handles, each tensor once
  /// All buffers, persistent or not.
  StateDict named_buffers() const;

  /// Parameters and persistent buffers, as stored in a checkpoint. Parts of packed parameters appear as views under
  /// their own names.
  StateDict state_dict() const;
  /// Gradients of the parameters on `tape`, named as in state_dict(). Undefined for parameters without a gradient.
  StateDict named_gradients(const Tape& tape) const;
  /// Copies values into parameters and persistent buffers, converting dtype and device. Everything is checked before
  /// anything is written; one Error reports all problems. Wrong shapes are always an error, missing and unexpected
  /// names only if `strict`.
  LoadReport load_state_dict(const StateDict& values, bool strict = true);
  /// Replaces the module's tensors by the given ones without a copy, for example to use a memory-mapped checkpoint in
  /// place. Every name must be given and shapes must match. Dtypes and devices become those of the given tensors. Works
  /// on a module built on the meta device. Afterwards packed parameters are unpacked.
  void adopt_state_dict(const StateDict& values);

  /// Moves every tensor, including buffers. The move is not differentiable: watch the parameters again afterwards.
  void to(const Device& device);
  /// Converts the parameters and the persistent floating-point buffers. Non-persistent buffers keep their dtype: they
  /// are tables that the module computed.
  void to(DType dtype);

  /// Initialises the parameters of this module and its children. A constructor of a module with parameters calls it
  /// once.
  virtual void reset_parameters();

  /// Converts or quantizes the projection weights for generation. Quantized weights have no gradient; the original
  /// tensors become meta tensors of the same shape. `prefix` is this module's name followed by a dot, or empty for the
  /// root.
  virtual void store_weights(const WeightFormats& formats, const std::string& prefix = "");

 protected:
  /// Whether a buffer is part of the state dictionary.
  enum class Persistence : uint8_t { persistent, non_persistent };
  /// Registers a member as parameter `name`. It must be defined and live as long as the module.
  void add_parameter(const std::string& name, Tensor& tensor);
  /// Registers a member as buffer `name`: a tensor without gradient that moves with the module.
  void add_buffer(const std::string& name, Tensor& tensor, Persistence persistence);
  /// Registers a packed parameter. `name` is its packed name; `packed.layout` has the names used in the state
  /// dictionary.
  void add_packed_parameter(const std::string& name, PackedTensor& packed);
  /// The first parameter of this module and its children.
  const Tensor& first_parameter() const;
  /// Registers a child module. With an empty name, its tensors appear directly under this module's prefix.
  void add_child(const std::string& name, Module& child);

 private:
  enum class Role : uint8_t { parameter, persistent_buffer, non_persistent_buffer };
  struct Slot {
    std::string name;
    Role role;
    Tensor* tensor;        ///< null for a packed parameter
    PackedTensor* packed;  ///< null for a plain tensor
  };
  /// Calls body(prefix, slot) for this module's slots, then for its children's.
  void visit_slots(const std::string& prefix, const std::function<void(const std::string&, const Slot&)>& body) const;
  /// Calls body(dotted name, role, tensor) for every tensor. A packed parameter counts once, an unpacked one once per
  /// part.
  void visit(const std::function<void(const std::string&, Role, Tensor&)>& body) const;
  void check_name(const std::string& name) const;
  void replace(const std::function<Tensor(Role, const Tensor&)>& convert);

  std::vector<Slot> slots_;
  std::vector<std::pair<std::string, Module*>> children_;
};

}  // namespace lamina::nn
