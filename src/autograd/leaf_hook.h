#pragma once

#include <functional>

#include "lamina/tensor/tensor.h"

namespace lamina {

/// Calls `ready` in every later backward pass as soon as the gradient of a watched leaf is complete, so that it can be
/// sent to other ranks while the rest of the pass runs. An empty function removes the hook. A graph with checkpointed
/// segments calls no hooks, and a leaf that the graph does not use has no call: after backward the caller treats the
/// remaining leaves. Throws Error if `leaf` is not watched by a tape.
void set_leaf_hook(const Tensor& leaf, std::function<void()> ready);

}  // namespace lamina
