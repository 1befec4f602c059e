#include "tally/core/recompute.h"

#include <optional>

#include "tally/base/error.h"
#include "tally/base/generator.h"
#include "tally/core/tape.h"

namespace tally {

namespace {

// The seed and the draws of the process's generator; and, while a Moved lives, those given.
struct Position {
  uint64_t seed = default_generator().initial_seed(), draws = default_generator().draws();
  void set() const { default_generator().manual_seed(seed).set_draws(draws); }
};
class Moved {
 public:
  explicit Moved(const Position& to) { to.set(); }
  Moved(const Moved&) = delete;
  Moved& operator=(const Moved&) = delete;
  ~Moved() { before_.set(); }

 private:
  Position before_;
};

// Stands for what the ops of one call saved: notes of each tensor, until it is asked for the first.
class SecondRun : public SavedHome {
 public:
  SecondRun(TensorFunction fn, const std::vector<Tensor>& inputs)
      : fn_(std::move(fn)), scope_(Ledger::current().scope()) {
    for (const Tensor& x : inputs) {  // they go where those of an op here would go: of an outer recompute, to it
      inputs_.emplace_back(x, scope_);
      needs_.push_back(x.requires_grad());
    }
  }

  std::vector<Tensor> run(const std::vector<Tensor>& inputs) {
    SavedHomeGuard here(this);
    return fn_(inputs);
  }

  int put(const Tensor& x, int scope) override {
    if (x.category() == Category::kParameter) return kStays;
    if (!again_) {
      notes_.push_back({x.sizes(), x.dtype(), x.version(), true});
      values_.emplace_back();
      return static_cast<int>(notes_.size()) - 1;
    }
    if (next_ == notes_.size()) differs();
    const Note& n = notes_[next_];
    if (n.size != x.sizes() || n.dtype != x.dtype()) differs();
    if (n.version != x.version())
      fail(
          "one of the variables needed for gradient computation has been modified by an inplace operation: recompute "
          "needs the {} tensor of shape {} at version {}, but it is at version {}; change it after the backward",
          name_of(n.dtype), str(n.size), n.version, x.version());
    if (n.wanted) {
      SavedHomeGuard none(nullptr);
      values_[next_].emplace(x, scope);
    }
    ++next_;
    return kNowhere;
  }

  Tensor bring(int ticket, bool again) override {
    std::optional<Saved>& value = values_[static_cast<size_t>(ticket)];
    if (!value) run_again(again);
    Tensor x = value->take("recompute");
    value.reset();
    return x;
  }

  void drop(int ticket) override {
    notes_[static_cast<size_t>(ticket)].wanted = false;
    values_[static_cast<size_t>(ticket)].reset();
  }

 private:
  struct Note {
    Dims size;
    DType dtype;
    int64_t version;
    bool wanted;
  };
  class Again {
   public:
    explicit Again(bool& flag) : flag_(flag) { flag_ = true; }
    Again(const Again&) = delete;
    Again& operator=(const Again&) = delete;
    ~Again() { flag_ = false; }

   private:
    bool& flag_;
  };

  [[noreturn]] void differs() const {
    fail(
        "recompute: the function saved other tensors the second time: tensor {} of {} differs; it must do the same "
        "both "
        "times, whatever changed outside",
        next_ + 1, notes_.size());
  }

  void run_again(bool once_more) {
    PhaseGuard phase("recompute");
    ScopeGuard scope("");  // restores it
    Ledger::current().set_scope(scope_);
    std::vector<Tensor> inputs;
    for (size_t i = 0; i < inputs_.size(); ++i) {
      Tensor x = once_more ? inputs_[i].get("recompute", true).detach() : inputs_[i].take("recompute");
      if (once_more) inputs_[i].put_back();
      if (needs_[i]) x.set_requires_grad();
      inputs.push_back(std::move(x));
    }
    EnableGrad on;
    Moved generator(position_);
    Again again(again_);
    next_ = 0;
    run(inputs);
    if (next_ != notes_.size()) differs();
  }

  TensorFunction fn_;
  std::vector<Saved> inputs_;
  std::vector<bool> needs_;
  std::vector<Note> notes_;
  std::vector<std::optional<Saved>> values_;  // by ticket, between the second run and their use
  int scope_;
  Position position_;
  bool again_ = false;
  size_t next_ = 0;
};

}  // namespace

std::vector<Tensor> recompute(TensorFunction fn, const std::vector<Tensor>& inputs) {
  if (NoGrad::active()) return fn(inputs);
  const Ref<SecondRun> frame(new SecondRun(std::move(fn), inputs));
  return frame->run(inputs);
}

}  // namespace tally
