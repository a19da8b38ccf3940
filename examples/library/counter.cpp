// The model from C++: owners that close what they opened, errors as exceptions, a session for each thread.
#include "populus.h"
#include <cstdio>
#include <memory>
#include <stdexcept>
#include <thread>
#include <vector>

struct Close {
  void operator()(populus_model *m) const { populus_unload(m); }
  void operator()(populus_session *s) const { populus_close(s); }
};
using Model = std::unique_ptr<populus_model, Close>;
using Session = std::unique_ptr<populus_session, Close>;

static void check(populus_status status, const populus_session *session = nullptr) {
  if (status) throw std::runtime_error(populus_error(session));
}

static Model load() {
  populus_model *model = nullptr;
  check(populus_load(nullptr, &model));
  return Model(model);
}

static Session open(const Model &model) {
  populus_session *session = nullptr;
  check(populus_open(model.get(), 1, &session));
  return Session(session);
}

int main() try {
  Model model = load();
  std::vector<Session> sessions;
  for (int i = 0; i < 4; i++) sessions.push_back(open(model));
  std::vector<float> results(4);
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; i++)
    threads.emplace_back([&, i] {
      std::vector<float> x(16, float(i)), y(8);
      const int64_t in[] = {2, 8}, out[] = {2, 4};
      populus_array input = {POPULUS_FLOAT32, 2, in, x.data()}, output = {POPULUS_FLOAT32, 2, out, y.data()};
      for (int run = 0; run <= i; run++) check(populus_run(sessions[i].get(), &input, 1, &output, 1), sessions[i].get());
      results[i] = y[0];
    });
  for (auto &thread : threads) thread.join();
  for (float result : results) std::printf("%g\n", result);
} catch (const std::exception &error) {
  std::fprintf(stderr, "%s\n", error.what());
  return 1;
}
