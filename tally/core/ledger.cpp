#include "tally/core/ledger.h"

#include "tally/core/hardware.h"
#include "tally/core/timeline.h"

namespace tally {

const char* name_of(Category c) {
  constexpr std::array<const char*, kCategories> names = {"parameter", "gradient",  "optimizer", "activation",
                                                          "cache",     "workspace", "data"};
  return names[static_cast<size_t>(c)];
}

int64_t total(const CategoryBytes& bytes) {
  int64_t sum = 0;
  for (int64_t b : bytes) sum += b;
  return sum;
}

namespace {
// A plain address, because reading a thread's object that has a destructor costs more.
thread_local Ledger* current_ledger = nullptr;
struct Owner {
  Ref<Ledger> ledger;
  ~Owner() { current_ledger = nullptr; }
};
thread_local Owner owner;

void make_current(Ref<Ledger> ledger) {
  owner.ledger = std::move(ledger);
  current_ledger = owner.ledger.get();
}
}  // namespace

Ledger& Ledger::current() {
  if (current_ledger == nullptr) [[unlikely]]
    make_current(Ref<Ledger>(new Ledger));
  return *current_ledger;
}

bool Ledger::of_this_thread() const { return current_ledger == this; }

void Ledger::spend(const char* op, const Cost& cost) {
  const double seconds = hardware_ ? hardware_->predict(cost) : 0;
  if (timeline_) timeline_->launch(phases_[phase_], seconds, live());
  for (int i : nodes_[scope_].entries) {
    Slot& s = slots_[i];
    if (s.op == op && s.phase == phase_) {
      s.cost += cost, ++s.launches, s.seconds += seconds;
      return;
    }
  }
  nodes_[scope_].entries.push_back(static_cast<int>(slots_.size()));
  slots_.push_back({op, phase_, scope_, cost, 1, seconds});
}

Ledger::Mark Ledger::mark() const {
  Mark m;
  m.slots_ = slots_;
  return m;
}

void Ledger::repeat_since(const Mark& mark, int64_t times) {
  for (size_t i = 0; i < slots_.size(); ++i) {
    Slot& s = slots_[i];
    const Slot none{s.op, s.phase, s.scope, {}, 0, 0};
    const Slot& before = i < mark.slots_.size() ? mark.slots_[i] : none;
    s.cost.matmul_flops += (s.cost.matmul_flops - before.cost.matmul_flops) * times;
    s.cost.other_flops += (s.cost.other_flops - before.cost.other_flops) * times;
    s.cost.bytes_read += (s.cost.bytes_read - before.cost.bytes_read) * times;
    s.cost.bytes_written += (s.cost.bytes_written - before.cost.bytes_written) * times;
    s.cost.wire_bytes += (s.cost.wire_bytes - before.cost.wire_bytes) * times;
    s.launches += (s.launches - before.launches) * times;
    s.seconds += (s.seconds - before.seconds) * static_cast<double>(times);
  }
}

template <class F>
void Ledger::bring_late(const F& add) {
  const std::lock_guard lock(late_.mutex);
  add();
  some_late_.store(true, std::memory_order_release);
}

void Ledger::take_late() {
  const std::lock_guard lock(late_.mutex);
  some_late_.store(false, std::memory_order_relaxed);
  for (size_t c = 0; c < kCategories; ++c) {
    live_[c] += late_.live[c], live_total_ += late_.live[c];
    for (auto& [scope, bytes] : late_.saved) saved_[c] += bytes[c], nodes_[scope].saved[c] += bytes[c];
  }
  offloaded_ += late_.offloaded;
  late_.live = {}, late_.offloaded = 0;
  late_.saved.clear();
}

void Ledger::charge_offloaded(int64_t bytes) {
  if (!of_this_thread()) return bring_late([&] { late_.offloaded += bytes; });
  offloaded_ += bytes;
}

void Ledger::charge(Category category, int64_t bytes) {
  if (!of_this_thread()) [[unlikely]]
    return bring_late([&] { late_.live[static_cast<size_t>(category)] += bytes; });
  settle();
  live_[static_cast<size_t>(category)] += bytes;
  live_total_ += bytes;
  if (live_total_ > peak_total_) {
    peak_total_ = live_total_;
    at_peak_ = live_;
    peak_scope_ = scope_, peak_phase_ = phase_;
  }
  if (timeline_) timeline_->charge(live_);
}

void Ledger::charge_saved(int scope, Category category, int64_t bytes) {
  if (!of_this_thread()) [[unlikely]]
    return bring_late([&] { late_.saved[scope][static_cast<size_t>(category)] += bytes; });
  saved_[static_cast<size_t>(category)] += bytes;
  nodes_[scope].saved[static_cast<size_t>(category)] += bytes;
}

std::vector<std::pair<std::string, CategoryBytes>> Ledger::saved_by_scope() const {
  settle();
  std::vector<std::pair<std::string, CategoryBytes>> all;
  for (size_t i = 0; i < nodes_.size(); ++i)
    if (total(nodes_[i].saved) != 0) all.emplace_back(scope_path(static_cast<int>(i)), nodes_[i].saved);
  return all;
}

Cost Ledger::cost() const {
  Cost sum;
  for (const Slot& s : slots_) sum += s.cost;
  return sum;
}

Cost Ledger::cost(const std::string& phase) const {
  Cost sum;
  for (const Slot& s : slots_)
    if (phases_[s.phase] == phase) sum += s.cost;
  return sum;
}

double Ledger::predicted_seconds() const {
  double sum = 0;
  for (const Slot& s : slots_) sum += s.seconds;
  return sum;
}

int64_t Ledger::launches() const {
  int64_t sum = 0;
  for (const Slot& s : slots_) sum += s.launches;
  return sum;
}

std::vector<Ledger::Entry> Ledger::entries() const {
  std::vector<Entry> all;
  for (const Slot& s : slots_)
    if (s.launches > 0) all.push_back({s.op, phases_[s.phase], scope_path(s.scope), s.cost, s.launches, s.seconds});
  return all;
}

void Ledger::clear_costs() {
  for (Slot& s : slots_) s.cost = {}, s.launches = 0, s.seconds = 0;
}

std::string Ledger::peak_moment() const {
  const std::string scope = scope_path(peak_scope_), phase = phases_[peak_phase_];
  return phase.empty() || scope.empty() ? phase + scope : phase + " " + scope;
}

void Ledger::reset_peak() {
  settle();
  peak_total_ = live_total_;
  at_peak_ = live_;
  peak_scope_ = scope_, peak_phase_ = phase_;
}

int Ledger::enter(int parent, const char* name) {
  for (int child : nodes_[parent].children)
    if (nodes_[child].name == name) return child;
  const int id = static_cast<int>(nodes_.size());
  nodes_[parent].children.push_back(id);
  nodes_.push_back({name, parent, {}, {}});
  return id;
}

int Ledger::set_scope(int scope) { return std::exchange(scope_, scope); }
int Ledger::set_phase(int phase) { return std::exchange(phase_, phase); }

int Ledger::phase_id(const char* name) {
  for (size_t i = 0; i < phases_.size(); ++i)
    if (phases_[i] == name) return static_cast<int>(i);
  phases_.emplace_back(name);
  return static_cast<int>(phases_.size()) - 1;
}

std::string Ledger::scope_path(int scope) const {
  std::string path;
  for (int s = scope; s > 0; s = nodes_[s].parent) path = path.empty() ? nodes_[s].name : nodes_[s].name + "/" + path;
  return path;
}

Json Ledger::to_json() const {
  Json scopes = Json::array();
  for (const Entry& e : entries()) {
    Json j = Json::object();
    j.set("phase", e.phase).set("scope", e.scope).set("op", e.op).set("launches", e.launches);
    j.set("matmul_flops", e.cost.matmul_flops).set("other_flops", e.cost.other_flops);
    j.set("bytes_read", e.cost.bytes_read).set("bytes_written", e.cost.bytes_written);
    if (hardware_) j.set("predicted_seconds", e.predicted_seconds);
    scopes.push_back(j);
  }
  Json peak = Json::object();
  for (int c = 0; c < kCategories; ++c) peak.set(name_of(static_cast<Category>(c)), at_peak_[c]);
  const Cost sum = cost();
  return Json::object()
      .set("matmul_flops", sum.matmul_flops)
      .set("other_flops", sum.other_flops)
      .set("bytes_read", sum.bytes_read)
      .set("bytes_written", sum.bytes_written)
      .set("peak_bytes", peak_total_)
      .set("peak_moment", peak_moment())
      .set("peak_by_category", peak)
      .set("entries", scopes);
}

LedgerGuard::LedgerGuard() : LedgerGuard(Ref<Ledger>(new Ledger)) {}
LedgerGuard::LedgerGuard(Ref<Ledger> ledger) : ledger_(std::move(ledger)), previous_(current_ledger) {
  make_current(ledger_);
}
LedgerGuard::~LedgerGuard() { make_current(previous_); }

ScopeGuard::ScopeGuard(const char* name) {
  Ledger& l = Ledger::current();
  previous_ = l.set_scope(l.enter(l.scope(), name));
}
ScopeGuard::~ScopeGuard() { Ledger::current().set_scope(previous_); }

PhaseGuard::PhaseGuard(const char* name) {
  Ledger& l = Ledger::current();
  previous_ = l.set_phase(l.phase_id(name));
}
PhaseGuard::~PhaseGuard() { Ledger::current().set_phase(previous_); }

}  // namespace tally
