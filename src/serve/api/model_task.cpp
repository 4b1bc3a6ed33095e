#include "lamina/serve/api/model_task.h"

#include "lamina/serve/api/failure.h"
#include "lamina/serve/api/fields.h"

namespace lamina::serve {

void ModelTask::guard(const std::function<void()>& work) {
  if (cancelled_) return;
  try {
    work();
  } catch (...) {
    cancelled_ = true;
    exchange->send(failure_response(std::current_exception()));
  }
}

void ModelTask::between_steps(const std::shared_ptr<ServedModel>& served, std::function<void(nn::Model&)> work) {
  if (!served->runs_tasks()) {
    throw ApiError(400, str("model ", served->id, " cannot be used this way", served->why_no_tasks()), "model");
  }
  served->backend->post([self = shared_from_this(), served, work = std::move(work)] {
    self->guard([&] { work(*served->model); });
    // Frees cached blocks, because engine steps do not use their sizes. A GPU keeps them: freeing synchronizes the
    // device.
    const Device& device = served->model->device();
    if (device.kind() == DeviceKind::cpu) device.allocator().trim();
  });
}

void ModelTask::watch_client() {
  exchange->on_close([self = weak_from_this()] {
    if (const auto task = self.lock()) task->cancelled_ = true;
  });
}

}  // namespace lamina::serve
