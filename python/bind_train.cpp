// Training runs, their plans, and text from trained models: what `tally train`, its --dry-run and `tally generate` do.
#include <nanobind/stl/filesystem.h>
#include <nanobind/stl/function.h>

#include <memory>

#include "python/bind.h"
#include "tally/core/device.h"
#include "tally/models/decoder.h"
#include "tally/ops/measure_peaks.h"
#include "tally/train/run_folder.h"
#include "tally/train/sample.h"
#include "tally/train/trainer.h"

namespace tally::py {
namespace {

// A dict as JSON and back, by way of Python's own json.
Json json_of(nb::handle o, const char* what) {
  nb::object text = nb::module_::import_("json").attr("dumps")(o);
  return Json::parse(nb::cast<std::string>(text), what);
}
nb::object python_of(const Json& json) { return nb::module_::import_("json").attr("loads")(json.dump()); }

// A run's configuration: the preset's model, then what the dict says, then the vocabulary of its data.
RunConfig run_config(nb::handle config, const std::string& preset_name) {
  RunConfig run;
  const Json json = json_of(config, "config");
  if (!preset_name.empty()) run.model = preset(preset_name);
  fields_from_json(fields_of(run), json, "config");
  const Json* model = json.find("model");
  if (!run.data.dir.empty() && !(model && model->find("vocab_size")))
    run.model.vocab_size = read_data_info(run.data.dir).vocab_size;
  run.check();
  return run;
}

nb::dict peak_dict(const Peak& peak) {
  nb::dict by;
  for (int c = 0; c < kCategories; ++c) by[name_of(static_cast<Category>(c))] = peak.by[c];
  nb::dict d;
  d["bytes"] = peak.bytes(), d["by_category"] = by, d["moment"] = peak.moment;
  return d;
}

nb::dict plan(nb::handle config, const std::string& preset_name, bool time) {
  const RunConfig run = run_config(config, preset_name);
  Plan p;
  std::string text;
  {
    const Unlocked free;
    const Hardware* hardware = nullptr;
    if (time) require_device(run.device()), hardware = &measured_hardware(run.device());
    p = plan_run(run, hardware);
    text = plan_text(run, p);
  }
  const Cost step = p.cost.sum();
  nb::dict d;
  d["parameters"] = p.parameters, d["peak"] = peak_dict(p.step), d["peak_evaluation"] = peak_dict(p.eval);
  d["matmul_flops"] = step.matmul_flops, d["other_flops"] = step.other_flops;
  d["step_seconds"] = p.step_seconds, d["tokens_per_step"] = run.tokens_per_step(), d["text"] = text;
  return d;
}

nb::dict train(nb::handle config, const std::filesystem::path& out, const std::string& preset_name, bool resume,
               bool quiet) {
  if (out.empty()) fail_value("train: out is empty; name the folder of the run");
  const RunConfig run = run_config(config, preset_name);
  nb::dict d;
  bool complete = false;
  std::unique_ptr<Trainer> trainer;
  {
    const Unlocked free;
    TrainerOptions options;
    options.out = out, options.resume = resume, options.quiet = quiet;
    require_device(run.device());
    options.hardware = &measured_hardware(run.device());
    trainer = std::make_unique<Trainer>(run, options);
    complete = trainer->run();
  }
  d["complete"] = complete, d["step"] = trainer->state().step, d["run"] = trainer->folder().path().string();
  d["best_step"] = trainer->best().step, d["best_loss"] = trainer->best().loss;
  return d;
}

// A model of the library: a decoder from a preset or a config, or a trained one with its tokenizer.
struct LanguageModel {
  std::unique_ptr<Model> model;
  Tokenizer tokenizer;

  std::string generate(const std::string& prompt, int64_t max_tokens, const SamplerConfig& sampler,
                       const std::vector<std::string>& stop) {
    SampleOptions options{prompt, max_tokens, sampler, stop};
    std::string text;
    generate_text(*model, tokenizer, options, [&](std::string_view part) { text += part; });
    return text;
  }
};

SamplerConfig sampler_of(double temperature, int64_t top_k, double top_p, double min_p, double repetition_penalty,
                         int64_t seed) {
  SamplerConfig s;
  const Fields fields = fields_of(s);
  for (const Field& f : fields.all()) {  // with the ranges that the flags have
    const Json value = f.key == "temperature"          ? Json(temperature)
                       : f.key == "top_k"              ? Json(top_k)
                       : f.key == "top_p"              ? Json(top_p)
                       : f.key == "min_p"              ? Json(min_p)
                       : f.key == "repetition_penalty" ? Json(repetition_penalty)
                                                       : Json(seed);
    f.set(value, "generate");
  }
  return s;
}

// New ones, which Python owns.
LanguageModel* make(nb::handle config, const std::string& preset_name, uint64_t seed, DeviceArg device) {
  ModelConfig c;
  if (!preset_name.empty()) c = preset(preset_name);
  fields_from_json(fields_of(c), json_of(config, "config"), "config");
  c.check();
  const Device d = device.get();
  const Unlocked free;
  auto m = std::make_unique<LanguageModel>();
  m->model = make_model(c, seed, d);
  return m.release();
}

void bind_model(nb::module_& m) {
  nb::class_<LanguageModel>(m, "LanguageModel",
                            "A decoder of the library: its parameters, logits, loss, and text from it.")
      .def_static("make", make, "config"_a = nb::dict(), "preset"_a = "", "seed"_a = 1, "device"_a = nb::none(),
                  "A fresh model: config has the keys of a run's group `model`, over a preset's.")
      .def_static(
          "load",
          [](const std::filesystem::path& folder, const std::string& dtype, DeviceArg device) {
            const Device d = device.get();
            const Unlocked free;
            LoadedModel loaded = load_run_model(folder, dtype, d);
            auto lm = std::make_unique<LanguageModel>();
            lm->model = std::move(loaded.model), lm->tokenizer = loaded.tokenizer;
            return lm.release();
          },
          "folder"_a, "dtype"_a = "", "device"_a = nb::none(),
          "The trained model of a run folder or a checkpoint, ready to generate; its weights cannot be trained.")
      .def(
          "logits", [](LanguageModel& lm, const Tensor& ids) { return lm.model->logits(ids); }, "ids"_a, Release(),
          "ids (B, T) int32 -> (B, T, V).")
      .def(
          "loss",
          [](LanguageModel& lm, const Tensor& ids, const Tensor& targets) { return lm.model->loss(ids, targets); },
          "ids"_a, "targets"_a, Release(), "The mean cross-entropy of targets (B, T), left out where they are -100.")
      .def(
          "named_parameters",
          [](LanguageModel& lm) {
            std::vector<std::pair<std::string, Tensor>> all;
            for (const Param& p : lm.model->params()) all.emplace_back(p.name, *p.tensor);
            return all;
          },
          "(name, tensor) pairs; the tensors share storage and gradient with the model.")
      .def(
          "parameter_count", [](LanguageModel& lm) { return parameter_count(lm.model->params()); },
          "How many numbers the parameters are.")
      .def_prop_ro("tokenizer", [](const LanguageModel& lm) { return lm.tokenizer; })
      .def_prop_ro("config",
                   [](const LanguageModel& lm) {
                     ModelConfig c = lm.model->config();
                     return python_of(fields_to_json(fields_of(c)));
                   })
      .def(
          "generate",
          [](LanguageModel& lm, const std::string& prompt, int64_t max_tokens, double temperature, int64_t top_k,
             double top_p, double min_p, double repetition_penalty, int64_t seed,
             const std::vector<std::string>& stop) {
            const SamplerConfig s = sampler_of(temperature, top_k, top_p, min_p, repetition_penalty, seed);
            if (max_tokens < 0) fail_value("generate: max_tokens is {}", max_tokens);
            std::string text;
            {
              const Unlocked free;
              text = lm.generate(prompt, max_tokens, s, stop);
            }
            return text;
          },
          "prompt"_a = "", "max_tokens"_a = 200, nb::kw_only(), "temperature"_a = 1.0, "top_k"_a = 0, "top_p"_a = 1.0,
          "min_p"_a = 0.0, "repetition_penalty"_a = 1.0, "seed"_a = 0, "stop"_a = nb::list(),
          "The text that follows the prompt. temperature 0 takes the largest logit.");
}

// An optimizer of the library over Python's parameters, which it keeps.
class BoundOptimizer {
 public:
  BoundOptimizer(nb::handle config, const std::vector<std::pair<std::string, nb::object>>& params) {
    OptimConfig c;
    fields_from_json(fields_of(c), json_of(config, "optimizer"), "optimizer");
    std::vector<Param> all;
    for (const auto& [name, p] : params) {
      kept_.push_back(p);
      all.push_back({name, &nb::cast<Tensor&>(p)});
    }
    optimizer_ = make_optimizer(c, all);
  }
  void step(double lr, double grad_scale) {
    if (!optimizer_) fail("LibraryOptimizer: its parameters are gone");
    optimizer_->step(lr, grad_scale);
  }
  // For Python's collector.
  const std::vector<nb::object>& kept() const { return kept_; }
  void let_go() {
    optimizer_.reset();
    const std::vector<nb::object> gone = std::exchange(kept_, {});
  }
  std::vector<std::pair<std::string, Tensor>> state() {
    std::vector<std::pair<std::string, Tensor>> all;
    if (!optimizer_) return all;
    for (const Param& p : optimizer_->state()) all.emplace_back(p.name, *p.tensor);
    return all;
  }
  int64_t steps() const { return optimizer_ ? optimizer_->steps() : 0; }
  void set_steps(int64_t n) {
    if (optimizer_) optimizer_->set_steps(n);
  }

 private:
  std::vector<nb::object> kept_;
  std::unique_ptr<Optimizer> optimizer_;
};

PyType_Slot optimizer_slots[] = {
    {Py_tp_traverse, reinterpret_cast<void*>(+[](PyObject* self, visitproc visit, void* arg) {
       Py_VISIT(Py_TYPE(self));
       if (!nb::inst_ready(self)) return 0;
       for (const nb::object& o : nb::inst_ptr<BoundOptimizer>(self)->kept()) Py_VISIT(o.ptr());
       return 0;
     })},
    {Py_tp_clear, reinterpret_cast<void*>(+[](PyObject* self) {
       if (nb::inst_ready(self)) nb::inst_ptr<BoundOptimizer>(self)->let_go();
       return 0;
     })},
    {0, nullptr}};

}  // namespace

void bind_train(nb::module_& m) {
  bind_model(m);
  m.def("preset_names", preset_names, "Names of the models that presets describe.");
  m.def("plan", plan, "config"_a = nb::dict(), "preset"_a = "", "time"_a = false,
        "What a run of this configuration takes, found by running its code on meta: parameters, peak memory, FLOPs of "
        "a step "
        "and, with time, its seconds on this machine.");
  m.def("train", train, "config"_a, "out"_a, "preset"_a = "", "resume"_a = false, "quiet"_a = true,
        "Trains as `tally train` does: config has the groups model, data, optim, schedule and train; out is the run's "
        "folder. "
        "Ctrl-C saves and stops.");
  nb::class_<BoundOptimizer>(m, "LibraryOptimizer", "An optimizer of the library; tally.optim shows it.",
                             nb::type_slots(optimizer_slots))
      .def(nb::init<nb::handle, const std::vector<std::pair<std::string, nb::object>>&>(), "config"_a, "params"_a)
      .def("step", &BoundOptimizer::step, "lr"_a, "grad_scale"_a = 1.0, Release(),
           "Changes the parameters by their gradients times grad_scale.")
      .def("state", &BoundOptimizer::state, "(name, tensor) pairs of moments, over the same storage.")
      .def_prop_rw("steps", &BoundOptimizer::steps, &BoundOptimizer::set_steps);
}

}  // namespace tally::py
