#include "lamina/train/ema.h"

#include <algorithm>

#include "lamina/ops/elementwise/elementwise.h"
#include "lamina/ops/optim/grad_norm.h"

namespace lamina::train {

Ema::Ema(const NamedTensors& parameters, double decay) : decay_(decay) {
  LAMINA_CHECK(decay > 0.0 && decay < 1.0, "ema: the decay ", decay, " is not between 0 and 1; 0.999 is usual");
  for (const NamedTensor& parameter : parameters) {
    const Tensor value = parameter.tensor.detach();
    parameters_.push_back({parameter.name, value});
    const DType wide = accumulation_type(value.dtype());
    average_.push_back({parameter.name, value.dtype() == wide ? value.clone() : value.to(wide)});
  }
}

void Ema::update(int64_t updates) {
  const auto n = static_cast<double>(updates);
  const double decay = std::min(decay_, (1.0 + n) / (10.0 + n));
  for (size_t i = 0; i < average_.size(); ++i) {
    Tensor& average = average_[i].tensor;
    const Tensor& value = parameters_[i].tensor;
    ops::scale_({average}, decay);
    average.add_(ops::scale(value.dtype() == average.dtype() ? value : value.to(average.dtype()), 1.0 - decay));
  }
}

Ema::InPlace::InPlace(Ema* ema) : ema_(ema) {
  if (ema_ == nullptr) return;
  // Clone everything first: if memory runs out here, no parameter has changed yet.
  for (const NamedTensor& parameter : ema_->parameters_) kept_.push_back(parameter.tensor.clone());
  for (size_t i = 0; i < kept_.size(); ++i) ema_->parameters_[i].tensor.copy_(ema_->average_[i].tensor);
}

Ema::InPlace::~InPlace() {
  for (size_t i = 0; i < kept_.size(); ++i) ema_->parameters_[i].tensor.copy_(kept_[i]);
}

}  // namespace lamina::train
