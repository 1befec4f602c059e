// The accounts: FLOPs and bytes of every launch by scope and op, live memory by category with the peak and its moment.
// One ledger is current on a thread; launch() and the allocator write to it, on meta and on a real device alike, so a
// plan is the ledger of the same code run on meta. A thread writes costs and bytes to its current ledger; bytes that a
// thread gives back to another's (a tensor freed there) wait behind a lock until that ledger is next used.
#pragma once

#include <array>
#include <atomic>
#include <map>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "tally/base/json.h"
#include "tally/core/cost.h"
#include "tally/core/ref.h"

namespace tally {

enum class Category : uint8_t { kParameter, kGradient, kOptimizer, kActivation, kCache, kWorkspace, kData };
constexpr int kCategories = 7;
const char* name_of(Category c);

using CategoryBytes = std::array<int64_t, kCategories>;
int64_t total(const CategoryBytes& bytes);

struct Hardware;
class Timeline;

class Ledger {
 public:
  std::atomic<int32_t> references{0};

  // What one op cost in one scope and phase.
  struct Entry {
    const char* op = "";
    std::string phase;  // "forward", "backward", "optimizer" ...
    std::string scope;  // "blocks.3/attn"
    Cost cost;
    int64_t launches = 0;
    double predicted_seconds = 0;  // 0 without a hardware model
  };

  static Ledger& current();

  void spend(const char* op, const Cost& cost);
  void charge(Category category, int64_t bytes);  // negative gives back

  // Cost so far, in all or in a phase.
  Cost cost() const;
  Cost cost(const std::string& phase) const;
  double predicted_seconds() const;
  int64_t launches() const;
  std::vector<Entry> entries() const;  // in order of first use
  void clear_costs();
  // Costs as they stand; repeat_since() spends what has been spent since then so many times more, as a loop of equal
  // parts would.
  class Mark;
  Mark mark() const;
  void repeat_since(const Mark& mark, int64_t times);

  const CategoryBytes& live() const { return settle(), live_; }
  int64_t live_bytes() const { return settle(), live_total_; }
  int64_t peak_bytes() const { return peak_total_; }
  const CategoryBytes& at_peak() const { return at_peak_; }
  std::string peak_moment() const;  // "backward blocks.1/mlp"
  void reset_peak();

  // Bytes kept for backwards now: blocks of which a tensor is saved, each once, by category (a saved parameter is no
  // memory of its own) and by the scope that saved it first.
  const CategoryBytes& saved() const { return settle(), saved_; }
  std::vector<std::pair<std::string, CategoryBytes>> saved_by_scope() const;
  void charge_saved(int scope, Category category, int64_t bytes);
  // Bytes of saved tensors that are in host memory now (OffloadSaved); they are in no category.
  int64_t offloaded_bytes() const { return settle(), offloaded_; }
  void charge_offloaded(int64_t bytes);

  // Predicts the time of every launch from these peaks; null turns it off. The pointer must outlive its use.
  void set_hardware(const Hardware* hardware) { hardware_ = hardware; }
  // Writes live bytes to it at every charge and launch (core/timeline.h); null, as at first, turns it off.
  void set_timeline(Timeline* timeline) { timeline_ = timeline; }

  // Scopes are interned: an id names a path. 0 is the root "".
  int enter(int parent, const char* name);
  int scope() const { return scope_; }
  int set_scope(int scope);  // returns the previous one
  int phase() const { return phase_; }
  int set_phase(int phase);
  int phase_id(const char* name);
  std::string scope_path(int scope) const;

  Json to_json() const;

 private:
  // What threads brought whose current ledger is another.
  struct Late {
    std::mutex mutex;
    CategoryBytes live{};
    int64_t offloaded = 0;
    std::map<int, CategoryBytes> saved;  // by scope
  };
  bool of_this_thread() const;
  template <class F>
  void bring_late(const F& add);
  void settle() const {
    if (some_late_.load(std::memory_order_acquire)) [[unlikely]]
      const_cast<Ledger*>(this)->take_late();
  }
  void take_late();

  struct Node {
    std::string name;
    int parent = -1;
    std::vector<int> children;
    std::vector<int> entries;
    CategoryBytes saved{};
  };
  struct Slot {
    const char* op;
    int phase, scope;
    Cost cost;
    int64_t launches;
    double seconds;
  };
  std::vector<Node> nodes_{Node{}};
  std::vector<std::string> phases_{""};
  std::vector<Slot> slots_;
  int scope_ = 0, phase_ = 0;
  CategoryBytes live_{}, at_peak_{}, saved_{};
  int64_t offloaded_ = 0;
  int64_t live_total_ = 0, peak_total_ = 0;
  int peak_scope_ = 0, peak_phase_ = 0;
  const Hardware* hardware_ = nullptr;
  Timeline* timeline_ = nullptr;
  std::atomic<bool> some_late_{false};
  Late late_;
};

class Ledger::Mark {
  friend class Ledger;
  std::vector<Slot> slots_;
};

// Makes a fresh ledger current for the lifetime of this object. Tensors made under it keep it alive.
class LedgerGuard {
 public:
  LedgerGuard();
  explicit LedgerGuard(Ref<Ledger> ledger);
  LedgerGuard(const LedgerGuard&) = delete;
  LedgerGuard& operator=(const LedgerGuard&) = delete;
  ~LedgerGuard();
  Ledger& ledger() const { return *ledger_; }

 private:
  Ref<Ledger> ledger_, previous_;
};

// ScopeGuard s("attn"): what is launched until the end of the block counts under ".../attn".
class ScopeGuard {
 public:
  explicit ScopeGuard(const char* name);
  explicit ScopeGuard(const std::string& name) : ScopeGuard(name.c_str()) {}
  ScopeGuard(const ScopeGuard&) = delete;
  ScopeGuard& operator=(const ScopeGuard&) = delete;
  ~ScopeGuard();

 private:
  int previous_;
};

// PhaseGuard p("backward"): the phase of the step.
class PhaseGuard {
 public:
  explicit PhaseGuard(const char* name);
  PhaseGuard(const PhaseGuard&) = delete;
  PhaseGuard& operator=(const PhaseGuard&) = delete;
  ~PhaseGuard();

 private:
  int previous_;
};

}  // namespace tally
