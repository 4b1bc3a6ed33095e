#pragma once

#include "lamina/base/error.h"
#include "lamina/text/template/interpreter.h"

namespace lamina::text::jinja {

/// A new scope for its lifetime. A scope that a macro captured stays until the end of the rendering.
class Interpreter::Inner {
 public:
  Inner(Interpreter& run, Scope* parent) : run_(run), outer_(run.scope_), scope_(std::make_unique<Scope>()) {
    scope_->parent = parent;
    run_.scope_ = scope_.get();
  }
  ~Inner() {
    run_.scope_ = outer_;
    if (scope_->captured) run_.captured_scopes_.push_back(std::move(scope_));
  }
  Inner(const Inner&) = delete;
  Inner& operator=(const Inner&) = delete;

 private:
  Interpreter& run_;
  Scope* outer_;
  std::unique_ptr<Scope> scope_;
};

/// Counts nested evaluations, so that no template can overflow the stack.
class Interpreter::Deeper {
 public:
  explicit Deeper(Interpreter& run) : run_(run) {
    if (run_.depth_ >= run_.limits_.max_depth) {
      throw Failure(str("evaluation is nested more than ", run_.limits_.max_depth, " levels deep: endless recursion?"));
    }
    ++run_.depth_;
  }
  ~Deeper() { --run_.depth_; }
  Deeper(const Deeper&) = delete;
  Deeper& operator=(const Deeper&) = delete;

 private:
  Interpreter& run_;
};

/// Releases the items of a loop when it ends.
class EndOfLoop {
 public:
  explicit EndOfLoop(Loop& loop) : loop_(loop) {}
  ~EndOfLoop() {
    loop_.items.clear();
    loop_.last_changed.reset();
    loop_.recursive = nullptr;
  }
  EndOfLoop(const EndOfLoop&) = delete;
  EndOfLoop& operator=(const EndOfLoop&) = delete;

 private:
  Loop& loop_;
};

}  // namespace lamina::text::jinja
