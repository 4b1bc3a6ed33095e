#include "lamina/nn/module.h"

#include <algorithm>
#include <set>

#include "lamina/autograd/tape.h"

namespace lamina::nn {
namespace {

std::string nearest(const std::string& name, const std::set<std::string>& known) {
  for (const std::string& candidate : known) {
    if (is_near(name, candidate)) return str(" (did you mean '", candidate, "'?)");
  }
  return "";
}

/// The reason why `value` cannot be loaded into `target`, as a line of an error message. Empty if it can.
std::string mismatch(const std::string& name, const Tensor& value, const Tensor& target) {
  if (!value.defined()) return str("\n  '", name, "' is undefined");
  if (value.shape() != target.shape()) {
    return str("\n  '", name, "' is ", value.shape(), ", the module has ", target.shape());
  }
  if (is_floating(value.dtype()) != is_floating(target.dtype())) {
    return str("\n  '", name, "' is ", value.dtype(), ", the module has ", target.dtype());
  }
  if (value.is_meta()) return str("\n  '", name, "' is a meta tensor without values");
  if (target.is_meta()) return str("\n  '", name, "' is on meta in the module; move the module to a device first");
  return "";
}

}  // namespace

Tensor PackedTensor::part(size_t i) const {
  if (!is_packed()) return parts.at(i);
  int64_t begin = 0;
  for (size_t k = 0; k < i; ++k) begin += layout[k].rows;
  return whole.slice(axis, begin, layout.at(i).rows);
}

void Module::visit_slots(const std::string& prefix,
                         const std::function<void(const std::string&, const Slot&)>& body) const {
  for (const Slot& slot : slots_) body(prefix, slot);
  for (const auto& [name, child] : children_) child->visit_slots(name.empty() ? prefix : prefix + name + ".", body);
}

void Module::visit(const std::function<void(const std::string&, Role, Tensor&)>& body) const {
  visit_slots("", [&](const std::string& prefix, const Slot& slot) {
    if (slot.tensor != nullptr) return body(prefix + slot.name, slot.role, *slot.tensor);
    PackedTensor& packed = *slot.packed;
    if (packed.is_packed()) return body(prefix + slot.name, slot.role, packed.whole);
    for (size_t i = 0; i < packed.parts.size(); ++i) body(prefix + packed.layout[i].name, slot.role, packed.parts[i]);
  });
}

void Module::check_name(const std::string& name) const {
  LAMINA_CHECK(!name.empty() && name.find('.') == std::string::npos, "module: '", name,
               "' cannot be a name; use one without dots");
  const bool taken = std::any_of(slots_.begin(), slots_.end(), [&](const Slot& slot) { return slot.name == name; }) ||
                     std::any_of(children_.begin(), children_.end(), [&](const auto& c) { return c.first == name; });
  LAMINA_CHECK(!taken, "module: the name '", name, "' is registered twice; names must differ");
}

void Module::add_parameter(const std::string& name, Tensor& tensor) {
  check_name(name);
  LAMINA_CHECK(tensor.defined(), "module: parameter '", name, "' is undefined; create it before registering it");
  slots_.push_back({name, Role::parameter, &tensor, nullptr});
}

void Module::add_buffer(const std::string& name, Tensor& tensor, Persistence persistence) {
  check_name(name);
  LAMINA_CHECK(tensor.defined(), "module: buffer '", name, "' is undefined; create it before registering it");
  const bool kept = persistence == Persistence::persistent;
  slots_.push_back({name, kept ? Role::persistent_buffer : Role::non_persistent_buffer, &tensor, nullptr});
}

void Module::add_packed_parameter(const std::string& name, PackedTensor& packed) {
  LAMINA_CHECK(packed.is_packed() && packed.parts.empty() && !packed.layout.empty(), "module: packed parameter '", name,
               "' has no whole tensor or no parts; fill both before registering it");
  int64_t rows = 0;
  for (const PackedTensor::Part& part : packed.layout) rows += part.rows;
  LAMINA_CHECK(packed.whole.rank() > packed.axis && packed.whole.dim(packed.axis) == rows, "module: packed parameter '",
               name, "' is ", packed.whole.shape(), ", its parts have ", rows, " rows in dimension ", packed.axis);
  slots_.push_back({name, Role::parameter, nullptr, &packed});
}

void Module::add_child(const std::string& name, Module& child) {
  if (!name.empty()) check_name(name);
  LAMINA_CHECK(&child != this, "module: '", name, "' is the module itself");
  children_.emplace_back(name, &child);
}

StateDict Module::named_parameters() const {
  StateDict found;
  visit([&](const std::string& name, Role role, Tensor& tensor) {
    if (role == Role::parameter) found.push_back({name, tensor});
  });
  return found;
}

const Tensor& Module::first_parameter() const {
  const Tensor* found = nullptr;
  visit([&](const std::string& /*name*/, Role role, Tensor& tensor) {
    if (found == nullptr && role == Role::parameter) found = &tensor;
  });
  LAMINA_CHECK(found != nullptr, "module: there are no parameters");
  return *found;
}

std::map<std::string, std::vector<int64_t>> Module::packed_rows() const {
  std::map<std::string, std::vector<int64_t>> found;
  visit_slots("", [&](const std::string& prefix, const Slot& slot) {
    if (slot.packed == nullptr || !slot.packed->is_packed()) return;
    std::vector<int64_t>& rows = found[prefix + slot.name];
    for (const PackedTensor::Part& part : slot.packed->layout) rows.push_back(part.rows);
  });
  return found;
}

std::map<std::string, Module::PackedLayout> Module::packed_layouts() const {
  std::map<std::string, PackedLayout> found;
  visit_slots("", [&](const std::string& prefix, const Slot& slot) {
    if (slot.packed == nullptr || !slot.packed->is_packed()) return;
    PackedLayout& layout = found[prefix + slot.name];
    layout.axis = slot.packed->axis;
    for (const PackedTensor::Part& part : slot.packed->layout) layout.parts.push_back({prefix + part.name, part.rows});
  });
  return found;
}

std::vector<Tensor> Module::parameters() const {
  std::vector<Tensor> found;
  for (auto& [name, tensor] : named_parameters()) {
    const Tensor& candidate = tensor;
    if (std::none_of(found.begin(), found.end(), [&](const Tensor& other) { return other.is_same_view(candidate); })) {
      found.push_back(tensor);
    }
  }
  return found;
}

StateDict Module::named_buffers() const {
  StateDict found;
  visit([&](const std::string& name, Role role, Tensor& tensor) {
    if (role != Role::parameter) found.push_back({name, tensor});
  });
  return found;
}

StateDict Module::state_dict() const {
  StateDict found;
  visit_slots("", [&](const std::string& prefix, const Slot& slot) {
    if (slot.role == Role::non_persistent_buffer) return;
    if (slot.tensor != nullptr) {
      found.push_back({prefix + slot.name, slot.tensor->detach()});
      return;
    }
    PackedTensor plain = *slot.packed;
    if (plain.is_packed()) plain.whole = plain.whole.detach();
    for (size_t i = 0; i < plain.layout.size(); ++i) {
      found.push_back({prefix + plain.layout[i].name, plain.part(i).detach()});
    }
  });
  return found;
}

StateDict Module::named_gradients(const Tape& tape) const {
  StateDict found;
  visit_slots("", [&](const std::string& prefix, const Slot& slot) {
    if (slot.role != Role::parameter) return;
    if (slot.tensor != nullptr) {
      found.push_back({prefix + slot.name, tape.grad(*slot.tensor)});
      return;
    }
    PackedTensor grads = *slot.packed;
    if (grads.is_packed()) grads.whole = tape.grad(grads.whole);
    for (Tensor& part : grads.parts) part = tape.grad(part);
    for (size_t i = 0; i < grads.layout.size(); ++i) {
      const bool known = grads.is_packed() || !grads.parts.empty();
      found.push_back({prefix + grads.layout[i].name, known ? grads.part(i) : Tensor()});
    }
  });
  return found;
}

LoadReport Module::load_state_dict(const StateDict& values, bool strict) {
  const StateDict own = state_dict();
  std::map<std::string, Tensor> given;
  for (const auto& [name, value] : values) {
    LAMINA_CHECK(given.emplace(name, value).second, "load_state_dict: '", name, "' is given twice; names must differ");
  }
  std::set<std::string> known;
  LoadReport report;
  std::string problems;
  for (const auto& [name, target] : own) {
    known.insert(name);
    const auto value = given.find(name);
    if (value == given.end()) {
      report.missing.push_back(name);
    } else {
      problems += mismatch(name, value->second, target);
    }
  }
  for (const auto& [name, value] : given) {
    if (known.count(name) == 0) report.unexpected.push_back(name);
  }
  if (strict) {
    for (const std::string& name : report.missing) problems += str("\n  '", name, "' is missing");
    for (const std::string& name : report.unexpected) {
      problems += str("\n  '", name, "' is unexpected", nearest(name, known));
    }
  }
  LAMINA_CHECK(problems.empty(), "load_state_dict: the values do not fit this module; nothing was loaded:", problems,
               "\nload a checkpoint of the same architecture", strict ? ", or pass strict = false to skip names" : "");
  for (auto [name, target] : own) {
    const auto value = given.find(name);
    if (value != given.end()) target.copy_(value->second.detach().to(target.device()));
  }
  return report;
}

void Module::adopt_state_dict(const StateDict& values) {
  std::map<std::string, Tensor> given = by_name(values);
  LAMINA_CHECK(given.size() == values.size(), "adopt_state_dict: a name is given twice; names must differ");
  std::string problems;
  std::set<std::string> known;
  for (const auto& [name, target] : state_dict()) {
    known.insert(name);
    const auto value = given.find(name);
    if (value == given.end()) {
      problems += str("\n  '", name, "' is missing");
    } else if (!value->second.defined() || value->second.shape() != target.shape()) {
      problems += str("\n  '", name, "' is ", value->second.defined() ? value->second.shape() : Shape(),
                      ", the module has ", target.shape());
    } else if (is_floating(value->second.dtype()) != is_floating(target.dtype())) {
      problems += str("\n  '", name, "' is ", value->second.dtype(), ", the module has ", target.dtype());
    }
  }
  for (const auto& [name, value] : given) {
    if (known.count(name) == 0) problems += str("\n  '", name, "' is unexpected", nearest(name, known));
  }
  LAMINA_CHECK(problems.empty(), "adopt_state_dict: the values do not fit this module; nothing was loaded:", problems,
               "\nload a checkpoint of the same architecture");
  visit_slots("", [&](const std::string& prefix, const Slot& slot) {
    if (slot.role == Role::non_persistent_buffer) return;
    if (slot.tensor != nullptr) {
      *slot.tensor = given.at(prefix + slot.name).detach();
      return;
    }
    slot.packed->whole = Tensor();
    slot.packed->parts.clear();
    for (const PackedTensor::Part& part : slot.packed->layout) {
      slot.packed->parts.push_back(given.at(prefix + part.name).detach());
    }
  });
}

void Module::replace(const std::function<Tensor(Role, const Tensor&)>& convert) {
  std::vector<std::pair<Tensor, Tensor>> done;  // (old, new) pairs, so that tied tensors stay tied
  visit([&](const std::string& /*name*/, Role role, Tensor& tensor) {
    for (const auto& [before, after] : done) {
      if (!before.is_same_view(tensor)) continue;
      tensor = after;
      return;
    }
    const Tensor before = tensor;
    tensor = convert(role, tensor);
    done.emplace_back(before, tensor);
  });
}

void Module::to(const Device& device) {
  replace([&](Role /*role*/, const Tensor& tensor) {
    return tensor.device() == device ? tensor : tensor.detach().to(device);
  });
}

void Module::to(DType dtype) {
  LAMINA_CHECK(is_floating(dtype), "module: cannot be converted to ", dtype, "; expected f32, f64, bf16 or f16");
  replace([&](Role role, const Tensor& tensor) {
    const bool kept = role == Role::non_persistent_buffer || !is_floating(tensor.dtype()) || tensor.dtype() == dtype;
    return kept ? tensor : tensor.detach().to(dtype);
  });
}

void Module::store_weights(const WeightFormats& formats, const std::string& prefix) {
  for (const auto& [name, child] : children_) {
    child->store_weights(formats, name.empty() ? prefix : prefix + name + ".");
  }
}

void Module::reset_parameters() {
  for (const auto& [name, child] : children_) child->reset_parameters();
}

}  // namespace lamina::nn
