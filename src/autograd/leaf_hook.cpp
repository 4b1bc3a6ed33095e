#include "lamina/autograd/leaf_hook.h"

#include "lamina/autograd/state.h"

namespace lamina {

void set_leaf_hook(const Tensor& leaf, std::function<void()> ready) {
  const auto entry = autograd::entry_of(leaf);
  LAMINA_CHECK(entry && entry->is_leaf() && entry->state(), "set_leaf_hook: the tensor ", leaf.shape(),
               " is not a leaf of a tape; watch it first");
  if (ready) entry->state()->has_hooks = true;
  entry->on_ready = std::move(ready);
}

}  // namespace lamina
