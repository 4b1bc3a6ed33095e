#pragma once

#include <functional>

#include "lamina/tensor/tensor.h"

namespace lamina {

/// In every later backward pass, calls `ready` as soon as the gradient of a watched leaf is complete, so that it can be
/// sent to other ranks while the pass continues. An empty function removes the hook. Hooks are not called in a graph
/// with checkpointed segments, nor for leaves that the graph does not use; the caller must handle these leaves after
/// backward. Throws Error if `leaf` is not watched by a tape.
void set_leaf_hook(const Tensor& leaf, std::function<void()> ready);

}  // namespace lamina
